//! Ops that own graphs: calls are written in place, switches as branches of branches, loops as loops.

use remat_graph::ir::{Graph, ValueId};
use remat_runtime::control_flow::{Call, Loop, Switch};
use remat_types::{DType, Fact, HostTensor, Result, Shape, for_dtype};

use super::{Row, Rule, row};
use crate::export::attribute as attr;
use crate::export::emit::{Name, declared_fact};
use crate::export::lower::{Cx, left_out, lower};
use crate::proto::{GraphProto, ValueInfoProto};

pub(super) const ROWS: &[Row] = &[row::<Call>(), row::<Switch>(), row::<Loop>()];

/// Writes a body on these inputs; the names of its outputs.
fn body(c: &mut Cx<'_>, g: &Graph, x: &[Name]) -> Result<Vec<Name>> {
    let wanted: Vec<ValueId> = g.outputs().iter().map(|o| o.value).collect();
    lower(c, g, x, &wanted, &Default::default())
}

/// A graph within a node that gives these values, each made in it and given once.
fn finished(c: &mut Cx<'_>, name: &str, inputs: Vec<ValueInfoProto>, y: Vec<(Name, Fact)>) -> GraphProto {
    let mut given: Vec<Name> = Vec::new();
    let mut outputs = Vec::new();
    for (name, fact) in y {
        let own = match given.contains(&name) {
            true => c.op("Identity", &[&name]),
            false => c.own(&name),
        };
        outputs.push(declared_fact(&own, &fact));
        given.push(own);
    }
    c.end(name, inputs, outputs)
}

impl Rule for Call {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let x = c.all();
        body(c, self.body.graph(), &x)
    }
}

impl Rule for Switch {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let (choice, dtype) = (c.x(0)?, c.dtype(0)?);
        let graphs: Vec<&Graph> = self.branches.iter().map(|b| b.graph()).collect();
        match (graphs.as_slice(), dtype) {
            ([only], _) => {
                let x = c.all()[1..].to_vec();
                body(c, only, &x)
            }
            ([no, yes], DType::Bool) => branches(c, &choice, (*yes, &[*no]), None),
            (many, _) => chosen(c, &choice, 0, many),
        }
    }
}

/// The branch that an integer counts, from number `at` on.
fn chosen(c: &mut Cx<'_>, choice: &Name, at: i64, graphs: &[&Graph]) -> Result<Vec<Name>> {
    match graphs {
        [] => Err(left_out("a switch without branches")),
        [last] => {
            let x = c.all()[1..].to_vec();
            body(c, last, &x)
        }
        [first, rest @ ..] => {
            let number = c.int(at);
            let is = c.op("Equal", &[choice, &number]);
            branches(c, &is, (*first, rest), Some((choice, at + 1)))
        }
    }
}

/// The first graph where `is` is true, else one of the rest.
fn branches(
    c: &mut Cx<'_>,
    is: &Name,
    (first, rest): (&Graph, &[&Graph]),
    next: Option<(&Name, i64)>,
) -> Result<Vec<Name>> {
    let facts = c.y.clone();
    let x = c.all()[1..].to_vec();
    c.begin();
    let y = body(c, first, &x);
    let yes = finished(c, "then", Vec::new(), y?.into_iter().zip(facts.iter().cloned()).collect());
    c.begin();
    let y = match (next, rest) {
        (Some((choice, at)), _) => chosen(c, choice, at, rest),
        (None, [only]) => body(c, only, &x),
        (None, _) => Err(left_out("a truth value that chooses among other than two branches")),
    };
    let no = finished(c, "else", Vec::new(), y?.into_iter().zip(facts.iter().cloned()).collect());
    let attributes = vec![attr::graph("then_branch", yes), attr::graph("else_branch", no)];
    Ok(c.nodes("If", &[Some(is)], attributes, facts.len()))
}

