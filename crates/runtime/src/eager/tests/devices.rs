//! Several devices, several streams.

use remat_emulated::{EmulatedOptions, RaceLog};
use remat_types::{ErrorKind, smallvec};

use super::ops::{Mode, Probe};
use super::{add, apply1, budget, cpu, exp, put, ramp, recording, tanh, value};
use crate::DeviceOptions;
use crate::eager::{Channel, Device, Handle};

fn emulated(streams: u16, seed: u64, ignore_waits: bool, options: DeviceOptions) -> (Device, RaceLog) {
    let log = RaceLog::default();
    let e = EmulatedOptions { streams, seed, ignore_waits, max_delay_us: 200, log: log.clone(), ..Default::default() };
    (e.open().and_then(|b| Device::with_backend(b, options)).expect("opens"), log)
}

#[test]
fn two_devices_know_nothing_of_each_other() {
    let (a, b) = (cpu(recording()), cpu(budget(1 << 16)));
    let (x, y) = (put(&a, &ramp(16)), put(&b, &ramp(16)));
    let e = super::try1(
        &a,
        remat_ops::pointwise::Binary { f: remat_ops::pointwise::BinaryFn::Add },
        [x.clone(), y.clone()],
    )
    .expect_err("two devices");
    assert_eq!(e.kind(), ErrorKind::Device);
    assert!(a.value(&y).is_err_and(|e| e.kind() == ErrorKind::Device));
    let here = a.copy_from(&y).expect("open");
    assert_eq!(value(&a, &add(&a, &x, &here)).len(), 16);
    assert_eq!(a.copy_from(&x).expect("open").id(), x.id(), "a copy to itself is itself");
    b.close().expect("fine");
    assert_eq!(value(&a, &x).len(), 16, "the other goes on");
}

#[test]
fn devices_that_copy_from_each_other_never_wait_in_a_circle() {
    let (a, b) = (cpu(recording()), cpu(recording()));
    for _ in 0..200 {
        let (x, y) = (put(&a, &ramp(8)), put(&b, &ramp(8)));
        let (y_on_a, x_on_b) = (a.copy_from(&y).expect("open"), b.copy_from(&x).expect("open"));
        let (p, q) = (add(&a, &x, &y_on_a), add(&b, &y, &x_on_b));
        assert_eq!(value(&a, &p), value(&b, &q));
    }
    // Both are dropped while copies are in flight.
    let (x, y) = (put(&a, &ramp(8)), put(&b, &ramp(8)));
    let _ = (a.copy_from(&y).expect("open"), b.copy_from(&x).expect("open"));
}

#[test]
fn a_copy_of_a_failed_tensor_fails() {
    let (a, b) = (cpu(recording()), cpu(recording()));
    let bad = apply1(&a, Probe(Mode::Fail), [put(&a, &ramp(8))]);
    let copy = b.copy_from(&bad).expect("queued");
    let e = b.value(&copy).expect_err("the source failed");
    assert_eq!((e.kind(), e.op()), (ErrorKind::Index, Some("probe")), "what failed, as what it is: {e}");
    a.sync().expect("it was told");
    b.sync().expect("and once for both devices");
    assert_eq!(a.value(&bad).expect_err("still failed").kind(), ErrorKind::Poisoned);
}

#[test]
fn a_copy_of_what_failed_for_want_of_memory_is_told_with_its_figures() {
    let (a, b) = (cpu(budget(1 << 12)), cpu(recording()));
    let x = put(&a, &ramp(512));
    let large = apply1(&a, Probe(Mode::Workspace), [x]);
    let copy = b.copy_from(&large).expect("queued");
    let below = exp(&b, &copy);
    let e = b.sync().expect_err("its copy has no value");
    assert!(e.shortfall().is_some(), "{e}");
    assert_eq!(b.value(&below).expect_err("it depends on that").kind(), ErrorKind::Poisoned);
    a.sync().expect("told once");
}

