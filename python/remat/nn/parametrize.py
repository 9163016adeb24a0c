"""Layers whose weights are functions of other parameters."""
from typing import Any, Optional

from .. import _remat
from .._remat import Generator
from .._support import default_generator
from .calls import OneInput
from .module import Module


def _within(layer: Module) -> Any:
    if not isinstance(layer, OneInput):
        raise TypeError(f"a layer with a weight, such as Linear or Conv2d, is needed, not {type(layer).__name__}")
    return layer._layer


class WeightNorm(OneInput):
    """A layer that replaces `layer`. Its weight is a length times a direction for each slice of axis 0 (Salimans and
    Kingma, 2016): `weight = g v / |v|`. Its state is that of `torch.nn.utils.parametrizations.weight_norm`. Do not use
    `layer` any more.

    Errors: TypeError for a layer that is composed of others; ArgumentError for a `name` that does not exist or is a
    vector.

    >>> import remat
    >>> layer = remat.nn.WeightNorm(remat.nn.Linear(4, 2))
    >>> layer(remat.ones(3, 4)).shape, [name for name, _ in layer.named_parameters()][1:]
    ((3, 2), ['parametrizations.weight.original0', 'parametrizations.weight.original1'])
    """

    def __init__(self, layer: Module, name: str = "weight"):
        self._begin(_remat._NativeLayer.weight_norm(_within(layer), name))
        self.train(layer.training)



class SpectralNorm(OneInput):
    """A layer that replaces `layer`. Its weight is divided by an estimate of its largest singular value (Miyato et al.,
    ICLR 2018). In training, each pass improves the estimate by `n_power_iterations` steps. Its state is that of
    `torch.nn.utils.parametrizations.spectral_norm`. Do not use `layer` any more. Errors: as `WeightNorm`.

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
        self._begin(_remat._NativeLayer.spectral_norm(_within(layer), name, n_power_iterations, eps, generator))
        self.train(layer.training)


__all__ = ["SpectralNorm", "WeightNorm"]
