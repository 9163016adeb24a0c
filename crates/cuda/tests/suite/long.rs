//! Operators on more elements than samples have: lanes and indices that no block holds, and long draws.

use remat_ops::index::{IndexPut, NonZero, PutFn, Scatter, TakeGrad};
use remat_ops::optim::{NAdamUpdate, SgdRowsUpdate};
use remat_ops::order::{Cumulate, CumulateFn, OrderFn, OrderStatistic, Recurrence, Sort, TopK};
use remat_ops::random::RandomPermutation;
use remat_ops::vision::{Between, Beyond, SamplePointsGrad};
use remat_ops::{OpRef, eval_on_host};
use remat_types::HostTensor;

use crate::samples::{Case, agree};

/// Whole numbers below `n` in no order, several of them equal.
fn mixed(count: usize, n: u64) -> Vec<i64> {
    (0..count as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % n).map(|v| v as i64).collect()
}

fn tensor<T: remat_types::Element>(v: &[T], shape: &[usize]) -> HostTensor {
    HostTensor::from_slice(v, shape).expect("as many elements")
}

fn floats(count: usize, shape: &[usize]) -> HostTensor {
    let v: Vec<f32> = mixed(count, 1 << 12).iter().map(|v| (*v as f32 - 2000.0) * 0.37).collect();
    tensor(&v, shape)
}

/// Panics unless the kernels give what the CPU gives.
fn check(cases: Vec<(OpRef, Vec<HostTensor>)>) {
    let pool = remat_kernels::pool::Pool::new(2);
    let all = cases.into_iter().map(|(op, x)| {
        let want = eval_on_host(&*op, &x, &pool).unwrap_or_else(|e| panic!("{op:?}: {e}"));
        Case::giving(op, x, want)
    });
    agree(&all.collect::<Vec<_>>());
}

#[test]
fn lanes_that_a_block_folds_are_those_of_a_loop() {
    let x = || floats(3 * 5000, &[3, 5000]);
    let fold = |f, axis, exclusive, reverse| OpRef::from(Cumulate { f, axis, exclusive, reverse });
    let odd: Vec<u16> = mixed(5000, 1 << 15).iter().map(|v| (2 * v + 1) as u16).collect();
    let near = tensor(&mixed(10_000, 1000).iter().map(|v| *v as f32 / 900.0 - 0.6).collect::<Vec<_>>(), &[2, 5000]);
    check(vec![
        (fold(CumulateFn::Sum, 1, false, false), vec![x()]),
        (fold(CumulateFn::Sum, 0, true, true), vec![floats(5000 * 3, &[5000, 3])]),
        (fold(CumulateFn::Prod, 0, true, false), vec![tensor(&odd, &[5000])]),
        (fold(CumulateFn::Max, 1, false, true), vec![x()]),
        (fold(CumulateFn::Min, 0, false, false), vec![floats(5000 * 3, &[5000, 3])]),
        (fold(CumulateFn::LogSumExp, 1, true, true), vec![x()]),
        (Recurrence { axis: 1, reverse: false }.into(), vec![near.clone(), near.clone()]),
        (Recurrence { axis: 1, reverse: true }.into(), vec![near.clone(), near]),
    ]);
}

