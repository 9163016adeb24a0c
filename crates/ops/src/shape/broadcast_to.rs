use remat_types::{ErrorKind, Fact, Facts, Layout, Result, Shape, smallvec};

use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{Class, EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, OpRef, Sample};

/// `x` repeated along axes of extent 1, and along new leading axes, to `shape` (NumPy's rule). A view with zero strides.
///
/// `dx` is the sum of `dy` over the repeated axes. Errors: Shape if `x` does not broadcast to `shape`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct BroadcastTo {
    /// The extents of the output.
    pub shape: Shape,
}

impl Op for BroadcastTo {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        self.shape.checked_elems()?;
        x[0].layout().broadcast_to(&self.shape)?;
        Ok(smallvec![Fact::new(x[0].dtype, self.shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        crate::shape::copy_view(cx, &cx.x[0].layout().broadcast_to(&self.shape)?)
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        Ok(smallvec![Some(cx.build().sum_to(dy, &cx.fact(cx.x(0)).shape)?)])
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn view(&self, x: &Layout) -> Option<Layout> {
        x.broadcast_to(&self.shape).ok()
    }

    fn class(&self) -> Class {
        Class::Broadcast
    }

    fn is_identity(&self, x: &Fact) -> bool {
        x.shape == self.shape
    }

    fn after(&self, first: &dyn Op, _x: &Fact) -> Option<OpRef> {
        first.as_any().is::<Self>().then(|| self.clone().into())
    }
}

impl OpDef for BroadcastTo {
    const NAME: &'static str = "broadcast_to";

    fn samples() -> Vec<Sample<Self>> {
        let op = |shape: &[usize]| BroadcastTo { shape: shape.into() };
        let x = || t(&[1.0f32, 2.], [2, 1]);
        vec![
            Sample::new(op(&[2, 3]), vec![x()]).gives(vec![t(&[1.0f32, 1., 1., 2., 2., 2.], [2, 3])]),
            Sample::new(op(&[2, 2, 1]), vec![x()]).gives(vec![t(&[1.0f32, 2., 1., 2.], [2, 2, 1])]),
            Sample::new(op(&[2, 1]), vec![x()]).gives(vec![x()]),
            Sample::new(op(&[3]), vec![t(&[7i64], [])]).gives(vec![t(&[7i64, 7, 7], [3])]),
            Sample::new(op(&[2, 0]), vec![t(&[true, false], [2, 1])]).gives(vec![t::<bool>(&[], [2, 0])]),
            Sample::new(op(&[3, 1]), vec![x()]).fails(ErrorKind::Shape),
            Sample::new(op(&[2]), vec![x()]).fails(ErrorKind::Shape),
            Sample::new(op(&[usize::MAX, 2, 1]), vec![x()]).fails(ErrorKind::Shape),
        ]
    }
}
