//! Compiled functions whose shapes follow from values.

use std::cell::Cell;
use std::rc::Rc;

use remat_runtime::{Device, DeviceOptions, tracing};
use remat_tensor::{CompileOptions, Compiled, Dim, Symbols, Tensor, compile, compile_with, cond, grad};
use remat_types::{DType, ErrorKind, HostTensor, Result};

use crate::support::{cpu, plain, tensor, values, wave};

type Results = Vec<Vec<u8>>;

fn bits(y: &[Tensor]) -> Results {
    y.iter().map(|t| t.to_host().expect("a value").bytes().to_vec()).collect()
}

/// `f` compiled and eager on these inputs, one call after the other.
#[track_caller]
fn agrees<F: FnMut(&[Tensor]) -> Result<Vec<Tensor>> + Copy>(f: &mut Compiled<F>, mut eager: F, all: &[Vec<Tensor>]) {
    for (i, x) in all.iter().enumerate() {
        let given: Vec<&Tensor> = x.iter().collect();
        let y = f.call(&given).expect("runs");
        assert_eq!(bits(&y), bits(&eager(x).expect("runs")), "call {i}");
    }
}

/// Vectors of `n` elements with the given numbers of positive ones.
fn with_positive(d: &Device, n: usize, counts: &[usize]) -> Vec<Vec<Tensor>> {
    let one = |k: &usize| (0..n).map(|i| if i * 7 % n < *k { 1.5 + i as f64 } else { -0.5 - i as f64 }).collect();
    counts.iter().map(|k: &usize| -> Vec<f64> { one(k) }).map(|v| vec![tensor(d, &v, [n])]).collect()
}

/// The positive elements, their places, and the gradient of a function of them; work before and after the cut.
fn chosen(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let x = x[0].detach().requires_grad()?;
    let h = x.tanh()?.mul(&x)?.add(0.25)?;
    let picked = h.exp()?.masked_select(&x.gt(0.0)?)?;
    let loss = picked.square()?.sum()?.add(h.sum()?)?;
    let dx = grad(&loss, &[&x], false)?.remove(0).expect("reached");
    Ok(vec![picked, x.gt(0.0)?.nonzero()?, loss, dx])
}

#[test]
fn dynamic_output() {
    let d = plain();
    let mut f = compile(&d, chosen);
    let all = with_positive(&d, 11, &[4, 0, 11, 4, 1, 0, 7]);
    agrees(&mut f, chosen, &all);
    // one piece, which is made again once it is known what to hand over; a form for each of 4, 0, 11, 1, 7
    assert_eq!((f.traces(), f.plans()), (6, 7));
    agrees(&mut f, chosen, &all);
    assert_eq!((f.traces(), f.plans()), (6, 7), "nothing is traced or planned for what is known");
}

#[test]
fn what_a_piece_computed_is_handed_over_and_not_computed_again() {
    let d = plain();
    let mut f = compile(&d, |x: &[Tensor]| {
        let h = x[0].exp()?;
        let n = h.gt(2.0)?.sum()?.as_size()?;
        Ok(vec![h.slice(0, 0..n as isize)?, x[0].reshape(&[2, -1])?.sum_over(&[0], false)?])
    });
    let x = tensor(&d, &wave(10), [10]);
    let y = f.call(&[&x]).expect("runs");
    let n = wave(10).iter().filter(|v| v.exp() > 2.0).count();
    assert_eq!((y[0].dims(), n > 0), (&[n][..], true));
    let pieces = f.pieces(&[&x]).expect("runs");
    let labels = |i: usize| -> Vec<&str> { pieces[i].nodes().iter().map(|n| n.op.label()).collect() };
    assert_eq!(pieces.len(), 2);
    assert_eq!(pieces[0].outputs().len(), 2, "the size, and the exponential");
    assert_eq!(labels(1), ["slice", "reshape", "sum"], "no second exponential, and no view is handed over");
    assert_eq!(pieces[1].inputs().len(), 2);
}

