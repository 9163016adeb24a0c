//! All optimisers alike: in compiled steps, under budgets, from checkpoints, and in order with their options.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use remat_nn::*;
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{CompileOptions, compile_with};
use remat_types::{DType, ErrorKind, HostTensor};

use crate::compiled::{Bits, Net, step};
use crate::support::{cpu, host};

type Named = Vec<(String, Parameter)>;

/// Every optimiser, with options under which it keeps all that it can, by name.
fn all(p: &Named) -> Vec<(&'static str, Box<dyn Optimizer>)> {
    let p = || p.clone();
    vec![
        (
            "sgd",
            Box::new(Sgd::new(p(), SgdOptions { momentum: 0.9, ..SgdOptions::default() }).expect("valid"))
                as Box<dyn Optimizer>,
        ),
        (
            "amsgrad",
            Box::new(AdamW::new(p(), AdamWOptions { amsgrad: true, ..AdamWOptions::default() }).expect("valid")),
        ),
        (
            "rmsprop",
            Box::new(
                RmsProp::new(p(), RmsPropOptions { momentum: 0.9, centered: true, ..RmsPropOptions::default() })
                    .expect("valid"),
            ),
        ),
        ("adagrad", Box::new(Adagrad::new(p(), AdagradOptions::default()).expect("valid"))),
        ("adadelta", Box::new(Adadelta::new(p(), AdadeltaOptions::default()).expect("valid"))),
        ("adamax", Box::new(Adamax::new(p(), AdamaxOptions::default()).expect("valid"))),
        ("nadam", Box::new(NAdam::new(p(), NAdamOptions::default()).expect("valid"))),
        ("radam", Box::new(RAdam::new(p(), RAdamOptions { beta2: 0.9, ..RAdamOptions::default() }).expect("valid"))),
        ("lamb", Box::new(Lamb::new(p(), LambOptions { weight_decay: 0.1, ..LambOptions::default() }).expect("valid"))),
        ("lion", Box::new(Lion::new(p(), LionOptions::default()).expect("valid"))),
        ("adafactor", Box::new(Adafactor::new(p(), AdafactorOptions::default()).expect("valid"))),
    ]
}

/// The weights after steps of the optimiser of this name, and the optimiser's state.
fn run(name: &str, device: &Device, compiled: Option<CompileOptions>) -> (Bits, BTreeMap<String, HostTensor>) {
    let net = Rc::new(Net::new(device));
    let (_, o) = all(&net.parameters()).into_iter().find(|(n, _)| *n == name).expect("of the list");
    let o = Rc::new(RefCell::new(o));
    let taken = {
        let (net, o) = (net.clone(), o.clone());
        move |x: &[remat_tensor::Tensor]| Ok(vec![step(&net, o.borrow_mut().as_mut(), &x[0], &x[1])?])
    };
    match compiled {
        None => (0..4).for_each(|i| {
            let (x, labels) = net.batch(4, i);
            taken(&[x, labels]).expect("a step");
        }),
        Some(options) => {
            let mut f = compile_with(device, options, taken);
            (0..4).for_each(|i| {
                let (x, labels) = net.batch(4, i);
                f.call(&[&x, &labels]).expect("a step");
            });
        }
    }
    let state = o.borrow().state_dict().expect("values");
    (net.bits(), state)
}

fn names() -> Vec<&'static str> {
    all(&Vec::new()).into_iter().map(|(n, _)| n).collect()
}

#[test]
fn a_compiled_step_and_one_under_a_budget_are_eager_steps_bit_for_bit() {
    for name in names() {
        let want = run(name, &cpu(), None);
        assert_eq!(run(name, &cpu(), Some(CompileOptions::default())), want, "{name}, compiled");
        let tight =
            |bytes| Device::cpu(DeviceOptions { threads: 2, ..DeviceOptions::with_budget(bytes) }).expect("a CPU");
        assert_eq!(run(name, &tight(96 << 10), None), want, "{name}, within 96 KiB");
    }
}

