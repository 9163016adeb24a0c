"""The `forward` of attention and of the blocks that contain it. Tensors are `[batch, places, numbers]`."""
from typing import Optional, Tuple

from .._remat import KvCache, Tensor
from .calls import MultiInput

Window = Optional[Tuple[int, int]]


class SelfAttentionCall(MultiInput):
    """Attention of a text to itself."""

    def forward(
        self, x: Tensor, mask: Optional[Tensor] = None, bias: Optional[Tensor] = None, *, causal: bool = False,
        scale: Optional[float] = None, window: Window = None, soft_cap: Optional[float] = None, cache: Optional[KvCache] = None,
    ) -> Tensor:
        """The output for `x`. A place sees the places where `mask`, of bools, is true and, if `causal`, only those up
        to itself. `bias` is added to the scores. Both broadcast to `[n, heads, t, t]`. `window` is the number of places
        before and after it that a place sees. With `soft_cap`, scores become `soft_cap tanh(score / soft_cap)`. With a
        `cache`, `x` has the places that follow those in the cache. The call adds them to it, and each sees all places
        before it."""
        if cache is not None:
            if mask is not None or bias is not None or scale is not None or window is not None or soft_cap is not None:
                raise TypeError("places behind a cache see themselves and what comes before: no other argument counts")
            return self._layer.forward_cached(x, cache)
        return self._call(x, mask, bias, causal=causal, scale=scale, window=window, soft_cap=soft_cap)[0]

    def cache(self, batch: int, places: int) -> KvCache:
        """A cache with room for the keys and values of `batch` texts of at most `places` tokens. Errors:
        BudgetError."""
        return self._layer.cache(batch, places)


class CrossAttentionCall(MultiInput):
    """Attention of three tensors."""

    def forward(
        self, q: Tensor, k: Optional[Tensor] = None, v: Optional[Tensor] = None, mask: Optional[Tensor] = None,
        bias: Optional[Tensor] = None, *, causal: bool = False, scale: Optional[float] = None, window: Window = None,
        soft_cap: Optional[float] = None, at_end: bool = False,
    ) -> Tensor:
        """The output for queries of `q`; `mask` and `bias` broadcast to `[n, heads, tq, tk]`. With `at_end` the last
        query stands at the last key, for `causal` and `window`. Other arguments: as for `MultiHeadAttention`."""
        k = q if k is None else k
        v = k if v is None else v
        return self._call(q, k, v, mask, bias, causal=causal, scale=scale, window=window, soft_cap=soft_cap, at_end=at_end)[0]


class EncoderBlockCall(MultiInput):
    """A block of an encoder."""

    def forward(
        self, x: Tensor, mask: Optional[Tensor] = None, bias: Optional[Tensor] = None, *, causal: bool = False,
        window: Window = None,
    ) -> Tensor:
        """The output for `x`. The arguments: as for `MultiHeadAttention`."""
        return self._call(x, mask, bias, causal=causal, window=window)[0]


class DecoderBlockCall(MultiInput):
    """A block of a decoder."""

    def forward(
        self, x: Tensor, memory: Tensor, mask: Optional[Tensor] = None, memory_mask: Optional[Tensor] = None, *,
        causal: bool = True,
    ) -> Tensor:
        """The output for `x`. `mask` and `causal` say which places of the text a place sees, and `memory_mask` which
        places of the memory."""
        return self._call(x, memory, mask, memory_mask, causal=causal)[0]


class EncoderDecoderCall(MultiInput):
    """An encoder and a decoder."""

    def forward(self, source: Tensor, target: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """The output. `mask: [n, 1, 1, tk]`, of bools, is true for the places of the source that are seen."""
        return self._call(source, target, mask)[0]

    def encode(self, source: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """The output of the encoder, which is the memory for `decode`."""
        return self._call(source, None, mask)[0]

    def decode(self, target: Tensor, memory: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """The output of the decoder for `target` and the output of the encoder."""
        return self._call(None, target, mask, memory)[0]
