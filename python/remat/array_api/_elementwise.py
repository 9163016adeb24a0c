"""Functions of each element.

Most are the package's operators with the standard's domain. A kind of dtype for which a function has no meaning is a
TypeError. Functions that the standard defines for integers, but the operators do not, are filled in (`floor`, `isnan`).
"""
import operator
from typing import Any, Callable, Optional, Union

from .. import _remat
from .._remat import Tensor, bool as boolean
from ._creation import beside
from ._dtypes import finfo, kind_of, result_type

__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "conj", "copysign", "cos", "cosh",
    "divide", "equal", "exp", "expm1", "floor", "floor_divide", "greater", "greater_equal", "hypot", "imag", "isfinite", "isinf",
    "isnan", "less", "less_equal", "log", "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not", "logical_or",
    "logical_xor", "maximum", "minimum", "multiply", "negative", "nextafter", "not_equal", "positive", "pow", "real",
    "reciprocal", "remainder", "round", "sign", "signbit", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "trunc",
]

Operand = Union[Tensor, bool, int, float]
Unary = Callable[[Tensor], Tensor]
Binary = Callable[[Operand, Operand], Tensor]

_t = _remat._operators

_KINDS = {
    "floats": ("real floating",),
    "numbers": ("integral", "real floating"),
    "integers": ("integral",),
    "integers and truth values": ("integral", "bool"),
    "truth values": ("bool",),
    "all": ("bool", "integral", "real floating"),
}


def _checked(name: str, x: Tensor, of: str) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name}: expected an array, got {type(x).__name__}")
    if kind_of(x.dtype) not in _KINDS[of]:
        raise TypeError(f"{name} of {x.dtype.name}; it is for {of}")
    return x


def _doc(name: str, text: str, of: str, call: str, result: str) -> str:
    only = "" if of == "all" else f" For {of}; errors: TypeError for others."
    return f"{text}{only}\n\n    >>> from remat import array_api as xp\n    >>> {call}.tolist()\n    {result}\n    "


def _unary(name: str, text: str, of: str, x: str, result: str, f: Optional[Unary] = None) -> Unary:
    row = f or _t[name]

    def function(x: Tensor, /) -> Tensor:
        return row(_checked(name, x, of))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _doc(name, text, of, f"xp.{name}(xp.asarray({x}))", result)
    return function


def _binary(name: str, text: str, of: str, args: str, result: str, f: Any) -> Binary:
    def function(x1: Operand, x2: Operand, /) -> Tensor:
        if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
            raise TypeError(f"{name}: one of two operands is an array")
        a, b = beside(x1, x2), beside(x2, x1)
        return f(_checked(name, a, of), _checked(name, b, of))

    function.__name__ = function.__qualname__ = name
    text += " Shapes broadcast; one operand may be a number."
    a, b = args.split("; ")
    a, b = (f"xp.asarray({v})" if v.startswith("[") else v for v in (a, b))
    function.__doc__ = _doc(name, text, of, f"xp.{name}({a}, {b})", result)
    return function


def _for_floats(name: str) -> Unary:
    """An operator of floats that leaves integers as they are."""
    row = _t[name]
    return lambda x: row(x) if x.dtype.is_floating_point else +x


def _told(name: str, otherwise: bool) -> Unary:
    """A test of floats that is the same for all integers."""
    row = _t[name]

    def test(x: Tensor) -> Tensor:
        return row(x) if x.dtype.is_floating_point else _t["full"](x.device, x.shape, "bool", otherwise)

    return test


def _of_common(row: str) -> Callable[[Tensor, Tensor], Tensor]:
    """An operator of tensors of one dtype."""
    f = _t[row]

    def both(a: Tensor, b: Tensor) -> Tensor:
        of = result_type(a, b)
        return f(_t["cast"](a, of), _t["cast"](b, of))

    return both


def _like(x: Tensor, value: float) -> Tensor:
    return _t["full"](x.device, x.shape, x.dtype, value)