/// Two cuts. The second depends on the first, and the end uses a result of the first piece.
fn twice(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let first = x[0].sin()?;
    let positive = x[0].masked_select(&x[0].gt(0.0)?)?;
    let scaled = positive.mul(first.sum()?)?;
    let large = scaled.masked_select(&positive.gt(positive.mean()?)?)?;
    let places = large.gt(0.0)?.nonzero()?;
    Ok(vec![large.add(first.max()?)?, places, scaled])
}

#[test]
fn a_second_size_follows_from_the_first() {
    let d = plain();
    let mut f = compile(&d, twice);
    let all = with_positive(&d, 13, &[6, 2, 13, 6, 5]);
    agrees(&mut f, twice, &all);
    let traces = f.traces();
    agrees(&mut f, twice, &all);
    assert_eq!(f.traces(), traces);
    assert_eq!(f.pieces(&[&all[0][0]]).expect("runs").len(), 4);
}

#[test]
fn forms_and_pieces_go_in_the_order_of_their_use() {
    let d = plain();
    let mut f = compile_with(&d, CompileOptions { forms: 2, ..Default::default() }, |x: &[Tensor]| {
        Ok(vec![x[0].masked_select(&x[0].gt(0.0)?)?])
    });
    let all = with_positive(&d, 8, &[3, 3, 5, 3, 3]);
    let mut seen = Vec::new();
    for x in &all {
        f.call(&[&x[0]]).expect("runs");
        seen.push((f.traces(), f.figures().len()));
    }
    // the piece is used by every call and stays; of the forms for 3 and 5 one has room beside it
    assert_eq!(seen, [(2, 2), (2, 2), (3, 2), (4, 2), (4, 2)]);
    let mut one = compile_with(&d, CompileOptions { forms: 1, ..Default::default() }, chosen);
    agrees(&mut one, chosen, &with_positive(&d, 8, &[3, 3, 5, 3]));
    assert_eq!(one.figures().len(), 1);
}

#[test]
fn what_is_drawn_on_the_host_is_drawn_once_for_all_pieces() {
    let d = plain();
    let count = Rc::new(Cell::new(0u64));
    let drawing = |count: Rc<Cell<u64>>| {
        let next = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        move |x: &[Tensor]| {
            count.set(count.get() + 1);
            let key = |x: &Tensor| -> Result<Tensor> {
                let next = next.clone();
                let draw = move |to: &mut [u8]| {
                    let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    to[..8].copy_from_slice(&n.to_ne_bytes());
                    to[8..].copy_from_slice(&7u64.to_ne_bytes());
                    Ok(())
                };
                Ok(Tensor::from_handle(tracing::random_key(&x.channel(), std::sync::Arc::new(draw))?))
            };
            let before = Tensor::uniform(&key(&x[0])?, x[0].shape().clone(), DType::F64, 0.0, 1.0)?;
            let picked = x[0].masked_select(&before.lt(0.5)?)?;
            let after = Tensor::uniform(&key(&x[0])?, picked.shape().clone(), DType::F64, 0.0, 1.0)?;
            Ok(vec![before, picked.mul(after)?])
        }
    };
    let (eager, x) = (drawing(Rc::default()), tensor(&d, &wave(9), [9]));
    let mut f = compile(&d, drawing(count.clone()));
    for i in 0..8 {
        let y = bits(&f.call(&[&x]).expect("runs"));
        assert_eq!(y, bits(&eager(std::slice::from_ref(&x)).expect("runs")), "call {i}");
    }
    assert_eq!(count.get(), f.traces() as u64, "the function itself runs only to be traced");
}

