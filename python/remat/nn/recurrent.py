"""The `forward` of recurrent layers and their cells."""
from typing import Optional, Tuple

from .._remat import Tensor
from .calls import MultiInput


class RecurrentCall(MultiInput):
    """A recurrent layer with one state."""

    def forward(self, x: Tensor, hx: Optional[Tensor] = None, lengths: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
        """Outputs and last states from initial states, which are 0 unless given. `lengths: [batch]`, integers, has the
        number of steps of each row, as packed sequences have in PyTorch. Outputs after a row's last step are 0, and its
        last state is that of its own last step."""
        y, h = self._call(x, hx, lengths)
        return y, h


class LstmCall(MultiInput):
    """A recurrent layer with two states."""

    def forward(
        self, x: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None, lengths: Optional[Tensor] = None
    ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
        """As for `RNN`, with states `(h, c)`."""
        h0, c0 = (None, None) if hx is None else hx
        y, h, c = self._call(x, h0, c0, lengths)
        return y, (h, c)


class CellCall(MultiInput):
    """A cell with one state."""

    def forward(self, x: Tensor, hx: Optional[Tensor] = None) -> Tensor:
        """The next state."""
        return self._call(x, hx)[0]


class LstmCellCall(MultiInput):
    """A cell with two states."""

    def forward(self, x: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
        """The next `(h, c)`."""
        h0, c0 = (None, None) if hx is None else hx
        h, c = self._call(x, h0, c0)
        return h, c
