//! Convolutions in two dimensions and their gradients, as products of matrices that are never made.

use remat_kernels::conv::Conv2d as Geometry;
use remat_ops::Op;
use remat_ops::conv::{Conv2d, Conv2dInputGrad, Conv2dWeightGrad, ConvParams};
use remat_types::{Result, Shape, SmallVec};

use super::matmul::{side, total, vocabulary};
use super::plan::{Builder, Call, Operands, Plan, Value};
use crate::driver::Grid;
use crate::source::cast;

/// Threads of a block.
const THREADS: u32 = 256;
/// The most blocks along the axes of a grid that are not its first.
const MOST_BLOCKS: u64 = 65_535;
/// The most blocks along the first axis of a grid.
const MOST_COLUMNS: u64 = (1 << 31) - 1;
/// Blocks that keep a device busy: a gradient of fewer tiles sums parts of the images apart.
const BUSY_BLOCKS: u64 = 512;
/// The least products of a part.
const PART: u64 = 512;

/// A convolution or one of its gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Forward,
    InputGrad,
    WeightGrad,
}

/// The product of matrices, one for each group, that a pass is.
struct Product {
    pass: Pass,
    g: Geometry,
    /// Rows, columns and the products of a sum.
    m: u64,
    n: u64,
    k: u64,
    /// Products for each group: parts of the sum of a weight's gradient, or the phases of an input's under the stride.
    /// `n` and `k` are the most of any phase.
    parts: u64,
    /// Products of each part but the last.
    part: u64,
}

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    let (pass, taps, x, weight) = if let Some(op) = any.downcast_ref::<Conv2d>() {
        (Pass::Forward, op.taps, o.shape(0), o.shape(1))
    } else if let Some(op) = any.downcast_ref::<Conv2dInputGrad>() {
        (Pass::InputGrad, op.taps, o.y[0].1, o.shape(1))
    } else if let Some(op) = any.downcast_ref::<Conv2dWeightGrad>() {
        (Pass::WeightGrad, op.taps, o.shape(0), o.y[0].1)
    } else {
        return Ok(None);
    };
    let g = geometry(taps, x, weight)?;
    if o.elems(0) == 0 {
        return Ok(Some(Plan::default()));
    }
    if g.groups > 1 && g.groups == g.c {
        return depthwise(pass, &g, o);
    }
    Product::new(pass, g).plan(o)
}

fn geometry(taps: ConvParams, x: &Shape, weight: &Shape) -> Result<Geometry> {
    let four = |s: &Shape| [s[0], s[1], s[2], s[3]];
    Geometry::new(four(x), four(weight), taps.stride, taps.padding, taps.dilation, taps.groups)
}

/// A kernel with the operands `y0`, `x0` and `x1`, the sizes as `g`, and the functions of convolutions.
fn builder(g: &Geometry, o: &Operands<'_>) -> Builder {
    let mut b = Builder::new("conv");
    b.functions(&vocabulary(o.x[0].dtype));
    b.functions(include_str!("matmul.cuh"));
    // a division of 64 bits takes many instructions
    let most = [g.x_len(), g.weight_len(), g.y_len()].into_iter().max().unwrap_or(0);
    let (index, offset) = if most < 1 << 30 { ("u32", "i32") } else { ("u64", "i64") };
    b.functions(&format!("typedef {index} index;\ntypedef {offset} offset;\n"));
    // known to the compiler, which makes multiplications of divisions by them
    let steps = [0, 1].map(|axis| g.stride[axis] / common_divisor(g.stride[axis], g.dilation[axis]));
    let constants = [
        ("R", g.r),
        ("S", g.s),
        ("SH", g.stride[0]),
        ("SW", g.stride[1]),
        ("DH", g.dilation[0]),
        ("DW", g.dilation[1]),
        ("ROW_STEP", steps[0]),
        ("COLUMN_STEP", steps[1]),
    ];
    for (name, value) in constants {
        b.functions(&format!("constexpr index {name} = {value};\n"));
    }
    b.functions(include_str!("conv.cuh"));
    b.operands(o);
    for (name, value) in ["c", "h", "w", "k", "oh", "ow", "gc", "gk", "top", "left"].into_iter().zip(sizes(g)) {
        b.u64(name, value);
    }
    b
}

