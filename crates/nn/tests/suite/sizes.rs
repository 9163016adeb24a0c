//! Training steps whose shapes follow from values, against the eager programs that they are.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use remat_nn::*;
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{CompileOptions, Compiled, Dim, StateCell, Symbols, Tensor, compile, compile_with, no_grad};
use remat_types::{ErrorKind, HostTensor, Result};

use crate::compiled::{Bits, Net};
use crate::support::{cpu, tensor, wave32};

fn host(t: &Tensor) -> HostTensor {
    t.to_host().expect("a value")
}

type Step = Box<dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>>;

/// Trains on the rows whose first logit is above a threshold; gives the loss, and how many they are.
fn step(net: &Net, o: &mut dyn Optimizer, x: &[Tensor]) -> Result<Vec<Tensor>> {
    let z = net.forward(&x[0])?;
    let rows = z.detach().select(1, 0)?.gt(&x[2])?.nonzero()?;
    let rows = rows.reshape(&[rows.dims()[0] as isize])?;
    let own = z.take(0, &rows)?.log_softmax(-1)?;
    let label = x[1].take(0, &rows)?.reshape(&[rows.dims()[0] as isize, 1])?;
    // dropout draws after the cut too
    let loss = own.gather(1, &label)?.square()?.sum()?.add(z.square()?.mean()?)?;
    loss.backward()?;
    o.step()?;
    Ok(vec![loss.detach(), rows])
}

fn optimizer(net: &Net, adam: bool) -> Box<dyn Optimizer> {
    if adam {
        let o = AdamWOptions { lr: 0.01, ..Default::default() };
        return Box::new(AdamW::new(net.parameters(), o).expect("valid"));
    }
    let o = SgdOptions { lr: 0.05, momentum: 0.9, nesterov: true, ..Default::default() };
    Box::new(Sgd::new(net.parameters(), o).expect("valid"))
}

/// Thresholds that all, some and none of the rows pass.
const THRESHOLDS: [f32; 8] = [0.0, 0.1, -9.0, 9.0, 0.0, 0.05, -9.0, 0.1];

fn batch(net: &Net, i: usize) -> Vec<Tensor> {
    let (x, labels) = net.batch(7, i);
    let threshold = Tensor::scalar(&x.device(), THRESHOLDS[i % THRESHOLDS.len()]).expect("fits");
    vec![x, labels, threshold]
}

/// The results and final bits of some steps, and the compiled form.
fn train(device: &Device, options: Option<CompileOptions>, adam: bool) -> (Vec<Vec<u8>>, Bits, Compiled<Step>) {
    let net = Rc::new(Net::new(device));
    let o = RefCell::new(optimizer(&net, adam));
    let inner = net.clone();
    let is_compiled = options.is_some();
    let mut f: Step = Box::new(move |x: &[Tensor]| step(&inner, &mut **o.borrow_mut(), x));
    let mut eager: Step = Box::new(|_| unreachable!("compiled"));
    if !is_compiled {
        std::mem::swap(&mut f, &mut eager);
    }
    let mut compiled = compile_with(device, options.unwrap_or_default(), f);
    let mut all = Vec::new();
    for i in 0..8 {
        let x = batch(&net, i);
        let y = match is_compiled {
            true => compiled.call(&x.iter().collect::<Vec<_>>()).expect("runs"),
            false => eager(&x).expect("runs"),
        };
        all.extend(y.iter().map(|t| host(t).bytes().to_vec()));
    }
    (all, net.bits(), compiled)
}

#[test]
fn a_step_whose_shapes_follow_from_values_trains_as_the_eager_one_bit_for_bit() {
    for adam in [false, true] {
        let (want, state, _) = train(&cpu(), None, adam);
        let (got, own, f) = train(&cpu(), Some(CompileOptions::default()), adam);
        assert_eq!((&got, &own), (&want, &state), "adam: {adam}");
        assert!(f.traces() >= 4 && f.traces() <= 9, "{}: a piece, and a form for each count", f.traces());
        let run = |m: &remat_runtime::MemoryFigures| m.arena_bytes + m.state_bytes + m.input_bytes + m.output_bytes;
        let most = f.figures().iter().map(run).max().expect("forms");
        let mut spared = 0;
        for percent in [97, 90, 80, 70] {
            let budget = most * percent / 100;
            let options = CompileOptions { memory_budget: Some(budget), ..Default::default() };
            let result = std::panic::catch_unwind(|| train(&cpu(), Some(options), adam));
            let Ok((got, own, f)) = result else { continue };
            assert_eq!((&got, &own), (&want, &state), "adam: {adam}, {percent} %");
            f.figures().iter().for_each(|m| assert!(run(m) <= budget, "{percent} %: {m:?} of {budget}"));
            spared += 1;
        }
        assert!(spared > 0, "some budget below the free form's is enough");
    }
}

#[test]
fn a_step_over_symbols_for_counts_trains_bit_for_bit() {
    let symbols = Symbols::new(&[], &["_ _ _ _", "_", ""]).expect("named").and_sizes(&[Dim::new("k", 2, 7)]);
    let options = CompileOptions { symbols: Some(symbols), ..Default::default() };
    let (want, state, _) = train(&cpu(), None, false);
    let (got, own, _) = train(&cpu(), Some(options), false);
    assert_eq!((got, own), (want, state));
}

