//! Pooling.

use remat_import::{Cx, Value, one, shape_error, size};
use remat_tensor::{Divisor, Pooling, Tensor};
use remat_types::{DType, Result};

use super::conv::{Geometry, spatial};
use super::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row("AveragePool", 1, |c| pool(c, average::<1>, average::<2>, average::<3>)),
    row("GlobalAveragePool", 1, |c| global(c, |x, axes| x.mean_over(axes, true))),
    row("GlobalLpPool", 1, global_lp),
    row("GlobalMaxPool", 1, |c| global(c, |x, axes| x.max_over(axes, true))),
    row("LpPool", 1, |c| pool(c, lp::<1>, lp::<2>, lp::<3>)),
    row("MaxPool", 1, |c| pool(c, max::<1>, max::<2>, max::<3>)),
    row("MaxRoiPool", 1, max_roi_pool),
    row("MaxUnpool", 9, max_unpool),
];

type Pool<const D: usize> = fn(&Cx<'_>, &Tensor, Pooling<D>) -> Result<Vec<Value>>;

fn windows<const D: usize>(c: &Cx<'_>, g: &Geometry) -> Result<Pooling<D>> {
    Ok(Pooling {
        kernel: Geometry::array(&g.kernel),
        stride: Geometry::array(&g.stride),
        padding: g.padding(),
        dilation: Geometry::array(&g.dilation),
        ceil_mode: c.flag("ceil_mode", false)?,
    })
}

fn pool(c: &Cx<'_>, of1: Pool<1>, of2: Pool<2>, of3: Pool<3>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    let g = Geometry::of(c, spatial(x)?, None)?;
    match g.kernel.len() {
        1 => of1(c, x, windows(c, &g)?),
        2 => of2(c, x, windows(c, &g)?),
        3 => of3(c, x, windows(c, &g)?),
        d => Err(shape_error(format!("pooling of {d} axes; one to three are supported"))),
    }
}

fn average<const D: usize>(c: &Cx<'_>, x: &Tensor, p: Pooling<D>) -> Result<Vec<Value>> {
    let with = c.flag("count_include_pad", false)?;
    one(x.avg_pool(p, if with { Divisor::WithPadding } else { Divisor::WithoutPadding })?)
}

/// The norm of each window: the root of the sum of powers.
fn lp<const D: usize>(c: &Cx<'_>, x: &Tensor, p: Pooling<D>) -> Result<Vec<Value>> {
    let power = c.int("p", 2)? as f64;
    let powers = x.abs()?.pow(power)?;
    one(powers.avg_pool(p, Divisor::Of(1))?.pow(1.0 / power)?)
}

fn max<const D: usize>(c: &Cx<'_>, x: &Tensor, p: Pooling<D>) -> Result<Vec<Value>> {
    if !c.wants(1) {
        return one(x.max_pool(p)?);
    }
    let (y, places) = x.max_pool_with_indices(p)?;
    let size = spatial(x)?;
    let plane: usize = size.iter().product();
    // places in a plane become places in the whole tensor
    let places = match c.flag("storage_order", false)? {
        false => places,
        true => column_major(&places, size)?,
    };
    let planes = x.dims()[0] * x.dims()[1];
    let first = Tensor::arange(c.device(), 0, planes as i64, 1, DType::I64)?.mul(plane as i64)?;
    let mut shape = vec![x.dims()[0] as isize, x.dims()[1] as isize];
    shape.resize(x.rank(), 1);
    Ok(vec![y.into(), places.add(&first.reshape(&shape)?)?.into()])
}

/// Places in row-major order as places in column-major order.
fn column_major(places: &Tensor, size: &[usize]) -> Result<Tensor> {
    let mut rest = places.clone();
    let mut y: Option<Tensor> = None;
    // axes from the last to the first, each with the product of the extents before it
    for a in (0..size.len()).rev() {
        let extent = size[a].max(1) as i64;
        let before: usize = size[..a].iter().product();
        let part = rest.rem(extent)?.mul(before as i64)?;
        rest = rest.floor_div(extent)?;
        y = Some(y.map_or(Ok(part.clone()), |y| y.add(&part))?);
    }
    Ok(y.unwrap_or(rest))
}

fn global(c: &Cx<'_>, f: fn(&Tensor, &[isize]) -> Result<Tensor>) -> Result<Vec<Value>> {
    let x = c.x(0)?;
    spatial(x)?;
    one(f(x, &(2..x.rank() as isize).collect::<Vec<_>>())?)
}

fn global_lp(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, p) = (c.x(0)?, c.int("p", 2)? as f64);
    spatial(x)?;
    let axes: Vec<isize> = (2..x.rank() as isize).collect();
    one(x.abs()?.pow(p)?.sum_over(&axes, true)?.pow(1.0 / p)?)
}

fn max_roi_pool(c: &Cx<'_>) -> Result<Vec<Value>> {
    let out = c.sizes("pooled_shape")?.ok_or_else(|| c.missing("pooled_shape"))?;
    let [h, w] = out[..] else { return Err(shape_error(format!("regions of {out:?} parts"))) };
    one(c.x(0)?.roi_pool(c.x(1)?, [h, w], c.real("spatial_scale", 1.0)?)?)
}

fn max_unpool(c: &Cx<'_>) -> Result<Vec<Value>> {
    let (x, places) = (c.x(0)?, c.x(1)?);
    let d = spatial(x)?.len();
    let kernel = c.sizes("kernel_shape")?.ok_or_else(|| c.missing("kernel_shape"))?;
    let (stride, pads) = (c.sizes_for("strides", d, 1)?, c.sizes_for("pads", 2 * d, 0)?);
    if kernel.len() != d {
        return Err(shape_error(format!("a kernel of {kernel:?} for {d} axes")));
    }
    let mut shape = vec![x.dims()[0], x.dims()[1]];
    for a in 0..d {
        let whole = x.dims()[a + 2].saturating_sub(1).saturating_mul(stride[a]).saturating_add(kernel[a]);
        let extent = whole.checked_sub(pads[a].saturating_add(pads[d + a]));
        shape.push(extent.ok_or_else(|| shape_error("padding leaves nothing"))?);
    }
    let elems = remat_types::Shape::from(shape.clone()).checked_elems()?;
    let zeros = Tensor::zeros(c.device(), [elems], x.dtype())?;
    let dims: Vec<isize> = shape.iter().map(|s| *s as isize).collect();
    let y = zeros.scatter(0, &places.reshape(&[-1])?, &x.reshape(&[-1])?)?.reshape(&dims)?;
    let Some(target) = c.opt_numbers(2)? else { return one(y) };
    let target = target.iter().map(|n| size(*n)).collect::<Result<Vec<_>>>()?;
    if target.len() != shape.len() || target.iter().zip(&shape).any(|(t, s)| t < s) {
        return Err(shape_error(format!("an output of {target:?} for elements of {shape:?}")));
    }
    let grown: Vec<(usize, usize)> = target.iter().zip(&shape).map(|(t, s)| (0, t - s)).collect();
    one(y.pad(&grown, 0)?)
}
