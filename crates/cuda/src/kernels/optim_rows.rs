//! Optimiser steps by gradients that name the rows they have. Other rows stay.
//!
//! The indices of all parts of a gradient are sorted together, so each row is summed by the threads of its first index.

use std::sync::Arc;

use remat_ops::Op;
use remat_ops::optim::{SgdRowsUpdate, SparseAdamUpdate};
use remat_types::{DType, Result};

use super::index::Range;
use super::optim::{MOST_BLOCKS, Rule, named, numbers, step_error};
use super::plan::{Builder, Call, Failure, Operands, Plan, THREADS, grid};
use super::scatter::copy;
use super::sorting::Sorting;

/// Parts of a gradient that a kernel takes: each has two arguments.
const MOST_PARTS: usize = 64;

/// See [`super::Family`].
pub(super) fn plan(op: &dyn Op, o: &Operands<'_>) -> Result<Option<Plan>> {
    let any = op.as_any();
    let (rule, parts) = if let Some(op) = any.downcast_ref::<SgdRowsUpdate>() {
        (sgd(op), 2)
    } else if let Some(op) = any.downcast_ref::<SparseAdamUpdate>() {
        (sparse_adam(op), 5)
    } else {
        return Ok(None);
    };
    if o.x.len() - parts > 2 * MOST_PARTS {
        return Ok(None);
    }
    Ok(Some(Rows { rule, o, parts }.plan()))
}

fn sgd(op: &SgdRowsUpdate) -> Rule {
    Rule {
        lr: 1,
        numbers: vec![("sense", if op.maximize { -1.0 } else { 1.0 })],
        reals: named([("rate", "lr"), ("sign", "sense")]),
        // a decay of 0, as the dense step has it
        body: "p = p - rate * (sign * g + (real)0 * p);\n".to_owned(),
        ..Rule::default()
    }
}

fn sparse_adam(op: &SparseAdamUpdate) -> Rule {
    let body = "g = sign * g;\nm = m + c1 * (g - m);\nv = v + c2 * (g * g - v);\np = p - rate * m / (root(v) + e);\n";
    let mut numbers = numbers([("beta1", op.beta1), ("beta2", op.beta2), ("eps", op.eps)]);
    numbers.push(("sense", if op.maximize { -1.0 } else { 1.0 }));
    Rule {
        lr: 1,
        step: Some(2),
        states: vec![("m", 3, 1), ("v", 4, 2)],
        numbers,
        reals: named([("c1", "1.0 - beta1"), ("c2", "1.0 - beta2"), ("e", "eps"), ("sign", "sense")]),
        rates: named([("rate", "lr * __dsqrt_rn(1.0 - whole_power(beta2, step)) / (1.0 - whole_power(beta1, step))")]),
        body: body.to_owned(),
        ..Rule::default()
    }
}

/// The range of positions of each part in a refusal, behind that of the step.
const PART: u64 = 1 << 40;

/// The error of a step below 1, whose position is 0, or of an index.
fn refused(ranges: Vec<Range>) -> Option<Failure> {
    let any = Range::new(0, DType::I64);
    Some(Arc::new(move |position, value| match position.checked_sub(1) {
        None => step_error(value),
        Some(at) => ranges.get((at / PART) as usize).copied().unwrap_or(any).error(at % PART, value),
    }))
}

struct Rows<'a, 'o> {
    rule: Rule,
    o: &'a Operands<'o>,
    /// The first input that is a pair's.
    parts: usize,
}

impl Rows<'_, '_> {
    /// The input that has the indices of each part, and the positions of that among all.
    fn ranges(&self) -> Vec<(usize, u64, u64)> {
        let mut end = 0;
        (self.parts..self.o.x.len())
            .step_by(2)
            .map(|i| {
                let first = end;
                end += self.o.shape(i).elems() as u64;
                (i, first, end)
            })
            .collect()
    }