def _signbit(x: Tensor) -> Tensor:
    return _t["copysign"](_t["full"](x.device, (), x.dtype, 1), x) < 0


def _sign(x: Tensor) -> Tensor:
    # of -0 the standard wants 0
    return _t["sign"](x) + 0


def _next_up(x: Tensor) -> Tensor:
    """The least number above `x`, if that is finite: Rump, Zimmermann, Boldo, Melquiond, BIT 49 (2009), algorithm 2."""
    limits = finfo(x.dtype)
    unit, least = limits.eps / 2, limits.smallest_normal * limits.eps
    phi = unit * (1 + 2 * unit)
    size = abs(x)
    far = x + size * phi
    # if the step is a subnormal number, compute with numbers that are larger by a power of two
    large = x * (1 / unit)
    between = (large + abs(large) * phi) * unit
    step = _t["where_cond"](size < least / unit, x + least, between)
    return _t["where_cond"](size >= least / unit / unit * 0.5, far, step)


def _nextafter(x: Tensor, to: Tensor) -> Tensor:
    of = result_type(x, to)
    if of.name not in ("float32", "float64"):
        raise TypeError(f"nextafter of {of.name}; it is for float32 and float64")
    x, to = _t["cast"](x, of), _t["cast"](to, of)
    up, down = _next_up(x), -_next_up(-x)
    limits = finfo(of)
    # steps from infinity: differences with it are no numbers
    infinite = _t["is_inf"](x)
    up = _t["where_cond"](infinite, _t["where_cond"](x < 0, _like(x, limits.min), x), up)
    down = _t["where_cond"](infinite, _t["where_cond"](x > 0, _like(x, limits.max), x), down)
    y = _t["where_cond"](x < to, up, _t["where_cond"](x > to, down, to + (x - x) * 0))
    # for equal numbers the result is the second one, with its sign
    return _t["where_cond"](x == to, to.broadcast_to(y.shape), y)


