"""The structures that hold the tensors of a compiled function's arguments and results."""
import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import struct
import types
import uuid
from typing import Any, Callable, Dict, List, Tuple

from ._remat import Device, Parameter, Tensor, dtype

# immutable types whose values are equal only if they are the same
EXACT = (type(None), bool, int, str, bytes, type(Ellipsis), type(NotImplemented), dtype, Device)
# immutable types that define their own equality
_EQUAL = (fractions.Fraction, datetime.date, datetime.time, datetime.timedelta, pathlib.PurePath, uuid.UUID, range)


def constant(x: Any) -> Any:
    """A key that distinguishes a constant from every other: its type and its bits. None for an object that is no
    constant."""
    kind = type(x)
    if kind in EXACT:
        return (kind, x)
    if kind is float:
        return (kind, struct.pack("<d", x))
    if kind is complex:
        return (kind, struct.pack("<dd", x.real, x.imag))
    if isinstance(x, enum.Enum):
        return (kind, x.name)
    if kind is decimal.Decimal:
        return (kind, x.as_tuple())
    if isinstance(x, _EQUAL):
        return (kind, x)
    if kind is slice:
        parts = tuple(constant(n) for n in (x.start, x.stop, x.step))
        return None if None in parts else (kind, parts)
    if kind.__module__ == "numpy" and hasattr(kind, "tobytes") and hasattr(kind, "dtype") and not hasattr(kind, "__len__"):
        return (kind, x.tobytes())
    return None


