//! Pools of regions in which each part has channels of its own (Dai et al., NeurIPS 2016), at whole pixels or deformed.

use remat_ops::shape::Reshape;
use remat_ops::vision::Beyond;
use remat_types::{DType, Result};

use super::regions::{NOWHERE, sizes};
use super::sample::{Warp, point_dtype};
use super::{product, rank_is, wrong_shape, wrong_value};
use crate::Tensor;
use crate::site::InOp;

/// How [`Tensor::deform_ps_roi_pool`] divides regions. The defaults are MegEngine's, but for the number of points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeformPsRoi {
    /// Parts of a region: down, across.
    pub size: [usize; 2],
    /// A side of the grid of channels: parts within one of its fields share channels. Default: 1, all share all.
    pub group: usize,
    /// Points along each side of a part whose mean is taken. Default: 2.
    pub samples: usize,
    /// Places of the image for a unit of the corners. Default: 1.
    pub scale: f64,
    /// An offset of 1 moves a part by this much of its region's extent. Default: 0.1.
    pub offset_scale: f64,
}

impl DeformPsRoi {
    /// With parts of a region.
    pub fn new(size: [usize; 2]) -> DeformPsRoi {
        DeformPsRoi { size, group: 1, samples: 2, scale: 1.0, offset_scale: 0.1 }
    }
}

/// The boxes `[k, 5]` in the dtype of points, and their number. Errors: Axis, Shape.
fn five(x: &Tensor, boxes: &Tensor) -> Result<(Tensor, usize)> {
    rank_is(x, 4)?;
    rank_is(boxes, 2)?;
    let [k, five] = boxes.dims_n()?;
    if five != 5 {
        return Err(wrong_shape(format!("boxes of shape {}, not [k, 5]", boxes.shape())));
    }
    Ok((boxes.detach().cast(point_dtype(x.dtype()))?, k))
}

