//! Attention and its gradients, in tiles of scores.

use remat_ops::Op;
use remat_ops::attention::{Attention, AttentionGrad};
use remat_ops::pointwise::UnaryFn;
use remat_types::{DType, Layout, Result, Shape, SmallVec};

use super::matmul::{total, vocabulary};
use super::plan::{Builder, Call, Input, Operands, Plan, Value};
use super::scalars::scalar_functions;
use crate::driver::Grid;
use crate::source::cast;

/// Threads of a block.
const THREADS: u32 = 256;
/// The most blocks along the first axis of a grid.
const MOST_BLOCKS: u64 = (1 << 31) - 1;
/// The most columns of values or keys that a block sums.
const MOST_COLUMNS: u64 = 128;
/// Blocks that keep a device busy, and the least keys of a run where there are fewer.
const BUSY_BLOCKS: u64 = 256;
const PART_KEYS: u64 = 256;
/// No bound of the keys that a query sees; far from overflow in sums with places.
const UNBOUNDED: i64 = 1 << 62;

/// Attention on operands: sizes, the tiles of its kernels, and which inputs there are.
struct Attend<'a> {
    op: &'a Attention,
    /// The inputs of the forward op.
    x: &'a [Input<'a>],
    /// The index of the first of them.
    first: usize,
    n: u64,
    heads: u64,
    heads_kv: u64,
    tq: u64,
    tk: u64,
    d: u64,
    dv: u64,
    mask: Option<usize>,
    bias: Option<usize>,
    key: Option<usize>,
    /// Queries and keys of a tile, over 16.
    tile: [u64; 2],
}

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    if let Some(op) = op.as_any().downcast_ref::<Attention>() {
        return Attend::new(op, &o.x, 0).forward(o);
    }
    let Some(grad) = op.as_any().downcast_ref::<AttentionGrad>() else { return Ok(None) };
    Attend::new(&grad.of, &o.x[2..], 2).backward(o)
}