def same(a: Any, b: Any) -> bool:
    """True if both are one object, or constants or tuples of constants that no function can tell apart."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    own = constant(a)
    return own is not None and own == constant(b)


def _is_record(x: Any) -> bool:
    # a module that is a data class is compared by identity, as every module
    return dataclasses.is_dataclass(x) and not isinstance(x, type) and not hasattr(type(x), "_library_state")


def _fields(x: Any) -> List[Tuple[str, Any]]:
    return [(f.name, getattr(x, f.name)) for f in dataclasses.fields(x) if hasattr(x, f.name)]


class Described:
    """The properties of arguments on which a form depends: their structure as a key, the tensors, and the objects that
    are compared by identity."""

    def __init__(self, tensors: Tuple[Tensor, ...] = ()):
        self.tensors: List[Tensor] = list(tensors)
        self.objects: List[Any] = []
        self.structure: Any = None
        self.owner: Any = None
        self._at: Dict[int, int] = {id(t): i for i, t in enumerate(tensors)}

    def key(self, x: Any) -> Any:
        """The structure of `x` as a key. A tensor that stands in two places counts once. Errors: TypeError for an
        array."""
        kind = type(x)
        if kind in EXACT:
            return (kind, x)
        if isinstance(x, Tensor):
            if isinstance(x, Parameter):
                return self._object(x)
            at = self._at.setdefault(id(x), len(self.tensors))
            if at == len(self.tensors):
                self.tensors.append(x)
            return at
        if isinstance(x, (list, tuple, collections.deque)):
            return (kind, *map(self.key, x))
        if isinstance(x, dict):
            factory = id(x.default_factory) if isinstance(x, collections.defaultdict) else None
            return (kind, factory, tuple((self.key(k), self.key(v)) for k, v in x.items()))
        if isinstance(x, (set, frozenset)):
            if any(isinstance(part, Tensor) for part in x):
                raise TypeError("a set of tensors has no order: a compiled function takes them in lists, tuples and dictionaries")
            return (kind, frozenset(map(self.key, x)))
        if _is_record(x):
            return (kind, tuple((name, self.key(v)) for name, v in _fields(x)))
        found = constant(x)
        if found is not None:
            return found
        if hasattr(kind, "__array_interface__"):
            raise TypeError("an array is no argument of a compiled function, which would compare all of it: give `remat.tensor(array)`")
        return self._object(x)

    def _object(self, x: Any) -> Any:
        self.objects.append(x)
        return ("object", id(x))


def replaced(x: Any, tensor: Callable[[Tensor], Any]) -> Any:
    """`x` in new lists, tuples, dictionaries and data classes of the same types. `tensor(t)` takes the place of each
    tensor `t`."""
    if isinstance(x, Tensor):
        return tensor(x)
    again = lambda part: replaced(part, tensor)  # noqa: E731
    return rebuilt(x, again)


def rebuilt(x: Any, again: Callable[[Any], Any]) -> Any:
    """A container of the type of `x`, with `again(part)` in the place of each part. An object that is no container is
    returned as it is."""
    kind = type(x)
    if kind is list or kind is tuple:
        return kind(map(again, x))
    if kind is dict:
        return {k: again(v) for k, v in x.items()}
    if isinstance(x, tuple):
        parts = [again(part) for part in x]
        return kind._make(parts) if hasattr(kind, "_make") else tuple.__new__(kind, parts)
    if isinstance(x, (list, collections.deque)):
        made = copy.copy(x)
        made.clear()
        made.extend([again(part) for part in x])
        return made
    if isinstance(x, dict):
        made = copy.copy(x)
        for k, v in x.items():
            dict.__setitem__(made, k, again(v))
        return made
    if isinstance(x, set):
        return kind(x)
    if _is_record(x):
        parts = [(name, v, again(v)) for name, v in _fields(x)]
        if all(v is new for _, v, new in parts):
            return x
        made = copy.copy(x)
        for name, _, new in parts:
            object.__setattr__(made, name, new)
        return made
    return x


class Results:
    """How to make the result that a trace returned from the tensors of a run."""

    def __init__(self, y: Any, given: Tuple[Tensor, ...], is_own: Callable[[Tensor], bool], is_known: Callable[[Any], bool]):
        """Takes the result `y` of a function whose arguments have the tensors `given`. `is_own` is true for a tensor
        that the function made, and `is_known` for an object that existed before. Errors: TypeError for an object that
        every call would have to make anew."""
        self.tensors: List[Tensor] = []
        self._is_own, self._is_known = is_own, is_known
        self._given = {id(t): i for i, t in enumerate(given)}
        self._at: Dict[int, int] = {}
        self._plan = self._of(y)

    def _of(self, y: Any) -> Any:
        if isinstance(y, Tensor):
            if id(y) in self._given:
                return ("given", self._given[id(y)])
            if not self._is_own(y):
                return ("same", y)
            at = self._at.setdefault(id(y), len(self.tensors))
            if at == len(self.tensors):
                self.tensors.append(y)
            return ("made", at)
        parts: List[Any] = []

        def note(part: Any) -> Any:
            parts.append(self._of(part))
            return part

        if isinstance(y, (list, tuple, dict, set, collections.deque)) or _is_record(y):
            rebuilt(y, note)
            # without the tensors of the trace: every call fills in the containers that hold them
            return ("parts", rebuilt(y, lambda part: None), parts)
        array = hasattr(y, "__array_interface__") and hasattr(type(y), "__len__")
        if array:
            return ("copy", y.copy())
        is_name = isinstance(y, (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, frozenset))
        if is_name or constant(y) is not None or self._is_known(y):
            return ("same", y)
        raise TypeError(
            f"a compiled function returns a {type(y).__name__}, which no call would make anew: it returns tensors and constants in lists, "
            "tuples, dictionaries and data classes"
        )

    def forget_trace(self) -> None:
        """Drops everything that is needed only while the function is traced."""
        self.tensors, self._given, self._at = [], {}, {}
        self._is_own = self._is_known = lambda _: False

    def made(self, y: List[Tensor], given: List[Tensor]) -> Any:
        """The result for a run's tensors, and those of the call's arguments."""
        return self._made(self._plan, y, given)

    def _made(self, plan: Any, y: List[Tensor], given: List[Tensor]) -> Any:
        kind, what = plan[0], plan[1]
        if kind == "made":
            return y[what]
        if kind == "given":
            return given[what]
        if kind == "same":
            return what
        if kind == "copy":
            return what.copy()
        parts = iter(plan[2])
        return rebuilt(what, lambda _: self._made(next(parts), y, given))


def _collect(x: Any, found: List[Tensor]) -> Any:
    if isinstance(x, Tensor):
        found.append(x)
    else:
        rebuilt(x, lambda part: _collect(part, found))
    return x


def tensors_in(x: Any) -> List[Tensor]:
    """The tensors in lists, tuples, dictionaries and data classes, in order."""
    found: List[Tensor] = []
    # not a nested recursive function: it would keep the tensors of a trace until the garbage collector runs
    _collect(x, found)
    return found
