//! Softmax, cross-entropy with class labels, and their gradients.

use std::sync::Arc;

use remat_ops::Op;
use remat_ops::activation::{Softmax, SoftmaxGrad};
use remat_ops::loss::{CrossEntropy, CrossEntropyGrad, Reduction};
use remat_types::{DType, Error, ErrorKind, Result, Scalar, Shape};

use super::plan::{Builder, Call, Failure, Operands, Plan, THREADS, Value};
use super::rows::{Team, functions, real, vocabulary};
use crate::driver::Grid;
use crate::source::{c_type, cast};

/// Examples of a part of a sum of losses, and the most parts.
const PART: u64 = 4096;
const MOST_PARTS: u64 = 64;
/// Bytes of a part's sum and number of examples.
const PART_BYTES: u64 = 16;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    if let Some(op) = any.downcast_ref::<Softmax>() {
        return softmax(o, op.axis, op.log, false).map(Some);
    }
    if let Some(op) = any.downcast_ref::<SoftmaxGrad>() {
        return softmax(o, op.axis, op.log, true).map(Some);
    }
    let loss = if let Some(op) = any.downcast_ref::<CrossEntropy>() {
        Loss::new(o, op.reduction, op.smoothing, op.ignore_index)
    } else if let Some(op) = any.downcast_ref::<CrossEntropyGrad>() {
        Loss::new(o, op.reduction, op.smoothing, op.ignore_index)
    } else {
        return Ok(None);
    };
    let classes = loss.dims.c;
    let mut plan = if any.is::<CrossEntropy>() { loss.forward()? } else { loss.backward()? };
    plan.failure = refused(classes);
    Ok(Some(plan))
}

/// The error of a label that is no class.
fn refused(classes: u64) -> Option<Failure> {
    Some(Arc::new(move |position, value| {
        let text = format!("label {value} at position {position} is not one of {classes} classes");
        Error::new(ErrorKind::Index, text)
    }))
}

/// Extents around an axis.
#[derive(Clone, Copy)]
struct Dims {
    outer: u64,
    c: u64,
    inner: u64,
}

impl Dims {
    fn new(shape: &Shape, axis: usize) -> Dims {
        let product = |d: &[usize]| d.iter().product::<usize>() as u64;
        Dims { outer: product(&shape[..axis]), c: shape[axis] as u64, inner: product(&shape[axis + 1..]) }
    }

    fn columns(self) -> u64 {
        self.outer * self.inner
    }
}

/// The first element of column `i`.
const FIRST: &str = "const u64 at = i / inner * c * inner + i % inner;\n";

fn softmax(o: &Operands<'_>, axis: usize, is_log: bool, is_grad: bool) -> Result<Plan> {
    let (dtype, d) = (o.x[0].dtype, Dims::new(o.shape(0), axis));
    if o.elems(0) == 0 {
        return Ok(Plan::default());
    }
    let mut b = Builder::new(if is_grad { "softmax_grad" } else { "softmax" });
    b.resident(2);
    b.functions(&vocabulary(dtype));
    b.functions(&functions(dtype)?);
    b.functions(include_str!("softmax.cuh"));
    b.operands(o);
    b.u64("c", d.c);
    if d.inner == 1 {
        let team = Team::new(dtype, d.c, 1);
        let threads = team.threads();
        let body = match is_grad {
            true => {
                format!("softmax_grad_row<{threads}, {is_log}>(room, x0 + row * c, x1 + row * c, y0 + row * c, c);\n")
            }
            false => format!("softmax_row<{threads}, {is_log}>(room, x0 + row * c, y0 + row * c, c);\n"),
        };
        return Ok(team.each(b, d.outer, &body).into());
    }
    b.u64("inner", d.inner);
    let body = match is_grad {
        true => format!(
            "softmax_grad_column<{is_log}>(Column{{x0 + at, c, inner}}, Column{{x1 + at, c, inner}}, y0 + at);\n"
        ),
        false => format!("softmax_column<{is_log}>(Column{{x0 + at, c, inner}}, y0 + at);\n"),
    };
    Ok(b.each(d.columns(), &format!("{FIRST}{body}")).map_or_else(Plan::default, Plan::from))
}

