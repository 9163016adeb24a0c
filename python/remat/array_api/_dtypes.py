"""Data types: their kinds, limits and conversions, by the standard's rules."""
from typing import Any, Dict, List, Optional, Tuple, Union

from .. import _remat
from .._remat import (
    Device, Tensor, bfloat16, bool as boolean, dtype, float16, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
)
from .._support import default_device

__all__ = ["astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]

SIGNED = (int8, int16, int32, int64)
UNSIGNED = (uint8, uint16, uint32, uint64)
FLOATS = (float32, float64)
# dtypes of the package that are not in the standard
MORE_FLOATS = (float16, bfloat16)

_KINDS: Dict[str, Tuple[dtype, ...]] = {
    "bool": (boolean,),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": SIGNED + UNSIGNED,
    "real floating": FLOATS + MORE_FLOATS,
    "complex floating": (),
    "numeric": SIGNED + UNSIGNED + FLOATS + MORE_FLOATS,
}

# bits, and for a float the bits of its fraction and its largest exponent
_FLOATS = {"float16": (16, 10, 15), "bfloat16": (16, 7, 127), "float32": (32, 23, 127), "float64": (64, 52, 1023)}

Scalar = Union[bool, int, float]


def of_kind(kind: str) -> Tuple[dtype, ...]:
    """The dtypes of one of the standard's kinds. Errors: ValueError for another name."""
    try:
        return _KINDS[kind]
    except KeyError:
        raise ValueError(f"`{kind}` is none of {', '.join(_KINDS)}") from None


def isdtype(dtype: dtype, kind: Any) -> bool:
    """True if a dtype is of a kind. A kind is a dtype, one of the standard's names of kinds, or a tuple of these.

    Names are "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating" and "numeric".
    Errors: ValueError for another name; TypeError for an object that is no dtype.

    >>> from remat import array_api as xp
    >>> xp.isdtype(xp.int8, "integral"), xp.isdtype(xp.float32, ("bool", xp.float64))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any([isdtype(dtype, k) for k in kind])
    if not isinstance(dtype, _remat.dtype):
        raise TypeError(f"expected a dtype, got {type(dtype).__name__}")
    if isinstance(kind, str):
        return dtype in of_kind(kind)
    if not isinstance(kind, _remat.dtype):
        raise TypeError(f"a kind is a dtype, a name or a tuple of them, not {type(kind).__name__}")
    return dtype == kind


def kind_of(of: dtype) -> str:
    """"bool", "integral" or "real floating"."""
    return "bool" if of == boolean else "real floating" if of.is_floating_point else "integral"


def _dtype_of(x: Any) -> dtype:
    return x.dtype if isinstance(x, Tensor) else x if isinstance(x, dtype) else dtype(x)


def can_cast(from_: Union[dtype, Tensor], to: dtype, /) -> bool:
    """True if the standard's promotion leads from a dtype to another: within its kind, to one that holds all of its
    values.

    >>> from remat import array_api as xp
    >>> xp.can_cast(xp.int8, xp.int16), xp.can_cast(xp.int64, xp.uint64), xp.can_cast(xp.int8, xp.float64)
    (True, False, False)
    """
    of = _dtype_of(from_)
    return of == to or kind_of(of) == kind_of(to) and _remat.promote_types(of, to) == to


def result_type(*arrays_and_dtypes: Union[Tensor, Scalar, dtype]) -> dtype:
    """The dtype of an expression over arrays, dtypes and Python's numbers. At least one of them must have a dtype.

    A number takes the dtype of the arrays beside it. A float beside integers makes float32; the standard leaves this
    open. Errors: ValueError if nothing has a dtype.

    >>> from remat import array_api as xp
    >>> xp.result_type(xp.int8, xp.uint8), xp.result_type(xp.ones(1), 2)
    (remat.int16, remat.float32)
    """
    found: Optional[dtype] = None
    numbers: List[Scalar] = []
    for x in arrays_and_dtypes:
        if isinstance(x, (bool, int, float)):
            numbers.append(x)
        else:
            found = _dtype_of(x) if found is None else _remat.promote_types(found, _dtype_of(x))
    if found is None:
        raise ValueError("result_type needs an array or a dtype")
    for n in numbers:
        if isinstance(n, float) and not found.is_floating_point:
            found = float32
        elif isinstance(n, int) and not isinstance(n, bool) and found == boolean:
            found = int64
    return found


def astype(x: Tensor, dtype: dtype, /, *, copy: bool = True, device: Optional[Device] = None) -> Tensor:
    """The elements in another dtype. With `copy=False` the result is `x` itself if nothing changes.

    Floats become integers by truncation, and saturate.

    >>> from remat import array_api as xp
    >>> xp.astype(xp.asarray([0.0, 2.5]), xp.int8).tolist()
    [0, 2]
    """
    if device is not None:
        x = x._copy_to(device)
    if x.dtype == dtype:
        return +x if copy else x
    return _remat._operators["cast"](x, dtype)


class finfo:
    """The limits of a floating dtype, or of that of an array: `bits`, `eps`, `max`, `min`, `smallest_normal`, `dtype`.

    Errors: TypeError for other dtypes.

    >>> from remat import array_api as xp
    >>> xp.finfo(xp.float32).eps, xp.finfo(xp.float32).bits
    (1.1920928955078125e-07, 32)
    """

    def __init__(self, type: Union[dtype, Tensor], /):
        self.dtype = _dtype_of(type)
        if not self.dtype.is_floating_point:
            raise TypeError(f"finfo of {self.dtype.name}; it is for floating dtypes")
        bits, fraction, exponent = _FLOATS[self.dtype.name]
        self.bits = bits
        self.eps = 2.0**-fraction
        self.max = (2.0 - self.eps) * 2.0**exponent
        self.min = -self.max
        self.smallest_normal = 2.0 ** (1 - exponent)

    def __repr__(self) -> str:
        return f"finfo(bits={self.bits}, eps={self.eps}, max={self.max}, min={self.min}, dtype={self.dtype!r})"


class iinfo:
    """The limits of an integer dtype, or of that of an array: `bits`, `max`, `min`, `dtype`. Errors: TypeError for other dtypes.

    >>> from remat import array_api as xp
    >>> xp.iinfo(xp.int8).min, xp.iinfo(xp.uint64).max
    (-128, 18446744073709551615)
    """

    def __init__(self, type: Union[dtype, Tensor], /):
        self.dtype = _dtype_of(type)
        if self.dtype not in _KINDS["integral"]:
            raise TypeError(f"iinfo of {self.dtype.name}; it is for integer dtypes")
        self.bits = 8 * self.dtype.itemsize
        signed = self.dtype in SIGNED
        self.max = 2 ** (self.bits - signed) - 1
        self.min = -self.max - 1 if signed else 0

    def __repr__(self) -> str:
        return f"iinfo(bits={self.bits}, max={self.max}, min={self.min}, dtype={self.dtype!r})"


def device_of(*arrays: Any) -> Device:
    """The device of the first array, or the default one."""
    return next((x.device for x in arrays if isinstance(x, Tensor)), None) or default_device()
