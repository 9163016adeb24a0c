//! Recurrent layers and their cells.

use remat::Result;
use remat::nn::{self, GruOptions, InitCx, LstmOptions, RnnCellOptions, RnnOptions};
use remat::ops::schema::Params;

use super::arguments::Places;
use super::{LayerOptions, classes};
use crate::nn::compiled::Built;

#[derive(Params)]
#[op(crate = remat::ops)]
struct Rnn {
    #[param(rename = "inputs")]
    input_size: usize,
    #[param(rename = "hidden")]
    hidden_size: usize,
    #[param(flatten)]
    options: RnnOptions,
    #[param(flatten)]
    places: Places,
}

impl LayerOptions for Rnn {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        nn::Rnn::with(cx, self.input_size, self.hidden_size, self.options).map(Built::multi_input)
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct Gru {
    #[param(rename = "inputs")]
    input_size: usize,
    #[param(rename = "hidden")]
    hidden_size: usize,
    #[param(flatten)]
    options: GruOptions,
    #[param(flatten)]
    places: Places,
}

impl LayerOptions for Gru {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        nn::Gru::with(cx, self.input_size, self.hidden_size, self.options).map(Built::multi_input)
    }
}

/// An LSTM's options are those of a GRU, and a size that is 0 for none, as PyTorch has it.
#[derive(Params)]
#[op(crate = remat::ops)]
struct Lstm {
    #[param(rename = "inputs")]
    input_size: usize,
    #[param(rename = "hidden")]
    hidden_size: usize,
    #[param(flatten)]
    options: GruOptions,
    #[param(default = 0)]
    proj_size: usize,
    #[param(flatten)]
    places: Places,
}

impl LayerOptions for Lstm {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        let GruOptions { num_layers, bias, batch_first, dropout, bidirectional } = self.options;
        let proj_size = (self.proj_size > 0).then_some(self.proj_size);
        let options = LstmOptions { num_layers, bias, batch_first, dropout, bidirectional, proj_size };
        nn::Lstm::with(cx, self.input_size, self.hidden_size, options).map(Built::multi_input)
    }
}

#[derive(Params)]
#[op(crate = remat::ops)]
struct RnnCell {
    #[param(rename = "inputs")]
    input_size: usize,
    #[param(rename = "hidden")]
    hidden_size: usize,
    #[param(flatten)]
    options: RnnCellOptions,
    #[param(flatten)]
    places: Places,
}

impl LayerOptions for RnnCell {
    fn build(self, cx: &mut InitCx) -> Result<Built> {
        nn::RnnCell::with(cx, self.input_size, self.hidden_size, self.options).map(Built::multi_input)
    }
}

/// A cell with gates, whose only option is that it has a bias.
macro_rules! gated_cells {
    ($($name:ident),*) => { $(
        #[derive(Params)]
        #[op(crate = remat::ops)]
        struct $name {
            #[param(rename = "inputs")]
            input_size: usize,
            #[param(rename = "hidden")]
            hidden_size: usize,
            #[param(default = true)]
            bias: bool,
            #[param(flatten)]
            places: Places,
        }

        impl LayerOptions for $name {
            fn build(self, cx: &mut InitCx) -> Result<Built> {
                nn::$name::with(cx, self.input_size, self.hidden_size, self.bias).map(Built::multi_input)
            }
        }
    )* };
}
gated_cells! { GruCell, LstmCell }

classes! {
    /// Plain recurrent layers (Elman, 1990): `h' = f(W_ih x + b_ih + W_hh h + b_hh)`, with `nonlinearity` `tanh` or `relu`.
    ///
    /// `x: [steps, batch, input_size]` to `y: [steps, batch, hidden_size]`, or `2 hidden_size` if `bidirectional`; `[batch, steps, ..]`
    /// each if `batch_first`, and `[steps, ..]` without a batch. States are `[layers, batch, hidden_size]`, or `2 layers` in two
    /// directions: forward and reverse of the first layer, then of the next. `dropout` is of the outputs of every layer but the last,
    /// while training. Parameters begin uniform in `-b .. b`, `b = 1 / sqrt(hidden_size)`: `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`,
    /// `bias_hh_l0`, and so on.
    ///
    /// Errors: ArgumentError for sizes and probabilities outside their domain. At the call: AxisError, ShapeError; IndexError, when a
    /// value is read, for a length that is not in `0 ..= steps`.
    ///
    /// >>> import remat
    /// >>> rnn = remat.nn.RNN(4, 8, num_layers=2, nonlinearity="relu")
    /// >>> y, h = rnn(remat.ones(5, 3, 4))
    /// >>> y.shape, h.shape, [name for name, _ in rnn.named_parameters()][:2]
    /// ((5, 3, 8), (2, 3, 8), ['weight_ih_l0', 'weight_hh_l0'])
    RNN: RecurrentCall = Rnn;

    /// Gated recurrent units (Cho et al., 2014): gates `r, z` through the sigmoid, `n = tanh(W_in x + b_in + r (W_hn h + b_hn))` and
    /// `h' = (1 - z) n + z h`. Shapes, parameters and errors: as `RNN`.
    ///
    /// >>> import remat
    /// >>> y, h = remat.nn.GRU(4, 8, batch_first=True, bidirectional=True)(remat.ones(3, 5, 4))
    /// >>> y.shape, h.shape
    /// ((3, 5, 16), (2, 3, 8))
    GRU: RecurrentCall = Gru;

    /// Long short-term memory (Hochreiter and Schmidhuber, 1997): gates `i, f, g, o` of `W_ih x + b_ih + W_hh h + b_hh`, with
    /// `c' = sigmoid(f) c + sigmoid(i) tanh(g)` and `h' = sigmoid(o) tanh(c')`, which is projected to `proj_size` numbers if that is
    /// not 0. Shapes, parameters and errors: as `RNN`; there are two states, `h` and `c`.
    ///
    /// >>> import remat
    /// >>> y, (h, c) = remat.nn.LSTM(4, 8, proj_size=2)(remat.ones(5, 3, 4))
    /// >>> y.shape, h.shape, c.shape
    /// ((5, 3, 2), (1, 3, 2), (1, 3, 8))
    LSTM: LstmCall = Lstm;

    /// One step of an `RNN`: `x: [batch, input_size]` and a state `[batch, hidden_size]`, which is 0 unless given, to the next.
    ///
    /// >>> import remat
    /// >>> cell = remat.nn.RNNCell(4, 8)
    /// >>> cell(remat.ones(3, 4), remat.zeros(3, 8)).shape
    /// (3, 8)
    RNNCell: CellCall = RnnCell;

    /// One step of a `GRU`: `x: [batch, input_size]` and a state `[batch, hidden_size]`, which is 0 unless given, to the next.
    ///
    /// >>> import remat
    /// >>> remat.nn.GRUCell(4, 8)(remat.ones(3, 4)).shape
    /// (3, 8)
    GRUCell: CellCall = GruCell;

    /// One step of an `LSTM`: `x: [batch, input_size]` and states `h, c: [batch, hidden_size]`, which are 0 unless given, to the next.
    ///
    /// >>> import remat
    /// >>> h, c = remat.nn.LSTMCell(4, 8)(remat.ones(3, 4))
    /// >>> h.shape, c.shape
    /// ((3, 8), (3, 8))
    LSTMCell: LstmCellCall = LstmCell;
}
