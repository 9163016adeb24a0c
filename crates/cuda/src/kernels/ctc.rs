//! Connectionist temporal classification and its gradient.

use std::sync::Arc;

use remat_kernels::ctc::{FORWARD_ROWS, backward_rows, workspace_items};
use remat_ops::Op;
use remat_ops::loss::{CtcLoss, CtcLossGrad};
use remat_ops::pointwise::UnaryFn;
use remat_types::{DType, Error, ErrorKind, Result};

use super::matmul::{total, vocabulary};
use super::plan::{Builder, Failure, Operands, Plan, Value};
use super::scalars::scalar_functions;
use crate::driver::Grid;
use crate::source::{c_type, cast};

/// Threads of a block.
const THREADS: u32 = 256;
/// The most blocks of a launch; each goes on to further sequences.
const MOST_BLOCKS: u64 = 1 << 16;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    if let Some(op) = any.downcast_ref::<CtcLoss>() {
        return loss(op.blank, op.zero_infinity, o).map(Some);
    }
    let Some(op) = any.downcast_ref::<CtcLossGrad>() else { return Ok(None) };
    gradient(op.blank, op.zero_infinity, o).map(Some)
}

/// The errors of what a kernel refused: the upper bits of the position say what was read.
fn failure(o: &Operands<'_>) -> Option<Failure> {
    let (steps, classes, labels) = (o.shape(0)[0], o.shape(0)[2], o.shape(1).elems());
    let row = if o.shape(1).rank() == 2 { o.shape(1)[1] } else { labels };
    Some(Arc::new(move |position, value| {
        let at = position & ((1 << 60) - 1);
        let (kind, text) = match position >> 60 {
            0 => (ErrorKind::Value, format!("the number of steps of sequence {at} is {value}, must be 0 to {steps}")),
            1 => (ErrorKind::Value, format!("the target's length of sequence {at} is {value}, must be 0 to {row}")),
            2 => (ErrorKind::Value, format!("{labels} labels for targets of {value} labels together")),
            _ => {
                let text = format!("label {value} at position {at} of the targets is none of {classes} classes");
                (ErrorKind::Index, text)
            }
        };
        Error::new(kind, text)
    }))
}

/// Bytes of `rows` rows of the states of all sequences.
fn states_bytes(rows: usize, o: &Operands<'_>) -> usize {
    let size = total(o.x[0].dtype).0.size_bytes();
    workspace_items(rows, o.shape(1).elems(), o.shape(2).elems()).saturating_mul(size)
}

/// A kernel with the batch, the states and the failure.
fn builder(o: &Operands<'_>, blank: usize, zero_infinity: bool, text: &str) -> Result<Builder> {
    let dtype = o.x[0].dtype;
    let (sum, _) = total(dtype);
    let mut b = Builder::new("ctc");
    b.resident(2);
    b.functions(&vocabulary(dtype));
    let infinite = if sum == DType::F64 { "f64_of_bits(0x7ff0000000000000ull)" } else { "f32_of_bits(0x7f800000u)" };
    b.functions(&format!(
        "__device__ __forceinline__ total infinite() {{ return {infinite}; }}\n\
         __device__ __forceinline__ element narrow(total x) {{ return {}; }}\n",
        cast(sum, dtype, "x"),
    ));
    b.functions(&scalar_functions(sum, &[("exponential", UnaryFn::Exp), ("logarithm", UnaryFn::Log)])?);
    let mut integers = String::new();
    for (i, name) in [(1, "label"), (2, "steps"), (3, "length")] {
        let (from, value) = (o.x[i].dtype, cast(o.x[i].dtype, DType::I64, &format!("{name}s[i]")));
        integers += &format!(
            "const {} *{name}s;\n__device__ __forceinline__ i64 {name}_at(u64 i) const {{ return {value}; }}\n",
            c_type(from),
        );
    }
    let is_flat = o.shape(1).rank() == 1;
    b.functions(&format!("struct Integers {{\n{integers}}};\nconstexpr bool IS_FLAT = {is_flat};\n"));
    b.functions(include_str!("ctc.cuh"));
    b.functions(text);
    (0..4).for_each(|i| b.x(i, o.x[i].dtype));
    let s = o.shape(0);
    let row = if is_flat { 0 } else { o.shape(1)[1] };
    let sizes = [s[0], s[1], s[2], row, o.shape(1).elems(), blank];
    for (name, value) in ["steps", "sequences", "classes", "row", "labels", "blank"].into_iter().zip(sizes) {
        b.u64(name, value as u64);
    }
    b.u64("zero_infinity", u64::from(zero_infinity));
    b.parameter("total *states", Value::Workspace(0));
    b.failure();
    Ok(b)
}

/// Statements that go through the sequences and read each, before those that take one.
const SEQUENCES: &str = "const Batch b = {x0, {x1, x2, x3}, steps, sequences, classes, row, labels, blank, \
                     zero_infinity != 0};\n\
                         for (u64 i = blockIdx.x; i < sequences; i += gridDim.x) {\nSequence s;\n\
                         if (!read(b, i, failure, s)) continue;\n";

fn grid(o: &Operands<'_>) -> Grid {
    let blocks = (o.shape(2).elems() as u64).min(MOST_BLOCKS) as u32;
    Grid { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 }
}

fn loss(blank: usize, zero_infinity: bool, o: &Operands<'_>) -> Result<Plan> {
    if o.elems(0) == 0 {
        return Ok(Plan::default());
    }
    let mut b = builder(o, blank, zero_infinity, "")?;
    b.y(0, o.y[0].0);
    let body = format!(
        "{SEQUENCES}const total nll = loss(b, s, i, states);\nif (threadIdx.x == 0) y0[i] = narrow(nll);\n\
         __syncthreads();\n}}\n"
    );
    let workspace = states_bytes(FORWARD_ROWS, o);
    Ok(Plan { workspace, failure: failure(o), ..Plan::from(b.build(grid(o), &body)) })
}

fn gradient(blank: usize, zero_infinity: bool, o: &Operands<'_>) -> Result<Plan> {
    if o.elems(0) == 0 {
        return Ok(Plan::default());
    }
    let states = states_bytes(backward_rows(o.shape(0)[0]), o).next_multiple_of(8);
    let mut b = builder(o, blank, zero_infinity, include_str!("ctc_grad.cuh"))?;
    b.x(4, o.x[4].dtype);
    b.parameter("u64 *links", Value::Workspace(states));
    b.y(0, o.y[0].0);
    let body = format!("{SEQUENCES}gradient(b, s, i, wide(x4[i]), states, links, y0);\n__syncthreads();\n}}\n");
    let workspace = states.saturating_add(o.shape(1).elems().saturating_mul(8));
    Ok(Plan { workspace, failure: failure(o), ..Plan::from(b.build(grid(o), &body)) })
}
