"""Attention, and the blocks of encoders and decoders made of it. Tensors are `[batch, places, numbers]`."""
from typing import Any, Dict, Optional, Tuple

from .._remat import Device, Generator, Tensor
from .._support import DTypeLike
from .layers import _Several

Window = Optional[Tuple[int, int]]


class KvCache:
    """Keys and values of one attention, or of all of a network, of texts that grow: room for `places` tokens, which is on the device
    from the beginning. `MultiHeadAttention.cache` makes one, and so does `remat.models.Gpt.cache`. `len` of it is how many tokens are
    there.

    >>> import remat
    >>> attention = remat.nn.MultiHeadAttention(8, 2)
    >>> cache = attention.cache(batch=1, places=16)
    >>> _ = attention(remat.ones(1, 3, 8), cache=cache)
    >>> len(cache), cache.places
    (3, 16)
    """

    def __init__(self, of: object):
        self._of = of

    def __len__(self) -> int:
        return len(self._of)  # type: ignore[arg-type]

    @property
    def places(self) -> int:
        """How many tokens there is room for."""
        return self._of.places  # type: ignore[attr-defined]

    def truncate(self, length: int) -> None:
        """Forgets all tokens but the first `length`. Errors: ArgumentError for more than are there."""
        self._of.truncate(length)  # type: ignore[attr-defined]

    def clear(self) -> None:
        """Forgets all tokens."""
        self.truncate(0)


class MultiHeadAttention(_Several):
    """`softmax(q k^T / sqrt(d / heads)) v` for each of several heads, and a linear layer over all of them (Vaswani et al., 2017), of
    a text to itself: `x, y: [n, t, d]`. `q, k, v` are three thirds of one linear layer `qkv`, as PyTorch's `in_proj`; its
    weights load with `names="in_proj_{p} -> qkv.{p}\\nout_proj.{p} -> out.{p}"`.

    Errors: ArgumentError if `heads` does not divide `d`. At the call: AxisError, ShapeError, DTypeError.

    >>> import remat
    >>> attention = remat.nn.MultiHeadAttention(8, 2)
    >>> attention(remat.ones(1, 5, 8), causal=True).shape, [n for n, _ in attention.named_parameters()]
    ((1, 5, 8), ['qkv.weight', 'qkv.bias', 'out.weight', 'out.bias'])
    """

    def __init__(
        self, d: int, heads: int, bias: bool = True, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ):
        super().__init__("multi_head_attention", {"d": d, "heads": heads, "bias": bias}, device, dtype, generator)

    def forward(
        self, x: Tensor, mask: Optional[Tensor] = None, bias: Optional[Tensor] = None, *, causal: bool = False,
        scale: Optional[float] = None, window: Window = None, soft_cap: Optional[float] = None, cache: Optional[KvCache] = None,
    ) -> Tensor:
        """The output for `x`. A place sees those where `mask`, of bools, is true, and those up to itself if `causal`; `bias` is added
        to the scores. Both broadcast to `[n, heads, t, t]`. `window` is how many places before and behind it a place sees; scores
        become `soft_cap tanh(score / soft_cap)`. With a `cache`, `x` are places behind those of it, to which they are added, and
        see what comes before."""
        if cache is not None:
            if mask is not None or bias is not None or scale is not None or window is not None or soft_cap is not None:
                raise TypeError("places behind a cache see themselves and what comes before: no other argument counts")
            return self._layer.forward_cached(x, cache._of)
        return self._call(x, mask, bias, causal=causal, scale=scale, window=window, soft_cap=soft_cap)[0]

    def cache(self, batch: int, places: int) -> KvCache:
        """Room for the keys and values of `batch` texts of at most `places` tokens. Errors: BudgetError."""
        return KvCache(self._layer.cache(batch, places))


class CrossAttention(_Several):
    """As `MultiHeadAttention`, of three tensors: `q: [n, tq, d]`, `k: [n, tk, kdim]`, `v: [n, tk, vdim]` to `[n, tq, d]`; `k` and `v` are
    `q` unless given. `heads_kv` heads of keys and values are each shared by as many heads of queries (Ainslie et al., 2023).
    `dropout` drops probabilities while training. `time_first` tensors are `[t, n, ..]`.

    >>> import remat
    >>> attention = remat.nn.CrossAttention(8, 4, kdim=6, vdim=6, heads_kv=1)
    >>> text, image = remat.ones(1, 3, 8), remat.ones(1, 10, 6)
    >>> attention(text, image, image).shape
    (1, 3, 8)
    """

    def __init__(
        self, d: int, heads: int, *, kdim: Optional[int] = None, vdim: Optional[int] = None, heads_kv: Optional[int] = None,
        dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False, add_zero_attn: bool = False,
        time_first: bool = False, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ):
        options = {
            "d": d, "heads": heads, "kdim": kdim, "vdim": vdim, "heads_kv": heads_kv, "dropout": dropout, "bias": bias,
            "add_bias_kv": add_bias_kv, "add_zero_attn": add_zero_attn, "time_first": time_first,
        }
        super().__init__("cross_attention", options, device, dtype, generator)

    def forward(
        self, q: Tensor, k: Optional[Tensor] = None, v: Optional[Tensor] = None, mask: Optional[Tensor] = None,
        bias: Optional[Tensor] = None, *, causal: bool = False, scale: Optional[float] = None, window: Window = None,
        soft_cap: Optional[float] = None, at_end: bool = False,
    ) -> Tensor:
        """The output for queries of `q`; `mask` and `bias` broadcast to `[n, heads, tq, tk]`. With `at_end` the last query stands at the
        last key, for `causal` and `window`. The rest: as of `MultiHeadAttention`."""
        k = q if k is None else k
        v = k if v is None else v
        how = {"causal": causal, "scale": scale, "window": window, "soft_cap": soft_cap, "at_end": at_end}
        return self._call(q, k, v, mask, bias, **how)[0]


