//! Convolutions.

use remat_import::{Cx, Value, one, shape_error, size, value_error};
use remat_tensor::{ConvParams, Patches, Tensor};
use remat_types::{DType, Padding, Result, Shape};

use super::{Row, of, row};

pub(super) const ROWS: &[Row] = &[
    row("CausalConvWithState", 27, causal_conv),
    row("Col2Im", 18, col2im),
    row("Conv", 1, |c| one(conv(c, c.x(0)?, c.x(1)?, c.opt(2)?)?)),
    row("ConvTranspose", 1, conv_transpose),
    row("DeformConv", 19, deform_conv),
    of("com.microsoft", "FusedConv", 1, fused_conv),
];

/// How windows lie along the spatial axes of a node.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    pub(super) kernel: Vec<usize>,
    pub(super) stride: Vec<usize>,
    pub(super) dilation: Vec<usize>,
    /// Before and after each axis.
    pub(super) pads: Vec<[usize; 2]>,
}

impl Geometry {
    /// From the attributes; `spatial` are the extents, `kernel` is that of the weight where there is one. Errors: Value, Shape.
    pub(super) fn of(c: &Cx<'_>, spatial: &[usize], kernel: Option<&[usize]>) -> Result<Geometry> {
        let d = spatial.len();
        let kernel = match (c.sizes("kernel_shape")?, kernel) {
            (Some(k), Some(w)) if k != w => {
                return Err(shape_error(format!("a kernel of {k:?}, and a weight of {w:?}")));
            }
            (Some(k), _) => k,
            (None, Some(w)) => w.to_vec(),
            (None, None) => return Err(c.missing("kernel_shape")),
        };
        if kernel.len() != d {
            return Err(shape_error(format!("a kernel of {kernel:?} for {d} axes")));
        }
        let (stride, dilation) = (c.sizes_for("strides", d, 1)?, c.sizes_for("dilations", d, 1)?);
        if kernel.iter().chain(&stride).chain(&dilation).any(|n| *n == 0) {
            return Err(value_error(format!("a kernel of {kernel:?}, strides {stride:?}, dilations {dilation:?}")));
        }
        let pads = match c.string("auto_pad", "NOTSET")? {
            "NOTSET" | "" => {
                let pads = c.sizes_for("pads", 2 * d, 0)?;
                (0..d).map(|a| [pads[a], pads[d + a]]).collect()
            }
            "VALID" => vec![[0, 0]; d],
            auto @ ("SAME_UPPER" | "SAME_LOWER") => (0..d)
                .map(|a| {
                    let (n, k, s, d) = ([spatial[a]], [kernel[a]], [stride[a]], [dilation[a]]);
                    let upper = auto == "SAME_UPPER";
                    if upper {
                        Padding::same_upper(n, k, s, d).axis(0)
                    } else {
                        Padding::same_lower(n, k, s, d).axis(0)
                    }
                })
                .collect(),
            other => return Err(c.unknown("auto_pad", other)),
        };
        Ok(Geometry { kernel, stride, dilation, pads })
    }

    pub(super) fn array<const D: usize>(all: &[usize]) -> [usize; D] {
        std::array::from_fn(|a| all.get(a).copied().unwrap_or(1))
    }

    pub(super) fn padding<const D: usize>(&self) -> Padding<D> {
        let pairs: [[usize; 2]; D] = std::array::from_fn(|a| self.pads.get(a).copied().unwrap_or([0, 0]));
        pairs.into()
    }

    fn params<const D: usize>(&self, groups: usize) -> ConvParams<D> {
        ConvParams {
            stride: Geometry::array(&self.stride),
            padding: self.padding(),
            dilation: Geometry::array(&self.dilation),
            groups,
        }
    }
}

/// The spatial extents of `[n, c, size..]`. Errors: Shape.
pub(super) fn spatial(x: &Tensor) -> Result<&[usize]> {
    match x.dims() {
        [_, _, size @ ..] if !size.is_empty() => Ok(size),
        _ => Err(shape_error(format!("shape {}: there is no axis beside the batch and the channels", x.shape()))),
    }
}

/// With a number for each channel added.
fn biased(y: Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let Some(bias) = bias else { return Ok(y) };
    let shape: Vec<isize> = std::iter::once(-1).chain((2..y.rank()).map(|_| 1)).collect();
    y.add(&bias.reshape(&shape)?)
}

pub(super) fn conv(c: &Cx<'_>, x: &Tensor, w: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let g = Geometry::of(c, spatial(x)?, Some(spatial(w)?))?;
    let groups = size(c.int("group", 1)?)?;
    let y = match g.kernel.len() {
        1 => x.conv1d(w, g.params(groups))?,
        2 => x.conv2d(w, g.params(groups))?,
        3 => x.conv3d(w, g.params(groups))?,
        d => return Err(shape_error(format!("a convolution of {d} axes; one to three are supported"))),
    };
    biased(y, bias)
}

