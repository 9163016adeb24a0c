"""Activations, and other functions of one tensor, as modules."""
from typing import Any, Tuple

from .. import _functions as F
from .._remat import Tensor
from .module import Module

INPLACE = {"ReLU", "ReLU6", "SiLU", "Mish", "Hardsigmoid", "Hardswish", "Hardtanh", "SELU", "ELU", "CELU", "LeakyReLU", "Threshold"}
"""The activations with an argument `inplace` in PyTorch. Here it is accepted and changes nothing."""


def _activation(name: str, function: str, *options: Tuple[str, float]) -> Any:
    """A module from a function of one tensor."""
    f = getattr(F, function)
    has_inplace = name in INPLACE

    class Activation(Module):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__()
            names = [n for n, _ in options]
            if has_inplace:
                kwargs.pop("inplace", None)
                args = args[:-1] if len(args) == len(names) + 1 and isinstance(args[-1], bool) else args
            unknown = [k for k in kwargs if k not in names[len(args):]]
            if len(args) > len(names) or unknown:
                strange = [k for k in unknown if k not in names]
                wrong = f"not {', '.join(strange)}" if strange else "each once"
                raise TypeError(f"{name} takes {', '.join(names) or 'no arguments'}, {wrong}")
            self.options = {**dict(options), **dict(zip(names, args)), **kwargs}

        def __getattr__(self, name: str) -> Any:
            given = self.__dict__.get("options", {})
            return given[name] if name in given else super().__getattr__(name)

        def __setattr__(self, name: str, value: Any) -> None:
            if name in self.__dict__.get("options", {}):
                self.options = {**self.options, name: value}
            else:
                super().__setattr__(name, value)

        def forward(self, x: Tensor) -> Tensor:
            """The output for `x`."""
            return f(x, *self.options.values())

        def extra_repr(self) -> str:
            """The text that `repr` shows between the brackets."""
            return ", ".join(f"{k}={v}" for k, v in self.options.items())

    Activation.__name__ = Activation.__qualname__ = name
    Activation.__module__ = "remat.nn"
    Activation.__doc__ = f"`remat.{function}` as a module. {f.__doc__}"
    return Activation


ReLU = _activation("ReLU", "relu")
ReLU6 = _activation("ReLU6", "relu6")
SiLU = _activation("SiLU", "silu")
Mish = _activation("Mish", "mish")
Tanh = _activation("Tanh", "tanh")
Sigmoid = _activation("Sigmoid", "sigmoid")
LogSigmoid = _activation("LogSigmoid", "logsigmoid")
Softplus = _activation("Softplus", "softplus_with", ("beta", 1.0), ("threshold", 20.0))
Softsign = _activation("Softsign", "softsign")
Hardsigmoid = _activation("Hardsigmoid", "hardsigmoid")
Hardswish = _activation("Hardswish", "hardswish")
Hardtanh = _activation("Hardtanh", "hardtanh", ("min_val", -1.0), ("max_val", 1.0))
SELU = _activation("SELU", "selu")
ELU = _activation("ELU", "elu", ("alpha", 1.0))
CELU = _activation("CELU", "celu", ("alpha", 1.0))
LeakyReLU = _activation("LeakyReLU", "leaky_relu", ("negative_slope", 0.01))
Softmax = _activation("Softmax", "softmax", ("dim", -1))
LogSoftmax = _activation("LogSoftmax", "log_softmax", ("dim", -1))
Softmin = _activation("Softmin", "softmin", ("dim", -1))
Tanhshrink = _activation("Tanhshrink", "tanhshrink")
Hardshrink = _activation("Hardshrink", "hardshrink", ("lambd", 0.5))
Softshrink = _activation("Softshrink", "softshrink", ("lambd", 0.5))
Threshold = _activation("Threshold", "threshold", ("threshold", 0.0), ("value", 0.0))
PixelShuffle = _activation("PixelShuffle", "pixel_shuffle", ("upscale_factor", 1))
PixelUnshuffle = _activation("PixelUnshuffle", "pixel_unshuffle", ("downscale_factor", 1))
ChannelShuffle = _activation("ChannelShuffle", "channel_shuffle", ("groups", 1))
GlobalAvgPool = _activation("GlobalAvgPool", "global_avg_pool")
GlobalMaxPool = _activation("GlobalMaxPool", "global_max_pool")


class GELU(Module):
    """`x Phi(x)`, or with `approximate="tanh"` its approximation by a tanh. Errors: ValueError for another name.

    >>> import remat
    >>> remat.nn.GELU()(remat.zeros(1)).tolist()
    [0.0]
    """

    def __init__(self, approximate: str = "none"):
        super().__init__()
        if approximate not in ("none", "tanh"):
            raise ValueError(f"approximate is `none` or `tanh`, not `{approximate}`")
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return F.gelu(x) if self.approximate == "none" else F.gelu_tanh(x)

    def extra_repr(self) -> str:
        """The text that `repr` shows between the brackets."""
        return f"approximate={self.approximate!r}"


__all__ = [
    "CELU", "ChannelShuffle", "ELU", "GELU", "GlobalAvgPool", "GlobalMaxPool", "Hardshrink", "Hardsigmoid", "Hardswish",
    "Hardtanh", "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "PixelShuffle", "PixelUnshuffle", "ReLU", "ReLU6",
    "SELU", "Sigmoid", "SiLU", "Softmax", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink",
    "Threshold",
]
