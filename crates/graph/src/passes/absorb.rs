use remat_ops::conv::Conv2d;
use remat_ops::linalg::MatMul;
use remat_ops::norm::BatchNormInfer;
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_types::{Fact, HostTensor, Result};

use super::PassCx;
use crate::ir::{Graph, NodeId, Origin, Patch, ValueId};

/// Batch norm with given statistics and products with a constant a channel go into the constant weight of the
/// convolution or matrix product before them: `s (x * w) + t = x * (s w) + t`.
///
/// Factors are computed in f64; sums come out as they would with such weights, so results differ in their last digits.
pub fn absorb(g: &Graph, _cx: &PassCx<'_>) -> Result<Patch> {
    let mut patch = Patch::new();
    let mut taken = vec![false; g.nodes().len()];
    for id in g.node_ids() {
        let Some(affine) = Affine::of(g, id) else { continue };
        let Some(product) = Product::before(g, affine.x) else { continue };
        if std::mem::replace(&mut taken[product.node.index()], true) {
            continue;
        }
        if let Some((weight, shift)) = product.scaled(g, &affine) {
            let n = g.node(product.node);
            let weight = patch.constant(weight);
            let x = patch.latest(n.x[0]);
            let y = patch.node(n.op.clone(), &[x, weight], Some(product.node));
            let y = match shift {
                Some(shift) => {
                    let shift = patch.constant(shift);
                    patch.node(Binary { f: BinaryFn::Add }, &[y, shift], Some(id))
                }
                None => y,
            };
            patch.replace(g.node(id).y[0], y);
        }
    }
    Ok(patch)
}

pub(super) fn constant(g: &Graph, v: ValueId) -> Option<&HostTensor> {
    match &g.value(v).origin {
        Origin::Constant(data) => Some(data),
        _ => None,
    }
}

/// `y = scale x + shift`, a number for each channel or one for all.
struct Affine {
    x: ValueId,
    scale: Vec<f64>,
    /// Empty for none.
    shift: Vec<f64>,
}

impl Affine {
    fn of(g: &Graph, id: NodeId) -> Option<Affine> {
        let n = g.node(id);
        if let Some(norm) = n.op.downcast::<BatchNormInfer>() {
            let of = |i: usize| constant(g, n.x[i]).map(HostTensor::to_f64_vec);
            let (scale, bias, mean, var) = (of(1)?, of(2)?, of(3)?, of(4)?);
            let eps = norm.eps.to_f64();
            let scale: Vec<f64> = scale.iter().zip(&var).map(|(s, v)| s / (v + eps).sqrt()).collect();
            let shift = bias.iter().zip(&mean).zip(&scale).map(|((b, m), s)| b - m * s).collect();
            return Some(Affine { x: n.x[0], scale, shift });
        }
        let product = n.op.downcast::<Binary>().filter(|b| b.f == BinaryFn::Mul);
        product?;
        let (x, c) = if constant(g, n.x[1]).is_some() { (n.x[0], n.x[1]) } else { (n.x[1], n.x[0]) };
        let scale = per_channel(g.fact(x), constant(g, c)?)?;
        g.fact(x).same_type(g.fact(n.y[0])).then_some(Affine { x, scale, shift: Vec::new() })
    }
}

/// The numbers of a constant that is one a channel of `x`, or one for all: channels are the second axis of an image and
/// the last of a matrix.
pub(super) fn per_channel(x: &Fact, c: &HostTensor) -> Option<Vec<f64>> {
    let axis = channel_axis(x)?;
    let after = x.rank() - 1 - axis;
    let shape = c.shape();
    let at = shape.rank().checked_sub(after + 1);
    let alone = at.is_some_and(|at| shape.iter().enumerate().all(|(i, d)| i == at || *d == 1));
    (c.elems() == 1 || alone && at.is_some_and(|at| shape[at] == x.shape[axis])).then(|| c.to_f64_vec())
}

fn channel_axis(x: &Fact) -> Option<usize> {
    match x.rank() {
        2 => Some(1),
        4 => Some(1),
        _ => None,
    }
}

/// A convolution or matrix product with a constant weight, whose value only an affine function reads, directly or after
/// a constant was added to it.
struct Product {
    node: NodeId,
    /// What is added to each channel; empty for nothing.
    bias: Vec<f64>,
}

impl Product {
    fn before(g: &Graph, x: ValueId) -> Option<Product> {
        let only = |v: ValueId| g.readers(v).len() == 1 && !g.is_result(v);
        let node = g.producer(x).filter(|_| only(x))?;
        let n = g.node(node);
        if n.op.downcast::<Binary>().is_some_and(|b| b.f == BinaryFn::Add) {
            let (x, c) = if constant(g, n.x[1]).is_some() { (n.x[0], n.x[1]) } else { (n.x[1], n.x[0]) };
            let bias = per_channel(g.fact(x), constant(g, c)?)?;
            let before = g.producer(x).filter(|_| only(x))?;
            return Product::has_weight(g, before).then_some(Product { node: before, bias });
        }
        Product::has_weight(g, node).then_some(Product { node, bias: Vec::new() })
    }

    fn has_weight(g: &Graph, node: NodeId) -> bool {
        let n = g.node(node);
        let known = n.op.downcast::<Conv2d>().is_some() || n.op.downcast::<MatMul>().is_some();
        known && n.after.is_empty() && g.fact(n.x[1]).rank() == g.fact(n.y[0]).rank() && constant(g, n.x[1]).is_some()
    }

    /// The weight with the scale in it, and what is to be added to each channel.
    fn scaled(&self, g: &Graph, a: &Affine) -> Option<(HostTensor, Option<HostTensor>)> {
        let n = g.node(self.node);
        let (weight, y) = (constant(g, n.x[1])?, g.fact(n.y[0]));
        // a convolution's weight has its output channels first, the right factor of a product last
        let channels = y.shape[channel_axis(y)?];
        let rows = if n.op.downcast::<Conv2d>().is_some() { weight.elems() / channels.max(1) } else { 1 };
        let at = |v: &[f64], c: usize| if v.len() == 1 { v[0] } else { v[c] };
        if [&a.scale, &a.shift, &self.bias].iter().any(|v| !v.is_empty() && v.len() != 1 && v.len() != channels) {
            return None;
        }
        let scaled: Vec<f64> =
            weight.to_f64_vec().iter().enumerate().map(|(i, w)| w * at(&a.scale, i / rows.max(1) % channels)).collect();
        let scaled = HostTensor::from_f64_slice(&scaled, y.dtype, weight.shape().clone()).ok()?;
        if a.shift.is_empty() && self.bias.is_empty() {
            return Some((scaled, None));
        }
        let or_zero = |v: &[f64], c: usize| if v.is_empty() { 0.0 } else { at(v, c) };
        let shift: Vec<f64> =
            (0..channels).map(|c| or_zero(&a.shift, c) + or_zero(&self.bias, c) * at(&a.scale, c)).collect();
        let mut shape = vec![channels];
        shape.resize(y.rank() - channel_axis(y)?, 1);
        Some((scaled, Some(HostTensor::from_f64_slice(&shift, y.dtype, shape).ok()?)))
    }
}
