//! Compiled functions in memory of their own against calls of them.

use std::cell::RefCell;
use std::rc::Rc;

use remat_nn::*;
use remat_runtime::{Device, DeviceOptions, NanCheck, SessionOptions};
use remat_tensor::{Compiled, Tensor, compile, no_grad};
use remat_types::{ErrorKind, Result};

use crate::compiled::{Bits, Net, step};
use crate::support::cpu;

type Step = Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>>;

fn trained(device: &Device) -> (Rc<Net>, LearningRate, Compiled<Step>) {
    let net = Rc::new(Net::new(device));
    let o = SgdOptions { lr: 0.1, momentum: 0.9, ..Default::default() };
    let optimizer = RefCell::new(Sgd::new(net.parameters(), o).expect("valid"));
    let rate = optimizer.borrow().learning_rate();
    let inner = net.clone();
    let f: Step = Box::new(move |x: &[Tensor]| Ok(vec![step(&inner, &mut *optimizer.borrow_mut(), &x[0], &x[1])?]));
    (net, rate, compile(device, f))
}

/// Losses and final bits of six steps; from the third on in a session, if asked for.
fn losses(in_session: bool) -> (Vec<f32>, Bits) {
    let (net, rate, mut f) = trained(&cpu());
    let mut session = None;
    let mut losses = Vec::new();
    for i in 0..6 {
        rate.set(0.1 / (1.0 + i as f64));
        let (x, labels) = net.batch(8, i);
        if in_session && i == 2 {
            session = Some(f.session(&[&x, &labels]).expect("memory"));
        }
        losses.push(match &mut session {
            Some(s) => {
                s.set_input(0, &x.to_host().expect("values")).expect("fits");
                s.set_input(1, &labels.to_host().expect("values")).expect("fits");
                if i % 2 == 0 {
                    s.run().expect("runs");
                } else {
                    s.start().expect("starts");
                    s.wait().expect("runs");
                }
                s.output(0).expect("there").as_slice::<f32>().expect("f32")[0]
            }
            None => f.call(&[&x, &labels]).expect("runs")[0].item::<f32>().expect("a number"),
        });
    }
    if let Some(s) = &mut session {
        s.store().expect("nothing else changed");
    }
    (losses, net.bits())
}

#[test]
fn a_session_trains_as_calls_do_bit_for_bit() {
    assert_eq!(losses(true), losses(false));
}

#[test]
fn what_changed_elsewhere_is_not_overwritten() {
    let (net, _, mut f) = trained(&cpu());
    let (x, labels) = net.batch(8, 0);
    let mut s = f.session(&[&x, &labels]).expect("memory");
    s.run().expect("runs");
    f.call(&[&x, &labels]).expect("runs");
    let before = net.bits();
    let e = s.store().expect_err("the call made a version of its own");
    assert!(e.kind() == ErrorKind::Value && e.to_string().contains("has changed"), "{e}");
    assert_eq!(net.bits(), before);
}

#[test]
fn a_session_of_another_mode_is_an_error() {
    let (net, _, mut f) = trained(&cpu());
    let (x, labels) = net.batch(8, 0);
    let mut s = f.session(&[&x, &labels]).expect("memory");
    net.layers.eval();
    assert_eq!(s.run().expect_err("compiled for training").kind(), ErrorKind::Value);
    net.layers.train();
    s.run().expect("as it was");
}

#[test]
fn a_sessions_bytes_count_against_the_budget() {
    let budget = 60 << 10;
    let d = Device::cpu(DeviceOptions { budget_bytes: Some(budget), threads: 1, ..Default::default() }).expect("a CPU");
    let mut f = compile(&d, |x: &[Tensor]| Ok(vec![x[0].exp()?.sum()?]));
    let x = Tensor::ones(&d, [4096], remat_types::DType::F32).expect("fits");
    let first = f.session(&[&x]).expect("room for one");
    assert_eq!(f.session(&[&x]).expect_err("no room for another").kind(), ErrorKind::Budget);
    drop(first);
    f.session(&[&x]).expect("room again");
}

#[test]
fn parts_of_a_function_run_one_after_the_other() {
    let d = cpu();
    let net = Rc::new(Net::new(&d));
    let inner = net.clone();
    let mut f = compile(&d, move |x: &[Tensor]| {
        let _quiet = no_grad();
        let y = inner.layers.forward(&x[0])?;
        Ok(vec![inner.forward(&x[0])?, y.mean()?])
    });
    net.layers.eval();
    let (x, _) = net.batch(8, 0);
    let want = f.call(&[&x]).expect("runs");
    let mut s = f.session_with(&[&x], &SessionOptions::default(), &[vec![1], vec![0]]).expect("memory");
    s.run_part(0).expect("first");
    assert_eq!(s.output(1).expect("there").as_slice::<f32>().expect("f32")[0], want[1].item::<f32>().expect("one"));
    s.run_part(1).expect("second");
    let got = s.output(0).expect("there").as_slice::<f32>().expect("f32").to_vec();
    assert_eq!(got, want[0].to_vec::<f32>().expect("values"));
    assert_eq!(s.run_part(1).expect_err("the first is next").kind(), ErrorKind::Value);
}

#[test]
fn an_observer_of_a_compiled_function_stops_it_where_a_value_is_wrong() {
    let d = cpu();
    let mut f = compile(&d, |x: &[Tensor]| Ok(vec![x[0].log()?.exp()?]));
    f.observe(Some(std::sync::Arc::new(NanCheck::default())));
    let x = Tensor::new(&d, &[1f32, -1.0], [2]).expect("fits");
    let e = f.call(&[&x]).and_then(|y| y[0].to_vec::<f32>()).expect_err("the logarithm of -1");
    assert!(e.to_string().contains("is NaN at [1]") && e.kind() == ErrorKind::Value, "{e}");
    f.observe(None);
    assert!(f.call(&[&x]).expect("runs")[0].to_vec::<f32>().expect("values")[1].is_nan());
}
