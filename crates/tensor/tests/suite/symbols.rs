//! Functions compiled over symbols: one trace, any size.

use std::cell::Cell;
use std::rc::Rc;

use remat_tensor::{
    Collect, CompileOptions, Dim, ScanOptions, Symbols, Tensor, compile, compile_with, grad, scan, switch,
};
use remat_types::{ErrorKind, Result};

use crate::support::{plain, tensor, values, wave};

fn over(dims: &[Dim], inputs: &[&str]) -> CompileOptions {
    let symbols = Symbols::new(dims, inputs).expect("named");
    CompileOptions { symbols: Some(symbols), ..Default::default() }
}

/// A recurrent net over `[t, b, 3]` with its loss and gradient: rows flattened, a loop, a branch, means.
fn net(x: &[Tensor], w: &Tensor) -> Result<Vec<Tensor>> {
    let (t, b) = (x[0].dims()[0], x[0].dims()[1]);
    let w = w.detach().requires_grad()?;
    let rows = x[0].reshape(&[(t * b) as isize, 3])?.matmul(&w)?.reshape(&[t as isize, b as isize, 3])?;
    let h = Tensor::zeros(&x[0].device(), [b, 3], x[0].dtype())?;
    let (end, all) = scan(&ScanOptions::default(), &[&h], &[&rows], |_, c, row| {
        let h = (c[0].matmul(&w)? + &row[0])?.tanh()?;
        Ok((vec![h.clone()], vec![Collect::All(h)]))
    })?;
    let last = all[0].slice(0, t as isize - 1..t as isize)?.reshape(&[b as isize, 3])?;
    let (mut a, mut c) = (|x: &[Tensor]| Ok(vec![x[0].square()?]), |x: &[Tensor]| Ok(vec![(&x[0] + &x[0])?]));
    let y = switch(&x[1], &[&(last + &end[0])?], &mut [&mut a, &mut c])?;
    let loss = y[0].mean()?;
    let dw = grad(&loss, &[&w], false)?;
    Ok([loss, all[0].clone()].into_iter().chain(dw.into_iter().flatten()).collect())
}

#[test]
fn one_trace_over_symbols_serves_every_size() {
    let d = plain();
    let w = tensor(&d, &wave(9), [3, 3]);
    let ran = Rc::new(Cell::new(0));
    let (counts, own) = (ran.clone(), w.clone());
    let dims = [Dim::new("t", 1, 12), Dim::new("b", 1, 40)];
    let mut f = compile_with(&d, over(&dims, &["t b _", ""]), move |x: &[Tensor]| {
        counts.set(counts.get() + 1);
        net(x, &own)
    });
    let sizes = [(3, 4), (1, 1), (12, 40), (5, 2), (3, 4), (2, 9)];
    for (k, (t, b)) in sizes.into_iter().enumerate() {
        let x = [tensor(&d, &wave(t * b * 3), [t, b, 3]), Tensor::scalar(&d, (k % 2) as i64).expect("fits")];
        let refs = [&x[0], &x[1]];
        let y: Vec<Vec<f64>> = f.call(&refs).expect("runs").iter().map(values).collect();
        let mut fresh = compile(&d, |x: &[Tensor]| net(x, &w));
        let expected: Vec<Vec<f64>> = fresh.call(&refs).expect("runs").iter().map(values).collect();
        assert_eq!(y, expected, "t = {t}, b = {b}");
        let text = |g: &remat_graph::ir::Graph| g.to_text().expect("text");
        assert_eq!(text(&f.graph(&refs).expect("there")), text(&fresh.graph(&refs).expect("there")));
    }
    // four corners and three checks, when it was first called
    assert_eq!((ran.get(), f.traces(), f.plans()), (7, 7, 5));
}

#[test]
fn the_plan_used_longest_ago_goes_first() {
    let d = plain();
    let options = CompileOptions { forms: 2, ..over(&[Dim::new("n", 1, 50)], &["n"]) };
    let mut f = compile_with(&d, options, |x: &[Tensor]| Ok(vec![x[0].square()?.sum()?]));
    let mut plans = |n: usize| {
        let y = f.call(&[&tensor(&d, &vec![1.0; n], [n])]).expect("runs");
        assert_eq!(values(&y[0]), [n as f64]);
        (f.plans(), f.figures().len())
    };
    // 3 drives 2 out, not 1, which was used after it
    let seen = [1, 2, 1, 3, 1, 2, 3].map(&mut plans);
    assert_eq!(seen, [(1, 1), (2, 2), (2, 2), (3, 2), (3, 2), (4, 2), (5, 2)]);
    assert_eq!(f.traces(), 5, "two corners and three checks");
}

#[test]
fn what_a_trace_over_symbols_cannot_carry_over_is_an_error() {
    let d = plain();
    let x = |dims: &[usize]| tensor(&d, &wave(dims.iter().product()), dims);
    let n = [Dim::new("n", 2, 50)];
    let mut f = compile_with(&d, over(&n, &["n _", "n"]), |x: &[Tensor]| Ok(vec![x[0].matmul(&x[1])?]));
    let mut fails = |a: &[usize], b: &[usize]| f.call(&[&x(a), &x(b)]).map(|_| ()).expect_err("an error");
    let e = fails(&[51, 51], &[51]).to_string();
    assert!(e.contains("`n` is 51, and its bounds are 2 and 50"), "{e}");
    let e = fails(&[4, 4], &[5]).to_string();
    assert!(e.contains("`n` is 4, and 5 in input 1"), "{e}");
    assert_eq!(fails(&[4, 4, 4], &[4]).kind(), ErrorKind::Shape);
    // the columns are no symbol, and fit at one size alone
    assert_eq!(fails(&[4, 4], &[4]).kind(), ErrorKind::Shape);
    let one = f.call(&[&x(&[4, 4])]).map(|_| ()).expect_err("one input");
    assert_eq!(one.kind(), ErrorKind::Arity);

    // a threshold between the sizes of comparison and the largest; other values from outside
    let refused = |f: &mut dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>| {
        let mut f = compile_with(&d, over(&n, &["n"]), f);
        let e = f.call(&[&x(&[7])]).map(|_| ()).expect_err("does not follow");
        assert_eq!((e.kind(), f.plans()), (ErrorKind::Value, 0), "{e}");
        e.to_string()
    };
    let e = refused(&mut |x| Ok(vec![if x[0].elems() > 40 { x[0].exp()? } else { x[0].tanh()? }]));
    assert!(e.contains("something else"), "{e}");
    let (a, b) = (tensor(&d, &[1.5], [1]), tensor(&d, &[2.5], [1]));
    let e = refused(&mut |x| Ok(vec![(&x[0] * if x[0].elems() % 2 == 0 { &a } else { &b })?]));
    assert!(e.contains("from outside"), "{e}");
    assert!(Symbols::new(&n, &["n m"]).is_err() && Symbols::new(&n, &["_"]).is_err());
}
