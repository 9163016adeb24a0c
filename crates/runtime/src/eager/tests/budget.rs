//! The budget as a contract.

use std::sync::Arc;

use remat_emulated::EmulatedOptions;
use remat_ops::reduce::{Reduce, ReduceFn};
use remat_types::{ErrorKind, HostTensor, smallvec};

use super::ops::{Mode, Probe};
use super::{add, apply1, budget, cpu, exp, matmul, put, ramp, recording, tanh, value};
use crate::eager::{Channel, Device, Handle};
use crate::report::Kind;
use crate::{Alignment, DeviceOptions, PolicyKind, largest_batch, smallest_budget, smallest_budget_within};

const UNIT: usize = 4096;

fn unit(c: &Channel) -> Handle {
    put(c, &ramp(UNIT / 4))
}

/// A chain of `n` results that all stay alive.
fn chain(c: &Channel, n: usize) -> Vec<Handle> {
    let mut all = vec![unit(c)];
    for i in 0..n {
        let x = all[i].clone();
        all.push(if i % 2 == 0 { tanh(c, &x) } else { exp(c, &x) });
    }
    all
}

#[test]
fn the_peak_stays_within_any_budget_and_values_do_not_change() {
    let free = cpu(recording());
    let all = chain(&free, 20);
    let want: Vec<_> = all.iter().map(|h| value(&free, h)).collect();
    assert_eq!(free.stats().expect("open").peak_bytes, 21 * UNIT);
    for policy in [PolicyKind::Window, PolicyKind::Dtr, PolicyKind::Upstream] {
        for units in [3, 4, 7, 20] {
            let c = cpu(DeviceOptions { policy, ..budget(units * UNIT) });
            let all = chain(&c, 20);
            for (h, want) in all.iter().zip(&want).rev() {
                assert_eq!(&value(&c, h), want);
            }
            let s = c.stats().expect("open");
            assert!(s.peak_bytes <= units * UNIT && s.recomputed_ops > 0, "{policy:?} {units} {s:?}");
            assert_eq!(s.least_budget_bytes, 3 * UNIT);
            c.verify().expect("consistent");
        }
    }
}

#[test]
fn an_infeasible_budget_names_op_bytes_and_holders_and_the_least_that_works() {
    let run = |bytes: usize| {
        let c = cpu(budget(bytes));
        let w = c.put_as(&ramp(UNIT / 4), Kind::Parameter).expect("open");
        let x = tanh(&c, &w);
        let y = apply1(&c, Probe(Mode::Workspace), [x.clone()]);
        (c.value(&y), c.value(&w))
    };
    let (y, w) = run(3 * UNIT);
    let e = y.expect_err("parameter, input, output and workspace are four units");
    assert_eq!((e.kind(), e.op()), (ErrorKind::Budget, Some("probe")));
    assert!(e.call_site().is_some());
    let s = e.shortfall().expect("figures").clone();
    assert_eq!((s.needed_bytes, s.budget_bytes, s.smallest_feasible_bytes), (2 * UNIT, 3 * UNIT, 4 * UNIT));
    let pinned: Vec<_> = s.pinned.iter().map(|p| (p.by.as_str(), p.bytes)).collect();
    assert_eq!(pinned, [("inputs and outputs of probe", UNIT), ("parameters", UNIT)]);
    assert_eq!(w.expect("intact").to_vec::<f32>().expect("f32").len(), UNIT / 4);
    run(4 * UNIT).0.expect("the smallest feasible budget works");
    run(4 * UNIT - 64).0.expect_err("and nothing below it");
}

