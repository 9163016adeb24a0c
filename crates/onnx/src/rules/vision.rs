//! Grids, regions and boxes.

use remat_import::{Cx, Value, one, shape_error, size, value_error};
use remat_tensor::{Between, Beyond, RoiAlign, Tensor};
use remat_types::{DType, HostTensor, Result, Shape};

use super::{Row, row};

/// Numbers of regions that are made on the host.
const MOST_ELEMS: usize = 1 << 24;

/// Places that are looked at for all of them.
const MOST_SAMPLES: usize = 1 << 28;

pub(super) const ROWS: &[Row] = &[
    row("AffineGrid", 20, affine_grid),
    row("GridSample", 16, grid_sample),
    row("NonMaxSuppression", 10, nms),
    row("RoiAlign", 10, roi_align),
];

fn affine_grid(c: &Cx<'_>) -> Result<Vec<Value>> {
    let sizes = c.numbers(1)?.iter().map(|n| size(*n)).collect::<Result<Vec<_>>>()?;
    let spatial = sizes.get(2..).ok_or_else(|| shape_error(format!("a size of {} numbers", sizes.len())))?;
    one(c.x(0)?.affine_grid(spatial, c.flag("align_corners", false)?)?)
}

fn grid_sample(c: &Cx<'_>) -> Result<Vec<Value>> {
    let between = match c.string("mode", "linear")? {
        "linear" | "bilinear" => Between::Linear,
        "nearest" => Between::Nearest,
        "cubic" | "bicubic" => Between::Cubic,
        other => return Err(c.unknown("mode", other)),
    };
    let beyond = match c.string("padding_mode", "zeros")? {
        "zeros" => Beyond::Zeros,
        "border" => Beyond::Edge,
        "reflection" => Beyond::Reflect,
        other => return Err(c.unknown("padding_mode", other)),
    };
    one(c.x(0)?.grid_sample(c.x(1)?, between, beyond, c.flag("align_corners", false)?)?)
}

/// Rows `[image, class, box]` of the boxes that stay, the best first within each class of each image.
fn nms(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (boxes, scores) = (c.x(0)?, c.x(1)?);
    let most = if c.value(2).is_some() { size(c.number(2)?)? } else { 0 };
    let iou = if c.value(3).is_some() { c.float(3)? } else { 0.0 };
    let least = if c.value(4).is_some() { Some(c.float(4)?) } else { None };
    let ([images, _, _], [_, classes, _]) = (boxes.dims_n()?, scores.dims_n()?);
    let part = |i: isize| boxes.select(2, i);
    let (a, b, d, e) = (part(0)?, part(1)?, part(2)?, part(3)?);
    // corners in any order, or middles and extents
    let corners = if c.flag("center_point_box", false)? {
        let (w, h) = (d.mul(0.5)?, e.mul(0.5)?);
        Tensor::stack(&[&a.sub(&w)?, &b.sub(&h)?, &a.add(&w)?, &b.add(&h)?], 2)?
    } else {
        Tensor::stack(&[&b.minimum(&e)?, &a.minimum(&d)?, &b.maximum(&e)?, &a.maximum(&d)?], 2)?
    };
    let mut rows = Vec::new();
    for image in 0..images {
        for class in 0..classes {
            let of = scores.select(0, image as isize)?.select(0, class as isize)?;
            let mut stay = corners.select(0, image as isize)?.nms(&of, iou, Some(most))?;
            if let Some(least) = least {
                let above = of.index_select(0, &stay)?.gt(least)?;
                stay = stay.masked_select(&above)?;
            }
            let n = stay.dims()[0];
            let column = |v: usize| Tensor::full(c.device(), [n], DType::I64, v as i64);
            rows.push(Tensor::stack(&[&column(image)?, &column(class)?, &stay], 1)?);
        }
    }
    match rows.is_empty() {
        true => one(Tensor::zeros(c.device(), [0, 3], DType::I64)?),
        false => one(Tensor::concat(&rows.iter().collect::<Vec<_>>(), 0)?),
    }
}

fn roi_align(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, rois, images) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let out = [size(c.int("output_height", 1)?)?, size(c.int("output_width", 1)?)?];
    let (scale, samples) = (c.real("spatial_scale", 1.0)?, size(c.int("sampling_ratio", 0)?)?);
    let aligned = match (c.version() < 16, c.string("coordinate_transformation_mode", "half_pixel")?) {
        (true, _) | (false, "output_half_pixel") => false,
        (false, "half_pixel") => true,
        (_, other) => return Err(c.unknown("coordinate_transformation_mode", other)),
    };
    let mode = c.string("mode", "avg")?;
    if samples > 0 && mode == "avg" {
        let boxes = Tensor::concat(&[&images.cast(rois.dtype())?.unsqueeze(1)?, rois], 1)?;
        return one(x.roi_align(&boxes, RoiAlign { scale, samples, aligned, ..RoiAlign::new(out) })?);
    }
    let max = match mode {
        "avg" => false,
        "max" => true,
        other => return Err(c.unknown("mode", other)),
    };
    on_host(c, Regions { out, scale, samples, aligned, max })
}

