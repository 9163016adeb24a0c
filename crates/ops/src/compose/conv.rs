//! Convolution over one and three axes by the operator for two: a line is an image of one row, and the taps along a volume's
//! depth are channels of its frames.

use remat_types::{Error, ErrorKind, Fact, Padding, Result};

use super::{extents, permuted, shaped, stack};
use crate::conv::{Conv2d, ConvParams};
use crate::shape::{Pad, Slice};
use crate::{Apply, Op};

/// The extents of what `op` makes of an `x` and a weight of these extents. Errors: those of the op.
pub(super) fn image_of(op: &impl Op, x: (&Fact, [usize; 4]), weight: (&Fact, [usize; 4])) -> Result<[usize; 4]> {
    let [x, weight] = [x, weight].map(|(f, dims)| Fact::new(f.dtype, dims));
    let y = op.infer(&[&x, &weight])?;
    Ok([0, 1, 2, 3].map(|a| y[0].shape[a]))
}

/// The extents `[n, k, od, oh, ow]` of a convolution of a volume. Errors: Axis, Shape, DType, Value.
fn volume_of(x: &Fact, weight: &Fact, taps: ConvParams<3>) -> Result<[usize; 5]> {
    let [n, c, d, h, w] = extents(x, "x")?;
    let [k, group_c, t, r, s] = extents(weight, "the weight")?;
    let down = Conv2d { taps: taps.depth_only() };
    let [_, _, od, _] = image_of(&down, (x, [n, c, d, 1]), (weight, [k, group_c, t, 1]))?;
    // extents that saturate are refused as too large
    let frames = [n.saturating_mul(od), c.saturating_mul(t), h, w];
    let kernel = [k, group_c.saturating_mul(t), r, s];
    let [_, _, oh, ow] = image_of(&Conv2d { taps: taps.spatial() }, (x, frames), (weight, kernel))?;
    Ok([n, k, od, oh, ow])
}

/// `x: [n, c, l]` and `weight: [k, c / groups, s]` to `[n, k, ol]`. Errors: Axis, Shape, DType, Value.
#[track_caller]
pub fn conv1d<A: Apply>(cx: &A, x: A::Value, weight: A::Value, taps: ConvParams<1>) -> Result<A::Value> {
    let (of_x, of_w) = (cx.fact(&x), cx.fact(&weight));
    let [n, c, l] = extents(&of_x, "x")?;
    let [k, group_c, s] = extents(&of_w, "the weight")?;
    let (op, image, kernel) = (Conv2d { taps: taps.as_2d() }, [n, c, 1, l], [k, group_c, 1, s]);
    let [_, _, _, ol] = image_of(&op, (&of_x, image), (&of_w, kernel))?;
    let (x, weight) = (shaped(cx, x, image)?, shaped(cx, weight, kernel)?);
    let y = cx.apply1(op, [x, weight])?;
    shaped(cx, y, [n, k, ol])
}

/// `x: [n, c, d, h, w]` and `weight: [k, c / groups, t, r, s]` to `[n, k, od, oh, ow]`. Errors: Axis, Shape, DType, Value.
#[track_caller]
pub fn conv3d<A: Apply>(cx: &A, x: A::Value, weight: A::Value, taps: ConvParams<3>) -> Result<A::Value> {
    let (of_x, of_w) = (cx.fact(&x), cx.fact(&weight));
    let [n, k, od, oh, ow] = volume_of(&of_x, &of_w, taps)?;
    let ([_, c, d, h, w], [_, group_c, t, r, s]) = (extents(&of_x, "x")?, extents(&of_w, "the weight")?);
    let (down, plane) = (Conv2d { taps: taps.depth_only() }, Conv2d { taps: taps.spatial() });
    if ([r, s], plane.taps.stride, plane.taps.padding) == ([1, 1], [1, 1], Padding::NONE) {
        // frames as rows; one may be too long for an axis of the operator
        let (image, kernel) = ([n, c, d, h * w], [k, group_c, t, 1]);
        if image_of(&down, (&of_x, image), (&of_w, kernel)).is_ok() {
            let (x, weight) = (shaped(cx, x, image)?, shaped(cx, weight, kernel)?);
            let y = cx.apply1(down, [x, weight])?;
            return shaped(cx, y, [n, k, od, oh, ow]);
        }
    }
    let frames = frames_of_outputs(cx, x, down.taps, t, od)?;
    let x = shaped(cx, frames, [n * od, c * t, h, w])?;
    let weight = shaped(cx, weight, [k, group_c * t, r, s])?;
    let y = cx.apply1(plane, [x, weight])?;
    let y = shaped(cx, y, [n, od, k, oh, ow])?;
    permuted(cx, y, &[0, 2, 1, 3, 4])
}

/// Of `[n, c, d, h, w]`, the frames that each of `od` outputs reads with its `t` taps: `[n, od, c, t, h, w]`.
#[track_caller]
fn frames_of_outputs<A: Apply>(cx: &A, x: A::Value, down: ConvParams, t: usize, od: usize) -> Result<A::Value> {
    let ([stride, _], [dilation, _]) = (down.stride, down.dilation);
    let x = match down.padding.axis(0) {
        [0, 0] => x,
        sides => {
            let [before, after] = sides.map(|places| [0, 0, places, 0, 0].into_iter().collect());
            cx.apply1(Pad { before, after, value: 0.into() }, [x])?
        }
    };
    let frames = |start, len, step: usize| {
        let step = isize::try_from(step).map_err(|_| Error::new(ErrorKind::Shape, "the stride is too large"))?;
        cx.apply1(Slice { axis: 2, start, len, step }, [x.clone()])
    };
    if t == 1 || (stride, dilation) == (t, 1) {
        // no frame is read twice: a view
        let [n, c, _, h, w] = extents(&cx.fact(&x), "x")?;
        let side_by_side = frames(0, od * t, if t == 1 { stride } else { 1 })?;
        let apart = shaped(cx, side_by_side, [n, c, od, t, h, w])?;
        return permuted(cx, apart, &[0, 2, 1, 3, 4, 5]);
    }
    let taps = (0..t).map(|i| permuted(cx, frames(i * dilation, od, stride)?, &[0, 2, 1, 3, 4]));
    stack(cx, taps.collect::<Result<Vec<_>>>()?, 3)
}
