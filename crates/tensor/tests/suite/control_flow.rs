//! Loops, choices and calls of closures: the values and gradients of the same closures run step by step.

use std::sync::Arc;

use remat_runtime::{Device, DeviceOptions, tracing};
use remat_tensor::{
    Collect, ScanOptions, Tensor, call, compile, cond, fori_loop, grad, gradcheck, scan, switch, while_loop,
};
use remat_types::{DType, ErrorKind, Fact, HostTensor, Result};

use crate::support::{assert_close, cpu, grad_of, leaf, plain, tensor, values, wave};

/// One step of a small recurrent net.
fn cell(h: &Tensor, x: &Tensor, w: &Tensor) -> Result<Tensor> {
    (h.matmul(w)? + x)?.tanh()
}

fn unrolled(h: &Tensor, xs: &Tensor, w: &Tensor, reverse: bool) -> Result<(Tensor, Vec<Tensor>)> {
    let n = xs.dims()[0] as isize;
    let (mut h, mut all) = (h.clone(), Vec::new());
    for i in 0..n {
        let k = if reverse { n - 1 - i } else { i };
        let row = xs.slice(0, k..k + 1)?.reshape(&[2, 3])?;
        h = cell(&h, &row, w)?;
        all.push(h.clone());
    }
    Ok((h, all))
}

fn looped(h: &Tensor, xs: &Tensor, w: &Tensor, reverse: bool) -> Result<(Tensor, Vec<Tensor>)> {
    let options = ScanOptions { reverse, ..Default::default() };
    let (mut c, y) = scan(&options, &[h], &[xs], |_, c, x| {
        let h = cell(&c[0], &x[0], w)?;
        Ok((vec![h.clone()], vec![Collect::All(h.clone()), Collect::Sum(h.square()?), Collect::Last(h.neg()?)]))
    })?;
    Ok((c.remove(0), y))
}

fn given(d: &Device) -> [Tensor; 3] {
    let of = |n: usize, at: usize, dims: &[usize]| {
        let all = wave(n + at);
        tensor(d, &all[at..], dims).requires_grad().expect("a float")
    };
    [of(6, 0, &[2, 3]), of(24, 3, &[4, 2, 3]), of(9, 7, &[3, 3])]
}

/// A loop over its start, its slices and a weight.
type Recurrence<'f> = dyn Fn(&Tensor, &Tensor, &Tensor) -> Result<Vec<Tensor>> + 'f;

#[test]
fn a_scan_gives_the_values_of_its_steps() {
    let d = plain();
    for reverse in [false, true] {
        let [h, xs, w] = given(&d);
        let (last, all) = unrolled(&h, &xs, &w, reverse).expect("runs");
        let (end, y) = looped(&h, &xs, &w, reverse).expect("runs");
        assert_eq!(values(&end), values(&last));
        let mut rows: Vec<Vec<f64>> = all.iter().map(values).collect();
        let sums: Vec<f64> = (0..6).map(|i| rows.iter().map(|r| r[i] * r[i]).sum()).collect();
        if reverse {
            rows.reverse();
        }
        assert_eq!(values(&y[0]), rows.concat());
        assert_close(&values(&y[1]), &sums);
        assert_eq!(values(&y[2]), values(&last).iter().map(|v| -v).collect::<Vec<f64>>());
    }
}

#[test]
fn gradients_reach_carried_values_rows_and_what_the_closure_captures() {
    let d = plain();
    for reverse in [false, true] {
        let loss = |run: &Recurrence<'_>| {
            let x = given(&d);
            let parts = run(&x[0], &x[1], &x[2]).expect("runs");
            let sum = parts.iter().map(|p| p.square()?.sum()).reduce(|a, b| a? + b?);
            sum.expect("some").expect("a sum").backward().expect("differentiates");
            x.map(|t| grad_of(&t))
        };
        let steps = loss(&|h, xs, w| {
            let (last, all) = unrolled(h, xs, w, reverse)?;
            Ok(all.into_iter().chain([last.neg()?]).collect())
        });
        let op = loss(&|h, xs, w| {
            let (_, y) = looped(h, xs, w, reverse)?;
            Ok(vec![y[0].clone(), y[2].clone()])
        });
        for (a, b) in op.iter().zip(&steps) {
            assert_close(a, b);
        }
    }
}

