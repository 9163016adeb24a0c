//! Costs beside values from the closed forms, and beside each other.

use remat_types::ErrorKind;

use super::{AllReduce, Cost, Link, MOST_RANKS, Network};

const ALPHA: f64 = 2e-6;
const BETA: f64 = 1.0 / 8e9;
const GAMMA: f64 = 1.0 / 4e9;

/// All links alike, one rank a machine.
fn flat() -> Network {
    let link = Link { latency_s: ALPHA, bytes_per_s: 1.0 / BETA };
    Network { within: link, between: link, ranks_per_machine: 1, cards: 1, reduced_bytes_per_s: 1.0 / GAMMA }
}

/// Machines of 8 ranks, with fast links within.
fn tiered() -> Network {
    let within = Link { latency_s: 3e-7, bytes_per_s: 20e9 };
    Network { within, ranks_per_machine: 8, ..flat() }
}

fn of(network: &Network, how: AllReduce, ranks: usize, bytes: usize) -> Cost {
    network.all_reduce(how, ranks, bytes).expect("the parameters are sound")
}

/// Sums of at most some thousand terms, each rounded.
fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

#[track_caller]
fn assert_cost(c: Cost, latencies: f64, bytes: f64, reduced: f64) {
    let want = [latencies * ALPHA, bytes * BETA, reduced * GAMMA];
    let got = [c.latency_s, c.transfer_s, c.reduce_s];
    assert!(got.iter().zip(&want).all(|(g, w)| near(*g, *w)), "{got:?}, not {want:?}");
    assert!(near(c.sent_bytes, bytes), "{} bytes sent, not {bytes}", c.sent_bytes);
}

#[test]
fn powers_of_two_cost_what_the_papers_say() {
    let n = 8_000_000;
    let x = n as f64;
    assert_cost(of(&flat(), AllReduce::Ring, 8, n), 14.0, 1.75 * x, 0.875 * x);
    assert_cost(of(&flat(), AllReduce::RecursiveDoubling, 8, n), 3.0, 3.0 * x, 3.0 * x);
    assert_cost(of(&flat(), AllReduce::Rabenseifner, 8, n), 6.0, 1.75 * x, 0.875 * x);
    assert_cost(of(&flat(), AllReduce::Binomial, 8, n), 6.0, 6.0 * x, 3.0 * x);
}

#[test]
fn other_numbers_of_ranks_fold_first() {
    let n = 6_000_000;
    let x = n as f64;
    assert_cost(of(&flat(), AllReduce::Ring, 6, n), 10.0, 10.0 / 6.0 * x, 5.0 / 6.0 * x);
    assert_cost(of(&flat(), AllReduce::RecursiveDoubling, 6, n), 4.0, 4.0 * x, 3.0 * x);
    assert_cost(of(&flat(), AllReduce::Rabenseifner, 6, n), 6.0, 3.5 * x, 1.75 * x);
    assert_cost(of(&flat(), AllReduce::Binomial, 6, n), 6.0, 6.0 * x, 3.0 * x);
}

#[test]
fn the_communicator_costs_what_its_code_does() {
    // agreement along a tree of three levels, up and down
    let agreed = (6.0, 6.0 * 24.0, 3.0 * 24.0);
    // gathered whole by Bruck's algorithm: three rounds, seven blocks
    let c = of(&flat(), AllReduce::Remat, 8, 4096);
    assert_cost(c, agreed.0 + 3.0, agreed.1 + 7.0 * 4096.0, agreed.2 + 7.0 * 4096.0);
    // just above that: shares, seven rounds each way; the gather is short enough for Bruck's three
    let n = 4104.0;
    let c = of(&flat(), AllReduce::Remat, 8, 4104);
    assert_cost(c, agreed.0 + 7.0 + 3.0, agreed.1 + 1.75 * n, agreed.2 + 0.875 * n);
    // two whole chunks and half of one, all around a ring
    let n = 10.0 * f64::from(1 << 20);
    let c = of(&flat(), AllReduce::Remat, 8, 10 << 20);
    assert_cost(c, agreed.0 + 3.0 * 14.0, agreed.1 + 1.75 * n, agreed.2 + 0.875 * n);
    let barrier = flat().agreement(8).expect("sound");
    assert_cost(barrier, agreed.0, agreed.1, agreed.2);
    let gather = flat().own_all_gather(8, 1 << 20).expect("sound");
    assert_cost(gather, agreed.0 + 7.0, agreed.1 + 0.875 * f64::from(1 << 20), agreed.2);
}

