use remat_kernels::copy::scatter;
use remat_types::{
    DType, Error, ErrorKind, Fact, Facts, Layout, Result, Scalar, Shape, SmallVec, for_storage, smallvec,
};

use super::Slice;
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `x` with `before[a]` elements of `value` in front of axis `a` and `after[a]` behind it.
///
/// A negative amount is not representable: cut with [`Slice`]. Errors: Shape unless there is one amount per axis, or if
/// the output is too large to address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct Pad {
    /// Elements in front, per axis.
    pub before: SmallVec<[usize; 4]>,
    /// Elements behind, per axis.
    pub after: SmallVec<[usize; 4]>,
    /// The value of the new elements, converted to the dtype by [`Scalar::cast`].
    pub value: Scalar,
}

impl Op for Pad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let rank = x[0].rank();
        if self.before.len() != rank || self.after.len() != rank {
            let text = format!("{} and {} amounts for rank {rank}", self.before.len(), self.after.len());
            return Err(Error::new(ErrorKind::Shape, text));
        }
        let extent = |a: usize| x[0].shape[a].checked_add(self.before[a])?.checked_add(self.after[a]);
        let shape: Option<Shape> = (0..rank).map(extent).collect();
        let shape = shape.ok_or_else(|| Error::new(ErrorKind::Shape, "the padded shape cannot be addressed"))?;
        shape.checked_elems()?;
        Ok(smallvec![Fact::new(x[0].dtype, shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let mut inside = Layout::contiguous(cx.y[0].shape().clone());
        for (a, (&start, &len)) in self.before.iter().zip(cx.x[0].shape().iter()).enumerate() {
            inside = inside.slice(a, start, len, 1)?;
        }
        let bool_value = u8::from(self.value.cast::<bool>());
        if cx.x[0].dtype() == DType::Bool {
            cx.y[0].slice_mut::<u8>()?.fill(bool_value);
        } else {
            for_storage!(cx.x[0].dtype(), T => cx.y[0].slice_mut::<T>()?.fill(self.value.cast::<T>()));
        }
        for_storage!(cx.x[0].dtype(), T => scatter(cx.x[0].slice::<T>()?, &inside, cx.y[0].slice_mut()?));
        Ok(())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(mut dx) = cx.dy(0) else { return Ok(smallvec![None]) };
        let shape = cx.fact(cx.x(0)).shape;
        for axis in 0..shape.rank() {
            if self.before[axis] + self.after[axis] > 0 {
                dx = cx.apply(Slice { axis, start: self.before[axis], len: shape[axis], step: 1 }, &[dx])?;
            }
        }
        Ok(smallvec![Some(dx)])
    }
}

impl OpDef for Pad {
    const NAME: &'static str = "pad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |before: &[usize], after: &[usize], value: f64| Pad {
            before: before.into(),
            after: after.into(),
            value: value.into(),
        };
        let x = || t(&[1.0f32, 2.], [1, 2]);
        vec![
            Sample::new(op(&[1, 0], &[0, 1], 9.0), vec![x()]).gives(vec![t(&[9.0f32, 9., 9., 1., 2., 9.], [2, 3])]),
            Sample::new(op(&[0, 0], &[0, 0], 9.0), vec![x()]).gives(vec![x()]),
            Sample::new(op(&[0, 2], &[1, 0], -0.5), vec![x()]),
            Sample::new(op(&[1], &[1], 0.0), vec![t::<i64>(&[], [0])]).gives(vec![t(&[0i64, 0], [2])]),
            Sample::new(op(&[1], &[0], 1.0), vec![t(&[false], [1])]).gives(vec![t(&[true, false], [2])]),
            Sample::new(op(&[], &[], 1.0), vec![t(&[3u8], [])]).gives(vec![t(&[3u8], [])]),
            Sample::new(op(&[1], &[1, 0], 0.0), vec![x()]).fails(ErrorKind::Shape),
            Sample::new(op(&[usize::MAX, 0], &[0, 0], 0.0), vec![x()]).fails(ErrorKind::Shape),
            Sample::new(op(&[usize::MAX / 4, 0], &[0, 0], 0.0), vec![x()]).fails(ErrorKind::Shape),
        ]
    }
}