impl Tensor {
    /// The mean of each part of each region, where each part has channels of its own (Dai et al., NeurIPS 2016): `self: [n, c ph
    /// pw, h, w]`, `boxes: [k, 5]`, the number of an image and the corners left, top, right, bottom, times `scale` and rounded, to
    /// `[k, c, ph, pw]`. As in torchvision the last row and the last column of the image belong to no part; a part without pixels
    /// is 0. Boxes have no gradient.
    ///
    /// Errors: Axis; Shape for other boxes, and if the parts do not divide the channels; DType for other than floats; Value for a
    /// scale that is not finite; at run time, Index for an image that is not there.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 4.0, 6.0, 0.0, 4.0, 6.0, 0.0], [1, 2, 2, 3])?;
    /// let boxes = Tensor::new(&device, &[0.0, 0.0, 0.0, 2.0, 1.0], [1, 5])?;
    /// assert_eq!(x.ps_roi_pool(&boxes, [1, 2], 1.0)?.to_vec::<f32>()?, [1.0, 6.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn ps_roi_pool(&self, boxes: &Tensor, size: [usize; 2], scale: f64) -> Result<Tensor> {
        const NAME: &str = "ps_roi_pool";
        let (boxes, k) = five(self, boxes).in_op(NAME)?;
        let ([n, channels, h, w], [ph, pw]) = (self.dims_n()?, size);
        if !scale.is_finite() {
            return Err(wrong_value(format!("a scale of {scale}"))).in_op(NAME);
        }
        let parts = product(&size).in_op(NAME)?;
        if parts == 0 || !channels.is_multiple_of(parts) {
            return Err(wrong_shape(format!("{ph} by {pw} parts do not divide {channels} channels"))).in_op(NAME);
        }
        let c = channels / parts;
        product(&[k, channels]).in_op(NAME)?;
        product(&[n, channels, h + 1, w + 1]).in_op(NAME)?;
        // sums of all pixels above and to the left, in f64: a sum over a part is a difference of four
        let sums = self.cast(DType::F64)?.cumsum(-1).called(NAME)?.cumsum(-2)?;
        let sums = sums.pad(&[(0, 0), (0, 0), (1, 0), (1, 0)], 0.0)?;
        let (top, bottom) = part_borders(&boxes, 0, ph, h, scale).called(NAME)?;
        let (left, right) = part_borders(&boxes, 1, pw, w, scale).called(NAME)?;
        let image = boxes.select(1, 0)?.cast(DType::I64)?.reshape(&sizes(&[k, 1, 1, 1]))?;
        let own = self.batch_numbers(channels)?.reshape(&sizes(&[1, c, ph, pw]))?;
        let first = ((image * channels as i64)? + own)?;
        let at = |y: &Tensor, x: &Tensor| -> Result<Tensor> {
            let row = ((&first * (h + 1) as i64)? + y.reshape(&sizes(&[k, 1, ph, 1]))?)?;
            sums.take_flat(&((row * (w + 1) as i64)? + x.reshape(&sizes(&[k, 1, 1, pw]))?)?)
        };
        let all = ((at(&bottom, &right)? - at(&top, &right)?)? - (at(&bottom, &left)? - at(&top, &left)?)?)?;
        let area =
            ((bottom - top)?.reshape(&sizes(&[k, 1, ph, 1]))? * (right - left)?.reshape(&sizes(&[k, 1, 1, pw]))?)?;
        all.div(area.maximum(1)?.cast(DType::F64)?).called(NAME)?.cast(self.dtype())
    }

    /// [`Tensor::ps_roi_pool`] at points, with parts that are moved (Dai et al., ICCV 2017, section 2.2):
    /// `self: [n, c g g, h, w]` with `g` the options' `group`, to `[k, c, ph, pw]`. `offsets: [k, 2 classes, a, b]` are
    /// horizontal and vertical offsets of each class of channels, for each field of a grid over the region; `classes` divides
    /// `c`. The offsets are multiplied by `offset_scale` and the region's extent. A region runs from half a pixel before its
    /// first corner, rounded, to half a pixel behind its last, and is at least a tenth of a pixel wide. A part is the mean of
    /// those of its points that are within half a pixel of the image, 0 if none is. Gradients: `self` and `offsets`.
    ///
    /// Errors: Axis, Shape; DType for other than floats; Value for no points, no groups, and numbers that are not finite; at run
    /// time, Index for an image that is not there.
    ///
    /// ```
    /// # use remat_tensor::{DeformPsRoi, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 1, 4])?;
    /// let boxes = Tensor::new(&device, &[0.0, 1.0, 0.0, 2.0, 0.0], [1, 5])?;
    /// let options = DeformPsRoi { samples: 1, offset_scale: 0.5, ..DeformPsRoi::new([1, 1]) };
    /// assert_eq!(x.deform_ps_roi_pool(&boxes, None, options)?.to_vec::<f32>()?, [1.5]);
    /// // by half of two pixels to the right
    /// let offsets = Tensor::new(&device, &[1.0, 0.0], [1, 2, 1, 1])?;
    /// assert_eq!(x.deform_ps_roi_pool(&boxes, Some(&offsets), options)?.to_vec::<f32>()?, [2.5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn deform_ps_roi_pool(&self, boxes: &Tensor, offsets: Option<&Tensor>, options: DeformPsRoi) -> Result<Tensor> {
        const NAME: &str = "deform_ps_roi_pool";
        let (boxes, k) = five(self, boxes).in_op(NAME)?;
        let DeformPsRoi { size: [ph, pw], group: g, samples: s, scale, offset_scale } = options;
        if g == 0 || s == 0 || !scale.is_finite() || !offset_scale.is_finite() {
            let text = format!("{g} groups, {s} points a side, a scale of {scale}, offsets times {offset_scale}");
            return Err(wrong_value(text)).in_op(NAME);
        }
        let [n, channels, h, w] = self.dims_n()?;
        let classes = match offsets {
            Some(o) => classes_of(o, k).in_op(NAME)?,
            None => 1,
        };
        let groups = product(&[g, g, classes]).in_op(NAME)?;
        if !channels.is_multiple_of(groups) {
            let text = format!("{classes} classes in a grid of {g} by {g} do not divide {channels} channels");
            return Err(wrong_shape(text)).in_op(NAME);
        }
        let each = channels / groups;
        product(&[k.max(1), classes, ph, pw, s, s, 2]).in_op(NAME)?;
        let all = [k, classes, ph, pw, s, s];
        let along = |axis: usize, parts: usize, out: &[usize]| {
            self.deformed_along(&boxes, axis, parts, out, offsets, options).called(NAME)
        };
        let (y, x) = (along(0, ph, &[k, 1, ph, 1, s, 1])?, along(1, pw, &[k, 1, 1, pw, 1, s])?);
        let (y, x) = (y.broadcast_to(all)?, x.broadcast_to(all)?);
        let beyond = (self.is_beyond(&y, h)? | self.is_beyond(&x, w)?)?;
        let seen = beyond.logical_not()?.cast(y.dtype())?.sum_over(&[4, 5], false)?;
        let within = |at: Tensor, extent: usize| -> Result<Tensor> {
            at.clamp(0.0, extent.saturating_sub(1) as f64)?.masked_fill(&beyond, NOWHERE)
        };
        let points = Tensor::stack(&[&within(y, h)?, &within(x, w)?], 6)?;
        let points = Tensor::apply_owned(Reshape { shape: [k * classes * ph * pw, s * s, 2].into() }, [points])?;
        // each field of each class as an image of its own
        let images = Tensor::apply1(Reshape { shape: [n, classes, each, g, g, h, w].into() }, &[self])?;
        let images = images.permute(&[0, 1, 3, 4, 2, 5, 6])?;
        let images = Tensor::apply_owned(Reshape { shape: [n * groups, each, h, w].into() }, [images])?;
        let numbers = self.fields(&boxes, [k, classes, ph, pw], g)?;
        let read = Warp { beyond: Beyond::Zeros, ..Warp::default() };
        let y = images.at_points(&points, &numbers, read).called(NAME)?.sum_over(&[2], false)?;
        let y = Tensor::apply_owned(Reshape { shape: [k, classes, ph, pw, each].into() }, [y])?;
        let y = y.div(seen.maximum(1.0)?.unsqueeze(4)?.cast(self.dtype())?)?.permute(&[0, 1, 4, 2, 3])?;
        Tensor::apply_owned(Reshape { shape: [k, classes * each, ph, pw].into() }, [y])
    }

    /// The places of points along an axis, 0 down and 1 across: those of regions, broadcast as `out`, plus offsets `[k, classes, ph,
    /// pw, 1, 1]`.
    fn deformed_along(
        &self,
        boxes: &Tensor,
        axis: usize,
        parts: usize,
        out: &[usize],
        offsets: Option<&Tensor>,
        options: DeformPsRoi,
    ) -> Result<Tensor> {
        let (column, k) = (if axis == 0 { 2 } else { 1 }, boxes.dims()[0]);
        let corner = |i: isize| boxes.narrow(1, i, 1)?.round_away();
        let start = ((corner(column)? * options.scale)? - 0.5)?;
        let end = (((corner(column + 2)? + 1.0)? * options.scale)? - 0.5)?;
        let extent = (end - &start)?.maximum(0.1)?;
        let n = parts * options.samples;
        let pieces = (self.batch_numbers(n)?.cast(boxes.dtype())? / n.max(1) as f64)?;
        let at = (start + (&extent * pieces)?)?.reshape(&sizes(out))?;
        let Some(offsets) = offsets else { return Ok(at) };
        let [_, both, a, b] = offsets.dims_n()?;
        let apart = Tensor::apply1(Reshape { shape: [k, both / 2, 2, a, b].into() }, &[offsets])?;
        let own = apart.select(2, 1 - axis as isize)?.cast(boxes.dtype())?;
        let [ph, pw] = options.size;
        let field = |fields: usize, parts: usize| -> Result<Tensor> {
            self.batch_numbers(parts)?.mul(fields as i64)?.floor_div(parts.max(1) as i64)
        };
        let own = own.index_select(2, &field(a, ph)?)?.index_select(3, &field(b, pw)?)?;
        let moved = ((own * options.offset_scale)? * extent.reshape(&sizes(&[k, 1, 1, 1]))?)?;
        at + moved.unsqueeze(4)?.unsqueeze(5)?
    }

    /// Points that are more than half a pixel beyond an axis of the image.
    fn is_beyond(&self, at: &Tensor, extent: usize) -> Result<Tensor> {
        at.lt(-0.5)? | at.gt(extent as f64 - 0.5)?
    }

    /// The number of the field, of all images, from which each part of each region reads, in one row.
    fn fields(&self, boxes: &Tensor, [k, classes, ph, pw]: [usize; 4], g: usize) -> Result<Tensor> {
        let image = boxes.select(1, 0)?.cast(DType::I64)?.reshape(&sizes(&[k, 1, 1, 1]))?;
        let class = self.batch_numbers(classes)?.reshape(&sizes(&[1, classes, 1, 1]))?;
        let field = |parts: usize| self.batch_numbers(parts)?.mul(g as i64)?.floor_div(parts.max(1) as i64);
        let (down, across) = (field(ph)?.reshape(&sizes(&[1, 1, ph, 1]))?, field(pw)?.reshape(&sizes(&[1, 1, 1, pw]))?);
        let number = ((image * classes as i64)? + class)?;
        let number = ((((number * g as i64)? + down)? * g as i64)? + across)?;
        Tensor::apply_owned(Reshape { shape: [k * classes * ph * pw].into() }, [number])
    }
}

