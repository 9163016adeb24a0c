//! Operators on inputs that are larger than their samples, where work is cut to parts.

use remat_kernels::pool::Pool;
use remat_ops::activation::{Softmax, SoftmaxGrad};
use remat_ops::loss::{CrossEntropy, CrossEntropyGrad, Reduction};
use remat_ops::norm::{BatchNorm, BatchNormGrad, BatchNormInfer, LayerNorm, LayerNormGrad, RmsNorm, RmsNormGrad};
use remat_ops::order::{Cumulate, CumulateFn, OrderFn, OrderStatistic, Recurrence, Sort, TopK};
use remat_ops::reduce::{ArgReduce, ArgReduceFn, LogSumExp, Reduce, ReduceFn, Std, Var};
use remat_ops::{OpDef, OpRef, Tolerance, eval_on_host};
use remat_types::{DType, HostTensor, SmallVec};

use crate::samples::{Case, agree};

/// Numbers of both signs without a pattern.
fn noise(shape: &[usize], dtype: DType) -> HostTensor {
    let mut state = 12345u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(state >> 8) / f64::from(1 << 24) - 0.4
    };
    let values: Vec<f64> = (0..shape.iter().product()).map(next).collect();
    HostTensor::from_f64_slice(&values, dtype, shape).expect("a float")
}

/// Adds the case of an op, which has a kernel.
fn add<O: OpDef>(cases: &mut Vec<Case>, op: O, x: Vec<HostTensor>) {
    let what = format!("{op:?}");
    cases.push(Case::dense(O::NAME, OpRef::new(op), x).unwrap_or_else(|| panic!("{what} has no kernel")));
}

#[test]
fn reductions_in_parts_have_the_bits_of_the_cpu() {
    let shapes: [(&[usize], &[usize]); 17] = [
        (&[70_000], &[0]),
        (&[140_001], &[0]),
        (&[3, 70_000], &[1]),
        (&[2, 2_500], &[1]),
        (&[90, 300], &[0]),
        (&[90, 300], &[1]),
        (&[3000, 7], &[0]),
        (&[30_000, 3], &[0]),
        (&[600, 700], &[0]),
        (&[8, 33, 17, 19], &[0, 2]),
        (&[8, 33, 17, 19], &[1, 3]),
        (&[8, 33, 17, 19], &[0, 1, 3]),
        (&[8, 33, 17, 19], &[1, 2]),
        (&[700, 3, 40], &[0, 2]),
        (&[2000, 3, 5], &[0, 2]),
        (&[3, 1000, 60], &[1]),
        (&[1, 5, 1, 7000], &[0, 3]),
    ];
    let mut cases = Vec::new();
    for (shape, axes) in shapes {
        let axes: SmallVec<[usize; 4]> = SmallVec::from_slice(axes);
        for f in [ReduceFn::Sum, ReduceFn::Max] {
            add(&mut cases, Reduce { f, axes: axes.clone(), keepdims: false }, vec![noise(shape, DType::F32)]);
        }
        add(&mut cases, Std { axes: axes.clone(), keepdims: false, correction: 1 }, vec![noise(shape, DType::F64)]);
        add(&mut cases, LogSumExp { axes: axes.clone(), keepdims: false }, vec![noise(shape, DType::F32)]);
        if let [axis] = axes[..] {
            add(&mut cases, Var { axes: axes.clone(), keepdims: true, correction: 0 }, vec![noise(shape, DType::BF16)]);
            add(
                &mut cases,
                ArgReduce { f: ArgReduceFn::Argmin, axis, keepdims: false },
                vec![noise(shape, DType::F16)],
            );
        }
    }
    agree(&cases);
}

/// Labels that go through the classes.
fn labels(n: usize, classes: usize) -> HostTensor {
    HostTensor::from_slice(&(0..n).map(|i| (i * 7919 % classes) as i64).collect::<Vec<_>>(), [n]).expect("integers")
}

#[test]
fn rows_of_every_length_have_the_bits_of_the_cpu() {
    let mut cases = Vec::new();
    for (rows, n) in [(3, 16), (50, 17), (40, 255), (2, 257), (5, 1000), (3, 1025), (2, 4100), (1, 9000)] {
        for dtype in [DType::F32, DType::BF16] {
            let x = || noise(&[rows, n], dtype);
            let scale = || noise(&[n], dtype);
            for log in [false, true] {
                add(&mut cases, Softmax { axis: 1, log }, vec![x()]);
                add(&mut cases, SoftmaxGrad { axis: 1, log }, vec![x(), x()]);
            }
            add(&mut cases, LayerNorm { axes: 1, eps: 1e-5.into() }, vec![x(), scale(), scale()]);
            add(&mut cases, LayerNormGrad { axes: 1, eps: 1e-5.into() }, vec![x(), scale(), x()]);
            add(&mut cases, RmsNorm { axes: 1, eps: 1e-5.into() }, vec![x(), scale()]);
            add(&mut cases, RmsNormGrad { axes: 1, eps: 1e-5.into() }, vec![x(), scale(), x()]);
            let (reduction, smoothing, ignore_index) = (Reduction::Mean, 0.1.into(), Some(1));
            let each = CrossEntropy { reduction: Reduction::None, smoothing: 0.0.into(), ignore_index };
            add(&mut cases, each, vec![x(), labels(rows, n)]);
            add(&mut cases, CrossEntropy { reduction, smoothing, ignore_index }, vec![x(), labels(rows, n)]);
            let op = CrossEntropyGrad { reduction, smoothing, ignore_index };
            add(&mut cases, op, vec![x(), labels(rows, n), noise(&[], dtype)]);
        }
    }
    agree(&cases);
}

