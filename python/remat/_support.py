"""Common parts of the package: types of arguments, the default device and the default generator."""
import atexit
import operator
import os
import sys
import threading
from typing import Any, List, Optional, Sequence, Tuple, Union

from . import _remat
from ._remat import Device, Generator, Tensor, dtype

Number = Union[bool, int, float]
Operand = Union[Tensor, Number, Any]
ShapeLike = Union[int, Sequence[int]]
AxisLike = Union[int, Sequence[int]]
Extents = Union[int, Sequence[int]]
DTypeLike = Union[dtype, str, type, Any]

REQUIRED: Any = object()
"""The default of a required argument that stands behind one with a default."""

_remat.set_library_folder(os.path.dirname(os.path.abspath(__file__)) + os.sep)


class _UnreadFailure(Exception):
    """Raised when the ending interpreter flushes its output, so that the exit code is not 0."""


class _Ending:
    """Standard output of a process that ends with a failure that nobody read."""

    closed = False

    def __init__(self, stream: Any):
        self._stream = stream

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()
        raise _UnreadFailure

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _end() -> None:
    """Closes the devices, and reports failures on them that no call has reported.

    A process that ends by an exception has reported that already. It does not wait for devices of several ranks then,
    and after Ctrl-C it waits for no device.
    """
    raised = getattr(sys, "last_type", None)
    failures: List[str] = []
    if raised is None or not issubclass(raised, KeyboardInterrupt):
        failures = _remat.close_devices(raised is None)
    for text in failures:
        print(text, file=sys.stderr)
    if failures or _remat.failures_of_dropped():
        before = sys.unraisablehook

        def hook(of: Any) -> None:
            if not issubclass(of.exc_type, _UnreadFailure):
                before(of)

        # the only way to set an exit code from here: Python ends with 120 if it cannot flush its standard output
        sys.unraisablehook, sys.stdout = hook, _Ending(sys.stdout)  # type: ignore[assignment]
    _remat.exiting()
    _remat.end_mpi()


atexit.register(_end)

_lock = threading.Lock()
_default: Optional[Device] = None
_generator = Generator(0)


class _Own(threading.local):
    """The default device and generator of a thread that is a rank. Other threads share theirs."""

    is_rank = False
    device: Optional[Device] = None
    generator: Optional[Generator] = None


_own = _Own()


def begin_rank() -> None:
    """Makes this thread a rank, with a default device and a default generator of its own."""
    _own.is_rank, _own.device, _own.generator = True, None, Generator(0)


def size_text(n: float) -> str:
    """Bytes in the largest unit that leaves a number of at least 1."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return ""


def plain(x: Any) -> Any:
    """A NumPy number, or a tensor of one element, as a Python number. Everything else as it is."""
    return x.item() if getattr(x, "shape", None) == () and hasattr(x, "item") else x


def whole(value: Any, name: str, least: int) -> int:
    """`value` as a whole number of 64 bits. Errors, which name the argument: TypeError; ValueError below `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, must be a whole number") from None
    if isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, must be a whole number")
    if not least <= number < 1 << 64:
        raise ValueError(f"{name} is {value!r}, must be a whole number of {least} or more")
    return number


def required(value: Any, function: str, name: str) -> None:
    """Errors (TypeError) for an argument that was not given."""
    if value is REQUIRED:
        raise TypeError(f"{function}() misses the argument `{name}`")


def default_device(device: Optional[Device] = None) -> Device:
    """`device`, or the default one, which is opened at its first use: the processor, without a budget."""
    global _default
    if device is not None:
        return device
    if _own.is_rank:
        _own.device = Device() if _own.device is None else _own.device
        return _own.device
    with _lock:
        if _default is None:
            _default = Device()
        return _default


def get_default_device() -> Device:
    """The device of tensors that are made without naming one.

    >>> import remat
    >>> remat.get_default_device() == remat.zeros(1).device
    True
    """
    return default_device()


def set_default_device(device: Optional[Device]) -> None:
    """Makes `device` the device of tensors that name none. With None, the next use opens a new one.

    >>> import remat
    >>> before = remat.get_default_device()
    >>> remat.set_default_device(remat.Device(budget="16MiB"))
    >>> remat.zeros(2).device.budget
    16777216
    >>> remat.set_default_device(before)
    """
    global _default
    if device is not None and not isinstance(device, Device):
        raise TypeError(f"the default device must be a Device or None, not {type(device).__name__}")
    if _own.is_rank:
        _own.device = device
        return
    with _lock:
        _default = device


def replace_default_device(device: Optional[Device]) -> Optional[Device]:
    """As `set_default_device`. Returns the device before, or None if it was not opened."""
    global _default
    if _own.is_rank:
        before, _own.device = _own.device, device
        return before
    with _lock:
        before, _default = _default, device
    return before


def default_generator() -> Generator:
    """The generator of layers and random functions that name none."""
    return _generator if _own.generator is None else _own.generator


def manual_seed(seed: int) -> Generator:
    """Restarts the default generator with a seed.

    >>> import remat
    >>> _ = remat.manual_seed(3); a = remat.rand(2).tolist()
    >>> _ = remat.manual_seed(3); a == remat.rand(2).tolist()
    True
    """
    generator = default_generator()
    generator.manual_seed(whole(seed, "seed", 0))
    return generator


def kept(y: Tensor, x: Tensor) -> Tensor:
    """A result over all elements with an axis of extent 1 for each of `x`."""
    return y.reshape((1,) * x.ndim)


def shape_of(args: Tuple[Any, ...]) -> Tuple[int, ...]:
    """Extents given one by one or as a sequence."""
    if len(args) == 1 and not isinstance(args[0], int) and not hasattr(args[0], "__index__"):
        return tuple(int(n) for n in args[0])
    return tuple(int(n) for n in args)
