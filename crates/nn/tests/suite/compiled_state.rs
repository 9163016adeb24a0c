//! The state that a compiled function reads beside its inputs: each call reads the present state, or is an error.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use remat_nn::*;
use remat_runtime::Device;
use remat_tensor::{CompileOptions, Compiled, Tensor, compile, compile_with, is_recording, no_grad};
use remat_types::{ErrorKind, Result};

use crate::support::{cpu, state, tensor, values};

fn sgd(parameters: &[&Parameter]) -> Rc<RefCell<Sgd>> {
    let named = parameters.iter().enumerate().map(|(i, p)| (format!("p{i}"), (*p).clone())).collect();
    let options = SgdOptions { lr: 1.0, ..Default::default() };
    Rc::new(RefCell::new(Sgd::new(named, options).expect("valid")))
}

/// Values of two parameters that begin as one tensor, after some steps.
fn train_two_of_one(d: &Device, is_compiled: bool) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let one = tensor(d, &[1.0, 2.0], [2]);
    let (p, q) = (Parameter::new(one.clone()).expect("valid"), Parameter::new(one.clone()).expect("valid"));
    let (sgd, own) = (sgd(&[&p, &q]), (p.clone(), q.clone()));
    let step = move |x: &[Tensor]| -> Result<Vec<Tensor>> {
        let loss = own.0.get()?.mul(&x[0])?.sub(&own.1.get()?)?.square()?.sum()?;
        loss.backward()?;
        sgd.borrow_mut().step()?;
        Ok(vec![loss.detach()])
    };
    let x = tensor(d, &[0.5, 0.25], [2]);
    let mut compiled = compile(d, step.clone());
    for _ in 0..3 {
        match is_compiled {
            true => drop(compiled.call(&[&x]).expect("runs")),
            false => drop(step(std::slice::from_ref(&x)).expect("runs")),
        }
    }
    (state(&p), state(&q), values(&one))
}

#[test]
fn two_parameters_of_one_tensor_are_two_states() {
    let d = cpu();
    assert_eq!(train_two_of_one(&d, true), train_two_of_one(&d, false));
}

#[test]
fn a_version_that_was_taken_out_of_a_parameter_before_stays_what_it_was() {
    let d = cpu();
    let p = Parameter::new(tensor(&d, &[1.0, 2.0], [2])).expect("valid");
    let first = p.get().expect("a value").detach();
    let own = p.clone();
    let mut f = compile(&d, move |_: &[Tensor]| Ok(vec![own.get()?.sub(&first)?]));
    assert_eq!(values(&f.call(&[]).expect("runs")[0]), [0.0, 0.0]);
    p.set(&tensor(&d, &[5.0, 5.0], [2])).expect("fits");
    assert_eq!(values(&f.call(&[]).expect("runs")[0]), [4.0, 3.0]);
    assert_eq!(f.traces(), 1);
}

#[test]
fn whether_gradients_are_recorded_is_a_part_of_what_is_compiled() {
    let d = cpu();
    let p = Parameter::new(tensor(&d, &[1.0, 2.0], [2])).expect("valid");
    let mut f = compile(&d, move |x: &[Tensor]| {
        let y = p.get()?.mul(&x[0])?;
        Ok(vec![if is_recording() { y } else { y.neg()? }])
    });
    let x = tensor(&d, &[3.0, 4.0], [2]);
    for _ in 0..2 {
        let quiet = no_grad();
        let y = f.call(&[&x]).expect("runs");
        assert!(!y[0].is_tracked() && values(&y[0]) == [-3.0, -8.0]);
        drop(quiet);
        let y = f.call(&[&x]).expect("runs");
        assert_eq!(values(&y[0]), [3.0, 8.0]);
        assert_eq!(y[0].sum().expect("fits").backward().expect_err("told").kind(), ErrorKind::NotDifferentiable);
    }
    assert_eq!(f.traces(), 2);
}

#[test]
fn a_gradient_that_is_there_is_added_to_by_the_run_that_finds_it() {
    let d = cpu();
    let train = |is_compiled: bool| {
        let (p, q) = (tensor(&d, &[1.0], [1]), tensor(&d, &[1.0], [1]));
        let (p, q) = (Parameter::new(p).expect("valid"), Parameter::new(q).expect("valid"));
        let (sgd, own) = (sgd(&[&p, &q]), p.clone());
        let step = move |x: &[Tensor]| -> Result<Vec<Tensor>> {
            own.get()?.mul(&x[0])?.sum()?.backward()?;
            sgd.borrow_mut().step()?;
            Ok(vec![])
        };
        let mut compiled = compile(&d, step.clone());
        let x = tensor(&d, &[2.0], [1]);
        let backward = |p: &Parameter, by: f64| {
            p.get().and_then(|p| p.mul(by)?.sum()?.backward()).expect("tracked");
        };
        let none: &[(&Parameter, f64)] = &[];
        for before in [none, &[(&p, 10.0)], &[(&p, 100.0)], &[(&q, 3.0)], &[(&p, 1.0), (&q, 5.0)], none] {
            before.iter().for_each(|(p, by)| backward(p, *by));
            match is_compiled {
                true => drop(compiled.call(&[&x]).expect("runs")),
                false => drop(step(std::slice::from_ref(&x)).expect("runs")),
            }
            assert!(p.grad().is_none() && q.grad().is_none());
        }
        assert_eq!(compiled.traces(), if is_compiled { 4 } else { 0 });
        (state(&p), state(&q))
    };
    assert_eq!(train(true), train(false));
}

