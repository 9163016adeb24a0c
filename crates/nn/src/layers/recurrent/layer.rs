use remat_ops::schema::Params;
use remat_tensor::{Nonlinearity, Tensor};
use remat_types::{CallSite, Error, ErrorKind, Result, Scope};

use super::stack::{RecurrentStack, Sizes, States};
use crate::{InitCx, Label, Layer, Module};

/// How an [`Rnn`] is made. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Params)]
#[op(default)]
pub struct RnnOptions {
    /// The number of layers. Each reads the outputs of the one before. Default: 1.
    pub num_layers: usize,
    /// The function applied to the sums. Default: tanh.
    pub nonlinearity: Nonlinearity,
    /// Add biases. Default: true.
    pub bias: bool,
    /// Inputs and outputs are `[batch, steps, ..]`, not `[steps, batch, ..]`; states are the same. Default: false.
    pub batch_first: bool,
    /// Probability that an output of a layer but the last is dropped while training. Default: 0.
    pub dropout: f64,
    /// A second direction beside the first, whose outputs follow those of the first. Default: false.
    pub bidirectional: bool,
}

impl Default for RnnOptions {
    fn default() -> Self {
        RnnOptions {
            num_layers: 1,
            nonlinearity: Nonlinearity::Tanh,
            bias: true,
            batch_first: false,
            dropout: 0.0,
            bidirectional: false,
        }
    }
}

/// How an [`Lstm`] is made. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LstmOptions {
    /// As [`RnnOptions::num_layers`].
    pub num_layers: usize,
    /// As [`RnnOptions::bias`].
    pub bias: bool,
    /// As [`RnnOptions::batch_first`].
    pub batch_first: bool,
    /// As [`RnnOptions::dropout`].
    pub dropout: f64,
    /// As [`RnnOptions::bidirectional`].
    pub bidirectional: bool,
    /// Numbers of an output, fewer than `hidden`, if it is projected (Sak et al., 2014). Default: none.
    pub proj_size: Option<usize>,
}

impl Default for LstmOptions {
    fn default() -> Self {
        LstmOptions {
            num_layers: 1,
            bias: true,
            batch_first: false,
            dropout: 0.0,
            bidirectional: false,
            proj_size: None,
        }
    }
}

/// How a [`Gru`] is made. The defaults are PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Params)]
#[op(default)]
pub struct GruOptions {
    /// As [`RnnOptions::num_layers`].
    pub num_layers: usize,
    /// As [`RnnOptions::bias`].
    pub bias: bool,
    /// As [`RnnOptions::batch_first`].
    pub batch_first: bool,
    /// As [`RnnOptions::dropout`].
    pub dropout: f64,
    /// As [`RnnOptions::bidirectional`].
    pub bidirectional: bool,
}

impl Default for GruOptions {
    fn default() -> Self {
        GruOptions { num_layers: 1, bias: true, batch_first: false, dropout: 0.0, bidirectional: false }
    }
}

/// Plain recurrent layers (Elman, 1990): `h' = f(W_ih x + b_ih + W_hh h + b_hh)`, with `f` tanh or ReLU.
///
/// `x: [steps, batch, inputs]`, `y: [steps, batch, hidden]`, or `2 hidden` in two directions; `[batch, steps, ..]` each if
/// `batch_first`, and `[steps, ..]` without a batch. States are `[layers, batch, hidden]`, or `2 layers` in two directions:
/// forward and reverse of the first layer, then of the next. Parameters begin uniform in `-b .. b`, `b = 1 / sqrt hidden`, and
/// have PyTorch's names and shapes.
///
/// Errors: Axis for another rank, Shape for other extents; at run time, Index for a length that is not in `0 ..= steps`.
#[derive(Module)]
#[module(crate = crate)]
pub struct Rnn {
    #[module(flatten)]
    label: Label,
    /// The weights.
    #[module(flatten)]
    pub stack: RecurrentStack,
    #[module(skip)]
    nonlinearity: Nonlinearity,
}

impl Rnn {
    /// A layer from `inputs` to `hidden` numbers. Errors: Value for a `hidden` of 0; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, hidden: usize) -> Result<Self> {
        Rnn::with(cx, inputs, hidden, RnnOptions::default())
    }

    /// As [`Rnn::new`] with options. Errors: also Value for no layers and for a `dropout` outside 0 ..= 1.
    pub fn with(cx: &mut InitCx, inputs: usize, hidden: usize, o: RnnOptions) -> Result<Self> {
        let sizes = Sizes {
            op: "rnn",
            gates: 1,
            inputs,
            hidden,
            layers: o.num_layers,
            bias: o.bias,
            batch_first: o.batch_first,
            dropout: o.dropout,
            bidirectional: o.bidirectional,
            project: None,
        };
        Ok(Rnn { label: Label::new("rnn"), stack: RecurrentStack::new(cx, sizes)?, nonlinearity: o.nonlinearity })
    }

    /// The outputs and the last states from initial states, which are 0 where none are given. `lengths: [batch]`, integers:
    /// the steps of each row, as of sequences that are packed in PyTorch; its outputs are 0 behind them, its last state is that
    /// of its own last step, and the second direction begins there.
    ///
    /// Errors: as the layer.
    #[track_caller]
    pub fn forward_with(
        &self,
        x: &Tensor,
        state: Option<&Tensor>,
        lengths: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor)> {
        let _site = Scope::at(CallSite::here());
        let _scope = self.label.enter();
        let y = self.stack.forward(x, state.as_slice(), lengths, |x, first, w, steps| {
            let (y, h) = x.rnn(self.nonlinearity, first.first(), w, steps)?;
            Ok((y, vec![h]))
        });
        one_state(y?)
    }
}

