//! Scenarios of MegEngine's own tests that make sense here, under their names (test_interpreter.py, test_stream.py,
//! test_dtr.py, imperative.cpp).

use remat_emulated::EmulatedOptions;
use remat_types::{ErrorKind, HostTensor};

use super::ops::{Mode, Probe};
use super::{add, apply1, budget, cpu, exp, host, put, ramp, recording, tanh, value};
use crate::DeviceOptions;
use crate::eager::Device;
use crate::options::AsyncLevel;

/// An asynchronous error in one op does not poison unrelated later ops.
#[test]
fn regression_2870() {
    let c = cpu(recording());
    let x = put(&c, &ramp(4));
    for _ in 0..50 {
        let _ = apply1(&c, Probe(Mode::Fail), [x.clone()]);
        assert_eq!(value(&c, &add(&c, &x, &x))[0], -6.0);
    }
}

/// Drop, then read: regenerated, for device and for host-known values.
#[test]
fn drop_basic() {
    let c = cpu(recording());
    let x = put(&c, &ramp(4));
    let y = add(&c, &x, &x);
    c.drop_value(&y).expect("open");
    assert_eq!(value(&c, &y)[0], -6.0);
    let n = c.put(&HostTensor::from_slice(&[1i32, 2], [2]).expect("fits")).expect("open");
    c.drop_value(&n).expect("open");
    assert_eq!(c.value(&n).expect("known").to_vec::<i32>().expect("i32"), [1, 2]);
}

/// Regeneration while the value is being copied out, many times.
#[test]
fn dtr_drop_copy_dev_tensor() {
    let (c, other) = (cpu(recording()), cpu(recording()));
    let x = exp(&c, &put(&c, &ramp(1000)));
    for _ in 0..50 {
        c.drop_value(&x).expect("open");
        let copy = other.copy_from(&x).expect("open");
        assert_eq!(value(&other, &copy).len(), 1000);
    }
}

/// An asynchronous error keeps the op's own cause. At level 0 it comes from the call.
#[test]
fn async_error() {
    let c = cpu(DeviceOptions { async_level: AsyncLevel::Sync, ..recording() });
    let x = put(&c, &ramp(4));
    assert_eq!(super::try1(&c, Probe(Mode::Fail), [x]).expect_err("direct").kind(), ErrorKind::Index);
}

/// The process exits cleanly with work queued and handles alive, in any order of drops.
#[test]
fn finalize() {
    for host_compute in [true, false] {
        let d = Device::cpu(DeviceOptions { host_compute, ..recording() }).expect("opens");
        let c = d.channel();
        let y = tanh(&c, &put(&c, &ramp(64)));
        drop(d);
        drop(c);
        let channel = y.channel();
        drop(y);
        drop(channel);
    }
}

/// A 4096-byte tensor on one stream: the peak lies between 4096 and 4096 + 128 and is one for all streams.
#[test]
fn mem_stats() {
    let d = EmulatedOptions::default().open().and_then(|b| Device::with_backend(b, recording())).expect("opens");
    let (a, b) = (d.stream(0).expect("exists"), d.stream(1).expect("exists"));
    let x = put(&a, &ramp(1024));
    let (p, q) = (a.stats().expect("open").peak_bytes, b.stats().expect("open").peak_bytes);
    assert!(p == q && (4096..=4096 + 128).contains(&p), "{p} {q}");
    drop(x);
}

/// A value is used on another stream without a copy: 100 iterations stay below 2.1 units, with exact sums.
#[test]
fn stream_mem() {
    let options = EmulatedOptions { max_delay_us: 100, ..Default::default() };
    let log = options.log.clone();
    let d = options
        .open()
        .and_then(|b| Device::with_backend(b, DeviceOptions { threads: 1, ..DeviceOptions::default() }))
        .expect("opens");
    let (a, b) = (d.stream(0).expect("exists"), d.stream(1).expect("exists"));
    const ELEMS: usize = 1 << 14;
    let one = put(&a, &host(&[1.0]));
    let mut total = put(&b, &host(&[0.0]));
    for i in 0..100 {
        let data = put(&a, &host(&vec![i as f32; ELEMS]));
        let x = add(&a, &data, &one);
        drop(data);
        let sum = remat_ops::reduce::Reduce {
            f: remat_ops::reduce::ReduceFn::Mean,
            axes: remat_types::smallvec![0],
            keepdims: true,
        };
        total = add(&b, &total, &apply1(&b, sum, [x]));
    }
    assert_eq!(value(&a, &total), [5050.0]);
    let peak = d.channel().stats().expect("open").peak_bytes as f64;
    assert!(peak < 2.1 * (4 * ELEMS) as f64, "{peak}");
    assert!(log.races().is_empty(), "{:?}", log.races());
}

/// 100 tensors fill the memory, and every second one is freed. Then one of ten units must fit, and an earlier product
/// is bit-identical afterwards.
#[test]
fn defragment() {
    const UNIT: usize = 1 << 12;
    for policy in [crate::PolicyKind::Window, crate::PolicyKind::Dtr] {
        let c = cpu(DeviceOptions { policy, ..budget(100 * UNIT) });
        let all: Vec<_> = (0..99).map(|_| put(&c, &ramp(UNIT / 4))).collect();
        let kept: Vec<_> = all.into_iter().step_by(2).collect();
        let sum = add(&c, &kept[0], &kept[1]);
        let before = value(&c, &sum);
        let large = put(&c, &ramp(10 * UNIT / 4));
        assert_eq!(value(&c, &large).len(), 10 * UNIT / 4);
        assert_eq!(value(&c, &sum), before);
        assert!(c.stats().expect("open").compactions > 0);
        assert!(kept.iter().all(|h| value(&c, h) == value(&c, &kept[0])));
        c.verify().expect("consistent");
    }
}

/// Put: the same small host value twice shares storage, once does not (interpreter_test.cpp).
#[test]
fn put_shares_small_values() {
    let c = cpu(recording());
    let a = c.put(&host(&[2.0])).expect("open");
    let b = c.put(&host(&[2.0])).expect("open");
    let d = c.put(&host(&[3.0])).expect("open");
    assert_eq!(c.stats().expect("open").storages, 2);
    assert_eq!((value(&c, &a), value(&c, &b), value(&c, &d)), (vec![2.0], vec![2.0], vec![3.0]));
}