fn host(n: usize, dims: &[usize]) -> HostTensor {
    HostTensor::from_slice(&wave(n), dims).expect("fits")
}

#[test]
fn loops_and_choices_agree_with_central_differences() {
    let d = plain();
    let x = [host(6, &[2, 3]), host(9, &[3, 3])];
    let report = gradcheck(&d, &x, |x| {
        let y = fori_loop(3, &[&x[0]], |k, c| {
            let even = ((k.cast(DType::F64)? * 0.5)? + 0.25)?;
            let y = (c[0].matmul(&x[1])? * &even)?.tanh()?;
            let below = y.sum()?.lt(0.0)?;
            cond(&below, &[&y], |y| Ok(vec![(&y[0] * &y[0])?]), |y| Ok(vec![(&y[0] + &c[0])?]))
        })?;
        Ok(y[0].clone())
    });
    let report = report.expect("differentiates");
    // The error of central differences of step h: h^2/6 |f'''| + eps |f| / h. The sum f of 6 elements, each at most 4.5 (a
    // step adds at most 1 to |c|, which begins below 1.5) by a weight below 1.5, is below 41; h is 6e-6 to 9e-6, and
    // |f'''| some hundreds: 1.4e-9 of truncation for each hundred, 1.5e-9 of rounding. The largest gradient is 1.875: with
    // less alive, the check would show less.
    assert!(report.max_error < 1e-8 && report.max_gradient > 1.8, "{report:?}");
}

#[test]
fn a_while_loop_stops_where_its_condition_says_and_its_gradient_too() {
    let d = plain();
    let x = leaf(&d, &[0.75]);
    let limit = tensor(&d, &[5.0], [1]);
    let (y, n) = while_loop(20, &[&x], |_, c| {
        let next = (&c[0] * 2.0)?;
        let go_on = next.lt(&limit)?;
        Ok((vec![next], go_on))
    })
    .expect("runs");
    assert_eq!((values(&y[0]), n.item::<i64>().expect("a count")), (vec![6.0], 3));
    y[0].sum().expect("a sum").backward().expect("differentiates");
    assert_eq!(grad_of(&x), [8.0]);
}

#[test]
fn a_count_known_only_when_it_runs_bounds_the_steps() {
    let d = plain();
    for (count, expected) in [(0i64, 1.5), (2, 6.0), (9, 24.0)] {
        let x = leaf(&d, &[1.5]);
        let count = Tensor::new(&d, &[count], [1]).expect("fits");
        let options = ScanOptions { trips: Some(4), count: Some(count), ..Default::default() };
        let (y, _) = scan(&options, &[&x], &[], |_, c, _| Ok((vec![(&c[0] * 2.0)?], vec![]))).expect("runs");
        assert_eq!(values(&y[0]), [expected]);
        y[0].sum().expect("a sum").backward().expect("differentiates");
        assert_eq!(grad_of(&x), [expected / 1.5]);
    }
}

#[test]
fn only_the_chosen_branch_runs() {
    let d = plain();
    let (a, b) = (leaf(&d, &[4.0]), leaf(&d, &[-9.0]));
    // the branch that is not chosen would give NaN, in its value and its gradient
    let root = |t: &Tensor, other: &Tensor| {
        let y = cond(&t.gt(0.0)?, &[t], |x| Ok(vec![x[0].sqrt()?]), |x| Ok(vec![(&x[0] * other)?]))?;
        y[0].sum()
    };
    let y = (root(&a, &b).expect("runs") + root(&b, &a).expect("runs")).expect("a sum");
    assert_eq!(y.item::<f64>().expect("a value"), 2.0 - 36.0);
    y.backward().expect("differentiates");
    assert_eq!((grad_of(&a), grad_of(&b)), (vec![0.25 - 9.0], vec![4.0]));
}

#[test]
fn a_switch_counts_its_branches() {
    let d = plain();
    let x = leaf(&d, &[3.0]);
    let run = |i: i32| {
        let i = Tensor::scalar(&d, i).expect("fits");
        let (mut a, mut b) = (|x: &[Tensor]| Ok(vec![x[0].square()?]), |x: &[Tensor]| Ok(vec![x[0].neg()?]));
        let mut c = |x: &[Tensor]| Ok(vec![(&x[0] + &x[0])?]);
        switch(&i, &[&x], &mut [&mut a, &mut b, &mut c]).and_then(|y| y[0].to_vec::<f64>())
    };
    assert_eq!([0, 1, 2].map(|i| run(i).expect("runs")), [vec![9.0], vec![-3.0], vec![6.0]]);
    assert_eq!(run(3).expect_err("no such branch").kind(), ErrorKind::Index);
}