#[test]
fn a_ring_moves_twice_the_bytes_at_most_and_doubling_takes_lg_latencies() {
    let n = 1 << 30;
    for ranks in [2usize, 3, 16, 100, 1024, 4096] {
        let x = (n as f64, ranks as f64);
        let c = of(&flat(), AllReduce::Ring, ranks, n);
        assert!(near(c.transfer_s, 2.0 * (x.1 - 1.0) / x.1 * x.0 * BETA), "{ranks}: {c:?}");
        let others = [AllReduce::RecursiveDoubling, AllReduce::Rabenseifner, AllReduce::Binomial];
        let least = c.transfer_s * (1.0 - 1e-12);
        assert!(others.iter().all(|a| of(&flat(), *a, ranks, n).transfer_s >= least), "the ring's is the optimum");
        let lg = if ranks.is_power_of_two() { f64::from(ranks.ilog2()) } else { f64::from(ranks.ilog2()) + 2.0 };
        assert!(near(of(&flat(), AllReduce::RecursiveDoubling, ranks, 8).latency_s, lg * ALPHA));
    }
    let all = of(&flat(), AllReduce::Ring, 1 << 20, n).transfer_s / (n as f64 * BETA);
    assert!((1.999..2.0).contains(&all), "{all}");
}

#[test]
fn one_rank_costs_nothing_and_more_never_cost_less() {
    for network in [flat(), tiered()] {
        for how in AllReduce::ALL {
            for bytes in [0, 4, 3000, 1 << 20, 100 << 20] {
                assert_eq!(of(&network, how, 1, bytes), Cost::default(), "{how}");
                let powers = (1..13).map(|i| of(&network, how, 1 << i, bytes).seconds());
                let seconds: Vec<f64> = powers.collect();
                // an algorithm, not a rule that changes to another
                if network.chosen(how, 2, bytes).expect("sound") == how && how != AllReduce::Remat {
                    assert!(seconds.is_sorted_by(|a, b| *a <= b * (1.0 + 1e-12)), "{how}, {bytes}: {seconds:?}");
                }
                assert!(seconds.iter().all(|s| s.is_finite() && *s > 0.0), "{how}, {bytes}: {seconds:?}");
            }
            let sizes: Vec<f64> = (14..28).map(|i| of(&network, how, 64, 1 << i).seconds()).collect();
            assert!(sizes.is_sorted(), "{how}: {sizes:?}");
        }
    }
}

#[test]
fn with_one_rank_a_machine_hierarchical_is_flat() {
    let others = AllReduce::ALL.into_iter().take(4);
    for (ranks, bytes) in [(2, 100), (8, 1 << 20), (100, 4096), (4096, 50 << 20)] {
        let least = others.clone().map(|a| of(&flat(), a, ranks, bytes).seconds()).fold(f64::INFINITY, f64::min);
        assert!(near(of(&flat(), AllReduce::Hierarchical, ranks, bytes).seconds(), least));
    }
}

#[test]
fn on_one_machine_the_links_between_do_not_matter() {
    let slow = Link { latency_s: 1.0, bytes_per_s: 1.0 };
    for how in AllReduce::ALL {
        for ranks in 2..=8 {
            let far = Network { between: slow, ..tiered() };
            assert_eq!(of(&far, how, ranks, 1 << 20), of(&tiered(), how, ranks, 1 << 20), "{how} on {ranks}");
        }
    }
}

#[test]
fn ranks_that_share_a_card_wait_for_it() {
    let n = 64 << 20;
    let own = Network { cards: 8, ..tiered() };
    // whole tensors of eight ranks through one card, at each of three distances beyond a machine
    let [shared, each] = [tiered(), own].map(|net| of(&net, AllReduce::RecursiveDoubling, 64, n).transfer_s);
    let (far, close) = (3.0 * n as f64 * BETA, 3.0 * n as f64 / 20e9);
    assert!(near(shared, 8.0 * far + close) && near(each, far + close), "{shared}, {each}");
    // one of a ring's ranks at a time leaves its machine
    let [shared, each] = [tiered(), own].map(|net| of(&net, AllReduce::Ring, 64, n).seconds());
    assert_eq!(shared, each);
    // an exchange of all with all: of 64 ranks 56 are elsewhere for each of 8
    let between = Network { within: Link { latency_s: 0.0, bytes_per_s: 1e15 }, ..tiered() };
    let c = between.all_to_all(64, n).expect("sound");
    assert!(near(c.transfer_s, 8.0 * 56.0 / 64.0 * n as f64 * BETA), "{c:?}");
    // what each machine has to tell the others goes through its card once, and so it does where neighbours halve first
    let [tree, doubling, halving, levels] =
        [AllReduce::Binomial, AllReduce::RecursiveDoubling, AllReduce::Rabenseifner, AllReduce::Hierarchical]
            .map(|a| of(&tiered(), a, 64, n).transfer_s);
    assert!(near(halving, levels) && tree > levels && doubling > levels, "{tree}, {doubling}, {halving}, {levels}");
}