#[test]
fn recomputation_that_does_not_fit_says_what_would() {
    // d = a + c with b = exp a, c = tanh b: recomputing c takes b and c beside the pinned a.
    let run = |bytes: usize| {
        let c = cpu(budget(bytes));
        let x = unit(&c);
        let a = tanh(&c, &x);
        let big = apply1(&c, remat_ops::shape::Reshape { shape: [1, UNIT / 4].into() }, [exp(&c, &a)]);
        let wide = apply1(&c, remat_ops::shape::BroadcastTo { shape: [3, UNIT / 4].into() }, [big.clone()]);
        let wide = tanh(&c, &wide);
        drop(big);
        let r = Reduce { f: ReduceFn::Sum, axes: smallvec![0], keepdims: false };
        let s = apply1(&c, r, [wide.clone()]);
        drop(wide);
        c.sync()?;
        c.evict_all()?;
        let y = add(&c, &a, &s);
        c.value(&y)
    };
    let mut bytes = 5 * UNIT;
    let mut told = Vec::new();
    while let Err(e) = run(bytes) {
        let least = e.shortfall().unwrap_or_else(|| panic!("not a budget error: {e}")).smallest_feasible_bytes;
        assert!(least > bytes, "{e}");
        told.push(least);
        bytes = least;
    }
    assert!(told.len() <= 2, "{told:?}");
    assert!(run(bytes - 64).is_err(), "{bytes} is not the least: {told:?}");
}

#[test]
fn what_recomputation_takes_counts_every_byte_once_and_no_other_command() {
    let c = cpu(recording());
    let x = unit(&c);
    let a = tanh(&c, &x);
    // Recomputing s takes the pinned a, s and a workspace, beside the leaf x: four units.
    let s = apply1(&c, Probe(Mode::Workspace), [a.clone()]);
    // An earlier command that took more is no reason to require more.
    let wide = put(&c, &ramp(UNIT));
    drop(add(&c, &wide, &wide));
    drop(wide);
    c.sync().expect("fits");
    c.drop_value(&s).expect("open");
    c.set_budget(Some(3 * UNIT)).expect("holds x and a");
    let e = c.value(&add(&c, &a, &s)).expect_err("four are needed");
    assert_eq!(e.shortfall().expect("figures").smallest_feasible_bytes, 4 * UNIT, "{e}");
    c.set_budget(Some(4 * UNIT - 64)).expect("holds x and a");
    c.value(&add(&c, &a, &s)).expect_err("a unit less a line is not enough");
    c.set_budget(Some(4 * UNIT)).expect("holds x and a");
    c.value(&add(&c, &a, &s)).expect("and four are");
}

#[test]
fn set_budget_goes_down_and_up() {
    let c = cpu(recording());
    let all = chain(&c, 10);
    let want: Vec<_> = all.iter().map(|h| value(&c, h)).collect();
    let e = c.set_budget(Some(UNIT / 2)).expect_err("the data alone is more");
    assert_eq!(e.kind(), ErrorKind::Budget);
    assert_eq!(c.stats().expect("open").budget_bytes, None, "the old budget stays in force");
    c.set_budget(Some(3 * UNIT)).expect("feasible");
    c.reset_peak().expect("open");
    for (h, want) in all.iter().zip(&want) {
        assert_eq!(&value(&c, h), want);
    }
    let s = c.stats().expect("open");
    assert!(s.peak_bytes <= 3 * UNIT && s.reserved_bytes <= 3 * UNIT, "{s:?}");
    c.set_budget(Some(100 * UNIT)).expect("larger");
    let more = tanh(&c, &all[10]);
    c.set_budget(None).expect("always");
    assert_eq!(value(&c, &more).len(), UNIT / 4);
    c.verify().expect("consistent");
}

#[test]
fn host_bytes_are_charged_while_the_charge_lives() {
    let c = cpu(budget(4 * UNIT));
    let x = unit(&c);
    let charge = c.charge(2 * UNIT, "loader").expect("fits");
    assert_eq!(charge.bytes(), 2 * UNIT);
    let e = c.charge(2 * UNIT, "loader").err().expect("does not fit");
    assert_eq!(e.kind(), ErrorKind::Budget);
    assert!(e.message().contains("loader"), "{e}");
    let report = c.report().expect("open");
    assert!(report.peak_by_kind.iter().any(|h| h.name == "staging" && h.bytes == 2 * UNIT), "{report:?}");
    drop(charge);
    let _again = c.charge(3 * UNIT, "loader").expect("fits now");
    assert_eq!(value(&c, &x).len(), UNIT / 4);
    c.verify().expect("consistent");
}

