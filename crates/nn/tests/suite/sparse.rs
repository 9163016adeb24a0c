//! Embeddings whose gradient stays rows.

use std::cell::RefCell;
use std::rc::Rc;

use remat_nn::*;
use remat_runtime::{Device, DeviceOptions};
use remat_tensor::{Tensor, compile, grad};
use remat_types::{DType, ErrorKind, Result};

use crate::support::{assert_close, cpu, set, state, values};

const ROWS: usize = 40;

/// The same sums in another order: a few roundings to f32, of 6e-8 each.
const F32: f64 = 2.5e-7;

/// Four steps of a few roundings to f64, of 1.1e-16 each.
const F64: f64 = 1e-14;

fn table(d: &Device, dtype: DType, sparse: bool) -> Embedding {
    let options = EmbeddingOptions { padding_idx: Some(2), sparse, ..EmbeddingOptions::default() };
    let mut cx = InitCx::new(d, 1);
    cx.dtype = dtype;
    Embedding::with_options(&mut cx, ROWS, 3, options).expect("fits")
}

/// Indices that repeat, and name the row for padding.
fn index(d: &Device, n: usize, i: usize) -> Tensor {
    let v: Vec<i64> = (0..n).map(|k| ((k * k + 3 * i) % 23) as i64).collect();
    Tensor::new(d, &v, [n]).expect("fits")
}

fn named(e: &Embedding) -> Vec<(String, Parameter)> {
    e.named_parameters()
}

/// A loss that looks rows up twice.
fn loss(e: &Embedding, i: usize) -> Result<Tensor> {
    let d = e.weight.device();
    let (a, b) = (e.forward(&index(d, 30, i))?, e.forward(&index(d, 7, i + 1))?);
    a.square()?.mean()?.add(&b.sin()?.sum()?)
}

#[test]
fn sgd_moves_the_rows_as_with_the_whole_gradient_bit_for_bit() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let bits = |sparse| {
            let d = cpu();
            let e = table(&d, dtype, sparse);
            let mut o = Sgd::new(named(&e), SgdOptions { lr: 0.1, ..SgdOptions::default() }).expect("valid");
            for i in 0..4 {
                e.forward(&index(&d, 29, i)).and_then(|y| y.square()?.sum()?.backward()).expect("differentiable");
                assert_eq!(e.weight.grad_bytes() == ROWS * 3 * dtype.size_bytes(), !sparse, "{dtype}");
                if i % 2 == 0 {
                    // a second pass before the step
                    e.forward(&index(&d, 9, i)).and_then(|y| y.sum()?.backward()).expect("differentiable");
                }
                o.step().expect("a step");
                assert_eq!(e.weight.grad_bytes(), 0);
            }
            e.weight.to_host().expect("a value").to_f64_vec().iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        };
        assert!(bits(true) == bits(false), "{dtype}");
    }
}

#[test]
fn sparse_adam_moves_the_rows_that_were_looked_up_as_its_formula_says() {
    let d = cpu();
    let e = table(&d, DType::F64, true);
    let whole = table(&d, DType::F64, false);
    let options = SparseAdamOptions { lr: 0.1, beta1: 0.5, beta2: 0.75, ..SparseAdamOptions::default() };
    let mut o = SparseAdam::new(named(&e), options).expect("valid");
    let (mut p, mut m, mut v) = (state(&e.weight), vec![0.0; ROWS * 3], vec![0.0; ROWS * 3]);
    for i in 0..4 {
        set(&whole.weight, &p);
        loss(&whole, i).and_then(|l| l.backward()).expect("differentiable");
        let g = values(&whole.weight.take_grad().expect("it was used"));
        let t = (i + 1) as i32;
        let rate = 0.1 * (1.0 - 0.75f64.powi(t)).sqrt() / (1.0 - 0.5f64.powi(t));
        let named: Vec<i64> =
            [index(&d, 30, i), index(&d, 7, i + 1)].iter().flat_map(|x| x.to_vec().expect("i64")).collect();
        for k in (0..ROWS * 3).filter(|k| named.contains(&((k / 3) as i64))) {
            m[k] += 0.5 * (g[k] - m[k]);
            v[k] += 0.25 * (g[k] * g[k] - v[k]);
            p[k] -= rate * m[k] / (v[k].sqrt() + 1e-8);
        }
        loss(&e, i).and_then(|l| l.backward()).expect("differentiable");
        o.step().expect("a step");
        assert_close(&state(&e.weight), &p, F64);
    }
    let kept = o.named_state();
    assert_close(&state(&kept.iter().find(|(n, _)| n == "weight.exp_avg").expect("kept").1), &m, F64);
}