fn fused_conv(c: &Cx<'_>) -> Result<Vec<Value>> {
    let mut y = conv(c, c.x(0)?, c.x(1)?, c.opt(2)?)?;
    if let Some(other) = c.opt(3)? {
        y = y.add(other)?;
    }
    let params: Vec<f64> = c.reals("activation_params")?.unwrap_or(&[]).iter().map(|v| f64::from(*v)).collect();
    let param = |i: usize, default: f64| params.get(i).copied().unwrap_or(default);
    one(match c.string("activation", "")? {
        "" => y,
        "Relu" => y.relu()?,
        "Sigmoid" => y.sigmoid()?,
        "Tanh" => y.tanh()?,
        "LeakyRelu" => y.leaky_relu(param(0, 0.01))?,
        "Clip" => y.clamp(param(0, f64::MIN), param(1, f64::MAX))?,
        "HardSigmoid" => y.mul(param(0, 0.2))?.add(param(1, 0.5))?.clamp(0.0, 1.0)?,
        other => return Err(c.unknown("activation", other)),
    })
}

/// The whole transposed convolution without padding, then cut or filled up as the attributes say.
fn conv_transpose(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, w) = (c.x(0)?, c.x(1)?);
    let size_in = spatial(x)?.to_vec();
    let mut g = Geometry::of(c, &size_in, Some(spatial(w)?))?;
    let (d, groups) = (size_in.len(), size(c.int("group", 1)?)?);
    let list = |name: &str| -> Result<Option<Vec<usize>>> {
        match c.sizes(name)? {
            Some(all) if all.len() != d => {
                Err(shape_error(format!("attribute `{name}` has {} numbers for {d} axes", all.len())))
            }
            all => Ok(all),
        }
    };
    let extra = list("output_padding")?.unwrap_or_else(|| vec![0; d]);
    let auto = c.string("auto_pad", "NOTSET")?;
    let mut target = list("output_shape")?;
    if target.is_none() && auto.starts_with("SAME") {
        target = Some(size_in.iter().zip(&g.stride).map(|(n, s)| n.saturating_mul(*s)).collect());
    }
    let reach = |a: usize| (g.kernel[a] - 1).saturating_mul(g.dilation[a]).saturating_add(1);
    let full: Vec<usize> =
        (0..d).map(|a| size_in[a].saturating_sub(1).saturating_mul(g.stride[a]).saturating_add(reach(a))).collect();
    // the places cut off before and after each axis; negative where places are added
    let cuts: Vec<[isize; 2]> = match &target {
        Some(target) => (0..d)
            .map(|a| {
                let all = full[a].saturating_add(extra[a]).min(isize::MAX as usize) as isize - target[a] as isize;
                let half = all.div_euclid(2);
                let (begin, end) = if auto == "SAME_UPPER" { (half, all - half) } else { (all - half, half) };
                [begin, end - extra[a] as isize]
            })
            .collect(),
        None => (0..d).map(|a| [g.pads[a][0] as isize, g.pads[a][1] as isize - extra[a] as isize]).collect(),
    };
    // padding and places added at the end go straight to the operator where it takes them
    let direct = target.is_none() && (0..d).all(|a| extra[a] < g.stride[a] || extra[a] == 0);
    if !direct {
        g.pads = vec![[0, 0]; d];
    }
    let more = if direct { extra.clone() } else { vec![0; d] };
    let y = match d {
        1 => x.conv_transpose1d(w, g.params(groups), Geometry::array(&more))?,
        2 => x.conv_transpose2d(w, g.params(groups), Geometry::array(&more))?,
        3 => x.conv_transpose3d(w, g.params(groups), Geometry::array(&more))?,
        d => return Err(shape_error(format!("a convolution of {d} axes; one to three are supported"))),
    };
    let y = if direct { y } else { cut(&y, &cuts)? };
    one(biased(y, c.opt(2)?)?)
}

/// So much cut off before and after each spatial axis, zeros added where it is negative.
fn cut(x: &Tensor, cuts: &[[isize; 2]]) -> Result<Tensor> {
    let mut y = x.clone();
    let mut grown = vec![(0usize, 0usize); x.rank()];
    for (a, [before, after]) in cuts.iter().enumerate() {
        let (front, back) = ((*before).max(0) as usize, (*after).max(0) as usize);
        grown[a + 2] = ((-before).max(0) as usize, (-after).max(0) as usize);
        let len = y.dims()[a + 2].checked_sub(front + back);
        let len = len.ok_or_else(|| shape_error(format!("padding leaves nothing of axis {}", a + 2)))?;
        y = y.narrow(a as isize + 2, front as isize, len)?;
    }
    if grown.iter().all(|g| *g == (0, 0)) { Ok(y) } else { y.pad(&grown, 0) }
}

fn deform_conv(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, w, offset) = (c.x(0)?, c.x(1)?, c.x(2)?);
    let g = Geometry::of(c, spatial(x)?, Some(spatial(w)?))?;
    if g.kernel.len() != 2 {
        return Err(shape_error(format!("a deformable convolution of {} axes; two are supported", g.kernel.len())));
    }
    let patches = Patches {
        stride: Geometry::array(&g.stride),
        padding: g.padding(),
        dilation: Geometry::array(&g.dilation),
        ..Patches::new(Geometry::array(&g.kernel))
    };
    one(biased(x.deform_conv2d(offset, w, c.opt(4)?, patches)?, c.opt(3)?)?)
}

