use remat_types::{Error, ErrorKind, Fact, Facts, Layout, Result, smallvec};

use super::SliceGrad;
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, OpRef, Sample};

/// `y[.., i, ..] = x[.., start + i step, ..]` for `i` in `0..len` along `axis`. A view; a negative step flips.
///
/// Errors: Axis if out of range, Value for a step of 0, Index if an element lies outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct Slice {
    /// The axis.
    pub axis: usize,
    /// The first element.
    pub start: usize,
    /// Number of elements.
    pub len: usize,
    /// The difference of neighbours.
    #[param(default = 1)]
    pub step: isize,
}

impl Slice {
    /// The parts of `axis` that have these extents, one after the other.
    pub fn split(axis: usize, lens: &[usize]) -> impl Iterator<Item = Slice> {
        lens.iter().scan(0usize, move |next, &len| {
            let start = *next;
            *next = start.saturating_add(len);
            Some(Slice { axis, start, len, step: 1 })
        })
    }
}

/// [`Layout::slice`], with the checks that it leaves to its caller: a step of 0, and numbers from files that would overflow.
pub(super) fn slice_layout(x: &Layout, axis: usize, start: usize, len: usize, step: isize) -> Result<Layout> {
    if step == 0 {
        return Err(Error::new(ErrorKind::Value, "a slice steps by 0"));
    }
    if axis < x.rank() && len > x.shape()[axis] {
        let text = format!("slice of {len} elements of axis {axis}, which has extent {}", x.shape()[axis]);
        return Err(Error::new(ErrorKind::Index, text));
    }
    // one element or none takes no step
    x.slice(axis, start, len, if len <= 1 { 1 } else { step })
}

impl Op for Slice {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let layout = slice_layout(&x[0].layout(), self.axis, self.start, self.len, self.step)?;
        Ok(smallvec![Fact::new(x[0].dtype, layout.shape().clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        crate::shape::copy_view(cx, &slice_layout(cx.x[0].layout(), self.axis, self.start, self.len, self.step)?)
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let extent = cx.fact(cx.x(0)).shape[self.axis];
        let whole = SliceGrad { axis: self.axis, start: self.start, step: self.step, extent };
        Ok(smallvec![Some(cx.apply(whole, &[dy])?)])
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn view(&self, x: &Layout) -> Option<Layout> {
        slice_layout(x, self.axis, self.start, self.len, self.step).ok()
    }

    fn is_identity(&self, x: &Fact) -> bool {
        self.start == 0 && self.step == 1 && x.shape.get(self.axis) == Some(&self.len)
    }

    fn after(&self, first: &dyn Op, x: &Fact) -> Option<OpRef> {
        let first = first.as_any().downcast_ref::<Self>().filter(|f| f.axis == self.axis)?;
        let start = first.start as isize + self.start as isize * first.step;
        let both =
            Slice { axis: self.axis, start: usize::try_from(start).ok()?, len: self.len, step: first.step * self.step };
        // a slice of at most one element may step by anything, even beyond its axis
        both.infer(&[x]).is_ok().then(|| both.into())
    }
}

impl OpDef for Slice {
    const NAME: &'static str = "slice";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axis, start, len, step| Slice { axis, start, len, step };
        let x = || t(&[1.0f32, 2., 3., 4., 5., 6.], [2, 3]);
        vec![
            Sample::new(op(1, 1, 2, 1), vec![x()]).gives(vec![t(&[2.0f32, 3., 5., 6.], [2, 2])]),
            Sample::new(op(1, 2, 3, -1), vec![x()]).gives(vec![t(&[3.0f32, 2., 1., 6., 5., 4.], [2, 3])]),
            Sample::new(op(1, 0, 2, 2), vec![x()]).gives(vec![t(&[1.0f32, 3., 4., 6.], [2, 2])]),
            Sample::new(op(0, 1, 1, isize::MIN), vec![x()]).gives(vec![t(&[4.0f32, 5., 6.], [1, 3])]),
            Sample::new(op(0, 9, 0, 1), vec![x()]).gives(vec![t::<f32>(&[], [0, 3])]).no_grad("empty"),
            Sample::new(op(0, 0, 1, 1), vec![t(&[true, false], [2])]).gives(vec![t(&[true], [1])]),
            Sample::new(op(1, 2, 2, 1), vec![x()]).fails(ErrorKind::Index),
            Sample::new(op(1, 0, 2, -1), vec![x()]).fails(ErrorKind::Index),
            Sample::new(op(1, 0, usize::MAX, 1), vec![x()]).fails(ErrorKind::Index),
            Sample::new(op(1, usize::MAX, 2, isize::MAX - 1), vec![x()]).fails(ErrorKind::Index),
            Sample::new(op(1, 0, 2, 0), vec![x()]).fails(ErrorKind::Value),
            Sample::new(op(2, 0, 1, 1), vec![x()]).fails(ErrorKind::Axis),
        ]
    }
}
