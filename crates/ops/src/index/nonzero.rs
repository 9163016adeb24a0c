use remat_kernels::index::nonzero;
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Shape, Storage, for_storage, smallvec};

use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y[k, a] =` the index along axis `a` of the `k`-th element of `x` that is not 0, in row-major order: i64
/// `[size, rank]`. NaN is not 0, -0 is. Not differentiable.
///
/// The size is a parameter, so that the shape is known before it runs; who applies the op counts first. Errors: Value,
/// when it runs, where another number of elements is not 0; Shape if `y` is too large.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any))]
pub struct NonZero {
    /// How many elements are not 0.
    pub size: usize,
}

impl Op for NonZero {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let shape: Shape = [self.size, x[0].rank()].into();
        shape.checked_elems()?;
        Ok(smallvec![Fact::new(DType::I64, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage>(size: usize, cx: &mut EvalCx<'_>) -> Result<usize> {
            Ok(nonzero(cx.x[0].slice::<T>()?, cx.x[0].shape(), size, cx.y[0].slice_mut()?))
        }
        let found = for_storage!(cx.x[0].dtype(), T => go::<T>(self.size, cx))?;
        if found == self.size {
            return Ok(());
        }
        let text = format!("{found} elements are not 0, and the size is {}", self.size);
        Err(Error::new(ErrorKind::Value, text))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }

    fn shape_inputs(&self) -> &'static [usize] {
        &[0]
    }
}

impl OpDef for NonZero {
    const NAME: &'static str = "nonzero";

    fn samples() -> Vec<Sample<Self>> {
        let op = |size| NonZero { size };
        let x = || t(&[0.0f32, 2., -0., f32::NAN, 0., -1.], [2, 3]);
        let samples = vec![
            Sample::new(op(3), vec![x()]).gives(vec![t(&[0i64, 1, 1, 0, 1, 2], [3, 2])]),
            Sample::new(op(2), vec![t(&[true, false, true], [3])]).gives(vec![t(&[0i64, 2], [2, 1])]),
            Sample::new(op(2), vec![t(&[0i8, -1, 0, 1], [2, 1, 2])]).gives(vec![t(&[0i64, 0, 1, 1, 0, 1], [2, 3])]),
            Sample::new(op(0), vec![t(&[0u64, 0], [2])]).gives(vec![t::<i64>(&[], [0, 1])]),
            Sample::new(op(1), vec![t(&[3i32], [])]).gives(vec![t::<i64>(&[], [1, 0])]),
            Sample::new(op(0), vec![t::<f32>(&[], [0, 2])]).gives(vec![t::<i64>(&[], [0, 2])]),
            Sample::new(op(2), vec![x()]).fails(ErrorKind::Value),
            Sample::new(op(4), vec![x()]).fails(ErrorKind::Value),
            Sample::new(op(1), vec![t::<f32>(&[], [0])]).fails(ErrorKind::Value),
            Sample::new(op(usize::MAX), vec![x()]).fails(ErrorKind::Shape),
        ];
        samples.into_iter().map(|s| s.no_grad("of integers")).collect()
    }
}
