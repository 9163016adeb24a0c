//! Recurrent layers. The standard's gates stand in another order: `i o f c` of an LSTM, `z r h` of a GRU.

use remat_ops::recurrent::{CellKind, Recurrent};
use remat_types::{DType, Result};

use super::Rule;
use crate::export::attribute as attr;
use crate::export::emit::Name;
use crate::export::lower::{Cx, left_out};

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
        if self.project {
            return Err(left_out("an LSTM with a projection, which the standard has not"));
        }
        let states = if self.cell == CellKind::Lstm { 2 } else { 1 };
        if (1 + states..c.y.len()).any(|j| c.wants(j)) {
            return Err(left_out("gates that a gradient reads; an exported model is for inference"));
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