#[test]
fn long_lanes_and_many_indices_are_put_in_order() {
    let x = || floats(3 * 5000, &[3, 5000]);
    let wide: Vec<f64> = mixed(5000, 1 << 40).iter().map(|v| *v as f64 - 1e11).collect();
    let sort = |axis, descending| OpRef::from(Sort { axis, descending });
    let statistic = |f| OpRef::from(OrderStatistic { f, k: 3777, axis: 1, keepdims: false });
    let rows = tensor(&mixed(9000, 70_000), &[9000]);
    let put = |f| OpRef::from(Scatter { f, axis: 0 });
    let (gaps, odd) = (tensor(&mixed(9000, 3), &[90, 100]), mixed(3600, 1000));
    let some = mixed(9000, 3).iter().filter(|v| **v != 0).count();
    let points = tensor(&odd.iter().map(|v| *v as f32 / 80.0 - 1.0).collect::<Vec<_>>(), &[2, 900, 2]);
    let cases: Vec<(OpRef, Vec<HostTensor>)> = vec![
        (sort(1, false), vec![x()]),
        (sort(0, true), vec![floats(5000 * 2, &[5000, 2])]),
        (sort(0, true), vec![tensor(&wide, &[5000])]),
        (sort(0, false), vec![tensor(&mixed(2049, 100), &[2049])]),
        (TopK { k: 2500, axis: 1, largest: true, sorted: false }.into(), vec![x()]),
        (TopK { k: 40, axis: 1, largest: false, sorted: true }.into(), vec![x()]),
        (statistic(OrderFn::Kth), vec![x()]),
        (statistic(OrderFn::Mode), vec![x()]),
        (TakeGrad { axis: 0, extent: 70_000 }.into(), vec![floats(18_000, &[9000, 2]), rows.clone()]),
        (TakeGrad { axis: 0, extent: 3 }.into(), vec![floats(9000, &[9000]), tensor(&mixed(9000, 3), &[9000])]),
        (put(PutFn::Add), vec![floats(70_000, &[70_000]), floats(9000, &[9000]), rows.clone()]),
        (put(PutFn::Set), vec![floats(50, &[50]), floats(9000, &[9000]), tensor(&mixed(9000, 50), &[9000])]),
        (
            IndexPut { f: PutFn::Add, axes: [0, 1].into_iter().collect(), negative: false }.into(),
            vec![
                floats(60 * 70 * 3, &[60, 70, 3]),
                floats(9000, &[3000, 3]),
                tensor(&mixed(3000, 60), &[3000]),
                tensor(&mixed(3000, 70), &[3000]),
            ],
        ),
        (
            SgdRowsUpdate { maximize: false }.into(),
            vec![
                floats(140_000, &[70_000, 2]),
                tensor(&[0.5f32], &[]),
                rows.clone(),
                floats(18_000, &[9000, 2]),
                rows,
                floats(18_000, &[9000, 2]),
            ],
        ),
        (RandomPermutation { n: 5000 }.into(), vec![tensor(&[3u64, 8], &[2])]),
        (NonZero { size: some }.into(), vec![gaps]),
        (
            SamplePointsGrad {
                between: Between::Linear,
                beyond: Beyond::Edge,
                orders: [].into_iter().collect(),
                images: 2,
                size: [9, 11].into_iter().collect(),
            }
            .into(),
            vec![points, tensor(&[1i64, 0], &[2]), floats(2 * 3 * 900, &[2, 3, 900])],
        ),
    ];
    check(cases);
}

#[test]
fn powers_of_decays_have_the_bits_of_the_library() {
    let x = || floats(3, &[3]);
    let one = |v: f64| tensor(&[v], &[]);
    let steps = [1i64, 2, 3, 7, 100, 999, 12_345, 1_000_000];
    let cases = steps.into_iter().flat_map(|step| {
        [(0.9, 0.999), (0.5, 0.95), (0.0, 0.9999)].map(|(beta1, beta2): (f64, f64)| {
            let op = NAdamUpdate {
                beta1: beta1.into(),
                beta2: beta2.into(),
                eps: 1e-8.into(),
                weight_decay: 0.1.into(),
                momentum_decay: 0.004.into(),
                decoupled: true,
            };
            let given = [tensor(&[0.01f32], &[]), tensor(&[step], &[]), x(), one(0.7)];
            let v = tensor(&[0.5f32, 2.0, 0.25], &[3]);
            let [lr, step, m, product] = given;
            (OpRef::from(op), vec![x(), x(), lr, step, m, v, product])
        })
    });
    check(cases.collect());
}