#[test]
fn where_it_is_read_the_gradient_is_a_tensor() {
    let d = cpu();
    let [e, whole] = [true, false].map(|sparse| table(&d, DType::F32, sparse));
    loss(&whole, 0).and_then(|l| l.backward()).expect("differentiable");
    let want = values(&whole.weight.grad().expect("it was used"));
    loss(&e, 0).and_then(|l| l.backward()).expect("differentiable");
    assert!(e.weight.grad_bytes() < ROWS * 3 * 4 * 2 && e.weight.grad_bytes() != ROWS * 3 * 4);
    assert_close(&values(&e.weight.grad().expect("it was used")), &want, F32);
    assert_eq!(e.weight.grad_bytes(), ROWS * 3 * 4);
    // later passes add to it
    loss(&e, 0).and_then(|l| l.backward()).expect("differentiable");
    let twice: Vec<f64> = want.iter().map(|g| 2.0 * g).collect();
    assert_close(&values(&e.weight.take_grad().expect("it was used")), &twice, F32);
    // `grad`, which accumulates nothing, gives tensors, of gradients too
    let y = loss(&e, 0).expect("fits");
    let w = e.weight.get().expect("a value");
    for create_graph in [false, true] {
        let g = grad(&y, &[&w], create_graph).expect("differentiable").remove(0).expect("it was used");
        assert_close(&values(&g), &want, F32);
    }
    // a dense use beside the lookup
    let tied = |e: &Embedding| loss(e, 0)?.add(e.weight.get()?.square()?.sum()?)?.backward();
    for e in [&e, &whole] {
        e.weight.set_grad(None).expect("open");
        tied(e).expect("differentiable");
    }
    assert_close(&values(&e.weight.grad().expect("used")), &values(&whole.weight.grad().expect("used")), F32);
    // hooks see a tensor
    e.weight.set_grad(None).expect("open");
    let hook = e.weight.map_grad(|g| g.mul(3.0).map(Some)).expect("a leaf");
    loss(&e, 0).and_then(|l| l.backward()).expect("differentiable");
    assert_eq!(e.weight.grad_bytes(), ROWS * 3 * 4);
    hook.remove();
    let thrice: Vec<f64> = want.iter().map(|g| 3.0 * g).collect();
    assert_close(&values(&e.weight.grad().expect("used")), &thrice, F32);
}

#[test]
fn sparse_adam_refuses_a_whole_gradient_and_moves_nothing() {
    let d = cpu();
    let e = table(&d, DType::F32, true);
    let mut o = SparseAdam::new(named(&e), SparseAdamOptions::default()).expect("valid");
    let before = state(&e.weight);
    loss(&e, 0).and_then(|l| l.backward()).expect("differentiable");
    clip_grad_norm(std::slice::from_ref(&e.weight), 1.0).expect("it becomes a tensor");
    let failed = o.step().expect_err("a tensor");
    assert!(failed.kind() == ErrorKind::Value && failed.message().contains("sparse"), "{failed}");
    assert_eq!(state(&e.weight), before);
    loss(&e, 0).and_then(|l| l.backward()).expect("differentiable");
    o.step().expect("rows again");
    assert_ne!(state(&e.weight), before);
}

#[test]
fn compiled_steps_have_the_bits_of_eager_ones() {
    type Make = fn(&Embedding) -> Box<dyn Optimizer>;
    let make: [Make; 2] = [
        |e| Box::new(Sgd::new(named(e), SgdOptions { lr: 0.1, ..SgdOptions::default() }).expect("valid")),
        |e| Box::new(SparseAdam::new(named(e), SparseAdamOptions { lr: 0.1, ..Default::default() }).expect("valid")),
    ];
    for make in make {
        let run = |compiled: bool| {
            let d = cpu();
            let e = Rc::new(table(&d, DType::F32, true));
            let o = Rc::new(RefCell::new(make(&e)));
            let taken = {
                let (e, o) = (e.clone(), o.clone());
                move |x: &[Tensor]| {
                    let l = e.forward(&x[0])?.square()?.sum()?;
                    l.backward()?;
                    o.borrow_mut().step()?;
                    Ok(vec![l])
                }
            };
            let x: Vec<Tensor> = (0..4).map(|i| index(&d, 30, i)).collect();
            let mut f = compile(&d, taken.clone());
            for x in &x {
                let _ = if compiled { f.call(&[x]) } else { taken(std::slice::from_ref(x)) }.expect("a step");
            }
            assert_eq!(f.traces(), usize::from(compiled));
            e.weight.to_host().expect("a value").to_f64_vec()
        };
        assert_eq!(run(true), run(false));
    }
}