abs = _unary("abs", "The size of each element.", "numbers", "[-1, 2]", "[1, 2]")
acos = _unary("acos", "The inverse cosine, in radians.", "floats", "[1.0]", "[0.0]")
acosh = _unary("acosh", "The inverse hyperbolic cosine.", "floats", "[1.0]", "[0.0]")
asin = _unary("asin", "The inverse sine, in radians.", "floats", "[0.0]", "[0.0]")
asinh = _unary("asinh", "The inverse hyperbolic sine.", "floats", "[0.0]", "[0.0]")
atan = _unary("atan", "The inverse tangent, in radians.", "floats", "[0.0]", "[0.0]")
atanh = _unary("atanh", "The inverse hyperbolic tangent.", "floats", "[0.0]", "[0.0]")
bitwise_invert = _unary(
    "bitwise_invert", "Each bit turned over.", "integers and truth values", "[0, 5]", "[-1, -6]", operator.invert
)
ceil = _unary("ceil", "The least integer that is not below each element.", "numbers", "[0.5, -0.5]", "[1.0, -0.0]", _for_floats("ceil"))
conj = _unary("conj", "The complex conjugate: of real numbers themselves.", "numbers", "[1.0]", "[1.0]", operator.pos)
cos = _unary("cos", "The cosine of radians.", "floats", "[0.0]", "[1.0]")
cosh = _unary("cosh", "The hyperbolic cosine.", "floats", "[0.0]", "[1.0]")
exp = _unary("exp", "`e^x`.", "floats", "[0.0]", "[1.0]")
expm1 = _unary("expm1", "`e^x - 1`, precise near 0.", "floats", "[0.0]", "[0.0]")
floor = _unary("floor", "The largest integer that is not above each element.", "numbers", "[0.5, -0.5]", "[0.0, -1.0]", _for_floats("floor"))
imag = _unary("imag", "The imaginary part: of real numbers 0.", "numbers", "[1.0]", "[0.0]", lambda x: _like(x, 0))
isfinite = _unary("isfinite", "True where neither infinite nor NaN.", "numbers", '[1.0, float("inf")]', "[True, False]", _told("is_finite", True))
isinf = _unary("isinf", "True where infinite.", "numbers", '[1.0, float("inf")]', "[False, True]", _told("is_inf", False))
isnan = _unary("isnan", "True where not a number.", "numbers", '[1.0, float("nan")]', "[False, True]", _told("is_nan", False))
log = _unary("log", "The natural logarithm.", "floats", "[1.0]", "[0.0]")
log10 = _unary("log10", "The logarithm to base 10.", "floats", "[100.0]", "[2.0]")
log1p = _unary("log1p", "`log(1 + x)`, precise near 0.", "floats", "[0.0]", "[0.0]")
log2 = _unary("log2", "The logarithm to base 2.", "floats", "[8.0]", "[3.0]")
logical_not = _unary("logical_not", "True where false.", "truth values", "[True, False]", "[False, True]")
negative = _unary("negative", "`-x`; unsigned integers wrap.", "numbers", "[1, -2]", "[-1, 2]", operator.neg)
positive = _unary("positive", "`+x`.", "numbers", "[1, -2]", "[1, -2]", operator.pos)
real = _unary("real", "The real part: real numbers themselves.", "numbers", "[1.0]", "[1.0]", operator.pos)
reciprocal = _unary("reciprocal", "`1 / x`.", "floats", "[4.0]", "[0.25]", _t["recip"])
round = _unary("round", "The nearest integer, the even one of two.", "numbers", "[0.5, 1.5]", "[0.0, 2.0]", _for_floats("round"))
sign = _unary("sign", "-1, 0 or 1, and NaN of NaN.", "numbers", "[-2.0, 0.0]", "[-1.0, 0.0]", _sign)
signbit = _unary("signbit", "True where the sign is negative, of -0 too.", "floats", "[-0.0, 0.0]", "[True, False]", _signbit)
sin = _unary("sin", "The sine of radians.", "floats", "[0.0]", "[0.0]")
sinh = _unary("sinh", "The hyperbolic sine.", "floats", "[0.0]", "[0.0]")
sqrt = _unary("sqrt", "The square root.", "floats", "[4.0]", "[2.0]")
square = _unary("square", "`x x`.", "numbers", "[-3]", "[9]")
tan = _unary("tan", "The tangent of radians.", "floats", "[0.0]", "[0.0]")
tanh = _unary("tanh", "The hyperbolic tangent.", "floats", "[0.0]", "[0.0]")
trunc = _unary("trunc", "The integer before the point.", "numbers", "[1.5, -1.5]", "[1.0, -1.0]", _for_floats("trunc"))

