use remat_kernels::window::{avg_pool, avg_pool_grad};
use remat_types::{ErrorKind, Fact, Facts, Result, for_float, smallvec};

use super::{Windows, with_plane};
use crate::args::{checked_fact, not_taken, want_float, want_rank, want_shape};
use crate::host::arity;
use crate::sample::t;
use crate::schema::Params;
use crate::{EvalCx, GradCx, Grads, Op, OpDef, Sample};

/// `y[.., i, j] = sum of x over window (i, j) / divisor`.
///
/// `x: [n, c, h, w]` of a float dtype. The divisor is the number of elements of the window within `x`, or, with
/// `count_include_pad`, within `x` and its padding.
///
/// Errors: Axis for another rank, DType for a dtype that is no float, Value and Shape as [`Windows`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float), gradient(x))]
pub struct AvgPool2d {
    /// The windows.
    pub windows: Windows,
    /// Whether zeros of the padding count.
    pub count_include_pad: bool,
}

impl Op for AvgPool2d {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        want_float(x[0], "x")?;
        let [h, w] = self.windows.of(x[0])?;
        Ok(smallvec![checked_fact(x[0].dtype, with_plane(x[0], h.out, w.out))?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (s, dtype) = (cx.x[0].shape(), cx.x[0].dtype());
        let [h, w] = self.windows.axes(s[2], s[3])?;
        for_float!(dtype, T => {
            avg_pool(cx.pool, h, w, self.count_include_pad, cx.x[0].slice::<T>()?, cx.y[0].slice_mut::<T>()?)
        }, else return Err(not_taken(dtype)));
        Ok(())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(dy) = cx.dy(0) else { return Ok(smallvec![None]) };
        let s = cx.fact(cx.x(0)).shape;
        let op = AvgPool2dGrad { windows: self.windows, count_include_pad: self.count_include_pad, size: [s[2], s[3]] };
        Ok(smallvec![Some(cx.apply(op, &[dy])?)])
    }
}

/// `dy -> dx`: each `dy` is shared out evenly over its window. The transpose of [`AvgPool2d`].
///
/// `dy` has the shape of its output, `dx: [n, c, size[0], size[1]]`. Errors: as there, and Shape if `dy` does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(dy: float), gradient(dy))]
pub struct AvgPool2dGrad {
    /// The windows.
    pub windows: Windows,
    /// Whether zeros of the padding count.
    pub count_include_pad: bool,
    /// Height and width of the pooled tensor.
    pub size: [usize; 2],
}

impl Op for AvgPool2dGrad {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        arity(x, 1)?;
        want_float(x[0], "dy")?;
        want_rank(x[0], 4, "dy")?;
        let [h, w] = self.windows.axes(self.size[0], self.size[1])?;
        want_shape(x[0], &with_plane(x[0], h.out, w.out), "dy")?;
        Ok(smallvec![checked_fact(x[0].dtype, with_plane(x[0], self.size[0], self.size[1]))?])
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let dtype = cx.x[0].dtype();
        let [h, w] = self.windows.axes(self.size[0], self.size[1])?;
        for_float!(dtype, T => {
            avg_pool_grad(cx.pool, h, w, self.count_include_pad, cx.x[0].slice::<T>()?, cx.y[0].slice_mut::<T>()?)
        }, else return Err(not_taken(dtype)));
        Ok(())
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        let Some(u) = cx.dy(0) else { return Ok(smallvec![None]) };
        let op = AvgPool2d { windows: self.windows, count_include_pad: self.count_include_pad };
        Ok(smallvec![Some(cx.apply(op, &[u])?)])
    }
}

const PAIRS: Windows = Windows::Sliding { kernel: [2, 2], stride: [2, 2], padding: [0; 4] };

fn padded() -> Windows {
    Windows::Sliding { kernel: [3, 2], stride: [2, 1], padding: [1, 1, 2, 0] }
}

fn wave(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.7).sin() * 3.0).collect()
}

impl OpDef for AvgPool2d {
    const NAME: &'static str = "avg_pool2d";

    fn samples() -> Vec<Sample<Self>> {
        let op = |windows, count_include_pad| AvgPool2d { windows, count_include_pad };
        let grid = t(&wave(2 * 5 * 7), [1, 2, 5, 7]);
        let row = t(&[1.0f32, 2., 3., 4., 5.], [1, 1, 1, 5]);
        let ends = Windows::sliding([1, 3], [1, 2], [0, 1]);
        vec![
            Sample::new(op(PAIRS, true), vec![t(&[1.0f32, 2., 3., 6.], [1, 1, 2, 2])])
                .gives(vec![t(&[3.0f32], [1, 1, 1, 1])]),
            Sample::new(op(ends, true), vec![row.clone()]).gives(vec![t(&[1.0f32, 3., 3.], [1, 1, 1, 3])]),
            Sample::new(op(ends, false), vec![row.clone()]).gives(vec![t(&[1.5f32, 3., 4.5], [1, 1, 1, 3])]),
            Sample::new(op(Windows::Adaptive { size: [1, 3] }, true), vec![row])
                .gives(vec![t(&[1.5f32, 3., 4.5], [1, 1, 1, 3])]),
            Sample::new(op(padded(), true), vec![grid.clone()]),
            Sample::new(op(padded(), false), vec![grid.clone()]),
            Sample::new(op(Windows::Adaptive { size: [3, 2] }, false), vec![grid.clone()]),
            Sample::new(op(Windows::Adaptive { size: [7, 9] }, false), vec![grid.clone()]),
            Sample::new(op(PAIRS, true), vec![t::<f64>(&[], [2, 0, 4, 4])]).gives(vec![t::<f64>(&[], [2, 0, 2, 2])]),
            Sample::new(op(PAIRS, true), vec![t(&[1i32; 4], [1, 1, 2, 2])]).fails(ErrorKind::DType),
            Sample::new(op(PAIRS, true), vec![t(&[1.0f32; 2], [1, 1, 2, 1])]).fails(ErrorKind::Shape),
            Sample::new(op(PAIRS, true), vec![t(&[1.0f32; 4], [2, 2])]).fails(ErrorKind::Axis),
            Sample::new(op(Windows::sliding([0, 1], [1, 1], [0, 0]), true), vec![grid]).fails(ErrorKind::Value),
        ]
    }
}

impl OpDef for AvgPool2dGrad {
    const NAME: &'static str = "avg_pool2d_grad";

    fn samples() -> Vec<Sample<Self>> {
        let op = |windows, count_include_pad, size| AvgPool2dGrad { windows, count_include_pad, size };
        vec![
            Sample::new(op(PAIRS, true, [2, 3]), vec![t(&[4.0f32], [1, 1, 1, 1])])
                .gives(vec![t(&[1.0f32, 1., 0., 1., 1., 0.], [1, 1, 2, 3])]),
            Sample::new(op(padded(), true, [5, 7]), vec![t(&wave(2 * 3 * 7), [1, 2, 3, 7])]),
            Sample::new(op(padded(), false, [5, 7]), vec![t(&wave(2 * 3 * 7), [1, 2, 3, 7])]),
            Sample::new(op(Windows::Adaptive { size: [3, 2] }, false, [5, 7]), vec![t(&wave(6), [1, 1, 3, 2])]),
            Sample::new(op(PAIRS, true, [2, 2]), vec![t(&[4.0f32; 2], [1, 1, 1, 2])]).fails(ErrorKind::Shape),
            Sample::new(op(PAIRS, true, [2, 2]), vec![t(&[4i32], [1, 1, 1, 1])]).fails(ErrorKind::DType),
        ]
    }
}
