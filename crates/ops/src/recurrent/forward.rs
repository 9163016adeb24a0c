use remat_kernels::recurrent::{Cell, Forward, Lengths, Sequence, Unit, forward, forward_workspace_bytes};
use remat_types::{DType, Error, ErrorKind, Fact, Facts, Result, Shape, smallvec};
use serde::{Deserialize, Serialize};

use crate::args::{checked_fact, not_taken, want_dtype, want_rank, want_shape};
use crate::schema::{Choice, Params};
use crate::{Cost, EvalCx, GradCx, Grads, In, Op};

/// The function of one step of a recurrent layer. It takes an input `x`, the state `h` and, of an LSTM, the cell `c`. `W`
/// and `b` are the rows of weights and biases that belong to a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Choice, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CellKind {
    /// `h' = tanh(W_ih x + b_ih + W_hh h + b_hh)`.
    RnnTanh,
    /// `h' = max(0, W_ih x + b_ih + W_hh h + b_hh)`.
    RnnRelu,
    /// Gates `i, f, g, o`. Gate `g` goes through tanh, the others through the sigmoid: `c' = f c + i g`,
    /// `h' = o tanh(c')`.
    Lstm,
    /// Gates `r, z` through the sigmoid, and `n = tanh(W_in x + b_in + r (W_hn h + b_hn))`: `h' = (1 - z) n + z h`.
    Gru,
}

impl CellKind {
    pub(crate) fn cell(self) -> Cell {
        match self {
            CellKind::RnnTanh => Cell::Tanh,
            CellKind::RnnRelu => Cell::Relu,
            CellKind::Lstm => Cell::Lstm,
            CellKind::Gru => Cell::Gru,
        }
    }

    /// States of a row: `h`, and the `c` of an LSTM.
    pub(crate) fn states(self) -> usize {
        if self == CellKind::Lstm { 2 } else { 1 }
    }

    /// Rows of the weights, in units of the hidden size.
    pub fn gates(self) -> usize {
        self.cell().gates()
    }

    /// The number of outputs kept for the gradient: the gates, and the cells of an LSTM.
    pub(crate) fn kept(self) -> usize {
        match self {
            CellKind::RnnTanh | CellKind::RnnRelu => 0,
            CellKind::Lstm => 2,
            CellKind::Gru => 1,
        }
    }
}

/// A recurrent layer in one direction: `(x, w_ih, w_hh, ..) -> (y, h_n, ..)`, with PyTorch's gates in PyTorch's order.
///
/// `x: [t, b, i]`, `w_ih: [gates n, i]`, `w_hh: [gates n, p]`; then, as the parameters say, the initial states `h0: [b, p]`
/// and, of an LSTM, `c0: [b, n]` (else they are 0), the biases `b_ih, b_hh: [gates n]`, the projection `w_hr: [p, n]`, and the
/// lengths `[b]` in i64. `n` is the hidden size and `p` that of outputs: the same without a projection.
///
/// `y: [t, b, p]` are the states after each step, `h_n: [b, p]` and `c_n: [b, n]` (of an LSTM) the last ones. With lengths, row
/// `r` has the first `lengths[r]` steps only: its `y` is 0 behind them, its last state is that of its own last step, and
/// `reverse` begins there. With `keep` come what the gradient reads: the gates after their functions, `[t, b, 4 n]` (an LSTM's
/// `i, f, g, o`; a GRU's `n, r, z` and `W_hn h + b_hn`), and an LSTM's cells `[t, b, n]`; a plain layer has no such outputs.
///
/// Errors: Arity; DType for inputs that are not f32 or f64 or differ, and for lengths not in i64; Axis for other ranks; Shape
/// for extents that do not fit; Value for the projection of another cell than an LSTM's; Index for a length that is not in
/// `0 ..= t`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Params)]
#[op(inputs(x: float, w_ih: float, w_hh: float, rest..: any), gradient(x, w_ih, w_hh, rest))]
pub struct Recurrent {
    /// The cell.
    pub cell: CellKind,
    /// From the last step to the first.
    #[param(default = false)]
    pub reverse: bool,
    /// There are initial states.
    #[param(default = false)]
    pub initial: bool,
    /// There are biases.
    #[param(default = true)]
    pub bias: bool,
    /// There is a projection.
    #[param(default = false)]
    pub project: bool,
    /// There are lengths.
    #[param(default = false)]
    pub lengths: bool,
    /// True if the op returns the values that its gradient reads as outputs.
    #[param(default = false)]
    pub keep: bool,
}

