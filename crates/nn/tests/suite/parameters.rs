//! Parameters as values with versions, and named state.

use std::collections::BTreeMap;

use remat_nn::{Arg, Init, InitCx, Linear, Module, Parameter, Role, update};
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_runtime::{AsyncLevel, Device, DeviceOptions, Kind};
use remat_tensor::Tensor;
use remat_types::{DType, ErrorKind, HostTensor};

use crate::support::{cpu, host, state, tensor};

fn add() -> Binary {
    Binary { f: BinaryFn::Add }
}

#[test]
fn an_update_makes_a_new_version_and_leaves_the_old_one_to_its_holders() {
    let d = cpu();
    let p = Parameter::from_host(&d, &host(&[1.0, 2.0], [2]), Role::Trained).expect("fits");
    let old = p.get().expect("open");
    update(add(), vec![Arg::State(&p), Arg::Value(tensor(&d, &[10.0, 20.0], [2]))]).expect("fits");
    assert_eq!(state(&p), [11.0, 22.0]);
    assert_eq!(old.to_vec::<f32>().expect("value"), [1.0, 2.0]);
    assert!(p.get().expect("open").is_leaf());
}

#[test]
fn a_sole_owner_is_updated_in_place() {
    let d = cpu();
    let p = Parameter::from_host(&d, &HostTensor::zeros(DType::F32, [1 << 16]).expect("small"), Role::Trained)
        .expect("fits");
    let one = Tensor::scalar(&d, 1.0f32).expect("fits");
    let channel = d.channel();
    channel.sync().expect("no failure");
    channel.reset_peak().expect("open");
    let before = channel.stats().expect("open").in_use_bytes;
    for _ in 0..3 {
        update(add(), vec![Arg::State(&p), Arg::Value(one.clone())]).expect("fits");
    }
    let after = channel.stats().expect("open");
    assert_eq!((after.in_use_bytes, after.peak_bytes), (before, before));
    assert_eq!(state(&p)[..2], [3.0, 3.0]);
}

#[test]
fn a_version_made_by_copy_is_state_without_a_recipe() {
    let d = Device::cpu(DeviceOptions { threads: 1, ..DeviceOptions::with_budget(1 << 20) }).expect("a CPU");
    let p =
        Parameter::from_host(&d, &HostTensor::zeros(DType::F32, [1000]).expect("small"), Role::Trained).expect("fits");
    let channel = d.channel();
    for _ in 0..3 {
        let old = p.get().expect("open");
        update(add(), vec![Arg::State(&p), Arg::Value(Tensor::scalar(&d, 1.0f32).expect("fits"))]).expect("fits");
        drop(old);
    }
    assert_eq!(channel.evict_all().expect("open"), 0, "state is kept, not recomputed");
    assert_eq!(channel.stats().expect("open").recipes, 0);
    assert_eq!(state(&p)[0], 3.0);
}

#[test]
fn gradients_outlive_a_new_version() {
    let d = cpu();
    let p = Parameter::from_host(&d, &host(&[3.0], [1]), Role::Trained).expect("fits");
    p.get().expect("open").square().expect("float").sum().expect("float").backward().expect("tracked");
    p.set(&tensor(&d, &[5.0], [1])).expect("same shape");
    assert_eq!(p.grad().expect("kept").to_vec::<f32>().expect("value"), [6.0]);
    p.get().expect("open").square().expect("float").sum().expect("float").backward().expect("tracked");
    assert_eq!(p.take_grad().expect("added up").to_vec::<f32>().expect("value"), [16.0]);
    assert!(p.grad().is_none());
}

#[test]
fn a_frozen_parameter_requires_no_gradient() {
    let d = cpu();
    let p = Parameter::from_host(&d, &host(&[3.0], [1]), Role::Trained).expect("fits");
    p.set_frozen(true);
    assert!(!p.get().expect("open").is_tracked());
    p.set_frozen(false);
    assert!(p.get().expect("open").is_leaf());
}

#[test]
fn misfits_are_refused_before_anything_moves() {
    let d = cpu();
    let p = Parameter::from_host(&d, &host(&[1.0, 2.0], [2]), Role::Trained).expect("fits");
    let kind = |r: remat_types::Result<()>| r.expect_err("misfit").kind();
    assert_eq!(kind(p.set(&tensor(&d, &[1.0], [1]))), ErrorKind::Shape);
    assert_eq!(kind(p.set(&tensor(&cpu(), &[1.0, 2.0], [2]))), ErrorKind::Device);
    let wide = tensor(&d, &[1.0; 4], [2, 2]);
    assert_eq!(kind(update(add(), vec![Arg::State(&p), Arg::Value(wide)])), ErrorKind::Shape);
    let ints = Tensor::new(&d, &[1i32, 2], [2]).expect("fits");
    assert_eq!(kind(update(add(), vec![Arg::State(&p), Arg::Value(ints.clone())])), ErrorKind::DType);
    assert_eq!(kind(update(add(), vec![Arg::Value(wide_pair(&d)), Arg::Value(wide_pair(&d))])), ErrorKind::Value);
    assert_eq!(kind(update(add(), vec![Arg::State(&p), Arg::State(&p)])), ErrorKind::Value);
    assert_eq!(Parameter::new(ints).expect_err("integers").kind(), ErrorKind::DType);
    assert_eq!(state(&p), [1.0, 2.0]);
}