add = _binary("add", "`x1 + x2`.", "numbers", "[1, 2]; 1", "[2, 3]", operator.add)
atan2 = _binary("atan2", "The angle of the point `(x2, x1)`, in radians.", "floats", "[0.0]; [1.0]", "[0.0]", _of_common("atan2"))
bitwise_and = _binary("bitwise_and", "`x1 & x2`.", "integers and truth values", "[6]; 3", "[2]", operator.and_)
bitwise_left_shift = _binary("bitwise_left_shift", "`x1 << x2`.", "integers", "[3]; 2", "[12]", operator.lshift)
bitwise_or = _binary("bitwise_or", "`x1 | x2`.", "integers and truth values", "[6]; 3", "[7]", operator.or_)
bitwise_right_shift = _binary("bitwise_right_shift", "`x1 >> x2`, with the sign kept.", "integers", "[-8]; 2", "[-2]", operator.rshift)
bitwise_xor = _binary("bitwise_xor", "`x1 ^ x2`.", "integers and truth values", "[6]; 3", "[5]", operator.xor)
copysign = _binary("copysign", "The size of `x1` with the sign of `x2`.", "floats", "[1.0]; [-2.0]", "[-1.0]", _of_common("copysign"))
divide = _binary("divide", "`x1 / x2`; of integers a float32.", "numbers", "[1.0]; 2", "[0.5]", operator.truediv)
equal = _binary("equal", "True where equal.", "all", "[1, 2]; 2", "[False, True]", operator.eq)
floor_divide = _binary("floor_divide", "The largest integer not above `x1 / x2`.", "numbers", "[-7]; 2", "[-4]", operator.floordiv)
greater = _binary("greater", "True where `x1 > x2`.", "numbers", "[1, 2]; 1", "[False, True]", operator.gt)
greater_equal = _binary("greater_equal", "True where `x1 >= x2`.", "numbers", "[1, 2]; 2", "[False, True]", operator.ge)
hypot = _binary("hypot", "`sqrt(x1^2 + x2^2)`, without overflow.", "floats", "[3.0]; [4.0]", "[5.0]", _of_common("hypot"))
less = _binary("less", "True where `x1 < x2`.", "numbers", "[1, 2]; 2", "[True, False]", operator.lt)
less_equal = _binary("less_equal", "True where `x1 <= x2`.", "numbers", "[1, 2]; 1", "[True, False]", operator.le)
logaddexp = _binary("logaddexp", "`log(e^x1 + e^x2)`, without overflow.", "floats", "[1e3]; [0.0]", "[1000.0]", _of_common("log_add_exp"))
logical_and = _binary("logical_and", "True where both are.", "truth values", "[True, False]; True", "[True, False]", _t["logical_and"])
logical_or = _binary("logical_or", "True where one is.", "truth values", "[True, False]; False", "[True, False]", _t["logical_or"])
logical_xor = _binary("logical_xor", "True where just one is.", "truth values", "[True, False]; True", "[False, True]", _t["logical_xor"])
maximum = _binary("maximum", "The larger one; NaN if one is.", "numbers", "[1, 5]; 3", "[3, 5]", _of_common("maximum"))
minimum = _binary("minimum", "The smaller one; NaN if one is.", "numbers", "[1, 5]; 3", "[1, 3]", _of_common("minimum"))
multiply = _binary("multiply", "`x1 x2`.", "numbers", "[2]; 3", "[6]", operator.mul)
nextafter = _binary("nextafter", "The next number that the dtype has from `x1` on towards `x2`.", "floats", "[0.0]; [1.0]", "[1.401298464324817e-45]", _nextafter)
not_equal = _binary("not_equal", "True where not equal.", "all", "[1, 2]; 2", "[True, False]", operator.ne)
pow = _binary("pow", "`x1^x2`.", "numbers", "[2.0]; 3", "[8.0]", operator.pow)
remainder = _binary("remainder", "What `floor_divide` leaves, with the sign of `x2`.", "numbers", "[-7]; 2", "[1]", operator.mod)
subtract = _binary("subtract", "`x1 - x2`.", "numbers", "[3]; 1", "[2]", operator.sub)


def clip(x: Tensor, /, min: Optional[Operand] = None, max: Optional[Operand] = None) -> Tensor:
    """Elements below `min` become `min`, and elements above `max` become `max`. Bounds broadcast, and the dtype of `x`
    stays.

    Where the bounds cross, `max` holds. Errors: TypeError for truth values.

    >>> from remat import array_api as xp
    >>> xp.clip(xp.asarray([-3.0, 0.5, 9.0]), -1, 2).tolist()
    [-1.0, 0.5, 2.0]
    """
    y = +_checked("clip", x, "numbers")
    for bound, row in ((min, "maximum"), (max, "minimum")):
        if bound is not None:
            b = beside(bound, x)
            if kind_of(b.dtype) == "real floating" and kind_of(x.dtype) == "integral":
                raise TypeError(f"clip of {x.dtype.name} with bounds of {b.dtype.name}")
            y = _t[row](y, _t["cast"](b, x.dtype))
    return y
