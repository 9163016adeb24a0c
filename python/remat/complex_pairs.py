"""Complex numbers as pairs: tensors whose last axis, of extent 2, holds real and imaginary part.

    >>> import remat
    >>> i = remat.complex_pairs.of_parts(remat.tensor(0.0), remat.tensor(1.0))
    >>> remat.complex_pairs.multiply(i, i).tolist()
    [-1.0, 0.0]

There is no complex dtype. `remat.fft` takes and returns such pairs. Shapes, without the axis of the parts, broadcast.
All functions are for floats, and differentiable. Errors: ShapeError for a last axis of another extent; DTypeError for
other than floats.
"""
from typing import Any, Callable

from . import _remat
from ._remat import Tensor

__all__ = [
    "absolute", "absolute_square", "add", "angle", "conj", "divide", "exp", "imag", "log", "matmul", "multiply", "of_parts", "polar",
    "real", "sqrt", "subtract",
]

_t = _remat._operators


def of_parts(real: Tensor, imag: Tensor) -> Tensor:
    """`real + i imag`.

    >>> import remat
    >>> remat.complex_pairs.of_parts(remat.tensor([1.0]), remat.tensor([2.0])).tolist()
    [[1.0, 2.0]]
    """
    return _t["complex_of_parts"](real, imag)


def polar(absolute: Tensor, angle: Tensor) -> Tensor:
    """`absolute e^(i angle)`.

    >>> import remat
    >>> remat.complex_pairs.polar(remat.tensor([2.0]), remat.tensor([0.0])).tolist()
    [[2.0, 0.0]]
    """
    return _t["complex_polar"](absolute, angle)


def _of_one(row: str, name: str, text: str, z: str, result: str) -> Callable[[Tensor], Tensor]:
    def function(z: Tensor) -> Tensor:
        return _t[row](z)

    return _told(function, name, text, f"remat.tensor({z})", result)


def _of_two(row: str, name: str, text: str, w: str, result: str) -> Callable[[Tensor, Tensor], Tensor]:
    def function(z: Tensor, w: Tensor) -> Tensor:
        return _t[row](z, w)

    return _told(function, name, text, f"remat.tensor([3.0, 4.0]), remat.tensor({w})", result)


def _told(function: Any, name: str, text: str, args: str, result: str) -> Any:
    function.__name__ = function.__qualname__ = name
    call = f">>> remat.complex_pairs.{name}({args}).tolist()"
    function.__doc__ = f"{text}\n\n    >>> import remat\n    {call}\n    {result}\n    "
    return function


real = _of_one("complex_real", "real", "The real part.", "[3.0, 4.0]", "3.0")
imag = _of_one("complex_imag", "imag", "The imaginary part.", "[3.0, 4.0]", "4.0")
absolute = _of_one(
    "complex_abs", "absolute", "The size `sqrt(re^2 + im^2)`, without overflow; its derivative at 0 is 0.", "[3.0, 4.0]", "5.0"
)
absolute_square = _of_one("complex_abs_square", "absolute_square", "`re^2 + im^2`.", "[3.0, 4.0]", "25.0")
angle = _of_one("complex_angle", "angle", "The angle in radians, from -pi to pi.", "[1.0, 0.0]", "0.0")
conj = _of_one("complex_conj", "conj", "`re - i im`.", "[3.0, 4.0]", "[3.0, -4.0]")
exp = _of_one("complex_exp", "exp", "`e^z`.", "[0.0, 0.0]", "[1.0, 0.0]")
log = _of_one("complex_log", "log", "The principal logarithm.", "[1.0, 0.0]", "[0.0, 0.0]")
sqrt = _of_one("complex_sqrt", "sqrt", "The principal square root.", "[4.0, 0.0]", "[2.0, 0.0]")
add = _of_two("complex_add", "add", "The sum.", "[1.0, 1.0]", "[4.0, 5.0]")
subtract = _of_two("complex_subtract", "subtract", "The difference.", "[1.0, 1.0]", "[2.0, 3.0]")
multiply = _of_two("complex_multiply", "multiply", "The product.", "[0.0, 1.0]", "[-4.0, 3.0]")
divide = _of_two("complex_divide", "divide", "The quotient.", "[0.0, 1.0]", "[4.0, -3.0]")


def matmul(z: Tensor, w: Tensor) -> Tensor:
    """The product of complex matrices: `[.., m, k, 2]` with `[.., k, n, 2]`, to `[.., m, n, 2]`. Errors: as `remat.matmul`.

    >>> import remat
    >>> remat.complex_pairs.matmul(remat.ones(1, 1, 2), remat.ones(1, 1, 2)).tolist()
    [[[0.0, 2.0]]]
    """
    return _t["complex_matmul"](z, w)
