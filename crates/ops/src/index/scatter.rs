use remat_kernels::copy::Walk;
use remat_kernels::index::{Source, put};
use remat_kernels::reduce::Num;
use remat_types::{ErrorKind, Fact, Facts, Layout, Result, Shape, SmallVec, for_storage, smallvec};

use super::places::{Along, fits_beside};
use super::put_fn::PutGrad;
use super::{PutFn, TakeAlong, axis_in, is_index};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::shape::Pad;
use crate::{EvalCx, GradCx, Grads, LayoutReq, Op, OpDef, Sample, Var};

/// `y = x`, with `src` put along `axis` where its index says: `y[a.., index[a.., m, c..], c..] = f(.., src[a.., m, c..])`, in
/// row-major order.
///
/// `index`, of any integer dtype, may have smaller extents than `src`, whose other elements are left out, and beside `axis` than
/// `x`, whose other elements stay. The gradient of a `src` that another one overwrites is 0.
///
/// Errors: Axis if out of range; Shape where `index` is not within `x` and `src`; DType for another `src`, for the sum or the
/// product of bools, and for indices that are no integers; Index for one not in `0..x.shape[axis]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: any, src: any, index: int), gradient(x, src))]
pub struct Scatter {
    /// The function that combines an element with the one put there.
    pub f: PutFn,
    /// The axis.
    pub axis: usize,
}

/// Equal parts of a contiguous tensor `x` that begin with equal runs of positions each, along axes in front of `axis`: runs and
/// parts.
fn cuts(x: &Shape, index: &Shape, axis: usize) -> (usize, usize) {
    // parts of unequal extents lie apart only along the first axis
    let lead = if axis > 0 && x[1..axis] == index[1..axis] { axis } else { axis.min(1) };
    (index[..lead].iter().product(), x[..lead].iter().product())
}

