//! Random draws: pure functions of a key and a position, with the bits of the CPU's.
//!
//! A thread takes a block of four words, so neighbouring elements are written together. Normal numbers of f64 are
//! left to the host: they take functions of its library.

use std::sync::Arc;

use remat_ops::Op;
use remat_ops::random::{Bernoulli, Dropout, FoldIn, Normal, RandomPermutation, Uniform, Weights};
use remat_types::{DType, Element, Error, ErrorKind, Result, SmallVec, for_float};

use super::index::COUNT;
use super::optim::{real_of, vocabulary};
use super::plan::{Builder, Call, Failure, Operands, Plan, THREADS, Value, grid};
use crate::source::{c_type, cast};

/// The number below which a word is an event of probability `p`.
fn threshold(p: f64) -> u64 {
    (p * 4_294_967_296.0) as u64
}

/// The largest number of a float dtype below `hi`; `lo` if that is below it.
fn last_below(dtype: DType, lo: f64, hi: f64) -> f64 {
    let rounded = |v: f64| for_float!(dtype, T => T::from_f64(v).to_f64(), else v);
    // far below half the distance of any two numbers at `hi`, and doubled until it is not
    let mut step = (hi.abs() * 2f64.powi(-60)).max(f64::MIN_POSITIVE);
    while step.is_finite() {
        let v = rounded(hi - step);
        if v < hi {
            return v.max(lo);
        }
        step *= 2.0;
    }
    lo
}

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    let call = if let Some(op) = any.downcast_ref::<Uniform>() {
        uniform(op, o)
    } else if let Some(op) = any.downcast_ref::<Normal>() {
        if op.dtype == DType::F64 {
            return Ok(None);
        }
        normal(op, o)
    } else if let Some(op) = any.downcast_ref::<Bernoulli>() {
        bernoulli(op, o)
    } else if let Some(op) = any.downcast_ref::<Dropout>() {
        dropout(op, o)
    } else if any.is::<FoldIn>() {
        Some(fold_in())
    } else if any.is::<RandomPermutation>() {
        return Ok(Some(permutation(o)));
    } else if let Some(op) = any.downcast_ref::<Weights>() {
        return Ok(Some(weights(op, o)));
    } else {
        return Ok(None);
    };
    Ok(Some(call.map_or_else(Plan::default, Plan::from)))
}

/// A kernel that has drawn `w`, and whose `text` makes `pack.e` of it, `count` elements of the output.
fn draw(mut b: Builder, o: &Operands<'_>, key: usize, count: u64, text: &str) -> Option<Call> {
    let (dtype, n) = (o.y[0].0, o.elems(0));
    let element = c_type(dtype);
    b.functions(include_str!("random.cuh"));
    b.functions(&format!(
        "struct __align__({}) Pack {{ {element} e[{count}]; }};\n",
        count as usize * dtype.size_bytes()
    ));
    b.x(key, DType::U64);
    b.y(0, dtype);
    b.u64("count", n);
    let body = format!(
        "u32 w[4];\nrandom_block(x{key}, i, w);\nPack pack;\nconst u64 first = i * {count};\n\
         const int here = count - first < {count} ? (int)(count - first) : {count};\n{text}\
         if (here == {count}) *(Pack *)(y0 + first) = pack;\n\
         else for (int k = 0; k < here; ++k) y0[first + k] = pack.e[k];\n"
    );
    b.each(n.div_ceil(count), &body)
}

fn uniform(op: &Uniform, o: &Operands<'_>) -> Option<Call> {
    let (lo, hi) = (op.lo.to_f64(), op.hi.to_f64());
    let mut b = Builder::new("uniform");
    let is_wide = op.dtype == DType::F64;
    let last = last_below(op.dtype, lo, hi);
    if !is_wide && lo == 0.0 && hi == 1.0 {
        // 24 bits are exact in f32, and only 16 bits round to 1
        b.parameter("float last", Value::F32(last as f32));
        let v = cast(DType::F32, op.dtype, "(v > last ? last : v)");
        let text = format!(
            "for (int k = 0; k < 4; ++k) {{\nconst float v = (float)(w[k] >> 8) * (1.0f / 16777216.0f);\n\
             pack.e[k] = {v};\n}}\n"
        );
        return draw(b, o, 0, 4, &text);
    }
    for (name, v) in [("lo", lo), ("hi", hi), ("last", last)] {
        b.parameter(format!("double {name}"), Value::F64(v));
    }
    let (count, unit) = if is_wide { (2, "unit_of(w[2 * k], w[2 * k + 1])") } else { (4, "unit_of(w[k])") };
    let v = cast(DType::F64, op.dtype, "v");
    let text = format!(
        "for (int k = 0; k < {count}; ++k) {{\nconst double v = fmin(lo + {unit} * (hi - lo), last);\n\
         pack.e[k] = {v};\n}}\n"
    );
    draw(b, o, 0, count, &text)
}

fn normal(op: &Normal, o: &Operands<'_>) -> Option<Call> {
    let mut b = Builder::new("normal");
    b.parameter("double mean", Value::F64(op.mean.to_f64()));
    b.parameter("double deviation", Value::F64(op.std.to_f64()));
    let at = |part: &str| cast(DType::F64, op.dtype, &format!("(mean + deviation * r * {part})"));
    let text = format!(
        "for (int k = 0; k < 4; k += 2) {{\n\
         const double r = __dsqrt_rn(-2.0 * short_logarithm(((double)w[k] + 1.0) / 4294967296.0));\n\
         double sin, cos;\nsin_cos_turns(w[k + 1] + 1, sin, cos);\n\
         pack.e[k] = {};\npack.e[k + 1] = {};\n}}\n",
        at("cos"),
        at("sin")
    );
    draw(b, o, 0, 4, &text)
}

