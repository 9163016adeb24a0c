"""Layers of pairs, bags and moved taps, more ways to drop and to normalise, and weights that are functions of others."""
from typing import Any, Optional, Sequence

from .. import _functions as F
from .. import _remat
from .._remat import Device, Generator, Tensor
from .._support import DTypeLike, ShapeLike, default_generator
from .layers import Extents, _each, _Native, _padding, _Several, _shape
from .held import Held
from .module import Module


class Bilinear(_Several):
    """`y[k] = x1 W[k] x2 + b[k]`: `x1: [.., in1_features]`, `x2: [.., in2_features]` to `[.., out_features]`;
    `weight: [out, in1, in2]`. Errors at the call: ShapeError.

    >>> import remat
    >>> remat.nn.Bilinear(4, 3, 2)(remat.ones(5, 4), remat.ones(5, 3)).shape
    (5, 2)
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ):
        options = {"inputs": [in1_features, in2_features], "outputs": out_features, "bias": bias}
        super().__init__("bilinear", options, device, dtype, generator)

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The output for `x1` and `x2`."""
        return self._call(x1, x2)[0]


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along the axis `dim`.

    >>> import remat
    >>> remat.nn.CosineSimilarity()(remat.tensor([[3.0, 4.0]]), remat.tensor([[3.0, 4.0]])).tolist()
    [1.0]
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The cosines of `x1` and `x2`."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The `p`-norm of the difference of vectors along the last axis, to each number of which `eps` is added.

    >>> import remat
    >>> remat.nn.PairwiseDistance(eps=0.0)(remat.zeros(1, 2), remat.tensor([[3.0, 4.0]])).tolist()
    [5.0]
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        super().__init__()
        self.p, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The distances of `x1` and `x2`."""
        return F.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)


class EmbeddingBag(_Several):
    """Sums, means or largest (`mode`) of bags of rows of a table: `index: [bags, n]` to `[bags, embedding_dim]`, or `index: [n]` with
    `offsets`, where bags begin. The row `padding_idx` does not count.

    >>> import remat
    >>> bag = remat.nn.EmbeddingBag(10, 3, mode="sum")
    >>> bag(remat.tensor([1, 2, 4, 5]), remat.tensor([0, 3])).shape
    (2, 3)
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, mode: str = "mean", padding_idx: Optional[int] = None,
        include_last_offset: bool = False, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ):
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f"mode is `sum`, `mean` or `max`, not `{mode}`")
        options = {
            "count": num_embeddings, "size": embedding_dim, "mode": mode, "padding_idx": padding_idx,
            "include_last_offset": include_last_offset,
        }
        super().__init__("embedding_bag", options, device, dtype, generator)

    def forward(
        self, index: Tensor, offsets: Optional[Tensor] = None, per_sample_weights: Optional[Tensor] = None
    ) -> Tensor:
        """A row for each bag; `per_sample_weights`, of the shape of the index, are factors of the rows of sums."""
        return self._call(index, offsets, per_sample_weights)[0]


def _conv2d(
    in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents, padding: Any, dilation: Extents, groups: int,
    bias: bool,
) -> Any:
    return {
        "inputs": in_channels, "outputs": out_channels, "kernel": _each(kernel_size, 2), "stride": _each(stride, 2),
        "padding": _padding(padding, 2), "dilation": _each(dilation, 2), "groups": groups, "bias": bias,
    }