/// Patches added up to images of any number of axes: `[n, c taps, places]`.
fn col2im(c: &Cx<'_>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let sizes = |i: usize| c.numbers(i)?.iter().map(|n| size(*n)).collect::<Result<Vec<_>>>();
    let (image, block) = (sizes(1)?, sizes(2)?);
    let d = image.len();
    let (stride, dilation) = (c.sizes_for("strides", d, 1)?, c.sizes_for("dilations", d, 1)?);
    let pads = c.sizes_for("pads", 2 * d, 0)?;
    let taps = Shape::from(block.clone()).checked_elems()?;
    let [n, deep, places] = x.dims_n()?;
    if d == 0 || block.len() != d || taps == 0 || taps > deep || deep % taps != 0 || stride.contains(&0) {
        return Err(shape_error(format!("patches of {block:?} on {image:?} from shape {}", x.shape())));
    }
    let padded: Vec<usize> = (0..d).map(|a| image[a].saturating_add(pads[a] + pads[d + a])).collect();
    Shape::from(padded.clone()).checked_elems()?;
    let mut counts = Vec::new();
    for a in 0..d {
        let reach = dilation[a].saturating_mul(block[a] - 1).saturating_add(1);
        let room = padded[a].checked_sub(reach).ok_or_else(|| shape_error("a patch does not fit the image"))?;
        counts.push(room / stride[a] + 1);
    }
    if counts.iter().product::<usize>() != places {
        return Err(shape_error(format!("{places} patches, where {counts:?} fit")));
    }
    // where each element of each patch goes in the padded image, in row-major order
    let at = |mut i: usize, extents: &[usize]| {
        let mut place = vec![0; extents.len()];
        for a in (0..extents.len()).rev() {
            (place[a], i) = (i % extents[a], i / extents[a]);
        }
        place
    };
    let mut index: Vec<i64> = Vec::with_capacity(taps * places);
    for tap in 0..taps {
        let tap = at(tap, &block);
        for place in 0..places {
            let place = at(place, &counts);
            let flat = (0..d).fold(0, |sum, a| sum * padded[a] + place[a] * stride[a] + tap[a] * dilation[a]);
            index.push(flat as i64);
        }
    }
    let channels = deep / taps;
    let all: usize = padded.iter().product();
    let src = x.reshape(&[n as isize, channels as isize, (taps * places) as isize])?;
    let index =
        Tensor::from_slice(c.device(), &index, [1, 1, taps * places])?.broadcast_to([n, channels, taps * places])?;
    let zeros = Tensor::zeros(c.device(), [n, channels, all], x.dtype())?;
    let mut shape = vec![n as isize, channels as isize];
    shape.extend(padded.iter().map(|p| *p as isize));
    let y = zeros.scatter_add(2, &index, &src)?.reshape(&shape)?;
    let cuts: Vec<[isize; 2]> = (0..d).map(|a| [pads[a] as isize, pads[d + a] as isize]).collect();
    one(cut(&y, &cuts)?)
}

/// A convolution of each channel by itself that sees no later place. The last places of the previous call go in before, and the
/// new last places come out.
fn causal_conv(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, w) = (c.x(0)?, c.x(1)?);
    let ([n, channels, _], [_, _, k]) = (x.dims_n()?, w.dims_n()?);
    let kept = k.checked_sub(1).ok_or_else(|| shape_error("a kernel without taps"))?;
    let past = match c.opt(3)? {
        Some(t) => t.clone(),
        None => Tensor::zeros(c.device(), [n, channels, kept], x.dtype())?,
    };
    let all = Tensor::concat(&[&past, x], 2)?;
    let params = ConvParams { groups: channels, ..ConvParams::<1>::PLAIN };
    let y = biased(all.conv1d(w, params)?, c.opt(2)?)?;
    let y = match c.string("activation", "none")? {
        "none" => y,
        "silu" | "swish" => y.silu()?,
        other => return Err(c.unknown("activation", other)),
    };
    let len = all.dims()[2];
    Ok(vec![y.into(), all.narrow(2, (len - kept) as isize, kept)?.into()])
}

/// A convolution of integers, each less its zero point, exactly: in f64, whose products and sums of 8-bit numbers do not round.
pub(super) fn conv_of_integers(
    c: &Cx<'_>,
    x: (&Tensor, Option<&Tensor>),
    w: (&Tensor, Option<&Tensor>),
) -> Result<Tensor> {
    let less = |(t, zero): (&Tensor, Option<&Tensor>), rows: bool| -> Result<Tensor> {
        let wide = t.cast(DType::F64)?;
        let Some(zero) = zero else { return Ok(wide) };
        let zero = zero.cast(DType::F64)?;
        if !rows || zero.elems() == 1 {
            return wide.sub(&zero.reshape(&[])?);
        }
        let shape: Vec<isize> = std::iter::once(-1).chain((1..t.rank()).map(|_| 1)).collect();
        wide.sub(&zero.reshape(&shape)?)
    };
    conv(c, &less(x, false)?, &less(w, true)?, None)
}
