//! Places along an axis as weighted sums of runs of places, and the transpose of that.
//!
//! A table in the workspace has the runs and their weights, which all lanes share. Sums go in the order of the places.

use remat_ops::Op;
use remat_ops::vision::{Resample, ResampleRule};
use remat_types::{DType, Result, SmallVec};

use super::optim::{real_of, vocabulary};
use super::plan::{Builder, Call, Operands, Plan, Value};
use crate::source::c_type;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    Ok(op.as_any().downcast_ref::<Resample>().map(|op| Table::new(op, o).plan()))
}

/// The most places that an output is a sum of.
fn most(op: &Resample) -> usize {
    let wide = |half: f64, scale: f64| (half * scale.max(1.0)).ceil().min(op.size as f64) as usize * 2 + 1;
    let most = match op.rule {
        ResampleRule::Linear { .. } => 2,
        ResampleRule::Cubic { .. } => 4,
        ResampleRule::SmoothLinear { scale } => wide(1.0, scale.to_f64()),
        ResampleRule::SmoothCubic { scale } => wide(2.0, scale.to_f64()),
        ResampleRule::Mean => op.size / op.out.max(1) + 2,
        ResampleRule::Sum { kernel, dilation, .. } => {
            kernel.saturating_sub(1).saturating_mul(dilation).saturating_add(1)
        }
    };
    most.min(op.size)
}

/// Runs of outputs, readers of inputs, and weights, in the workspace.
struct Table<'a, 'o> {
    op: &'a Resample,
    o: &'a Operands<'o>,
    dtype: DType,
    most: usize,
}

impl<'a, 'o> Table<'a, 'o> {
    fn new(op: &'a Resample, o: &'a Operands<'o>) -> Self {
        Table { op, o, dtype: o.y[0].0, most: most(op) }
    }

    fn readers(&self) -> usize {
        16 * self.op.out
    }

    fn weights(&self) -> usize {
        self.readers() + if self.op.transposed { 16 * self.op.size } else { 0 }
    }

    fn plan(&self) -> Plan {
        let elems = self.o.elems(0);
        if elems == 0 {
            return Plan::default();
        }
        if self.o.shape(0).elems() == 0 {
            // the gradient of what has no elements
            let mut b = Builder::new("resample_zeros");
            b.y(0, self.dtype);
            return b.each(elems, "y0[i] = 0;\n").map_or_else(Plan::default, Plan::from);
        }
        let mut calls: SmallVec<[Call; 2]> = self.taps().into_iter().collect();
        if self.op.transposed {
            let mut b = self.builder("resample_readers");
            b.parameter("u64 *readers", Value::Workspace(self.readers()));
            calls.extend(b.each(self.op.size as u64, "readers_of(i, outs, runs, readers + 2 * i);\n"));
        }
        calls.extend(self.sums());
        let workspace = self.op.out.saturating_mul(self.most).saturating_mul(real_of(self.dtype).size_bytes());
        Plan { calls, workspace: workspace.saturating_add(self.weights()), ..Plan::default() }
    }

    fn builder(&self, name: &'static str) -> Builder {
        let mut b = Builder::new(name);
        b.functions(&vocabulary(self.dtype));
        b.functions(include_str!("resample.cuh"));
        b.u64("size", self.op.size as u64);
        b.u64("outs", self.op.out as u64);
        b.u64("most", self.most as u64);
        b.parameter("u64 *runs", Value::Workspace(0));
        let real = c_type(real_of(self.dtype));
        b.parameter(format!("{real} *weights"), Value::Workspace(self.weights()));
        b
    }

    /// The runs and weights of the outputs.
    fn taps(&self) -> Option<Call> {
        let mut b = self.builder("resample_taps");
        let mut f64s = |all: &[(&str, remat_types::Scalar)]| {
            all.iter().for_each(|(name, v)| b.parameter(format!("double {name}"), Value::F64(v.to_f64())));
        };
        let call = match self.op.rule {
            ResampleRule::Linear { scale, shift } => {
                f64s(&[("scale", scale), ("shift", shift)]);
                "linear(size, i, scale, shift"
            }
            ResampleRule::Cubic { scale, shift } => {
                f64s(&[("scale", scale), ("shift", shift)]);
                "cubic(size, i, scale, shift"
            }
            ResampleRule::SmoothLinear { scale } => {
                f64s(&[("scale", scale)]);
                "smooth<false>(size, most, i, scale"
            }
            ResampleRule::SmoothCubic { scale } => {
                f64s(&[("scale", scale)]);
                "smooth<true>(size, most, i, scale"
            }
            ResampleRule::Mean => "mean(size, outs, i",
            ResampleRule::Sum { kernel, stride, dilation, before } => {
                b.u64("reach", ((kernel - 1) * dilation + 1) as u64);
                b.u64("stride", stride as u64);
                b.u64("dilation", dilation as u64);
                b.u64("before", before as u64);
                "sum(size, i, reach, stride, dilation, before"
            }
        };
        b.each(self.op.out as u64, &format!("{call}, runs + 2 * i, weights + i * most);\n"))
    }

    /// A thread for each place of the result. What has no weight does not count, infinite or not.
    fn sums(&self) -> Option<Call> {
        let mut b = self.builder("resample");
        b.operands(self.o);
        let (from, to) = match self.op.transposed {
            false => ("size", "outs"),
            true => ("outs", "size"),
        };
        b.u64("inner", self.o.y[0].1[self.op.axis + 1..].iter().product::<usize>() as u64);
        let mut body = format!(
            "const u64 row = i / inner, outer = row / {to}, at = row - outer * {to};\n\
             const auto *x = x0 + outer * {from} * inner + (i - row * inner);\nreal sum = 0;\n"
        );
        body += match self.op.transposed {
            false => {
                "const u64 start = runs[2 * at], len = runs[2 * at + 1];\nconst real *w = weights + at * most;\n\
                 for (u64 k = 0; k < len; ++k)\nif (w[k] != 0) sum += w[k] * up(x[(start + k) * inner]);\n"
            }
            true => {
                b.parameter("const u64 *readers", Value::Workspace(self.readers()));
                "const u64 last = readers[2 * at + 1];\n\
                 for (u64 o = readers[2 * at]; o < last; ++o) {\nconst u64 start = runs[2 * o];\n\
                 if (at >= start + runs[2 * o + 1]) continue;\nconst real w = weights[o * most + (at - start)];\n\
                 if (w != 0) sum += w * up(x[o * inner]);\n}\n"
            }
        };
        b.each(self.o.elems(0), &(body + "y0[i] = down(sum);\n"))
    }
}