impl Recurrent {
    /// A layer with biases and without anything else.
    pub fn new(cell: CellKind) -> Self {
        Recurrent { cell, reverse: false, initial: false, bias: true, project: false, lengths: false, keep: false }
    }

    /// The place of the first initial state among the inputs.
    pub(crate) fn state_at(&self) -> Option<usize> {
        self.initial.then_some(3)
    }

    pub(crate) fn bias_at(&self) -> Option<usize> {
        self.bias.then_some(3 + if self.initial { self.cell.states() } else { 0 })
    }

    fn projection_place(&self) -> usize {
        3 + if self.initial { self.cell.states() } else { 0 } + if self.bias { 2 } else { 0 }
    }

    pub(crate) fn projection_at(&self) -> Option<usize> {
        self.project.then(|| self.projection_place())
    }

    pub(crate) fn lengths_at(&self) -> Option<usize> {
        self.lengths.then(|| self.projection_place() + usize::from(self.project))
    }

    /// Number of inputs.
    pub(crate) fn inputs(&self) -> usize {
        self.projection_place() + usize::from(self.project) + usize::from(self.lengths)
    }

    /// The place of the gates among the outputs.
    pub(crate) fn kept_at(&self) -> usize {
        1 + self.cell.states()
    }

    /// The sizes. Errors as [`Recurrent`].
    pub(crate) fn sizes(&self, x: &[&Fact]) -> Result<Sequence> {
        if x.len() != self.inputs() {
            return Err(Error::new(ErrorKind::Arity, format!("takes {} inputs, got {}", self.inputs(), x.len())));
        }
        let dtype = x[0].dtype;
        if !matches!(dtype, DType::F32 | DType::F64) {
            return Err(not_taken(dtype));
        }
        if self.project && self.cell != CellKind::Lstm {
            return Err(Error::new(ErrorKind::Value, "only an LSTM has a projection"));
        }
        let names = ["x", "w_ih", "w_hh"];
        for ((f, name), rank) in x.iter().zip(names).zip([3, 2, 2]) {
            want_dtype(f, dtype, name)?;
            want_rank(f, rank, name)?;
        }
        let gates = self.cell.gates();
        let (rows, width) = (x[2].shape[0], x[2].shape[1]);
        let hidden = rows / gates;
        if rows % gates != 0 {
            let text = format!("w_hh has {rows} rows, no multiple of its {gates} gates");
            return Err(Error::new(ErrorKind::Shape, text));
        }
        if !self.project && width != hidden {
            let text = format!("w_hh has shape {}: {hidden} states and {width} outputs", x[2].shape);
            return Err(Error::new(ErrorKind::Shape, text));
        }
        let (steps, batch, inputs) = (x[0].shape[0], x[0].shape[1], x[0].shape[2]);
        if let [_, taken] = x[1].shape.dims()
            && *taken != inputs
        {
            let text = format!("x has {inputs} features along its last axis, w_ih takes {taken}");
            return Err(Error::new(ErrorKind::Shape, text));
        }
        want_shape(x[1], &[rows, inputs], "w_ih")?;
        let mut at = 3;
        let mut next = |shape: &[usize], name: &str| {
            let f = x[at];
            at += 1;
            want_dtype(f, dtype, name)?;
            want_rank(f, shape.len(), name)?;
            want_shape(f, shape, name)
        };
        if self.initial {
            next(&[batch, width], "h0")?;
            if self.cell == CellKind::Lstm {
                next(&[batch, hidden], "c0")?;
            }
        }
        if self.bias {
            next(&[rows], "b_ih")?;
            next(&[rows], "b_hh")?;
        }
        if self.project {
            next(&[width, hidden], "w_hr")?;
        }
        if let Some(at) = self.lengths_at() {
            want_dtype(x[at], DType::I64, "lengths")?;
            want_rank(x[at], 1, "lengths")?;
            want_shape(x[at], &[batch], "lengths")?;
        }
        // its operations can be counted, and so can all bytes of a workspace
        let most = inputs.max(hidden).max(width).max(1).saturating_mul(64);
        Shape::from([steps.max(1), batch.max(1), hidden.max(1).saturating_mul(8), most]).checked_elems()?;
        let (cell, reverse) = (self.cell.cell(), self.reverse);
        Ok(Sequence { cell, steps, batch, inputs, hidden, width, reverse })
    }

