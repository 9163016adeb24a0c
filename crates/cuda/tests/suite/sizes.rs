//! Operators at sizes and forms that their samples do not reach, beside the CPU's kernels.

use remat_ops::OpDef;
use remat_ops::attention::{Attention, AttentionGrad};
use remat_ops::conv::{Conv2d, Conv2dInputGrad, Conv2dWeightGrad, ConvParams};
use remat_ops::loss::{CtcLoss, CtcLossGrad};
use remat_ops::pooling::{AvgPool2d, AvgPool2dGrad, GatherByArgmax, MaxPool2d, MaxPool2dGrad, Windows};
use remat_ops::recurrent::{CellKind, Recurrent};
use remat_ops::vision::Nms;
use remat_types::{DType, Element, HostTensor, Padding};

use crate::samples::{Case, agree};

/// Numbers between -1 and 1 without a pattern.
fn noise(shape: &[usize], seed: u32, dtype: DType) -> HostTensor {
    let n: usize = shape.iter().product();
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let v: Vec<f64> = (0..n)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(state >> 8) / f64::from(1 << 23) - 1.0
        })
        .collect();
    HostTensor::from_f64_slice(&v, dtype, shape).expect("a float")
}

fn of<T: Element>(v: &[T], shape: &[usize]) -> HostTensor {
    HostTensor::from_slice(v, shape).expect("as many elements")
}

fn case<O: OpDef>(op: O, x: Vec<HostTensor>) -> Case {
    Case::of(O::NAME, op.into(), x)
}

/// Few values, so that windows have equal ones; zeros of both signs, infinities and NaN among them.
fn ties(shape: &[usize], dtype: DType) -> HostTensor {
    let some = [0.0, -0.0, 1.5, 1.5, -2.0, f64::NEG_INFINITY, 1.25, f64::NAN];
    let one = |(i, v): (usize, f64)| some[if i % 211 == 200 { 7 } else { (v.abs() * 6.99) as usize }];
    let v: Vec<f64> = noise(shape, 9, DType::F64).to_f64_vec().into_iter().enumerate().map(one).collect();
    HostTensor::from_f64_slice(&v, dtype, shape).expect("a float")
}

#[test]
fn convolutions_of_groups_and_many_places() {
    let mut cases = Vec::new();
    // channels and outputs, groups, extents, kernel, stride, padding, dilation
    let forms = [
        ([6, 6], 6, [9, 11], [3, 3], [1, 1], [1, 1], [1, 1]),
        ([3, 6], 3, [10, 7], [3, 2], [2, 1], [1, 0], [1, 2]),
        ([40, 36], 2, [9, 8], [3, 3], [2, 2], [1, 1], [1, 1]),
        ([3, 20], 1, [21, 19], [5, 5], [2, 3], [2, 2], [1, 1]),
        ([70, 68], 1, [6, 5], [1, 1], [1, 1], [0, 0], [1, 1]),
        ([2, 3], 1, [40, 40], [3, 3], [1, 1], [1, 1], [1, 1]),
        ([3, 8], 1, [33, 17], [16, 16], [16, 16], [0, 0], [1, 1]),
        ([4, 6], 2, [23, 14], [3, 2], [4, 6], [3, 1], [6, 4]),
        ([2, 4], 2, [23, 14], [3, 2], [4, 6], [3, 1], [6, 4]),
        ([2, 3], 1, [3, 5], [2, 2], [7, 9], [1, 1], [1, 1]),
    ];
    for ([c, k], groups, [h, w], kernel, stride, padding, dilation) in forms {
        let taps = ConvParams { stride, padding: padding.into(), dilation, groups };
        let out = |a: usize, size: usize| (size + 2 * padding[a] - dilation[a] * (kernel[a] - 1) - 1) / stride[a] + 1;
        for dtype in [DType::F32, DType::F64, DType::F16] {
            let x = noise(&[2, c, h, w], 1, dtype);
            let weight = noise(&[k, c / groups, kernel[0], kernel[1]], 2, dtype);
            let dy = noise(&[2, k, out(0, h), out(1, w)], 3, dtype);
            cases.push(case(Conv2d { taps }, vec![x.clone(), weight.clone()]));
            cases.push(case(Conv2dInputGrad { taps, size: [h, w] }, vec![dy.clone(), weight]));
            cases.push(case(Conv2dWeightGrad { taps, kernel }, vec![x, dy]));
        }
    }
    agree(&cases);
}

