//! Steps of a profile that was made by hand.

use remat::nn::distributed::{Communicator, DataParallel, DataParallelOptions};
use remat::nn::models::{Gpt, GptConfig, ResNet, ResNetConfig};
use remat::nn::{InitCx, Module};
use remat::runtime::{Device, DeviceOptions};
use remat::tensor::comm::cost::{AllReduce, Link, MOST_RANKS, Network};
use remat::types::ErrorKind;

use super::{AtBatch, Batch, Bound, Gradient, Profile, Setting, Step, buckets, expected_maximum, predict};

/// Three gradients of 100,000 bytes, each a bucket; a step of 10, 20 and 2 ms.
fn profile() -> Profile {
    let gradient = |name: &str| Gradient { name: name.to_owned(), dtype: "f32".to_owned(), bytes: 100_000 };
    Profile {
        work: "train:made".to_owned(),
        threads: 1,
        ranks: 1,
        turns: 5,
        slowed_by_marks: 1.0,
        bundle_ms: 0.0,
        calls: 1,
        gradients: vec![gradient("a"), gradient("b"), gradient("c")],
        at: vec![AtBatch {
            batch: 8.0,
            forward_ms: 10.0,
            backward_ms: 20.0,
            update_ms: 2.0,
            ready_ms: vec![20.0, 10.0, 5.0],
        }],
    }
}

/// A bucket takes two ranks 3 ms: of latency, of transfer, and of adding up one each. An agreement takes two latencies and 72 ns.
fn network() -> Network {
    let link = Link { latency_s: 1e-3, bytes_per_s: 1e8 };
    Network { within: link, between: link, ranks_per_machine: 1, cards: 1, reduced_bytes_per_s: 1e8 }
}

const AGREEMENT_MS: f64 = 2.0 + 72.0 * 1e-5;

fn setting() -> Setting {
    Setting {
        batch: Batch::EachRank(8.0),
        how: AllReduce::RecursiveDoubling,
        overlaps: true,
        jitter: 0.0,
        bucket_bytes: super::BUCKET_BYTES,
        faster: 1.0,
        processors: None,
    }
}

fn step(setting: &Setting, ranks: usize) -> Step {
    predict(&profile(), &network(), setting, ranks).expect("all is sound")
}

#[track_caller]
fn assert_near(got: f64, want: f64) {
    assert!((got - want).abs() <= 1e-9 * want.abs(), "{got}, not {want}");
}

#[test]
fn buckets_go_in_order_as_they_become_ready() {
    // ready at 15, 20 and 30 ms, each done before the next is ready
    let s = step(&setting(), 2);
    assert_near(s.step_ms, 33.0 + AGREEMENT_MS + 2.0);
    assert_near(s.communication_ms, 9.0 + AGREEMENT_MS);
    assert_near(s.exposed_ms, 3.0 + AGREEMENT_MS);
    assert_near(s.hidden_share.expect("there is communication"), 6.0 / (9.0 + AGREEMENT_MS));
    assert_near(s.efficiency, 32.0 / s.step_ms);
    assert_near(s.samples_per_s, 16.0 / (s.step_ms * 1e-3));
    assert_near(s.sent_bytes, 300_000.0 + 48.0);
    assert_eq!(s.bound, Bound::LastBucket);
    let s = step(&Setting { overlaps: false, ..setting() }, 2);
    assert_near(s.step_ms, 30.0 + 9.0 + AGREEMENT_MS + 2.0);
    assert_eq!(s.hidden_share, Some(0.0));
}

#[test]
fn buckets_that_take_longer_than_the_pass_follow_each_other() {
    // ten times the bytes a second less: 1 + 10 + 1 ms a bucket; begins at 15, 27 and 39 ms
    let link = Link { bytes_per_s: 1e7, ..network().between };
    let slow = Network { between: link, ..network() };
    let s = predict(&profile(), &slow, &setting(), 2).expect("sound");
    let agreement = 2.0 + 48.0 * 1e-4 + 24.0 * 1e-5;
    assert_near(s.step_ms, 51.0 + agreement + 2.0);
    assert_eq!(s.bound, Bound::Bandwidth);
    let far = Network { between: Link { latency_s: 1e-2, ..network().between }, ..network() };
    assert_eq!(predict(&profile(), &far, &setting(), 8).expect("sound").bound, Bound::Latency);
    let weak = Network { reduced_bytes_per_s: 1e6, ..network() };
    assert_eq!(predict(&profile(), &weak, &setting(), 8).expect("sound").bound, Bound::Reduction);
    let fast = Link { latency_s: 1e-6, bytes_per_s: 1e10 };
    let fast = Network { between: fast, reduced_bytes_per_s: 1e10, ..network() };
    assert_eq!(predict(&profile(), &fast, &setting(), 8).expect("sound").bound, Bound::Compute);
}

