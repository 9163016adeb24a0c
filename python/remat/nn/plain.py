"""Layers without windows: functions as modules, shapes, and modules in lists."""
from typing import Any, Iterable, Iterator, Mapping, Optional, Sequence, Tuple

from .. import _functions as F
from .._remat import Device, Generator, Tensor
from .._support import DTypeLike
from .layers import _Native
from .module import Module


class Flatten(Module):
    """Merges the axes from `start_dim` to `end_dim`, both included.

    >>> import remat
    >>> remat.nn.Flatten()(remat.ones(2, 3, 4)).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return F.flatten(x, self.start_dim, self.end_dim)


INPLACE = {"ReLU", "ReLU6", "SiLU", "Mish", "Hardsigmoid", "Hardswish", "Hardtanh", "SELU", "ELU", "CELU", "LeakyReLU", "Threshold"}
"""Those that have an argument `inplace` in PyTorch; here it is taken and changes nothing."""


def _activation(name: str, function: str, *options: Tuple[str, float]) -> Any:
    """A module of a function of one tensor."""
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
            """What is shown between the brackets."""
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
        """What is shown between the brackets."""
        return f"approximate={self.approximate!r}"


class PReLU(_Native):
    """`x` where it is positive, else `weight x` (He et al., ICCV 2015); `weight: [num_parameters]` of each channel (axis 1), or of
    all if that is 1. Errors at the call: ShapeError for another number of channels.

    >>> import remat
    >>> remat.nn.PReLU()(remat.tensor([[-4.0, 2.0]])).tolist()
    [[-1.0, 2.0]]
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Optional[Device] = None, dtype: DTypeLike = "float32"
    ):
        super().__init__("prelu", {"n": num_parameters, "value": init}, device, dtype)


class RReLU(_Native):
    """While training, `x` where it is positive, else `x` times a number drawn from `lower .. upper` for each element; else that
    times the mean of both (Xu et al., 2015). It has a generator of its own.

    >>> import remat
    >>> remat.nn.RReLU(0.25, 0.75).eval()(remat.tensor([-2.0])).tolist()
    [-1.0]
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, generator: Optional[Generator] = None):
        super().__init__("rrelu", {"lower": lower, "upper": upper}, None, "float32", generator)


class Unflatten(Module):
    """One axis as several; one of the extents may be -1: what is left. Errors at the call: AxisError, ShapeError.

    >>> import remat
    >>> remat.nn.Unflatten(1, (3, -1))(remat.ones(2, 12)).shape
    (2, 3, 4)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]):
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return F.unflatten(x, self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """What is shown between the brackets."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Identity(Module):
    """The input.

    >>> import remat
    >>> remat.nn.Identity()(remat.ones(1)).tolist()
    [1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """`x`."""
        return x


class ModuleList(Module):
    """Modules in a list, with their numbers as names.

    >>> import remat
    >>> blocks = remat.nn.ModuleList([remat.nn.ReLU(), remat.nn.Linear(2, 2)])
    >>> len(blocks), [n for n, _ in blocks.named_parameters()]
    (2, ['1.weight', '1.bias'])
    """

    def __init__(self, modules: Iterable[Module] = ()):
        super().__init__()
        for m in modules:
            self.append(m)

    def append(self, module: Module) -> "ModuleList":
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __getitem__(self, at: Any) -> Any:
        all = list(self._modules.values())
        return type(self)(all[at]) if isinstance(at, slice) else all[at]

    def __setitem__(self, at: int, module: Module) -> None:
        self.add_module(list(self._modules)[at], module)


class Sequential(ModuleList):
    """Modules one after the other, given one by one, in a list, or in a dictionary with their names.

    >>> import remat
    >>> net = remat.nn.Sequential(remat.nn.Linear(4, 8), remat.nn.ReLU(), remat.nn.Linear(8, 2))
    >>> net(remat.ones(3, 4)).shape
    (3, 2)
    """

    def __init__(self, *modules: Any):
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            super().__init__()
            for name, m in modules[0].items():
                self.add_module(name, m)
        else:
            super().__init__(modules[0] if len(modules) == 1 and not isinstance(modules[0], Module) else modules)

    def forward(self, x: Any) -> Any:
        """The output of the last for `x`."""
        for m in self:
            x = m(x)
        return x