#[test]
fn state_and_options_go_on_where_they_were() {
    let d = cpu();
    let matrix = || {
        let v = host(&[1.0, -2.0, 0.5, 3.0, -1.5, 0.25], [2, 3]);
        Parameter::from_host(&d, &v, Role::Trained).expect("fits")
    };
    let once = |p: &Parameter, o: &mut dyn Optimizer, i: usize| {
        let g: Vec<f32> = (0..6).map(|k| ((k + 7 * i) as f32).sin()).collect();
        p.set_grad(Some(remat_tensor::Tensor::new(&d, &g, [2, 3]).expect("fits"))).expect("same shape");
        o.step().expect("valid");
    };
    for name in names() {
        let of = |p: &Parameter| {
            let named = vec![("p".to_owned(), p.clone())];
            all(&named).into_iter().find(|(n, _)| *n == name).expect("of the list").1
        };
        let p = matrix();
        let mut o = of(&p);
        (0..3).for_each(|i| once(&p, o.as_mut(), i));
        let (at, state) = (p.to_host().expect("a value"), o.state_dict().expect("values"));
        let options = o.options().expect("json");
        (3..5).for_each(|i| once(&p, o.as_mut(), i));
        let q = matrix();
        q.set_host(&at).expect("same shape");
        let mut again = of(&q);
        again.load_options(&options).expect("its own");
        again.load_state_dict(&state, true).expect("fits");
        (3..5).for_each(|i| once(&q, again.as_mut(), i));
        assert_eq!(q.to_host().expect("a value"), p.to_host().expect("a value"), "{name}");
        // a state that does not fit is an error
        if let Some(first) = state.keys().find(|n| !n.ends_with("step")).cloned() {
            let mut wrong = state.clone();
            wrong.insert(first, HostTensor::zeros(DType::F32, [7]).expect("small"));
            assert_eq!(again.load_state_dict(&wrong, true).expect_err("another shape").kind(), ErrorKind::Value);
        }
        let mut less = state.clone();
        less.pop_last();
        assert!(state.is_empty() || again.load_state_dict(&less, true).is_err(), "{name}");
    }
}

#[test]
fn options_that_call_for_more_state_keep_what_is_there() {
    let d = cpu();
    let p = Parameter::from_host(&d, &host(&[1.0, 2.0], [2]), Role::Trained).expect("fits");
    let plain = RmsPropOptions::default();
    let mut o = RmsProp::new(vec![("p".to_owned(), p.clone())], plain).expect("valid");
    p.set_grad(Some(remat_tensor::Tensor::new(&d, &[1.0f32, 2.0], [2]).expect("fits"))).expect("same shape");
    o.step().expect("valid");
    let before = o.state_dict().expect("values");
    assert_eq!(before.keys().collect::<Vec<_>>(), ["p.square_avg"]);
    o.set_group_options(0, RmsPropOptions { momentum: 0.5, ..plain }).expect("fits");
    let after = o.state_dict().expect("values");
    assert_eq!(after.keys().collect::<Vec<_>>(), ["p.momentum_buffer", "p.square_avg"]);
    assert_eq!(after["p.square_avg"], before["p.square_avg"]);
}

#[test]
fn options_outside_their_domain_are_refused() {
    let d = cpu();
    let p = || {
        let p = Parameter::from_host(&d, &host(&[1.0], [1]), Role::Trained).expect("fits");
        vec![("p".to_owned(), p)]
    };
    let kinds = [
        RmsProp::new(p(), RmsPropOptions { alpha: 1.0, ..Default::default() }).err(),
        RmsProp::new(p(), RmsPropOptions { lr: f64::NAN, ..Default::default() }).err(),
    ];
    assert!(kinds.iter().all(|e| e.as_ref().is_some_and(|e| e.kind() == ErrorKind::Value)), "{kinds:?}");
    let value = |e: Option<remat_types::Error>| assert_eq!(e.expect("refused").kind(), ErrorKind::Value);
    value(Adagrad::new(p(), AdagradOptions { initial_accumulator_value: -1.0, ..Default::default() }).err());
    value(Adadelta::new(p(), AdadeltaOptions { rho: -0.1, ..Default::default() }).err());
    value(Adamax::new(p(), AdamaxOptions { eps: -1.0, ..Default::default() }).err());
    value(NAdam::new(p(), NAdamOptions { momentum_decay: -1.0, ..Default::default() }).err());
    value(RAdam::new(p(), RAdamOptions { beta1: 1.0, ..Default::default() }).err());
    value(Lamb::new(p(), LambOptions { weight_decay: -1.0, ..Default::default() }).err());
    value(Lion::new(p(), LionOptions { beta2: 2.0, ..Default::default() }).err());
    value(Adafactor::new(p(), AdafactorOptions { beta2_decay: 0.5, ..Default::default() }).err());
    value(Lbfgs::new(Vec::new(), LbfgsOptions::default()).err());
}