#[test]
fn windows_of_many_sizes() {
    let mut cases = Vec::new();
    let padded = |kernel, stride, begin, end| Windows::sliding(kernel, stride, Padding { begin, end });
    let forms = [
        (Windows::Adaptive { size: [1, 1] }, [7, 7]),
        (Windows::Adaptive { size: [1, 1] }, [45, 30]),
        (Windows::Adaptive { size: [2, 3] }, [19, 70]),
        (Windows::Adaptive { size: [9, 40] }, [5, 17]),
        (padded([2, 2], [2, 2], [0, 0], [0, 0]), [8, 6]),
        (padded([2, 2], [2, 2], [0, 0], [0, 0]), [9, 7]),
        (padded([3, 3], [2, 2], [1, 1], [1, 1]), [12, 13]),
        (padded([2, 3], [3, 5], [1, 2], [0, 1]), [12, 13]),
        (padded([66, 20], [1, 7], [2, 3], [1, 0]), [70, 40]),
        (padded([12, 13], [1, 1], [0, 0], [0, 0]), [12, 13]),
    ];
    for (windows, [h, w]) in forms {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
            let x = noise(&[2, 3, h, w], 1, dtype);
            let max = case(MaxPool2d { windows }, vec![x.clone()]);
            let dy = noise(max.want(0).shape().dims(), 2, dtype);
            cases.push(max);
            cases.push(case(MaxPool2dGrad { windows }, vec![x.clone(), dy.clone()]));
            cases.push(case(GatherByArgmax { windows }, vec![x.clone(), noise(&[2, 3, h, w], 3, dtype)]));
            let equal = ties(&[2, 3, h, w], dtype);
            cases.push(case(MaxPool2d { windows }, vec![equal.clone()]));
            cases.push(case(MaxPool2dGrad { windows }, vec![equal.clone(), dy.clone()]));
            for count_include_pad in [false, true] {
                cases.push(case(AvgPool2d { windows, count_include_pad }, vec![x.clone()]));
                let grad = AvgPool2dGrad { windows, count_include_pad, size: [h, w] };
                cases.push(case(grad, vec![dy.clone()]));
            }
        }
    }
    agree(&cases);
}

#[test]
fn attention_of_wide_heads_and_few_queries() {
    let mut cases = Vec::new();
    let plain = || Attention::plain(0.2);
    let forms = [
        (plain(), [1, 1, 2], [3, 150], [20, 140]),
        (plain(), [1, 1, 1], [70, 66], [150, 33]),
        (plain(), [1, 1, 2], [1, 1100], [9, 20]),
        (Attention { causal: true, offset: 500, left: Some(300), ..plain() }, [1, 1, 1], [70, 700], [5, 3]),
        (Attention { causal: true, offset: 5, ..plain() }, [2, 2, 2], [67, 72], [16, 8]),
        (Attention { left: Some(9), right: Some(2), cap: 0.7.into(), ..plain() }, [1, 1, 3], [90, 80], [7, 20]),
        (Attention { dropout: 0.3.into(), causal: true, ..plain() }, [2, 1, 2], [70, 130], [8, 9]),
        (Attention { dropout: 0.3.into(), ..plain() }, [1, 2, 1], [9, 70], [8, 9]),
    ];
    for (op, [n, kv, group], [tq, tk], [d, dv]) in forms {
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let mut x = vec![
                noise(&[n, tq, kv * group, d], 1, dtype),
                noise(&[n, tk, kv, d], 2, dtype),
                noise(&[n, tk, kv, dv], 3, dtype),
                of(&(0..tq * tk).map(|i| i % 7 != 3).collect::<Vec<_>>(), &[tq, tk]),
                noise(&[kv * group, 1, tk], 4, dtype),
            ];
            if op.dropout.to_f64() > 0.0 {
                x.push(of(&[11u64, 5], &[2]));
            }
            let forward = case(op.clone(), x.clone());
            let given = [vec![forward.want(1), noise(&[n, tq, kv * group, dv], 5, dtype)], x].concat();
            cases.push(forward);
            cases.push(case(AttentionGrad { of: op.clone() }, given));
        }
    }
    agree(&cases);
}

