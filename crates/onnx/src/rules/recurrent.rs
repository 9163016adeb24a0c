//! Recurrent layers.
//!
//! Layers of the usual functions without extras are the recurrent operator; the others are steps written out. Gates stand in the
//! standard's order, `i o f c` of LSTM and `z r h` of GRU, and are put into the operator's, `i f g o` and `r z n`.

use remat_import::{Cx, Value, shape_error};
use remat_tensor::{Nonlinearity, RecurrentSteps, RecurrentWeights, Tensor};
use remat_types::{DType, Error, ErrorKind, Result};

use super::{Row, row};

pub(super) const ROWS: &[Row] = &[
    row("GRU", 1, |c| layer(c, Cell::Gru)),
    row("LSTM", 1, |c| layer(c, Cell::Lstm)),
    row("RNN", 1, |c| layer(c, Cell::Rnn)),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cell {
    Rnn,
    Gru,
    Lstm,
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Cell::Rnn => 1,
            Cell::Gru => 3,
            Cell::Lstm => 4,
        }
    }

    fn functions(self) -> &'static [&'static str] {
        match self {
            Cell::Rnn => &["Tanh"],
            Cell::Gru => &["Sigmoid", "Tanh"],
            Cell::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// A function of gates, with its parameters.
#[derive(Clone, Debug, PartialEq)]
struct Function {
    name: String,
    alpha: Option<f64>,
    beta: Option<f64>,
}

impl Function {
    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let (alpha, beta) = (self.alpha, self.beta);
        match self.name.to_ascii_lowercase().as_str() {
            "relu" => x.relu(),
            "tanh" => x.tanh(),
            "sigmoid" => x.sigmoid(),
            "affine" => x.mul(alpha.unwrap_or(1.0))?.add(beta.unwrap_or(0.0)),
            "leakyrelu" => x.leaky_relu(alpha.unwrap_or(0.01)),
            "thresholdedrelu" => x.threshold(alpha.unwrap_or(1.0), 0.0),
            "scaledtanh" => x.mul(beta.unwrap_or(1.0))?.tanh()?.mul(alpha.unwrap_or(1.0)),
            "hardsigmoid" => x.mul(alpha.unwrap_or(0.2))?.add(beta.unwrap_or(0.5))?.clamp(0.0, 1.0),
            "elu" => x.elu(alpha.unwrap_or(1.0)),
            "softsign" => x.softsign(),
            "softplus" => x.softplus(),
            other => {
                let text = format!("attribute `activations` has `{other}`, which is not supported");
                Err(Error::new(ErrorKind::Value, text))
            }
        }
    }

    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// One direction of a layer: `x: [steps, batch, inputs]`.
struct Direction<'a> {
    cell: Cell,
    x: &'a Tensor,
    w: Tensor,
    r: Tensor,
    /// Of input and of state, `[gates hidden]` each.
    bias: Option<[Tensor; 2]>,
    /// `i o f` of the cell's state, `[hidden]` each.
    peephole: Option<[Tensor; 3]>,
    h: Option<Tensor>,
    c: Option<Tensor>,
    lengths: Option<&'a Tensor>,
    reverse: bool,
    functions: Vec<Function>,
    clip: Option<f64>,
    input_forget: bool,
    linear_before_reset: bool,
}

/// Outputs of all steps, and the last states.
struct Done {
    y: Tensor,
    h: Tensor,
    c: Option<Tensor>,
}

fn functions(c: &Cx<'_>, cell: Cell, directions: usize) -> Result<Vec<Vec<Function>>> {
    let names = match c.strings("activations")? {
        Some(names) => names,
        None => {
            cell.functions().iter().map(|n| (*n).to_owned()).cycle().take(cell.functions().len() * directions).collect()
        }
    };
    let each = cell.functions().len();
    if names.len() < each * directions {
        return Err(shape_error(format!("{} activations for {directions} directions", names.len())));
    }
    let param = |name: &str, i: usize| -> Result<Option<f64>> {
        Ok(c.reals(name)?.and_then(|all| all.get(i)).map(|v| f64::from(*v)))
    };
    let one = |i: usize| -> Result<Function> {
        Ok(Function {
            name: names[i].clone(),
            alpha: param("activation_alpha", i)?,
            beta: param("activation_beta", i)?,
        })
    };
    (0..directions).map(|d| (0..each).map(|k| one(d * each + k)).collect()).collect()
}

fn layer(c: &Cx<'_>, cell: Cell) -> Result<Vec<Value>> {
    let batch_first = c.flag("layout", false)?;
    let x = if batch_first { c.x(0)?.transpose(0, 1)? } else { c.x(0)?.clone() };
    let (w, r) = (c.x(1)?, c.x(2)?);
    let reversed: &[bool] = match c.string("direction", "forward")? {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(c.unknown("direction", other)),
    };
    let ([_, _, inputs], [n, rows, w_inputs], [_, _, hidden]) = (x.dims_n()?, w.dims_n()?, r.dims_n()?);
    if n != reversed.len() || rows != cell.gates() * hidden || inputs != w_inputs {
        let text = format!("weights of shape {} and {} for x of shape {}", w.shape(), r.shape(), x.shape());
        return Err(shape_error(text));
    }
    let all = functions(c, cell, n)?;
    let bias = c.opt(3)?;
    let lengths = c.opt(4)?;
    let state = |i: usize, d: usize| -> Result<Option<Tensor>> {
        let Some(t) = c.opt(i)? else { return Ok(None) };
        if batch_first { t.select(1, d as isize).map(Some) } else { t.select(0, d as isize).map(Some) }
    };
    let mut done = Vec::new();
    for (d, reverse) in reversed.iter().enumerate() {
        let d = d as isize;
        let halves = bias.map(|b| b.select(0, d)?.chunk(2, 0)).transpose()?;
        let parts = match (cell, c.opt(7)?) {
            (Cell::Lstm, Some(p)) => Some(p.select(0, d)?.chunk(3, 0)?),
            _ => None,
        };
        let direction = Direction {
            cell,
            x: &x,
            w: w.select(0, d)?,
            r: r.select(0, d)?,
            bias: halves.and_then(|h| <[Tensor; 2]>::try_from(h).ok()),
            peephole: parts.and_then(|p| <[Tensor; 3]>::try_from(p).ok()),
            h: state(5, d as usize)?,
            c: if cell == Cell::Lstm { state(6, d as usize)? } else { None },
            lengths,
            reverse: *reverse,
            functions: all[d as usize].clone(),
            clip: c.opt_real("clip")?,
            input_forget: c.flag("input_forget", false)?,
            linear_before_reset: c.flag("linear_before_reset", false)?,
        };
        done.push(direction.run(hidden)?);
    }
    // [steps, directions, batch, hidden] and [directions, batch, hidden], or with the batch first
    let stack = |all: Vec<&Tensor>, axis: isize| Tensor::stack(&all, axis).map(Value::Tensor);
    let (of_y, of_h) = if batch_first { (2, 1) } else { (1, 0) };
    let ys: Vec<Tensor> = match batch_first {
        true => done.iter().map(|d| d.y.transpose(0, 1)).collect::<Result<_>>()?,
        false => done.iter().map(|d| d.y.clone()).collect(),
    };
    let mut y = vec![stack(ys.iter().collect(), of_y)?, stack(done.iter().map(|d| &d.h).collect(), of_h)?];
    let cells: Vec<&Tensor> = done.iter().filter_map(|d| d.c.as_ref()).collect();
    if !cells.is_empty() {
        y.push(stack(cells, of_h)?);
    }
    Ok(y)
}

/// Rows of gates in another order.
fn reordered(t: &Tensor, order: &[usize], hidden: usize) -> Result<Tensor> {
    let parts: Vec<Tensor> = order.iter().map(|g| t.narrow(0, (g * hidden) as isize, hidden)).collect::<Result<_>>()?;
    Tensor::concat(&parts.iter().collect::<Vec<_>>(), 0)
}

impl Direction<'_> {
    fn run(&self, hidden: usize) -> Result<Done> {
        if self.is_usual() { self.by_operator(hidden) } else { self.by_steps(hidden) }
    }

    fn is_usual(&self) -> bool {
        let usual = self.functions.iter().zip(self.cell.functions()).all(|(f, name)| f.is(name));
        let relu = self.cell == Cell::Rnn && self.functions[0].is("Relu");
        let plain = self.clip.is_none() && !self.input_forget && self.peephole.is_none();
        let both = self.cell != Cell::Lstm || self.h.is_some() == self.c.is_some();
        (usual || relu) && plain && both && (self.cell != Cell::Gru || self.linear_before_reset)
    }

    fn by_operator(&self, hidden: usize) -> Result<Done> {
        let order: &[usize] = match self.cell {
            Cell::Rnn => &[0],
            Cell::Lstm => &[0, 2, 3, 1],
            Cell::Gru => &[1, 0, 2],
        };
        let (w, r) = (reordered(&self.w, order, hidden)?, reordered(&self.r, order, hidden)?);
        let bias = match &self.bias {
            Some([a, b]) => Some([reordered(a, order, hidden)?, reordered(b, order, hidden)?]),
            None => None,
        };
        let mut weights = RecurrentWeights::new(&w, &r);
        if let Some([a, b]) = &bias {
            weights = weights.with_bias(a, b);
        }
        let lengths = self.lengths.map(|l| l.cast(DType::I64)).transpose()?;
        let steps = RecurrentSteps { reverse: self.reverse, lengths: lengths.as_ref() };
        match self.cell {
            Cell::Rnn => {
                let f = if self.functions[0].is("Relu") { Nonlinearity::Relu } else { Nonlinearity::Tanh };
                let (y, h) = self.x.rnn(f, self.h.as_ref(), weights, steps)?;
                Ok(Done { y, h, c: None })
            }
            Cell::Gru => {
                let (y, h) = self.x.gru(self.h.as_ref(), weights, steps)?;
                Ok(Done { y, h, c: None })
            }
            Cell::Lstm => {
                let state = match (&self.h, &self.c) {
                    (Some(h), Some(c)) => Some([h, c]),
                    _ => None,
                };
                let (y, [h, c]) = self.x.lstm(state, weights, steps)?;
                Ok(Done { y, h, c: Some(c) })
            }
        }
    }

    fn clipped(&self, x: Tensor) -> Result<Tensor> {
        match self.clip {
            Some(limit) => x.clamp(-limit, limit),
            None => Ok(x),
        }
    }

    fn by_steps(&self, hidden: usize) -> Result<Done> {
        let [steps, batch, _] = self.x.dims_n()?;
        let zeros = || Tensor::zeros(&self.x.device(), [batch, hidden], self.x.dtype());
        let mut h = self.h.clone().map_or_else(zeros, Ok)?;
        let mut cell = self.c.clone().map_or_else(zeros, Ok)?;
        let (wt, rt) = (self.w.t()?, self.r.t()?);
        let mut y: Vec<Option<Tensor>> = vec![None; steps];
        for k in 0..steps {
            let t = if self.reverse { steps - 1 - k } else { k };
            let gates = self.x.select(0, t as isize)?.matmul(&wt)?;
            let gates = match &self.bias {
                Some([b, _]) => gates.add(b)?,
                None => gates,
            };
            let (next, next_cell) = match self.cell {
                Cell::Rnn => (self.rnn_step(&gates, &h, &rt)?, cell.clone()),
                Cell::Gru => (self.gru_step(&gates, &h, &rt, hidden)?, cell.clone()),
                Cell::Lstm => self.lstm_step(&gates, &h, &cell, &rt, hidden)?,
            };
            match self.lengths {
                None => {
                    y[t] = Some(next.clone());
                    (h, cell) = (next, next_cell);
                }
                Some(lengths) => {
                    let alive = lengths.gt(t as i64)?.unsqueeze(1)?;
                    y[t] = Some(alive.where_cond(&next, &next.zeros_like()?)?);
                    h = alive.where_cond(&next, &h)?;
                    cell = alive.where_cond(&next_cell, &cell)?;
                }
            }
        }
        let y: Vec<&Tensor> = y.iter().flatten().collect();
        let y = match y.is_empty() {
            true => Tensor::zeros(&self.x.device(), [0, batch, hidden], self.x.dtype())?,
            false => Tensor::stack(&y, 0)?,
        };
        Ok(Done { y, h, c: (self.cell == Cell::Lstm).then_some(cell) })
    }

    /// The bias of the state's part.
    fn with_state_bias(&self, x: Tensor) -> Result<Tensor> {
        match &self.bias {
            Some([_, b]) => x.add(b),
            None => Ok(x),
        }
    }

    fn rnn_step(&self, gates: &Tensor, h: &Tensor, rt: &Tensor) -> Result<Tensor> {
        let sum = gates.add(&self.with_state_bias(h.matmul(rt)?)?)?;
        self.functions[0].apply(&self.clipped(sum)?)
    }

    fn gru_step(&self, gates: &Tensor, h: &Tensor, rt: &Tensor, hidden: usize) -> Result<Tensor> {
        let part = |t: &Tensor, g: usize| t.narrow(1, (g * hidden) as isize, hidden);
        let (f, g) = (&self.functions[0], &self.functions[1]);
        let state = self.with_state_bias(h.matmul(rt)?)?;
        let z = f.apply(&self.clipped(part(gates, 0)?.add(&part(&state, 0)?)?)?)?;
        let r = f.apply(&self.clipped(part(gates, 1)?.add(&part(&state, 1)?)?)?)?;
        let from_state = if self.linear_before_reset {
            r.mul(&part(&state, 2)?)?
        } else {
            let product = r.mul(h)?.matmul(&part(rt, 2)?)?;
            match &self.bias {
                Some([_, b]) => product.add(&b.narrow(0, (2 * hidden) as isize, hidden)?)?,
                None => product,
            }
        };
        let n = g.apply(&self.clipped(part(gates, 2)?.add(&from_state)?)?)?;
        // (1 - z) n + z h
        n.sub(&z.mul(&n)?)?.add(&z.mul(h)?)
    }

    fn lstm_step(
        &self,
        gates: &Tensor,
        h: &Tensor,
        c: &Tensor,
        rt: &Tensor,
        hidden: usize,
    ) -> Result<(Tensor, Tensor)> {
        let sum = gates.add(&self.with_state_bias(h.matmul(rt)?)?)?;
        let part = |g: usize| sum.narrow(1, (g * hidden) as isize, hidden);
        let peep = |x: Tensor, p: usize, c: &Tensor| match &self.peephole {
            Some(all) => x.add(&all[p].mul(c)?),
            None => Ok(x),
        };
        let [f, g, out] = [&self.functions[0], &self.functions[1], &self.functions[2]];
        let i = f.apply(&self.clipped(peep(part(0)?, 0, c)?)?)?;
        let forget = match self.input_forget {
            true => i.neg()?.add(1.0)?,
            false => f.apply(&self.clipped(peep(part(2)?, 2, c)?)?)?,
        };
        let fresh = g.apply(&self.clipped(part(3)?)?)?;
        let next = forget.mul(c)?.add(&i.mul(&fresh)?)?;
        let o = f.apply(&self.clipped(peep(part(1)?, 1, &next)?)?)?;
        Ok((o.mul(&out.apply(&next)?)?, next))
    }
}
