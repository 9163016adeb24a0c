use remat_tensor::{Nonlinearity, RecurrentWeights, Tensor};
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};

use super::stack::optional;
use crate::layers::linear::bias_init;
use crate::{InitCx, Label, Module, Parameter};

/// How a cell is made. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CellOptions {
    /// Add biases. Default: true.
    pub bias: bool,
    /// What the sums of an [`RnnCell`] go through; other cells do not read it. Default: tanh.
    pub nonlinearity: Nonlinearity,
}

impl Default for CellOptions {
    fn default() -> Self {
        CellOptions { bias: true, nonlinearity: Nonlinearity::Tanh }
    }
}

/// The parameters of a cell of so many gates.
fn parameters(
    cx: &mut InitCx,
    [gates, inputs, hidden]: [usize; 3],
    bias: bool,
    op: &'static str,
) -> Result<([Parameter; 2], [Option<Parameter>; 2])> {
    if hidden == 0 {
        return Err(Error::new(ErrorKind::Value, "a cell of no states").with_op(op));
    }
    let (rows, init) = (gates.saturating_mul(hidden), bias_init(hidden));
    let weights = [cx.parameter([rows, inputs], init)?, cx.parameter([rows, hidden], init)?];
    Ok((weights, [optional(cx, bias, rows, init)?, optional(cx, bias, rows, init)?]))
}

macro_rules! cells {
    ($($(#[$doc:meta])* $cell:ident, $op:literal, $gates:literal;)*) => { $(
        $(#[$doc])*
        #[derive(Module)]
        #[module(crate = crate)]
        pub struct $cell {
            #[module(flatten)]
            label: Label,
            /// `[gates hidden, inputs]`.
            pub weight_ih: Parameter,
            /// `[gates hidden, hidden]`.
            pub weight_hh: Parameter,
            /// `[gates hidden]`.
            pub bias_ih: Option<Parameter>,
            /// `[gates hidden]`.
            pub bias_hh: Option<Parameter>,
            #[module(skip)]
            options: CellOptions,
        }

        impl $cell {
            /// A cell from `inputs` to `hidden` numbers. Errors: Value for a `hidden` of 0; Budget if it does not fit.
            pub fn new(cx: &mut InitCx, inputs: usize, hidden: usize) -> Result<Self> {
                $cell::with(cx, inputs, hidden, CellOptions::default())
            }

            /// As `new` with options. Errors: as there.
            pub fn with(cx: &mut InitCx, inputs: usize, hidden: usize, options: CellOptions) -> Result<Self> {
                let ([weight_ih, weight_hh], [bias_ih, bias_hh]) =
                    parameters(cx, [$gates, inputs, hidden], options.bias, $op)?;
                Ok($cell { label: Label::new($op), weight_ih, weight_hh, bias_ih, bias_hh, options })
            }

            /// `f` of the weights.
            fn with_weights<T>(&self, f: impl FnOnce(RecurrentWeights<'_>) -> Result<T>) -> Result<T> {
                let get = |p: &Option<Parameter>| p.as_ref().map(Parameter::get).transpose();
                let (w_ih, w_hh) = (self.weight_ih.get()?, self.weight_hh.get()?);
                let (b_ih, b_hh) = (get(&self.bias_ih)?, get(&self.bias_hh)?);
                let bias = b_ih.as_ref().zip(b_hh.as_ref()).map(|(ih, hh)| [ih, hh]);
                f(RecurrentWeights { w_ih: &w_ih, w_hh: &w_hh, bias, w_hr: None })
            }
        }
    )* };
}

cells! {
    /// One step of an [`Rnn`](crate::Rnn): `x: [batch, inputs]` and a state `[batch, hidden]` to the next.
    ///
    /// Parameters begin uniform in `-b .. b`, `b = 1 / sqrt hidden`. Errors: Axis for another rank, Shape for other extents.
    RnnCell, "rnn_cell", 1;

    /// One step of an [`Lstm`](crate::Lstm): `x: [batch, inputs]` and states `h, c: [batch, hidden]` to the next.
    ///
    /// Beginning and errors: as [`RnnCell`].
    LstmCell, "lstm_cell", 4;

    /// One step of a [`Gru`](crate::Gru): `x: [batch, inputs]` and a state `[batch, hidden]` to the next.
    ///
    /// Beginning and errors: as [`RnnCell`].
    GruCell, "gru_cell", 3;
}

impl RnnCell {
    /// The next state; the first one is 0 if none is given. Errors: as the cell.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let _scope = self.label.enter();
        self.with_weights(|w| x.rnn_cell(self.options.nonlinearity, state, w))
    }
}

impl LstmCell {
    /// The next `[h, c]`; the first ones are 0 if none are given. Errors: as the cell.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<[&Tensor; 2]>) -> Result<[Tensor; 2]> {
        let _site = Scope::at(CallSite::here());
        let _scope = self.label.enter();
        self.with_weights(|w| x.lstm_cell(state, w))
    }
}

impl GruCell {
    /// The next state; the first one is 0 if none is given. Errors: as the cell.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, state: Option<&Tensor>) -> Result<Tensor> {
        let _site = Scope::at(CallSite::here());
        let _scope = self.label.enter();
        self.with_weights(|w| x.gru_cell(state, w))
    }
}
