//! Transposed convolution over one, two and three axes: the gradient of a convolution with respect to its input, as a
//! function of its own.

use remat_types::{Error, ErrorKind, Fact, Result};

use super::conv::image_of;
use super::{extents, permuted, shaped};
use crate::Apply;
use crate::conv::{Conv2dInputGrad, ConvParams};
use crate::pointwise::{Binary, BinaryFn};
use crate::shape::{Pad, Slice, SliceGrad};

/// The operator that spreads `x: [n, c, h, w]` by `weight: [c, k / groups, r, s]`, and the extents of its result.
/// Errors: Shape, DType, Value.
fn spread(
    x: (&Fact, [usize; 4]),
    weight: (&Fact, [usize; 4]),
    taps: ConvParams,
    output_padding: [usize; 2],
) -> Result<(Conv2dInputGrad, [usize; 4])> {
    let ([_, c, h, w], [weight_c, _, r, s]) = (x.1, weight.1);
    if c != weight_c {
        let text = format!("x has {c} channels, the weight is for {weight_c}");
        return Err(Error::new(ErrorKind::Shape, text));
    }
    let mut size = [0; 2];
    for (a, (places, kernel)) in [(h, r), (w, s)].into_iter().enumerate() {
        let (stride, dilation, more) = (taps.stride[a], taps.dilation[a], output_padding[a]);
        let [begin, end] = taps.padding.axis(a);
        // as many places more would be another output of the convolution that this one is the gradient of
        if more > 0 && more >= stride {
            let text = format!("an output padding of {more} must be less than the stride of {stride}");
            return Err(Error::new(ErrorKind::Value, text));
        }
        // extents that saturate are refused as too large
        let steps = places.saturating_sub(1).saturating_mul(stride);
        let reach = kernel.saturating_sub(1).saturating_mul(dilation).saturating_add(1);
        let whole = steps.saturating_add(reach).saturating_add(more);
        size[a] = whole.checked_sub(begin.saturating_add(end)).filter(|left| *left > 0).ok_or_else(|| {
            let text = format!("a padding of {begin} and {end} leaves nothing of {whole} places");
            Error::new(ErrorKind::Shape, text)
        })?;
    }
    let op = Conv2dInputGrad { taps, size };
    let y = image_of(&op, x, weight)?;
    Ok((op, y))
}

/// `x: [n, c, l]` and `weight: [c, k / groups, s]` to `[n, k, ol]`. Errors: Axis, Shape, DType, Value.
#[track_caller]
pub fn conv_transpose1d<A: Apply>(
    cx: &A,
    x: A::Value,
    weight: A::Value,
    taps: ConvParams<1>,
    output_padding: [usize; 1],
) -> Result<A::Value> {
    let (of_x, of_w) = (cx.fact(&x), cx.fact(&weight));
    let [n, c, l] = extents(&of_x, "x")?;
    let [weight_c, group_k, s] = extents(&of_w, "the weight")?;
    let (image, kernel) = ([n, c, 1, l], [weight_c, group_k, 1, s]);
    let (op, y) = spread((&of_x, image), (&of_w, kernel), taps.as_2d(), [0, output_padding[0]])?;
    let (x, weight) = (shaped(cx, x, image)?, shaped(cx, weight, kernel)?);
    let spread = cx.apply1(op, [x, weight])?;
    shaped(cx, spread, [n, y[1], y[3]])
}

/// `x: [n, c, h, w]` and `weight: [c, k / groups, r, s]` to `[n, k, oh, ow]`, with
/// `oh = (h - 1) stride - padding + dilation (r - 1) + 1 + output_padding`, where `padding` is that of both sides. Errors: Axis, Shape, DType, Value.
#[track_caller]
pub fn conv_transpose2d<A: Apply>(
    cx: &A,
    x: A::Value,
    weight: A::Value,
    taps: ConvParams,
    output_padding: [usize; 2],
) -> Result<A::Value> {
    let (of_x, of_w) = (cx.fact(&x), cx.fact(&weight));
    let (image, kernel) = (extents(&of_x, "x")?, extents(&of_w, "the weight")?);
    let (op, _) = spread((&of_x, image), (&of_w, kernel), taps, output_padding)?;
    cx.apply1(op, [x, weight])
}

