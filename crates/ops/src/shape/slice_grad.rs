use remat_kernels::copy::scatter;
use remat_types::{Error, ErrorKind, Fact, Facts, Layout, Result, Shape, for_storage, smallvec};

use super::Slice;
use super::slice::slice_layout;
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y[.., start + i step, ..] = x[.., i, ..]` along `axis`, and 0 elsewhere: the gradient of [`Slice`].
///
/// `y` has the shape of `x` with `extent` on `axis`. Errors: Axis if out of range, Value for a step of 0, Index if an
/// element lies outside, Shape if `y` is too large to address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct SliceGrad {
    /// The axis.
    pub axis: usize,
    /// Where element 0 goes.
    pub start: usize,
    /// The difference of neighbours.
    #[param(default = 1)]
    pub step: isize,
    /// The extent of `axis` in the output.
    pub extent: usize,
}

impl SliceGrad {
    /// The shape of the output, and where in it the input's elements go.
    fn target(&self, x: &Shape) -> Result<(Shape, Layout)> {
        let mut y = x.clone();
        let Some(d) = y.dims_mut().get_mut(self.axis) else {
            let text = format!("axis {} is out of range for rank {}", self.axis, x.rank());
            return Err(Error::new(ErrorKind::Axis, text));
        };
        *d = self.extent;
        y.checked_elems()?;
        let layout = slice_layout(&Layout::contiguous(y.clone()), self.axis, self.start, x[self.axis], self.step)?;
        Ok((y, layout))
    }
}

impl Op for SliceGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        Ok(smallvec![Fact::new(x[0].dtype, self.target(&x[0].shape)?.0)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (_, layout) = self.target(cx.x[0].shape())?;
        for_storage!(cx.x[0].dtype(), T => {
            let y = cx.y[0].slice_mut::<T>()?;
            y.fill(T::default());
            scatter(cx.x[0].slice()?, &layout, y);
        });
        Ok(())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let len = cx.fact(cx.x(0)).shape[self.axis];
        Ok(smallvec![Some(cx.apply(Slice { axis: self.axis, start: self.start, len, step: self.step }, &[dy])?)])
    }
}

impl OpDef for SliceGrad {
    const NAME: &'static str = "unslice";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axis, start, step, extent| SliceGrad { axis, start, step, extent };
        let x = || t(&[1.0f32, 2., 3., 4.], [2, 2]);
        vec![
            Sample::new(op(1, 1, 1, 4), vec![x()]).gives(vec![t(&[0.0f32, 1., 2., 0., 0., 3., 4., 0.], [2, 4])]),
            Sample::new(op(0, 2, -2, 3), vec![x()]).gives(vec![t(&[3.0f32, 4., 0., 0., 1., 2.], [3, 2])]),
            Sample::new(op(0, 0, 1, 2), vec![t::<i8>(&[], [0])]).gives(vec![t(&[0i8, 0], [2])]),
            Sample::new(op(1, 3, 1, 4), vec![x()]).fails(ErrorKind::Index),
            Sample::new(op(1, 0, 0, 4), vec![x()]).fails(ErrorKind::Value),
            Sample::new(op(2, 0, 1, 4), vec![x()]).fails(ErrorKind::Axis),
            Sample::new(op(1, 0, 1, usize::MAX), vec![x()]).fails(ErrorKind::Shape),
        ]
    }
}
