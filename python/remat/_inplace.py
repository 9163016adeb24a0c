"""`x += y` and similar statements, and the methods that make a tensor an array of the Python array API standard.

Data never change under a tensor: as after `x[0] = 1`, the object has another value, and results made from it before
keep the old one. Shape and dtype stay, as in NumPy. A result of a larger shape is a ValueError, and one of another kind
of dtype is a TypeError.
"""
import operator
from typing import Any, Optional

from . import _remat
from ._remat import Tensor

_cast = _remat._operators["cast"]


def _kind(x: Tensor) -> int:
    """The kind of a dtype as in NumPy: truth values, unsigned integers, signed integers, floats. A later kind can hold
    an earlier one."""
    name = x.dtype.name
    return 0 if name == "bool" else 1 if name.startswith("uint") else 2 if name.startswith("int") else 3


def _in_place(name: str, sign: str, apply: Any) -> Any:
    def method(x: Tensor, other: Any) -> Any:
        y = apply(x, other)
        if not isinstance(y, Tensor):
            return y
        if y.dtype != x.dtype:
            if _kind(y) > _kind(x):
                raise TypeError(f"`{sign}` of {x.dtype.name} gives {y.dtype.name}, which does not fit the tensor")
            y = _cast(y, x.dtype)
        x._become(y)
        return x

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"`x {sign} y`: the object takes the result, cast to its dtype within its kind. Errors: ValueError, TypeError."
    return method


_SIGNS = {
    "__iadd__": ("+=", operator.add), "__isub__": ("-=", operator.sub), "__imul__": ("*=", operator.mul),
    "__itruediv__": ("/=", operator.truediv), "__ifloordiv__": ("//=", operator.floordiv), "__imod__": ("%=", operator.mod),
    "__ipow__": ("**=", operator.pow), "__imatmul__": ("@=", operator.matmul), "__iand__": ("&=", operator.and_),
    "__ior__": ("|=", operator.or_), "__ixor__": ("^=", operator.xor), "__ilshift__": ("<<=", operator.lshift),
    "__irshift__": (">>=", operator.rshift),
}


def _namespace(x: Tensor, *, api_version: Optional[str] = None) -> Any:
    """The functions of the array API standard for this array, `remat.array_api`. Errors: ValueError for a version that
    it does not have.

    >>> import remat
    >>> remat.ones(1).__array_namespace__().__name__
    'remat.array_api'
    """
    from . import array_api

    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"version {api_version} of the array API standard; this is 2024.12, which has those before")
    return array_api


def _complex(x: Tensor) -> complex:
    """The only element as a Python complex number."""
    return complex(x.item())


def install() -> None:
    """Gives `Tensor` the methods."""
    for name, (sign, apply) in _SIGNS.items():
        setattr(Tensor, name, _in_place(name, sign, apply))
    for name, f in (("__array_namespace__", _namespace), ("__complex__", _complex)):
        setattr(Tensor, name, f)
