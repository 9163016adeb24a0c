//! Optimiser steps whose length depends on norms of the whole parameter: LAMB and Adafactor.

use remat_ops::Op;
use remat_ops::optim::{AdafactorUpdate, LambUpdate};
use remat_types::{DType, Result, SmallVec};

use super::optim::{Rule, bad_step, named, numbers, of_moments, real_of, vocabulary};
use super::plan::{Builder, Call, Operands, Plan, THREADS, Value, grid};
use crate::source::{c_type, cast};

/// Elements whose squares a block sums.
const CHUNK: u64 = 4096;
const DOUBLE: usize = size_of::<f64>();

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    if let Some(op) = op.as_any().downcast_ref::<LambUpdate>() {
        return Ok(Some(lamb(op, o)));
    }
    Ok(op.as_any().downcast_ref::<AdafactorUpdate>().map(|op| Adafactor::new(op, o).plan()))
}

/// A parameter of doubles in the workspace.
fn doubles(b: &mut Builder, name: &str, at: usize) {
    b.parameter(format!("double *{name}"), Value::Workspace(at * DOUBLE));
}

/// A step of LAMB, which is several kernels. The workspace is the step's factor, and two sums of each chunk.
struct LambStep<'a, 'o> {
    o: &'a Operands<'o>,
    dtype: DType,
    rule: Rule,
}

/// The step of an element without its length.
const DIRECTION: &str = "first * m / (root(v) * scale + e) + l2 * p";

fn lamb(op: &LambUpdate, o: &Operands<'_>) -> Plan {
    let rule = Rule {
        lr: 2,
        step: Some(3),
        numbers: numbers([("beta1", op.beta1), ("beta2", op.beta2), ("eps", op.eps), ("decay", op.weight_decay)]),
        reals: [of_moments(), named([("l2", "decay")])].concat(),
        rates: named([
            ("first", "1.0 / (1.0 - whole_power(beta1, step))"),
            ("scale", "1.0 / __dsqrt_rn(1.0 - whole_power(beta2, step))"),
        ]),
        ..Rule::default()
    };
    let chunks = o.elems(0).div_ceil(CHUNK);
    if chunks == 0 {
        return Plan::default();
    }
    let step = LambStep { o, dtype: o.y[0].0, rule };
    Plan {
        calls: SmallVec::from_iter([step.moments(chunks), step.length(chunks), step.step(chunks)]),
        workspace: DOUBLE * (1 + 2 * chunks as usize),
        failure: bad_step(),
    }
}

impl LambStep<'_, '_> {
    fn begin(&self, name: &'static str, rule: &Rule) -> (Builder, String) {
        let mut b = Builder::new(name);
        b.functions(include_str!("norms.cuh"));
        let text = rule.begin(&mut b, self.o);
        b.u64("n", self.o.elems(0));
        (b, text)
    }

    /// The moments, and the sums of squares of parameter and direction.
    fn moments(&self, chunks: u64) -> Call {
        let (mut b, text) = self.begin("lamb_moments", &self.rule);
        [0, 1, 4, 5].into_iter().for_each(|i| b.x(i, self.dtype));
        [1, 2].into_iter().for_each(|j| b.y(j, self.dtype));
        doubles(&mut b, "parts", 1);
        let body = format!(
            "{text}chunk_sums<{CHUNK}>(n, parts, [&](u64 i, double &of_p, double &of_r) {{\n\
             const real p = up(x0[i]), g = up(x1[i]);\n\
             y1[i] = down(b1 * up(x4[i]) + c1 * g);\n\
             y2[i] = down(b2 * up(x5[i]) + c2 * (g * g));\n\
             const real m = up(y1[i]), v = up(y2[i]);\n\
             of_p = (double)p;\nof_r = (double)({DIRECTION});\n}});\n"
        );
        b.build(grid(chunks, THREADS), &body)
    }