/// A cross-entropy or its gradient.
struct Loss<'o, 'a> {
    o: &'o Operands<'a>,
    reduction: Reduction,
    smoothing: f64,
    ignored: Option<i64>,
    dims: Dims,
    dtype: DType,
}

impl<'o, 'a> Loss<'o, 'a> {
    fn new(o: &'o Operands<'a>, reduction: Reduction, smoothing: Scalar, ignored: Option<i64>) -> Loss<'o, 'a> {
        let smoothing = smoothing.to_f64();
        Loss { o, reduction, smoothing, ignored, dims: Dims::new(o.shape(0), 1), dtype: o.x[0].dtype }
    }

    /// A kernel with the sources and the labels, and the statement that begins it.
    fn builder(&self, name: &'static str) -> Result<(Builder, String)> {
        let mut b = Builder::new(name);
        b.resident(2);
        b.functions(&vocabulary(self.dtype));
        b.functions(&functions(self.dtype)?);
        b.functions(include_str!("softmax.cuh"));
        b.functions(&format!("typedef {} label;\n", c_type(self.o.x[1].dtype)));
        b.functions(include_str!("cross_entropy.cuh"));
        b.operands(self.o);
        b.u64("c", self.dims.c);
        b.u64("inner", self.dims.inner);
        b.i64("ignored", self.ignored.unwrap_or(0));
        Ok((b, format!("const Labels labels{{x1, c, {}, ignored}};\n", self.ignored.is_some())))
    }

    /// Blocks that sum up losses, and their bytes.
    fn parts(&self) -> u64 {
        self.dims.columns().div_ceil(PART).clamp(1, MOST_PARTS)
    }

    /// Where parts are in the workspace, behind the losses.
    fn parts_at(&self) -> usize {
        (self.dims.columns() as usize * real(self.dtype).size_bytes()).next_multiple_of(256)
    }

    /// Writes the sums of parts, and then what `finish` makes of `all`, their total.
    fn totals(&self, plan: &mut Plan, losses: bool, declare: impl Fn(&mut Builder), finish: &str) -> Result<()> {
        let at = if losses { self.parts_at() } else { 0 };
        plan.workspace = plan.workspace.max(at + ((self.parts() + 1) * PART_BYTES) as usize);
        let (mut b, labels) = self.builder("loss_parts")?;
        b.parameter("Loss *parts", Value::Workspace(at));
        b.u64("examples", self.dims.columns());
        if losses {
            b.parameter("const real *each", Value::Workspace(0));
        }
        let each = if losses { "each" } else { "(const real *)0" };
        let body = format!("{labels}loss_parts(labels, examples, {each}, parts);\n");
        let grid = Grid { blocks: [self.parts() as u32, 1, 1], threads: [THREADS, 1, 1], shared_bytes: 0 };
        plan.calls.push(b.build(grid, &body));
        let (mut b, _) = self.builder("loss_total")?;
        b.parameter("const Loss *parts", Value::Workspace(at));
        b.u64("count", self.parts());
        declare(&mut b);
        let body = format!("const Loss all = loss_total(parts, count);\n{finish}");
        plan.calls.push(b.build(Grid { blocks: [1, 1, 1], threads: [1, 1, 1], shared_bytes: 0 }, &body));
        Ok(())
    }