#[test]
fn a_budget_holds_over_all_pieces_and_changes_no_bit() {
    let d = plain();
    let n = 4096;
    let many = |x: &[Tensor]| -> Result<Vec<Tensor>> {
        let x = x[0].detach().requires_grad()?;
        let mut h = x.clone();
        for _ in 0..4 {
            h = h.sin()?.mul(&x)?.cumulated()?;
        }
        let picked = h.masked_select(&x.gt(0.0)?)?;
        let loss = picked.tanh()?.mul(&picked)?.sum()?;
        Ok(vec![loss.clone(), grad(&loss, &[&x], false)?.remove(0).expect("reached")])
    };
    let all = with_positive(&d, n, &[n / 2, 3, n / 2]);
    let mut free = compile(&d, many);
    agrees(&mut free, many, &all);
    let run_bytes = |m: &remat_runtime::MemoryFigures| m.arena_bytes + m.input_bytes + m.state_bytes + m.output_bytes;
    let most = free.figures().iter().map(run_bytes).max().expect("forms");
    let mut refused = 0;
    for percent in [80, 60, 5] {
        let budget = most * percent / 100;
        let mut f = compile_with(&d, CompileOptions { memory_budget: Some(budget), ..Default::default() }, many);
        for x in &all {
            match f.call(&[&x[0]]) {
                Ok(y) => assert_eq!(bits(&y), bits(&many(x).expect("runs")), "{percent} %"),
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Budget, "{e}");
                    refused += 1;
                }
            }
        }
        f.figures().iter().for_each(|m| assert!(run_bytes(m) <= budget, "{percent} %: {m:?} of {budget}"));
    }
    assert!(refused > 0, "the smallest budget is too small");
}

/// Something that fusion does not take into one op with what is around it.
trait Cumulated {
    fn cumulated(&self) -> Result<Tensor>;
}

impl Cumulated for Tensor {
    fn cumulated(&self) -> Result<Tensor> {
        self.reshape(&[64, -1])?.softmax(-1)?.reshape(&[-1])
    }
}

#[test]
fn sizes_over_symbols_are_instances_and_beyond_their_bounds_traces() {
    let d = plain();
    let symbols = Symbols::new(&[Dim::new("n", 2, 40)], &["n"]).expect("named").and_sizes(&[Dim::new("k", 2, 40)]);
    let mut f = compile_with(&d, CompileOptions { symbols: Some(symbols), ..Default::default() }, chosen_once);
    let mut all = with_positive(&d, 11, &[4, 7, 11]);
    all.extend(with_positive(&d, 30, &[4, 29, 2]));
    agrees(&mut f, chosen_once, &all);
    // five for the piece over n; four corners and three checks for the rest over n and k
    assert_eq!(f.traces(), 12);
    agrees(&mut f, chosen_once, &with_positive(&d, 11, &[0, 1, 0]));
    assert_eq!(f.traces(), 14, "no and one chosen element are beyond the bounds");
    let unnamed = Symbols::new(&[Dim::new("n", 2, 40)], &["n"]).expect("named");
    let mut f = compile_with(&d, CompileOptions { symbols: Some(unnamed), ..Default::default() }, chosen_once);
    agrees(&mut f, chosen_once, &with_positive(&d, 11, &[4, 7, 4]));
    assert_eq!(f.traces(), 7, "a size without a symbol is traced by itself");
}

fn chosen_once(x: &[Tensor]) -> Result<Vec<Tensor>> {
    let x = x[0].detach().requires_grad()?;
    let picked = x.tanh()?.masked_select(&x.gt(0.0)?)?;
    let loss = picked.mean()?;
    Ok(vec![picked, grad(&loss, &[&x], false)?.remove(0).expect("reached")])
}

#[test]
fn recover_from_async_error() {
    let d = plain();
    let pick = |x: &[Tensor]| -> Result<Vec<Tensor>> {
        let rows = x[0].take(0, &x[1])?;
        Ok(vec![rows.masked_select(&rows.gt(0.0)?)?])
    };
    let mut f = compile(&d, pick);
    let x = tensor(&d, &wave(6), [6]);
    let index = |v: &[i64]| Tensor::new(&d, v, [v.len()]).expect("fits");
    for _ in 0..2 {
        let e = f.call(&[&x, &index(&[1, 9])]).expect_err("out of range");
        assert_eq!(e.kind(), ErrorKind::Index, "{e}");
        let good = [x.clone(), index(&[1, 0])];
        assert_eq!(bits(&f.call(&[&good[0], &good[1]]).expect("runs")), bits(&pick(&good).expect("runs")));
    }
}

