use remat_kernels::copy::Walk;
use remat_kernels::index::{Source, put};
use remat_kernels::reduce::Num;
use remat_types::{ErrorKind, Fact, Facts, Layout, Result, Shape, SmallVec, for_storage, smallvec};

use super::places::Selection;
use super::put_fn::PutGrad;
use super::{Index, PutFn};
use crate::args::want_shape;
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, Sample, Var};

/// `y = x`, with `src` put where index tensors name elements together, as [`Index`] reads them: `y[index] = f(y[index], src)`,
/// in row-major order of `src`.
///
/// `src` has the shape that `Index` gives, and the dtype of `x`. The gradient of a `src` that another one overwrites is 0. Errors: those of [`Index`]; DType or Shape for
/// another `src`, and DType for the sum or the product of bools.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any, src: any, index..: int), gradient(x, src))]
pub struct IndexPut {
    /// The function that combines an element with the one put there.
    pub f: PutFn,
    /// The axes, ascending.
    pub axes: SmallVec<[usize; 4]>,
    /// Whether negative indices count from the end; else they are errors.
    #[param(default = false)]
    pub negative: bool,
}

impl Op for IndexPut {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let [x, src, index @ ..] = x else { return arity(x, 2 + self.axes.len()).map(|()| Facts::new()) };
        self.f.takes(x, src)?;
        want_shape(src, &Selection::new(&x.shape, &self.axes, index)?.shape, "the source")?;
        Ok(smallvec![Fact::new(x.dtype, x.shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Num>(op: &IndexPut, cx: &mut EvalCx<'_>) -> Result<()> {
            let (of, src, index) = (&Layout::contiguous(cx.x[0].shape().clone()), cx.x[1], &cx.x[2..]);
            let over = index.iter().try_fold(Shape::scalar(), |s, i| s.broadcast(i.shape()))?;
            let selection = Selection::of(of.shape(), &op.axes, &over)?;
            // before anything is written
            let named = selection.named(of, &op.axes, index, op.negative)?;
            let (places, row) = (selection.places(of, &named)?, selection.row(of)?);
            let (cuts, positions) = (selection.cuts(of.shape()), selection.positions());
            let src = Source { data: src.storage::<T>()?, walk: Walk::new(src.layout()), positions };
            let pool = cx.pool;
            put(pool, op.f.kernel(), &src, &places, &row, (cuts, cuts), cx.output_from(0, 0)?);
            Ok(())
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self, cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let count = cx.x_count();
        let mut grads: Grads = smallvec![None; count];
        let Some(dy) = cx.dy(0).filter(|_| cx.fact(cx.x(0)).dtype.is_float()) else { return Ok(grads) };
        let cx = &*cx;
        let with = |values: &[Var]| -> SmallVec<[Var; 6]> {
            values.iter().copied().chain((2..count).map(|i| cx.x(i))).collect()
        };
        // of one position, rows are apart
        let over = (2..count).try_fold(Shape::scalar(), |s, i| s.broadcast(&cx.fact(cx.x(i)).shape))?;
        let read = Index { axes: self.axes.clone(), negative: self.negative };
        let rule = PutGrad {
            cx,
            f: self.f,
            put: &|f, x, src| cx.apply(IndexPut { f, ..self.clone() }, &with(&[x, src])),
            get: &|y| cx.apply(read.clone(), &with(&[y])),
            is_apart: over.elems() <= 1,
        };
        for (to, from) in grads.iter_mut().zip(rule.gradients(dy)?) {
            *to = from;
        }
        Ok(grads)
    }

    fn layout(&self, input: usize) -> LayoutReq {
        if input == 0 { LayoutReq::Contiguous } else { LayoutReq::Strided }
    }

    fn overwrite(&self) -> &'static [(usize, usize)] {
        &[(0, 0)]
    }
}

impl OpDef for IndexPut {
    const NAME: &'static str = "index_put";

    fn samples() -> Vec<Sample<Self>> {
        use PutFn::*;
        let op = |f, axes: &[usize], negative| IndexPut { f, axes: axes.into(), negative };
        let x = || t(&[1.0f32, 2., 3., 4., 5., 6.], [2, 3]);
        let pairs = |src: &[f32]| vec![x(), t(src, [3]), t(&[0i64, 1, 1], [3]), t(&[2i32, 0, 0], [3])];
        let cube = || t(&(0..12).map(|v| v as f32 + 0.5).collect::<Vec<_>>(), [2, 3, 2]);
        let apart =
            || vec![cube(), t(&[1.5f32, -2., 3.25, 0.75, 7., -1.], [2, 3]), t(&[1i64, -2], [2]), t(&[-1i64, 0], [2])];
        vec![
            Sample::new(op(Set, &[0, 1], false), pairs(&[7., 8., 9.]))
                .gives(vec![t(&[1.0f32, 2., 7., 9., 5., 6.], [2, 3])]),
            // rows are overwritten whole
            Sample::new(op(Set, &[1], true), vec![cube(), t(&[0.5f32; 12], [2, 3, 2]), t(&[1i64, -2, 0], [3])]),
            Sample::new(op(Add, &[0, 1], false), pairs(&[7., 8., 9.]))
                .gives(vec![t(&[1.0f32, 2., 10., 21., 5., 6.], [2, 3])]),
            Sample::new(op(Mul, &[0, 1], false), pairs(&[7., 8., 9.]))
                .gives(vec![t(&[1.0f32, 2., 21., 288., 5., 6.], [2, 3])]),
            Sample::new(op(Mul, &[0, 1], false), pairs(&[0., 0., 9.]))
                .gives(vec![t(&[1.0f32, 2., 0., 0., 5., 6.], [2, 3])])
                .no_grad("the second gradient is not right at zeros"),
            Sample::new(op(Max, &[0, 1], false), pairs(&[7., 1., 9.]))
                .gives(vec![t(&[1.0f32, 2., 7., 9., 5., 6.], [2, 3])]),
            Sample::new(op(Min, &[0, 1], false), pairs(&[f32::NAN, 1., 9.]))
                .gives(vec![t(&[1.0f32, 2., f32::NAN, 1., 5., 6.], [2, 3])])
                .no_grad("NaN"),
            Sample::new(op(Set, &[0, 2], true), apart())
                .gives(vec![t(&[0.75f32, 1.5, 7., 3.5, -1., 5.5, 6.5, 1.5, 8.5, -2., 10.5, 3.25], [2, 3, 2])]),
            Sample::new(op(Add, &[0, 2], true), apart()),
            Sample::new(op(Set, &[1], false), vec![cube(), t(&[-1.0f32, -2., -3., -4.], [2, 1, 2]), t(&[2u8], [1])])
                .gives(vec![t(&[0.5f32, 1.5, 2.5, 3.5, -1., -2., 6.5, 7.5, 8.5, 9.5, -3., -4.], [2, 3, 2])]),
            Sample::new(op(Max, &[0], false), vec![t(&[false, true], [2]), t(&[true], [1]), t(&[0i64], [1])])
                .gives(vec![t(&[true, true], [2])]),
            Sample::new(op(Set, &[0], false), vec![x(), t::<f32>(&[], [0, 3]), t::<i64>(&[], [0])]).gives(vec![x()]),
            Sample::new(op(Add, &[0], false), vec![t(&[100i8], [1]), t(&[100i8], [1]), t(&[0i64], [1])])
                .gives(vec![t(&[-56i8], [1])]),
            Sample::new(op(Set, &[0], false), vec![x(), t(&[0.0f32; 3], [1, 3]), t(&[2i64], [1])])
                .fails(ErrorKind::Index),
            Sample::new(op(Set, &[0], false), vec![x(), t(&[0.0f32; 3], [3]), t(&[1i64], [1])]).fails(ErrorKind::Shape),
            Sample::new(op(Set, &[0], false), vec![x(), t(&[0i32; 3], [1, 3]), t(&[1i64], [1])])
                .fails(ErrorKind::DType),
            Sample::new(op(Add, &[0], false), vec![t(&[true], [1]), t(&[true], [1]), t(&[0i64], [1])])
                .fails(ErrorKind::DType),
            Sample::new(op(Set, &[0], false), vec![x(), t(&[0.0f32; 3], [1, 3])]).fails(ErrorKind::Arity),
        ]
    }
}