/// A form of [`roi_align`] that tensors have no operator for: as many points as a region has pixels, or the largest term of all.
struct Regions {
    out: [usize; 2],
    scale: f64,
    samples: usize,
    aligned: bool,
    max: bool,
}

fn on_host(c: &Cx<'_>, r: Regions) -> Result<Vec<Value>> {
    let (x, rois, images) = (c.host(0)?, c.floats(1)?, c.numbers(2)?);
    let [_, channels, h, w] = c.x(0)?.dims_n()?;
    let each = [rois.len() / 4, channels, r.out[0], r.out[1]];
    let elems = Shape::from(each.to_vec()).checked_elems().ok().filter(|n| *n <= MOST_ELEMS);
    let elems =
        elems.ok_or_else(|| shape_error(format!("regions of shape {each:?}: more than {MOST_ELEMS} numbers")))?;
    let samples = r.samples.saturating_mul(r.samples).saturating_mul(elems);
    if r.out.contains(&0) || samples > MOST_SAMPLES {
        return Err(value_error(format!("{elems} parts of {} x {} samples", r.samples, r.samples)));
    }
    let all = x.to_f64_vec();
    let plane = |image: i64, channel: usize| -> Result<&[f64]> {
        let at =
            size(image)?.checked_mul(channels).and_then(|p| p.checked_add(channel)).and_then(|p| p.checked_mul(h * w));
        let found = at.and_then(|at| all.get(at..at.checked_add(h * w)?));
        found.ok_or_else(|| shape_error(format!("image {image} of {}", x.shape())))
    };
    let mut y = Vec::new();
    for (roi, image) in rois.chunks_exact(4).zip(&images) {
        let half = if r.aligned { 0.5 } else { 0.0 };
        let [left, top, right, bottom] = [0, 1, 2, 3].map(|i| roi[i] * r.scale - half);
        let least = if r.aligned { 0.0 } else { 1.0 };
        let part = [(bottom - top).max(least) / r.out[0] as f64, (right - left).max(least) / r.out[1] as f64];
        let count = part.map(|p| if r.samples > 0 { r.samples } else { (p.ceil().max(1.0) as usize).min(4096) });
        for channel in 0..channels {
            let data = plane(*image, channel)?;
            for oy in 0..r.out[0] {
                for ox in 0..r.out[1] {
                    let (mut sum, mut largest) = (0.0, f64::NEG_INFINITY);
                    for iy in 0..count[0] {
                        let py = top + (oy as f64 + (iy as f64 + 0.5) / count[0] as f64) * part[0];
                        for ix in 0..count[1] {
                            let px = left + (ox as f64 + (ix as f64 + 0.5) / count[1] as f64) * part[1];
                            let terms = around(data, [h, w], [py, px]);
                            sum += terms.iter().sum::<f64>();
                            largest = terms.iter().copied().fold(largest, f64::max);
                        }
                    }
                    y.push(if r.max { largest } else { sum / (count[0] * count[1]) as f64 });
                }
            }
        }
    }
    let shape = [y.len() / (channels * r.out[0] * r.out[1]).max(1), channels, r.out[0], r.out[1]];
    one(Tensor::from_host(c.device(), &HostTensor::from_f64_slice(&y, x.dtype(), shape)?)?)
}

/// The four neighbours of a point, weighted by nearness; zeros beyond the image.
fn around(data: &[f64], [h, w]: [usize; 2], [y, x]: [f64; 2]) -> [f64; 4] {
    if h == 0 || w == 0 || y < -1.0 || x < -1.0 || y > h as f64 || x > w as f64 {
        return [0.0; 4];
    }
    let neighbours = |v: f64, n: usize| {
        let v = v.max(0.0);
        let low = (v as usize).min(n - 1);
        if low + 1 >= n { (n - 1, n - 1, 0.0) } else { (low, low + 1, v - low as f64) }
    };
    let ((y0, y1, fy), (x0, x1, fx)) = (neighbours(y, h), neighbours(x, w));
    [
        (1.0 - fy) * (1.0 - fx) * data[y0 * w + x0],
        (1.0 - fy) * fx * data[y0 * w + x1],
        fy * (1.0 - fx) * data[y1 * w + x0],
        fy * fx * data[y1 * w + x1],
    ]
}
