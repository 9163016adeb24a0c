//! Recurrent layers and their gradient through the steps: products of the inputs for many steps at once, and then one
//! kernel that goes through the steps.

use std::sync::Arc;

use remat_ops::Op;
use remat_ops::pointwise::UnaryFn;
use remat_ops::recurrent::{CellKind, Recurrent, RecurrentGrad};
use remat_types::{DType, Error, ErrorKind, Result, SmallVec};

use super::matmul::{side, vocabulary};
use super::plan::{Builder, Call, Failure, Operands, Plan, Value};
use super::scalars::scalar_functions;
use crate::driver::Grid;
use crate::source::c_type;

/// Threads of a block that goes through the steps.
const THREADS: u32 = 512;
/// Threads of a block of a product.
const PRODUCT_THREADS: u32 = 256;
/// Blocks beyond which each takes more rows, and so reads the weights less often for each.
const BUSY_BLOCKS: u64 = 128;
/// Rows of products of the inputs that are made at once, where they are not kept: bounds the workspace.
const BLOCK_ROWS: u64 = 1 << 14;
/// The most blocks along the axes of a grid that are not its first.
const MOST_BLOCKS: u64 = 65_535;

/// A layer, its operands and the workspace.
struct Layer<'a> {
    op: &'a Recurrent,
    dtype: DType,
    steps: u64,
    batch: u64,
    hidden: u64,
    width: u64,
    /// The place of the lengths among the inputs.
    lengths: Option<usize>,
    /// Bytes of the workspace that are taken.
    end: usize,
}

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    if let Some(op) = any.downcast_ref::<Recurrent>() {
        let lengths = op.lengths.then(|| o.x.len() - 1);
        return Layer::new(op, o, 2, lengths).forward(o);
    }
    let Some(grad) = any.downcast_ref::<RecurrentGrad>() else { return Ok(None) };
    let of = &grad.of;
    let lengths = of.lengths.then(|| o.x.len() - 1);
    Layer::new(of, o, if of.cell == CellKind::Lstm { 3 } else { 2 }, lengths).backward(o)
}

/// The error of a length that a kernel refused.
fn failure(steps: u64) -> Failure {
    Arc::new(move |position, value| {
        Error::new(ErrorKind::Index, format!("length {value} at position {position} is not in 0..={steps}"))
    })
}

impl<'a> Layer<'a> {
    /// `w_hh` is the place of that input; the first has steps and rows.
    fn new(op: &'a Recurrent, o: &Operands<'_>, w_hh: usize, lengths: Option<usize>) -> Self {
        let (x, w) = (o.shape(0), o.shape(w_hh));
        Layer {
            op,
            dtype: o.x[0].dtype,
            steps: x[0] as u64,
            batch: x[1] as u64,
            hidden: (w[0] / op.cell.gates()) as u64,
            width: w[1] as u64,
            lengths,
            end: 0,
        }
    }

    fn is_lstm(&self) -> bool {
        self.op.cell == CellKind::Lstm
    }

    /// Columns of a row of gates.
    fn columns(&self) -> u64 {
        self.hidden * if self.op.cell == CellKind::Gru { 4 } else { self.op.cell.gates() as u64 }
    }

    /// Rows of the weights.
    fn gate_rows(&self) -> u64 {
        self.hidden * self.op.cell.gates() as u64
    }

    /// The place of so many numbers in the workspace.
    fn take(&mut self, count: u64) -> Value {
        let at = self.end;
        self.end += (count as usize * self.dtype.size_bytes()).next_multiple_of(256);
        Value::Workspace(at)
    }

    /// Rows of a block.
    fn rows(&self) -> u64 {
        self.batch.div_ceil(BUSY_BLOCKS).clamp(1, 8).next_power_of_two()
    }