impl Op for Scatter {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 3)?;
        let [x, src, index] = [x[0], x[1], x[2]];
        axis_in(self.axis, &x.shape)?;
        is_index(index)?;
        self.f.takes(x, src)?;
        fits_beside(&x.shape, &index.shape, self.axis, "the tensor")?;
        fits_beside(&src.shape, &index.shape, src.rank(), "the source")?;
        Ok(smallvec![Fact::new(x.dtype, x.shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        fn go<T: Num>(op: &Scatter, cx: &mut EvalCx<'_>) -> Result<()> {
            let (of, src, index) = (cx.x[0].layout(), cx.x[1], &cx.x[2]);
            // before anything is written
            let along = Along::new(&Layout::contiguous(of.shape().clone()), op.axis, index)?;
            let cuts = cuts(of.shape(), index.shape(), op.axis);
            let within = Layout::new(index.shape().clone(), src.layout().strides(), src.layout().offset())?;
            let positions = index.shape().elems();
            let src = Source { data: src.storage::<T>()?, walk: Walk::new(&within), positions };
            let pool = cx.pool;
            put(pool, op.f.kernel(), &src, &along.places(), &Along::row(), cuts, cx.output_from(0, 0)?);
            Ok(())
        }
        for_storage!(cx.x[0].dtype(), T => go::<T>(self, cx))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let mut grads: Grads = smallvec![None; 3];
        let Some(dy) = cx.dy(0).filter(|_| cx.fact(cx.x(0)).dtype.is_float()) else { return Ok(grads) };
        let cx = &*cx;
        let (index, of_src, of_index) = (cx.x(2), cx.fact(cx.x(1)).shape, cx.fact(cx.x(2)).shape);
        let get = |y: Var| {
            let y = cx.apply(TakeAlong { axis: self.axis }, &[y, index])?;
            if of_src == of_index {
                return Ok(y);
            }
            let after: SmallVec<[usize; 4]> = of_src.iter().zip(of_index.iter()).map(|(a, b)| a - b).collect();
            cx.apply(Pad { before: smallvec![0; after.len()], after, value: 0.into() }, &[y])
        };
        let put = |f, x, src| cx.apply(Scatter { f, axis: self.axis }, &[x, src, index]);
        let rule = PutGrad { cx, f: self.f, put: &put, get: &get, is_apart: of_index[self.axis] <= 1 };
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

impl OpDef for Scatter {
    const NAME: &'static str = "scatter";

    fn samples() -> Vec<Sample<Self>> {
        use PutFn::*;
        let op = |f, axis| Scatter { f, axis };
        let x = || t(&[1.0f32, 2., 3., 4., 5., 6.], [2, 3]);
        let src = || t(&[10.0f32, 20., 30., 40.], [2, 2]);
        let both = |src: &[f32]| vec![x(), t(src, [2, 2]), t(&[2i64, 2, 0, 1], [2, 2])];
        let cube = || t(&(0..24).map(|v| v as f32 * 0.5 - 4.0).collect::<Vec<_>>(), [3, 2, 4]);
        // smaller than the tensor and than the source
        let small = || {
            let src: Vec<f32> = (0..36).map(|v| v as f32 * 0.25 + 0.1).collect();
            vec![cube(), t(&src, [3, 3, 4]), t(&[1u8, 0, 0, 1, 0, 1, 1, 0, 1, 1, 0, 0], [2, 2, 3])]
        };
        vec![
            Sample::new(op(Set, 1), vec![x(), src(), t(&[2i64, 1, 0, 1], [2, 2])])
                .gives(vec![t(&[1.0f32, 20., 10., 30., 40., 6.], [2, 3])]),
            Sample::new(op(Set, 1), both(&[10., 20., 30., 40.]))
                .gives(vec![t(&[1.0f32, 2., 20., 30., 40., 6.], [2, 3])]),
            Sample::new(op(Set, 1), small()),
            Sample::new(op(Add, 1), both(&[10., 20., 30., 40.]))
                .gives(vec![t(&[1.0f32, 2., 33., 34., 45., 6.], [2, 3])]),
            Sample::new(op(Mul, 1), both(&[2., 3., 0.5, -1.])).gives(vec![t(&[1.0f32, 2., 18., 2., -5., 6.], [2, 3])]),
            Sample::new(op(Mul, 1), both(&[0., 3., 0., -1.]))
                .gives(vec![t(&[1.0f32, 2., 0., 0., -5., 6.], [2, 3])])
                .no_grad("the second gradient is not right at zeros"),
            Sample::new(op(Max, 1), both(&[2., 7., 0.5, 9.])).gives(vec![t(&[1.0f32, 2., 7., 4., 9., 6.], [2, 3])]),
            Sample::new(op(Max, 1), both(&[2., 3., 4., 9.]))
                .gives(vec![t(&[1.0f32, 2., 3., 4., 9., 6.], [2, 3])])
                .no_grad("ties"),
            Sample::new(op(Min, 1), both(&[2., f32::NAN, 0.5, 9.]))
                .gives(vec![t(&[1.0f32, 2., f32::NAN, 0.5, 5., 6.], [2, 3])])
                .no_grad("NaN"),
            Sample::new(op(Add, 0), vec![x(), t(&[1.0f32, 2., 3.], [1, 3]), t(&[1u8, 0, 1], [1, 3])])
                .gives(vec![t(&[1.0f32, 4., 3., 5., 5., 9.], [2, 3])]),
            Sample::new(op(Add, 1), small()),
            Sample::new(op(Add, 0), small()),
            Sample::new(op(Max, 1), small()),
            Sample::new(op(Set, 0), vec![t(&[true, false], [2]), t(&[true], [1]), t(&[1i32], [1])])
                .gives(vec![t(&[true, true], [2])]),
            Sample::new(op(Add, 0), vec![t(&[100i8, 0], [2]), t(&[100i8, 1], [2]), t(&[0i64, 0], [2])])
                .gives(vec![t(&[-55i8, 0], [2])]),
            Sample::new(op(Add, 0), vec![t(&[1.0f32, 2.], [2]), t::<f32>(&[], [0]), t::<i64>(&[], [0])])
                .gives(vec![t(&[1.0f32, 2.], [2])]),
            Sample::new(op(Add, 1), vec![x(), src(), t(&[3i64, 0, 0, 0], [2, 2])]).fails(ErrorKind::Index),
            Sample::new(op(Add, 1), vec![x(), src(), t(&[0i64, -1, 0, 0], [2, 2])]).fails(ErrorKind::Index),
            Sample::new(op(Add, 1), vec![x(), src(), t(&[0i64; 6], [2, 3])]).fails(ErrorKind::Shape),
            Sample::new(op(Add, 0), vec![x(), src(), t(&[0i64; 4], [4])]).fails(ErrorKind::Shape),
            Sample::new(op(Add, 1), vec![x(), t(&[1i32; 4], [2, 2]), t(&[0i64; 4], [2, 2])]).fails(ErrorKind::DType),
            Sample::new(op(Add, 1), vec![x(), src(), t(&[0.0f32; 4], [2, 2])]).fails(ErrorKind::DType),
            Sample::new(op(Mul, 0), vec![t(&[true], [1]), t(&[true], [1]), t(&[0i64], [1])]).fails(ErrorKind::DType),
            Sample::new(op(Add, 2), vec![x(), src(), t(&[0i64; 4], [2, 2])]).fails(ErrorKind::Axis),
        ]
    }
}