    /// The factor of the direction.
    fn length(&self, chunks: u64) -> Call {
        let rule = Rule { lr: 2, step: Some(3), ..Rule::default() };
        let (mut b, text) = self.begin("lamb_length", &rule);
        b.u64("chunks", chunks);
        doubles(&mut b, "factor", 0);
        doubles(&mut b, "parts", 1);
        let body = format!(
            "{text}double of_p, of_r;\ntotal_sums(chunks, parts, of_p, of_r);\n\
             if (threadIdx.x == 0) *factor = lr * (of_p > 0.0 && of_r > 0.0 ? __dsqrt_rn(of_p / of_r) : 1.0);\n"
        );
        b.build(grid(1, THREADS), &body)
    }

    fn step(&self, chunks: u64) -> Call {
        let (mut b, text) = self.begin("lamb_step", &self.rule);
        b.x(0, self.dtype);
        [0, 1, 2].into_iter().for_each(|j| b.y(j, self.dtype));
        doubles(&mut b, "factor", 0);
        let body = format!(
            "{text}const real rate = (real)*factor;\n\
             const u64 end = n - (u64)blockIdx.x * {CHUNK} < {CHUNK} ? n : ((u64)blockIdx.x + 1) * {CHUNK};\n\
             for (u64 i = (u64)blockIdx.x * {CHUNK} + threadIdx.x; i < end; i += blockDim.x) {{\n\
             const real p = up(x0[i]), m = up(y1[i]), v = up(y2[i]);\n\
             y0[i] = down(p - rate * ({DIRECTION}));\n}}\n"
        );
        b.build(grid(chunks, THREADS), &body)
    }
}

/// Places in Adafactor's workspace, of doubles: the share of the new gradient, the factors of the step and the
/// parameter, the mean of each matrix's rows, two sums of each chunk.
const FACTORS: usize = 1;
const MEANS: usize = 3;

struct Adafactor<'a, 'o> {
    op: &'a AdafactorUpdate,
    o: &'a Operands<'o>,
    dtype: DType,
    eps1: f64,
    elems: u64,
    /// Matrices, and rows and columns of each; of a moment that is not factored one row.
    count: u64,
    rows: u64,
    columns: u64,
}

impl<'a, 'o> Adafactor<'a, 'o> {
    fn new(op: &'a AdafactorUpdate, o: &'a Operands<'o>) -> Self {
        let dtype = o.y[0].0;
        let (count, rows, columns) = match (op.factored, o.y[0].1.dims()) {
            (true, [outer @ .., rows, columns]) => {
                (outer.iter().product::<usize>() as u64, *rows as u64, *columns as u64)
            }
            _ => (1, 1, o.elems(0)),
        };
        let eps1 = op.eps1.map_or_else(|| epsilon_of(dtype), |e| e.to_f64());
        Adafactor { op, o, dtype, eps1, elems: o.elems(0), count, rows, columns }
    }

    fn chunks(&self) -> u64 {
        self.elems.div_ceil(CHUNK)
    }

    fn means(&self) -> usize {
        if self.op.factored { self.count as usize } else { 0 }
    }

    fn plan(&self) -> Plan {
        if self.elems == 0 {
            return Plan { calls: self.copies(), ..Plan::default() };
        }
        let mut calls: SmallVec<[Call; 2]> = SmallVec::from_iter([self.share()]);
        if self.op.factored {
            calls.extend([self.of_rows(), self.of_columns(), self.of_matrices()]);
        }
        calls.extend([self.sums(), self.factors(), self.step()]);
        let doubles = self.means().saturating_add(MEANS + 2 * self.chunks() as usize);
        let workspace = doubles.saturating_mul(DOUBLE);
        Plan { calls, workspace, failure: bad_step() }
    }

    /// The moments of a parameter without elements, which stay.
    fn copies(&self) -> SmallVec<[Call; 2]> {
        let copy = |j: usize| {
            let mut b = Builder::new("adafactor_copy");
            b.x(3 + j, self.dtype);
            b.y(j, self.dtype);
            b.each(self.o.elems(j), &format!("y{j}[i] = x{}[i];\n", 3 + j))
        };
        (1..self.o.y.len()).filter_map(copy).collect()
    }

