"""The `forward` of the compiled layers that `remat.nn` declares in Rust."""
from typing import Any, List, Optional

from .._remat import Tensor
from .compiled import CompiledLayer


class OneInput(CompiledLayer):
    """A compiled layer with one input."""

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return self._layer.forward(x)


class MultiInput(CompiledLayer):
    """A compiled layer with several inputs, each a tensor or None."""

    def _call(self, *x: Optional[Tensor], **options: Any) -> List[Tensor]:
        return self._layer.call(x, **options)


class PairCall(MultiInput):
    """A layer with two inputs."""

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The output for `x1` and `x2`."""
        return self._call(x1, x2)[0]


class BagCall(MultiInput):
    """A layer of bags of rows."""

    def forward(
        self, index: Tensor, offsets: Optional[Tensor] = None, per_sample_weights: Optional[Tensor] = None
    ) -> Tensor:
        """A row for each bag. `per_sample_weights`, of the shape of the index, are factors of the rows in sums."""
        return self._call(index, offsets, per_sample_weights)[0]


class DeformCall(MultiInput):
    """A convolution whose taps are moved."""

    def forward(self, x: Tensor, offset: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """`x: [n, in, h, w]`, `offset: [n, 2 g r s, oh, ow]`, `mask: [n, g r s, oh, ow]` to `[n, out, oh, ow]`."""
        return self._call(x, offset, mask)[0]


class RegionCall(MultiInput):
    """A convolution within regions."""

    def forward(self, x: Tensor, rin: Tensor, rout: Tensor) -> Tensor:
        """The output for `x: [n, in, h, w]`. `rin: [n, 1, h, w]` has the region of each pixel, and
        `rout: [n, 1, oh, ow]` that of each place of the output."""
        return self._call(x, rin, rout)[0]


class UnpoolCall(MultiInput):
    """A layer that inverts a pool."""

    def forward(self, x: Tensor, indices: Tensor) -> Tensor:
        """Zeros, with the elements of `x` at these places of each channel."""
        return self._call(x, indices)[0]
