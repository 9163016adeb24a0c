use remat_kernels::blocked::lanes;
use remat_ops::conv::Conv2d;
use remat_ops::cpu::{ConvBlocked, FromBlocked, LinearPacked, MaxPoolBlocked, PackConv, PackLinear, ToBlocked};
use remat_ops::index::Take;
use remat_ops::linalg::MatMul;
use remat_ops::pointwise::{Binary, BinaryFn, Pointwise};
use remat_ops::pooling::{AvgPool2d, MaxPool2d, Windows};
use remat_ops::reduce::{Reduce, ReduceFn};
use remat_ops::shape::{Concat, Permute};
use remat_ops::{OpRef, eval_on_host};
use remat_types::{DType, HostTensor, Result, Scalar, SmallVec, smallvec};
use rustc_hash::FxHashMap;

use crate::ir::{Graph, Node, NodeId, Patch, PatchValue, ValueId};
use crate::passes::PassCx;
use crate::passes::fold_batch_norm::{constant, per_channel};

/// Convolutions and linear layers with constant weights become one op with packed weights, including a summand and a clamp that
/// follow them. Between convolutions, pointwise ops, pooling and resizing of images stay in blocks of channels.
///
/// The order of a sum differs from that of the plain kernels, so results differ in their last digits. Convolutions of 3x3 taps
/// go by Winograd's algorithm where that is less work: their error is about that of sums, but an infinity becomes NaN, and both spread
/// over tiles of 4x4 outputs.
pub fn pack_layouts(g: &Graph, cx: &PassCx<'_>) -> Result<Patch> {
    let mut b =
        Packing { g, cx, patch: Patch::new(), blocked: FxHashMap::default(), taken: vec![false; g.nodes().len()] };
    for id in g.node_ids() {
        if !b.taken[id.index()] && g.node(id).after.is_empty() {
            b.node(id)?;
        }
    }
    Ok(b.patch)
}

/// Rows of a product from which packed weights pay: fewer read the weight once as it lies.
const MIN_ROWS: usize = 4;
/// Multiply-adds of a product below which it is left alone.
const MIN_MULS: usize = 1 << 12;

struct Packing<'a> {
    g: &'a Graph,
    cx: &'a PassCx<'a>,
    patch: Patch,
    /// Images by what holds them in blocks.
    blocked: FxHashMap<ValueId, Blocked>,
    /// Nodes that a convolution or product before them does as well.
    taken: Vec<bool>,
}

/// An image in blocks of channels.
#[derive(Clone, Copy)]
struct Blocked {
    by: PatchValue,
    /// The value in the channels beyond those of the image; any number if there are none.
    pad: f32,
}

type Operands = SmallVec<[PatchValue; 4]>;

/// The ops after a convolution or product that its kernel takes over.
struct Tail {
    bias: Vec<f64>,
    add: Option<ValueId>,
    clamp: Option<[Scalar; 2]>,
    /// The value that the last of them gives.
    end: ValueId,
    nodes: SmallVec<[NodeId; 3]>,
}

