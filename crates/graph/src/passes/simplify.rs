use remat_ops::pointwise::{Binary, BinaryFn, Unary, UnaryFn, Where};
use remat_types::{HostTensor, Result};

use super::PassCx;
use crate::ir::{Graph, Node, Origin, Patch, PatchValue, ValueId};

/// Arithmetic that gives one of its inputs: neutral elements, functions applied twice, choices without a choice. NaN,
/// infinities and the sign of zeros stay as they are; only with
/// [`fast_math`](super::PassOptions::fast_math) may `-0` become `0`.
pub fn simplify(g: &Graph, cx: &PassCx<'_>) -> Result<Patch> {
    let mut patch = Patch::new();
    for n in g.nodes() {
        let [y] = n.y[..] else { continue };
        if g.readers(y).is_empty() && !g.is_result(y) {
            continue;
        }
        let by = unary(g, n).or_else(|| binary(g, n, cx.options.fast_math)).or_else(|| choice(g, n));
        if let Some(by) = by.filter(|by| g.fact(*by).same_type(g.fact(y))) {
            patch.replace(y, PatchValue::Old(by));
        }
    }
    Ok(patch)
}

fn unary(g: &Graph, n: &Node) -> Option<ValueId> {
    use UnaryFn::{Abs, BitNot, Ceil, Floor, LogicalNot, Neg, Relu, Relu6, Round, Sign, Trunc};
    let f = n.op.downcast::<Unary>()?.f;
    let x = n.x[0];
    let inner = g.node(g.producer(x)?);
    let first = inner.op.downcast::<Unary>()?.f;
    match (first, f) {
        // once is enough
        (Relu | Relu6 | Abs | Floor | Ceil | Round | Trunc | Sign, _) if first == f => Some(x),
        (Floor | Ceil | Round | Trunc, Floor | Ceil | Round | Trunc) => Some(x),
        // twice is nothing
        (Neg, Neg) | (BitNot, BitNot) | (LogicalNot, LogicalNot) => Some(inner.x[0]),
        _ => None,
    }
}

fn binary(g: &Graph, n: &Node, fast_math: bool) -> Option<ValueId> {
    use BinaryFn::{Add, BitAnd, BitOr, BitXor, Div, LogicalAnd, LogicalOr, LogicalXor, Max, Min, Mul, Pow, Sub};
    let f = n.op.downcast::<Binary>()?.f;
    let (a, b) = (n.x[0], n.x[1]);
    if a == b && matches!(f, Max | Min | BitAnd | BitOr | LogicalAnd | LogicalOr) {
        return Some(a);
    }
    let float = g.fact(a).dtype.is_float();
    let one = |v: ValueId| every(g, v, |x| x == 1.0);
    let zero = |v: ValueId| every(g, v, |x| x == 0.0);
    let positive = |v: ValueId| zero(v) && every(g, v, |x| x.is_sign_positive());
    // what x + c = x holds for with every x, -0 included: only -0 itself
    let neutral = |v: ValueId| zero(v) && (!float || fast_math || every(g, v, |x| x.is_sign_negative()));
    match f {
        Mul | Div | Pow if one(b) => Some(a),
        Mul if one(a) => Some(b),
        Sub if if float && !fast_math { positive(b) } else { zero(b) } => Some(a),
        Add if neutral(b) => Some(a),
        Add if neutral(a) => Some(b),
        BitOr | BitXor | LogicalOr | LogicalXor if zero(b) => Some(a),
        BitOr | BitXor | LogicalOr | LogicalXor if zero(a) => Some(b),
        _ => None,
    }
}

fn choice(g: &Graph, n: &Node) -> Option<ValueId> {
    n.op.downcast::<Where>()?;
    let (cond, a, b) = (n.x[0], n.x[1], n.x[2]);
    if a == b || every(g, cond, |c| c != 0.0) {
        return Some(a);
    }
    every(g, cond, |c| c == 0.0).then_some(b)
}

/// Elements up to which a constant is looked at.
const LOOK: usize = 4096;

/// True for a constant all of whose elements satisfy `p`.
fn every(g: &Graph, v: ValueId, p: impl Fn(f64) -> bool) -> bool {
    let data: &HostTensor = match &g.value(v).origin {
        Origin::Constant(data) => data,
        _ => return false,
    };
    data.elems() <= LOOK && data.to_f64_vec().into_iter().all(p)
}