class _Blocks(_Several):
    KIND = ""

    def __init__(
        self, d: int, heads: int, feedforward: int = 2048, dropout: float = 0.1, activation: str = "relu",
        norm_first: bool = False, eps: float = 1e-5, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None, _more: Optional[Dict[str, Any]] = None,
    ):
        if activation not in ("relu", "gelu"):
            raise ValueError(f"activation is `relu` or `gelu`, not `{activation}`")
        options = {
            "d": d, "heads": heads, "feedforward": feedforward, "dropout": dropout, "activation": activation,
            "norm_first": norm_first, "eps": eps, **(_more or {}),
        }
        super().__init__(self.KIND, options, device, dtype, generator)


class EncoderBlock(_Blocks):
    """A block of an encoder: attention of a text to itself and two linear layers, each added to what it gets and normalised:
    `x, y: [n, t, d]`. As PyTorch's `TransformerEncoderLayer` with `batch_first`; `norm_first` puts the norms before what they
    normalise for.

    >>> import remat
    >>> remat.nn.EncoderBlock(8, 2, feedforward=32)(remat.ones(1, 5, 8), causal=True).shape
    (1, 5, 8)
    """

    KIND = "encoder_block"

    def forward(
        self, x: Tensor, mask: Optional[Tensor] = None, bias: Optional[Tensor] = None, *, causal: bool = False,
        window: Window = None,
    ) -> Tensor:
        """The output for `x`; what a place sees: as of `MultiHeadAttention`."""
        return self._call(x, mask, bias, causal=causal, window=window)[0]


class DecoderBlock(_Blocks):
    """A block of a decoder: attention of a text to itself, to what an encoder gives, and two linear layers: `x, y: [n, t, d]`,
    `memory: [n, tk, d]`. As PyTorch's `TransformerDecoderLayer` with `batch_first`.

    >>> import remat
    >>> remat.nn.DecoderBlock(8, 2, feedforward=32)(remat.ones(1, 3, 8), remat.ones(1, 5, 8)).shape
    (1, 3, 8)
    """

    KIND = "decoder_block"

    def forward(
        self, x: Tensor, memory: Tensor, mask: Optional[Tensor] = None, memory_mask: Optional[Tensor] = None, *,
        causal: bool = True,
    ) -> Tensor:
        """The output for `x`, whose places see what `mask` and `causal` say of the text, and `memory_mask` of the memory."""
        return self._call(x, memory, mask, memory_mask, causal=causal)[0]


class EncoderDecoder(_Blocks):
    """Blocks of an encoder, blocks of a decoder, and a norm behind each: `source: [n, tk, d]` and `target: [n, t, d]` to `[n, t, d]`
    (Vaswani et al., 2017). A place of the target sees itself and what comes before.

    >>> import remat
    >>> net = remat.nn.EncoderDecoder(8, 2, encoders=2, decoders=1, feedforward=32)
    >>> net(remat.ones(1, 5, 8), remat.ones(1, 3, 8)).shape
    (1, 3, 8)
    """

    KIND = "encoder_decoder"

    def __init__(
        self, d: int, heads: int, encoders: int = 6, decoders: int = 6, feedforward: int = 2048, dropout: float = 0.1,
        activation: str = "relu", norm_first: bool = False, eps: float = 1e-5, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ):
        super().__init__(
            d, heads, feedforward, dropout, activation, norm_first, eps, device, dtype, generator, {"layers": [encoders, decoders]}
        )

    def forward(self, source: Tensor, target: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """The output, where `mask: [n, 1, 1, tk]`, of bools, shows the places of the source."""
        return self._call(source, target, mask)[0]

    def encode(self, source: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """What the encoder gives: the memory of `decode`."""
        return self._call(source, None, mask)[0]

    def decode(self, target: Tensor, memory: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """What the decoder gives for `target` and what the encoder gave."""
        return self._call(None, target, mask, memory)[0]
