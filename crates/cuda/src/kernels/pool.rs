//! Maxima and averages over windows of planes, and their gradients. Gradients gather, so that each element has one
//! writer.

use remat_ops::Op;
use remat_ops::pooling::{AvgPool2d, AvgPool2dGrad, GatherByArgmax, MaxPool2d, MaxPool2dGrad, Windows};
use remat_types::{DType, Result, Shape, SmallVec};

use super::matmul::{total, vocabulary};
use super::plan::{Builder, Call, Operands, Plan, Value};
use crate::driver::Grid;
use crate::source::{c_type, cast};

/// Longest side and stride of windows whose elements are summed as they are, as the CPU has it; others are summed in
/// f64.
const MAX_SIDE: usize = 64;
/// Threads of a block.
const THREADS: u32 = 256;
/// Threads that sum a long row: as many as the CPU has lanes.
const LANES: u64 = 16;
/// Elements of a window from which on a warp finds its maximum.
const LARGE_WINDOW: u64 = 64;
/// The most blocks of a launch.
const MOST_BLOCKS: u64 = 1 << 16;

/// The windows along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    size: usize,
    out: usize,
    kernel: usize,
    stride: usize,
    before: usize,
    after: usize,
}

/// The windows of planes.
#[derive(Clone, Copy, Debug)]
struct Planes {
    h: Axis,
    w: Axis,
    is_sliding: bool,
}

impl Planes {
    /// Of `x` and `y`, the input and the output of the forward op.
    fn new(windows: Windows, x: &Shape, y: &Shape) -> Planes {
        let axis = |a: usize| match windows {
            Windows::Sliding { kernel, stride, padding } => Axis {
                size: x[a + 2],
                out: y[a + 2],
                kernel: kernel[a],
                stride: stride[a],
                before: padding[a],
                after: padding[a + 2],
            },
            Windows::Adaptive { .. } => {
                Axis { size: x[a + 2], out: y[a + 2], kernel: 0, stride: 0, before: 0, after: 0 }
            }
        };
        Planes { h: axis(0), w: axis(1), is_sliding: matches!(windows, Windows::Sliding { .. }) }
    }

    /// Windows of two by two without overlap or padding.
    fn is_halving(&self) -> bool {
        let halves =
            |a: &Axis| (a.kernel, a.stride, a.before, a.after) == (2, 2, 0, 0) && a.out.saturating_mul(2) <= a.size;
        self.is_sliding && halves(&self.h) && halves(&self.w)
    }

    /// Windows of few rows and columns that slide.
    fn is_small(&self) -> bool {
        self.is_sliding && [self.h, self.w].iter().all(|a| a.kernel.max(a.stride) <= MAX_SIDE)
    }

    /// The most rows and columns of a window.
    fn widest(&self) -> [usize; 2] {
        [self.h, self.w].map(|a| match self.is_sliding {
            true => a.kernel.min(a.size),
            false => (a.size / a.out.max(1)).saturating_add(2).min(a.size),
        })
    }

    /// Whether some window has so many elements in a row that the CPU sums them in lanes.
    fn has_long_rows(&self) -> bool {
        let [rows, columns] = self.widest();
        let longest = if columns == self.w.size { rows.saturating_mul(columns) } else { columns };
        longest as u64 >= LANES
    }