#[test]
fn a_bucket_of_several_gradients_waits_for_its_last_and_buckets_have_their_price() {
    let mut p = Profile { bundle_ms: 1.8, ..profile() };
    // 60,000 bytes are below the smallest bucket of 65,536: two, and one
    p.gradients.iter_mut().for_each(|g| g.bytes = 60_000);
    assert_eq!(buckets(&p.gradients, usize::MAX), [vec![2, 1], vec![0]]);
    let s = predict(&p, &network(), &setting(), 2).expect("sound");
    // two thirds of the price until 120,000 bytes are ready at 21.2 ms, which take 1 + 2.4 ms; the pass ends at 31.8 ms
    assert_near(s.compute_ms, 31.8);
    assert_near(s.step_ms, 31.8 + 1.0 + 1.2 + AGREEMENT_MS + 2.0);
}

#[test]
fn one_rank_is_what_was_measured() {
    for how in AllReduce::ALL {
        for overlaps in [false, true] {
            let s = step(&Setting { how, overlaps, jitter: 0.3, ..setting() }, 1);
            assert_near(s.step_ms, 32.0);
            assert_near(s.efficiency, 1.0);
            assert_eq!((s.communication_ms, s.sent_bytes, s.hidden_share, s.bound), (0.0, 0.0, None, Bound::Compute));
        }
    }
}

#[test]
fn more_ranks_never_take_less_and_overlap_never_more() {
    for how in [AllReduce::Ring, AllReduce::RecursiveDoubling, AllReduce::Cheapest, AllReduce::Remat] {
        let of = |overlaps| -> Vec<f64> {
            let with = Setting { how, overlaps, jitter: 0.05, ..setting() };
            (0..13).map(|i| step(&with, 1 << i).step_ms).collect()
        };
        let (apart, overlapped) = (of(false), of(true));
        assert!(apart.is_sorted() && overlapped.is_sorted(), "{how}: {apart:?}, {overlapped:?}");
        assert!(apart.iter().zip(&overlapped).all(|(a, o)| o <= a), "{how}: {apart:?}, {overlapped:?}");
    }
}

#[test]
fn all_wait_for_the_slowest() {
    // of 10 % of a step of 32 ms, which a deviation of steps is made of at random
    let late = |seconds: f64| 0.1 * expected_maximum(64) * (seconds * 32.0).sqrt();
    let apart = Setting { overlaps: false, ..setting() };
    let (even, s) = (step(&apart, 64), step(&Setting { jitter: 0.1, ..apart }, 64));
    // ranks meet after 15, 20 and 30 ms
    let waited = late(15.0) + late(5.0) + late(10.0) + late(0.0);
    assert_near(s.late_ms, waited);
    assert_near(s.step_ms, even.step_ms + waited);
    assert_near(s.exposed_ms, even.exposed_ms);
    // overlapped, only before the last bucket and the update
    let (even, s) = (step(&setting(), 64), step(&Setting { jitter: 0.1, ..setting() }, 64));
    assert_near(s.late_ms, late(30.0));
    assert!(s.step_ms > even.step_ms + 0.5 * late(30.0) && s.step_ms <= even.step_ms + late(30.0), "{s:?}");
}

#[test]
fn strong_scaling_shares_a_batch() {
    let s = step(&Setting { batch: Batch::AllRanks(8.0), ..setting() }, 2);
    assert_near(s.batch, 4.0);
    // in proportion: ready at 7.5, 10 and 15 ms, done at 10.5, 13.5 and 18 ms
    assert_near(s.step_ms, 18.0 + AGREEMENT_MS + 2.0);
    assert_near(s.efficiency, 32.0 / (2.0 * s.step_ms));
    let e = predict(&profile(), &network(), &Setting { batch: Batch::AllRanks(8.0), ..setting() }, 16);
    assert_eq!(e.expect_err("half an example").kind(), ErrorKind::Value);

    // two batches: what does not shrink with the batch stays
    let mut p = profile();
    p.at.push(AtBatch {
        batch: 2.0,
        forward_ms: 4.0,
        backward_ms: 20.0,
        update_ms: 2.0,
        ready_ms: vec![20.0, 10.0, 5.0],
    });
    let at = p.at(4.0);
    assert_near(at.forward_ms, 6.0);
    assert_near(at.backward_ms, 20.0);
    assert_eq!(p.at(8.0), p.at[0]);
    // a smaller batch that took longer is noise, and one that took no share of its time at all has nothing fixed
    p.at[1].forward_ms = 11.0;
    assert_near(p.at(4.0).forward_ms, 10.0);
    p.at[1].forward_ms = 1.0;
    assert_near(p.at(4.0).forward_ms, 5.0);
}