/// The start of every kernel's body.
const SIZES: &str = "const Geometry g = {(index)c, (index)h, (index)w, (index)k, (index)oh, (index)ow, (index)gc, \
                     (index)gk, (index)top, (index)left};\n";

fn sizes(g: &Geometry) -> [u64; 10] {
    let [top, left] = g.pad.begin;
    [g.c, g.h, g.w, g.k, g.oh, g.ow, g.c / g.groups, g.k / g.groups, top, left].map(|v| v as u64)
}

/// The greatest number that divides both, which are not 0.
fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

fn grid(blocks: [u64; 3]) -> Grid {
    Grid { blocks: blocks.map(|b| b as u32), threads: [THREADS, 1, 1], shared_bytes: 0 }
}

impl Product {
    fn new(pass: Pass, g: Geometry) -> Product {
        let (taps, gc, gk) = ((g.r * g.s) as u64, (g.c / g.groups) as u64, (g.k / g.groups) as u64);
        let (images, places) = (g.n as u64, (g.oh * g.ow) as u64);
        let phase = (g.h.div_ceil(g.stride[0]) * g.w.div_ceil(g.stride[1])) as u64;
        let (m, n, k) = match pass {
            Pass::Forward => (gk, images * places, gc * taps),
            Pass::InputGrad => (gc, images * phase, gk * taps),
            Pass::WeightGrad => (gk, gc * taps, images * places),
        };
        let mut product = Product { pass, g, m, n, k, parts: 1, part: k };
        if pass == Pass::InputGrad {
            product.parts = (g.stride[0].min(g.h) * g.stride[1].min(g.w)) as u64;
        }
        if pass == Pass::WeightGrad {
            let [columns, rows] = product.tiles();
            let blocks = columns.saturating_mul(rows).saturating_mul(g.groups as u64);
            let parts = (BUSY_BLOCKS / blocks.max(1)).min(k / PART).max(1);
            product.part = k.div_ceil(parts).next_multiple_of(16);
            product.parts = k.div_ceil(product.part.max(1)).max(1);
        }
        product
    }

    fn tiles(&self) -> [u64; 2] {
        [self.n, self.m].map(|extent| extent.div_ceil(16 * side(extent)))
    }

    /// Statements before the product, that define its factors `a` and `b` for a slice of a group, `count` columns, and
    /// where its sums begin and end; and the element of a sum.
    fn factors(&self) -> (&'static str, &'static str) {
        match self.pass {
            Pass::Forward => (
                "const u64 count = n, from = 0, to = depth;\n\
                 const StridedFactor a = {x1 + group * g.gk * g.gc * (R * S), (i64)g.gc * (R * S), 1};\n\
                 const Windows b = {x0 + group * g.gc * g.h * g.w, g};\n",
                "const index places = g.oh * g.ow;\n\
                 const u64 at = (((index)column / places) * g.k + group * g.gk + (index)row) * places \
                 + (index)column % places;\n",
            ),
            Pass::InputGrad => (
                "const index phase = (index)(slice % parts), across = SW < g.w ? SW : g.w;\n\
                 const Phase v = phase_of<SH, DH, R, ROW_STEP>(phase / across, g.h, g.top);\n\
                 const Phase u = phase_of<SW, DW, S, COLUMN_STEP>(phase % across, g.w, g.left);\n\
                 const u64 count = images * v.places * u.places, from = 0, to = (u64)g.gk * v.taps * u.taps;\n\
                 const TurnedWeight a = {x1 + group * g.gk * g.gc * (R * S), g.gc, v, u};\n\
                 const Readers b = {x0 + group * g.gk * g.oh * g.ow, g, v, u};\n",
                "const u64 at = b.at(group, (index)row, (index)column);\n",
            ),
            Pass::WeightGrad => (
                "const u64 count = n, from = slice % parts * part, to = from + part < depth ? from + part : depth;\n\
                 const Planes a = {x1 + group * g.gk * g.oh * g.ow, g};\n\
                 const Shifts b = {x0 + group * g.gc * g.h * g.w, g};\n",
                "const u64 at = (group * g.gk + (index)row) * (g.gc * (R * S)) + (index)column;\n",
            ),
        }
    }