    /// A kernel that goes through the steps, with the layer as parameters.
    fn builder(&self, name: &'static str, text: &str) -> Result<Builder> {
        let mut b = Builder::new(name);
        b.resident(1);
        b.functions(&vocabulary(self.dtype));
        b.functions(include_str!("matmul.cuh"));
        b.functions(&scalar_functions(self.dtype, &[("hyperbolic", UnaryFn::Tanh), ("logistic", UnaryFn::Sigmoid)])?);
        let cell = match self.op.cell {
            CellKind::RnnTanh => 0,
            CellKind::RnnRelu => 1,
            CellKind::Lstm => 2,
            CellKind::Gru => 3,
        };
        b.functions(&format!("constexpr int CELL = {cell};\n"));
        let has = [("HAS_LENGTHS", self.lengths.is_some()), ("HAS_BIAS", self.op.bias), ("PROJECTS", self.op.project)];
        for (name, is) in has {
            b.functions(&format!("constexpr bool {name} = {is};\n"));
        }
        b.functions(include_str!("recurrent.cuh"));
        b.functions(text);
        for (name, value) in
            [("steps", self.steps), ("batch", self.batch), ("hidden", self.hidden), ("width", self.width)]
        {
            b.u64(name, value);
        }
        b.parameter("const i64 *lengths", self.lengths.map_or(Value::U64(0), Value::X));
        b.u64("is_reverse", u64::from(self.op.reverse));
        if self.lengths.is_some() {
            b.after_checks();
        }
        Ok(b)
    }

    /// Refuses lengths that are not within the steps, before a state is written.
    fn check(&self) -> Option<Call> {
        let lengths = self.lengths?;
        let mut b = Builder::new("recurrent_check");
        b.parameter("const i64 *lengths", Value::X(lengths));
        b.u64("steps", self.steps);
        b.failure();
        b.each(self.batch, "if (lengths[i] < 0 || lengths[i] > (i64)steps) refuse(failure, i, lengths[i]);\n")
    }