/// Long short-term memory (Hochreiter and Schmidhuber, 1997): gates `i, f, g, o` of `W_ih x + b_ih + W_hh h + b_hh`, with
/// `c' = sigmoid(f) c + sigmoid(i) tanh(g)` and `h' = sigmoid(o) tanh(c')`, which is projected by `W_hr` if there is a
/// `proj_size`.
///
/// Shapes, beginning and errors: as [`Rnn`]; there are two states, `h: [layers, batch, hidden]` (with a projection
/// `[.., proj_size]`, as are the outputs) and `c: [layers, batch, hidden]`.
#[derive(Module)]
#[module(crate = crate)]
pub struct Lstm {
    #[module(flatten)]
    label: Label,
    /// The weights.
    #[module(flatten)]
    pub stack: RecurrentStack,
}

impl Lstm {
    /// A layer from `inputs` to `hidden` numbers. Errors: Value for a `hidden` of 0; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, hidden: usize) -> Result<Self> {
        Lstm::with(cx, inputs, hidden, LstmOptions::default())
    }

    /// As [`Lstm::new`] with options. Errors: also Value for no layers, a `dropout` outside 0 ..= 1, and a `proj_size` that is
    /// 0 or not below `hidden`.
    pub fn with(cx: &mut InitCx, inputs: usize, hidden: usize, o: LstmOptions) -> Result<Self> {
        let sizes = Sizes {
            op: "lstm",
            gates: 4,
            inputs,
            hidden,
            layers: o.num_layers,
            bias: o.bias,
            batch_first: o.batch_first,
            dropout: o.dropout,
            bidirectional: o.bidirectional,
            project: o.proj_size,
        };
        Ok(Lstm { label: Label::new("lstm"), stack: RecurrentStack::new(cx, sizes)? })
    }

    /// As [`Rnn::forward_with`], of initial and last states `[h, c]`.
    #[track_caller]
    pub fn forward_with(
        &self,
        x: &Tensor,
        state: Option<[&Tensor; 2]>,
        lengths: Option<&Tensor>,
    ) -> Result<(Tensor, [Tensor; 2])> {
        let _site = Scope::at(CallSite::here());
        let _scope = self.label.enter();
        let states = state.as_ref().map_or(&[][..], |s| &s[..]);
        let (y, states) = self.stack.forward(x, states, lengths, |x, first, w, steps| {
            let first = if let [h, c] = first { Some([h, c]) } else { None };
            let (y, states) = x.lstm(first, w, steps)?;
            Ok((y, states.into()))
        })?;
        let states = states.try_into().map_err(|_| Error::new(ErrorKind::Internal, "an LSTM has two states"))?;
        Ok((y, states))
    }
}

/// Gated recurrent units (Cho et al., 2014): gates `r, z` through the sigmoid, `n = tanh(W_in x + b_in + r (W_hn h + b_hn))`
/// and `h' = (1 - z) n + z h`.
///
/// Shapes, beginning and errors: as [`Rnn`].
#[derive(Module)]
#[module(crate = crate)]
pub struct Gru {
    #[module(flatten)]
    label: Label,
    /// The weights.
    #[module(flatten)]
    pub stack: RecurrentStack,
}

impl Gru {
    /// A layer from `inputs` to `hidden` numbers. Errors: Value for a `hidden` of 0; Budget if it does not fit.
    pub fn new(cx: &mut InitCx, inputs: usize, hidden: usize) -> Result<Self> {
        Gru::with(cx, inputs, hidden, GruOptions::default())
    }

    /// As [`Gru::new`] with options. Errors: also Value for no layers and for a `dropout` outside 0 ..= 1.
    pub fn with(cx: &mut InitCx, inputs: usize, hidden: usize, o: GruOptions) -> Result<Self> {
        let sizes = Sizes {
            op: "gru",
            gates: 3,
            inputs,
            hidden,
            layers: o.num_layers,
            bias: o.bias,
            batch_first: o.batch_first,
            dropout: o.dropout,
            bidirectional: o.bidirectional,
            project: None,
        };
        Ok(Gru { label: Label::new("gru"), stack: RecurrentStack::new(cx, sizes)? })
    }

    /// As [`Rnn::forward_with`].
    #[track_caller]
    pub fn forward_with(
        &self,
        x: &Tensor,
        state: Option<&Tensor>,
        lengths: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor)> {
        let _site = Scope::at(CallSite::here());
        let _scope = self.label.enter();
        let y = self.stack.forward(x, state.as_slice(), lengths, |x, first, w, steps| {
            let (y, h) = x.gru(first.first(), w, steps)?;
            Ok((y, vec![h]))
        });
        one_state(y?)
    }
}

fn one_state((y, states): (Tensor, States)) -> Result<(Tensor, Tensor)> {
    let [h] = <[Tensor; 1]>::try_from(states).map_err(|_| Error::new(ErrorKind::Internal, "there is one state"))?;
    Ok((y, h))
}

macro_rules! outputs {
    ($($layer:ident)*) => { $(
        impl Layer for $layer {
            /// The outputs, from states of 0.
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                self.forward_with(x, None, None).map(|(y, _)| y)
            }
        }
    )* };
}
outputs! { Rnn Lstm Gru }
