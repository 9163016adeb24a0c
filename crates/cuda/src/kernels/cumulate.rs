//! Running sums, products and extremes along an axis, and linear recurrences.
//!
//! Lanes are folded in the CPU's order where there are many or they are short. Few long ones are one block's each,
//! which joins runs.

use remat_ops::Op;
use remat_ops::order::{Cumulate, CumulateFn, Recurrence};
use remat_types::{DType, Result};

use super::plan::{Builder, Operands, Plan, THREADS, grid};
use crate::source::{c_type, cast};

/// Elements of a lane, and lanes, from which a lane is a block's and not a thread's.
const LONG: u64 = 64;
const MANY: u64 = 2048;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    let dtype = o.y.first().map_or(DType::F32, |y| y.0);
    if let Some(op) = any.downcast_ref::<Cumulate>() {
        // a logarithm of f64 is a function of the host's library
        if op.f == CumulateFn::LogSumExp && dtype == DType::F64 {
            return Ok(None);
        }
        let text = match op.f {
            CumulateFn::Sum => arithmetic(o, "+", "0"),
            CumulateFn::Prod => arithmetic(o, "*", "1"),
            CumulateFn::Max => extreme(dtype, ">="),
            CumulateFn::Min => extreme(dtype, "<="),
            CumulateFn::LogSumExp => log_sum_exp(dtype),
        };
        return Ok(Some(folded(o, op.axis, op.reverse, op.exclusive, &text)));
    }
    let Some(op) = any.downcast_ref::<Recurrence>() else { return Ok(None) };
    Ok(Some(folded(o, op.axis, op.reverse, false, &recurrence(dtype))))
}

fn folded(o: &Operands<'_>, axis: usize, reverse: bool, exclusive: bool, functions: &str) -> Plan {
    let shape = o.y[0].1;
    let (n, inner) = (shape[axis] as u64, shape[axis + 1..].iter().product::<usize>() as u64);
    if o.elems(0) == 0 {
        return Plan::default();
    }
    let lanes = o.elems(0) / n;
    let mut b = Builder::new("cumulate");
    let field = |name: &str, j: usize, dtype, is_input| {
        format!("{}{} *{name}{j};\n", if is_input { "const " } else { "" }, c_type(dtype))
    };
    let fields: String = (o.x.iter().enumerate().map(|(i, x)| field("x", i, x.dtype, true)))
        .chain(o.y.iter().enumerate().map(|(j, y)| field("y", j, y.0, false)))
        .collect();
    let names: Vec<String> =
        (0..o.x.len()).map(|i| format!("x{i}")).chain((0..o.y.len()).map(|j| format!("y{j}"))).collect();
    b.functions(&format!("struct Operands {{\n{fields}}};\n{functions}"));
    b.functions(include_str!("scan.cuh"));
    b.operands(o);
    b.u64("extent", n);
    b.u64("inner", inner);
    let operands = format!("const Operands o = {{{}}};\n", names.join(", "));
    if n <= LONG || lanes >= MANY {
        let body = format!("{operands}fold_lane(o, i, extent, inner, {reverse}, {exclusive});\n");
        return b.each(lanes, &body).map_or_else(Plan::default, Plan::from);
    }
    let body = format!("{operands}scan_lane(o, extent, inner, {reverse}, {exclusive});\n");
    b.build(grid(lanes, THREADS), &body).into()
}

/// Functions of a state that is one number.
fn functions(state: &str, nothing: &str, load: &str, join: &str, store: &str) -> String {
    format!(
        "{state}\n__device__ __forceinline__ state nothing() {{ {nothing} }}\n\
         __device__ __forceinline__ state load(const Operands &o, u64 at, u64 walked, u64 k) {{ {load} }}\n\
         __device__ __forceinline__ state join(state a, state b) {{ {join} }}\n\
         __device__ __forceinline__ void store(const Operands &o, u64 at, state s) {{ {store} }}\n"
    )
}

/// Floats are added up in f64, integers modulo a power of two, and of bools those that are true are counted.
fn arithmetic(o: &Operands<'_>, sign: &str, nothing: &str) -> String {
    let (from, to) = (o.x[0].dtype, o.y[0].0);
    let wide = if to.is_float() { DType::F64 } else { DType::U64 };
    let load = match from {
        DType::Bool => "(u64)(o.x0[at] != 0)".to_owned(),
        _ => cast(from, wide, "o.x0[at]"),
    };
    functions(
        &format!("typedef {} state;", c_type(wide)),
        &format!("return {nothing};"),
        &format!("return {load};"),
        &format!("return a {sign} b;"),
        &format!("o.y0[at] = {};", cast(wide, to, "s")),
    )
}

/// The last of equal extremes, or the last NaN, and its place; no place of nothing.
fn extreme(dtype: DType, reaches: &str) -> String {
    let real = match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        d => d,
    };
    functions(
        &format!("struct state {{\n{} value;\ni64 place;\n}};", c_type(real)),
        "return {0, -1};",
        &format!("return {{{}, (i64)k}};", cast(dtype, real, "o.x0[at]")),
        &format!(
            "if (b.place < 0) return a;\nif (a.place < 0) return b;\n\
             return b.value != b.value || (a.value == a.value && b.value {reaches} a.value) ? b : a;"
        ),
        &format!("o.y0[at] = {};\no.y1[at] = s.place;", cast(real, dtype, "s.value")),
    )
}

/// The largest, and the sum of the others' powers, in which it is 1 less.
fn log_sum_exp(dtype: DType) -> String {
    let power = include_str!("power.cuh");
    let own = functions(
        "struct state {\ndouble most, rest;\n};",
        "return {f64_of_bits(0xfff0000000000000ull), -1.0};",
        &format!("return {{{}, 0.0}};", cast(dtype, DType::F64, "o.x0[at]")),
        "if (a.most == b.most) return {a.most, a.rest + (b.rest + 1.0)};\n\
         if (b.most < a.most) return {a.most, a.rest + (b.rest + 1.0) * short_exponential(b.most - a.most)};\n\
         return {b.most, b.rest + (a.rest + 1.0) * short_exponential(a.most - b.most)};",
        &format!("o.y0[at] = {};", cast(DType::F64, dtype, "(s.most + logarithm_of_1_plus(s.rest))")),
    );
    power.to_owned() + &own
}

/// A state is the linear function that leads to it. The first one has no slope.
fn recurrence(dtype: DType) -> String {
    let wide = |i: usize| cast(dtype, DType::F64, &format!("o.x{i}[at]"));
    functions(
        "struct state {\ndouble slope, value;\nbool is_some;\n};",
        "return {0.0, 0.0, false};",
        &format!("return {{walked == 0 ? 0.0 : {}, {}, true}};", wide(0), wide(1)),
        "if (!a.is_some) return b;\nif (!b.is_some) return a;\n\
         return {a.slope * b.slope, b.slope * a.value + b.value, true};",
        &format!("o.y0[at] = {};", cast(DType::F64, dtype, "s.value")),
    )
}