#[test]
fn where_no_value_can_decide_a_shape_the_error_names_the_line() {
    let d = plain();
    let x = tensor(&d, &wave(6), [6]);
    let line = Cell::new(0);
    let pick = |x: &Tensor| {
        line.set(line!() + 1);
        x.masked_select(&x.gt(0.0)?)
    };
    let here = |e: &remat_types::Error| e.call_site().map(|c| (c.file(), c.line())) == Some((file!(), line.get()));
    // the body of a choice, eagerly and compiled
    let branch = |x: &[Tensor]| Ok(vec![pick(&x[0])?.sum()?]);
    let choose = |x: &[Tensor]| cond(&x[0].sum()?.gt(0.0)?, &[&x[0]], branch, |x| Ok(vec![x[0].sum()?]));
    let e = choose(std::slice::from_ref(&x)).expect_err("a body");
    assert!(e.kind() == ErrorKind::Value && here(&e), "{e}");
    let e = compile(&d, choose).call(&[&x]).expect_err("a body");
    assert!(e.kind() == ErrorKind::Value && here(&e), "{e}");
    // a session
    let mut f = compile(&d, |x: &[Tensor]| Ok(vec![pick(&x[0])?]));
    let e = f.session(&[&x]).map(|_| ()).expect_err("no session");
    assert!(e.to_string().contains(&format!("{}:{}", file!(), line.get())), "{e}");
    // a device that computes nothing
    let dry = Device::dry(DeviceOptions::default()).expect("a device");
    let y = tensor(&dry, &wave(6), [6]);
    let e = pick(&y).expect_err("no value");
    assert!(e.kind() == ErrorKind::NoValue && here(&e), "{e}");
    let e = compile(&dry, |x: &[Tensor]| Ok(vec![pick(&x[0])?])).call(&[&y]).expect_err("no value");
    assert!(e.kind() == ErrorKind::NoValue && here(&e), "{e}");
}

#[test]
fn wrong_sizes_are_errors() {
    let d = plain();
    let n = |v: i64| Tensor::new(&d, &[v], []).expect("fits");
    let narrow = |x: &[Tensor]| Ok(vec![x[0].narrow(0, 0, x[1].as_size()?)?]);
    let mut f = compile(&d, narrow);
    let x = tensor(&d, &wave(6), [6]);
    assert_eq!(f.call(&[&x, &n(4)]).expect("runs")[0].dims(), [4]);
    assert_eq!(f.call(&[&x, &n(-1)]).expect_err("negative").kind(), ErrorKind::Value);
    assert_eq!(f.call(&[&x, &n(7)]).expect_err("too many").kind(), ErrorKind::Index);
    assert_eq!(f.call(&[&x, &n(6)]).expect("runs")[0].dims(), [6]);
    assert_eq!(x.as_size().expect_err("no integer").kind(), ErrorKind::DType);
    assert_eq!(Tensor::new(&d, &[1, 2], [2]).expect("fits").as_size().expect_err("two").kind(), ErrorKind::Shape);
    assert_eq!(n(-3).as_size().expect_err("negative").kind(), ErrorKind::Value);
    assert_eq!(x.masked_select(&x).expect_err("no mask").kind(), ErrorKind::DType);
}

#[test]
fn a_function_that_changes_before_a_size_is_an_error_and_no_wrong_answer() {
    let d = plain();
    let runs = Cell::new(0);
    let line = Cell::new(0);
    let mut f = compile(&d, |x: &[Tensor]| {
        runs.set(runs.get() + 1);
        let h = if runs.get() == 1 { x[0].exp()? } else { x[0].sin()? };
        line.set(line!() + 1);
        let n = h.gt(0.0)?.sum()?.as_size()?;
        Ok(vec![h.narrow(0, 0, n)?])
    });
    let e = f.call(&[&tensor(&d, &wave(6), [6])]).expect_err("another function");
    assert_eq!(e.kind(), ErrorKind::Value);
    assert_eq!(e.call_site().map(|c| c.line()), Some(line.get()), "{e}");
    assert!(e.to_string().contains("`sin`"), "{e}");
}

