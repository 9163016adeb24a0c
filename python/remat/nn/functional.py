"""Functions of networks under the names and with the arguments of `torch.nn.functional`: `import remat.nn.functional as F`.

Random functions draw from the default generator (see `remat.manual_seed`), unless they are given another.

    >>> import remat
    >>> import remat.nn.functional as F
    >>> F.relu(remat.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
"""
from typing import Any, List, Optional, Sequence, Union

from .. import _functions as _f, _vision
from .._creation import _key
from .._functions import (
    celu, cosine_similarity, elu, glu, gumbel_softmax, hardshrink, hardsigmoid, hardswish, hardtanh, leaky_relu, local_response_norm,
    log_softmax, logsigmoid, mish, normalize, pairwise_distance, pixel_shuffle, pixel_unshuffle, prelu, relu, relu6, selu, sigmoid,
    silu, softmax, softmin, softshrink, softsign, tanh, tanhshrink, threshold,
)
from .._remat import Generator, Tensor
from .._tensor_methods import (
    adaptive_avg_pool2d, avg_pool2d, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d, max_pool2d,
    scaled_dot_product_attention,
)
from .loss import (
    binary_cross_entropy, binary_cross_entropy_with_logits, cross_entropy, kl_div, l1_loss, mse_loss, nll_loss, smooth_l1_loss,
)