#[test]
fn many_rows_are_summed_in_blocks() {
    let mut cases = Vec::new();
    for rows in [33, 700, 1025] {
        let x = || noise(&[rows, 19], DType::F32);
        add(&mut cases, LayerNormGrad { axes: 1, eps: 1e-5.into() }, vec![x(), noise(&[19], DType::F32), x()]);
        add(&mut cases, RmsNormGrad { axes: 1, eps: 1e-5.into() }, vec![x(), noise(&[19], DType::F32), x()]);
        add(&mut cases, Softmax { axis: 0, log: true }, vec![x()]);
    }
    agree(&cases);
}

#[test]
fn channels_of_batches_have_the_bits_of_the_cpu() {
    let shapes: [&[usize]; 8] = [
        &[3, 5],
        &[1000, 6],
        &[5, 3, 4, 7],
        &[70, 2, 30],
        &[4, 3, 23, 23],
        &[2, 3, 40, 40],
        &[3, 2, 1024],
        &[1, 300, 3],
    ];
    let mut cases = Vec::new();
    for shape in shapes {
        for dtype in [DType::F32, DType::F16, DType::F64] {
            let (x, scale) = (noise(shape, dtype), noise(&shape[1..2], dtype));
            let op = BatchNorm { eps: 1e-5.into() };
            let forward = vec![x.clone(), scale.clone(), scale.clone()];
            let found = eval_on_host(&op, &forward, &Pool::new(1)).expect("a batch");
            let [_, mean, var] = &found[..] else { panic!("three outputs") };
            add(&mut cases, op, forward);
            let backward = vec![x.clone(), scale.clone(), mean.clone(), var.clone(), x.clone()];
            add(&mut cases, BatchNormGrad { eps: 1e-5.into() }, backward);
            let given = vec![x, scale.clone(), scale, mean.clone(), var.clone()];
            add(&mut cases, BatchNormInfer { eps: 1e-5.into() }, given);
        }
    }
    agree(&cases);
}

#[test]
fn walks_are_scanned_in_parts() {
    let mut cases = Vec::new();
    let shapes: [(&[usize], usize); 5] =
        [(&[3, 500, 2], 1), (&[2, 2049], 1), (&[20_000], 0), (&[70, 3, 5], 0), (&[9000, 3], 0)];
    for (shape, axis) in shapes {
        for reverse in [false, true] {
            let op = |f, exclusive| Cumulate { f, axis, exclusive, reverse };
            let whole: Vec<i64> = noise(shape, DType::F64).to_f64_vec().iter().map(|v| (v * 1e3) as i64).collect();
            add(&mut cases, op(CumulateFn::Sum, true), vec![HostTensor::from_slice(&whole, shape).expect("integers")]);
            add(&mut cases, op(CumulateFn::Max, false), vec![noise(shape, DType::BF16)]);
            add(&mut cases, op(CumulateFn::Min, false), vec![noise(shape, DType::F64)]);
            add(&mut cases, op(CumulateFn::Prod, false), vec![noise(shape, DType::F32)]);
            add(&mut cases, Recurrence { axis, reverse }, vec![noise(shape, DType::F32), noise(shape, DType::F32)]);
            for f in [CumulateFn::Sum, CumulateFn::LogSumExp] {
                let case = Case::dense("cumulate", OpRef::new(op(f, true)), vec![noise(shape, DType::F32)]);
                cases.push(case.expect("a kernel").within(Tolerance::Float));
            }
        }
    }
    agree(&cases);
}

#[test]
fn long_lanes_are_sorted_in_chunks() {
    let mut cases = Vec::new();
    let shapes: [(&[usize], usize); 6] =
        [(&[5000], 0), (&[2, 9001], 1), (&[2100, 3], 0), (&[40, 37], 1), (&[6, 600], 1), (&[2, 2048], 1)];
    for (shape, axis) in shapes {
        let n = shape[axis];
        let few = |x: &HostTensor| {
            let of = |v: &f64| (v * 40.0) as i64;
            HostTensor::from_slice(&x.to_f64_vec().iter().map(of).collect::<Vec<_>>(), shape).expect("integers")
        };
        for dtype in [DType::F32, DType::F64, DType::F16] {
            let x = || noise(shape, dtype);
            add(&mut cases, Sort { axis, descending: dtype == DType::F32 }, vec![x()]);
            for k in [1, 10, n / 2, n] {
                add(&mut cases, TopK { k, axis, largest: dtype != DType::F64, sorted: true }, vec![x()]);
                add(&mut cases, TopK { k, axis, largest: dtype != DType::F16, sorted: false }, vec![x()]);
            }
            for f in [OrderFn::Kth, OrderFn::Median, OrderFn::NanMedian, OrderFn::Mode] {
                add(&mut cases, OrderStatistic { f, k: n / 3, axis, keepdims: false }, vec![x()]);
                add(&mut cases, OrderStatistic { f, k: n / 5, axis, keepdims: true }, vec![few(&x())]);
            }
        }
        add(&mut cases, Sort { axis, descending: true }, vec![few(&noise(shape, DType::F64))]);
    }
    agree(&cases);
}
