use remat_ops::WeightChannels;
use remat_ops::norm::BatchNormInfer;
use remat_ops::pointwise::{Binary, BinaryFn};
use remat_types::{Fact, HostTensor, Result, SmallVec};

use super::PassCx;
use crate::ir::{Graph, Node, NodeId, Origin, Patch, PatchValue, ValueId};

/// Batch norm with given statistics and products with a constant a channel go into the constant weight of the
/// convolution or matrix product before them: `s (x * w) + t = x * (s w) + t`.
///
/// Factors are computed in f64; sums come out as they would with such weights, so results differ in their last digits.
pub fn fold_batch_norm(g: &Graph, _cx: &PassCx<'_>) -> Result<Patch> {
    let mut patch = Patch::new();
    let mut taken = vec![false; g.nodes().len()];
    for id in g.node_ids() {
        let Some(x) = Affine::input(g, id) else { continue };
        let Some(product) = Product::before(g, x) else { continue };
        let Some(affine) = Affine::of(g, id, x, product.channels.output_axis) else { continue };
        if std::mem::replace(&mut taken[product.node.index()], true) {
            continue;
        }
        if let Some((weight, shift)) = product.scaled(g, &affine) {
            let n = g.node(product.node);
            let weight = patch.constant(weight);
            let mut x: SmallVec<[PatchValue; 4]> = n.x.iter().map(|v| patch.latest(*v)).collect();
            x[product.channels.input] = weight;
            let y = patch.node(n.op.clone(), &x, Some(product.node));
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
    scale: Vec<f64>,
    /// Empty for none.
    shift: Vec<f64>,
}

impl Affine {
    /// The input of a node that is an affine function.
    fn input(g: &Graph, id: NodeId) -> Option<ValueId> {
        let n = g.node(id);
        if n.op.downcast::<BatchNormInfer>().is_some() {
            return Some(n.x[0]);
        }
        n.op.downcast::<Binary>().filter(|b| b.f == BinaryFn::Mul)?;
        Some(beside_constant(g, n)?.0)
    }

    /// The function, whose channels lie on this axis.
    fn of(g: &Graph, id: NodeId, x: ValueId, axis: usize) -> Option<Affine> {
        let n = g.node(id);
        if let Some(norm) = n.op.downcast::<BatchNormInfer>() {
            let of = |i: usize| constant(g, n.x[i]).map(HostTensor::to_f64_vec);
            let (scale, bias, mean, var) = (of(1)?, of(2)?, of(3)?, of(4)?);
            let eps = norm.eps.to_f64();
            let scale: Vec<f64> = scale.iter().zip(&var).map(|(s, v)| s / (v + eps).sqrt()).collect();
            let shift = bias.iter().zip(&mean).zip(&scale).map(|((b, m), s)| b - m * s).collect();
            return (axis == 1).then_some(Affine { scale, shift });
        }
        let scale = per_channel(g.fact(x), axis, beside_constant(g, n)?.1)?;
        g.fact(x).same_type(g.fact(n.y[0])).then_some(Affine { scale, shift: Vec::new() })
    }
}

/// Of an op of two inputs, the one that is not a constant, and the constant.
fn beside_constant<'g>(g: &'g Graph, n: &Node) -> Option<(ValueId, &'g HostTensor)> {
    match constant(g, n.x[1]) {
        Some(c) => Some((n.x[0], c)),
        None => Some((n.x[1], constant(g, n.x[0])?)),
    }
}

/// The numbers of a constant that is one a channel of `x`, which lie on `axis`, or one for all.
pub(super) fn per_channel(x: &Fact, axis: usize, c: &HostTensor) -> Option<Vec<f64>> {
    let after = x.rank().checked_sub(1 + axis)?;
    let shape = c.shape();
    let at = shape.rank().checked_sub(after + 1);
    let alone = at.is_some_and(|at| shape.iter().enumerate().all(|(i, d)| i == at || *d == 1));
    (c.elems() == 1 || alone && at.is_some_and(|at| shape[at] == x.shape[axis])).then(|| c.to_f64_vec())
}

/// An op with a constant weight, whose value only an affine function reads, directly or after a constant was added to it.
struct Product {
    node: NodeId,
    channels: WeightChannels,
    /// The bias of each channel; empty for none.
    bias: Vec<f64>,
}

impl Product {
    fn before(g: &Graph, x: ValueId) -> Option<Product> {
        let only = |v: ValueId| g.readers(v).len() == 1 && !g.is_result(v);
        let node = g.producer(x).filter(|_| only(x))?;
        let n = g.node(node);
        if n.op.downcast::<Binary>().is_some_and(|b| b.f == BinaryFn::Add) {
            let (x, c) = beside_constant(g, n)?;
            let before = g.producer(x).filter(|_| only(x))?;
            let channels = Product::channels(g, before)?;
            let bias = per_channel(g.fact(x), channels.output_axis, c)?;
            return Some(Product { node: before, channels, bias });
        }
        Some(Product { node, channels: Product::channels(g, node)?, bias: Vec::new() })
    }

    /// Where a node's channels lie, if it has a constant weight and gives a matrix or an image.
    fn channels(g: &Graph, node: NodeId) -> Option<WeightChannels> {
        let n = g.node(node);
        let x: SmallVec<[&Fact; 4]> = n.x.iter().map(|v| g.fact(*v)).collect();
        let channels = n.op.weight_channels(&x)?;
        let (weight, rank) = (n.x[channels.input], g.fact(n.y[0]).rank());
        let known = n.after.is_empty() && matches!(rank, 2 | 4) && g.fact(weight).rank() == rank;
        (known && constant(g, weight).is_some()).then_some(channels)
    }

    /// The weight with the scale in it, and the bias of each channel.
    fn scaled(&self, g: &Graph, a: &Affine) -> Option<(HostTensor, Option<HostTensor>)> {
        let (n, at_axis) = (g.node(self.node), self.channels.output_axis);
        let (weight, y) = (constant(g, n.x[self.channels.input])?, g.fact(n.y[0]));
        let channels = y.shape[at_axis];
        // elements of the weight from one channel to the next
        let step: usize = weight.shape()[self.channels.weight_axis + 1..].iter().product();
        let at = |v: &[f64], c: usize| if v.len() == 1 { v[0] } else { v[c] };
        if [&a.scale, &a.shift, &self.bias].iter().any(|v| !v.is_empty() && v.len() != 1 && v.len() != channels) {
            return None;
        }
        let scaled: Vec<f64> =
            weight.to_f64_vec().iter().enumerate().map(|(i, w)| w * at(&a.scale, i / step.max(1) % channels)).collect();
        let scaled = HostTensor::from_f64_slice(&scaled, y.dtype, weight.shape().clone()).ok()?;
        if a.shift.is_empty() && self.bias.is_empty() {
            return Some((scaled, None));
        }
        let or_zero = |v: &[f64], c: usize| if v.is_empty() { 0.0 } else { at(v, c) };
        let shift: Vec<f64> =
            (0..channels).map(|c| or_zero(&a.shift, c) + or_zero(&self.bias, c) * at(&a.scale, c)).collect();
        let mut shape = vec![channels];
        shape.resize(y.rank() - at_axis, 1);
        Some((scaled, Some(HostTensor::from_f64_slice(&shift, y.dtype, shape).ok()?)))
    }
}
