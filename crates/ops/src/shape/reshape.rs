use remat_types::{Error, ErrorKind, Fact, Facts, Layout, Result, Shape, smallvec};

use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, OpRef, Sample};

/// The elements of `x`, in row-major order, under `shape`. A view where the strides allow it, else a copy.
///
/// Errors: Shape if the number of elements differs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct Reshape {
    /// The extents of the output.
    pub shape: Shape,
}

impl Op for Reshape {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        if self.shape.checked_elems()? != x[0].elems() {
            let text = format!("shape {} of {} elements does not reshape to {}", x[0].shape, x[0].elems(), self.shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        Ok(smallvec![Fact::new(x[0].dtype, self.shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        crate::shape::copy_view(cx, cx.x[0].layout())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        Ok(smallvec![Some(cx.apply(Reshape { shape: cx.fact(cx.x(0)).shape }, &[dy])?)])
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn view(&self, x: &Layout) -> Option<Layout> {
        x.reshape(&self.shape)
    }

    fn is_identity(&self, x: &Fact) -> bool {
        x.shape == self.shape
    }

    fn after(&self, first: &dyn Op, _x: &Fact) -> Option<OpRef> {
        first.as_any().is::<Self>().then(|| self.clone().into())
    }
}

impl OpDef for Reshape {
    const NAME: &'static str = "reshape";

    fn samples() -> Vec<Sample<Self>> {
        let op = |shape: &[usize]| Reshape { shape: shape.into() };
        let x = [1.0f32, 2., 3., 4., 5., 6.];
        vec![
            Sample::new(op(&[3, 2]), vec![t(&x, [2, 3])]).gives(vec![t(&x, [3, 2])]),
            Sample::new(op(&[1, 6, 1]), vec![t(&x, [2, 3])]).gives(vec![t(&x, [1, 6, 1])]),
            Sample::new(op(&[]), vec![t(&[true], [1, 1])]).gives(vec![t(&[true], [])]),
            Sample::new(op(&[5, 0]), vec![t::<u8>(&[], [0])]).gives(vec![t::<u8>(&[], [5, 0])]),
            Sample::new(op(&[4]), vec![t(&x, [6])]).fails(ErrorKind::Shape),
            Sample::new(op(&[usize::MAX, 2]), vec![t(&x, [6])]).fails(ErrorKind::Shape),
        ]
    }
}
