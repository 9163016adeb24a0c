use remat_kernels::index::gather;
use remat_types::{ErrorKind, Fact, Facts, Result, Shape, SmallVec, Storage, for_storage, smallvec};

use super::places::Selection;
use super::put_fn::added_to_zeros;
use super::{IndexPut, PutFn};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, Sample, Var};

/// `y[p.., r..] = x[.., index_0[p..], .., index_1[p..], ..]`: the elements of `x` that index tensors name together, one for
/// each of `axes`, of all that the other axes have (NumPy's advanced indexing).
///
/// The indices, of any integer dtypes, broadcast to one shape. If the axes stand side by side, its axes take their place; else
/// they come first, followed by the other axes of `x`. Errors: Arity unless there is an index for each axis; Axis for axes that
/// are out of range or do not ascend; DType for indices that are no integers; Shape if they do not broadcast; Index for one
/// outside of its axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any, index..: int), gradient(x))]
pub struct Index {
    /// The axes, ascending.
    pub axes: SmallVec<[usize; 4]>,
    /// Whether negative indices count from the end; else they are errors.
    #[param(default = false)]
    pub negative: bool,
}

impl Op for Index {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let [x, index @ ..] = x else { return arity(x, 1 + self.axes.len()).map(|()| Facts::new()) };
        Ok(smallvec![Fact::new(x.dtype, Selection::new(&x.shape, &self.axes, index)?.shape)])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Storage>(op: &Index, cx: &mut EvalCx<'_>) -> Result<()> {
            let (of, index) = (cx.x[0].layout(), &cx.x[1..]);
            let over = index.iter().try_fold(Shape::scalar(), |s, i| s.broadcast(i.shape()))?;
            let selection = Selection::of(of.shape(), &op.axes, &over)?;
            let named = selection.named(of, &op.axes, index, op.negative)?;
            let (places, row) = (selection.places(of, &named)?, selection.row(of)?);
            gather(cx.pool, cx.x[0].storage::<T>()?, &places, &row, cx.y[0].slice_mut()?);
            Ok(())
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self, cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let (fact, count) = (cx.fact(cx.x(0)), cx.x_count());
        let mut grads: Grads = smallvec![None; count];
        if let Some(dy) = cx.dy(0).filter(|_| fact.dtype.is_float()) {
            let index: SmallVec<[Var; 4]> = (1..count).map(|i| cx.x(i)).collect();
            let op = IndexPut { f: PutFn::Add, axes: self.axes.clone(), negative: self.negative };
            grads[0] = Some(added_to_zeros(cx, op, &fact, dy, &index)?);
        }
        Ok(grads)
    }

    fn layout(&self, _input: usize) -> LayoutReq {
        LayoutReq::Strided
    }
}

impl OpDef for Index {
    const NAME: &'static str = "index";

    fn samples() -> Vec<Sample<Self>> {
        let op = |axes: &[usize], negative| Index { axes: axes.into(), negative };
        let x = || t(&[1.0f32, 2., 3., 4., 5., 6.], [2, 3]);
        let cube = || t(&(0..24).map(|v| v as f32).collect::<Vec<_>>(), [2, 3, 4]);
        vec![
            // pairs of places
            Sample::new(op(&[0, 1], false), vec![x(), t(&[0i64, 1, 1], [3]), t(&[2u8, 0, 0], [3])])
                .gives(vec![t(&[3.0f32, 4., 4.], [3])]),
            // a grid of rows and columns
            Sample::new(op(&[0, 1], true), vec![x(), t(&[-1i64, 0], [2, 1]), t(&[-1i32, 0, 1], [3])])
                .gives(vec![t(&[6.0f32, 4., 5., 3., 1., 2.], [2, 3])]),
            // side by side, with axes in front and behind
            Sample::new(op(&[1], false), vec![cube(), t(&[2i64, 0], [2])]).gives(vec![t(
                &[8.0f32, 9., 10., 11., 0., 1., 2., 3., 20., 21., 22., 23., 12., 13., 14., 15.],
                [2, 2, 4],
            )]),
            Sample::new(op(&[1, 2], false), vec![cube(), t(&[2i16, 0], [2]), t(&[3u64], [])])
                .gives(vec![t(&[11.0f32, 3., 23., 15.], [2, 2])]),
            // apart: the axes of the indices come first
            Sample::new(op(&[0, 2], true), vec![cube(), t(&[1i64, -2], [2]), t(&[-4i64, 3], [2])])
                .gives(vec![t(&[12.0f32, 16., 20., 3., 7., 11.], [2, 3])]),
            Sample::new(
                op(&[1, 3], false),
                vec![
                    t(&(0..12).map(|v| v as f32).collect::<Vec<_>>(), [2, 3, 1, 2]),
                    t(&[2i64, 0], [2]),
                    t(&[1i64, 0], [2]),
                ],
            )
            .gives(vec![t(&[5.0f32, 11., 0., 6.], [2, 2, 1])]),
            Sample::new(op(&[0], false), vec![t(&[true, false], [2]), t(&[1i8, 0, 1], [3])])
                .gives(vec![t(&[false, true, false], [3])]),
            Sample::new(op(&[0], false), vec![x(), t::<i64>(&[], [0])])
                .gives(vec![t::<f32>(&[], [0, 3])])
                .no_grad("empty"),
            Sample::new(op(&[0], false), vec![x(), t(&[2i64], [1])]).fails(ErrorKind::Index),
            Sample::new(op(&[0], false), vec![x(), t(&[-1i64], [1])]).fails(ErrorKind::Index),
            Sample::new(op(&[1], true), vec![x(), t(&[-4i64], [1])]).fails(ErrorKind::Index),
            Sample::new(op(&[0], true), vec![x(), t(&[u64::MAX], [1])]).fails(ErrorKind::Index),
            Sample::new(op(&[0], false), vec![x(), t(&[0.0f32], [1])]).fails(ErrorKind::DType),
            Sample::new(op(&[2], false), vec![x(), t(&[0i64], [1])]).fails(ErrorKind::Axis),
            Sample::new(op(&[1, 0], false), vec![x(), t(&[0i64], [1]), t(&[0i64], [1])]).fails(ErrorKind::Axis),
            Sample::new(op(&[0, 1], false), vec![x(), t(&[0i64], [1])]).fails(ErrorKind::Arity),
            Sample::new(op(&[0, 1], false), vec![x(), t(&[0i64, 0], [2]), t(&[0i64; 3], [3])]).fails(ErrorKind::Shape),
        ]
    }
}