#[test]
fn a_failure_in_any_piece_leaves_every_state_as_it_was() {
    let d = cpu();
    let net = Rc::new(Net::new(&d));
    let o = RefCell::new(optimizer(&net, false));
    let inner = net.clone();
    // a bad index before the cut, or after it
    let mut f = compile(&d, move |x: &[Tensor]| {
        let picked = x[0].take(0, &x[3])?;
        let given = [picked, x[1].clone(), x[2].clone()];
        let y = step(&inner, &mut **o.borrow_mut(), &given)?;
        Ok(vec![y[0].clone(), x[1].take(0, &x[4])?])
    });
    let index = |v: &[i64]| Tensor::new(&d, v, [v.len()]).expect("fits");
    let (good, bad) = (index(&[0, 1, 2, 3, 4, 5, 6]), index(&[0, 1, 2, 3, 4, 5, 9]));
    let mut call = |i: usize, a: &Tensor, b: &Tensor| {
        let x = batch(&net, i);
        let y = f.call(&[&x[0], &x[1], &x[2], a, b])?;
        y[0].to_host().map(|_| ())
    };
    for i in 0..3 {
        let before = net.bits();
        assert_eq!(call(i, &bad, &good).expect_err("a bad row").kind(), ErrorKind::Index);
        assert_eq!(net.bits(), before, "a failure before the size");
        call(i, &good, &good).expect("runs");
        assert_ne!(net.bits(), before, "the next step is none of the failed one's");
        let before = net.bits();
        assert_eq!(call(i, &good, &bad).expect_err("a bad label").kind(), ErrorKind::Index);
        assert_eq!(net.bits(), before, "a failure after the size");
        call(i, &good, &good).expect("runs");
        assert_ne!(net.bits(), before, "the next step is none of the failed one's");
    }
}

/// A cell that an observer sets while a piece runs.
struct Scale(Mutex<Option<Tensor>>);

impl StateCell for Scale {
    fn slot(&self) -> &Mutex<Option<Tensor>> {
        &self.0
    }

    fn kind(&self) -> remat_runtime::Kind {
        remat_runtime::Kind::Parameter
    }
}

#[test]
fn a_state_that_changes_between_two_pieces_is_an_error() {
    let d = cpu();
    let scale = |v: f32| tensor(&d, &[v], [1]);
    let cell = Arc::new(Scale(Mutex::new(Some(scale(1.0)))));
    let own: Arc<dyn StateCell> = cell.clone();
    let mut f = compile(&d, move |x: &[Tensor]| {
        let scale = {
            let mut slot = own.slot().lock().expect("free");
            remat_tensor::capture_state(&own, &mut slot);
            slot.clone().expect("a version")
        };
        let y = x[0].mul(&scale)?;
        Ok(vec![y.masked_select(&y.gt(0.5)?)?.mul(&scale)?])
    });
    let x = tensor(&d, &wave32(9, 1.0), [9]);
    let first = host(&f.call(&[&x]).expect("runs")[0]);
    let changes = cell.clone();
    let next = Mutex::new(Some(scale(-1.0)));
    f.observe(Some(Arc::new(move |_: &remat_runtime::Observed<'_>| -> Result<()> {
        if let Some(t) = next.lock().expect("free").take() {
            *changes.0.lock().expect("free") = Some(t);
        }
        Ok(())
    })));
    let e = f.call(&[&x]).expect_err("changed in between");
    assert_eq!(e.kind(), ErrorKind::Value, "{e}");
    f.observe(None);
    let y = host(&f.call(&[&x]).expect("runs")[0]);
    assert_ne!(y, first, "the new version");
}

#[test]
fn frozen_parameters_are_those_of_now_in_every_piece() {
    let d = cpu();
    let linear = Rc::new(Linear::new(&mut InitCx::new(&d, 1), 4, 3).expect("valid"));
    let own = linear.clone();
    let select = move |x: &[Tensor]| -> Result<Vec<Tensor>> {
        let _quiet = no_grad();
        let y = own.forward(&x[0])?;
        Ok(vec![own.forward(&x[0])?.masked_select(&y.gt(0.0)?)?])
    };
    let mut f = compile_with(&d, CompileOptions { freeze: true, ..Default::default() }, select.clone());
    let x = tensor(&d, &wave32(20, 2.0), [5, 4]);
    for i in 0..3 {
        let want = select(std::slice::from_ref(&x)).expect("runs");
        assert_eq!(host(&f.call(&[&x]).expect("runs")[0]), host(&want[0]), "weights {i}");
        let w: Vec<f32> = wave32(12, i as f64);
        let next = HostTensor::from_slice(&w, linear.weight.shape()).expect("fits");
        linear.weight.set_host(&next).expect("same shape");
    }
}

#[test]
fn what_a_device_has_as_its_budget_holds_for_pieces() {
    let free = train(&cpu(), None, false);
    let device = Device::cpu(DeviceOptions { threads: 1, budget_bytes: Some(220_000), ..Default::default() });
    let device = device.expect("a CPU");
    let (got, own, _) = train(&device, Some(CompileOptions::default()), false);
    assert_eq!((got, own), (free.0, free.1));
    assert!(device.channel().stats().expect("open").peak_bytes <= 220_000);
}