class DeformConv2d(_Several):
    """A convolution whose taps are moved (Dai et al., ICCV 2017), and weighted by a mask if there is one (Zhu et al., CVPR 2019), as
    `torchvision.ops.DeformConv2d`.

    >>> import remat
    >>> layer = remat.nn.DeformConv2d(1, 2, 3)
    >>> layer(remat.ones(1, 1, 5, 5), remat.zeros(1, 18, 3, 3)).shape
    (1, 2, 3, 3)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents = 1, padding: Any = 0,
        dilation: Extents = 1, groups: int = 1, bias: bool = True, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ):
        options = _conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        super().__init__("deform_conv", options, device, dtype, generator)

    def forward(self, x: Tensor, offset: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """`x: [n, in, h, w]`, `offset: [n, 2 g r s, oh, ow]`, `mask: [n, g r s, oh, ow]` to `[n, out, oh, ow]`."""
        return self._call(x, offset, mask)[0]


class LocalConv2d(_Native):
    """A convolution with a kernel of its own at each place, without a bias, for images of `size`, height and width.

    >>> import remat
    >>> remat.nn.LocalConv2d(1, 2, size=5, kernel_size=3)(remat.ones(1, 1, 5, 5)).shape
    (1, 2, 3, 3)
    """

    def __init__(
        self, in_channels: int, out_channels: int, size: Extents, kernel_size: Extents, stride: Extents = 1, padding: Any = 0,
        dilation: Extents = 1, groups: int = 1, device: Optional[Device] = None, dtype: DTypeLike = "float32",
        generator: Optional[Generator] = None,
    ):
        options = _conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, False)
        super().__init__("local_conv", {"size": _each(size, 2), **options}, device, dtype, generator)


class RegionRestrictedConv2d(_Several):
    """A convolution that sees only pixels of each place's own region.

    >>> import remat
    >>> regions = remat.zeros(1, 1, 5, 5, dtype="int32")
    >>> layer = remat.nn.RegionRestrictedConv2d(1, 2, 3, padding=1)
    >>> layer(remat.ones(1, 1, 5, 5), regions, regions).shape
    (1, 2, 5, 5)
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Extents, stride: Extents = 1, padding: Any = 0,
        dilation: Extents = 1, groups: int = 1, bias: bool = True, device: Optional[Device] = None,
        dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
    ):
        options = _conv2d(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias)
        super().__init__("region_restricted_conv", options, device, dtype, generator)

    def forward(self, x: Tensor, rin: Tensor, rout: Tensor) -> Tensor:
        """`x: [n, in, h, w]` whose pixels are of the regions `rin: [n, 1, h, w]`, at places of the regions `rout: [n, 1, oh, ow]`."""
        return self._call(x, rin, rout)[0]


class _Drop(_Native):
    KIND = ""

    def __init__(self, p: float = 0.5, generator: Optional[Generator] = None):
        super().__init__(self.KIND, {"p": p}, None, "float32", generator)


class Dropout1d(_Drop):
    """While training, each channel of `[n, c, l]` is 0 with probability `p`, else divided by `1 - p` (Tompson et al., CVPR 2015).

    >>> import remat
    >>> remat.nn.Dropout1d(0.5).eval()(remat.ones(1, 1, 2)).tolist()
    [[[1.0, 1.0]]]
    """

    KIND = "dropout1d"


class Dropout2d(_Drop):
    """As `Dropout1d`, of `[n, c, h, w]`.

    >>> import remat
    >>> y = remat.nn.Dropout2d(0.5)(remat.ones(1, 8, 2, 2))
    >>> bool(((y == 0).all(axis=(2, 3)) | (y == 2).all(axis=(2, 3))).all())
    True
    """

    KIND = "dropout2d"


class Dropout3d(_Drop):
    """As `Dropout1d`, of `[n, c, d, h, w]`.

    >>> import remat
    >>> remat.nn.Dropout3d(1.0)(remat.ones(1, 1, 1, 1, 2)).tolist()
    [[[[[0.0, 0.0]]]]]
    """

    KIND = "dropout3d"


class AlphaDropout(_Drop):
    """While training, each element is at the limit of SELU with probability `p`, and all are scaled and moved so that means of 0 and
    variances of 1 stay (Klambauer et al., NeurIPS 2017).

    >>> import remat
    >>> remat.nn.AlphaDropout(0.5).eval()(remat.ones(2)).tolist()
    [1.0, 1.0]
    """

    KIND = "alpha_dropout"


class DropPath(_Drop):
    """While training, each example, of axis 0, is 0 with probability `p`, else divided by `1 - p`: stochastic depth (Huang et al.,
    ECCV 2016).

    >>> import remat
    >>> remat.nn.DropPath(1.0)(remat.ones(2, 1)).tolist()
    [[0.0], [0.0]]
    """

    KIND = "drop_path"