    /// A kernel's beginning: the vocabulary, and the extents.
    fn builder(&self, name: &'static str) -> Builder {
        let mut b = Builder::new(name);
        // a share of 0 would not keep a moment: its product with a gradient that is not finite is NaN
        b.after_checks();
        b.functions(&vocabulary(self.dtype));
        b.functions(include_str!("norms.cuh"));
        // divisions of 32 bits are much faster
        let index = if self.elems < 1 << 31 { "u32" } else { "u64" };
        b.functions(&format!(
            "typedef {index} place;\n__device__ __forceinline__ element blend(element old, double fresh, double x) {{\n\
             const double before = (double)up(old);\nconst double y = before + fresh * (x - before);\nreturn {};\n}}\n",
            cast(DType::F64, self.dtype, "y")
        ));
        for (name, v) in [("n", self.elems), ("rows", self.rows), ("columns", self.columns), ("count", self.count)] {
            b.u64(name, v);
        }
        b
    }

    /// The share of the new gradient. Of an invalid step there is none.
    fn share(&self) -> Call {
        let mut b = Builder::new("adafactor_share");
        b.functions(include_str!("power.cuh"));
        b.x(3, DType::I64);
        doubles(&mut b, "share", 0);
        b.failure();
        b.parameter("double exponent", Value::F64(self.op.beta2_decay.to_f64()));
        let body = "const i64 number = x3[0];\n*share = number < 1 ? 0.0 : general_power((double)number, exponent);\n\
                    if (number < 1) refuse(failure, 0, number);\n";
        b.build(grid(1, 1), body)
    }

    /// A warp for each row.
    fn of_rows(&self) -> Call {
        let mut b = self.builder("adafactor_rows");
        [1, 4].into_iter().for_each(|i| b.x(i, self.dtype));
        b.y(1, self.dtype);
        doubles(&mut b, "share", 0);
        let body = "const u64 line = (u64)blockIdx.x * 8 + threadIdx.x / 32;\nif (line >= count * rows) return;\n\
                    double sum = 0.0;\n\
                    for (u64 c = threadIdx.x % 32; c < columns; c += 32) {\n\
                    const double g = (double)up(x1[line * columns + c]);\nsum += g * g;\n}\n\
                    sum = warp_sum(sum);\n\
                    if (threadIdx.x % 32 == 0) y1[line] = blend(x4[line], *share, sum / (double)columns);\n";
        b.build(grid((self.count * self.rows).div_ceil(8), THREADS), body)
    }

    /// A block for 32 columns of a matrix, in which every eighth row is summed by the same threads.
    fn of_columns(&self) -> Call {
        let mut b = self.builder("adafactor_columns");
        [1, 5].into_iter().for_each(|i| b.x(i, self.dtype));
        b.y(2, self.dtype);
        doubles(&mut b, "share", 0);
        let tiles = self.columns.div_ceil(32);
        b.u64("tiles", tiles);
        let body = "__shared__ double sums[8][32];\n\
                    const u64 matrix = blockIdx.x / tiles;\n\
                    const u64 c = blockIdx.x % tiles * 32 + threadIdx.x % 32, first = threadIdx.x / 32;\n\
                    double sum = 0.0;\n\
                    if (c < columns) {\nfor (u64 r = first; r < rows; r += 8) {\n\
                    const double g = (double)up(x1[(matrix * rows + r) * columns + c]);\nsum += g * g;\n}\n}\n\
                    sums[first][threadIdx.x % 32] = sum;\n__syncthreads();\n\
                    if (first != 0 || c >= columns) return;\n\
                    for (int k = 1; k < 8; ++k) sum += sums[k][threadIdx.x];\n\
                    y2[matrix * columns + c] = blend(x5[matrix * columns + c], *share, sum / (double)rows);\n";
        b.build(grid(self.count * tiles, THREADS), body)
    }

    /// A block for the mean of a matrix's rows.
    fn of_matrices(&self) -> Call {
        let mut b = self.builder("adafactor_means");
        b.y(1, self.dtype);
        doubles(&mut b, "means", MEANS);
        b.parameter("double eps1", Value::F64(self.eps1));
        let body = "double sum = 0.0, none = 0.0;\n\
                    for (u64 r = threadIdx.x; r < rows; r += 256) sum += (double)up(y1[blockIdx.x * rows + r]);\n\
                    block_sums(sum, none);\n\
                    if (threadIdx.x == 0) means[blockIdx.x] = fmax(sum / (double)rows, eps1);\n";
        b.build(grid(self.count, THREADS), body)
    }