#[test]
fn rows_do_not_pass_the_border_of_a_compiled_function() {
    let d = cpu();
    let e = Rc::new(table(&d, DType::F32, true));
    let pass = {
        let e = e.clone();
        move |x: &[Tensor]| {
            e.forward(&x[0])?.sum()?.backward()?;
            Ok(vec![x[0].clone()])
        }
    };
    let x = index(&d, 5, 0);
    let left = compile(&d, pass.clone()).call(&[&x]).expect_err("no step takes it");
    assert!(left.message().contains("gradient at the end"), "{left}");
    assert_eq!(e.weight.grad_bytes(), 0, "what the trace left is gone");
    pass(std::slice::from_ref(&x)).expect("differentiable");
    let bytes = e.weight.grad_bytes();
    let before = compile(&d, pass).call(&[&x]).expect_err("rows from before");
    assert!(before.message().contains("kept as rows"), "{before}");
    assert!(bytes > 0 && e.weight.grad_bytes() == bytes, "they stay");
}

#[test]
fn a_hook_that_comes_later_makes_a_form_of_its_own() {
    let d = cpu();
    let e = Rc::new(table(&d, DType::F32, true));
    let o = RefCell::new(Sgd::new(named(&e), SgdOptions { lr: 0.5, ..SgdOptions::default() }).expect("valid"));
    let taken = e.clone();
    let mut f = compile(&d, move |x: &[Tensor]| {
        taken.forward(&x[0])?.sum()?.backward()?;
        o.borrow_mut().step()?;
        Ok(vec![x[0].clone()])
    });
    let x = Tensor::new(&d, &[7i64], [1]).expect("fits");
    let row = |e: &Embedding| state(&e.weight)[21];
    let first = row(&e);
    f.call(&[&x]).expect("a step");
    assert_close(&[row(&e)], &[first - 0.5], F32);
    e.weight.map_grad(|g| g.mul(0.0).map(Some)).expect("a leaf");
    let second = row(&e);
    f.call(&[&x]).expect("a step");
    assert_eq!((row(&e), f.traces()), (second, 2));
}

/// The floor of a step is the table with its state, and what is looked up.
#[test]
fn a_large_table_is_trained_in_little_more_than_itself() {
    let (count, size) = (20_000, 64);
    let bytes = count * size * 4;
    let run = |budget: Option<usize>, sparse: bool| -> Result<Vec<f64>> {
        let options = DeviceOptions { threads: 1, ..DeviceOptions::default() };
        let d = Device::cpu(match budget {
            Some(b) => DeviceOptions { threads: 1, ..DeviceOptions::with_budget(b) },
            None => options,
        })?;
        let mut cx = InitCx::new(&d, 1);
        let options = EmbeddingOptions { sparse, init: Init::Ones, ..EmbeddingOptions::default() };
        let e = Embedding::with_options(&mut cx, count, size, options)?;
        let mut o = Sgd::new(named(&e), SgdOptions { lr: 0.5, ..SgdOptions::default() })?;
        for i in 0..3 {
            e.forward(&index(&d, 64, i))?.square()?.mean()?.backward()?;
            o.step()?;
        }
        let loss = e.forward(&index(&d, 64, 0))?.sum()?;
        Ok(values(&loss))
    };
    let free = run(None, false).expect("no budget");
    let tight = run(Some(bytes + bytes / 16), true).expect("a sixteenth more than the table");
    assert_eq!(free, tight);
    let dense = run(Some(bytes + bytes / 2), false).expect_err("the table twice");
    assert_eq!(dense.kind(), ErrorKind::Budget, "{dense}");
}