    fn grid(&self) -> Option<Grid> {
        let blocks = u32::try_from(self.batch.div_ceil(self.rows())).ok()?;
        Some(Grid { blocks: [blocks, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 })
    }

    fn forward(mut self, o: &Operands<'_>) -> Result<Option<Plan>> {
        let keeps = self.op.keep && self.op.cell.gates() > 1;
        let (states, batch) = (if self.is_lstm() { 2 } else { 1 }, self.batch);
        let Some(grid) = self.grid() else { return Ok(None) };
        if batch == 0 {
            return Ok(Some(Plan::default()));
        }
        let mut calls: SmallVec<[Call; 2]> = self.check().into_iter().collect();
        let bias_at = 3 + if self.op.initial { states } else { 0 };
        let project_at = bias_at + if self.op.bias { 2 } else { 0 };
        let w_hh = self.take(self.gate_rows() * self.width);
        calls.extend(self.turn(2, w_hh, self.gate_rows(), self.width));
        let (w_hr, out) = if self.op.project {
            let w_hr = self.take(self.hidden * self.width);
            calls.extend(self.turn(project_at, w_hr, self.width, self.hidden));
            (w_hr, self.take(batch * self.hidden))
        } else {
            (Value::U64(0), Value::U64(0))
        };
        let block = if keeps { self.steps } else { (BLOCK_ROWS / batch).clamp(1, self.steps.max(1)) };
        let gates = if keeps { Value::Y(1 + states) } else { self.take(block * batch * self.columns()) };
        let mut from = 0;
        loop {
            let count = block.min(self.steps - from);
            let first = if self.op.reverse { self.steps - from - count } else { from };
            match self.input_product(o, first, count, gates) {
                Ok(call) => calls.extend(call),
                Err(TooManyBlocks) => return Ok(None),
            }
            let mut b = self.builder("recurrent", include_str!("recurrent_forward.cuh"))?;
            (0..=states).for_each(|j| b.y(j, self.dtype));
            for (name, value) in [("gates", gates), ("w_hh", w_hh), ("w_hr", w_hr), ("out", out)] {
                b.parameter(format!("total *{name}"), value);
            }
            b.parameter("total *cells", if keeps && self.is_lstm() { Value::Y(4) } else { Value::U64(0) });
            for (i, name) in ["ih", "hh"].into_iter().enumerate() {
                let bias = if self.op.bias { Value::X(bias_at + i) } else { Value::U64(0) };
                b.parameter(format!("const total *{name}"), bias);
            }
            for (i, name) in ["h0", "c0"].into_iter().take(states).enumerate() {
                let initial = if self.op.initial { Value::X(3 + i) } else { Value::U64(0) };
                b.parameter(format!("const total *{name}"), initial);
            }
            for (name, value) in [("from", from), ("to", from + count), ("first", first)] {
                b.u64(name, value);
            }
            calls.push(b.build(grid, &self.forward_body()));
            from += count;
            if from >= self.steps {
                break;
            }
        }
        let failure = self.lengths.map(|_| failure(self.steps));
        Ok(Some(Plan { calls, workspace: self.end, failure }))
    }

    fn forward_body(&self) -> String {
        let (rows, c) = (self.rows(), if self.is_lstm() { "y2" } else { "0" });
        let mut starts = start("y1", "h0", "width");
        if self.is_lstm() {
            starts += &start("y2", "c0", "hidden");
        }
        format!(
            "{LAYER}const u64 b0 = blockIdx.x * {rows}, b1 = b0 + {rows} < batch ? b0 + {rows} : batch;\n\
             if (from == 0) {{\n{starts}}}\n__syncthreads();\n\
             const Biases bias = {{ih, hh}};\n\
             run_forward<{rows}>(a, bias, w_hh, w_hr, b0, from, to, first, y1, {c}, y0, gates, cells, out);\n"
        )
    }

    /// A weight, a matrix of `rows` and `columns`, the other way round, so that neighbouring threads read neighbours.
    fn turn(&self, weight: usize, to: Value, rows: u64, columns: u64) -> Option<Call> {
        let mut b = Builder::new("recurrent_weight");
        b.parameter(format!("const {} *weight", c_type(self.dtype)), Value::X(weight));
        b.parameter(format!("{} *to", c_type(self.dtype)), to);
        b.u64("rows", rows);
        b.u64("columns", columns);
        b.each(rows * columns, "to[i] = weight[i % rows * columns + i / rows];\n")
    }

    /// The products of the inputs of some steps with their weights.
    fn input_product(
        &self,
        o: &Operands<'_>,
        first: u64,
        count: u64,
        gates: Value,
    ) -> std::result::Result<Option<Call>, TooManyBlocks> {
        let (m, n, k) = (count * self.batch, self.gate_rows(), o.shape(0)[2] as u64);
        if m * n == 0 {
            return Ok(None);
        }
        let (down, across) = (side(m), side(n));
        let [rows, columns] = [m.div_ceil(16 * down), n.div_ceil(16 * across)];
        let columns = u32::try_from(columns).map_err(|_| TooManyBlocks)?;
        let mut b = Builder::new("recurrent_input");
        b.functions(&vocabulary(self.dtype));
        b.functions(include_str!("matmul.cuh"));
        b.x(0, self.dtype);
        b.x(1, self.dtype);
        b.parameter("total *gates", gates);
        let skipped = if matches!(gates, Value::Y(_)) { first * self.batch * self.columns() } else { 0 };
        let sizes = [
            ("m", m),
            ("n", n),
            ("k", k),
            ("columns", self.columns()),
            ("from", first * self.batch),
            ("skipped", skipped),
            ("hidden", self.hidden),
        ];
        for (name, value) in sizes {
            b.u64(name, value);
        }
        // rows r, z, n of a GRU's weights stand as n, r, z among the gates
        let to = if self.op.cell == CellKind::Gru {
            "(column < 2 * hidden ? column + hidden : column - 2 * hidden)"
        } else {
            "column"
        };
        let body = format!(
            "const StridedFactor a = {{x0 + from * k, (i64)k, 1}}, b = {{x1, (i64)k, 1}};\n\
             for (u64 tile = blockIdx.y; tile < (m + {height} - 1) / {height}; tile += gridDim.y)\n\
             product<{down}, {across}>(a, b, m, n, 0, k, [&](u64 row, u64 column, total sum) {{\n\
             gates[skipped + row * columns + {to}] = sum;\n}}, tile);\n",
            height = 16 * down
        );
        let threads = [PRODUCT_THREADS, 1, 1];
        Ok(Some(b.build(Grid { blocks: [columns, rows.min(MOST_BLOCKS) as u32, 1], threads, shared_bytes: 0 }, &body)))
    }

    fn backward(mut self, o: &Operands<'_>) -> Result<Option<Plan>> {
        let (is_lstm, is_gru) = (self.is_lstm(), self.op.cell == CellKind::Gru);
        let Some(grid) = self.grid() else { return Ok(None) };
        if self.batch == 0 {
            return Ok(Some(Plan::default()));
        }
        let mut at = 2;
        let mut next = |is_there: bool| {
            at += usize::from(is_there);
            if is_there { Value::X(at - 1) } else { Value::U64(0) }
        };
        let (dc, w_hh, gates) = (next(is_lstm), next(true), next(is_lstm || is_gru));
        let (cells, y) = (next(is_lstm), next(!is_lstm));
        let (initial, w_hr) = (next(self.op.initial && (is_lstm || is_gru)), next(self.op.project));
        let dm = if self.op.project { self.take(self.batch * self.hidden) } else { Value::U64(0) };
        let mut b = self.builder("recurrent_grad", include_str!("recurrent_backward.cuh"))?;
        o.y.iter().enumerate().for_each(|(j, y)| b.y(j, y.0));
        let inputs = [
            ("dy", Value::X(0)),
            ("last_dh", Value::X(1)),
            ("last_dc", dc),
            ("w_hh", w_hh),
            ("kept_gates", gates),
            ("kept_cells", cells),
            ("kept_y", y),
            ("initial", initial),
            ("w_hr", w_hr),
        ];
        for (name, value) in inputs {
            b.parameter(format!("const total *{name}"), value);
        }
        b.parameter("total *dm", dm);
        for (name, stride) in ["dy_t", "dy_b", "dy_j"].into_iter().zip(o.x[0].layout.strides()) {
            b.i64(name, *stride as i64);
        }
        let (rows, dc) = (self.rows(), if is_lstm { "y2" } else { "0" });
        let outs = if self.op.project { "y3" } else { "0" };
        let mut starts = start("y1", "last_dh", "width");
        if is_lstm {
            starts += &start("y2", "last_dc", "hidden");
        }
        let body = format!(
            "{LAYER}const u64 b0 = blockIdx.x * {rows}, b1 = b0 + {rows} < batch ? b0 + {rows} : batch;\n\
             {starts}__syncthreads();\n\
             const Kept kept = {{kept_gates, kept_cells, kept_y, initial}};\n\
             run_backward<{rows}>(a, kept, dy, dy_t, dy_b, dy_j, w_hh, w_hr, b0, y0, y1, {dc}, {outs}, dm);\n"
        );
        let failure = self.lengths.map(|_| failure(self.steps));
        let calls = self.check().into_iter().chain([b.build(grid, &body)]).collect();
        Ok(Some(Plan { calls, workspace: self.end, failure }))
    }
}

/// A product has more blocks than a grid.
struct TooManyBlocks;

/// The start of the bodies of kernels that go through the steps.
const LAYER: &str = "const Layer a = {steps, batch, hidden, width, lengths, is_reverse != 0};\n";

/// Statements that copy the rows of a block, of `width` numbers, to a state that changes; zeros of no address.
fn start(to: &str, from: &str, width: &str) -> String {
    format!(
        "for (u64 e = b0 * {width} + threadIdx.x; e < b1 * {width}; e += {THREADS}) \
         {to}[e] = {from} != 0 ? {from}[e] : 0;\n"
    )
}