class GeneralNorm(_Native):
    """Normalisation over any axes, whose extents are `shape`, in ascending order; `weight` and `bias` have them too.

    >>> import remat
    >>> remat.nn.GeneralNorm((1, 3), (4, 6))(remat.rand(2, 4, 5, 6)).shape
    (2, 4, 5, 6)
    """

    def __init__(
        self, axes: Sequence[int], shape: ShapeLike, eps: float = 1e-5, affine: bool = True, device: Optional[Device] = None,
        dtype: DTypeLike = "float32",
    ):
        extents = _shape(shape)
        super().__init__("general_norm", {"axes": list(axes), "shape": extents, "eps": eps, "affine": affine}, device, dtype)


class LocalResponseNorm(Module):
    """`x / (k + alpha mean(x^2))^beta`, with the mean over `size` neighbouring channels.

    >>> import remat
    >>> remat.nn.LocalResponseNorm(2)(remat.rand(1, 4, 3, 3)).shape
    (1, 4, 3, 3)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return F.local_response_norm(x, self.size, self.alpha, self.beta, self.k)


def _within(layer: Module) -> Any:
    if not isinstance(layer, Held) or isinstance(layer, _Several):
        raise TypeError(f"a layer with a weight, such as Linear or Conv2d, is needed, not {type(layer).__name__}")
    return layer._layer


class WeightNorm(_Native):
    """A layer in the place of `layer` whose weight is a length times a direction, of each slice of axis 0 (Salimans and Kingma, 2016):
    `weight = g v / |v|`. Its state is that of `torch.nn.utils.parametrizations.weight_norm`. `layer` is not used beside it.

    Errors: TypeError for a layer that is made of others; ArgumentError for a `name` that is not there or a vector.

    >>> import remat
    >>> layer = remat.nn.WeightNorm(remat.nn.Linear(4, 2))
    >>> layer(remat.ones(3, 4)).shape, [name for name, _ in layer.named_parameters()][1:]
    ((3, 2), ['parametrizations.weight.original0', 'parametrizations.weight.original1'])
    """

    def __init__(self, layer: Module, name: str = "weight"):
        options = {"layer": layer, "name": name}
        self._begin("weight_norm", options, _remat._NativeLayer.weight_norm(_within(layer), name))
        self.train(layer.training)

    @classmethod
    def _native(cls, kind: str, options: Any, device: Device, dtype: DTypeLike, generator: Generator) -> Any:
        layer = options["layer"].to(device=device, dtype=dtype)
        return _remat._NativeLayer.weight_norm(_within(layer), options["name"])


class SpectralNorm(_Native):
    """A layer in the place of `layer` whose weight is divided by an estimate of its largest singular value (Miyato et al., ICLR 2018),
    which each pass while training makes better by `n_power_iterations` steps. Its state is that of
    `torch.nn.utils.parametrizations.spectral_norm`. `layer` is not used beside it. Errors: as of `WeightNorm`.

    >>> import remat
    >>> layer = remat.nn.SpectralNorm(remat.nn.Linear(4, 2))
    >>> layer(remat.ones(3, 4)).shape, [name for name, _ in layer.named_buffers()]
    ((3, 2), ['parametrizations.weight.0._u', 'parametrizations.weight.0._v'])
    """

    def __init__(
        self, layer: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
        generator: Optional[Generator] = None,
    ):
        generator = default_generator() if generator is None else generator
        inner = _remat._NativeLayer.spectral_norm(_within(layer), name, n_power_iterations, eps, generator)
        options = {"layer": layer, "name": name, "n_power_iterations": n_power_iterations, "eps": eps}
        self._begin("spectral_norm", options, inner)
        self.train(layer.training)

    @classmethod
    def _native(cls, kind: str, options: Any, device: Device, dtype: DTypeLike, generator: Generator) -> Any:
        layer, rest = options["layer"].to(device=device, dtype=dtype), (options["n_power_iterations"], options["eps"])
        return _remat._NativeLayer.spectral_norm(_within(layer), options["name"], *rest, generator)