#[test]
fn processors_and_devices_change_the_compute_alone() {
    let machine = Network { ranks_per_machine: 4, ..network() };
    let of = |setting: &Setting| predict(&profile(), &machine, setting, 4).expect("sound");
    let (base, shared) = (of(&setting()), of(&Setting { processors: Some(2), ..setting() }));
    assert_near(shared.compute_ms, 2.0 * base.compute_ms);
    assert_near(shared.update_ms, 2.0 * base.update_ms);
    assert_near(shared.communication_ms, base.communication_ms);
    // measured with two ranks on those processors, which had one each
    let p = Profile { ranks: 4, ..profile() };
    let again = predict(&p, &machine, &Setting { processors: Some(2), ..setting() }, 4).expect("sound");
    assert_near(again.compute_ms, base.compute_ms);
    assert_near(of(&Setting { faster: 4.0, ..setting() }).compute_ms, base.compute_ms / 4.0);
}

#[test]
fn hostile_numbers_are_refused() {
    let refused = |p: &Profile, n: &Network, s: &Setting, ranks: usize| {
        let e = predict(p, n, s, ranks).expect_err("must be refused");
        assert_eq!(e.kind(), ErrorKind::Value, "{e}");
    };
    for ranks in [0, MOST_RANKS + 1, usize::MAX] {
        refused(&profile(), &network(), &setting(), ranks);
    }
    for v in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        refused(&profile(), &network(), &Setting { faster: v, ..setting() }, 2);
        refused(&profile(), &network(), &Setting { batch: Batch::EachRank(v), ..setting() }, 2);
        refused(&profile(), &Network { reduced_bytes_per_s: v, ..network() }, &setting(), 2);
        let mut p = profile();
        p.at[0].batch = v;
        refused(&p, &network(), &setting(), 2);
    }
    for v in [f64::NAN, f64::INFINITY, -1.0] {
        refused(&profile(), &network(), &Setting { jitter: v, ..setting() }, 2);
        refused(&Profile { bundle_ms: v, ..profile() }, &network(), &setting(), 2);
        let mut p = profile();
        p.at[0].ready_ms[1] = v;
        refused(&p, &network(), &setting(), 2);
    }
    refused(&profile(), &network(), &Setting { bucket_bytes: 0, ..setting() }, 2);
    refused(&profile(), &network(), &Setting { processors: Some(0), ..setting() }, 2);
    let mut p = profile();
    p.at[0].ready_ms.pop();
    refused(&p, &network(), &setting(), 2);
    p = profile();
    p.gradients[0].bytes = usize::MAX;
    refused(&p, &network(), &setting(), 2);
    refused(&Profile { at: Vec::new(), ..profile() }, &network(), &setting(), 2);
    refused(&Profile { threads: 0, ..profile() }, &network(), &setting(), 2);
}

#[test]
fn buckets_are_those_of_data_parallel_training() {
    let device = Device::dry(DeviceOptions::default()).expect("a dry device");
    let cx = &mut InitCx::new(&device, 1);
    let resnet = ResNet::new(cx, &ResNetConfig::resnet18()).expect("a network");
    let gpt = Gpt::new(cx, &GptConfig::default()).expect("a network");
    compare(&resnet);
    compare(&gpt);
}

#[track_caller]
fn compare(net: &impl Module) {
    let of = |(name, p): (String, remat::nn::Parameter)| Gradient {
        name,
        dtype: p.dtype().to_string(),
        bytes: p.elems() * p.dtype().size_bytes(),
    };
    let gradients: Vec<Gradient> = net.named_parameters().into_iter().map(of).collect();
    // limits at which the number changes tell where the buckets end
    let mut seen = std::collections::BTreeSet::new();
    for bucket_bytes in (0..200).map(|i| 1000 * (i * i + 1)) {
        let options = DataParallelOptions { bucket_bytes, ..Default::default() };
        let theirs = DataParallel::new(net, &Communicator::alone(), options).expect("one rank").buckets();
        assert_eq!(buckets(&gradients, bucket_bytes).len(), theirs, "buckets of {bucket_bytes} bytes");
        seen.insert(theirs);
    }
    assert!(seen.len() > 5, "{seen:?}");
}
