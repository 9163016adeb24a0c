use remat_types::{DType, ErrorKind, Fact, Facts, Result, Scalar, Shape, for_dtype, for_storage, smallvec};

use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// A tensor of `shape` whose every element is `value`, converted to `dtype` by [`Scalar::cast`]. No inputs.
///
/// Errors: Shape if it is too large to address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
pub struct Fill {
    /// The dtype.
    pub dtype: DType,
    /// The extents.
    pub shape: Shape,
    /// The value.
    pub value: Scalar,
}

impl Op for Fill {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 0)?;
        self.shape.checked_elems()?;
        Ok(smallvec![Fact::new(self.dtype, self.shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        if self.dtype == DType::Bool {
            cx.y[0].slice_mut::<u8>()?.fill(u8::from(self.value.cast::<bool>()));
            return Ok(());
        }
        for_storage!(self.dtype, T => cx.y[0].slice_mut::<T>()?.fill(self.value.cast::<T>()));
        Ok(())
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![])
    }
}

impl OpDef for Fill {
    const NAME: &'static str = "fill";

    fn samples() -> Vec<Sample<Self>> {
        let op = |dtype, shape: &[usize], value: Scalar| Fill { dtype, shape: shape.into(), value };
        let mut out: Vec<Sample<Self>> = DType::ALL
            .iter()
            .map(|&d| {
                let want = for_dtype!(d, T => t(&[Scalar::Int(1).cast::<T>(); 2], [2]));
                Sample::new(op(d, &[2], Scalar::Int(1)), vec![]).gives(vec![want])
            })
            .collect();
        out.extend([
            Sample::new(op(DType::U64, &[], Scalar::Uint(u64::MAX)), vec![]).gives(vec![t(&[u64::MAX], [])]),
            Sample::new(op(DType::F32, &[0, 3], 1.0f64.into()), vec![]).gives(vec![t::<f32>(&[], [0, 3])]),
            Sample::new(op(DType::F32, &[1], f64::NAN.into()), vec![]).gives(vec![t(&[f32::NAN], [1])]),
            Sample::new(op(DType::F32, &[usize::MAX, 2], 1.0f64.into()), vec![]).fails(ErrorKind::Shape),
        ]);
        out.into_iter().map(|s| s.no_grad("no inputs")).collect()
    }
}
