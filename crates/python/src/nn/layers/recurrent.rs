//! Recurrent layers and their cells.

use remat::nn::{self, GruOptions, LstmOptions, RnnCellOptions, RnnOptions};

use super::arguments::Places;
use super::{classes, options};

options! {
    Rnn { input_size as "inputs": usize, hidden_size as "hidden": usize, [flatten] options: RnnOptions, [flatten] places: Places }
        => multi_input |o, cx| nn::Rnn::with(cx, o.input_size, o.hidden_size, o.options);

    Gru { input_size as "inputs": usize, hidden_size as "hidden": usize, [flatten] options: GruOptions, [flatten] places: Places }
        => multi_input |o, cx| nn::Gru::with(cx, o.input_size, o.hidden_size, o.options);

    // an LSTM has the options of a GRU, and a size of projection: 0 means none, as in PyTorch
    Lstm {
        input_size as "inputs": usize, hidden_size as "hidden": usize, [flatten] options: GruOptions, proj_size: usize = 0, [flatten] places: Places
    } => multi_input |o, cx| {
        let GruOptions { num_layers, bias, batch_first, dropout, bidirectional } = o.options;
        let proj_size = (o.proj_size > 0).then_some(o.proj_size);
        let options = LstmOptions { num_layers, bias, batch_first, dropout, bidirectional, proj_size };
        nn::Lstm::with(cx, o.input_size, o.hidden_size, options)
    };

    RnnCell { input_size as "inputs": usize, hidden_size as "hidden": usize, [flatten] options: RnnCellOptions, [flatten] places: Places }
        => multi_input |o, cx| nn::RnnCell::with(cx, o.input_size, o.hidden_size, o.options);

    GruCell { input_size as "inputs": usize, hidden_size as "hidden": usize, bias: bool = true, [flatten] places: Places }
        => multi_input |o, cx| nn::GruCell::with(cx, o.input_size, o.hidden_size, o.bias);

    LstmCell { input_size as "inputs": usize, hidden_size as "hidden": usize, bias: bool = true, [flatten] places: Places }
        => multi_input |o, cx| nn::LstmCell::with(cx, o.input_size, o.hidden_size, o.bias);
}

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