#[test]
fn staging_counts_as_the_hosts_where_the_device_has_memory_of_its_own() {
    let options =
        DeviceOptions { budget_bytes: Some(4 * UNIT), host_budget_bytes: Some(3 * UNIT), ..Default::default() };
    let emulated = EmulatedOptions::default().open().expect("opens");
    let d = Device::with_backend(emulated, options).expect("opens");
    let c = d.channel();
    let charge = c.charge(2 * UNIT, "loader").expect("fits");
    let e = c.charge(2 * UNIT, "loader").err().expect("does not fit");
    let s = e.shortfall().expect("with figures");
    assert_eq!((s.budget_bytes, s.needed_bytes, s.smallest_feasible_bytes), (3 * UNIT, 2 * UNIT, 4 * UNIT), "{e}");
    assert!(e.to_string().contains("pinned host memory"), "{e}");
    let x = c.put(&ramp(4 * UNIT / 4)).expect("the device is empty");
    let stats = c.stats().expect("open");
    let host = stats.pinned_host.expect("another memory");
    assert_eq!((stats.in_use_bytes, host.in_use_bytes, host.peak_bytes), (4 * UNIT, 2 * UNIT as u64, 2 * UNIT as u64));
    drop((charge, x));
    let host = c.stats().expect("open").pinned_host.expect("another memory");
    assert_eq!((host.in_use_bytes, host.peak_bytes), (0, 2 * UNIT as u64));
    c.charge(3 * UNIT, "loader").expect("fits now");
    c.verify().expect("consistent");
}

#[test]
fn a_charge_that_gives_way_ends_where_the_device_has_no_other_room() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let c = cpu(budget(4 * UNIT));
    let ended = Arc::new(AtomicUsize::new(0));
    let counted = ended.clone();
    let give_way: crate::GiveWay = Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let first = c.charge_giving_way(UNIT, "loader", give_way.clone()).expect("fits");
    let second = c.charge_giving_way(UNIT, "loader", give_way.clone()).expect("fits");
    let all = [unit(&c), unit(&c), unit(&c)];
    assert_eq!(value(&c, &all[2]).len(), UNIT / 4);
    assert_eq!(ended.load(Ordering::SeqCst), 1, "one was enough");
    c.verify().expect("consistent");
    let e = c.charge_giving_way(UNIT, "loader", give_way.clone()).err().expect("no room for another");
    assert_eq!((e.kind(), ended.load(Ordering::SeqCst)), (ErrorKind::Budget, 1), "a charge pushes out no charge");
    drop((first, second));
    let _again = c.charge_giving_way(UNIT, "loader", give_way).expect("fits now");
    c.verify().expect("consistent");
}

#[test]
fn a_budget_that_no_machine_can_have_is_refused_by_name() {
    let e = Device::cpu(DeviceOptions::with_budget(usize::MAX)).expect_err("too much");
    assert!(e.kind() == ErrorKind::Value && e.message().contains("budget_bytes"), "{e}");
    let c = cpu(budget(4 * UNIT));
    assert_eq!(c.set_budget(Some(usize::MAX)).expect_err("too much").kind(), ErrorKind::Value);
}

#[test]
fn committed_tensors_are_kept_and_forget_how_they_were_made() {
    let c = cpu(recording());
    let x = unit(&c);
    let y = exp(&c, &x);
    drop(x);
    assert_eq!(c.stats().expect("open").storages, 2, "the data may be needed again");
    c.drop_value(&y).expect("open");
    c.commit(&y, Kind::OptimizerState).expect("open");
    let s = c.stats().expect("open");
    assert_eq!((s.storages, s.recipes, s.recomputed_ops), (1, 0, 1));
    c.drop_value(&y).expect("open");
    assert_eq!(value(&c, &y).len(), UNIT / 4);
    c.reset_peak().expect("open");
    let report = c.report().expect("open");
    assert!(report.peak_by_kind.iter().any(|h| h.name == "optimiser state"), "{report:?}");
    c.verify().expect("consistent");
}