    fn plan(&self) -> Plan {
        let (rows, ranges) = (self.o.shape(0)[0] as u64, self.ranges());
        let count = ranges.last().map_or(0, |r| r.2);
        let of = |r: &(usize, u64, u64)| Range::new(rows, self.o.x[r.0].dtype);
        let mut plan = Plan { failure: refused(ranges.iter().map(of).collect()), ..Plan::default() };
        let all = std::iter::once((0, 0)).chain(self.rule.states.iter().map(|s| (s.1, s.2)));
        plan.calls.extend(all.filter_map(|(x, y)| copy(self.o, x, y)));
        // what is refused comes after all rows
        let sorting = Sorting::new(1, count, Sorting::bits_of(rows), 0);
        plan.workspace = sorting.end();
        if self.o.elems(0) > 0 && count > 0 {
            plan.calls.extend(self.keys(&sorting, &ranges, rows));
            plan.calls.extend(sorting.calls());
            plan.calls.push(self.step(&sorting, &ranges, count, rows));
        }
        plan
    }

    fn keys(&self, sorting: &Sorting, ranges: &[(usize, u64, u64)], rows: u64) -> Vec<Call> {
        let keys = |(part, (i, first, end)): (usize, &(usize, u64, u64))| {
            let mut b = Builder::new("rows_keys");
            b.x(*i, self.o.x[*i].dtype);
            b.parameter(format!("{} *keys", sorting.key()), sorting.keys());
            b.u64("first", *first);
            b.u64("rows", rows);
            b.u64("before", part as u64 * PART + 1);
            b.failure();
            let body = format!(
                "const u64 at = (u64)x{i}[i];\nif (at >= rows) refuse(failure, before + i, (i64)at);\n\
                 keys[first + i] = ({})(at < rows ? at : rows);\n",
                sorting.key()
            );
            b.each(end - first, &body)
        };
        ranges.iter().enumerate().filter_map(keys).collect()
    }

    /// Each part is summed in order and rounded, and then added to those before it, as whole gradients are.
    fn step(&self, sorting: &Sorting, ranges: &[(usize, u64, u64)], count: u64, rows: u64) -> Call {
        let (dtype, inner) = (self.o.y[0].0, self.o.elems(0) / rows);
        let mut b = Builder::new("rows");
        b.after_checks();
        let mut text = self.rule.begin(&mut b, self.o);
        b.parameter(format!("const {} *keys", sorting.key()), sorting.sorted());
        b.parameter(format!("const {} *order", sorting.place()), sorting.order());
        for (name, v) in [("count", count), ("rows", rows), ("inner", inner)] {
            b.u64(name, v);
        }
        text += "const u64 stride = (u64)gridDim.x * blockDim.x;\n\
                 for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count * inner; i += stride) {\n\
                 u64 k = i / inner;\nconst u64 c = i - k * inner, row = keys[k], at = row * inner + c;\n\
                 if (row >= rows || (k > 0 && keys[k - 1] == row)) continue;\nreal g = 0;\n";
        for (part, (i, first, end)) in ranges.iter().enumerate() {
            b.x(i + 1, dtype);
            b.u64(format!("first{part}"), *first);
            b.u64(format!("end{part}"), *end);
            let total = if part == 0 { "up(down(part))" } else { "up(down(g + up(down(part))))" };
            text += &format!(
                "{{\nreal part = 0;\nfor (; k < count && keys[k] == row && order[k] < end{part}; ++k) \
                 part += up(x{}[(order[k] - first{part}) * inner + c]);\ng = {total};\n}}\n",
                i + 1
            );
        }
        let (mut load, mut store) = (String::new(), String::new());
        for (name, y) in std::iter::once(("p", 0)).chain(self.rule.states.iter().map(|s| (s.0, s.2))) {
            b.y(y, dtype);
            load += &format!("real {name} = up(y{y}[at]);\n");
            store += &format!("y{y}[at] = down({name});\n");
        }
        text += &format!("{load}{}{store}}}\n", self.rule.body);
        let blocks = count.saturating_mul(inner).div_ceil(u64::from(THREADS)).min(MOST_BLOCKS);
        b.build(grid(blocks, THREADS), &text)
    }
}
