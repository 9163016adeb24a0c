use remat_ops::pointwise::Cast;
use remat_ops::{OpRef, eval_on_host};
use remat_types::{DType, Error, ErrorKind, Fact, Result, SmallVec};
use rustc_hash::FxHashMap;

use super::PassCx;
use crate::ir::{Graph, Node, NodeId, Origin, Patch, PatchValue, ValueId};

/// With [`half`](super::PassOptions::half), values of f32 are stored in that dtype, inputs and outputs of the graph
/// excepted: half the bytes for weights and for everything between. Kernels compute in f32 and round what they store, so
/// each op adds a relative error of at most 2^-11 (f16) or 2^-8 (bf16) of its result; sums of many terms are rounded once.
/// What an op does not take in that dtype, such as statistics, and a constant that does not fit, stays f32.
///
/// For inference: a graph that updates states, or whose nodes have an order of their own, stays as it is. Errors: Value
/// unless the option is f16 or bf16.
pub fn half_storage(g: &Graph, cx: &PassCx<'_>) -> Result<Patch> {
    let Some(dtype) = cx.options.half else { return Ok(Patch::new()) };
    if !matches!(dtype, DType::F16 | DType::BF16) {
        return Err(Error::new(ErrorKind::Value, format!("values are halved to f16 or bf16, not {dtype}")));
    }
    if g.states().iter().any(|s| s.next.is_some()) || g.nodes().iter().any(|n| !n.after.is_empty()) {
        return Ok(Patch::new());
    }
    let mut h = Halve { g, cx, dtype, patch: Patch::new(), at: FxHashMap::default() };
    let mut changed = false;
    for id in g.node_ids() {
        changed |= h.node(id)?;
    }
    if !changed {
        return Ok(Patch::new());
    }
    for (i, o) in g.outputs().iter().enumerate() {
        let y = h.get(o.value, DType::F32)?;
        let again = g.outputs()[..i].iter().any(|p| p.value == o.value);
        if y != PatchValue::Old(o.value) && !again {
            h.patch.replace(o.value, y);
        }
    }
    Ok(h.patch)
}

struct Halve<'a> {
    g: &'a Graph,
    cx: &'a PassCx<'a>,
    dtype: DType,
    patch: Patch,
    /// The value under each dtype that somebody asked for.
    at: FxHashMap<(ValueId, DType), PatchValue>,
}

impl Halve<'_> {
    /// The node over halves, as far as it takes them; the rest is unchanged. True if it takes some.
    fn node(&mut self, id: NodeId) -> Result<bool> {
        let g = self.g;
        let n = g.node(id);
        let halves = self.halves(n);
        let mut x: SmallVec<[PatchValue; 4]> = SmallVec::new();
        for (i, v) in n.x.iter().enumerate() {
            let half = halves.as_ref().is_some_and(|h| h[i]);
            x.push(self.get(*v, if half { self.dtype } else { DType::F32 })?);
        }
        let same = x.iter().zip(&n.x).all(|(x, v)| *x == PatchValue::Old(*v));
        if same {
            return Ok(false);
        }
        let PatchValue::New { node, .. } = self.patch.node(n.op.clone(), &x, Some(id)) else { return Ok(false) };
        for (output, y) in n.y.iter().enumerate() {
            let own = g.fact(*y).dtype;
            let now = if halves.is_some() && own == DType::F32 { self.dtype } else { own };
            self.at.insert((*y, now), PatchValue::New { node, output });
        }
        Ok(halves.is_some())
    }

    /// Which inputs become halves: as many as the op takes, its first one of f32 among them, so that it gives halves.
    fn halves(&self, n: &Node) -> Option<SmallVec<[bool; 4]>> {
        let g = self.g;
        let floats: SmallVec<[usize; 4]> = (0..n.x.len()).filter(|i| g.fact(n.x[*i]).dtype == DType::F32).collect();
        if n.op.class().casts_to().is_some() || floats.is_empty() {
            return None;
        }
        if floats.len() > CHOICES_MAX {
            let all: SmallVec<[bool; 4]> = (0..n.x.len()).map(|i| floats.contains(&i)).collect();
            return Some(all).filter(|half| self.takes(n, half));
        }
        // statistics of a norm stay f32, say: every choice is tried, those of most inputs first
        let mut choices: Vec<usize> = (0..1 << floats.len()).filter(|c| c & 1 == 1).collect();
        choices.sort_by_key(|c| std::cmp::Reverse(c.count_ones()));
        let chosen = |c: usize| -> SmallVec<[bool; 4]> {
            (0..n.x.len()).map(|i| floats.iter().position(|f| *f == i).is_some_and(|k| c >> k & 1 == 1)).collect()
        };
        choices.into_iter().map(chosen).find(|half| self.takes(n, half))
    }

    /// True if the op gives halves for these, and every constant among them fits.
    fn takes(&self, n: &Node, half: &[bool]) -> bool {
        let g = self.g;
        let halved = |v: &ValueId, half: bool| {
            let f = g.fact(*v);
            if half && f.dtype == DType::F32 { Fact::new(self.dtype, f.shape.clone()) } else { f.clone() }
        };
        let x: Vec<Fact> = n.x.iter().zip(half).map(|(v, h)| halved(v, *h)).collect();
        let Ok(y) = n.op.infer(&x.iter().collect::<SmallVec<[&Fact; 4]>>()) else { return false };
        y.len() == n.y.len()
            && y.iter().zip(&n.y).all(|(f, v)| f.same_type(&halved(v, true)))
            // an arithmetic op takes a number of f32 beside halves, but its result must be a half
            && n.x.iter().zip(half).all(|(v, h)| !(*h || n.op.class().takes_mixed_floats()) || self.fits(*v))
    }

    /// False for a constant with a number beyond the dtype's range.
    fn fits(&self, v: ValueId) -> bool {
        let Origin::Constant(data) = &self.g.value(v).origin else { return true };
        let most = if self.dtype == DType::F16 { F16_MAX } else { BF16_MAX };
        data.to_f64_vec().iter().all(|x| !x.is_finite() || x.abs() <= most)
    }

    /// A value as `dtype` if it is one of f32, and as it is otherwise.
    fn get(&mut self, v: ValueId, dtype: DType) -> Result<PatchValue> {
        let g = self.g;
        let own = g.fact(v).dtype;
        let dtype = if own == DType::F32 { dtype } else { own };
        if let Some(y) = self.at.get(&(v, dtype)) {
            return Ok(*y);
        }
        let other = if dtype == DType::F32 { self.dtype } else { DType::F32 };
        let y = match (self.at.get(&(v, other)), &g.value(v).origin) {
            (None, _) if dtype == own => PatchValue::Old(v),
            (None, Origin::Constant(data)) => {
                let half = eval_on_host(&Cast { dtype }, std::slice::from_ref(data), self.cx.pool)?;
                let half =
                    half.into_iter().next().ok_or_else(|| Error::new(ErrorKind::Internal, "a cast of nothing"))?;
                self.patch.constant(half)
            }
            (from, _) => {
                let from = *from.unwrap_or(&PatchValue::Old(v));
                self.patch.node(OpRef::new(Cast { dtype }), &[from], g.producer(v))
            }
        };
        self.at.insert((v, dtype), y);
        Ok(y)
    }
}

/// Inputs of f32 up to which every choice of halves among them is tried; an op of more takes all or none.
const CHOICES_MAX: usize = 5;
/// The largest f16.
const F16_MAX: f64 = 65504.0;
/// The largest bf16: the exponent of f32 with a significand of 8 bits.
const BF16_MAX: f64 = 3.389_531_389_251_535_5e38;