#[test]
fn a_device_without_a_budget_that_is_full_evicts_what_it_can() {
    let options = remat_emulated::EmulatedOptions { memory_bytes: 6 * UNIT, max_delay_us: 0, ..Default::default() };
    let d = options.open().and_then(|b| crate::Device::with_backend(b, recording())).expect("opens");
    let c = d.channel();
    let all = chain(&c, 20);
    assert_eq!(value(&c, &all[20]).len(), UNIT / 4);
    assert!(c.stats().expect("open").evictions > 0);
    let e = c.value(&put(&c, &ramp(10 * UNIT))).expect_err("more than there is");
    assert_eq!(e.kind(), ErrorKind::Budget);
}

#[test]
fn kept_losses_do_not_keep_their_batches() {
    let c = cpu(budget(8 * UNIT));
    let sum = remat_ops::reduce::Reduce { f: remat_ops::reduce::ReduceFn::Sum, axes: smallvec![0], keepdims: false };
    let losses: Vec<Handle> = (0..50)
        .map(|_| {
            let batch = unit(&c);
            apply1(&c, sum.clone(), [tanh(&c, &batch)])
        })
        .collect();
    let first = value(&c, &losses[0]);
    assert!(losses.iter().all(|l| value(&c, l) == first));
    c.verify().expect("consistent");
}

#[test]
fn matrix_products_keep_their_bits_under_a_budget() {
    let run = |c: &Channel| {
        let square = |seed: usize| {
            let v: Vec<f32> = (0..64 * 64).map(|i| ((i * 31 + seed) % 101) as f32 * 0.01 - 0.5).collect();
            put(c, &HostTensor::from_slice(&v, [64, 64]).expect("fits"))
        };
        let (w, mut x) = (square(3), square(7));
        let mut kept = Vec::new();
        for _ in 0..8 {
            x = tanh(c, &matmul(c, &x, &w));
            kept.push(x.clone());
        }
        kept.iter().rev().map(|h| value(c, h)).collect::<Vec<_>>()
    };
    let c = cpu(recording());
    let want = run(&c);
    let least = c.stats().expect("open").least_budget_bytes;
    assert_eq!(run(&cpu(budget(least + 3 * 16384))), want);
}

#[test]
fn a_recording_replays_with_the_peak_of_the_run() {
    let c = cpu(recording());
    let before = unit(&c);
    c.start_recording().expect("open");
    let mut all = chain(&c, 12);
    let x = apply1(&c, Probe(Mode::Workspace), [before.clone()]);
    let t = apply1(&c, remat_ops::shape::Reshape { shape: [UNIT / 8, 2].into() }, [x.clone()]);
    drop(x);
    all.push(apply1(&c, Probe(Mode::Increment), [t]));
    value(&c, &all[3]);
    c.drop_value(&all[5]).expect("open");
    drop(all.split_off(6));
    let stream = c.stop_recording().expect("open");
    let free = crate::simulate(&stream, PolicyKind::Window, None).expect("feasible");
    assert_eq!(free.peak_bytes, c.stats().expect("open").peak_bytes);
    let tight = crate::simulate(&stream, PolicyKind::Window, Some(5 * UNIT)).expect("feasible");
    assert!(tight.peak_bytes <= 5 * UNIT && tight.recomputed_ops > 0, "{tight:?}");
}

#[test]
fn what_can_go_is_found_among_thousands_that_cannot() {
    let (large, count) = (64 * UNIT, 3000);
    let c = cpu(budget(2 * large + (count + 8) * 64));
    let _fixed: Vec<Handle> = (0..count).map(|i| put(&c, &ramp(1 + i % 16))).collect();
    let w = c.put_as(&ramp(large / 4), Kind::Parameter).expect("open");
    let first = tanh(&c, &w);
    let want = value(&c, &first);
    // A decision sees a third of them, a different third each time. The only result is in the first third.
    for _ in 0..4 {
        let second = exp(&c, &w);
        c.sync().expect("the first goes");
        drop(second);
        assert_eq!(value(&c, &first), want);
    }
    let s = c.stats().expect("open");
    assert!(s.evictions == 4 && s.decisions >= 4 && s.canonical_runs == 0, "{s:?}");
    c.verify().expect("consistent");
}

