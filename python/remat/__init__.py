"""Remat: deep learning within a memory budget.

    >>> import remat
    >>> device = remat.Device(budget="64MiB", threads=2)
    >>> x = remat.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    >>> (x @ x).tolist()
    [[7.0, 10.0], [15.0, 22.0]]

A `Device` has an arena of memory that never grows past its budget. Values that do not fit are computed again when they
are needed. If a step cannot fit at all, it raises a `BudgetError` that says which budget would suffice.

`Tensor` behaves as NumPy's arrays do, and has PyTorch's names too. `remat.nn` has modules, layers and losses.
`remat.optim` has optimisers and schedules, and `remat.data` has datasets and loaders. `remat.plan` is the planner for
graphs of other programs. `help()` of any of them has an example.
"""
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from ._functions import *  # noqa: F403
from . import _functions as ops
from . import (
    _autograd, _compile, _creation, _device, _functions, _inplace, _layers, _support, _tensor_methods, _vision, complex_pairs, data,
    fft, nn, optim,
)
from ._autograd import Context, Function, enable_grad, grad, no_grad
from ._checkpoint import Checkpoint
from ._compile import CompiledFunction, CompiledPlan, compile
from ._creation import (
    _asarray, arange, asarray, empty, empty_like, eye, from_dlpack, from_numpy, full, full_like, linspace, ones, ones_like, rand,
    rand_like, randint, randn, randn_like, randperm, tensor, zeros, zeros_like,
)
from ._budgets import largest_batch, smallest_budget
from ._device import MemoryReport
from ._errors import (
    ArgumentError, AxisError, BudgetError, ClosedError, DeviceError, DTypeError, Error, FormatError, IndexError_, InternalError,
    IoError, NotDifferentiableError, NoValueError, PeerError, PoisonedError, ShapeError,
)
from ._files import StateDict, load, load_torch, load_weights, published_names, save
from ._remat import (
    Device, Generator, Tensor, bfloat16, bool, dtype, float16, float32, float64, int8, int16, int32, int64, is_grad_enabled,
    promote_types, uint8, uint16, uint32, uint64,
)
from ._trace import Trace
from ._layers import *  # noqa: F403
from ._support import get_default_device, manual_seed, set_default_device
from ._tensor_methods import *  # noqa: F403
from ._vision import *  # noqa: F403

if _TYPE_CHECKING:
    from . import array_api, distributed, lite, models, onnx, plan

# imported at their first use: most programs use none of them
_LATE = frozenset(("array_api", "distributed", "lite", "models", "onnx", "plan"))


def __getattr__(name: str) -> _Any:
    if name in _LATE:
        return _import_module(f"remat.{name}")
    raise AttributeError(f"module 'remat' has no attribute '{name}'")


_tensor_methods.install()
_inplace.install()
_device.install()
_creation.install()

inference_mode = no_grad
half, double, long = float16, float64, int64
permute_dims = _tensor_methods.permute
clamp = _tensor_methods.clip

__version__ = "0.1.0"

# the names that type checkers and `from remat import *` see; a test finds missing ones
__all__ = [
    "arange", "ArgumentError", "array_api", "asarray", "AxisError", "bfloat16", "bool", "BudgetError", "Checkpoint", "clamp",
    "ClosedError", "compile", "CompiledFunction", "CompiledPlan", "complex_pairs", "Context", "data", "Device", "DeviceError", "distributed",
    "dtype",
    "DTypeError", "empty", "empty_like", "enable_grad", "Error", "eye", "fft", "float16", "float32", "float64", "FormatError",
    "from_dlpack", "from_numpy", "full", "full_like", "Function", "Generator", "get_default_device", "grad", "half", "double", "long", "inference_mode", "int16", "int32",
    "IndexError_", "int64", "int8", "InternalError", "IoError", "is_grad_enabled", "largest_batch", "linspace",
    "lite", "load", "load_torch", "load_weights", "manual_seed", "MemoryReport", "models", "nn",
    "no_grad", "NotDifferentiableError", "NoValueError", "ones", "ones_like", "onnx",
    "ops", "optim", "PeerError",
    "permute_dims", "plan", "PoisonedError", "promote_types", "published_names", "rand", "rand_like", "randint", "randn", "randn_like", "randperm", "save",
    "set_default_device",
    "ShapeError", "smallest_budget", "StateDict", "tensor", "Tensor", "Trace", "uint16", "uint32", "uint64", "uint8", "zeros", "zeros_like",
]
__all__ += _functions.__all__
__all__ += _layers.__all__
__all__ += _tensor_methods.__all__
__all__ += _vision.__all__
