//! Running functions along an axis, and linear recurrences.
//!
//! A thread takes a lane in order, as the CPU does, where there are many lanes or elements are few. Else a block scans
//! a lane or a part of one. Products and recurrences always go in order: the product of a part may be beyond the
//! numbers where none of the results is.

use remat_ops::Op;
use remat_ops::order::{Cumulate, CumulateFn, Recurrence};
use remat_types::{DType, Result};

use super::plan::{Builder, Call, Operands, Plan, THREADS, Value};
use crate::driver::Grid;
use crate::source::{c_type, cast};

/// Elements of a lane that a thread takes in any case, and lanes that occupy a device.
const FEW: u64 = 64;
const MANY_LANES: u64 = 8192;
/// Elements of a part of a lane, at least, and the most parts of a lane.
const PART: u64 = 8192;
const MOST_PARTS: u64 = 64;
/// The most blocks of a launch.
const MOST_BLOCKS: u64 = 1 << 16;
/// Bytes of a state, at most.
const STATE_BYTES: u64 = 16;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    if let Some(op) = any.downcast_ref::<Recurrence>() {
        return Ok(Some(Walk::new(o, op.axis, op.reverse, false).recurrence()));
    }
    let Some(op) = any.downcast_ref::<Cumulate>() else { return Ok(None) };
    Ok(Some(Walk::new(o, op.axis, op.reverse, op.exclusive).plan(op.f)))
}

/// A walk along an axis of `[outer, n, inner]`.
struct Walk<'o, 'a> {
    o: &'o Operands<'a>,
    dtype: DType,
    lanes: u64,
    n: u64,
    inner: u64,
    is_reverse: bool,
    is_exclusive: bool,
}

impl<'o, 'a> Walk<'o, 'a> {
    fn new(o: &'o Operands<'a>, axis: usize, is_reverse: bool, is_exclusive: bool) -> Walk<'o, 'a> {
        let shape = o.shape(0);
        let product = |d: &[usize]| d.iter().product::<usize>() as u64;
        let (outer, inner) = (product(&shape[..axis]), product(&shape[axis + 1..]));
        Walk { o, dtype: o.x[0].dtype, lanes: outer * inner, n: shape[axis] as u64, inner, is_reverse, is_exclusive }
    }

    fn builder(&self, name: &'static str, functions: &str) -> (Builder, String) {
        let mut b = Builder::new(name);
        b.functions(functions);
        b.functions(include_str!("cumulate.cuh"));
        b.operands(self.o);
        b.u64("length", self.n);
        b.u64("inner", self.inner);
        (b, format!("const Along along{{length, inner, {}, {}}};\n", self.is_reverse, self.is_exclusive))
    }

    fn plan(&self, f: CumulateFn) -> Plan {
        let mut plan = Plan::default();
        if self.n == 0 || self.lanes == 0 {
            return plan;
        }
        let functions = states(f, self.dtype, self.o.y[0].0);
        let put = match f {
            CumulateFn::Max | CumulateFn::Min => "y0[i] = s.value;\ny1[i] = s.at;\n",
            _ => "y0[i] = result(s);\n",
        };
        let put = format!("const auto put = [&](u64 i, State s) {{\n{put}}};\n");
        if f == CumulateFn::Prod || self.n <= FEW || self.lanes >= MANY_LANES {
            let (b, begin) = self.builder("cumulate", &functions);
            let body = format!("{begin}{put}walk_lane(along, i, x0, put);\n");
            plan.calls.extend(b.each(self.lanes, &body));
            return plan;
        }
        let parts = (self.n / PART).clamp(1, MOST_PARTS);
        if parts > 1 {
            plan.workspace = (self.lanes * parts * STATE_BYTES) as usize;
            plan.calls.push(self.part(
                "cumulate_totals",
                &functions,
                parts,
                "const State all = walk_part(along, lane, from, to, nothing(), x0, [](u64, State) {});\n\
                 if (threadIdx.x == 0) states[k] = all;\n",
            ));
        }
        plan.calls.push(self.part(
            "cumulate_parts",
            &functions,
            parts,
            &format!(
                "{put}State carry = nothing();\n\
             for (u64 before = k - part; before < k; ++before) carry = join(carry, states[before]);\n\
             walk_part(along, lane, from, to, carry, x0, put);\n"
            ),
        ));
        plan
    }

