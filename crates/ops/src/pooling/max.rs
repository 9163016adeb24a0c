use remat_kernels::window::{max_pool, max_pool_grad, max_pool_pick};
use remat_types::{DType, ErrorKind, Fact, Facts, Result, bf16, f16, for_float, smallvec};

use super::{Windows, with_plane};
use crate::args::{checked_fact, not_taken, want_dtype, want_float, want_like, want_shape};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y[.., i, j] = max of x over window (i, j)`.
///
/// `x: [n, c, h, w]` of any float or integer dtype. NaN wins. The gradient goes to the first maximum of a window in
/// row-major order (as in PyTorch). A window that is all padding gives the lowest value.
///
/// Errors: Axis for another rank, DType for bool, Value and Shape as [`Windows`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: number), gradient(x))]
pub struct MaxPool2d {
    /// The windows.
    pub windows: Windows,
}

impl Op for MaxPool2d {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        if x[0].dtype == DType::Bool {
            return Err(not_taken(DType::Bool));
        }
        let [h, w] = self.windows.of(x[0])?;
        Ok(smallvec![checked_fact(x[0].dtype, with_plane(x[0], h.out, w.out))?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let s = cx.x[0].shape();
        let [h, w] = self.windows.axes(s[2], s[3])?;
        macro_rules! go {
            ($t:ty) => {
                max_pool(cx.pool, h, w, cx.x[0].slice::<$t>()?, cx.y[0].slice_mut::<$t>()?)
            };
        }
        match cx.x[0].dtype() {
            DType::F16 => go!(f16),
            DType::BF16 => go!(bf16),
            DType::F32 => go!(f32),
            DType::F64 => go!(f64),
            DType::I8 => go!(i8),
            DType::I16 => go!(i16),
            DType::I32 => go!(i32),
            DType::I64 => go!(i64),
            DType::U8 => go!(u8),
            DType::U16 => go!(u16),
            DType::U32 => go!(u32),
            DType::U64 => go!(u64),
            DType::Bool => return Err(not_taken(DType::Bool)),
        }
        Ok(())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        Ok(smallvec![Some(cx.apply(MaxPool2dGrad { windows: self.windows }, &[cx.x(0), dy])?)])
    }
}

/// `(x, dy) -> dx`: each `dy` goes to the first maximum of its window. Linear in `dy`, and constant in `x` but for jumps.
///
/// Shapes as [`MaxPool2d`]'s input, output and input. Errors: as there, and Shape or DType if `dy` does not fit `x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, dy: float), gradient(dy))]
pub struct MaxPool2dGrad {
    /// The windows.
    pub windows: Windows,
}

impl Op for MaxPool2dGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        want_float(x[0], "x")?;
        want_dtype(x[1], x[0].dtype, "dy")?;
        let [h, w] = self.windows.of(x[0])?;
        want_shape(x[1], &with_plane(x[0], h.out, w.out), "dy")?;
        Ok(smallvec![Fact::new(x[0].dtype, x[0].shape.clone())])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (s, dtype) = (cx.x[0].shape(), cx.x[0].dtype());
        let [h, w] = self.windows.axes(s[2], s[3])?;
        for_float!(dtype, T => {
            max_pool_grad(cx.pool, h, w, cx.x[0].slice::<T>()?, cx.x[1].slice::<T>()?, cx.y[0].slice_mut::<T>()?)
        }, else return Err(not_taken(dtype)));
        Ok(())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(u) = cx.dy(0) else { return Ok(smallvec![None, None]) };
        Ok(smallvec![None, Some(cx.apply(GatherByArgmax { windows: self.windows }, &[cx.x(0), u])?)])
    }
}

/// `(x, u) -> y`: `u` at the first maximum of each window of `x`. The transpose of [`MaxPool2dGrad`], for second
/// derivatives.
///
/// Shapes as [`MaxPool2d`]'s input, input and output. Errors: as there, and Shape or DType if `u` is not like `x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, u: float), gradient(u))]
pub struct GatherByArgmax {
    /// The windows.
    pub windows: Windows,
}

impl Op for GatherByArgmax {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 2)?;
        want_float(x[0], "x")?;
        let [h, w] = self.windows.of(x[0])?;
        want_like(x[1], x[0], "u")?;
        Ok(smallvec![checked_fact(x[0].dtype, with_plane(x[0], h.out, w.out))?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (s, dtype) = (cx.x[0].shape(), cx.x[0].dtype());
        let [h, w] = self.windows.axes(s[2], s[3])?;
        for_float!(dtype, T => {
            max_pool_pick(cx.pool, h, w, cx.x[0].slice::<T>()?, cx.x[1].slice::<T>()?, cx.y[0].slice_mut::<T>()?)
        }, else return Err(not_taken(dtype)));
        Ok(())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None, None]) };
        Ok(smallvec![None, Some(cx.apply(MaxPool2dGrad { windows: self.windows }, &[cx.x(0), dy])?)])
    }
}

const PAIRS: Windows = Windows::Sliding { kernel: [2, 2], stride: [2, 2], padding: [0; 4] };

fn overlapping() -> Windows {
    Windows::sliding([3, 3], [2, 1], [1, 1])
}

fn lopsided() -> Windows {
    Windows::Sliding { kernel: [2, 3], stride: [1, 2], padding: [1, 0, 0, 2] }
}

/// Distinct values in no order.
fn scrambled(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + 11) % 101) as f32 * 0.1 - 4.0).collect()
}

impl OpDef for MaxPool2d {
    const NAME: &'static str = "max_pool2d";

