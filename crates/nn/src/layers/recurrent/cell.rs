use remat_ops::schema::Params;
use remat_tensor::{Nonlinearity, RecurrentWeights, Tensor};
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};

use super::stack::optional;
use crate::layers::linear::bias_init;
use crate::{InitCx, Label, Module, Parameter, Visit, Walk};

/// The parameters of a cell, by PyTorch's names.
pub struct CellWeights {
    /// `[gates hidden, inputs]`.
    pub weight_ih: Parameter,
    /// `[gates hidden, hidden]`.
    pub weight_hh: Parameter,
    /// `[gates hidden]`.
    pub bias_ih: Option<Parameter>,
    /// `[gates hidden]`.
    pub bias_hh: Option<Parameter>,
}

impl Visit for CellWeights {
    fn visit(&self, at: &mut Walk<'_>) {
        at.field("weight_ih", &self.weight_ih);
        at.field("weight_hh", &self.weight_hh);
        at.field("bias_ih", &self.bias_ih);
        at.field("bias_hh", &self.bias_hh);
    }
}

impl CellWeights {
    fn new(cx: &mut InitCx, [gates, inputs, hidden]: [usize; 3], bias: bool, op: &'static str) -> Result<CellWeights> {
        if hidden == 0 {
            return Err(Error::new(ErrorKind::Value, "a cell of no states").with_op(op));
        }
        let (rows, init) = (gates.saturating_mul(hidden), bias_init(hidden));
        Ok(CellWeights {
            weight_ih: cx.parameter([rows, inputs], init)?,
            weight_hh: cx.parameter([rows, hidden], init)?,
            bias_ih: optional(cx, bias, rows, init)?,
            bias_hh: optional(cx, bias, rows, init)?,
        })
    }

    /// `f` of the present values.
    #[track_caller]
    fn with<T>(&self, f: impl FnOnce(RecurrentWeights<'_>) -> Result<T>) -> Result<T> {
        let get = |p: &Option<Parameter>| p.as_ref().map(Parameter::get).transpose();
        let (w_ih, w_hh) = (self.weight_ih.get()?, self.weight_hh.get()?);
        let (b_ih, b_hh) = (get(&self.bias_ih)?, get(&self.bias_hh)?);
        let bias = b_ih.as_ref().zip(b_hh.as_ref()).map(|(ih, hh)| [ih, hh]);
        f(RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, bias, w_hr: None })
    }
}

/// How an [`RnnCell`] is made. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Params)]
#[op(default)]
pub struct RnnCellOptions {
    /// Add biases. Default: true.
    pub bias: bool,
    /// The function applied to the sums. Default: tanh.
    pub nonlinearity: Nonlinearity,
}

impl Default for RnnCellOptions {
    fn default() -> Self {
        RnnCellOptions { bias: true, nonlinearity: Nonlinearity::Tanh }
    }
}

/// One step of an [`Rnn`](crate::Rnn): `x: [batch, inputs]` and a state `[batch, hidden]` to the next.
///
/// Parameters begin uniform in `-b .. b`, `b = 1 / sqrt hidden`. Errors: Axis for another rank, Shape for other extents.
#[derive(Module)]
#[module(crate = crate)]
pub struct RnnCell {
    #[module(flatten)]
    label: Label,
    /// The parameters.
    #[module(flatten)]
    pub weights: CellWeights,
    #[module(skip)]
    nonlinearity: Nonlinearity,
}

impl RnnCell {
    /// A cell from `inputs` to `hidden` numbers. Errors: Value for a `hidden` of 0; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, hidden: usize) -> Result<Self> {
        RnnCell::with(cx, inputs, hidden, RnnCellOptions::default())
    }

    /// As [`RnnCell::new`] with options. Errors: as there.
    pub fn with(cx: &mut InitCx, inputs: usize, hidden: usize, o: RnnCellOptions) -> Result<Self> {
        let weights = CellWeights::new(cx, [1, inputs, hidden], o.bias, "rnn_cell")?;
        Ok(RnnCell { label: Label::new("rnn_cell"), weights, nonlinearity: o.nonlinearity })
    }

    /// The next state; the first one is 0 if none is given. Errors: as the cell.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let _scope = self.label.enter();
        self.weights.with(|w| x.rnn_cell(self.nonlinearity, state, w))
    }
}

/// One step of an [`Lstm`](crate::Lstm): `x: [batch, inputs]` and states `h, c: [batch, hidden]` to the next.
///
/// Beginning and errors: as [`RnnCell`].
#[derive(Module)]
#[module(crate = crate)]
pub struct LstmCell {
    #[module(flatten)]
    label: Label,
    /// The parameters.
    #[module(flatten)]
    pub weights: CellWeights,
}

impl LstmCell {
    /// A cell from `inputs` to `hidden` numbers, with biases. Errors: Value for a `hidden` of 0; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, hidden: usize) -> Result<Self> {
        LstmCell::with(cx, inputs, hidden, true)
    }

    /// As [`LstmCell::new`], with biases or without. Errors: as there.
    pub fn with(cx: &mut InitCx, inputs: usize, hidden: usize, bias: bool) -> Result<Self> {
        let weights = CellWeights::new(cx, [4, inputs, hidden], bias, "lstm_cell")?;
        Ok(LstmCell { label: Label::new("lstm_cell"), weights })
    }

    /// The next `[h, c]`; the first ones are 0 if none are given. Errors: as the cell.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<[&Tensor; 2]>) -> Result<[Tensor; 2]> {
        let _site = Scope::at(CallSite::here());
        let _scope = self.label.enter();
        self.weights.with(|w| x.lstm_cell(state, w))
    }
}

/// One step of a [`Gru`](crate::Gru): `x: [batch, inputs]` and a state `[batch, hidden]` to the next.
///
/// Beginning and errors: as [`RnnCell`].
#[derive(Module)]
#[module(crate = crate)]
pub struct GruCell {
    #[module(flatten)]
    label: Label,
    /// The parameters.
    #[module(flatten)]
    pub weights: CellWeights,
}

impl GruCell {
    /// A cell from `inputs` to `hidden` numbers, with biases. Errors: Value for a `hidden` of 0; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, hidden: usize) -> Result<Self> {
        GruCell::with(cx, inputs, hidden, true)
    }

    /// As [`GruCell::new`], with biases or without. Errors: as there.
    pub fn with(cx: &mut InitCx, inputs: usize, hidden: usize, bias: bool) -> Result<Self> {
        let weights = CellWeights::new(cx, [3, inputs, hidden], bias, "gru_cell")?;
        Ok(GruCell { label: Label::new("gru_cell"), weights })
    }

    /// The next state; the first one is 0 if none is given. Errors: as the cell.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let _scope = self.label.enter();
        self.weights.with(|w| x.gru_cell(state, w))
    }
}