#[test]
fn what_could_not_be_made_again_stays() {
    for policy in [PolicyKind::Window, PolicyKind::Dtr] {
        let c = cpu(DeviceOptions { policy, ..budget(5 * UNIT) });
        let x = unit(&c);
        // The cheapest result, and idle the longest. With its workspace it takes two units beside leaves.
        let y = apply1(&c, Probe(Mode::Workspace), [x.clone()]);
        let mut z = tanh(&c, &x);
        for _ in 0..16 {
            z = tanh(&c, &z);
        }
        let want = value(&c, &y);
        let two = [unit(&c), unit(&c)];
        let third = unit(&c);
        assert_eq!(value(&c, &y), want, "{policy:?}: a dear result went instead");
        let fourth = unit(&c);
        c.value(&fourth).expect_err("nothing is left to go without being lost");
        assert_eq!(value(&c, &y), want);
        drop((third, fourth, two));
        assert_eq!(value(&c, &y), want);
        value(&c, &z);
    }
}

#[test]
fn an_update_keeps_the_loss_and_not_what_it_happens_to_find_on_the_way_to_it() {
    let c = cpu(budget(16 * UNIT));
    let w = unit(&c);
    let (h, g) = (apply1(&c, Probe(Mode::Increment), [w.clone()]), unit(&c));
    let sum = Reduce { f: ReduceFn::Sum, axes: smallvec![0], keepdims: true };
    let loss = apply1(&c, sum, [h.clone()]);
    let want = value(&c, &loss);
    c.drop_value(&loss).expect("open");
    // Its storage stays, since the loss depends on it.
    drop(h);
    let needs = [(g.id(), Kind::Gradient)];
    let sub = remat_ops::pointwise::Binary { f: remat_ops::pointwise::BinaryFn::Sub };
    let w = c.group(&needs, || Ok(c.update(sub, smallvec![w, g], &[Some(0)])?.remove(0))).expect("queued");
    c.sync().expect("fits");
    let s = c.stats().expect("open");
    assert_eq!(s.in_use_bytes, UNIT + 64, "weights and loss: {s:?}");
    assert_eq!(value(&c, &loss), want);
    value(&c, &w);
}

#[test]
fn what_is_out_of_reach_when_memory_gets_short_stays() {
    let c = cpu(budget(5 * UNIT));
    let x = unit(&c);
    // With its workspace it takes two units beside leaves, and soon only one is left.
    let y = apply1(&c, Probe(Mode::Workspace), [x.clone()]);
    let more = [unit(&c), unit(&c), unit(&c)];
    c.sync().expect("fits");
    let last = unit(&c);
    c.value(&last).expect_err("all that is there would be lost");
    c.value(&y).expect("it is still there");
    drop(more);
}

#[test]
fn what_gets_out_of_reach_is_made_again_before_leaves_grow() {
    let grow: [fn(&Channel, &Handle) -> Handle; 3] = [
        |c, _| put(c, &ramp(1)),
        |c, z| apply1(c, Probe(Mode::Once), [z.clone()]),
        |c, z| {
            c.commit(z, Kind::Parameter).expect("open");
            z.clone()
        },
    ];
    for grow in grow {
        let c = cpu(budget(5 * UNIT));
        let x = unit(&c);
        let y = apply1(&c, Probe(Mode::Workspace), [x.clone()]);
        let sum = Reduce { f: ReduceFn::Sum, axes: smallvec![0], keepdims: true };
        let z = apply1(&c, sum, [x.clone()]);
        let want = value(&c, &y);
        c.drop_value(&y).expect("open");
        let _two = [unit(&c), unit(&c)];
        c.sync().expect("fits");
        assert_eq!(c.stats().expect("open").recomputed_ops, 0, "it takes two units beside three");
        let _more = grow(&c, &z);
        assert_eq!(value(&c, &y), want);
        c.verify().expect("consistent");
    }
}