    /// A kernel of a block for each part of each lane.
    fn part(&self, name: &'static str, functions: &str, parts: u64, body: &str) -> Call {
        let (mut b, begin) = self.builder(name, functions);
        b.u64("lanes", self.lanes);
        b.u64("parts", parts);
        b.parameter("State *states", Value::Workspace(0));
        let text = format!(
            "{begin}const u64 size = (length + parts - 1) / parts;\n\
             for (u64 k = blockIdx.x; k < lanes * parts; k += gridDim.x) {{\n\
             const u64 lane = k / parts, part = k % parts, from = part * size;\n\
             const u64 to = from + size < length ? from + size : length;\n{body}}}\n"
        );
        let blocks = (self.lanes * parts).clamp(1, MOST_BLOCKS) as u32;
        b.build(Grid { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 }, &text)
    }

    fn recurrence(&self) -> Plan {
        let mut b = Builder::new("recurrence");
        b.operands(self.o);
        b.u64("length", self.n);
        b.u64("inner", self.inner);
        let wide = |x: &str| cast(self.dtype, DType::F64, x);
        let place = if self.is_reverse { "length - 1 - k" } else { "k" };
        let body = format!(
            "const u64 base = i / inner * length * inner + i % inner;\ndouble state = 0;\n#pragma unroll 4\n\
             for (u64 k = 0; k < length; ++k) {{\nconst u64 at = base + ({place}) * inner;\n\
             const double b = {};\nstate = k == 0 ? b : {} * state + b;\ny0[at] = {};\n}}\n",
            wide("x1[at]"),
            wide("x0[at]"),
            cast(DType::F64, self.dtype, "state"),
        );
        let lanes = if self.n == 0 { 0 } else { self.lanes };
        b.each(lanes, &body).map_or_else(Plan::default, Plan::from)
    }
}

/// The state of a function of elements of a dtype, as types and functions of C.
fn states(f: CumulateFn, dtype: DType, result: DType) -> String {
    let element = c_type(dtype);
    // integers wrap, so they are summed as unsigned ones
    let sum = if dtype.is_float() { DType::F64 } else { DType::U64 };
    let number = match f {
        CumulateFn::Max | CumulateFn::Min if matches!(dtype, DType::F16 | DType::BF16) => DType::F32,
        CumulateFn::Max | CumulateFn::Min => dtype,
        _ => sum,
    };
    let (number_c, result_c, wide) = (c_type(number), c_type(result), cast(dtype, number, "x"));
    let base = format!(
        "typedef {element} element;\n__device__ __forceinline__ {number_c} wide(element x) {{ return {wide}; }}\n"
    );
    let functions = |state: &str, nothing: &str, of: &str, join: &str, out: &str| {
        format!(
            "typedef {state} State;\n__device__ __forceinline__ State nothing() {{ return {nothing}; }}\n\
             __device__ __forceinline__ State of(element x, u64 place) {{ return {of}; }}\n\
             __device__ __forceinline__ State join(State a, State b) {{\n{join}}}\n{out}"
        )
    };
    let out = |value: &str, from: DType| {
        let value = cast(from, result, value);
        format!("__device__ __forceinline__ {result_c} result(State s) {{ return {value}; }}\n")
    };
    let rest = match f {
        CumulateFn::Sum => functions(number_c, "0", "wide(x)", "return a + b;\n", &out("s", number)),
        CumulateFn::Prod => functions(number_c, "1", "wide(x)", "return a * b;\n", &out("s", number)),
        CumulateFn::Max | CumulateFn::Min => {
            let join = format!("return later<{}>(a, b);\n", f == CumulateFn::Max);
            functions("Extreme", "Extreme{0, -1}", "Extreme{x, (i64)place}", &join, "")
        }
        CumulateFn::LogSumExp => {
            let join = "if (b.most == a.most) return State{a.most, a.rest + (b.rest + 1)};\n\
                        if (b.most < a.most) return State{a.most, a.rest + (b.rest + 1) * exp_f64(b.most - a.most)};\n\
                        return State{b.most, b.rest + (a.rest + 1) * exp_f64(a.most - b.most)};\n";
            let nothing = "Exponentials{f64_of_bits(0xfff0000000000000ull), -1}";
            functions(
                "Exponentials",
                nothing,
                "Exponentials{wide(x), 0}",
                join,
                &out("(s.most + ln_1p_f64(s.rest))", DType::F64),
            )
        }
    };
    let doubles = if f == CumulateFn::LogSumExp { include_str!("doubles.cuh") } else { "" };
    format!("{base}{doubles}{}{rest}", include_str!("states.cuh"))
}