/// A compiled step that moves `p` by the gradient of its product with the input.
fn compiled_step(d: &Device, p: &Parameter) -> Compiled<impl FnMut(&[Tensor]) -> Result<Vec<Tensor>>> {
    let (sgd, own) = (sgd(&[p]), p.clone());
    compile(d, move |x: &[Tensor]| {
        own.get()?.mul(&x[0])?.sum()?.backward()?;
        sgd.borrow_mut().step()?;
        Ok(vec![])
    })
}

#[test]
fn a_session_of_a_gradient_that_is_there_is_an_error() {
    let d = cpu();
    let p = Parameter::new(tensor(&d, &[1.0], [1])).expect("valid");
    let mut f = compiled_step(&d, &p);
    let x = tensor(&d, &[2.0], [1]);
    p.set_grad(Some(tensor(&d, &[1.0], [1]))).expect("fits");
    let e = f.session(&[&x]).expect_err("every run would add it");
    assert!(e.message().contains("to every run's"), "{e}");
    p.set_grad(None).expect("a leaf");
    f.session(&[&x]).expect("of a step alone").run().expect("runs");
}

#[test]
fn hooks_of_a_parameter_that_come_and_go_are_compiled_anew() {
    let d = cpu();
    let p = Parameter::new(tensor(&d, &[1.0], [1])).expect("valid");
    let mut f = compiled_step(&d, &p);
    let x = tensor(&d, &[2.0], [1]);
    f.call(&[&x]).expect("runs");
    let hook = p.on_grad(|_| Ok(())).expect("a leaf");
    f.call(&[&x]).expect("runs");
    f.call(&[&x]).expect("runs");
    assert_eq!(f.traces(), 2);
    hook.remove();
    f.call(&[&x]).expect("runs");
    assert_eq!(f.traces(), 2, "the form without hooks holds again");
}

#[test]
fn a_function_whose_traces_differ_is_refused_with_the_line() {
    let d = cpu();
    let calls = Cell::new(0.0);
    let options = || CompileOptions { check_trace: true, ..Default::default() };
    let line = line!() + 3;
    let mut f = compile_with(&d, options(), |x: &[Tensor]| {
        calls.set(calls.get() + 1.0);
        Ok(vec![x[0].mul(calls.get())?])
    });
    let x = tensor(&d, &[2.0], [1]);
    let e = f.call(&[&x]).expect_err("another number each time");
    assert!(e.message().contains("changes from call to call"), "{e}");
    assert_eq!(e.call_site().map(|s| s.line()), Some(line), "{e}");
    let mut f = compile_with(&d, options(), |x: &[Tensor]| Ok(vec![x[0].mul(2.0)?]));
    assert_eq!(values(&f.call(&[&x]).expect("runs")[0]), [4.0]);
    assert_eq!((f.traces(), f.last_trace(), f.kept_traces()), (1, 2, vec![2]));
}

#[test]
fn a_source_of_keys_that_the_function_makes_gives_every_run_the_same() {
    let d = cpu();
    let device = d.clone();
    let draw = move |_: &[Tensor]| {
        let own = RngCell::new(Rng::new(5));
        Ok(vec![own.next_key(&device)?, own.next_key(&device)?])
    };
    let want: Vec<Vec<f64>> = draw(&[]).expect("draws").iter().map(values).collect();
    let mut f = compile(&d, draw);
    for _ in 0..2 {
        assert_eq!(f.call(&[]).expect("runs").iter().map(values).collect::<Vec<_>>(), want);
    }
    let outer = RngCell::new(Rng::new(5));
    let mut f = compile(&d, |x: &[Tensor]| {
        outer.set(Rng::new(5));
        Ok(x.to_vec())
    });
    let e = f.call(&[&tensor(&d, &[2.0], [1])]).expect_err("once, and never again");
    assert!(e.message().contains("the state of a generator"), "{e}");
}

#[test]
fn a_parameter_that_is_set_to_a_tensor_from_outside_is_set_by_every_run() {
    let d = cpu();
    let p = Parameter::new(tensor(&d, &[1.0, 2.0], [2])).expect("valid");
    let (own, to) = (p.clone(), tensor(&d, &[7.0, 8.0], [2]));
    let mut f = compile(&d, move |x: &[Tensor]| {
        let before = own.get()?;
        own.set(&to)?;
        Ok(vec![own.get()?.add(&x[0])?.add(&before)?])
    });
    let x = tensor(&d, &[1.0, 1.0], [2]);
    assert_eq!(values(&f.call(&[&x]).expect("runs")[0]), [9.0, 11.0]);
    assert_eq!(state(&p), [7.0, 8.0]);
    p.set(&tensor(&d, &[0.0, 0.0], [2])).expect("fits");
    assert_eq!(values(&f.call(&[&x]).expect("runs")[0]), [8.0, 9.0]);
    assert_eq!((state(&p), f.traces()), (vec![7.0, 8.0], 1));
}

#[test]
fn another_thread_reads_a_parameter_while_one_traces() {
    let d = cpu();
    let p = Parameter::new(tensor(&d, &[1.0, 2.0], [2])).expect("valid");
    let own = p.clone();
    let mut f = compile(&d, move |x: &[Tensor]| {
        let y = own.get()?.mul(&x[0])?;
        let other = own.clone();
        let read = std::thread::spawn(move || state(&other)).join().expect("it read a value");
        assert_eq!(read, [1.0, 2.0]);
        Ok(vec![y])
    });
    assert_eq!(values(&f.call(&[&tensor(&d, &[3.0, 4.0], [2])]).expect("runs")[0]), [3.0, 8.0]);
}
