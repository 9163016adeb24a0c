//! Recurrent layers. The standard's gates stand in another order: `i o f c` of an LSTM, `z r h` of a GRU.

use remat_ops::recurrent::{CellKind, Recurrent};
use remat_types::{DType, Fact, HostTensor, Result};

use super::{Row, Rule, row};
use crate::export::attribute as attr;
use crate::export::emit::{Name, declared_fact};
use crate::export::lower::{Cx, left_out};

pub(super) const ROWS: &[Row] = &[row::<Recurrent>()];

/// For each gate of the standard's order the one of the op's.
fn order(cell: CellKind) -> &'static [usize] {
    match cell {
        CellKind::RnnTanh | CellKind::RnnRelu => &[0],
        CellKind::Lstm => &[0, 3, 1, 2],
        CellKind::Gru => &[1, 0, 2],
    }
}

/// Rows of gates in the standard's order, with the axis of directions in front.
fn gates(c: &mut Cx<'_>, cell: CellKind, x: &Name, hidden: usize) -> Result<Name> {
    let order = order(cell);
    let own = match order.len() {
        1 => x.clone(),
        _ => {
            let rows: Vec<usize> = order.iter().flat_map(|g| g * hidden..(g + 1) * hidden).collect();
            let rows = c.sizes(&rows)?;
            c.with("Gather", &[x, &rows], vec![attr::int("axis", 0)])
        }
    };
    c.unsqueeze(&own, 0)
}

impl Rule for Recurrent {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let states = if self.cell == CellKind::Lstm { 2 } else { 1 };
        if (1 + states..c.y.len()).any(|j| c.wants(j)) {
            return Err(left_out("gates that a gradient reads; an exported model is for inference"));
        }
        if self.project {
            return projected(self, c);
        }
        let (x, hidden) = (c.x(0)?, c.dims(2)?[1]);
        let (w, r) = (c.x(1)?, c.x(2)?);
        let (w, r) = (gates(c, self.cell, &w, hidden)?, gates(c, self.cell, &r, hidden)?);
        let mut at = 3;
        let mut initial = Vec::new();
        if self.initial {
            for i in 0..states {
                let s = c.x(at + i)?;
                initial.push(c.unsqueeze(&s, 0)?);
            }
            at += states;
        }
        let mut bias = None;
        if self.bias {
            let (b, rb) = (c.x(at)?, c.x(at + 1)?);
            let (b, rb) = (gates(c, self.cell, &b, hidden)?, gates(c, self.cell, &rb, hidden)?);
            bias = Some(c.with("Concat", &[&b, &rb], vec![attr::int("axis", 1)]));
            at += 2;
        }
        let mut lengths = None;
        if self.lengths {
            let l = c.x(at)?;
            lengths = Some(c.cast(&l, DType::I32));
        }
        let mut attributes = vec![attr::size("hidden_size", hidden)];
        if self.reverse {
            attributes.push(attr::text("direction", "reverse"));
        }
        let op = match self.cell {
            CellKind::Lstm => "LSTM",
            CellKind::Gru => {
                attributes.push(attr::flag("linear_before_reset", true));
                "GRU"
            }
            CellKind::RnnTanh => "RNN",
            CellKind::RnnRelu => {
                attributes.push(attr::texts("activations", &["Relu"]));
                "RNN"
            }
        };
        let mut inputs = vec![Some(&x), Some(&w), Some(&r), bias.as_ref(), lengths.as_ref()];
        inputs.extend(initial.iter().map(Some));
        while inputs.last().is_some_and(Option::is_none) {
            inputs.pop();
        }
        let y = c.nodes(op, &inputs, attributes, 1 + states);
        let mut all = vec![c.squeeze(&y[0], 1)?];
        for s in &y[1..] {
            all.push(c.squeeze(s, 0)?);
        }
        Ok(all)
    }
}