fn wide_pair(d: &Device) -> Tensor {
    tensor(d, &[1.0, 2.0], [2])
}

/// An op that fails at run time: integer division by zero.
fn failing(d: &Device) -> (Binary, Tensor) {
    (Binary { f: BinaryFn::Div }, Tensor::new(d, &[0i32; 20], [20]).expect("fits"))
}

#[test]
fn a_failed_update_keeps_the_old_version_at_every_async_level() {
    for async_level in [AsyncLevel::Sync, AsyncLevel::Launched, AsyncLevel::Full] {
        let d = Device::cpu(DeviceOptions { threads: 1, async_level, ..DeviceOptions::default() }).expect("a CPU");
        let seven = HostTensor::from_slice(&[7i32; 20], [20]).expect("fits");
        let p = Parameter::from_host(&d, &seven, Role::Buffer).expect("fits");
        let (op, zero) = failing(&d);
        let now = update(op, vec![Arg::State(&p), Arg::Value(zero)]);
        assert_eq!(now.is_ok(), async_level == AsyncLevel::Full, "{async_level:?}");
        let _ = d.channel().sync();
        assert_eq!(p.to_host().expect("intact"), seven, "{async_level:?}");
        d.channel().step_mark().expect("open");
        let one = Tensor::new(&d, &[1i32; 20], [20]).expect("fits");
        update(add(), vec![Arg::State(&p), Arg::Value(one)]).expect("goes on");
        assert_eq!(state(&p)[0], 8.0, "{async_level:?}");
    }
}

#[test]
fn parameters_count_as_such_in_reports() {
    let d = cpu();
    let _p = InitCx::new(&d, 1).parameter([1 << 18], Init::Zeros).expect("fits");
    let report = d.channel().report().expect("open");
    assert_eq!(report.peak_by_kind[0].name, Kind::Parameter.name(), "{report:?}");
}

#[test]
fn strict_loading_names_everything_that_is_wrong_and_changes_nothing() {
    let d = cpu();
    let net = (0..3).map(|_| Linear::new(&mut InitCx::new(&d, 1), 2, 2).expect("fits")).collect::<Vec<_>>();
    let net = Wrapper { layers: net };
    let before = net.state_dict().expect("values");
    let mut bad = before.clone();
    bad.remove("layers.0.bias");
    bad.insert("layers.7.bias".into(), host(&[1.0], [1]));
    bad.insert("layers.1.weight".into(), host(&[1.0; 6], [3, 2]));
    bad.insert("layers.2.weight".into(), HostTensor::zeros(DType::F64, [2, 2]).expect("small"));
    bad.insert("layers.2.bias".into(), host(&[9.0, 9.0], [2]));
    let e = net.load_state_dict(&bad, true).expect_err("does not fit");
    for name in ["layers.0.bias", "layers.7.bias", "layers.1.weight", "layers.2.weight", "[3, 2]", "f64"] {
        assert!(e.message().contains(name), "{name} is not in: {e}");
    }
    assert!(!e.message().contains("layers.2.bias"), "{e}");
    assert_eq!(net.state_dict().expect("values"), before);
    assert!(net.load_state_dict(&bad, false).is_err(), "a shape that differs is never ignored");
    assert_eq!(net.state_dict().expect("values"), before);
}

#[test]
fn loose_loading_reports_what_it_left() {
    let net = Linear::new(&mut InitCx::new(&cpu(), 1), 1, 1).expect("fits");
    let new = BTreeMap::from([("bias".to_owned(), host(&[4.0], [1])), ("more".to_owned(), host(&[1.0], [1]))]);
    let report = net.load_state_dict(&new, false).expect("loose");
    assert_eq!(report.to_string(), "1 matched, 1 missing, 1 unexpected");
    assert_eq!(report.matched, ["bias"]);
    assert_eq!((report.missing, report.unexpected), (vec!["weight".to_owned()], vec!["more".to_owned()]));
    assert_eq!(state(net.bias.as_ref().expect("bias")), [4.0]);
}

#[test]
fn a_state_of_which_nothing_fits_is_an_error_however_loose() {
    let net = Linear::new(&mut InitCx::new(&cpu(), 1), 1, 1).expect("fits");
    let before = net.state_dict().expect("values");
    let prefixed = before.iter().map(|(n, t)| (format!("module.{n}"), t.clone())).collect();
    for other in [prefixed, BTreeMap::new()] {
        let e = net.load_state_dict(&other, false).expect_err("nothing fits");
        assert_eq!(e.kind(), ErrorKind::Value);
        let sizes = format!("0 matched, 2 missing, {} unexpected", other.len());
        assert!(e.message().contains(&sizes) && e.message().contains("`bias`, `weight`"), "{e}");
        assert!(other.keys().all(|n| e.message().contains(n)), "{e}");
    }
    assert_eq!(net.state_dict().expect("values"), before);
}

#[derive(Module)]
#[module(crate = remat_nn)]
struct Wrapper {
    layers: Vec<Linear>,
}
