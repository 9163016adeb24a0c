use remat_types::{
    DType, Element, Error, ErrorKind, Fact, Facts, Result, Scalar, Shape, Storage, for_storage, smallvec,
};

use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y[i] = start + i step` for `i` in `0..len`. No inputs.
///
/// Floats are computed in f64 from `i`, so errors do not add up; integers wrap. Errors: DType for Bool, Value for an
/// integer dtype with a start or step that is no integer, Shape if `len` is too large to address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
pub struct Arange {
    /// The dtype.
    pub dtype: DType,
    /// The first element.
    #[param(default = 0.into())]
    pub start: Scalar,
    /// The difference of neighbours.
    #[param(default = 1.into())]
    pub step: Scalar,
    /// Number of elements.
    pub len: usize,
}

impl Op for Arange {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 0)?;
        if self.dtype == DType::Bool {
            return Err(super::not_defined(self.dtype));
        }
        let fraction = |v: Scalar| matches!(v, Scalar::Float(v) if v.fract() != 0.0 || !v.is_finite());
        if self.dtype.is_int() && (fraction(self.start) || fraction(self.step)) {
            let text = format!("start {:?} and step {:?} do not make {} elements", self.start, self.step, self.dtype);
            return Err(Error::new(ErrorKind::Value, text));
        }
        let shape = Shape::from([self.len]);
        shape.checked_elems()?;
        Ok(smallvec![Fact::new(self.dtype, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage + Element>(op: &Arange, y: &mut [T]) {
            if T::DTYPE.is_float() {
                let (start, step) = (op.start.to_f64(), op.step.to_f64());
                y.iter_mut().enumerate().for_each(|(i, y)| *y = T::from_f64(start + i as f64 * step));
            } else {
                let (start, step) = (op.start.cast::<i64>(), op.step.cast::<i64>());
                let at = |i: usize| start.wrapping_add((i as i64).wrapping_mul(step));
                y.iter_mut().enumerate().for_each(|(i, y)| *y = T::from_i64(at(i)));
            }
        }
        for_storage!(self.dtype, T => go::<T>(self, cx.y[0].slice_mut()?));
        Ok(())
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![])
    }
}

impl OpDef for Arange {
    const NAME: &'static str = "arange";

    fn samples() -> Vec<Sample<Self>> {
        let op = |dtype, start: Scalar, step: Scalar, len| Arange { dtype, start, step, len };
        let samples = vec![
            Sample::new(op(DType::F32, 1.0f64.into(), (-0.5f64).into(), 4), vec![])
                .gives(vec![t(&[1.0f32, 0.5, 0.0, -0.5], [4])]),
            Sample::new(op(DType::I64, 5i64.into(), 2i64.into(), 3), vec![]).gives(vec![t(&[5i64, 7, 9], [3])]),
            Sample::new(op(DType::U8, 254i64.into(), 1i64.into(), 3), vec![]).gives(vec![t(&[254u8, 255, 0], [3])]),
            Sample::new(op(DType::I32, 0i64.into(), 1i64.into(), 0), vec![]).gives(vec![t::<i32>(&[], [0])]),
            Sample::new(op(DType::I32, 0.5f64.into(), 1i64.into(), 2), vec![]).fails(ErrorKind::Value),
            Sample::new(op(DType::Bool, 0i64.into(), 1i64.into(), 2), vec![]).fails(ErrorKind::DType),
            Sample::new(op(DType::F64, 0i64.into(), 1i64.into(), usize::MAX), vec![]).fails(ErrorKind::Shape),
        ];
        samples.into_iter().map(|s| s.no_grad("no inputs")).collect()
    }
}