impl Packing<'_> {
    fn node(&mut self, id: NodeId) -> Result<()> {
        let n = self.g.node(id);
        if self.g.readers(n.y[0]).is_empty() && !self.g.is_result(n.y[0]) {
            return Ok(());
        }
        if let Some(conv) = n.op.downcast::<Conv2d>() {
            return self.conv(id, conv);
        }
        if n.op.downcast::<MatMul>().is_some() {
            return self.linear(id);
        }
        if let Some((op, x, pad)) = self.between(id)? {
            let y = self.patch.node(op, &x, Some(id));
            self.gives(id, n.y[0], Blocked { by: y, pad });
        }
        Ok(())
    }

    /// The op on blocks that does what a node does on images in blocks, its operands, and the value in the channels that fill up
    /// its last block. All readers give these channels a weight of zero, so they may hold any finite number.
    fn between(&mut self, id: NodeId) -> Result<Option<(OpRef, Operands, f32)>> {
        let n = self.g.node(id);
        let Some(Blocked { by, pad }) = n.x.first().and_then(|v| self.blocked.get(v)).copied() else {
            return self.pointwise(id);
        };
        let one = |op: OpRef| Ok(Some((op, smallvec![by], pad)));
        let mean = Reduce { f: ReduceFn::Mean, axes: SmallVec::from_slice(&[2, 3]), keepdims: true };
        if let Some(pool) = n.op.downcast::<MaxPool2d>() {
            return one(MaxPoolBlocked { windows: pool.windows }.into());
        }
        if n.op.downcast::<AvgPool2d>().is_some_and(|p| p.windows == Windows::Adaptive { size: [1, 1] })
            || n.op.downcast::<Reduce>() == Some(&mean)
        {
            return one(mean.into());
        }
        // rows and columns of an image that is resized
        if let Some(take) = n.op.downcast::<Take>() {
            let is_along = take.axis >= 2 && self.g.fact(n.x[1]).rank() == 1;
            let index = self.patch.latest(n.x[1]);
            return Ok(is_along.then(|| (n.op.clone(), smallvec![by, index], pad)));
        }
        if let Some(concat) = n.op.downcast::<Concat>() {
            let whole = |v: &ValueId| self.g.fact(*v).shape[1].is_multiple_of(lanes());
            let x: Option<Operands> = n.x.iter().map(|v| self.blocked.get(v).map(|b| b.by)).collect();
            let fits = concat.axis == 1 && n.x.iter().all(whole);
            return Ok(x.filter(|_| fits).map(|x| (n.op.clone(), x, 0.0)));
        }
        self.pointwise(id)
    }

    /// [`Packing::between`] for a pointwise op: on images in blocks of one shape, where one image may have a single row and
    /// column, and on constants, one for all elements or one a channel.
    fn pointwise(&mut self, id: NodeId) -> Result<Option<(OpRef, Operands, f32)>> {
        let (g, n) = (self.g, self.g.node(id));
        let y = g.fact(n.y[0]);
        let total = n.x.first().is_some_and(|x| Pointwise::fusible(&n.op, g.fact(*x).dtype).is_some());
        let is_image = |v: &ValueId| self.blocked.contains_key(v) && g.fact(*v).shape == y.shape;
        if !total || y.rank() != 4 || y.dtype != DType::F32 || !n.x.iter().any(is_image) {
            return Ok(None);
        }
        let channels = y.shape[1];
        let is_small = |v: &ValueId| g.fact(*v).shape.dims() == [y.shape[0], channels, 1, 1];
        let operand = |v: &ValueId| match constant(g, *v) {
            Some(c) => c.elems() == 1 || per_channel(y, 1, c).is_some(),
            None => is_image(v) || is_small(v),
        };
        if !n.x.iter().all(|v| g.fact(*v).dtype == DType::F32 && operand(v)) {
            return Ok(None);
        }
        let (mut x, mut pads) = (Operands::new(), Vec::new());
        for v in &n.x {
            let (by, pad) = match constant(g, *v) {
                Some(c) if c.elems() == 1 => (self.patch.latest(*v), c.to_f64_vec()[0] as f32),
                Some(c) => {
                    // no product, quotient or power makes one infinite
                    let (mut numbers, block) = (c.to_f64_vec(), lanes());
                    numbers.resize(channels.next_multiple_of(block), 1.0);
                    let c = HostTensor::from_f64_slice(&numbers, DType::F32, [numbers.len() / block, 1, 1, block])?;
                    (self.patch.constant(c), 1.0)
                }
                None => {
                    let image = self.image(*v, id);
                    (image.by, image.pad)
                }
            };
            x.push(by);
            pads.push(HostTensor::scalar(pad));
        }
        let pad = eval_on_host(&*n.op, &pads, self.cx.pool).ok().and_then(|y| y.first().map(HostTensor::to_f64_vec));
        let pad = pad.map_or(f32::NAN, |v| v[0] as f32);
        let fits = pad.is_finite() || channels.is_multiple_of(lanes());
        Ok(fits.then(|| (n.op.clone(), x, pad)))
    }

    /// `v` is in blocks now; readers that are not get it brought back.
    fn gives(&mut self, id: NodeId, v: ValueId, by: Blocked) {
        self.blocked.insert(v, by);
        let channels = self.g.fact(v).shape[1];
        let plain = self.patch.node(FromBlocked { channels }, &[by.by], Some(id));
        self.patch.replace(v, plain);
    }

    fn conv(&mut self, id: NodeId, conv: &Conv2d) -> Result<()> {
        let (g, n) = (self.g, self.g.node(id));
        let (x, y) = (g.fact(n.x[0]), g.fact(n.y[0]));
        let Some(weight) = constant(g, n.x[1]).filter(|w| w.dtype() == DType::F32 && y.elems() > 0) else {
            return Ok(());
        };
        let s = weight.shape();
        let (weight_shape, block) = ([s[0], s[1], s[2], s[3]], lanes());
        // fewer outputs than lanes would waste most of them
        if weight_shape[0] < block {
            return Ok(());
        }
        // few channels are brought side by side by the convolution itself
        let planar = conv.taps.groups == 1 && x.shape[1] <= block && !self.blocked.contains_key(&n.x[0]);
        let op =
            ConvBlocked { taps: conv.taps, weight: weight_shape, block, adds: false, clamp: None, winograd: false };
        let winograd = !planar && op.winograd_pays([0, 1, 2, 3].map(|i| x.shape[i]));
        let pack = PackConv { block, groups: conv.taps.groups, planar, winograd };
        let Ok(packed) = eval_on_host(&pack, std::slice::from_ref(weight), self.cx.pool) else { return Ok(()) };
        let tail = Tail::of(g, id, |v, c| per_channel(g.fact(v), 1, c));
        let mut bias = tail.bias.clone();
        bias.resize(weight_shape[0].next_multiple_of(block), 0.0);
        let op = ConvBlocked { adds: tail.add.is_some(), clamp: tail.clamp, winograd, ..op };
        let x = if planar { self.patch.latest(n.x[0]) } else { self.image(n.x[0], id).by };
        let mut operands = vec![x, self.packed(packed), self.numbers(&bias)?];
        let mut pad = 0.0;
        if let Some(add) = tail.add {
            let image = self.image(add, id);
            operands.push(image.by);
            pad = image.pad;
        }
        if let Some([lo, hi]) = tail.clamp {
            pad = pad.max(lo.to_f64() as f32).min(hi.to_f64() as f32);
        }
        let y = self.patch.node(op, &operands, Some(id));
        tail.nodes.iter().for_each(|t| self.taken[t.index()] = true);
        self.gives(id, tail.end, Blocked { by: y, pad });
        Ok(())
    }

    fn linear(&mut self, id: NodeId) -> Result<()> {
        let (g, n) = (self.g, self.g.node(id));
        let (x, w, y) = (g.fact(n.x[0]), g.fact(n.x[1]), g.fact(n.y[0]));
        if w.rank() != 2 || w.dtype != DType::F32 || x.rank() < 2 {
            return Ok(());
        }
        let (k, columns) = (w.shape[0], w.shape[1]);
        let rows = y.elems() / columns.max(1);
        if rows < MIN_ROWS || rows.saturating_mul(k).saturating_mul(columns) < MIN_MULS {
            return Ok(());
        }
        let Some(w) = self.matrix(n.x[1])? else { return Ok(()) };
        let pack = PackLinear { block: lanes() };
        let Ok(packed) = eval_on_host(&pack, &[w], self.cx.pool) else { return Ok(()) };
        let a_column = |_: ValueId, c: &HostTensor| {
            let alone = c.shape().last() == Some(&columns) && c.elems() == columns;
            (alone || c.elems() == 1).then(|| c.to_f64_vec())
        };
        let tail = Tail::of(g, id, a_column);
        let mut bias = tail.bias.clone();
        bias.resize(columns, 0.0);
        let op = LinearPacked { block: lanes(), adds: tail.add.is_some(), clamp: tail.clamp };
        let mut operands = vec![self.patch.latest(n.x[0]), self.packed(packed), self.numbers(&bias)?];
        operands.extend(tail.add.map(|v| self.patch.latest(v)));
        let y = self.patch.node(op, &operands, Some(id));
        tail.nodes.iter().for_each(|t| self.taken[t.index()] = true);
        self.patch.replace(tail.end, y);
        Ok(())
    }

    /// A constant matrix of rank 2, which may be seen transposed.
    fn matrix(&self, v: ValueId) -> Result<Option<HostTensor>> {
        if let Some(c) = constant(self.g, v) {
            return Ok(Some(c.clone()));
        }
        let Some(n) = self.g.producer(v).map(|p| self.g.node(p)) else { return Ok(None) };
        let from = n.x.first().and_then(|x| constant(self.g, *x)).filter(|_| n.op.downcast::<Permute>().is_some());
        let Some(from) = from else { return Ok(None) };
        Ok(eval_on_host(&*n.op, std::slice::from_ref(from), self.cx.pool)?.pop())
    }

    /// An image in blocks.
    fn image(&mut self, v: ValueId, like: NodeId) -> Blocked {
        if let Some(image) = self.blocked.get(&v) {
            return *image;
        }
        let by = self.patch.node(ToBlocked { block: lanes() }, &[self.patch.latest(v)], Some(like));
        let image = Blocked { by, pad: 0.0 };
        self.blocked.insert(v, image);
        image
    }

    fn packed(&mut self, mut packed: Vec<HostTensor>) -> PatchValue {
        let packed = packed.pop().expect("an op of one output gives one");
        self.patch.constant(packed)
    }

    fn numbers(&mut self, v: &[f64]) -> Result<PatchValue> {
        Ok(self.patch.constant(HostTensor::from_f64_slice(v, DType::F32, [v.len()])?))
    }
}