impl Rule for Loop {
    fn emit(&self, c: &mut Cx<'_>) -> Result<Vec<Name>> {
        let names = c.all();
        let (trips, yes) = (c.int(self.trips as i64), c.tensor(HostTensor::scalar(true)));
        let count = match names.last().filter(|_| self.counted) {
            Some(count) => {
                let zero = c.int(0);
                c.op("Clip", &[count, &zero, &trips])
            }
            None => trips,
        };
        let graph = self.body.graph();
        let own: Vec<Fact> = self.body.x().cloned().collect();
        let given: Vec<Fact> = self.body.y().cloned().collect();
        let scalar = |dtype| Fact::new(dtype, Shape::scalar());
        let (step, go) = (c.unique("step"), c.unique("go_on"));
        let carried: Vec<Name> = (0..self.carried).map(|i| c.unique(&format!("carried{i}"))).collect();
        let made = c.unique("made");
        let mut inputs = vec![declared_fact(&step, &scalar(DType::I64)), declared_fact(&go, &scalar(DType::Bool))];
        inputs.extend(carried.iter().zip(&own[1..]).map(|(name, f)| declared_fact(name, f)));
        if self.conditional {
            inputs.push(declared_fact(&made, &scalar(DType::I64)));
        }
        c.begin();
        let one = c.int(1);
        let at = match self.reverse {
            true => {
                let last = c.op("Sub", &[&count, &one]);
                c.op("Sub", &[&last, &step])
            }
            false => step.clone(),
        };
        let mut x = vec![at.clone()];
        x.extend(carried.iter().cloned());
        let mut constants = names[self.carried..].to_vec();
        if self.counted {
            constants.pop();
        }
        for (i, name) in constants.into_iter().enumerate() {
            x.push(if i < self.sliced { c.with("Gather", &[&name, &at], vec![attr::int("axis", 0)]) } else { name });
        }
        let mut y = body(c, graph, &x)?;
        let next = match self.conditional {
            true => y.pop().ok_or_else(|| left_out("a loop without its condition"))?,
            false => yes.clone(),
        };
        let mut results = vec![(next, scalar(DType::Bool))];
        let rows = y.split_off(self.carried.min(y.len()));
        results.extend(y.into_iter().zip(given.iter().cloned()));
        if self.conditional {
            let more = c.op("Add", &[&made, &one]);
            results.push((more, scalar(DType::I64)));
        }
        let stacked = rows.len();
        results.extend(rows.into_iter().zip(given[self.carried..].iter().cloned()));
        let body = finished(c, "step", inputs, results);
        let zero = c.int(0);
        let mut start: Vec<Option<&Name>> = vec![Some(&count), Some(&yes)];
        start.extend(names[..self.carried].iter().map(Some));
        if self.conditional {
            start.push(Some(&zero));
        }
        let counters = usize::from(self.conditional);
        let y = c.nodes("Loop", &start, vec![attr::graph("body", body)], self.carried + counters + stacked);
        let mut all = y[..self.carried].to_vec();
        for (k, name) in y[self.carried + counters..].iter().enumerate() {
            let row = given[self.carried + k].clone();
            all.push(whole(c, self, name, &row)?);
        }
        if self.conditional {
            all.push(y[self.carried].clone());
        }
        Ok(all)
    }
}

/// Rows in order, those of steps that were not made as zeros.
fn whole(c: &mut Cx<'_>, op: &Loop, rows: &Name, row: &Fact) -> Result<Name> {
    let rows = if op.reverse { c.flip(rows, 0)? } else { rows.clone() };
    if !op.counted && !op.conditional {
        return Ok(rows);
    }
    let rank = row.rank() + 1;
    let shape = c.with("Shape", &[&rows], vec![attr::int("start", 0), attr::int("end", 1)]);
    let trips = c.sizes(&[op.trips])?;
    let missing = c.op("Sub", &[&trips, &shape]);
    let (before, beside) = (c.sizes(&vec![0; rank])?, c.sizes(&vec![0; rank - 1])?);
    let amounts = match rank {
        1 => c.with("Concat", &[&before, &missing], vec![attr::int("axis", 0)]),
        _ => c.with("Concat", &[&before, &missing, &beside], vec![attr::int("axis", 0)]),
    };
    let zero = for_dtype!(row.dtype, T => HostTensor::scalar(T::default()));
    let zero = c.tensor(zero);
    Ok(c.op("Pad", &[&rows, &amounts, &zero]))
}