#[test]
fn a_command_that_would_take_too_much_work_is_refused_by_count_and_says_so() {
    // Reads the first results again and again, with room for three of them.
    let run = |recompute_limit: u32| {
        let c = cpu(DeviceOptions { recompute_limit, ..budget(3 * UNIT) });
        let all = chain(&c, 40);
        let read: remat_types::Result<Vec<HostTensor>> = all.iter().rev().map(|h| c.value(h)).collect();
        (read.map(|v| v.len()), c.stats().expect("open"))
    };
    let (read, stats) = run(1000);
    assert_eq!(read.expect("as much as it takes"), 41);
    let (asked, again) = (40 + 41, stats.recomputed_ops);
    assert!(again > 4 * asked, "{again} of {asked}");
    // It would run within three limits in all.
    let (read, stats) = run(4);
    let e = read.expect_err("too much work");
    let s = e.shortfall().expect("a budget error");
    assert_eq!((e.kind(), s.recompute_limit), (ErrorKind::Budget, Some(4)), "{e}");
    assert!(s.smallest_feasible_bytes > 3 * UNIT, "{e}");
    assert!(stats.recomputed_ops <= 4 * asked, "{stats:?}");
    let again = run(4);
    assert_eq!(again.0.expect_err("in every run").to_string(), e.to_string());
}

#[test]
fn dry_runs_find_the_smallest_budget_and_the_largest_batch() {
    // Reads a chain backwards, so each result that is read is recomputed.
    let read_back = |device: &Device| {
        let c = &device.channel();
        let all = chain(c, 20);
        all.iter().rev().for_each(|x| drop(exp(c, x)));
        c.sync()
    };
    let options = DeviceOptions::default();
    let found = smallest_budget(&options, read_back).expect("it runs");
    assert_eq!(found.peak_bytes, 22 * UNIT);
    assert!(found.bytes < found.peak_bytes / 2 && found.refused_bytes < found.bytes, "{found:?}");
    assert!(found.bytes - found.refused_bytes <= found.peak_bytes / 1024 + Alignment::HOST.bytes(), "{found:?}");
    // On a device that computes, the verdicts are the same.
    let runs = |bytes: usize| read_back(&Device::cpu(DeviceOptions::with_budget(bytes)).expect("a device"));
    runs(found.bytes).expect("it was found to suffice");
    assert_eq!(runs(found.refused_bytes).expect_err("it was refused").kind(), ErrorKind::Budget);

    // Of 40 operators, few are recomputed.
    let times = |times: f64| smallest_budget_within(&options, times, read_back);
    let again = |bytes: usize| {
        let device = Device::dry(DeviceOptions::with_budget(bytes)).expect("a device");
        read_back(&device).expect("it was found to suffice");
        device.channel().stats().expect("figures").recomputed_ops
    };
    let within = times(1.5).expect("it runs");
    assert!(within.bytes > found.bytes && within.bytes < found.peak_bytes, "{within:?}");
    let (few, many) = (again(within.bytes), again(found.bytes));
    assert!(few > 0 && few <= 20 && many > 20, "{few} and {many} operators ran again");
    assert_eq!(times(1.0).expect("under its peak it runs nothing again").bytes, found.peak_bytes);
    assert_eq!(times(f64::NAN).expect_err("no number").kind(), ErrorKind::Value);
    assert_eq!(times(0.5).expect_err("below 1").kind(), ErrorKind::Value);

    // A run that records keeps each unit that was put, and the chain of sums. A run without a budget does not.
    let sums = |device: &Device| {
        let c = &device.channel();
        let mut sum = unit(c);
        for _ in 0..40 {
            sum = add(c, &sum, &unit(c));
        }
        c.sync()
    };
    let found = smallest_budget(&options, sums).expect("it runs");
    assert!(found.peak_bytes <= 4 * UNIT && found.bytes <= found.peak_bytes, "{found:?}");

    let batches = |budget: usize, most: usize| {
        largest_batch(&options, budget, most, |device, batch| {
            let c = &device.channel();
            let x = put(c, &ramp(batch * UNIT / 4));
            drop(tanh(c, &x));
            c.sync()
        })
    };
    // A batch takes an input, which is a leaf, and a result.
    assert_eq!(batches(14 * UNIT, 1000).expect("it runs"), Some(7));
    assert_eq!(batches(14 * UNIT, 5).expect("it runs"), Some(5));
    assert_eq!(batches(14 * UNIT, 7).expect("it runs"), Some(7));
    assert_eq!(batches(UNIT, 1000).expect("it runs"), None);
}
