//! Copies between devices are differentiable: cotangents travel back.

use remat_emulated::EmulatedOptions;
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, grad, no_grad};
use remat_types::{DType, ErrorKind};

use crate::support::{assert_close, cpu, grad_of, leaf, plain, tensor, values};

fn emulated() -> Device {
    let e = EmulatedOptions { max_delay_us: 30, ..EmulatedOptions::default() };
    e.open()
        .and_then(|b| Device::with_backend(b, DeviceOptions { threads: 1, ..DeviceOptions::default() }))
        .expect("opens")
}

#[test]
fn a_copy_has_the_gradient_of_what_it_copies() {
    let home = plain();
    for away in [plain(), emulated(), cpu(DeviceOptions::with_budget(1 << 16))] {
        let x = leaf(&home, &[2.0, 3.0]);
        let there = x.square().and_then(|s| s.to_device(&away)).expect("copies");
        assert!(there.is_tracked() && there.device() == away);
        let w = tensor(&away, &[10.0, 100.0], [2]).requires_grad().expect("a float");
        there.mul(&w).and_then(|y| y.sum()).and_then(|y| y.backward()).expect("differentiable");
        assert_close(&grad_of(&x), &[40.0, 600.0]);
        assert_close(&grad_of(&w), &[4.0, 9.0]);
        assert!(x.grad().expect("there").device() == home && w.grad().expect("there").device() == away);
    }
}

#[test]
fn there_and_back_again_to_second_order() {
    let (a, b) = (plain(), emulated());
    // so that ids on the two devices are far apart
    let _noise: Vec<Tensor> = (0..100).map(|i| tensor(&b, &[f64::from(i)], [1])).collect();
    let x = leaf(&a, &[2.0]);
    let mut y = x.clone();
    for device in [&b, &a, &b, &a] {
        y = y.to_device(device).and_then(|y| y.mul(&x.to_device(device)?)).expect("fits");
    }
    let y = y.add(x.square().expect("a float")).expect("fits"); // x^5 + x^2
    let mut g = y;
    for want in [5.0 * 16.0 + 4.0, 20.0 * 8.0 + 2.0, 60.0 * 4.0] {
        g = grad(&g, &[&x], true).expect("differentiable").remove(0).expect("used");
        assert_close(&values(&g), &[want]);
    }
}

#[test]
fn a_copy_records_only_what_it_has_to() {
    let (a, b) = (plain(), plain());
    let x = leaf(&a, &[2.0]);
    assert!(x.to_device(&a).expect("the same").is_leaf(), "no copy");
    assert!(!x.detach().to_device(&b).expect("copies").is_tracked());
    assert!(!x.to_device(&b).expect("copies").is_leaf());
    let _quiet = no_grad();
    assert!(!x.to_device(&b).expect("copies").is_tracked());
}

#[test]
fn tensors_of_two_devices_do_not_mix() {
    let (a, b) = (plain(), plain());
    let (x, y) = (leaf(&a, &[1.0]), leaf(&b, &[1.0]));
    let e = x.add(&y).expect_err("two devices");
    assert_eq!((e.kind(), e.op()), (ErrorKind::Device, Some("add")));
    let e = x.exp().and_then(|e| e.backward_with(Some(&y), false)).expect_err("a cotangent from elsewhere");
    assert_eq!(e.kind(), ErrorKind::Device);
}

/// If the source of a copy failed, the first read of the copy reports the failure with its figures. No other call does.
#[test]
fn a_copy_of_what_failed_tells_the_cause() {
    let a = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::with_budget(1 << 16) }).expect("a device");
    let b = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::default() }).expect("a device");
    for read_first in [false, true] {
        let big = Tensor::ones(&a, [1 << 20], DType::F32).expect("queued").sum().expect("queued");
        if read_first {
            let e = big.to_host().expect_err("4 MiB in 64 KiB");
            assert_eq!(e.kind(), ErrorKind::Budget, "{e}");
        }
        let copy = big.to_device(&b).expect("queued").neg().expect("queued");
        let e = copy.to_host().expect_err("there is nothing to copy");
        match read_first {
            // It was told before.
            true => assert!(e.kind() == ErrorKind::Poisoned && e.to_string().contains("budget of 64.0 KiB"), "{e}"),
            false => {
                assert_eq!(e.kind(), ErrorKind::Budget, "{e}");
                assert_eq!(e.shortfall().map(|s| s.budget_bytes), Some(1 << 16), "{e}");
            }
        }
        drop((big, copy));
        for device in [&a, &b] {
            device.channel().sync().expect("nothing is left to tell");
        }
    }
}
