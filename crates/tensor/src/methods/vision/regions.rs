//! Regions of images, and boxes around them.

use remat_ops::shape::Reshape;
use remat_ops::vision::{Beyond, Nms, RoiPoolIndices};
use remat_types::{DType, Result};

use super::sample::{Warp, point_dtype};
use super::{rank_is, wrong_shape, wrong_value};
use crate::Tensor;
use crate::site::InOp;

/// How regions are aligned with pixels. The defaults are torchvision's but for `samples`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoiAlign {
    /// Parts of a region: down, across.
    pub size: [usize; 2],
    /// Places of the image for a unit of the corners. Default: 1.
    pub scale: f64,
    /// Points along each side of a part whose mean is taken. Default: 2.
    pub samples: usize,
    /// Pixels are half a place before their corners (He et al., ICCV 2017, as amended). Default: false.
    pub aligned: bool,
}

impl RoiAlign {
    /// With parts of a region.
    pub fn new(size: [usize; 2]) -> RoiAlign {
        RoiAlign { size, scale: 1.0, samples: 2, aligned: false }
    }
}

/// A point that no image has.
pub(super) const NOWHERE: f64 = -1e6;

impl Tensor {
    /// The largest element of each part of each region (Girshick, ICCV 2015): `self: [n, c, h, w]`, `boxes: [k, 5]`, the
    /// number of an image and the corners left, top, right, bottom, times `scale`, to `[k, c, size..]`. A part that is empty
    /// is 0; boxes have no gradient. Errors: Axis, Shape, DType, Value.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2])?;
    /// let boxes = Tensor::new(&device, &[0.0, 0.0, 0.0, 1.0, 1.0], [1, 5])?;
    /// assert_eq!(x.roi_pool(&boxes, [1, 2], 1.0)?.to_vec::<f32>()?, [3.0, 4.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn roi_pool(&self, boxes: &Tensor, size: [usize; 2], scale: f64) -> Result<Tensor> {
        const NAME: &str = "roi_pool";
        let op = RoiPoolIndices { size, scale: scale.into() };
        let places = Tensor::apply1(op, &[&self.detach(), &boxes.detach().cast(DType::F64)?]).called(NAME)?;
        if self.elems() == 0 || places.elems() == 0 {
            return Tensor::zeros(&self.device(), places.shape(), self.dtype());
        }
        let y = self.take_flat(&places.maximum(0)?).called(NAME)?;
        y.masked_fill(&places.lt(0)?, self.dtype_zero()?).called(NAME)
    }

    /// 0 in the dtype of `self`.
    #[track_caller]
    fn dtype_zero(&self) -> Result<Tensor> {
        Tensor::zeros(&self.device(), [], self.dtype())
    }

    /// The mean of points in each part of each region, read between pixels (He et al., ICCV 2017): shapes as
    /// [`Tensor::roi_pool`]. Boxes have no gradient. Errors: Axis, Shape, DType; Value for no points.
    ///
    /// ```
    /// # use remat_tensor::{RoiAlign, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 2.0, 3.0, 4.0], [1, 1, 2, 2])?;
    /// let boxes = Tensor::new(&device, &[0.0, 0.0, 0.0, 1.0, 1.0], [1, 5])?;
    /// assert_eq!(x.roi_align(&boxes, RoiAlign::new([1, 1]))?.to_vec::<f32>()?, [2.5]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn roi_align(&self, boxes: &Tensor, options: RoiAlign) -> Result<Tensor> {
        const NAME: &str = "roi_align";
        rank_is(self, 4).in_op(NAME)?;
        let (boxes, k) = self.regions(boxes, options).in_op(NAME)?;
        let (c, g, [ph, pw]) = (self.dims()[1], options.samples, options.size);
        let down = self.along_regions(&boxes, 0, ph, options)?.unsqueeze(2)?;
        let across = self.along_regions(&boxes, 1, pw, options)?.unsqueeze(1)?;
        let all = [k, ph * g, pw * g];
        let points = Tensor::stack(&[&down.broadcast_to(all)?, &across.broadcast_to(all)?], 3)?;
        let points = Tensor::apply_owned(Reshape { shape: [k, ph * g * pw * g, 2].into() }, [points])?;
        let images = boxes.select(1, 0)?.cast(DType::I64)?;
        let y = self.at_points(&points, &images, Warp { beyond: Beyond::Zeros, ..Warp::default() }).called(NAME)?;
        let apart = Tensor::apply_owned(Reshape { shape: [k, c, ph, g, pw, g].into() }, [y])?;
        apart.mean_over(&[3, 5], false).called(NAME)
    }

    /// The same where each part has channels of its own (Dai et al., NeurIPS 2016): `self: [n, c ph pw, h, w]`, to `[k, c,
    /// ph, pw]`. Half pixels apart, as torchvision's. Errors: as [`Tensor::roi_align`], and Shape if the parts do not divide
    /// the channels.
    ///
    /// ```
    /// # use remat_tensor::{RoiAlign, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let x = Tensor::new(&device, &[1.0, 1.0, 5.0, 5.0], [1, 2, 1, 2])?;
    /// let boxes = Tensor::new(&device, &[0.0, 0.0, 0.0, 2.0, 1.0], [1, 5])?;
    /// assert_eq!(x.ps_roi_align(&boxes, RoiAlign::new([1, 2]))?.to_vec::<f32>()?, [1.0, 5.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn ps_roi_align(&self, boxes: &Tensor, options: RoiAlign) -> Result<Tensor> {
        const NAME: &str = "ps_roi_align";
        rank_is(self, 4).in_op(NAME)?;
        let options = RoiAlign { aligned: true, ..options };
        let (boxes, k) = self.regions(boxes, options).in_op(NAME)?;
        let ([n, channels, h, w], g, [ph, pw]) = (self.dims_n()?, options.samples, options.size);
        let parts = super::product(&[ph, pw]).in_op(NAME)?;
        if parts == 0 || !channels.is_multiple_of(parts) {
            return Err(wrong_shape(format!("{ph} by {pw} parts do not divide {channels} channels"))).in_op(NAME);
        }
        super::product(&[n, parts]).in_op(NAME)?;
        let c = channels / parts;
        // each part as an image of its own
        let apart =
            Tensor::apply1(Reshape { shape: [n, c, parts, h, w].into() }, &[self])?.permute(&[0, 2, 1, 3, 4])?;
        let images = Tensor::apply_owned(Reshape { shape: [n * parts, c, h, w].into() }, [apart])?;
        let down = self.along_regions(&boxes, 0, ph, options)?.reshape(&sizes(&[k, ph, 1, g, 1]))?;
        let across = self.along_regions(&boxes, 1, pw, options)?.reshape(&sizes(&[k, 1, pw, 1, g]))?;
        let all = [k, ph, pw, g, g];
        let points = Tensor::stack(&[&down.broadcast_to(all)?, &across.broadcast_to(all)?], 5)?;
        let points = Tensor::apply_owned(Reshape { shape: [k * parts, g * g, 2].into() }, [points])?;
        let first = (boxes.select(1, 0)?.cast(DType::I64)? * parts as i64)?.unsqueeze(1)?;
        let numbers = (first + self.batch_numbers(parts)?)?;
        let numbers = Tensor::apply_owned(Reshape { shape: [k * parts].into() }, [numbers])?;
        let warp = Warp { beyond: Beyond::Zeros, ..Warp::default() };
        let y = images.at_points(&points, &numbers, warp).called(NAME)?.mean_over(&[2], false)?;
        Tensor::apply_owned(Reshape { shape: [k, ph, pw, c].into() }, [y])?.permute(&[0, 3, 1, 2])
    }

    /// The boxes in the dtype of points, and their number. Errors: Shape, Value.
    #[track_caller]
    fn regions(&self, boxes: &Tensor, options: RoiAlign) -> Result<(Tensor, usize)> {
        rank_is(boxes, 2)?;
        let [k, five] = boxes.dims_n()?;
        if five != 5 {
            return Err(wrong_shape(format!("boxes of shape {}, not [k, 5]", boxes.shape())));
        }
        let RoiAlign { size, scale, samples, .. } = options;
        if samples == 0 || !scale.is_finite() {
            return Err(wrong_value(format!("{samples} points a side, a scale of {scale}")));
        }
        // without a box, too: the extents of one are multiplied before anything is computed
        super::product(&[k.max(1), size[0], size[1], samples, samples])?;
        Ok((boxes.detach().cast(point_dtype(self.dtype()))?, k))
    }

    /// Where the points of `parts` parts of each region lie along an axis, 0 down and 1 across: `[k, parts samples]`.
    #[track_caller]
    fn along_regions(&self, boxes: &Tensor, axis: usize, parts: usize, options: RoiAlign) -> Result<Tensor> {
        let RoiAlign { scale, samples, aligned, .. } = options;
        let (column, extent) = (if axis == 0 { 2 } else { 1 }, self.dims()[axis + 2]);
        let corner = |i: isize| (boxes.narrow(1, i, 1)? * scale)? - if aligned { 0.5 } else { 0.0 };
        let (start, end) = (corner(column)?, corner(column + 2)?);
        let length = (end - &start)?;
        let length = if aligned { length } else { length.maximum(1.0)? };
        let n = parts * samples;
        // the middle of each of `samples` pieces of each part
        let pieces = (self.batch_numbers(n)?.cast(boxes.dtype())? + 0.5)?;
        let at = (start + ((length / n as f64)? * pieces)?)?;
        let beyond = (at.lt(-1.0)? | at.gt(extent as f64)?)?;
        at.clamp(0.0, extent.saturating_sub(1) as f64)?.masked_fill(&beyond, NOWHERE)
    }

    /// Non-maximum suppression: the indices of the boxes that stay, the best first, as I64. `self: [n, 4]` of corners left,
    /// top, right, bottom, `scores: [n]`. A box is dropped if its intersection over union with a better box that stays is
    /// more than `iou`. At most `max_output` boxes stay. The call reads their number: see [`Tensor::as_size`].
    ///
    /// Errors: Shape; DType for other than floats; Value for a NaN.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let boxes = Tensor::new(&device, &[0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 2.0, 1.5, 3.0, 3.0, 4.0, 4.0], [3, 4])?;
    /// let scores = Tensor::new(&device, &[0.5, 0.9, 0.7], [3])?;
    /// assert_eq!(boxes.nms(&scores, 0.5, None)?.to_vec::<i64>()?, [1, 2]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn nms(&self, scores: &Tensor, iou: f64, max_output: Option<usize>) -> Result<Tensor> {
        let groups = Tensor::zeros(&self.device(), scores.shape(), DType::I64)?;
        self.kept(scores, &groups, iou, max_output, "nms")
    }

    /// [`Tensor::nms`] within each group of boxes: `groups: [n]` of integers. Errors: as there.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let boxes = Tensor::new(&device, &[0.0, 0.0, 2.0, 2.0, 0.0, 0.0, 2.0, 1.5], [2, 4])?;
    /// let (scores, groups) = (Tensor::new(&device, &[0.5, 0.9], [2])?, Tensor::new(&device, &[0i64, 1], [2])?);
    /// assert_eq!(boxes.batched_nms(&scores, &groups, 0.5)?.to_vec::<i64>()?, [1, 0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn batched_nms(&self, scores: &Tensor, groups: &Tensor, iou: f64) -> Result<Tensor> {
        self.kept(scores, groups, iou, None, "batched_nms")
    }

    #[track_caller]
    fn kept(&self, scores: &Tensor, groups: &Tensor, iou: f64, most: Option<usize>, op: &str) -> Result<Tensor> {
        rank_is(self, 2).in_op(op)?;
        let n = self.dims()[0];
        if scores.dims() != [n] || groups.dims() != [n] {
            let text =
                format!("scores of shape {} and groups of shape {} for {n} boxes", scores.shape(), groups.shape());
            return Err(wrong_shape(text)).in_op(op);
        }
        let order = scores.argsort(0, true).called(op)?;
        let boxes = self.detach().cast(point_dtype(self.dtype()))?.take(0, &order)?;
        let groups = groups.cast(DType::I64)?.take(0, &order)?;
        let keep = Tensor::apply1(Nms { most: iou.into() }, &[&boxes, &groups]).called(op)?;
        let places = keep.nonzero().called(op)?;
        let stay = order.take(0, &Tensor::apply_owned(Reshape { shape: [places.dims()[0]].into() }, [places])?)?;
        match most {
            Some(most) if most < stay.dims()[0] => stay.narrow(0, 0, most),
            _ => Ok(stay),
        }
    }

    /// Intersection over union of each pair of boxes: `self: [n, 4]`, `others: [m, 4]`, corners left, top, right, bottom, to
    /// `[n, m]`. Errors: Shape, DType.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let a = Tensor::new(&device, &[0.0, 0.0, 2.0, 2.0], [1, 4])?;
    /// let b = Tensor::new(&device, &[0.0, 0.0, 2.0, 1.0, 5.0, 5.0, 6.0, 6.0], [2, 4])?;
    /// assert_eq!(a.box_iou(&b)?.to_vec::<f32>()?, [0.5, 0.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn box_iou(&self, others: &Tensor) -> Result<Tensor> {
        const NAME: &str = "box_iou";
        let (areas, other_areas) = (self.box_area().called(NAME)?.unsqueeze(1)?, others.box_area().called(NAME)?);
        let side = |axis: isize| -> Result<Tensor> {
            let a = |i: isize| self.narrow(1, i, 1);
            let b = |i: isize| others.select(1, i);
            let (start, end) = (a(axis)?.maximum(b(axis)?)?, a(axis + 2)?.minimum(b(axis + 2)?)?);
            (end - start)?.relu()
        };
        let both = (side(0)? * side(1)?)?;
        let union = ((areas + other_areas)? - &both)?;
        both / union
    }

    /// Width times height of boxes `[n, 4]`, corners left, top, right, bottom: `[n]`. Errors: Shape.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let boxes = Tensor::new(&device, &[0.0, 0.0, 2.0, 3.0], [1, 4])?;
    /// assert_eq!(boxes.box_area()?.to_vec::<f32>()?, [6.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn box_area(&self) -> Result<Tensor> {
        boxes_of(self).in_op("box_area")?;
        let at = |i: isize| self.select(1, i);
        (at(2)? - at(0)?)? * (at(3)? - at(1)?)?
    }

    /// Boxes `[n, 4]` in another form. Errors: Shape.
    ///
    /// ```
    /// # use remat_tensor::{BoxForm, Tensor};
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let boxes = Tensor::new(&device, &[1.0, 2.0, 5.0, 4.0], [1, 4])?;
    /// let sizes = boxes.box_convert(BoxForm::Corners, BoxForm::CornerSize)?;
    /// assert_eq!(sizes.to_vec::<f32>()?, [1.0, 2.0, 4.0, 2.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn box_convert(&self, from: BoxForm, to: BoxForm) -> Result<Tensor> {
        boxes_of(self).in_op("box_convert")?;
        let (a, b) = (self.narrow(1, 0, 2)?, self.narrow(1, 2, 2)?);
        let (a, b) = match from {
            BoxForm::Corners => (a, b),
            BoxForm::CornerSize => (a.clone(), (a + b)?),
            BoxForm::CentreSize => {
                let half = (b * 0.5)?;
                ((&a - &half)?, (a + half)?)
            }
        };
        let (a, b) = match to {
            BoxForm::Corners => (a, b),
            BoxForm::CornerSize => (a.clone(), (b - a)?),
            BoxForm::CentreSize => (((&a + &b)? * 0.5)?, (b - a)?),
        };
        Tensor::concat(&[&a, &b], 1)
    }

    /// Boxes `[n, 4]`, corners left, top, right, bottom, cut to an image of `size`, height and width. Errors: Shape.
    ///
    /// ```
    /// # use remat_tensor::Tensor;
    /// # let device = remat_runtime::Device::cpu(Default::default())?;
    /// let boxes = Tensor::new(&device, &[-1.0, 2.0, 9.0, 7.0], [1, 4])?;
    /// assert_eq!(boxes.clip_boxes([5, 6])?.to_vec::<f32>()?, [0.0, 2.0, 6.0, 5.0]);
    /// # Ok::<(), remat_types::Error>(())
    /// ```
    #[track_caller]
    pub fn clip_boxes(&self, size: [usize; 2]) -> Result<Tensor> {
        boxes_of(self).in_op("clip_boxes")?;
        let cut = |i: isize, most: usize| self.narrow(1, i, 1)?.clamp(0.0, most as f64);
        let [h, w] = size;
        Tensor::concat(&[&cut(0, w)?, &cut(1, h)?, &cut(2, w)?, &cut(3, h)?], 1)
    }
}

/// Errors (Axis, Shape) unless `[n, 4]`.
fn boxes_of(x: &Tensor) -> Result<()> {
    rank_is(x, 2)?;
    if x.dims()[1] != 4 {
        return Err(wrong_shape(format!("boxes of shape {}, not [n, 4]", x.shape())));
    }
    Ok(())
}

pub(super) fn sizes(extents: &[usize]) -> Vec<isize> {
    extents.iter().map(|d| *d as isize).collect()
}

/// The meaning of the four numbers of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxForm {
    /// Left, top, right, bottom.
    Corners,
    /// Left, top, width, height.
    CornerSize,
    /// The middle's x and y, width, height.
    CentreSize,
}
