//! Normalisations of rows, by their statistics, and the gradients.

use remat_ops::Op;
use remat_ops::norm::{LayerNorm, LayerNormGrad, RmsNorm, RmsNormGrad};
use remat_types::{DType, Result, Scalar};

use super::plan::{Builder, Operands, Plan, Value};
use super::rows::{Team, real, vocabulary};

/// Rows that are worth a block of their own, and the most blocks that the CPU has.
const ROWS_MIN: u64 = 16;
const CPU_BLOCKS: u64 = 16;
/// Rows of a block beyond those, and the most blocks.
const ROWS: u64 = 64;
const MOST_BLOCKS: u64 = 128;
/// Bytes of how a row is normalised.
const ROW_BYTES: u64 = 24;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    Ok(Some(if let Some(op) = any.downcast_ref::<LayerNorm>() {
        forward(&Norm::new(o, true, op.axes, op.eps))
    } else if let Some(op) = any.downcast_ref::<RmsNorm>() {
        forward(&Norm::new(o, false, op.axes, op.eps))
    } else if let Some(op) = any.downcast_ref::<LayerNormGrad>() {
        backward(&Norm::new(o, true, op.axes, op.eps))
    } else if let Some(op) = any.downcast_ref::<RmsNormGrad>() {
        backward(&Norm::new(o, false, op.axes, op.eps))
    } else {
        return Ok(None);
    }))
}

/// The types and functions of normalisations.
pub(super) fn sources(dtype: DType) -> String {
    // far above the squares that are no normal numbers
    let least = if dtype == DType::F64 { "1e-290" } else { "1e-30" };
    format!("{}constexpr double LEAST_SQUARE = {least};\n{}", vocabulary(dtype), include_str!("norm.cuh"))
}

/// A normalisation of rows of `n` elements, about their mean or not.
struct Norm<'o, 'a> {
    o: &'o Operands<'a>,
    dtype: DType,
    is_centred: bool,
    rows: u64,
    n: u64,
    eps: f64,
}

impl<'o, 'a> Norm<'o, 'a> {
    fn new(o: &'o Operands<'a>, is_centred: bool, axes: usize, eps: Scalar) -> Norm<'o, 'a> {
        let shape = o.shape(0);
        let (outer, inner) = shape.split_at(shape.rank() - axes);
        let product = |d: &[usize]| d.iter().product::<usize>() as u64;
        let (rows, n) = (product(outer), product(inner));
        Norm { o, dtype: o.x[0].dtype, is_centred, rows, n, eps: eps.to_f64() }
    }

    fn builder(&self, name: &'static str) -> Builder {
        let mut b = Builder::new(name);
        b.resident(2);
        b.functions(&sources(self.dtype));
        b.operands(self.o);
        b.u64("s", self.n);
        b
    }

    /// Blocks of rows whose gradients of scale and bias are summed apart: those of the CPU, and more where it has long
    /// ones.
    fn blocks(&self) -> u64 {
        (self.rows / ROWS_MIN).min(CPU_BLOCKS).max((self.rows / ROWS).min(MOST_BLOCKS)).max(1)
    }
}

fn forward(norm: &Norm<'_, '_>) -> Plan {
    if norm.rows * norm.n == 0 {
        return Plan::default();
    }
    let mut b = norm.builder("norm");
    b.parameter("double eps", Value::F64(norm.eps));
    let team = Team::new(norm.dtype, norm.n, if norm.is_centred { 2 } else { 1 });
    let bias = if norm.is_centred { "x2" } else { "(const element *)0" };
    let body = format!("norm_row<{}>(room, x0 + row * s, x1, {bias}, y0 + row * s, s, eps);\n", norm.is_centred);
    team.each(b, norm.rows, &body).into()
}

fn backward(norm: &Norm<'_, '_>) -> Plan {
    let mut plan = Plan::default();
    let blocks = norm.blocks();
    let parts_at = (norm.rows * ROW_BYTES).next_multiple_of(256) as usize;
    let part_bytes = (blocks * norm.n) as usize * real(norm.dtype).size_bytes();
    plan.workspace = parts_at + 2 * part_bytes;
    let is_centred = norm.is_centred;
    if norm.rows * norm.n > 0 {
        let mut b = norm.builder("norm_grad");
        b.parameter("double eps", Value::F64(norm.eps));
        b.parameter("Row *all", Value::Workspace(0));
        let team = Team::new(norm.dtype, norm.n, 4);
        let body = format!(
            "const u64 at = row * s;\n\
             const Row found = norm_grad_row<{is_centred}>(room, x0 + at, x1, x2 + at, y0 + at, s, eps);\n\
             if (threadIdx.x % {} == 0) all[row] = found;\n",
            team.threads()
        );
        plan.calls.push(team.each(b, norm.rows, &body));
    }
    let declare = |b: &mut Builder| {
        b.u64("rows", norm.rows);
        b.u64("blocks", blocks);
        b.parameter("real *scales", Value::Workspace(parts_at));
        b.parameter("real *biases", Value::Workspace(parts_at + part_bytes));
    };
    let mut b = norm.builder("norm_grad_columns");
    declare(&mut b);
    b.parameter("const Row *all", Value::Workspace(0));
    let columns = format!("norm_grad_column<{is_centred}>(i, rows, s, blocks, x0, x2, all, scales, biases);\n");
    plan.calls.extend(b.each(blocks * norm.n, &columns));
    let mut b = norm.builder("norm_grad_blocks");
    declare(&mut b);
    let bias = if is_centred { "y2[i] = over_blocks(biases, blocks, s, i);\n" } else { "" };
    plan.calls.extend(b.each(norm.n, &format!("y1[i] = over_blocks(scales, blocks, s, i);\n{bias}")));
    plan
}
