"""Remat: deep learning within a memory budget.

    >>> import remat
    >>> device = remat.Device(budget="64MiB", threads=2)
    >>> x = remat.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    >>> (x @ x).tolist()
    [[7.0, 10.0], [15.0, 22.0]]

A `Device` has an arena of bytes that never grows past its budget. What does not fit is computed again when it is needed; what
cannot be made to fit is a `BudgetError` that says what would do.

`Tensor` has NumPy's habits, and PyTorch's names beside them. `remat.nn` has modules, layers and losses, `remat.optim` optimisers
and schedules, `remat.data` datasets and loaders. `help()` of any of them has an example.
"""
from ._functions import *  # noqa: F403
from . import _functions as ops
from . import (
    _autograd, _compile, _creation, _device, _functions, _inplace, _layers, _support, _tensor_methods, _vision, array_api,
    complex_pairs, data, fft, nn, optim,
)
from ._autograd import Context, Function, grad, no_grad
from ._compile import CompiledFunction, compile
from ._creation import (
    _asarray, arange, asarray, empty, empty_like, eye, from_dlpack, full, full_like, linspace, ones, ones_like, rand,
    randn, randperm, tensor, zeros, zeros_like,
)
from ._creation import randint  # type: ignore[assignment]
from ._device import MemoryReport
from ._errors import (
    ArgumentError, AxisError, BudgetError, ClosedError, DeviceError, DTypeError, Error, FormatError, InternalError, IoError,
    NotDifferentiableError, NoValueError, PeerError, PoisonedError, ShapeError,
)
from ._remat import (
    Device, Generator, Tensor, bfloat16, bool, dtype, float16, float32, float64, int8, int16, int32, int64, is_grad_enabled,
    promote_types, uint8, uint16, uint32, uint64,
)
from ._trace import Trace
from ._support import get_default_device, manual_seed, set_default_device

_tensor_methods.install()
_inplace.install()
_device.install()
_creation.install()

for _f in (*_tensor_methods.FUNCTIONS, *_layers.FUNCTIONS, *_vision.FUNCTIONS):
    globals()[_f.__name__] = _f
permute_dims = _tensor_methods.permute  # type: ignore[assignment]
clamp = _tensor_methods.clip
del _f

__version__ = "0.1.0"
