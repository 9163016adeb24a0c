"""Errors by kind. Each class is also the built-in exception that a Python programmer expects in its place."""
from typing import Any, Dict, List, Optional, Tuple


class Error(Exception):
    """An error of the library. Its `str` is for people; programs read the attributes.

    Attributes:
        kind: the kind of the error in a word: `"shape"`.
        op: the operator or method that failed, or None.
        message: the text without operator and place.
        file, line: the place in the Python program that asked for the failing operation, or None. Set even if it failed
            later, on the device.
        scope: the part of the network that asked for it, or None.

    >>> import remat
    >>> try:
    ...     remat.ones(2, 3) @ remat.ones(2, 3)
    ... except remat.ShapeError as e:
    ...     print(e.op, isinstance(e, ValueError))
    matmul True
    """

    kind: str = "internal"
    op: Optional[str] = None
    message: str = ""
    file: Optional[str] = None
    line: Optional[int] = None
    scope: Optional[str] = None


class ShapeError(Error, ValueError):
    """Shapes do not fit each other or the operator.

    >>> import remat
    >>> try:
    ...     remat.ones(2) + remat.ones(3)
    ... except remat.ShapeError as e:
    ...     print(type(e).__name__, e.kind)
    ShapeError shape
    """


class DTypeError(Error, TypeError):
    """A dtype that the operator does not support, or two dtypes that must agree and do not.

    >>> import remat
    >>> try:
    ...     remat.ones(2, dtype="int32").exp()
    ... except remat.DTypeError as e:
    ...     print(type(e).__name__, e.kind)
    DTypeError dtype
    """


class AxisError(Error, ValueError, IndexError):
    """An axis or a rank out of range, or an axis named twice.

    >>> import remat
    >>> try:
    ...     remat.ones(2).sum(axis=1)
    ... except remat.AxisError as e:
    ...     print(type(e).__name__, e.kind)
    AxisError axis
    """


class ArgumentError(Error, ValueError):
    """An argument outside its domain: a negative stride, a probability of 2.

    >>> import remat
    >>> try:
    ...     remat.ones(2).clip(2.0, 1.0)
    ... except remat.ArgumentError as e:
    ...     print(type(e).__name__, e.kind)
    ArgumentError value
    """


class IndexError_(Error, IndexError):
    """An index outside the tensor that it indexes.

    >>> import remat
    >>> try:
    ...     remat.arange(3)[7]
    ... except IndexError as e:
    ...     print(type(e).__name__, e.message)
    IndexError_ index 7 is outside axis 0 of extent 3
    """


class DeviceError(Error, RuntimeError):
    """Tensors of different devices, or a device that cannot do what is asked.

    >>> import remat
    >>> a, b = remat.ones(2), remat.ones(2, device=remat.Device())
    >>> try:
    ...     a + b
    ... except remat.DeviceError as e:
    ...     print(type(e).__name__, e.kind)
    DeviceError device
    """


class BudgetError(Error, MemoryError):
    """A memory budget that cannot be met.

    Attributes:
        needed_bytes: the bytes that the operation needs at once.
        budget_bytes: the budget in force.
        least_bytes: a lower bound: no smaller budget can run this operation in any way.
        smallest_feasible_bytes: the smallest budget that is known to suffice for it. `remat.smallest_budget` finds that
            of a program.
        is_of_run: True if the figures are those of a whole compiled run, not of one operation.
        recompute_limit: if the work and not the memory was too much, the limit on it, as a multiple of the step's; else
            None.
        pinned: the values that cannot be evicted, largest first: pairs of a name and bytes.

    >>> import remat
    >>> small = remat.Device(budget="64KiB")
    >>> try:
    ...     remat.zeros(1 << 20, device=small).tolist()
    ... except remat.BudgetError as e:
    ...     print(e.budget_bytes, e.smallest_feasible_bytes >= 4 << 20)
    65536 True
    """

    needed_bytes: int = 0
    budget_bytes: int = 0
    least_bytes: int = 0
    smallest_feasible_bytes: int = 0
    is_of_run: bool = False
    recompute_limit: Optional[int] = None
    pinned: List[Tuple[str, int]] = []


class PoisonedError(Error, RuntimeError):
    """A tensor that depends on an operation that failed.

    >>> import remat
    >>> issubclass(remat.PoisonedError, RuntimeError), issubclass(remat.PoisonedError, remat.Error)
    (True, True)
    """


class PeerError(Error, RuntimeError):
    """Another rank failed, does not come, or makes another call.

    >>> import remat
    >>> issubclass(remat.PeerError, RuntimeError), issubclass(remat.PeerError, remat.Error)
    (True, True)
    """


class ClosedError(Error, RuntimeError):
    """A device that was closed, or belongs to the process that this one was forked from.

    >>> import remat
    >>> device = remat.Device(); x = remat.ones(2, device=device)
    >>> device.close()
    >>> try:
    ...     x.tolist()
    ... except remat.ClosedError as e:
    ...     print(type(e).__name__, e.kind)
    ClosedError closed
    """


class IoError(Error, OSError):
    """The operating system refused a file or memory operation.

    >>> import remat
    >>> issubclass(remat.IoError, OSError), issubclass(remat.IoError, remat.Error)
    (True, True)
    """


class FormatError(Error, ValueError):
    """A file or text from outside that is not what it claims to be.

    >>> import remat
    >>> issubclass(remat.FormatError, ValueError), issubclass(remat.FormatError, remat.Error)
    (True, True)
    """


class NotDifferentiableError(Error, RuntimeError):
    """No gradient is defined along this path.

    >>> import remat
    >>> try:
    ...     remat.ones(2).sum().backward()
    ... except remat.NotDifferentiableError as e:
    ...     print(type(e).__name__, e.kind)
    NotDifferentiableError not differentiable
    """


class NoValueError(Error, RuntimeError):
    """A value was read where none exists, as in a function that is being compiled or on a dry device.

    >>> import remat
    >>> x = remat.ones(2, device=remat.Device().dry())
    >>> try:
    ...     x.tolist()
    ... except remat.NoValueError as e:
    ...     print(type(e).__name__, e.kind)
    NoValueError no value
    """


class InternalError(Error, RuntimeError):
    """A bug of the library.

    >>> import remat
    >>> issubclass(remat.InternalError, RuntimeError), issubclass(remat.InternalError, remat.Error)
    (True, True)
    """


_KINDS = {
    "shape": ShapeError,
    "dtype": DTypeError,
    "axis": AxisError,
    "value": ArgumentError,
    "index": IndexError_,
    "arity": ArgumentError,
    "device": DeviceError,
    "budget": BudgetError,
    "poisoned": PoisonedError,
    "peer": PeerError,
    "closed": ClosedError,
    "io": IoError,
    "format": FormatError,
    "not differentiable": NotDifferentiableError,
    "no value": NoValueError,
}


def _make(kind: str, text: str, facts: Dict[str, Any]) -> Error:
    """The exception of a kind; called by the compiled part."""
    shortfall = facts.pop("shortfall", None)
    # an operation that depends on one without enough memory reports its figures
    of = BudgetError if shortfall is not None else _KINDS.get(kind, InternalError)
    error = of(text)
    error.kind = kind
    for name, value in {**facts, **(shortfall or {})}.items():
        setattr(error, name, value)
    return error