    /// The type of indices: a division of 64 bits takes many instructions.
    fn index(&self, elems: u64) -> &'static str {
        let most = |a: &Axis| {
            let padded = a.size.saturating_add(a.before).saturating_add(a.after).saturating_add(a.kernel);
            padded.saturating_add(a.stride).max(a.size.saturating_add(1).saturating_mul(a.out.saturating_add(1)))
        };
        let most = (most(&self.h) as u64).max(most(&self.w) as u64).max(elems);
        if most < 1 << 30 { "u32" } else { "u64" }
    }

    /// A kernel with the axes `h` and `w`, and the functions of `text`.
    fn builder(&self, o: &Operands<'_>, vocabulary: &str, text: &str) -> Builder {
        let mut b = Builder::new("pool");
        b.functions(vocabulary);
        let elems = o.x.iter().map(|x| x.layout.shape()).chain([o.y[0].1]).map(|s| s.elems() as u64).max();
        let index = self.index(elems.unwrap_or(0));
        b.functions(&format!("typedef {index} index;\nconstexpr bool IS_SLIDING = {};\n", self.is_sliding));
        b.functions(include_str!("pool.cuh"));
        b.functions(text);
        for (name, a) in [("h", self.h), ("w", self.w)] {
            for (field, v) in ["size", "out", "kernel", "stride", "before", "after"].iter().zip(a.values()) {
                b.u64(format!("{name}_{field}"), v);
            }
        }
        b
    }
}

impl Axis {
    fn values(&self) -> [u64; 6] {
        [self.size, self.out, self.kernel, self.stride, self.before, self.after].map(|v| v as u64)
    }
}

/// Statements that make the axes, and take window `i` apart.
const AXES: &str = "const Axis h = {(index)h_size, (index)h_out, (index)h_kernel, (index)h_stride, (index)h_before, \
                    (index)h_after};\n\
                    const Axis w = {(index)w_size, (index)w_out, (index)w_kernel, (index)w_stride, (index)w_before, \
                    (index)w_after};\n";
const WINDOW: &str = "const index plane = (index)i / (h.out * w.out), at = (index)i % (h.out * w.out);\n\
                      const index row = at / w.out, column = at % w.out;\n";
const ELEMENT: &str = "const index plane = (index)i / (h.size * w.size), at = (index)i % (h.size * w.size);\n\
                       const index row = at / w.size, column = at % w.size;\n";

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    let call = if let Some(op) = any.downcast_ref::<MaxPool2d>() {
        max(&Planes::new(op.windows, o.shape(0), o.y[0].1), o)
    } else if let Some(op) = any.downcast_ref::<GatherByArgmax>() {
        pick(&Planes::new(op.windows, o.shape(0), o.y[0].1), o)
    } else if let Some(op) = any.downcast_ref::<AvgPool2d>() {
        average(&Planes::new(op.windows, o.shape(0), o.y[0].1), op.count_include_pad, o)
    } else if let Some(op) = any.downcast_ref::<AvgPool2dGrad>() {
        average_grad(&Planes::new(op.windows, o.y[0].1, o.shape(0)), op.count_include_pad, o)
    } else if let Some(op) = any.downcast_ref::<MaxPool2dGrad>() {
        return Ok(Some(max_grad(&Planes::new(op.windows, o.shape(0), o.shape(1)), o)));
    } else {
        return Ok(None);
    };
    Ok(Some(call.map_or_else(Plan::default, Plan::from)))
}

/// The type of elements, their order and the least of them.
fn order(dtype: DType) -> String {
    let lowest = match dtype {
        DType::F32 => "f32_of_bits(0xff800000u)",
        DType::F64 => "f64_of_bits(0xfff0000000000000ull)",
        DType::F16 => "(u16)0xfc00",
        DType::BF16 => "(u16)0xff80",
        DType::I8 => "(i8)-128",
        DType::I16 => "(i16)-32768",
        DType::I32 => "(i32)0x80000000u",
        DType::I64 => "(i64)0x8000000000000000ull",
        _ => "0",
    };
    let (words, beats) = match dtype.is_float() {
        true => (vocabulary(dtype), "const total x = wide(a), y = wide(b);\nreturn x > y || (x != x && y == y);"),
        false => (format!("typedef {} element;\n", c_type(dtype)), "return a > b;"),
    };
    format!(
        "{words}__device__ __forceinline__ bool beats(element a, element b) {{\n{beats}\n}}\n\
         __device__ __forceinline__ element lowest() {{ return {lowest}; }}\n"
    )
}

/// A kernel of maxima with its operands.
fn maxima(p: &Planes, o: &Operands<'_>) -> Builder {
    p.builder(o, &order(o.x[0].dtype), include_str!("pool_max.cuh"))
}