def linear(x: Tensor, weight: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    """`x W^T + b`: `x: [.., inputs]`, `weight: [outputs, inputs]`, `bias: [outputs]`. Errors: ShapeError.

    >>> import remat
    >>> remat.nn.functional.linear(remat.ones(1, 2), remat.ones(3, 2), remat.ones(3)).tolist()
    [[3.0, 3.0, 3.0]]
    """
    y = _f.matmul(x, _f.t(weight))
    return y if bias is None else y + bias


def embedding(x: Tensor, weight: Tensor, padding_idx: Optional[int] = None, sparse: bool = False) -> Tensor:
    """The rows of `weight: [count, size]` that the integers `x: [..]` name: `[.., size]`; the row `padding_idx` gets no gradient.
    With `sparse` a backward pass keeps the gradient of these rows only, as `remat.nn.Embedding` says.

    Errors: IndexError for an index that is no row, when the value is read.

    >>> import remat
    >>> remat.nn.functional.embedding(remat.tensor([1, 0]), remat.eye(2)).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    return (_f.embedding_rows if sparse else _f.embedding)(weight, x, padding_idx)


def one_hot(x: Tensor, num_classes: int) -> Tensor:
    """`y[.., k] = 1` where `k` is the integer, else 0: int64, with a last axis of `num_classes`.

    Unlike PyTorch's, it needs the number of classes: to find it, the function would have to wait for the values.

    >>> import remat
    >>> remat.nn.functional.one_hot(remat.tensor([1, 0]), 3).tolist()
    [[0, 1, 0], [1, 0, 0]]
    """
    return _f.one_hot(x, num_classes, "int64")


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """`x Phi(x)`, or with `approximate="tanh"` its approximation by a tanh. Errors: ValueError for another name.

    >>> import remat
    >>> round(remat.nn.functional.gelu(remat.ones(1)).item(), 4)
    0.8413
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate is `none` or `tanh`, not `{approximate}`")
    return _f.gelu(x) if approximate == "none" else _f.gelu_tanh(x)


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """`ln(1 + e^(beta x)) / beta`, and `x` where `beta x > threshold`.

    >>> import remat
    >>> round(remat.nn.functional.softplus(remat.zeros(1)).item(), 4)
    0.6931
    """
    return _f.softplus_with(x, beta, threshold)


def dropout(x: Tensor, p: float = 0.5, training: bool = True, generator: Optional[Generator] = None) -> Tensor:
    """While training, zero with probability `p`, else divided by `1 - p`. Errors: ArgumentError for `p` outside of `0 .. 1`.

    >>> import remat
    >>> y = remat.nn.functional.dropout(remat.ones(100), 0.5)
    >>> sorted(set(y.tolist())), remat.nn.functional.dropout(remat.ones(1), training=False).tolist()
    ([0.0, 2.0], [1.0])
    """
    return _f.dropout(x, p, _key(generator, x.device)) if training else x


def layer_norm(
    x: Tensor, normalized_shape: Union[int, Sequence[int]], weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
    eps: float = 1e-5,
) -> Tensor:
    """`x` normalised over its last axes, which have the extents `normalized_shape`. `weight` and `bias` have these
    extents too. Errors: ShapeError.

    >>> import remat
    >>> remat.nn.functional.layer_norm(remat.tensor([[1.0, 3.0]]), 2).round().tolist()
    [[-1.0, 1.0]]
    """
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if tuple(x.shape[x.ndim - len(shape) :]) != shape:
        raise ValueError(f"the last axes of shape {x.shape} have not the extents {shape}")
    from .._creation import ones, zeros

    weight = ones(shape, dtype=x.dtype, device=x.device) if weight is None else weight
    bias = zeros(shape, dtype=x.dtype, device=x.device) if bias is None else bias
    return _f.layer_norm(x, weight, bias, len(shape), eps)


def group_norm(
    x: Tensor, num_groups: int, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, eps: float = 1e-5
) -> Tensor:
    """`x` normalised over each group of channels (axis 1) of each example.

    >>> import remat
    >>> remat.nn.functional.group_norm(remat.rand(2, 4, 3), 2).shape
    (2, 4, 3)
    """
    return _f.group_norm(x, num_groups, weight, bias, eps)


_PAD_MODES = {"reflect", "replicate", "circular"}


def pad(x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """`x` with elements added around its last axes: `pad` is `[before, after]` of the last axis, then of the one before
    it, and so on.

    A negative number takes elements away. `mode` is constant, reflect, replicate or circular. Errors: ValueError for an odd count,
    more pairs than axes, or another mode; ShapeError for more elements than `mode` has.

    >>> import remat
    >>> remat.nn.functional.pad(remat.ones(1, 2), [1, 0, 0, 1]).tolist()
    [[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    """
    given: List[int] = [int(n) for n in pad]
    if len(given) % 2 or len(given) > 2 * x.ndim:
        raise ValueError(f"{len(given)} numbers of padding for {x.ndim} axes: give a pair for each of the last axes")
    pairs = [(0, 0)] * (x.ndim - len(given) // 2) + [(given[i], given[i + 1]) for i in range(len(given) - 2, -1, -2)]
    if any(n < 0 for n in given):
        cut = [slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(x.shape, pairs)]
        if any(c.start > c.stop for c in cut):
            raise ValueError(f"padding {given} takes more away than shape {x.shape} has")
        x = x[tuple(cut)]
        pairs = [(max(a, 0), max(b, 0)) for a, b in pairs]
    if not any(a or b for a, b in pairs):
        return x
    if mode == "constant":
        return _f.pad(x, pairs, value)
    if mode not in _PAD_MODES:
        raise ValueError(f"mode is constant, reflect, replicate or circular, not `{mode}`")
    return _f.pad_with(x, pairs, mode)


def interpolate(
    x: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: Optional[bool] = None,
    recompute_scale_factor: Optional[bool] = None, antialias: bool = False,
) -> Tensor:
    """Images (or lines, or volumes) of another size: `[n, c, ..]` of one to three more axes, to extents `size` or by factors.

    `mode` is nearest, nearest-exact, linear, bilinear, trilinear, bicubic or area. Errors: ValueError unless one of `size` and
    `scale_factor` is given, or for another mode; AxisError; ArgumentError for options that a mode does not have.

    >>> import remat
    >>> x = remat.tensor([[[[0.0, 1.0]]]])
    >>> remat.nn.functional.interpolate(x, size=(1, 3), mode="bilinear", align_corners=True).tolist()
    [[[[0.0, 0.5, 1.0]]]]
    """
    return _vision.interpolate(x, size, scale_factor, mode, bool(align_corners), bool(recompute_scale_factor), antialias)