impl Tail {
    /// The ops after the node `id`; `channels` gives a constant's numbers, one a channel or one for all, beside a value.
    fn of(g: &Graph, id: NodeId, channels: impl Fn(ValueId, &HostTensor) -> Option<Vec<f64>>) -> Tail {
        let y = g.fact(g.node(id).y[0]);
        let mut tail = Tail { bias: Vec::new(), add: None, clamp: None, end: g.node(id).y[0], nodes: SmallVec::new() };
        while tail.clamp.is_none()
            && let ([next], false) = (g.readers(tail.end), g.is_result(tail.end))
        {
            let n = g.node(*next);
            if !n.after.is_empty() || !g.fact(n.y[0]).same_type(y) {
                break;
            }
            if let Some(range) = n.op.class().clamp_range() {
                tail.clamp = Some(range);
            } else if !tail.adds(g, id, n, &channels) {
                break;
            }
            tail.end = n.y[0];
            tail.nodes.push(*next);
        }
        tail
    }

    /// Takes an addition, if it is one of a number for each channel or of a value that is there before node `id`.
    fn adds(
        &mut self,
        g: &Graph,
        id: NodeId,
        n: &Node,
        channels: impl Fn(ValueId, &HostTensor) -> Option<Vec<f64>>,
    ) -> bool {
        if n.op.downcast::<Binary>().is_none_or(|b| b.f != BinaryFn::Add) || n.x[0] == n.x[1] {
            return false;
        }
        let other = if n.x[0] == self.end { n.x[1] } else { n.x[0] };
        if let Some(c) = constant(g, other) {
            let count = channels(self.end, c).filter(|_| self.bias.is_empty());
            let Some(mut v) = count else { return false };
            if v.len() == 1 {
                let y = &g.fact(self.end).shape;
                v.resize(if y.rank() == 4 { y[1] } else { y[y.rank() - 1] }, v[0]);
            }
            self.bias = v;
            return true;
        }
        let before = g.producer(other).is_none_or(|p| p < id);
        if self.add.is_some() || !before || !g.fact(other).same_type(g.fact(self.end)) {
            return false;
        }
        self.add = Some(other);
        true
    }
}