    /// Statements that find the gradient `g` and its second moment `v` at `i`.
    fn moment(&self, b: &mut Builder) -> &'static str {
        b.x(1, self.dtype);
        b.y(1, self.dtype);
        b.parameter("double least2", Value::F64(self.eps1 * self.eps1));
        if !self.op.factored {
            return "const real g = up(x1[i]), v = up(y1[i]);\n";
        }
        b.y(2, self.dtype);
        doubles(b, "means", MEANS);
        "const place line = (place)i / (place)columns, matrix = line / (place)rows;\n\
         const real g = up(x1[i]);\n\
         const real of_row = (real)((double)up(y1[line]) / means[matrix]);\n\
         const real v = of_row * up(y2[(u64)matrix * columns + ((place)i - line * (place)columns)]);\n"
    }

    /// The sums of squares. A moment that is not factored is renewed on the way.
    fn sums(&self) -> Call {
        let mut b = self.builder("adafactor_sums");
        b.x(0, self.dtype);
        doubles(&mut b, "parts", MEANS + self.means());
        let mut renew = "";
        if !self.op.factored {
            b.x(4, self.dtype);
            doubles(&mut b, "share", 0);
            renew = "const double fresh = (double)up(x1[i]);\ny1[i] = blend(x4[i], *share, fresh * fresh);\n";
        }
        let moment = self.moment(&mut b);
        let body = format!(
            "const real least = (real)least2;\n\
             chunk_sums<{CHUNK}>(n, parts, [&](u64 i, double &of_u, double &of_p) {{\n{renew}{moment}\
             of_u = (double)(g / root(larger(v, least)));\nof_p = (double)up(x0[i]);\n}});\n"
        );
        b.build(grid(self.chunks(), THREADS), &body)
    }

    /// The factors of the step and of the parameter.
    fn factors(&self) -> Call {
        let mut b = self.builder("adafactor_factors");
        b.x(2, self.o.x[2].dtype);
        b.x(3, DType::I64);
        doubles(&mut b, "factors", FACTORS);
        doubles(&mut b, "parts", MEANS + self.means());
        b.u64("chunks", self.chunks());
        for (name, v) in numbers([("eps2", self.op.eps2), ("d", self.op.d), ("decay", self.op.weight_decay)]) {
            b.parameter(format!("double {name}"), Value::F64(v));
        }
        let body = "double of_u, of_p;\ntotal_sums(chunks, parts, of_u, of_p);\nif (threadIdx.x != 0) return;\n\
                    const double lr = (double)x2[0], step = (double)x3[0];\n\
                    const double alpha = fmax(eps2, __dsqrt_rn(of_p / (double)n)) * fmin(lr, 1.0 / __dsqrt_rn(step));\n\
                    factors[0] = alpha / fmax(__dsqrt_rn(of_u / (double)n) / d, 1.0);\n\
                    factors[1] = 1.0 - lr * decay;\n";
        b.build(grid(1, THREADS), body)
    }

    fn step(&self) -> Call {
        let mut b = self.builder("adafactor_step");
        b.x(0, self.dtype);
        b.y(0, self.dtype);
        doubles(&mut b, "factors", FACTORS);
        let moment = self.moment(&mut b);
        b.x(3, DType::I64);
        let real = c_type(real_of(self.dtype));
        let body = format!(
            "if (x3[0] < 1) return;\n\
             const {real} least = (real)least2, rate = (real)factors[0], keep = (real)factors[1];\n\
             const u64 end = n - (u64)blockIdx.x * {CHUNK} < {CHUNK} ? n : ((u64)blockIdx.x + 1) * {CHUNK};\n\
             for (u64 i = (u64)blockIdx.x * {CHUNK} + threadIdx.x; i < end; i += blockDim.x) {{\n{moment}\
             y0[i] = down(up(x0[i]) * keep - rate * (g / root(larger(v, least))));\n}}\n"
        );
        b.build(grid(self.chunks(), THREADS), &body)
    }
}

/// The distance from 1 to the next number of a float dtype.
fn epsilon_of(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F32 => f64::from(f32::EPSILON),
        _ => f64::EPSILON,
    }
}