#[test]
fn masked_parts_that_are_summed_are_choices_between_a_part_and_nothing() {
    let d = plain();
    let x = leaf(&d, &[3.0]);
    let part = |on: &Tensor, f: &dyn Fn(&Tensor) -> Result<Tensor>| {
        let y = cond(on, &[&x], |x| Ok(vec![f(&x[0])?]), |x| Ok(vec![x[0].zeros_like()?]))?;
        Ok::<Tensor, remat_types::Error>(y[0].clone())
    };
    // which parts run: none, one, the other, both; a part that does not run would give NaN
    for (a, b, y, dx) in
        [(false, false, 0.0, 0.0), (true, false, 9.0, 6.0), (false, true, -3.0, -1.0), (true, true, 6.0, 5.0)]
    {
        let flag = |v: bool| Tensor::scalar(&d, v).expect("fits");
        let (on_a, on_b) = (flag(a), flag(b));
        let square = |x: &Tensor| if a { x.square() } else { (x * f64::NAN)?.sqrt() };
        let sum = (part(&on_a, &square).expect("runs") + part(&on_b, &|x| x.neg()).expect("runs")).expect("a sum");
        assert_eq!(values(&sum), [y], "{a} {b}");
        let grads = grad(&sum.sum().expect("a sum"), &[&x], false).expect("differentiates");
        assert_eq!(values(grads[0].as_ref().expect("a gradient")), [dx], "{a} {b}");
    }
    // a case by value with a last branch for the rest, and a branch for each piece of a line
    let branch = |k: f64| move |x: &[Tensor]| Ok(vec![(&x[0] * k)?]);
    let choose = |index: &Tensor| {
        let (mut a, mut b, mut c) = (branch(1.0), branch(10.0), branch(100.0));
        switch(index, &[&x], &mut [&mut a, &mut b, &mut c]).map(|y| values(&y[0])[0])
    };
    let fallback = |key: i64| choose(&Tensor::scalar(&d, key)?.minimum(&Tensor::scalar(&d, 2i64)?)?);
    assert_eq!([0, 1, 7].map(|k| fallback(k).expect("runs")), [3.0, 30.0, 300.0]);
    let bounds = tensor(&d, &[-1.0, 1.0], [2]);
    let piece = |v: f64| choose(&Tensor::from_slice(&d, &[v], [])?.ge(&bounds)?.sum()?);
    assert_eq!([-5.0, 0.0, 1.0].map(|v| piece(v).expect("runs")), [3.0, 30.0, 300.0]);
}

#[test]
fn a_call_is_its_function_and_nests() {
    let d = plain();
    let (x, w) = (leaf(&d, &[0.5, -1.0]), leaf(&d, &[2.0, 3.0]));
    let inner = |x: &Tensor| call(&[x], |x| Ok(vec![(&x[0] * &w)?.sin()?])).map(|mut y| y.remove(0));
    let y = call(&[&x], |x| Ok(vec![(inner(&x[0])? + inner(&x[0].neg()?)?)?.exp()?, inner(&x[0])?])).expect("runs");
    let plainly = (&x * &w).and_then(|v| v.sin()).expect("runs");
    assert_eq!(values(&y[1]), values(&plainly));
    let dx = grad(&y[1].sum().expect("a sum"), &[&w], false).expect("differentiates");
    let expected: Vec<f64> = [(0.5, 2.0), (-1.0, 3.0f64)].iter().map(|(x, w)| (x * w).cos() * x).collect();
    assert_close(&values(dx[0].as_ref().expect("a gradient")), &expected);
}