    fn samples() -> Vec<Sample<Self>> {
        let op = |windows| MaxPool2d { windows };
        let grid = t(&scrambled(2 * 2 * 5 * 7), [2, 2, 5, 7]);
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        vec![
            Sample::new(op(PAIRS), vec![t(&[1.0f32, 5., 2., 0., 4., 3., 9., -8., 7., 7., 7., 7.], [1, 1, 2, 6])])
                .gives(vec![t(&[9.0f32, 7., 7.], [1, 1, 1, 3])])
                .no_grad("has a tie"),
            // an odd last row and column are left out
            Sample::new(op(PAIRS), vec![grid.clone()]),
            Sample::new(op(overlapping()), vec![grid.clone()]),
            Sample::new(op(lopsided()), vec![grid.clone()]),
            Sample::new(op(Windows::Adaptive { size: [2, 3] }), vec![grid.clone()]),
            Sample::new(op(Windows::Adaptive { size: [1, 1] }), vec![t(&[1i8, -5, 3, 2], [1, 1, 2, 2])])
                .gives(vec![t(&[3i8], [1, 1, 1, 1])])
                .no_grad("integers"),
            Sample::new(op(PAIRS), vec![t(&[1.0f32, nan, inf, 2.0, -inf, -inf, -inf, -inf], [2, 1, 2, 2])])
                .gives(vec![t(&[nan, -inf], [2, 1, 1, 1])])
                .no_grad("NaN"),
            Sample::new(op(PAIRS), vec![t::<f32>(&[], [0, 3, 4, 4])]).gives(vec![t::<f32>(&[], [0, 3, 2, 2])]),
            Sample::new(op(PAIRS), vec![t(&[1.0f32; 3], [1, 1, 1, 3])]).fails(ErrorKind::Shape),
            Sample::new(op(PAIRS), vec![t(&[1.0f32; 4], [1, 2, 2])]).fails(ErrorKind::Axis),
            Sample::new(op(PAIRS), vec![t(&[true; 4], [1, 1, 2, 2])]).fails(ErrorKind::DType),
            Sample::new(op(Windows::sliding([2, 2], [0, 1], [0, 0])), vec![grid.clone()]).fails(ErrorKind::Value),
            Sample::new(op(Windows::sliding([2, 2], [1, 1], [2, 0])), vec![grid]).fails(ErrorKind::Value),
            Sample::new(op(Windows::Adaptive { size: [1, 1] }), vec![t::<f32>(&[], [1, 1, 0, 2])])
                .fails(ErrorKind::Shape),
        ]
    }
}

impl OpDef for MaxPool2dGrad {
    const NAME: &'static str = "max_pool2d_grad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |windows| MaxPool2dGrad { windows };
        let grid = t(&scrambled(5 * 7), [1, 1, 5, 7]);
        vec![
            // a tie: the first maximum gets it all, here and in PyTorch
            Sample::new(
                op(PAIRS),
                vec![t(&[7.0f32, 7., 7., 7., 1., 2., 2., 1.], [2, 1, 2, 2]), t(&[3.0f32, 5.], [2, 1, 1, 1])],
            )
            .gives(vec![t(&[3.0f32, 0., 0., 0., 0., 5., 0., 0.], [2, 1, 2, 2])])
            .grad_of(&[1]),
            // overlapping windows add up
            Sample::new(
                op(Windows::sliding([1, 2], [1, 1], [0, 0])),
                vec![t(&[1.0f32, 9., 2.], [1, 1, 1, 3]), t(&[3.0f32, 5.], [1, 1, 1, 2])],
            )
            .gives(vec![t(&[0.0f32, 8., 0.], [1, 1, 1, 3])])
            .grad_of(&[1]),
            Sample::new(op(overlapping()), vec![grid.clone(), t(&scrambled(21), [1, 1, 3, 7])]).grad_of(&[1]),
            Sample::new(op(lopsided()), vec![grid.clone(), t(&scrambled(20), [1, 1, 5, 4])]).grad_of(&[1]),
            Sample::new(op(Windows::Adaptive { size: [2, 3] }), vec![grid.clone(), t(&scrambled(6), [1, 1, 2, 3])])
                .grad_of(&[1]),
            Sample::new(op(PAIRS), vec![grid.clone(), t(&scrambled(4), [1, 1, 2, 2])]).fails(ErrorKind::Shape),
            Sample::new(op(PAIRS), vec![grid, t(&[1.0f64; 6], [1, 1, 2, 3])]).fails(ErrorKind::DType),
        ]
    }
}

impl OpDef for GatherByArgmax {
    const NAME: &'static str = "max_pool2d_pick";

    fn samples() -> Vec<Sample<Self>> {
        let op = |windows| GatherByArgmax { windows };
        let grid = t(&scrambled(5 * 7), [1, 1, 5, 7]);
        let u: Vec<f32> = scrambled(35).into_iter().rev().collect();
        let u = t(&u, [1, 1, 5, 7]);
        vec![
            Sample::new(
                op(PAIRS),
                vec![t(&[7.0f32, 7., 1., 1.], [1, 1, 2, 2]), t(&[3.0f32, 5., 6., 8.], [1, 1, 2, 2])],
            )
            .gives(vec![t(&[3.0f32], [1, 1, 1, 1])])
            .grad_of(&[1]),
            Sample::new(op(overlapping()), vec![grid.clone(), u.clone()]).grad_of(&[1]),
            Sample::new(op(Windows::Adaptive { size: [2, 3] }), vec![grid.clone(), u]).grad_of(&[1]),
            Sample::new(op(PAIRS), vec![grid, t(&scrambled(6), [1, 1, 2, 3])]).fails(ErrorKind::Shape),
        ]
    }
}