fn bernoulli(op: &Bernoulli, o: &Operands<'_>) -> Option<Call> {
    let mut b = Builder::new("bernoulli");
    b.u64("below", threshold(op.p.to_f64()));
    let v = cast(DType::U8, op.dtype, "(u8)(w[k] < below)");
    draw(b, o, 0, 4, &format!("for (int k = 0; k < 4; ++k) pack.e[k] = {v};\n"))
}

fn dropout(op: &Dropout, o: &Operands<'_>) -> Option<Call> {
    let (p, dtype) = (op.p.to_f64(), o.y[0].0);
    let mut b = Builder::new("dropout");
    b.functions(&vocabulary(dtype));
    b.x(0, dtype);
    b.u64("below", threshold(p));
    let factor = if p < 1.0 { 1.0 / (1.0 - p) } else { 0.0 };
    match real_of(dtype) {
        DType::F64 => b.parameter("double factor", Value::F64(factor)),
        _ => b.parameter("float factor", Value::F32(factor as f32)),
    }
    // an input may begin anywhere, an output does not
    let text = "if (here == 4 && (u64)(x0 + first) % sizeof(Pack) == 0) pack = *(const Pack *)(x0 + first);\n\
                else for (int k = 0; k < 4; ++k) pack.e[k] = k < here ? x0[first + k] : down((real)0);\n\
                for (int k = 0; k < 4; ++k) pack.e[k] = w[k] < below ? down((real)0) : down(up(pack.e[k]) * factor);\n";
    draw(b, o, 1, 4, text)
}

/// The block beyond all those that draws take.
fn fold_in() -> Call {
    let mut b = Builder::new("fold_in");
    b.functions(include_str!("random.cuh"));
    b.x(0, DType::U64);
    b.x(1, DType::I64);
    b.y(0, DType::U64);
    let body = "u32 w[4];\nrandom_block(x0, (1ull << 63) + (u64)x1[0], w);\n\
                y0[0] = (u64)w[1] << 32 | w[0];\ny0[1] = (u64)w[3] << 32 | w[2];\n";
    b.build(grid(1, 1), body)
}

fn permutation(o: &Operands<'_>) -> Plan {
    let n = o.elems(0);
    let mut b = Builder::new("permutation_begin");
    b.y(0, DType::I64);
    b.parameter("u32 *held", Value::Workspace(0));
    let Some(first) = b.each(n, "y0[i] = (i64)i;\nheld[i] = ~0u;\n") else { return Plan::default() };
    let mut b = Builder::new("permutation");
    b.functions(include_str!("random.cuh"));
    b.x(0, DType::U64);
    b.y(0, DType::I64);
    b.parameter("u32 *held", Value::Workspace(0));
    b.u64("n", n);
    let grid = grid(1, 1024);
    let second = b.build(grid, "shuffle(n, x0, y0, held);\n");
    Plan {
        calls: SmallVec::from_iter([first, second]),
        workspace: (n as usize).saturating_mul(size_of::<u32>()),
        failure: None,
    }
}

/// Rows that can be drawn from, as they are. A row is one block's.
fn weights(op: &Weights, o: &Operands<'_>) -> Plan {
    let dtype = o.y[0].0;
    let extent = o.y[0].1.last().copied().unwrap_or(0) as u64;
    let mut plan = Plan { failure: bad_weights(op.least as u64), ..Plan::default() };
    if o.elems(0) == 0 {
        return plan;
    }
    let mut b = Builder::new("weights");
    b.functions(COUNT);
    b.operands(o);
    b.failure();
    b.u64("extent", extent);
    b.u64("least", op.least as u64);
    let wide = cast(dtype, DType::F64, "x0[row * extent + k]");
    let body = format!(
        "const u64 row = blockIdx.x;\nu64 above = 0;\nbool is_bad = false;\n\
         for (u64 k = threadIdx.x; k < extent; k += blockDim.x) {{\nconst double w = {wide};\n\
         if (!(w >= 0.0 && w - w == 0.0) && !is_bad) {{\nis_bad = true;\n\
         refuse(failure, row << 32 | (k < {NONE}ull ? k : {NONE}ull - 1), (i64)bits_of_f64(w));\n}}\n\
         above += w > 0.0;\ny0[row * extent + k] = x0[row * extent + k];\n}}\n\
         above = block_count(above);\n\
         if (threadIdx.x == 0 && above < least) refuse(failure, row << 32 | {NONE}ull, (i64)above);\n"
    );
    let rows = o.elems(0) / extent;
    plan.calls.push(b.build(grid(rows, THREADS), &body));
    plan
}

/// The place in a row of what is wrong with the whole row.
const NONE: u64 = 0xffff_ffff;

/// The error of a row's weight, whose bits are the value, or of the number of those above 0.
fn bad_weights(least: u64) -> Option<Failure> {
    Some(Arc::new(move |position, value| {
        let (row, place) = (position >> 32, position & NONE);
        let text = match place {
            NONE => format!("row {row} has {value} weights above 0, and {least} are needed"),
            _ => {
                let w = f64::from_bits(value as u64);
                format!("weight {place} of row {row} is {w}: weights are finite and not negative")
            }
        };
        Error::new(ErrorKind::Value, text)
    }))
}