/// How many classes have offsets of their own. Errors: Axis, Shape.
fn classes_of(offsets: &Tensor, k: usize) -> Result<usize> {
    rank_is(offsets, 4)?;
    let [regions, both, a, b] = offsets.dims_n()?;
    if regions != k || both == 0 || !both.is_multiple_of(2) || a == 0 || b == 0 {
        let text = format!("offsets of shape {} for {k} regions, not [{k}, 2 classes, a, b]", offsets.shape());
        return Err(wrong_shape(text));
    }
    Ok(both / 2)
}

/// Where the parts of each region begin and end along an axis, 0 down and 1 across: both `[k, parts]`, of I64.
fn part_borders(boxes: &Tensor, axis: usize, parts: usize, extent: usize, scale: f64) -> Result<(Tensor, Tensor)> {
    let column = if axis == 0 { 2 } else { 1 };
    let corner = |i: isize| boxes.narrow(1, i, 1)?.mul(scale)?.round_away();
    let (start, end) = (corner(column)?, corner(column + 2)?);
    let part = ((end - &start)?.maximum(1.0)? / parts as f64)?;
    let number = boxes.batch_numbers(parts + 1)?.cast(boxes.dtype())?;
    let at = (part * number)?;
    let within = |at: Tensor| (at + &start)?.clamp(0.0, extent.saturating_sub(1) as f64)?.cast(DType::I64);
    Ok((within(at.narrow(1, 0, parts)?.floor()?)?, within(at.narrow(1, 1, parts)?.ceil()?)?))
}
