"""What the parts of the package share: types of arguments, the default device and generator."""
import atexit
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
"""The default of an argument that has none, but stands behind one that has."""

_remat.set_library_folder(os.path.dirname(os.path.abspath(__file__)) + os.sep)


class _UnreadFailure(Exception):
    """Raised where the interpreter, which is about to end, writes out what is left: so its exit code is not 0."""


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
    """Closes the devices, and tells what failed on them and nobody read.

    A process that ends by an exception says so already: the devices of several ranks are not waited for then, nor those that Ctrl-C
    was to end.
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

        # the one way to an exit code from here: Python ends with 120 if it cannot write out its standard output
        sys.unraisablehook, sys.stdout = hook, _Ending(sys.stdout)  # type: ignore[assignment]
    _remat.exiting()
    _remat.end_mpi()


atexit.register(_end)

_lock = threading.Lock()
_default: Optional[Device] = None
_generator = Generator(0)


class _Own(threading.local):
    """What a thread that is a rank has in the place of what threads share."""

    is_rank = False
    device: Optional[Device] = None
    generator: Optional[Generator] = None


_own = _Own()


def begin_rank() -> None:
    """Lets this thread be a rank: its default device and generator are its own."""
    _own.is_rank, _own.device, _own.generator = True, None, Generator(0)


def size_text(n: float) -> str:
    """Bytes in the largest unit that leaves a number of at least 1."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024 or unit == "GiB":
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return ""


def plain(x: Any) -> Any:
    """A number of NumPy's, or a tensor of one number, as Python's; everything else as it is."""
    return x.item() if getattr(x, "shape", None) == () and hasattr(x, "item") else x


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
    """The device on which tensors are made that name none.

    >>> import remat
    >>> remat.get_default_device() == remat.zeros(1).device
    True
    """
    return default_device()


def set_default_device(device: Optional[Device]) -> None:
    """Lets tensors be made on `device` where none is named; None for a new one at the next use.

    >>> import remat
    >>> before = remat.get_default_device()
    >>> remat.set_default_device(remat.Device(budget="16MiB"))
    >>> remat.zeros(2).device.budget
    16777216
    >>> remat.set_default_device(before)
    """
    global _default
    if _own.is_rank:
        _own.device = device
        return
    with _lock:
        _default = device


def replace_default_device(device: Optional[Device]) -> Optional[Device]:
    """As `set_default_device`; the one before, which may not have been opened."""
    global _default
    if _own.is_rank:
        before, _own.device = _own.device, device
        return before
    with _lock:
        before, _default = _default, device
    return before


def default_generator() -> Generator:
    """The generator of layers and random functions that are given none."""
    return _generator if _own.generator is None else _own.generator


def manual_seed(seed: int) -> Generator:
    """Lets the default generator begin anew.

    >>> import remat
    >>> _ = remat.manual_seed(3); a = remat.rand(2).tolist()
    >>> _ = remat.manual_seed(3); a == remat.rand(2).tolist()
    True
    """
    generator = default_generator()
    generator.manual_seed(seed)
    return generator


def kept(y: Tensor, x: Tensor) -> Tensor:
    """A result over all elements with an axis of extent 1 for each of `x`."""
    return y.reshape((1,) * x.ndim)


def shape_of(args: Tuple[Any, ...]) -> Tuple[int, ...]:
    """Extents given one by one or as a sequence."""
    if len(args) == 1 and not isinstance(args[0], int) and not hasattr(args[0], "__index__"):
        return tuple(int(n) for n in args[0])
    return tuple(int(n) for n in args)