impl<'a> Attend<'a> {
    /// Of inputs that were checked.
    fn new(op: &'a Attention, x: &'a [Input<'a>], first: usize) -> Self {
        let joined = op.packed_qkv;
        let extents = |i: usize| {
            let s = x[if joined { 0 } else { i }].layout.shape();
            let at = usize::from(joined);
            [s[0], s[1], s[2 + at], s[3 + at]].map(|v| v as u64)
        };
        let ([n, tq, heads, d], [_, tk, heads_kv, _], [.., dv]) = (extents(0), extents(1), extents(2));
        let mut at = if joined { 1 } else { 3 };
        let mut next = |is: &dyn Fn(DType) -> bool| {
            let found = x.get(at).filter(|x| is(x.dtype)).map(|_| at);
            at += usize::from(found.is_some());
            found
        };
        let mask = next(&|d| d == DType::Bool);
        let bias = next(&DType::is_float);
        let key = next(&|d| d == DType::U64);
        // a double takes twice the room; few queries leave the rows of a large tile empty
        let wide = if x[0].dtype == DType::F64 { 2 } else { 4 };
        let tile = [if tq <= 16 { 1 } else { wide }, wide];
        Attend { op, x, first, n, heads, heads_kv, tq, tk, d, dv, mask, bias, key, tile }
    }

    fn group(&self) -> u64 {
        self.heads / self.heads_kv.max(1)
    }

    /// The sum of the columns that a thread has, and the runs of columns that blocks share out.
    fn columns(&self, most: u64) -> (u64, u64) {
        let each = most.clamp(1, MOST_COLUMNS).div_ceil(16).next_power_of_two();
        (each, most.div_ceil(16 * each).max(1))
    }

    /// A kernel with the sizes, queries, keys, values, mask and bias.
    fn builder(&self, name: &'static str, text: &str) -> Result<Builder> {
        let dtype = self.x[0].dtype;
        let (sum, _) = total(dtype);
        let mut b = Builder::new(name);
        b.resident(1);
        b.functions(&vocabulary(dtype));
        b.functions(include_str!("matmul.cuh"));
        let infinite =
            if sum == DType::F64 { "f64_of_bits(0x7ff0000000000000ull)" } else { "f32_of_bits(0x7f800000u)" };
        b.functions(&format!("__device__ __forceinline__ total infinite() {{ return {infinite}; }}\n"));
        let functions = [("exponential", UnaryFn::Exp), ("logarithm", UnaryFn::Log), ("tangent", UnaryFn::Tanh)];
        b.functions(&scalar_functions(sum, &functions)?);
        let has = [
            ("HAS_MASK", self.mask.is_some()),
            ("HAS_BIAS", self.bias.is_some()),
            ("HAS_CAP", self.op.cap.to_f64() != 0.0),
            ("DROPS", self.key.is_some()),
        ];
        for (name, is) in has {
            b.functions(&format!("constexpr bool {name} = {is};\n"));
        }
        b.functions(include_str!("attention.cuh"));
        b.functions(text);
        self.declare(&mut b)?;
        Ok(b)
    }

    fn declare(&self, b: &mut Builder) -> Result<()> {
        for (i, name) in ["q", "k", "v"].into_iter().enumerate() {
            let (input, at, s) = if self.op.packed_qkv {
                let s = self.x[0].layout.strides();
                (0, i as i64 * s[2] as i64, [s[0], s[1], s[3], s[4]])
            } else {
                let s = self.x[i].layout.strides();
                (i, 0, [s[0], s[1], s[2], s[3]])
            };
            heads(b, name, self.first + input, at, s);
        }
        let scores = Shape::from(&[self.n, self.heads, self.tq, self.tk].map(|v| v as usize)[..]);
        for (name, t, input) in [("mask", "u8", self.mask), ("bias", "element", self.bias)] {
            let value = input.map_or(Value::U64(0), |i| Value::X(self.first + i));
            b.parameter(format!("const {t} *{name}"), value);
            let layout: Option<Layout> = match input {
                Some(i) => Some(self.x[i].layout.broadcast_to(&scores)?),
                None => None,
            };
            for (axis, suffix) in ["n", "h", "i", "j"].into_iter().enumerate() {
                b.i64(format!("{name}_{suffix}"), layout.as_ref().map_or(0, |l| l.strides()[axis] as i64));
            }
        }
        self.declare_sizes(b);
        Ok(())
    }

    fn declare_sizes(&self, b: &mut Builder) {
        let Attention { offset, left, right, causal, .. } = *self.op;
        let bound = |by: isize| (by as i64).clamp(-UNBOUNDED, UNBOUNDED);
        let low = left.map_or(-UNBOUNDED, |left| bound(offset.saturating_sub_unsigned(left)));
        let right = if causal { Some(0) } else { right };
        let high = right.map_or(UNBOUNDED, |r| bound(offset.saturating_add_unsigned(r).saturating_add(1)));
        let sizes = [self.heads, self.group(), self.tq, self.tk, self.d, self.dv];
        for (name, value) in ["heads", "group", "tq", "tk", "d", "dv"].into_iter().zip(sizes) {
            b.u64(name, value);
        }
        b.i64("low", low);
        b.i64("high", high);
        let (cap, p) = (self.op.cap.to_f64(), self.op.dropout.to_f64());
        let inverse = if cap == 0.0 { 0.0 } else { 1.0 / cap };
        let kept = if p < 1.0 { 1.0 / (1.0 - p) } else { 0.0 };
        let is_double = self.x[0].dtype == DType::F64;
        for (name, value) in [("scale", self.op.scale.to_f64()), ("cap", cap), ("inverse_cap", inverse), ("kept", kept)]
        {
            b.parameter(format!("total {name}"), if is_double { Value::F64(value) } else { Value::F32(value as f32) });
        }
        b.u64("below", (p * 4_294_967_296.0) as u64);
        b.parameter("const u64 *key", self.key.map_or(Value::U64(0), |i| Value::X(self.first + i)));
        b.i64("key_step", self.key.map_or(0, |i| self.x[i].layout.strides()[0] as i64));
    }

    /// Runs of keys that blocks share out, and the keys of each: several where there would be few blocks.
    fn parts(&self, blocks: u64) -> (u64, u64) {
        let parts = (BUSY_BLOCKS / blocks.max(1)).min(self.tk / PART_KEYS).max(1);
        let each = self.tk.div_ceil(parts).next_multiple_of(64).max(1);
        (self.tk.div_ceil(each).max(1), each)
    }

    fn forward(&self, o: &Operands<'_>) -> Result<Option<Plan>> {
        let [queries, keys] = self.tile;
        let (columns, runs) = self.columns(self.dv);
        let (tiles, pairs) = (self.tq.div_ceil(16 * queries), self.n * self.heads);
        let (parts, part) = self.parts(tiles.saturating_mul(pairs).saturating_mul(runs));
        let Some(grid) = grid(tiles * parts, pairs, runs) else { return Ok(None) };
        if tiles * pairs == 0 {
            return Ok(Some(Plan::default()));
        }
        let mut b = self.builder("attention", include_str!("attention_forward.cuh"))?;
        let rows = self.outputs(o, parts, &mut b);
        for (name, value) in [("tiles", tiles), ("parts", parts), ("part", part), ("rows", rows)] {
            b.u64(name, value);
        }
        let y = "((image * tq + i) * heads + head) * dv + c";
        let rounded = cast(o.y[1].0, o.y[0].0, "sum");
        let (write, write_sum) = if parts == 1 {
            (format!("y0[{y}] = {rounded};"), "y1[row] = log_total(most, sum);")
        } else {
            let at = "(run * rows + (image * heads + head) * tq + i) * dv + c";
            (format!("sums[{at}] = sum;"), "mosts[run * rows + row] = most;\nweights[run * rows + row] = sum;")
        };
        let body = format!(
            "{SIZES}const u64 run = blockIdx.x % parts, tile = blockIdx.x / parts;\n\
             attend<{queries}, {keys}, {columns}, {}>(a, q_of, k_of, v_of, mask_of, bias_of, tile / tiles, \
             tile % tiles * {}, run * part, run * part + part, blockIdx.y * {},\n\
             [&](u64 image, u64 i, u64 head, u64 c, total sum) {{\n{write}\n}},\n\
             [&](u64 row, total most, total sum) {{\n{write_sum}\n}});\n",
            parts > 1,
            16 * queries,
            16 * columns,
        );
        let mut calls: SmallVec<[Call; 2]> = SmallVec::new();
        calls.push(b.build(grid, &body));
        if parts == 1 {
            return Ok(Some(Plan { calls, ..Plan::default() }));
        }
        let mut b = self.builder("attention_parts", include_str!("attention_forward.cuh"))?;
        self.outputs(o, parts, &mut b);
        let columns = self.dv.max(1);
        for (name, value) in [("parts", parts), ("rows", rows), ("columns", columns)] {
            b.u64(name, value);
        }
        let body = format!(
            "const u64 row = i / columns, c = i % columns, head = row / tq % heads, image = row / tq / heads;\n\
             total sum, lse;\nadd_parts(parts, rows, dv, sums, mosts, weights, row, c, sum, lse);\n\
             if (c == 0) y1[row] = lse;\n\
             if (c < dv) y0[((image * tq + row % tq) * heads + head) * dv + c] = {rounded};\n"
        );
        calls.extend(b.each(rows * columns, &body));
        let workspace = (parts * rows * (self.dv + 2)) as usize * o.y[1].0.size_bytes();
        Ok(Some(Plan { calls, workspace, ..Plan::default() }))
    }

    /// Declares the outputs, and the sums, greatest scores and weights of parts. The number of rows.
    fn outputs(&self, o: &Operands<'_>, parts: u64, b: &mut Builder) -> u64 {
        let (rows, size) = (self.n * self.heads * self.tq, o.y[1].0.size_bytes() as u64);
        b.y(0, o.y[0].0);
        b.y(1, o.y[1].0);
        let places = [("sums", 0), ("mosts", self.dv), ("weights", self.dv + 1)];
        for (name, at) in places.into_iter().filter(|_| parts > 1) {
            b.parameter(format!("total *{name}"), Value::Workspace((parts * rows * at * size) as usize));
        }
        rows
    }

    /// The gradient for queries, which leaves the sums of `p dp`, and then that for keys and values.
    fn backward(&self, o: &Operands<'_>) -> Result<Option<Plan>> {
        let [queries, keys] = self.tile;
        let (tiles, pairs) = (self.tq.div_ceil(16 * queries), self.n * self.heads);
        let (key_tiles, key_pairs) = (self.tk.div_ceil(16 * keys), self.n * self.heads_kv);
        let (columns, runs) = self.columns(self.d);
        let (key_columns, key_runs) = self.columns(self.d.max(self.dv));
        let grids = (grid(tiles, pairs, runs), grid(key_tiles, key_pairs, key_runs));
        let (Some(query_grid), Some(key_grid)) = grids else { return Ok(None) };
        let (dtype, sum) = (o.y[0].0, total(o.y[0].0).0);
        let rounded = cast(sum, dtype, "sum");
        let write = |i: usize, t: &str, h: &str, width: &str| {
            let joined = self.op.packed_qkv;
            let (y, row) = if joined { (0, format!("3 + {i}) * heads")) } else { (i, format!("1) * {h}")) };
            format!(
                "[&](u64 image, u64 i, u64 head, u64 c, total sum) \
                 {{ y{y}[(((image * {t} + i) * {row} + head) * {width} + c] = {rounded}; }}"
            )
        };
        let mut calls: SmallVec<[Call; 2]> = SmallVec::new();
        if tiles * pairs > 0 {
            let mut b = self.gradient_builder(o, "total *deltas")?;
            b.u64("tiles", tiles);
            let body = format!(
                "{SIZES}{SLOPES}query_gradient<{queries}, {keys}, {columns}>(a, q_of, k_of, v_of, dy_of, mask_of, \
                 bias_of, lse, deltas, blockIdx.x / tiles, blockIdx.x % tiles * {}, blockIdx.y * {},\n{});\n",
                16 * queries,
                16 * columns,
                write(0, "tq", "heads", "d"),
            );
            calls.push(b.build(query_grid, &body));
        }
        if key_tiles * key_pairs > 0 {
            let mut b = self.gradient_builder(o, "const total *deltas")?;
            b.u64("tiles", key_tiles);
            b.u64("heads_kv", self.heads_kv);
            let body = format!(
                "{SIZES}{SLOPES}const u64 pair = blockIdx.x / tiles;\n\
                 key_gradient<{queries}, {keys}, {key_columns}>(a, q_of, k_of, v_of, dy_of, mask_of, bias_of, lse, \
                 deltas, pair / heads_kv, pair % heads_kv, blockIdx.x % tiles * {}, blockIdx.y * {},\n{},\n{});\n",
                16 * keys,
                16 * key_columns,
                write(1, "tk", "heads_kv", "d"),
                write(2, "tk", "heads_kv", "dv"),
            );
            calls.push(b.build(key_grid, &body));
        }
        let workspace = (pairs * self.tq) as usize * sum.size_bytes();
        Ok(Some(Plan { calls, workspace, ..Plan::default() }))
    }

    /// A kernel of the backward pass.
    fn gradient_builder(&self, o: &Operands<'_>, deltas: &str) -> Result<Builder> {
        let mut b = self.builder("attention_grad", include_str!("attention_backward.cuh"))?;
        o.y.iter().enumerate().for_each(|(j, y)| b.y(j, y.0));
        b.parameter("const total *lse", Value::X(0));
        let s = o.x[1].layout.strides();
        heads(&mut b, "dy", 1, 0, [s[0], s[1], s[2], s[3]]);
        b.parameter(deltas, Value::Workspace(0));
        Ok(b)
    }
}

/// Statements before every kernel's call.
const SIZES: &str = "const Sizes a = {heads, group, tq, tk, d, dv, low, high, scale, cap, inverse_cap, below, kept, \
                     key, key_step};\n\
                     const Heads q_of = {q + q_at, q_n, q_t, q_h, q_d}, k_of = {k + k_at, k_n, k_t, k_h, k_d};\n\
                     const Heads v_of = {v + v_at, v_n, v_t, v_h, v_d};\n\
                     const Pairs<u8> mask_of = {mask, mask_n, mask_h, mask_i, mask_j};\n\
                     const Pairs<element> bias_of = {bias, bias_n, bias_h, bias_i, bias_j};\n";
const SLOPES: &str = "const Heads dy_of = {dy + dy_at, dy_n, dy_t, dy_h, dy_d};\n";

/// The parameters of a tensor of heads: input `i` from element `at` on.
fn heads(b: &mut Builder, name: &str, i: usize, at: i64, strides: [isize; 4]) {
    b.parameter(format!("const element *{name}"), Value::X(i));
    b.i64(format!("{name}_at"), at);
    for (axis, stride) in ["n", "t", "h", "d"].into_iter().zip(strides) {
        b.i64(format!("{name}_{axis}"), stride as i64);
    }
}

/// A block for each tile of each pair and run of columns. `None` for more than a grid has.
fn grid(tiles: u64, pairs: u64, runs: u64) -> Option<Grid> {
    let blocks = tiles.checked_mul(pairs).filter(|b| *b <= MOST_BLOCKS && runs <= 65_535)?;
    Some(Grid { blocks: [blocks as u32, runs as u32, 1], threads: [THREADS, 1, 1], shared_bytes: 0 })
}