/// `x: [n, c, d, h, w]` and `weight: [c, k / groups, t, r, s]` to `[n, k, od, oh, ow]`. Errors: Axis, Shape, DType, Value.
///
/// Each input frame spreads over `t` frames, which are then added where they meet.
#[track_caller]
pub fn conv_transpose3d<A: Apply>(
    cx: &A,
    x: A::Value,
    weight: A::Value,
    taps: ConvParams<3>,
    output_padding: [usize; 3],
) -> Result<A::Value> {
    let (of_x, of_w) = (cx.fact(&x), cx.fact(&weight));
    let [n, c, d, h, w] = extents(&of_x, "x")?;
    let [weight_c, group_k, t, r, s] = extents(&of_w, "the weight")?;
    let [more, plane @ ..] = output_padding;
    let depth = [weight_c, group_k, t, 1];
    let (_, [_, k, od, _]) = spread((&of_x, [n, c, d, 1]), (&of_w, depth), taps.depth_only(), [more, 0])?;
    let (frames, kernel) = ([n.saturating_mul(d), c, h, w], [weight_c, group_k.saturating_mul(t), r, s]);
    let (op, [_, _, oh, ow]) = spread((&of_x, frames), (&of_w, kernel), taps.spatial(), plane)?;
    let x = permuted(cx, x, &[0, 2, 1, 3, 4])?;
    let (x, weight) = (shaped(cx, x, frames)?, shaped(cx, weight, kernel)?);
    let y = cx.apply1(op, [x, weight])?;
    let y = shaped(cx, y, [n, d, k, t, oh, ow])?;
    added_up(cx, y, taps.depth_only(), od, more)
}

/// Of `[n, d, k, t, h, w]`, the sums `[n, k, od, h, w]` of what each tap `t` of each `d` adds to an output frame.
#[track_caller]
fn added_up<A: Apply>(cx: &A, y: A::Value, down: ConvParams, od: usize, more: usize) -> Result<A::Value> {
    let ([stride, _], [dilation, _], [begin, end]) = (down.stride, down.dilation, down.padding.axis(0));
    let [n, d, k, t, h, w] = extents(&cx.fact(&y), "y")?;
    let y = if (stride, dilation) == (t, 1) {
        // no two taps meet
        let y = permuted(cx, y, &[0, 2, 1, 3, 4, 5])?;
        let y = shaped(cx, y, [n, k, d * t, h, w])?;
        let amounts = |more| [0, 0, more, 0, 0].into_iter().collect();
        match more {
            0 => y,
            more => cx.apply1(Pad { before: amounts(0), after: amounts(more), value: 0.into() }, [y])?,
        }
    } else {
        let step = isize::try_from(stride).map_err(|_| Error::new(ErrorKind::Shape, "the stride is too large"))?;
        let extent = od + begin + end;
        let tap = |i: usize| {
            let frames = cx.apply1(Slice { axis: 3, start: i, len: 1, step: 1 }, [y.clone()])?;
            let frames = shaped(cx, frames, [n, d, k, h, w])?;
            let frames = permuted(cx, frames, &[0, 2, 1, 3, 4])?;
            cx.apply1(SliceGrad { axis: 2, start: i * dilation, step, extent }, [frames])
        };
        (1..t).try_fold(tap(0)?, |y, i| cx.apply1(Binary { f: BinaryFn::Add }, [y, tap(i)?]))?
    };
    if [begin, end] == [0, 0] {
        return Ok(y);
    }
    cx.apply1(Slice { axis: 2, start: begin, len: od, step: 1 }, [y])
}
