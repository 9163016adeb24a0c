"""Recurrent layers and their cells, with PyTorch's names, shapes and first values."""
from typing import Any, Dict, Optional, Tuple

from .._remat import Device, Generator, Tensor
from .._support import DTypeLike
from .layers import _Several


class _Recurrent(_Several):
    KIND = ""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None, _more: Optional[Dict[str, Any]] = None,
    ):
        options = {
            "inputs": input_size, "hidden": hidden_size, "num_layers": num_layers, "bias": bias, "batch_first": batch_first,
            "dropout": dropout, "bidirectional": bidirectional, **(_more or {}),
        }
        super().__init__(self.KIND, options, device, dtype, generator)


class RNN(_Recurrent):
    """Plain recurrent layers (Elman, 1990): `h' = f(W_ih x + b_ih + W_hh h + b_hh)`, with `nonlinearity` `tanh` or `relu`.

    `x: [steps, batch, input_size]` to `y: [steps, batch, hidden_size]`, or `2 hidden_size` if `bidirectional`; `[batch, steps, ..]`
    each if `batch_first`, and `[steps, ..]` without a batch. States are `[layers, batch, hidden_size]`, or `2 layers` in two
    directions: forward and reverse of the first layer, then of the next. `dropout` is of the outputs of every layer but the last,
    while training. Parameters begin uniform in `-b .. b`, `b = 1 / sqrt(hidden_size)`: `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`,
    `bias_hh_l0`, and so on.

    Errors: ArgumentError for sizes and probabilities outside their domain. At the call: AxisError, ShapeError; IndexError, when a
    value is read, for a length that is not in `0 ..= steps`.

    >>> import remat
    >>> rnn = remat.nn.RNN(4, 8, num_layers=2, nonlinearity="relu")
    >>> y, h = rnn(remat.ones(5, 3, 4))
    >>> y.shape, h.shape, [name for name, _ in rnn.named_parameters()][:2]
    ((5, 3, 8), (2, 3, 8), ['weight_ih_l0', 'weight_hh_l0'])
    """

    KIND = "rnn"

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ):
        _nonlinearity(nonlinearity)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype, generator,
            {"nonlinearity": nonlinearity},
        )

    def forward(self, x: Tensor, hx: Optional[Tensor] = None, lengths: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
        """Outputs and last states from initial states, which are 0 unless given. `lengths: [batch]`, integers, are the steps of each
        row, as of sequences that are packed in PyTorch: outputs behind them are 0, and the last state is that of a row's own last
        step."""
        y, h = self._call(x, hx, lengths)
        return y, h


class GRU(_Recurrent):
    """Gated recurrent units (Cho et al., 2014): gates `r, z` through the sigmoid, `n = tanh(W_in x + b_in + r (W_hn h + b_hn))` and
    `h' = (1 - z) n + z h`. Shapes, parameters and errors: as `RNN`.

    >>> import remat
    >>> y, h = remat.nn.GRU(4, 8, batch_first=True, bidirectional=True)(remat.ones(3, 5, 4))
    >>> y.shape, h.shape
    ((3, 5, 16), (2, 3, 8))
    """

    KIND = "gru"

    def forward(self, x: Tensor, hx: Optional[Tensor] = None, lengths: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
        """As of `RNN`."""
        y, h = self._call(x, hx, lengths)
        return y, h


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997): gates `i, f, g, o` of `W_ih x + b_ih + W_hh h + b_hh`, with
    `c' = sigmoid(f) c + sigmoid(i) tanh(g)` and `h' = sigmoid(o) tanh(c')`, which is projected to `proj_size` numbers if that is
    not 0. Shapes, parameters and errors: as `RNN`; there are two states, `h` and `c`.

    >>> import remat
    >>> y, (h, c) = remat.nn.LSTM(4, 8, proj_size=2)(remat.ones(5, 3, 4))
    >>> y.shape, h.shape, c.shape
    ((5, 3, 2), (1, 3, 2), (1, 3, 8))
    """

    KIND = "lstm"

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ):
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype, generator,
            {"proj_size": proj_size or None},
        )

    def forward(
        self, x: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None, lengths: Optional[Tensor] = None
    ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        """As of `RNN`, with states `(h, c)`."""
        h0, c0 = (None, None) if hx is None else hx
        y, h, c = self._call(x, h0, c0, lengths)
        return y, (h, c)


class _Cell(_Several):
    KIND = ""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None, _more: Optional[Dict[str, Any]] = None,
    ):
        options = {"inputs": input_size, "hidden": hidden_size, "bias": bias, **(_more or {})}
        super().__init__(self.KIND, options, device, dtype, generator)


class RNNCell(_Cell):
    """One step of an `RNN`: `x: [batch, input_size]` and a state `[batch, hidden_size]`, which is 0 unless given, to the next.

    >>> import remat
    >>> cell = remat.nn.RNNCell(4, 8)
    >>> cell(remat.ones(3, 4), remat.zeros(3, 8)).shape
    (3, 8)
    """

    KIND = "rnn_cell"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ):
        _nonlinearity(nonlinearity)
        super().__init__(input_size, hidden_size, bias, device, dtype, generator, {"nonlinearity": nonlinearity})

    def forward(self, x: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        """The next state."""
        return self._call(x, hx)[0]


class GRUCell(_Cell):
    """One step of a `GRU`: `x: [batch, input_size]` and a state `[batch, hidden_size]`, which is 0 unless given, to the next.

    >>> import remat
    >>> remat.nn.GRUCell(4, 8)(remat.ones(3, 4)).shape
    (3, 8)
    """

    KIND = "gru_cell"

    def forward(self, x: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        """The next state."""
        return self._call(x, hx)[0]


class LSTMCell(_Cell):
    """One step of an `LSTM`: `x: [batch, input_size]` and states `h, c: [batch, hidden_size]`, which are 0 unless given, to the next.

    >>> import remat
    >>> h, c = remat.nn.LSTMCell(4, 8)(remat.ones(3, 4))
    >>> h.shape, c.shape
    ((3, 8), (3, 8))
    """

    KIND = "lstm_cell"

    def forward(self, x: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
        """The next `(h, c)`."""
        h0, c0 = (None, None) if hx is None else hx
        h, c = self._call(x, h0, c0)
        return h, c


def _nonlinearity(name: str) -> None:
    if name not in ("tanh", "relu"):
        raise ValueError(f"nonlinearity is `tanh` or `relu`, not `{name}`")