/// An LSTM with a projection, which the standard has not: its steps as a `Scan`.
fn projected(op: &Recurrent, c: &mut Cx<'_>) -> Result<Vec<Name>> {
    let (x, dtype) = (c.x(0)?, c.dtype(0)?);
    let ([t, b, _], [rows, width]) = (extents(&c.dims(0)?)?, extents(&c.dims(2)?)?);
    let hidden = rows / 4;
    let mut inputs = c.all()[1..].to_vec().into_iter();
    let mut next = || inputs.next().ok_or_else(|| left_out("an input is missing"));
    let (w, r) = (next()?, next()?);
    let initial = if op.initial { Some([next()?, next()?]) } else { None };
    let bias = if op.bias { Some([next()?, next()?]) } else { None };
    let project = next()?;
    let lengths = if op.lengths { Some(next()?) } else { None };
    let zero = c.number(dtype, 0.0);
    let start = match initial {
        Some(given) => given,
        None => [c.expand(&zero, &[b, width])?, c.expand(&zero, &[b, hidden])?],
    };
    // what the inputs add to the gates, of all steps at once
    let w = c.transpose(&w, &[1, 0]);
    let mut given = c.op("MatMul", &[&x, &w]);
    if let Some([of_input, of_state]) = bias {
        let sum = c.op("Add", &[&of_input, &of_state]);
        given = c.op("Add", &[&given, &sum]);
    }
    let (r, project) = (c.transpose(&r, &[1, 0]), c.transpose(&project, &[1, 0]));
    let mut scanned = vec![given];
    if let Some(lengths) = lengths {
        let steps: Vec<i64> = (0..t as i64).collect();
        let steps = c.tensor(HostTensor::from_slice(&steps, [t, 1, 1])?);
        let lengths = c.unsqueeze(&lengths, 1)?;
        scanned.push(c.op("Less", &[&steps, &lengths]));
    }
    let of = |dims: &[usize], dtype| Fact::new(dtype, dims);
    let [h, cell, gates, counts] = ["h", "c", "gates", "counts"].map(|name| c.unique(name));
    let (state, inner) = (of(&[b, width], dtype), of(&[b, hidden], dtype));
    let mut declared =
        vec![declared_fact(&h, &state), declared_fact(&cell, &inner), declared_fact(&gates, &of(&[b, rows], dtype))];
    if scanned.len() > 1 {
        declared.push(declared_fact(&counts, &of(&[b, 1], DType::Bool)));
    }
    c.begin();
    let kept = c.op("MatMul", &[&h, &r]);
    let sum = c.op("Add", &[&gates, &kept]);
    let sizes = c.sizes(&[hidden; 4])?;
    let parts = c.nodes("Split", &[Some(&sum), Some(&sizes)], vec![attr::int("axis", 1)], 4);
    let (i, f, o) = (c.op("Sigmoid", &[&parts[0]]), c.op("Sigmoid", &[&parts[1]]), c.op("Sigmoid", &[&parts[3]]));
    let g = c.op("Tanh", &[&parts[2]]);
    let (old, new) = (c.op("Mul", &[&f, &cell]), c.op("Mul", &[&i, &g]));
    let mut next_cell = c.op("Add", &[&old, &new]);
    let shown = c.op("Tanh", &[&next_cell]);
    let shown = c.op("Mul", &[&o, &shown]);
    let mut next_h = c.op("MatMul", &[&shown, &project]);
    let mut y = c.op("Identity", &[&next_h]);
    if scanned.len() > 1 {
        y = c.op("Where", &[&counts, &next_h, &zero]);
        next_h = c.op("Where", &[&counts, &next_h, &h]);
        next_cell = c.op("Where", &[&counts, &next_cell, &cell]);
    }
    let outputs = vec![declared_fact(&next_h, &state), declared_fact(&next_cell, &inner), declared_fact(&y, &state)];
    let body = c.end("step", declared, outputs);
    let direction = usize::from(op.reverse);
    let attributes = vec![
        attr::graph("body", body),
        attr::size("num_scan_inputs", scanned.len()),
        attr::ints("scan_input_directions", &vec![direction; scanned.len()]),
        attr::ints("scan_output_directions", &[direction]),
    ];
    let all: Vec<Option<&Name>> = start.iter().chain(&scanned).map(Some).collect();
    let found = c.nodes("Scan", &all, attributes, 3);
    Ok(vec![found[2].clone(), found[0].clone(), found[1].clone()])
}

fn extents<const N: usize>(dims: &[usize]) -> Result<[usize; N]> {
    dims.try_into().map_err(|_| left_out("an input of another rank"))
}