#[test]
fn many_boxes_are_suppressed() {
    let mut cases = Vec::new();
    for n in [1, 63, 64, 65, 300] {
        for dtype in [DType::F32, DType::F64] {
            let corners = noise(&[n, 2], 1, dtype).to_f64_vec();
            let boxes: Vec<f64> =
                corners.chunks(2).flat_map(|c| [c[0], c[1], c[0] + 0.5, c[1] + 0.4 + 0.1 * c[0]]).collect();
            let boxes = HostTensor::from_f64_slice(&boxes, dtype, [n, 4]).expect("a float");
            let groups: Vec<i64> = (0..n as i64).map(|i| i % 3).collect();
            cases.push(case(Nms { most: 0.3.into() }, vec![boxes, of(&groups, &[n])]));
        }
    }
    agree(&cases);
}

#[test]
fn classification_of_long_targets() {
    let mut cases = Vec::new();
    let (steps, n, classes, most) = (290, 3, 5, 140);
    let labels: Vec<i64> = (0..n * most).map(|i| (i * i % 3 + i / 7 % 3) as i64).collect();
    for dtype in [DType::F32, DType::F64] {
        let logs: Vec<f64> = noise(&[steps, n, classes], 1, dtype).to_f64_vec().iter().map(|v| v * 0.5 - 1.6).collect();
        let x = [
            HostTensor::from_f64_slice(&logs, dtype, [steps, n, classes]).expect("a float"),
            of(&labels, &[n, most]),
            of(&[290i32, 17, 280], &[n]),
            of(&[130u8, 9, 140], &[n]),
        ];
        let flat = of(&labels[..279], &[279]);
        for targets in [x[1].clone(), flat] {
            let x = vec![x[0].clone(), targets, x[2].clone(), x[3].clone()];
            let dy = noise(&[n], 2, dtype);
            cases.push(case(CtcLoss { blank: 4, zero_infinity: false }, x.clone()));
            cases.push(case(CtcLoss { blank: 1, zero_infinity: true }, x.clone()));
            let grad = CtcLossGrad { blank: 4, zero_infinity: true };
            cases.push(case(grad, [x, vec![dy]].concat()));
        }
    }
    agree(&cases);
}

#[test]
fn layers_of_many_rows_and_steps() {
    let mut cases = Vec::new();
    // more rows than blocks that keep a device busy, more columns than threads, more steps than are made at once
    for (cell, [steps, batch, inputs, hidden]) in [
        (CellKind::Lstm, [3, 300, 5, 7]),
        (CellKind::Gru, [3, 9, 20, 180]),
        (CellKind::RnnTanh, [60, 600, 1, 2]),
        (CellKind::Gru, [60, 600, 1, 1]),
    ] {
        for reverse in [false, true] {
            let rows = cell.gates() * hidden;
            let lengths: Vec<i64> = (0..batch).map(|b| (b * 7 % (steps + 1)) as i64).collect();
            let x = vec![
                noise(&[steps, batch, inputs], 1, DType::F32),
                noise(&[rows, inputs], 2, DType::F32),
                noise(&[rows, hidden], 3, DType::F32),
                noise(&[rows], 4, DType::F32),
                noise(&[rows], 5, DType::F32),
                of(&lengths, &[batch]),
            ];
            cases.push(case(Recurrent { reverse, lengths: true, ..Recurrent::new(cell) }, x));
        }
    }
    agree(&cases);
}
