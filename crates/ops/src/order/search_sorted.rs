use remat_kernels::order::search_sorted;
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Storage, for_storage, smallvec};

use crate::args::want_dtype;
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Cost, EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// How many elements of the last axis of `sorted`, which ascends, are less than each of `values`, as I64; if `right`, how many
/// are not above it. That is where a value belongs. NaN is the largest, and equals NaN.
///
/// `sorted: [n]`, for all of `values`; or `[b.., n]` for `values: [b.., m]`. Not differentiable. Errors: DType where they differ;
/// Axis for a `sorted` of rank 0; Shape where they do not fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(sorted: any, values: any))]
pub struct SearchSorted {
    /// Whether equal elements are before a value.
    #[param(default = false)]
    pub right: bool,
}

impl Op for SearchSorted {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        let (sorted, values) = (x[0], x[1]);
        want_dtype(values, sorted.dtype, "values")?;
        let Some((_, batch)) = sorted.shape.split_last() else {
            return Err(Error::new(ErrorKind::Axis, "sorted has rank 0, and no last axis"));
        };
        let fits = values.shape.split_last().is_some_and(|(_, of)| of == batch);
        if !batch.is_empty() && !fits {
            let text = format!("values of shape {} for sorted of shape {}", values.shape, sorted.shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        Ok(smallvec![Fact::new(DType::I64, values.shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage>(right: bool, cx: &mut EvalCx<'_>) -> Result<()> {
            let last = |i: usize| cx.x[i].shape().last().copied().unwrap_or(1);
            let (n, m) = (last(0), last(1));
            let (sorted, values) = (cx.x[0].slice::<T>()?, cx.x[1].slice::<T>()?);
            search_sorted(cx.pool, right, sorted, n, values, m, cx.y[0].slice_mut()?);
            Ok(())
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self.right, cx))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None, None])
    }

    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let steps = x[0].shape.last().copied().unwrap_or(0).max(2).ilog2() + 1;
        Cost::bytes(x, y).with_flops(4 * u64::from(steps) * y[0].elems() as u64)
    }
}

impl OpDef for SearchSorted {
    const NAME: &'static str = "search_sorted";

    fn samples() -> Vec<Sample<Self>> {
        let op = |right| SearchSorted { right };
        let sorted = || t(&[-1.0f32, 0., 0., 2., f32::NAN], [5]);
        let values = || t(&[-2.0f32, -0.0, 1., 2., 3., f32::NAN], [2, 3]);
        let samples = vec![
            Sample::new(op(false), vec![sorted(), values()]).gives(vec![t(&[0i64, 1, 3, 3, 4, 4], [2, 3])]),
            Sample::new(op(true), vec![sorted(), values()]).gives(vec![t(&[0i64, 3, 3, 4, 4, 5], [2, 3])]),
            Sample::new(op(false), vec![t(&[1i32, 2, 3, 10, 20, 30], [2, 3]), t(&[2i32, 5, 40, 20], [2, 2])])
                .gives(vec![t(&[1i64, 3, 3, 1], [2, 2])]),
            Sample::new(op(true), vec![t(&[false, true], [2]), t(&[false], [])]).gives(vec![t(&[1i64], [])]),
            Sample::new(op(true), vec![t::<u8>(&[], [0]), t(&[3u8], [1])]).gives(vec![t(&[0i64], [1])]),
            Sample::new(op(false), vec![sorted(), t(&[1.0f64], [1])]).fails(ErrorKind::DType),
            Sample::new(op(false), vec![t(&[1.0f32], []), values()]).fails(ErrorKind::Axis),
            Sample::new(op(false), vec![t(&[1.0f32; 6], [3, 2]), values()]).fails(ErrorKind::Shape),
        ];
        samples.into_iter().map(|s| s.no_grad("a position")).collect()
    }
}