    /// The plan. `None` for more blocks than a grid has.
    fn plan(&self, o: &Operands<'_>) -> Result<Option<Plan>> {
        let [columns, rows] = self.tiles();
        if rows > MOST_BLOCKS || columns > MOST_COLUMNS {
            return Ok(None);
        }
        let dtype = o.y[0].0;
        let (sum, _) = total(dtype);
        let mut b = builder(&self.g, o);
        let slices = self.parts * self.g.groups as u64;
        let sizes = [
            ("m", self.m),
            ("n", self.n),
            ("depth", self.k),
            ("slices", slices),
            ("parts", self.parts),
            ("part", self.part),
            ("images", self.g.n as u64),
        ];
        for (name, value) in sizes {
            b.u64(name, value);
        }
        let (factors, at) = self.factors();
        let is_whole = self.parts == 1 || self.pass != Pass::WeightGrad;
        let result = if is_whole {
            format!("y0[at] = {};\n", cast(sum, dtype, "sum"))
        } else {
            b.parameter("total *partial", Value::Workspace(0));
            b.u64("elems", o.elems(0));
            "partial[slice % parts * elems + at] = sum;\n".to_owned()
        };
        let (down, across, is_cut) = (side(self.m), side(self.n), self.pass == Pass::WeightGrad);
        let body = format!(
            "{SIZES}for (u64 slice = blockIdx.z; slice < slices; slice += gridDim.z) {{\n\
             const index group = (index)(slice / parts);\n{factors}\
             if ((u64)blockIdx.x * (16 * {across}) >= count) continue;\n\
             product<{down}, {across}, {is_cut}>(a, b, m, count, from, to, [&](u64 row, u64 column, total sum) {{\n\
             {at}{result}}});\n}}\n"
        );
        let mut calls: SmallVec<[Call; 2]> = SmallVec::new();
        calls.push(b.build(grid([columns, rows, slices.min(MOST_BLOCKS)]), &body));
        if is_whole {
            return Ok(Some(Plan { calls, ..Plan::default() }));
        }
        calls.extend(self.add_up(o));
        let workspace = (self.parts * o.elems(0)) as usize * sum.size_bytes();
        Ok(Some(Plan { calls, workspace, ..Plan::default() }))
    }

    /// Adds the parts of each sum in order, as doubles: that costs nothing here, and parts of both signs lose nothing.
    fn add_up(&self, o: &Operands<'_>) -> Option<Call> {
        let dtype = o.y[0].0;
        let (sum, total) = total(dtype);
        let mut b = Builder::new("conv_parts");
        b.y(0, dtype);
        b.parameter(format!("const {total} *partial"), Value::Workspace(0));
        b.u64("parts", self.parts);
        let rounded = cast(sum, dtype, &format!("(({total})sum)"));
        let body = format!(
            "double sum = partial[i];\nfor (u64 p = 1; p < parts; ++p) sum += partial[p * n + i];\ny0[i] = {rounded};\n"
        );
        b.each(o.elems(0), &body)
    }
}

/// The plan where each input channel is a group of its own: there is nothing that a tile would share.
fn depthwise(pass: Pass, g: &Geometry, o: &Operands<'_>) -> Result<Option<Plan>> {
    let dtype = o.y[0].0;
    let (sum, _) = total(dtype);
    let mut b = builder(g, o);
    let call = match pass {
        Pass::Forward | Pass::InputGrad => {
            let function = if pass == Pass::Forward { "depthwise" } else { "depthwise_input" };
            let rounded = cast(sum, dtype, &format!("{function}(g, x0, x1, (index)i)"));
            b.each(o.elems(0), &format!("{SIZES}y0[i] = {rounded};\n"))
        }
        Pass::WeightGrad => {
            b.u64("depth", (g.n * g.oh * g.ow) as u64);
            b.u64("elems", o.elems(0));
            let rounded = cast(sum, dtype, "sum");
            let body = format!(
                "{SIZES}for (u64 i = blockIdx.x; i < elems; i += gridDim.x) {{\n\
                 const total sum = depthwise_weight(g, x0, x1, (index)i, depth);\n\
                 if (threadIdx.x == 0) y0[i] = {rounded};\n}}\n"
            );
            Some(b.build(grid([o.elems(0).min(MOST_BLOCKS), 1, 1]), &body))
        }
    };
    Ok(Some(call.map_or_else(Plan::default, Plan::from)))
}
