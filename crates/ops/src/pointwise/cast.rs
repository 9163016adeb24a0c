use bytemuck::{cast_slice, cast_slice_mut};
use remat_kernels::pointwise::{Half, each1, map1};
use remat_kernels::scalar::convert;
use remat_types::{DType, ErrorKind, Fact, Facts, Layout, Result, bf16, f16, for_storage, smallvec};

use super::{Pointwise, operand};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Class, EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, OpRef, Sample};

/// `y = x` converted to `dtype`, element by element.
///
/// To a float: the nearest, ties to even, infinite on overflow. Float to integer: truncated towards zero, saturated, NaN
/// gives 0. Integer to integer: wraps. To Bool: `x != 0`, so NaN gives true. From Bool: 0 or 1. The gradient is cast
/// back where both dtypes are floats.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct Cast {
    /// The dtype of the output.
    pub dtype: DType,
}

/// The conversion of a block, given as bytes.
pub(super) fn block(from: DType, to: DType, x: &[u8], y: &mut [u8]) {
    match (from, to) {
        (from, to) if from == to => y.copy_from_slice(x),
        (DType::F32, DType::F16) => f16::narrow(cast_slice(x), cast_slice_mut(y)),
        (DType::F32, DType::BF16) => bf16::narrow(cast_slice(x), cast_slice_mut(y)),
        (DType::F16, DType::F32) => f16::widen(cast_slice(x), cast_slice_mut(y)),
        (DType::BF16, DType::F32) => bf16::widen(cast_slice(x), cast_slice_mut(y)),
        (from, DType::Bool) => for_storage!(from, T => {
            let zero = T::default();
            each1(cast_slice::<u8, T>(x), y, |x| u8::from(x != zero));
        }),
        (from, to) => for_storage!(from, T => for_storage!(to, U => {
            each1(cast_slice(x), cast_slice_mut(y), #[inline(always)] |x: T| convert::<T, U>(x));
        })),
    }
}

impl Op for Cast {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        Ok(smallvec![Fact::new(self.dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (from, to, y) = (cx.x[0].dtype(), self.dtype, &mut cx.y[0]);
        for_storage!(from, T => {
            let x = operand::<T>(&cx.x[0], y.shape())?;
            for_storage!(to, U => map1(cx.pool, &x, y.slice_mut()?, &|x: &[T], y: &mut [U]| {
                block(from, to, cast_slice(x), cast_slice_mut(y));
            }));
        });
        Ok(())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let from = cx.fact(cx.x(0)).dtype;
        Ok(smallvec![match cx.dy(0) {
            Some(dy) if from == self.dtype => Some(dy),
            Some(dy) if from.is_float() && self.dtype.is_float() => Some(cx.apply(Cast { dtype: from }, &[dy])?),
            _ => None,
        }])
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[]
    }

    fn view(&self, _x: &Layout) -> Option<Layout> {
        None
    }

    fn class(&self) -> Class {
        Class::Pointwise(Pointwise::Cast(self.clone()))
    }

    fn is_identity(&self, x: &Fact) -> bool {
        x.dtype == self.dtype
    }

    /// Casts to what holds every number of `x` may be left out.
    fn after(&self, first: &dyn Op, x: &Fact) -> Option<OpRef> {
        first.class().casts_to().filter(|between| holds(*between, x.dtype)).map(|_| self.clone().into())
    }
}

/// True if every number of `narrow` is one of `wide`, so that a cast to `wide` loses nothing.
fn holds(wide: DType, narrow: DType) -> bool {
    use DType::{BF16, F16, F32, F64};
    wide == narrow || matches!((wide, narrow), (F32, F16 | BF16) | (F64, F16 | BF16 | F32))
}

impl OpDef for Cast {
    const NAME: &'static str = "cast";

    fn samples() -> Vec<Sample<Self>> {
        let to = |dtype: DType| Cast { dtype };
        let why = "the other dtype is no float, or too coarse for central differences";
        let halves: Vec<f16> = [1.0f32, 65504.0, f32::INFINITY].iter().map(|&v| f16::from_f32(v)).collect();
        vec![
            Sample::new(to(DType::F64), vec![t(&[1.5f32, -2.0], [2])]).gives(vec![t(&[1.5f64, -2.0], [2])]),
            Sample::new(to(DType::F32), vec![t(&[1.5f32], [])]).gives(vec![t(&[1.5f32], [])]).no_grad(why),
            Sample::new(to(DType::F16), vec![t(&[1.0f32 + 1.0 / 4096.0, 65504.0, 1e6], [3])])
                .gives(vec![t(&halves, [3])])
                .no_grad(why),
            Sample::new(to(DType::F32), vec![t(&halves, [3])])
                .gives(vec![t(&[1.0f32, 65504.0, f32::INFINITY], [3])])
                .no_grad(why),
            Sample::new(to(DType::BF16), vec![t(&[3.0f64, -0.0], [2])])
                .gives(vec![t(&[bf16::from_f32(3.0), bf16::from_f32(-0.0)], [2])])
                .no_grad(why),
            Sample::new(to(DType::I8), vec![t(&[-3.9f32, 300.0, f32::NAN, -1e9], [2, 2])])
                .gives(vec![t(&[-3i8, 127, 0, -128], [2, 2])])
                .no_grad(why),
            Sample::new(to(DType::U8), vec![t(&[-1i32, 257], [2])]).gives(vec![t(&[255u8, 1], [2])]),
            Sample::new(to(DType::Bool), vec![t(&[0.0f32, -0.0, 0.5, f32::NAN], [4])])
                .gives(vec![t(&[false, false, true, true], [4])])
                .no_grad(why),
            Sample::new(to(DType::Bool), vec![t(&[0u8, 3], [2])]).gives(vec![t(&[false, true], [2])]),
            Sample::new(to(DType::F32), vec![t(&[true, false], [2])]).gives(vec![t(&[1.0f32, 0.0], [2])]),
            Sample::new(to(DType::F32), vec![t(&[u64::MAX, 1 << 63, 7], [3])])
                .gives(vec![t(&[u64::MAX as f32, 9.223_372e18, 7.0], [3])]),
            Sample::new(to(DType::I64), vec![t::<bool>(&[], [2, 0])]).gives(vec![t::<i64>(&[], [2, 0])]),
            Sample::new(to(DType::I64), vec![]).fails(ErrorKind::Arity),
        ]
    }
}