/// The kernel that runs `body` with the maximum `best` of each window `i` below `n`: by a thread, or by a warp where windows are
/// large. `first` is the first element of its plane.
fn each_maximum(p: &Planes, mut b: Builder, n: u64, body: &str) -> Option<Call> {
    let [rows, columns] = p.widest();
    let first = "const u64 first = (u64)plane * (h.size * w.size);\n";
    if (rows.saturating_mul(columns) as u64) < LARGE_WINDOW {
        let best = "const Maximum best = maximum(h, w, x0 + first, row, column);\n";
        return b.each(n, &format!("{AXES}{WINDOW}{first}{best}{body}"));
    }
    let blocks = n.saturating_mul(32).div_ceil(u64::from(THREADS)).min(MOST_BLOCKS) as u32;
    if blocks == 0 {
        return None;
    }
    b.u64("n", n);
    let body = format!(
        "{AXES}const u64 step = (u64)gridDim.x * ({THREADS} / 32);\n\
         for (u64 i = ((u64)blockIdx.x * {THREADS} + threadIdx.x) / 32; i < n; i += step) {{\n{WINDOW}{first}\
         const Maximum best = maximum_by_warp(h, w, x0 + first, row, column, threadIdx.x % 32);\n\
         if (threadIdx.x % 32 == 0) {{\n{body}}}\n}}\n"
    );
    Some(b.build(Grid { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 }, &body))
}

fn max(p: &Planes, o: &Operands<'_>) -> Option<Call> {
    let mut b = maxima(p, o);
    b.operands(o);
    each_maximum(p, b, o.elems(0), "y0[i] = best.value;\n")
}

fn pick(p: &Planes, o: &Operands<'_>) -> Option<Call> {
    let mut b = maxima(p, o);
    b.operands(o);
    let zero = cast(DType::F32, o.y[0].0, "0.0f");
    each_maximum(p, b, o.elems(0), &format!("y0[i] = best.place == ~(index)0 ? {zero} : x1[first + best.place];\n"))
}

/// Finds the place of each maximum, and then for each element the windows that have theirs there.
fn max_grad(p: &Planes, o: &Operands<'_>) -> Plan {
    let (dtype, windows) = (o.y[0].0, o.shape(1).elems() as u64);
    let index = p.index(o.elems(0).max(windows));
    let mut b = maxima(p, o);
    b.x(0, dtype);
    b.parameter("index *places", Value::Workspace(0));
    let mut calls: SmallVec<[Call; 2]> = each_maximum(p, b, windows, "places[i] = best.place;\n").into_iter().collect();
    let mut b = p.builder(o, &vocabulary(dtype), "");
    b.y(0, dtype);
    b.x(1, dtype);
    b.parameter("const index *places", Value::Workspace(0));
    // of at most one window, the CPU copies dy
    let (zero, sum) = (cast(DType::F32, dtype, "0.0f"), cast(total(dtype).0, dtype, "(wide(dx) + wide(x1[window]))"));
    let sum = if p.is_halving() { "x1[window]" } else { &sum };
    let body = format!(
        "{AXES}{ELEMENT}const index bottom = h.past(row), right = w.past(column);\nelement dx = {zero};\n\
         for (index r = h.first(row); r < bottom; ++r)\nfor (index c = w.first(column); c < right; ++c) {{\n\
         const index window = (plane * h.out + r) * w.out + c;\nif (places[window] == at) dx = {sum};\n}}\n\
         y0[i] = dx;\n"
    );
    calls.extend(b.each(o.elems(0), &body));
    let workspace = windows as usize * if index == "u32" { 4 } else { 8 };
    Plan { calls, workspace, ..Plan::default() }
}

