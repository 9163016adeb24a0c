use remat_kernels::index::one_hot;
use remat_types::{DType, ErrorKind, Fact, Facts, Result, Scalar, Storage, for_storage, smallvec};

use super::{bad_index, indices, is_index};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y[i.., k] = 1` where `k = index[i..]`, else 0; `y.shape = index.shape ++ [depth]`. Not differentiable.
///
/// Errors: DType for indices that are no integers, Index for one not in `0..depth`, Shape if `y` is too large.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(index: int))]
pub struct OneHot {
    /// The extent of the new axis.
    pub depth: usize,
    /// The dtype of the output.
    pub dtype: DType,
}

impl Op for OneHot {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        is_index(x[0])?;
        let mut shape = x[0].shape.clone();
        shape.push(self.depth);
        shape.checked_elems()?;
        Ok(smallvec![Fact::new(self.dtype, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage>(depth: usize, one: T, cx: &mut EvalCx<'_>) -> Result<()> {
            one_hot(indices(&cx.x[0])?, depth, one, cx.y[0].slice_mut()?).map_err(|e| bad_index(e, depth))
        }
        for_storage!(self.dtype, T => go::<T>(self.depth, Scalar::Int(1).cast(), cx))
    }

    fn grad(&self, _cx: &mut GradCx<'_>) -> Result<Grads> {
        Ok(smallvec![None])
    }
}

impl OpDef for OneHot {
    const NAME: &'static str = "one_hot";

    fn samples() -> Vec<Sample<Self>> {
        let op = |depth, dtype| OneHot { depth, dtype };
        let samples = vec![
            Sample::new(op(3, DType::F32), vec![t(&[2i64, 0], [2])])
                .gives(vec![t(&[0.0f32, 0., 1., 1., 0., 0.], [2, 3])]),
            Sample::new(op(2, DType::Bool), vec![t(&[1u8], [])]).gives(vec![t(&[false, true], [2])]),
            Sample::new(op(0, DType::I64), vec![t::<i32>(&[], [0])]).gives(vec![t::<i64>(&[], [0, 0])]),
            Sample::new(op(2, DType::F32), vec![t(&[0i64, 2], [2])]).fails(ErrorKind::Index),
            Sample::new(op(2, DType::F32), vec![t(&[-1i8], [1])]).fails(ErrorKind::Index),
            Sample::new(op(0, DType::F32), vec![t(&[0u32], [1])]).fails(ErrorKind::Index),
            Sample::new(op(2, DType::F32), vec![t(&[0.0f32], [1])]).fails(ErrorKind::DType),
            Sample::new(op(usize::MAX, DType::F32), vec![t(&[0i64, 2], [2])]).fails(ErrorKind::Shape),
        ];
        samples.into_iter().map(|s| s.no_grad("of integers")).collect()
    }
}