    fn forward(&self) -> Result<Plan> {
        let mut plan = Plan::default();
        if self.o.elems(0) == 0 {
            return Ok(plan);
        }
        let is_each = self.reduction == Reduction::None;
        if self.dims.columns() > 0 {
            let (mut b, labels) = self.builder("cross_entropy")?;
            if !is_each {
                plan.workspace = self.parts_at();
                b.parameter("real *each", Value::Workspace(0));
            }
            let put = if is_each { "y0[i] = down(loss);\n" } else { "each[i] = loss;\n" };
            b.parameter("double smoothing", Value::F64(self.smoothing));
            b.failure();
            let (row, column) = (format!("if (threadIdx.x % TEAM == 0) {{\n{put}}}\n"), put.to_owned());
            plan.calls.extend(self.over_columns(
                b,
                &labels,
                &format!(
                    "const real loss =\n\
                     own == ~0ull ? (real)0 : loss_row<TEAM>(room, x0 + i * c, c, own, smoothing);\n{row}"
                ),
                &format!(
                    "const real loss =\n\
                     own == ~0ull ? (real)0 : loss_column(Column{{x0 + at, c, inner}}, own, smoothing);\n{column}"
                ),
            ));
        }
        if !is_each {
            let over = if self.reduction == Reduction::Mean { "(double)all.count" } else { "1.0" };
            self.totals(&mut plan, true, |_| (), &format!("y0[0] = down64(all.sum / {over});\n"))?;
        }
        Ok(plan)
    }

    fn backward(&self) -> Result<Plan> {
        let mut plan = Plan::default();
        if self.o.elems(0) == 0 {
            return Ok(plan);
        }
        let is_mean = self.reduction == Reduction::Mean;
        if is_mean {
            let at = (self.parts() * PART_BYTES) as usize;
            let declare = |b: &mut Builder| b.parameter("double *inverse", Value::Workspace(at));
            self.totals(&mut plan, false, declare, "*inverse = 1.0 / (double)all.count;\n")?;
        }
        let (mut b, labels) = self.builder("cross_entropy_grad")?;
        if is_mean {
            b.parameter("const double *inverse", Value::Workspace((self.parts() * PART_BYTES) as usize));
        }
        let c = self.dims.c.max(1) as f64;
        b.parameter("double miss", Value::F64(self.smoothing / c));
        b.parameter("double spared", Value::F64(self.smoothing - self.smoothing / c));
        b.failure();
        let which = if self.reduction == Reduction::None { "i" } else { "0" };
        let inverse = if is_mean { "(real)*inverse" } else { "(real)1" };
        let weight = format!("const real w = up(x2[{which}]) * {inverse};\n");
        let begin = format!("{labels}const Smoothing smoothing{{(real)miss, (real)spared}};\n");
        let zero = cast(DType::F64, self.dtype, "0.0");
        plan.calls.extend(self.over_columns(
            b,
            &begin,
            &format!(
                "if (own == ~0ull) {{\n\
                 for (u64 k = threadIdx.x % TEAM; k < c; k += TEAM) y0[i * c + k] = {zero};\nreturn;\n}}\n\
                 {weight}loss_grad_row<TEAM>(room, x0 + i * c, y0 + i * c, c, own, w, smoothing);\n"
            ),
            &format!(
                "if (own == ~0ull) {{\nfor (u64 k = 0; k < c; ++k) y0[at + k * inner] = {zero};\ncontinue;\n}}\n\
                 {weight}loss_grad_column(Column{{x0 + at, c, inner}}, y0 + at, own, w, smoothing);\n"
            ),
        ));
        Ok(plan)
    }

    /// A kernel over examples `i` with class `own`, all ones for none. It refuses labels that are no class.
    fn over_columns(&self, b: Builder, begin: &str, row: &str, column: &str) -> Option<Call> {
        let own = "const u64 own = labels.of(i);\n";
        if self.dims.inner != 1 {
            let body = format!("{FIRST}{begin}labels.check(i, failure);\n{own}{column}");
            return b.each(self.dims.columns(), &body);
        }
        let team = Team::new(self.dtype, self.dims.c, 1);
        let threads = team.threads();
        let body = format!(
            "constexpr int TEAM = {threads};\nconst u64 i = row;\n{begin}\
             if (threadIdx.x % TEAM == 0) labels.check(i, failure);\n{own}{row}"
        );
        Some(team.each(b, self.dims.outer, &body))
    }
}