#[test]
fn a_round_waits_for_all_ranks_of_a_machine_at_most() {
    for how in AllReduce::ALL {
        let seconds = [4, 6, 8].map(|l| of(&Network { ranks_per_machine: l, ..tiered() }, how, 64, 1 << 22).seconds());
        assert!(seconds.iter().all(|s| s.is_finite()), "{how}: {seconds:?}");
        // all on one machine, over the slower links
        let alone = of(&Network { ranks_per_machine: 64, within: tiered().between, ..tiered() }, how, 64, 1 << 22);
        let bound = [4.0, 6.0, 8.0].map(|l| l * alone.seconds());
        assert!(seconds.iter().zip(bound).all(|(s, b)| *s <= b), "{how}: {seconds:?}, {bound:?}");
    }
}

#[test]
fn libraries_choose_by_size_and_number() {
    let chosen = |how, ranks, bytes| flat().chosen(how, ranks, bytes).expect("sound");
    for (bytes, want) in [(2048, AllReduce::RecursiveDoubling), (2052, AllReduce::Rabenseifner)] {
        assert_eq!(chosen(AllReduce::Mpich, 16, bytes), want);
    }
    assert_eq!(chosen(AllReduce::Mpich, 4096, 4095 * 4), AllReduce::RecursiveDoubling, "fewer elements than ranks");
    assert_eq!(chosen(AllReduce::Mpich, 4096, 4096 * 4), AllReduce::Rabenseifner);
    for (bytes, want) in [(9_999, AllReduce::RecursiveDoubling), (10_000, AllReduce::Ring)] {
        assert_eq!(chosen(AllReduce::OpenMpi, 16, bytes), want);
    }
    assert_eq!(chosen(AllReduce::OpenMpi, 4096, 16_000), AllReduce::Binomial, "fewer elements than ranks");
    // three phases of the first half
    let c = of(&flat(), AllReduce::OpenMpi, 4, 12 << 20);
    assert_cost(c, 3.0 * 3.0 + 3.0, 1.5 * f64::from(12 << 20), 0.75 * f64::from(12 << 20));
    let cheapest = |bytes| of(&flat(), AllReduce::Cheapest, 128, bytes).seconds();
    for bytes in [8, 10_000, 100 << 20] {
        let costs = AllReduce::ALL[..5].iter().map(|a| of(&flat(), *a, 128, bytes).seconds());
        assert_eq!(cheapest(bytes), costs.fold(f64::INFINITY, f64::min));
    }
}

#[test]
fn gathers_change_from_few_latencies_to_few_ports() {
    let c = |ranks, bytes| flat().all_gather(ranks, bytes).expect("sound");
    assert_cost(c(8, (512 << 10) - 8), 3.0, 0.875 * f64::from((512 << 10) - 8), 0.0);
    assert_cost(c(8, 512 << 10), 7.0, 0.875 * f64::from(512 << 10), 0.0);
    assert_cost(c(6, 60_000), 3.0, 50_000.0, 0.0);
    assert_cost(c(6, 90_000), 5.0, 75_000.0, 0.0);
    assert_eq!(c(1, 1000), Cost::default());
}

#[test]
fn parameters_that_mean_nothing_are_refused() {
    let link = flat().between;
    let mut wrong = Vec::new();
    for v in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        wrong.push(Network { within: Link { bytes_per_s: v, ..link }, ..flat() });
        wrong.push(Network { between: Link { bytes_per_s: v, ..link }, ..flat() });
        wrong.push(Network { reduced_bytes_per_s: v, ..flat() });
    }
    for v in [-1e-9, f64::NAN, f64::INFINITY] {
        wrong.push(Network { within: Link { latency_s: v, ..link }, ..flat() });
        wrong.push(Network { between: Link { latency_s: v, ..link }, ..flat() });
    }
    for v in [0, MOST_RANKS + 1, usize::MAX] {
        wrong.push(Network { ranks_per_machine: v, ..flat() });
        wrong.push(Network { cards: v, ..flat() });
    }
    for network in wrong {
        let e = network.all_reduce(AllReduce::Ring, 8, 8).expect_err("must be refused");
        assert_eq!(e.kind(), ErrorKind::Value, "{e}");
    }
    for (ranks, bytes) in [(0, 8), (MOST_RANKS + 1, 8), (usize::MAX, 8), (8, usize::MAX)] {
        for how in AllReduce::ALL {
            let results = [flat().all_reduce(how, ranks, bytes), flat().all_to_all(ranks, bytes)];
            assert!(results.iter().all(|r| r.as_ref().is_err_and(|e| e.kind() == ErrorKind::Value)), "{how}");
        }
    }
    assert!(of(&flat(), AllReduce::Cheapest, MOST_RANKS, 1 << 40).seconds().is_finite());
}

#[test]
fn names_read_as_they_print() {
    for how in AllReduce::ALL {
        assert_eq!(how.to_string().parse::<AllReduce>().expect("its own name"), how);
    }
    let e = "nccl".parse::<AllReduce>().expect_err("none of them");
    assert!(e.kind() == ErrorKind::Value && e.to_string().contains("rabenseifner"), "{e}");
}
