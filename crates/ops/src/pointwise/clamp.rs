use remat_kernels::pointwise::{each1, map1};
use remat_kernels::scalar::{AnyExpr, Expr, Ordered, Plain};
use remat_types::{
    DType, Element, Error, ErrorKind, Fact, Facts, Result, Scalar, Storage, for_dtype, for_storage, smallvec,
};

use super::{Compare, CompareFn, Pointwise, not_defined, operand};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Class, EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, Sample};

/// `y = min(max(x, lo), hi)`, element by element; NaN stays. Bounds beyond the range of an integer dtype do not bind.
///
/// `dx = dy` where `lo <= x <= hi`, both ends included, else 0. Errors: Value for `lo > hi` or a NaN bound, DType for
/// Bool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: number), gradient(x))]
pub struct Clamp {
    /// Lower bound.
    pub lo: Scalar,
    /// Upper bound.
    pub hi: Scalar,
}

/// The integer range of `dtype`.
fn int_range(dtype: DType) -> (i128, i128) {
    let bits = 8 * dtype.size_bytes() as u32;
    if dtype.is_signed_int() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
}

/// `v` as a `T`, saturating where `T` is an integer.
fn saturate<T: Element>(v: Scalar) -> T {
    let wide = match v {
        Scalar::Int(v) => i128::from(v),
        Scalar::Uint(v) => i128::from(v),
        _ => return T::from_f64(v.to_f64()),
    };
    if !T::DTYPE.is_int() {
        return v.cast();
    }
    let (lo, hi) = int_range(T::DTYPE);
    // the wrap of `as` brings a u64 above i64::MAX through `from_i64` unharmed
    T::from_i64(wide.clamp(lo, hi) as i64)
}

impl Clamp {
    /// The op on a block.
    pub(super) fn block<T: Storage + Element + Ordered>(&self, x: &[T], y: &mut [T]) {
        let (lo, hi) = (saturate::<T>(self.lo), saturate::<T>(self.hi));
        // bounds that are captured by reference are read again for each element
        each1(
            x,
            y,
            #[inline(always)]
            move |x| x.clamped(lo, hi),
        );
    }

    /// The op as an expression.
    pub(super) fn written<'b>(&self, x: AnyExpr<'b>) -> AnyExpr<'b> {
        fn go<'b, T: Plain>(op: &Clamp, x: AnyExpr<'b>) -> AnyExpr<'b> {
            x.to::<T>().clamped(Expr::constant(saturate(op.lo)), Expr::constant(saturate(op.hi))).any()
        }
        for_dtype!(x.dtype(), T => go::<T>(self, x))
    }
}

impl Op for Clamp {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        if x[0].dtype == DType::Bool {
            return Err(not_defined(DType::Bool));
        }
        // `!(<=)` and not `>`, so that a NaN bound is caught
        if !matches!(self.lo.to_f64().partial_cmp(&self.hi.to_f64()), Some(o) if o.is_le()) {
            let text = format!("the lower bound {:?} is not at most the upper bound {:?}", self.lo, self.hi);
            return Err(Error::new(ErrorKind::Value, text));
        }
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        for_storage!(cx.x[0].dtype(), T => {
            let y = &mut cx.y[0];
            let x = operand::<T>(&cx.x[0], y.shape())?;
            map1(cx.pool, &x, y.slice_mut()?, &|x: &[T], y: &mut [T]| self.block(x, y));
            Ok(())
        })
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let dtype = cx.fact(cx.x(0)).dtype;
        let Some(dy) = cx.dy(0).filter(|_| dtype.is_float()) else { return Ok(smallvec![None]) };
        let (c, x) = (cx.build(), cx.x(0));
        let above = cx.apply(Compare { f: CompareFn::Ge }, &[x, c.number(self.lo.to_f64(), &x)?])?;
        let below = cx.apply(Compare { f: CompareFn::Le }, &[x, c.number(self.hi.to_f64(), &x)?])?;
        Ok(smallvec![Some(c.keep_where(above, c.keep_where(below, dy)?)?)])
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }

    fn class(&self) -> Class {
        Class::Pointwise(Pointwise::Clamp(self.clone()))
    }
}

impl OpDef for Clamp {
    const NAME: &'static str = "clamp";

    fn samples() -> Vec<Sample<Self>> {
        let op = |lo: f64, hi: f64| Clamp { lo: lo.into(), hi: hi.into() };
        let ints = |lo: i64, hi: i64| Clamp { lo: lo.into(), hi: hi.into() };
        vec![
            Sample::new(op(-1.0, 2.0), vec![t(&[-3.0f32, -0.5, 1.5, 4.0], [2, 2])])
                .gives(vec![t(&[-1.0f32, -0.5, 1.5, 2.0], [2, 2])]),
            Sample::new(op(0.0, f64::INFINITY), vec![t(&[f64::NAN, -1.0, f64::INFINITY], [3])])
                .gives(vec![t(&[f64::NAN, 0.0, f64::INFINITY], [3])])
                .no_grad("NaN"),
            Sample::new(ints(-300, 5), vec![t(&[-128i8, 0, 127], [3])]).gives(vec![t(&[-128i8, 0, 5], [3])]),
            Sample::new(Clamp { lo: 1i64.into(), hi: Scalar::Uint(u64::MAX - 1) }, vec![t(&[0, u64::MAX], [2])])
                .gives(vec![t(&[1, u64::MAX - 1], [2])]),
            Sample::new(op(0.0, 1.0), vec![t::<f32>(&[], [0])]).gives(vec![t::<f32>(&[], [0])]),
            Sample::new(op(1.0, 0.0), vec![t(&[0.5f32], [1])]).fails(ErrorKind::Value),
            Sample::new(op(f64::NAN, 0.0), vec![t(&[0.5f32], [1])]).fails(ErrorKind::Value),
            Sample::new(op(0.0, 1.0), vec![t(&[true], [1])]).fails(ErrorKind::DType),
        ]
    }
}