fn average(p: &Planes, counts_padding: bool, o: &Operands<'_>) -> Option<Call> {
    let dtype = o.y[0].0;
    let mut b = p.builder(o, &vocabulary(dtype), include_str!("pool_avg.cuh"));
    b.operands(o);
    let divisor = format!("const index n_of = divisor<{counts_padding}>(h, w, row, column);\n");
    let x = "const element *x = x0 + (u64)plane * (h.size * w.size);\n";
    let real = total(dtype).0;
    if p.is_halving() {
        let quarter =
            cast(real, dtype, "(((wide(x[0]) + wide(x[w.size])) + (wide(x[1]) + wide(x[w.size + 1]))) * (total)0.25)");
        return b
            .each(o.elems(0), &format!("{AXES}{WINDOW}{x}x += 2 * (row * w.size + column);\ny0[i] = {quarter};\n"));
    }
    if p.is_small() && p.h.out.saturating_mul(p.w.out) > 1 {
        let mean = cast(real, dtype, "(window_sum(h, w, x, row, column) / (total)(n_of == 0 ? 1 : n_of))");
        return b.each(o.elems(0), &format!("{AXES}{WINDOW}{divisor}{x}y0[i] = {mean};\n"));
    }
    let mean = cast(DType::F64, dtype, "(n_of == 0 ? 0.0 : sum / (double)n_of)");
    if !p.has_long_rows() {
        let body = format!(
            "{AXES}{WINDOW}{divisor}{x}const double sum = wide_window_sum(h, w, x, row, column, 0, 0);\n\
             y0[i] = {mean};\n"
        );
        return b.each(o.elems(0), &body);
    }
    let blocks = (o.elems(0) * LANES).div_ceil(u64::from(THREADS)).min(MOST_BLOCKS) as u32;
    if blocks == 0 {
        return None;
    }
    b.u64("n", o.elems(0));
    let body = format!(
        "{AXES}const int lane = threadIdx.x % {LANES};\nconst u32 group = 0xffffu << (threadIdx.x & 16);\n\
         const u64 step = (u64)gridDim.x * ({THREADS} / {LANES});\n\
         for (u64 i = ((u64)blockIdx.x * {THREADS} + threadIdx.x) / {LANES}; i < n; i += step) {{\n{WINDOW}{divisor}{x}\
         const double sum = wide_window_sum(h, w, x, row, column, lane, group);\nif (lane == 0) y0[i] = {mean};\n}}\n"
    );
    Some(b.build(Grid { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 }, &body))
}

fn average_grad(p: &Planes, counts_padding: bool, o: &Operands<'_>) -> Option<Call> {
    let dtype = o.y[0].0;
    let mut b = p.builder(o, &vocabulary(dtype), include_str!("pool_avg.cuh"));
    b.operands(o);
    let real = total(dtype).0;
    let dy = "const element *dy = x0 + (u64)plane * (h.out * w.out);\n";
    let fits = |a: &Axis| a.size == a.out.saturating_mul(2);
    let body = if p.is_halving() && fits(&p.h) && fits(&p.w) {
        let quarter = cast(real, dtype, "(wide(dy[row / 2 * w.out + column / 2]) * (total)0.25)");
        format!("{AXES}{ELEMENT}{dy}y0[i] = {quarter};\n")
    } else if p.is_small() {
        let sum = cast(real, dtype, &format!("share_sum<{counts_padding}>(h, w, dy, row, column)"));
        format!("{AXES}{ELEMENT}{dy}y0[i] = {sum};\n")
    } else {
        let (zero, sum) = (cast(DType::F32, dtype, "0.0f"), cast(real, dtype, "(wide(dx) + share)"));
        format!(
            "{AXES}{ELEMENT}{dy}const index bottom = h.past(row), right = w.past(column);\nelement dx = {zero};\n\
             for (index r = h.first(row); r < bottom; ++r)\nfor (index c = w.first(column); c < right; ++c) {{\n\
             const index n_of = divisor<{counts_padding}>(h, w, r, c);\n\
             const total share = wide(dy[r * w.out + c]) / (total)(n_of == 0 ? 1 : n_of);\ndx = {sum};\n}}\n\
             y0[i] = dx;\n"
        )
    };
    b.each(o.elems(0), &body)
}