#[test]
fn compiled_structure_has_the_bits_of_eager_structure() {
    let d = plain();
    let step = |x: &[Tensor]| -> Result<Vec<Tensor>> {
        let leaves: Vec<Tensor> = x.iter().map(|t| t.detach().requires_grad()).collect::<Result<_>>()?;
        let (end, y) = looped(&leaves[0], &leaves[1], &leaves[2], true)?;
        let sum = (end.sum()? + y[1].sum()?)?;
        let sum = cond(&sum.gt(0.0)?, &[&sum], |s| Ok(vec![s[0].square()?]), |s| Ok(vec![s[0].neg()?]))?;
        let refs: Vec<&Tensor> = leaves.iter().collect();
        let grads = grad(&sum[0], &refs, false)?;
        Ok(sum.into_iter().chain(grads.into_iter().flatten()).collect())
    };
    let x = given(&d);
    let refs: Vec<&Tensor> = x.iter().collect();
    let eager: Vec<Vec<f64>> = step(&x).expect("runs").iter().map(values).collect();
    let mut compiled = compile(&d, step);
    for _ in 0..2 {
        let y: Vec<Vec<f64>> = compiled.call(&refs).expect("runs").iter().map(values).collect();
        assert_eq!(y, eager);
    }
    assert_eq!(compiled.traces(), 1);
    let g = compiled.graph(&refs).expect("compiled");
    let labels: Vec<&str> = g.nodes().iter().map(|n| n.op.label()).collect();
    assert!(labels.contains(&"loop") && labels.contains(&"switch"), "{labels:?}");
}

#[test]
fn a_loop_under_a_budget_gives_the_same_bits() {
    let run = |budget_bytes: Option<usize>| {
        let d = cpu(DeviceOptions { budget_bytes, ..Default::default() });
        let x = tensor(&d, &wave(4096), [64, 64]).requires_grad().expect("a float");
        let mut y = x.clone();
        for _ in 0..14 {
            y = fori_loop(2, &[&y], |_, c| Ok(vec![c[0].sin()?])).expect("runs").remove(0);
        }
        y.square().and_then(|y| y.sum()).and_then(|y| y.backward()).expect("differentiates");
        (grad_of(&x), d.channel().stats().expect("figures").peak_bytes)
    };
    let (free, most) = run(None);
    let (tight, peak) = run(Some(most * 7 / 10));
    assert_eq!(tight, free);
    assert!(peak <= most * 7 / 10, "{peak} of {most}");
}

#[test]
fn what_a_body_cannot_do_is_an_error_that_says_why() {
    let d = plain();
    let (x, flat) = (leaf(&d, &[1.0, 2.0]), leaf(&d, &[1.0]));
    let kind = |r: Result<Vec<Tensor>>| r.expect_err("an error").kind();
    assert_eq!(kind(fori_loop(2, &[&x], |_, _| Ok(vec![]))), ErrorKind::Arity);
    assert_eq!(kind(fori_loop(2, &[&x], |_, c| Ok(vec![c[0].sum()?]))), ErrorKind::Shape);
    let grows = fori_loop(2, &[&flat, &x], |_, c| Ok(vec![c[0].clone(), Tensor::concat(&[&c[1], &c[0]], 0)?]));
    let e = grows.expect_err("grows").to_string();
    assert!(e.contains("carried value 1 is f64[2] and becomes f64[3] in a step"), "{e}");
    assert_eq!(kind(fori_loop(2, &[], |_, _| Ok(vec![]))), ErrorKind::Arity);
    assert_eq!(kind(cond(&x, &[&x], |x| Ok(x.to_vec()), |x| Ok(x.to_vec()))), ErrorKind::DType);
    let two = cond(&x.gt(0.0).expect("a mask"), &[&x], |x| Ok(x.to_vec()), |x| Ok(x.to_vec()));
    assert_eq!(kind(two), ErrorKind::Shape);
    let other = cond(&flat.gt(0.0).expect("a mask"), &[&x], |x| Ok(x.to_vec()), |_| Ok(vec![flat.clone()]));
    assert_eq!(kind(other), ErrorKind::Shape);
    let read = fori_loop(2, &[&x], |_, c| {
        c[0].to_vec::<f64>()?;
        Ok(c.to_vec())
    });
    assert_eq!(kind(read), ErrorKind::NoValue);
    let e = fori_loop(2, &[&x], |_, c| {
        let fact = Fact::new(DType::F64, [2]);
        let rate = tracing::host_input(&d.channel(), fact, Arc::new(|_| Ok(())))?;
        Ok(vec![(&c[0] * Tensor::from_handle(rate))?])
    })
    .expect_err("a rate");
    assert!(e.to_string().contains("outside"), "{e}");
    // nothing of it is left behind
    assert_eq!(values(&(&x + &x).expect("runs")), [2.0, 4.0]);
}