    fn eval_in<T: Unit>(&self, cx: &mut EvalCx<'_>, s: &Sequence) -> Result<()> {
        let x = cx.x;
        let lengths = self.lengths_at().map(|at| lengths_of(&x[at], s.steps)).transpose()?;
        let of = |at: usize| x[at].slice::<T>();
        let given = Forward {
            x: of(0)?,
            w_ih: of(1)?,
            w_hh: of(2)?,
            bias: self.bias_at().map(|at| Ok::<_, Error>([of(at)?, of(at + 1)?])).transpose()?,
            w_hr: self.projection_at().map(of).transpose()?,
            lengths: Lengths(lengths),
        };
        for i in 0..self.cell.states() {
            match self.state_at() {
                Some(at) => drop(cx.output_from::<T>(at + i, 1 + i)?),
                None => cx.y[1 + i].slice_mut::<T>()?.fill(T::ZERO),
            }
        }
        let mut y = cx.y.iter_mut();
        let mut next = || match y.next() {
            Some(y) => y.slice_mut::<T>(),
            None => Ok(Default::default()),
        };
        let (out, h) = (next()?, next()?);
        let c = if self.cell == CellKind::Lstm { next()? } else { Default::default() };
        let keeps = self.keep && self.cell.kept() > 0;
        let kept = if keeps { Some([next()?, next()?]) } else { None };
        forward(cx.pool, s, &given, [h, c], out, kept, cx.workspace);
        Ok(())
    }
}

/// The lengths of rows. Errors: Index for one that is not in `0 ..= steps`.
pub(super) fn lengths_of<'a>(x: &In<'a>, steps: usize) -> Result<&'a [i64]> {
    let all = x.slice::<i64>()?;
    match all.iter().position(|l| usize::try_from(*l).map_or(true, |l| l > steps)) {
        None => Ok(all),
        Some(at) => {
            let text = format!("length {} at position {at} is not in 0..={steps}", all[at]);
            Err(Error::new(ErrorKind::Index, text))
        }
    }
}

/// The facts of inputs.
pub(super) fn facts_of(x: &[In<'_>]) -> Vec<Fact> {
    x.iter().map(|x| Fact::new(x.dtype(), x.shape().clone())).collect()
}

/// Calls `$body` for the type of f32 or f64.
macro_rules! for_real {
    ($dtype:expr, $T:ident => $body:expr, else $other:expr) => {
        match $dtype {
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            _ => $other,
        }
    };
}
pub(super) use for_real;

impl Op for Recurrent {
    fn infer(&self, x: &[&Fact]) -> Result<Facts> {
        let (s, dtype) = (self.sizes(x)?, x.first().map_or(DType::F32, |x| x.dtype));
        let mut y: Facts =
            smallvec![checked_fact(dtype, [s.steps, s.batch, s.width])?, checked_fact(dtype, [s.batch, s.width])?];
        if self.cell == CellKind::Lstm {
            y.push(checked_fact(dtype, [s.batch, s.hidden])?);
        }
        if self.keep && self.cell.kept() > 0 {
            y.push(checked_fact(dtype, [s.steps, s.batch, s.columns()])?);
            if self.cell == CellKind::Lstm {
                y.push(checked_fact(dtype, [s.steps, s.batch, s.hidden])?);
            }
        }
        Ok(y)
    }

    fn eval(&self, cx: &mut EvalCx<'_>) -> Result<()> {
        let (facts, dtype) = (facts_of(cx.x), cx.x[0].dtype());
        let s = self.sizes(&facts.iter().collect::<Vec<_>>())?;
        for_real!(dtype, T => self.eval_in::<T>(cx, &s), else Err(not_taken(dtype)))
    }

    fn grad(&self, cx: &mut GradCx<'_>) -> Result<Grads> {
        super::rule::gradients(self, cx)
    }

    fn may_fail(&self) -> bool {
        self.lengths
    }

    fn overwrite(&self) -> &[(usize, usize)] {
        match (self.initial, self.cell) {
            (false, _) => &[],
            (true, CellKind::Lstm) => &[(3, 1), (4, 2)],
            (true, _) => &[(3, 1)],
        }
    }

    fn workspace(&self, x: &[&Fact], threads: usize) -> usize {
        let Ok(s) = self.sizes(x) else { return 0 };
        let keeps = self.keep && self.cell.kept() > 0;
        for_real!(x[0].dtype, T => forward_workspace_bytes::<T>(&s, keeps, self.project, threads), else 0)
    }

    /// Products alone.
    fn cost(&self, x: &[&Fact], y: &[Fact]) -> Cost {
        let flops = self.sizes(x).map_or(0, |s| {
            let of_cell = self.cell.gates() * s.hidden * (s.inputs + s.width);
            2 * s.steps * s.batch * (of_cell + if self.project { s.hidden * s.width } else { 0 })
        });
        Cost::bytes(x, y).with_flops(flops as u64)
    }
}
