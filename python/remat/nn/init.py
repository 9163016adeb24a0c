"""Initial values of parameters, drawn in place, as `torch.nn.init`. Each function returns the parameter.

    >>> import remat
    >>> layer = remat.nn.Linear(4, 2)
    >>> remat.nn.init.constant_(layer.bias, 0.5).tolist()
    [0.5, 0.5]
"""
from typing import Any, Optional

from .. import _remat
from .._remat import Generator, Parameter
from .._support import default_generator as _default_generator


def _draw(p: Parameter, rule: Any, generator: Optional[Generator]) -> Parameter:
    generator = _default_generator() if generator is None else generator
    p.set_(_remat.initial(rule, p.shape, p.dtype, p.device, generator))
    return p


def _gain(nonlinearity: str, a: float) -> Any:
    if nonlinearity == "leaky_relu":
        return {"leaky_relu": a}
    if nonlinearity in ("linear", "sigmoid", "tanh", "relu", "selu"):
        return nonlinearity
    raise ValueError(f"`{nonlinearity}` is none of linear, sigmoid, tanh, relu, leaky_relu and selu")


def zeros_(p: Parameter) -> Parameter:
    """Zeros.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.zeros(2, 3))
    >>> remat.nn.init.zeros_(p).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    return _draw(p, "zeros", None)


def ones_(p: Parameter) -> Parameter:
    """Ones.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.zeros(2, 3))
    >>> remat.nn.init.ones_(p).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    return _draw(p, "ones", None)


def constant_(p: Parameter, value: float) -> Parameter:
    """One number.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.zeros(2, 3))
    >>> remat.nn.init.constant_(p, 0.5).tolist()
    [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]
    """
    return _draw(p, {"constant": value}, None)


def uniform_(p: Parameter, a: float = 0.0, b: float = 1.0, generator: Optional[Generator] = None) -> Parameter:
    """Uniform in `a .. b`. Errors: ArgumentError for bounds that descend.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.zeros(2, 3))
    >>> bool((remat.nn.init.uniform_(p, 2.0, 3.0) >= 2).all())
    True
    """
    return _draw(p, {"uniform": {"lo": a, "hi": b}}, generator)


def normal_(p: Parameter, mean: float = 0.0, std: float = 1.0, generator: Optional[Generator] = None) -> Parameter:
    """Normal. Errors: ArgumentError for a negative deviation.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.zeros(2, 3))
    >>> remat.nn.init.normal_(p, 5.0, 0.0).tolist()
    [[5.0, 5.0, 5.0], [5.0, 5.0, 5.0]]
    """
    return _draw(p, {"normal": {"mean": mean, "std": std}}, generator)


def trunc_normal_(
    p: Parameter, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Optional[Generator] = None
) -> Parameter:
    """Normal within `a ..= b`.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.zeros(2, 3))
    >>> bool((abs(remat.nn.init.trunc_normal_(p, a=-1.0, b=1.0)) <= 1).all())
    True
    """
    return _draw(p, {"truncated_normal": {"mean": mean, "std": std, "lo": a, "hi": b}}, generator)


def xavier_uniform_(p: Parameter, gain: float = 1.0, generator: Optional[Generator] = None) -> Parameter:
    """Uniform in `-b .. b` with `b = gain sqrt(6 / (fan_in + fan_out))` (Glorot and Bengio, 2010).

    >>> import remat
    >>> p = remat.nn.Parameter(remat.zeros(2, 3))
    >>> bool((abs(remat.nn.init.xavier_uniform_(p)) <= (6 / 5) ** 0.5).all())
    True
    """
    return _draw(p, {"xavier_uniform": {"is": gain}}, generator)


def xavier_normal_(p: Parameter, gain: float = 1.0, generator: Optional[Generator] = None) -> Parameter:
    """Normal of deviation `gain sqrt(2 / (fan_in + fan_out))`.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.zeros(2, 3))
    >>> remat.nn.init.xavier_normal_(p, gain=0.0).tolist()
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    return _draw(p, {"xavier_normal": {"is": gain}}, generator)


def kaiming_uniform_(
    p: Parameter, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Optional[Generator] = None
) -> Parameter:
    """Uniform in `-b .. b` with `b = gain sqrt(3 / fan)` (He et al., 2015). Errors: ValueError for another nonlinearity.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.zeros(2, 3))
    >>> bool((abs(remat.nn.init.kaiming_uniform_(p, nonlinearity="relu")) <= 2**0.5).all())
    True
    """
    return _draw(p, {"kaiming_uniform": [_gain(nonlinearity, a), mode.removeprefix("fan_")]}, generator)


def kaiming_normal_(
    p: Parameter, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Optional[Generator] = None
) -> Parameter:
    """Normal of deviation `gain / sqrt(fan)`. Errors: ValueError for another nonlinearity.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.zeros(2, 3))
    >>> remat.nn.init.kaiming_normal_(p, nonlinearity="relu").shape
    (2, 3)
    """
    return _draw(p, {"kaiming_normal": [_gain(nonlinearity, a), mode.removeprefix("fan_")]}, generator)
