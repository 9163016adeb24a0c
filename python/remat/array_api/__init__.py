"""The Python array API standard, version 2024.12, over `remat.Tensor`.

    >>> import remat
    >>> x = remat.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> xp = x.__array_namespace__()
    >>> xp.__array_api_version__
    '2024.12'
    >>> xp.sum(x, axis=0).tolist()
    [4.0, 6.0]

Names, arguments, defaults and dtypes of results are those of the standard. The package's own functions follow NumPy,
and have PyTorch's names too. Arrays are the package's tensors, with devices, budgets and gradients. Complex numbers,
and transforms that return them, are left out; the book lists them with reasons.
"""
from math import e, inf, nan, pi

from .._remat import (
    bool, float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
)
from . import _creation, _dtypes, _elementwise, _info, _manipulation, _search, _statistics, linalg
from ._creation import *  # noqa: F403
from ._dtypes import *  # noqa: F403
from ._elementwise import *  # noqa: F403
from ._info import __array_namespace_info__
from ._manipulation import *  # noqa: F403
from ._search import *  # noqa: F403
from ._statistics import *  # noqa: F403
from .linalg import matmul, matrix_transpose, tensordot, vecdot

__array_api_version__ = "2024.12"

newaxis = None

__all__ = [
    "__array_api_version__", "__array_namespace_info__",
    "e", "inf", "nan", "newaxis", "pi",
    "bool", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "linalg", "matmul", "matrix_transpose", "tensordot", "vecdot",
]
__all__ += _creation.__all__
__all__ += _dtypes.__all__
__all__ += _elementwise.__all__
__all__ += _manipulation.__all__
__all__ += _search.__all__
__all__ += _statistics.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
