use remat_types::{ErrorKind, Fact, Facts, Layout, Result, SmallVec, smallvec};

use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, OpRef, Sample};

/// `y[i_order[0], i_order[1], ..] = x[i_0, i_1, ..]`: axis `k` of `y` is axis `order[k]` of `x`. A view.
///
/// Errors: Axis if `order` is not a permutation of the axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any), gradient(x))]
pub struct Permute {
    /// For each output axis, the input axis it comes from.
    pub order: SmallVec<[usize; 4]>,
}

impl Op for Permute {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        let layout = x[0].layout().permute(&self.order)?;
        Ok(smallvec![Fact::new(x[0].dtype, layout.shape().clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        crate::shape::copy_view(cx, &cx.x[0].layout().permute(&self.order)?)
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let mut order: SmallVec<[usize; 4]> = smallvec![0; self.order.len()];
        self.order.iter().enumerate().for_each(|(to, &from)| order[from] = to);
        Ok(smallvec![Some(cx.apply(Permute { order }, &[dy])?)])
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }

    fn view(&self, x: &Layout) -> Option<Layout> {
        x.permute(&self.order).ok()
    }

    fn is_identity(&self, _x: &Fact) -> bool {
        self.order.iter().enumerate().all(|(i, a)| i == *a)
    }

    fn after(&self, first: &dyn Op, _x: &Fact) -> Option<OpRef> {
        let first = first.as_any().downcast_ref::<Self>()?;
        let order = self.order.iter().map(|i| first.order.get(*i).copied()).collect::<Option<_>>()?;
        Some(Permute { order }.into())
    }
}

impl OpDef for Permute {
    const NAME: &'static str = "permute";

    fn samples() -> Vec<Sample<Self>> {
        let op = |order: &[usize]| Permute { order: SmallVec::from_slice(order) };
        vec![
            Sample::new(op(&[1, 0]), vec![t(&[1.0f32, 2., 3., 4., 5., 6.], [2, 3])])
                .gives(vec![t(&[1.0f32, 4., 2., 5., 3., 6.], [3, 2])]),
            Sample::new(op(&[2, 0, 1]), vec![t(&[1i8, 2, 3, 4], [1, 2, 2])]).gives(vec![t(&[1i8, 3, 2, 4], [2, 1, 2])]),
            Sample::new(op(&[]), vec![t(&[7u8], [])]).gives(vec![t(&[7u8], [])]),
            Sample::new(op(&[0, 0]), vec![t(&[1u8], [1, 1])]).fails(ErrorKind::Axis),
        ]
    }
}
