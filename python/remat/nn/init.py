"""First values of parameters, drawn in place, as `torch.nn.init`: each gives the parameter.

    >>> import remat
    >>> layer = remat.nn.Linear(4, 2)
    >>> remat.nn.init.constant_(layer.bias, 0.5).tolist()
    [0.5, 0.5]
"""
import json
from typing import Any, Optional

from .. import _remat
from .._remat import Generator, Parameter
from .._support import default_generator


def _draw(p: Parameter, rule: Any, generator: Optional[Generator]) -> Parameter:
    generator = default_generator() if generator is None else generator
    p.set_(_remat.initial(json.dumps(rule), p.shape, p.dtype, p.device, generator))
    return p


def _gain(nonlinearity: str, a: float) -> Any:
    if nonlinearity == "leaky_relu":
        return {"leaky_relu": a}
    if nonlinearity in ("linear", "sigmoid", "tanh", "relu", "selu"):
        return nonlinearity
    raise ValueError(f"`{nonlinearity}` is none of linear, sigmoid, tanh, relu, leaky_relu and selu")


def zeros_(p: Parameter) -> Parameter:
    """Zeros."""
    return _draw(p, "zeros", None)


def ones_(p: Parameter) -> Parameter:
    """Ones."""
    return _draw(p, "ones", None)


def constant_(p: Parameter, value: float) -> Parameter:
    """One number."""
    return _draw(p, {"constant": value}, None)


def uniform_(p: Parameter, a: float = 0.0, b: float = 1.0, generator: Optional[Generator] = None) -> Parameter:
    """Uniform in `a .. b`."""
    return _draw(p, {"uniform": {"lo": a, "hi": b}}, generator)


def normal_(p: Parameter, mean: float = 0.0, std: float = 1.0, generator: Optional[Generator] = None) -> Parameter:
    """Normal."""
    return _draw(p, {"normal": {"mean": mean, "std": std}}, generator)


def trunc_normal_(
    p: Parameter, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Optional[Generator] = None
) -> Parameter:
    """Normal within `a ..= b`."""
    return _draw(p, {"truncated_normal": {"mean": mean, "std": std, "lo": a, "hi": b}}, generator)


def xavier_uniform_(p: Parameter, gain: float = 1.0, generator: Optional[Generator] = None) -> Parameter:
    """Uniform in `-b .. b` with `b = gain sqrt(6 / (fan_in + fan_out))` (Glorot and Bengio, 2010)."""
    return _draw(p, {"xavier_uniform": {"is": gain}}, generator)


def xavier_normal_(p: Parameter, gain: float = 1.0, generator: Optional[Generator] = None) -> Parameter:
    """Normal of deviation `gain sqrt(2 / (fan_in + fan_out))`."""
    return _draw(p, {"xavier_normal": {"is": gain}}, generator)


def kaiming_uniform_(
    p: Parameter, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Optional[Generator] = None
) -> Parameter:
    """Uniform in `-b .. b` with `b = gain sqrt(3 / fan)` (He et al., 2015)."""
    return _draw(p, {"kaiming_uniform": [_gain(nonlinearity, a), mode.removeprefix("fan_")]}, generator)


def kaiming_normal_(
    p: Parameter, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Optional[Generator] = None
) -> Parameter:
    """Normal of deviation `gain / sqrt(fan)`."""
    return _draw(p, {"kaiming_normal": [_gain(nonlinearity, a), mode.removeprefix("fan_")]}, generator)