#[test]
fn an_error_that_is_not_passed_on_still_ends_the_trace() {
    let d = plain();
    let f = |x: &[Tensor]| {
        let n = x[0].gt(0.0)?.sum()?.as_size().unwrap_or(0);
        Ok(vec![x[0].exp()?.narrow(0, 0, n)?])
    };
    let mut compiled = compile(&d, f);
    agrees(&mut compiled, f, &with_positive(&d, 8, &[3, 0, 5]));
}

#[test]
fn a_size_that_is_known_cuts_nothing() {
    let d = plain();
    let mut f = compile(&d, |x: &[Tensor]| {
        let n = Tensor::new(&d, &[3i64], [1])?.as_size()?;
        Ok(vec![x[0].narrow(0, 0, n)?])
    });
    let x = tensor(&d, &wave(6), [6]);
    assert_eq!(f.call(&[&x]).expect("runs")[0].dims(), [3]);
    assert_eq!((f.traces(), f.plans()), (1, 1));
    assert!(f.session(&[&x]).is_ok());
}

#[test]
fn shapes_say_which_values_decide_them() {
    let d = plain();
    let mut f = compile(&d, |x: &[Tensor]| {
        let head = x[1].narrow(0, 0, x[2].as_size()?)?;
        let picked = x[0].masked_select(&x[1].gt(0.0)?)?;
        Ok(vec![picked.exp()?, head, x[0].sin()?])
    });
    let n = Tensor::new(&d, &[2i64], []).expect("fits");
    let (a, b) = (tensor(&d, &wave(6), [6]), tensor(&d, &wave(6), [6]));
    let x = [&a, &b, &n];
    let of = |f: &mut Compiled<_>, j: usize| f.shape_depends(&x, j).map(|s| (s.shapes, s.values));
    assert_eq!(of(&mut f, 0).expect("runs"), (vec![0, 1], vec![1, 2]));
    assert_eq!(of(&mut f, 1).expect("runs"), (vec![1], vec![2]));
    assert_eq!(of(&mut f, 2).expect("runs"), (vec![0], vec![]));
    assert_eq!(of(&mut f, 3).expect_err("no output").kind(), ErrorKind::Value);
}

#[test]
fn selections_have_the_values_that_a_loop_finds() {
    let d = cpu(DeviceOptions::default());
    let v = [0.0, 2.0, -0.0, f64::NAN, 0.0, -1.0];
    let x = tensor(&d, &v, [3, 2]);
    let want: Vec<i64> = (0..6).filter(|i| v[*i] != 0.0).flat_map(|i| [i as i64 / 2, i as i64 % 2]).collect();
    assert_eq!(x.nonzero().expect("runs").to_vec::<i64>().expect("i64"), want);
    let mask = Tensor::new(&d, &[true, false], [2]).expect("fits");
    assert_eq!(values(&x.masked_select(&mask).expect("broadcasts"))[..2], [0.0, -0.0]);
    assert_eq!(x.cond_take(&mask).map(|_| ()).expect_err("no broadcast").kind(), ErrorKind::Shape);
    let full = mask.broadcast_to([3, 2]).expect("fits");
    let (got, places) = x.cond_take(&full).expect("one shape");
    assert_eq!((got.dims(), places.to_vec::<i64>().expect("i64")), (&[3][..], vec![0, 2, 4]));
    let scalar = Tensor::from_host(&d, &HostTensor::scalar(3i32)).expect("fits");
    assert_eq!(scalar.nonzero().expect("runs").dims(), [1, 0]);
}