/// Work that hops between streams, reuses freed ranges and donates storages.
fn hop(channels: &[Channel]) -> Vec<Vec<f32>> {
    let c = |i: usize| &channels[i % channels.len()];
    let mut x: Vec<Handle> = (0..3).map(|i| put(c(i), &ramp(256 + i))).collect();
    for i in 0..40 {
        let k = i % 3;
        let y = exp(c(i + 1), &tanh(c(i), &x[k]));
        let old = std::mem::replace(&mut x[k], y);
        if i % 4 == 0 {
            let z = apply1(c(i + 2), Probe(Mode::Increment), [old]);
            let n = add(c(i), &z, &x[k]);
            x[k] = n;
        }
    }
    x.iter().map(|h| value(c(0), h)).collect()
}

#[test]
fn events_order_streams_whatever_their_pace() {
    let want = hop(&[cpu(recording())]);
    for (streams, seed) in [(1, 1), (2, 2), (3, 3), (4, 4)] {
        for options in [recording(), budget(8 * 1100), DeviceOptions::default()] {
            let (d, log) = emulated(streams, seed, false, options);
            let channels: Vec<_> = (0..streams).map(|s| d.stream(s).expect("exists")).collect();
            assert_eq!(hop(&channels), want, "{streams} streams");
            assert_eq!(log.races(), Vec::<String>::new());
            channels[0].verify().expect("consistent");
        }
    }
    let (d, _) = emulated(2, 0, false, recording());
    assert_eq!(d.stream(2).expect_err("there are two").kind(), ErrorKind::Device);
}

#[test]
fn without_waits_the_detector_fires() {
    let (d, log) = emulated(3, 5, true, recording());
    let channels: Vec<_> = (0..3).map(|s| d.stream(s).expect("exists")).collect();
    let c = &channels;
    let x = put(&c[0], &ramp(1 << 16));
    let y = tanh(&c[1], &x);
    // The result is wrong or refused. The test counts only the finding.
    let _ = c[0].value(&exp(&c[2], &y));
    assert!(log.races().iter().any(|r| r.contains("nothing orders")), "{:?}", log.races());
}

#[test]
fn a_failure_on_one_stream_reaches_dependents_on_others() {
    let (d, log) = emulated(2, 9, false, recording());
    let (a, b) = (d.stream(0).expect("exists"), d.stream(1).expect("exists"));
    let x = put(&a, &ramp(64));
    let bad = apply1(&a, Probe(Mode::Fail), [x.clone()]);
    let below = tanh(&b, &bad);
    let fine = tanh(&b, &x);
    assert_eq!(b.value(&below).expect_err("inherited").kind(), ErrorKind::Index);
    assert_eq!(a.value(&bad).expect_err("reported").kind(), ErrorKind::Poisoned);
    assert_eq!(value(&b, &fine).len(), 64);
    let boom = apply1(&a, Probe(Mode::Panic), [x]);
    assert_eq!(a.value(&boom).expect_err("it panicked").kind(), ErrorKind::Internal);
    assert!(log.races().is_empty());
}

#[test]
fn a_failing_allocation_is_the_error_of_its_command_only() {
    let e = EmulatedOptions { failing_reserves: vec![1, 2], max_delay_us: 0, ..Default::default() };
    let c = e.open().and_then(|b| Device::with_backend(b, recording())).expect("opens").channel();
    let x = put(&c, &ramp(64));
    assert_eq!(c.value(&x).expect_err("planted").kind(), ErrorKind::Budget);
    let y = put(&c, &ramp(64));
    assert_eq!(value(&c, &y).len(), 64);
    assert!(c.sync().is_ok());
    let none = EmulatedOptions { memory_bytes: 1 << 12, ..Default::default() };
    let e = none.open().and_then(|b| Device::with_backend(b, budget(1 << 13))).expect_err("a budget beyond the device");
    assert_eq!(e.kind(), ErrorKind::Budget);
    let _ = c.apply(Probe(Mode::Increment), smallvec![y]).expect("fine");
}
