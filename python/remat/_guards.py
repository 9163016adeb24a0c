"""What a traced function read beside its arguments, and whether that is still as it was.

While the function is traced, the code that runs is noted, with the names that it has: of globals, and of attributes. From the function,
its closure, those globals and its arguments, the objects are walked that those names lead to. Each place on the way (an entry of a
dictionary, an element of a list, a cell of a closure) is guarded: it holds the same object, or a constant of the same type and bits.
Which object is called by a name that no code had cannot matter, so an attribute that is set and not read makes nothing new.

Values of tensors are not guarded here: a parameter is a state, and the compiled part has the versions of other tensors.
"""
import array
import builtins
import collections
import dis
import functools
import gc
import io
import operator
import os
import sys
import sysconfig
import types
import weakref
from itertools import chain, repeat
from operator import attrgetter, is_, itemgetter
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

from ._remat import Device, Generator, Tensor, dtype
from ._structure import constant, same

_MISSING: Any = object()

MOST = 1 << 16
"""Places that are guarded for one form. More take longer to look at than the calls are worth."""

MOST_BYTES = 1 << 20
"""Bytes of arrays that are guarded for one form."""

# attributes of a module that the library's code reads by way of its dictionary
_OF_MODULES = frozenset(
    ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "training", "_layer")
)
_BY_TEXT = frozenset(
    ("getattr", "hasattr", "setattr", "delattr", "vars", "dir", "eval", "exec", "globals", "locals", "attrgetter", "__dict__", "__getattribute__")
)
_GLOBAL_OPS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"))

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_SITE = ("site-packages", "dist-packages")


def _folders() -> Tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    return (*sorted(p + os.sep for p in paths if p), _OWN)


_LIBRARIES = _folders()


def _is_library_file(path: str) -> bool:
    """True for the standard library, this one and NumPy, whose own state no function is compiled for."""
    if path.startswith("<frozen"):
        return True
    if any(site in path for site in _SITE) and not path.startswith(_OWN):
        return f"{os.sep}numpy{os.sep}" in path
    return path.startswith(_LIBRARIES)


@functools.lru_cache(maxsize=4096)
def _is_library(module: Optional[str]) -> bool:
    """True for a module of a library, by name."""
    if module is None or module in sys.builtin_module_names:
        return module is not None
    found = sys.modules.get(module)
    path = getattr(found, "__file__", None)
    return path is not None and _is_library_file(path)


# parts of the standard library that ask functions and classes alone for attributes by name
_QUIET = frozenset(("contextlib", "functools", "abc", "enum", "threading", "weakref", "_weakrefset", "typing", "warnings", "json", "collections"))


def _is_quiet(path: str) -> bool:
    """True for library code that reads no attribute of a program's objects by a name that it was given."""
    if not _is_library_file(path):
        return False
    name = os.path.splitext(os.path.basename(path))[0]
    folder = os.path.basename(os.path.dirname(path))
    is_own = path.startswith(_OWN) or f"{os.sep}numpy{os.sep}" in path or path.startswith("<frozen")
    return is_own or name in _QUIET or folder in _QUIET


class _Names(NamedTuple):
    globals: FrozenSet[str]
    attributes: FrozenSet[str]
    # it may read attributes by names that are no part of the code
    by_text: bool


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> _Names:
    of_globals = {i.argval for i in dis.get_instructions(code) if i.opname in _GLOBAL_OPS}
    by_text = not _BY_TEXT.isdisjoint(code.co_names)
    attributes = {n for n in code.co_names}
    if by_text:
        attributes.update(c for c in code.co_consts if isinstance(c, str) and c.isidentifier())
    return _Names(frozenset(of_globals), frozenset(attributes), by_text and not _is_quiet(code.co_filename))


class Watch:
    """Notes the code that this thread runs between `begin` and `end`."""

    def __init__(self) -> None:
        self.codes: Dict[types.CodeType, Dict[str, Any]] = {}
        self._before: Any = None

    def _note(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code not in self.codes:
            self.codes[frame.f_code] = frame.f_globals

    def begin(self) -> None:
        """Begins. A profiler of the program's waits meanwhile."""
        self._before = sys.getprofile()
        sys.setprofile(self._note)

    def end(self) -> None:
        """Ends."""
        if self._before is None or callable(self._before):
            sys.setprofile(self._before)
        else:
            sys.setprofile(None)
            # a profiler in C sets itself
            self._before.enable()


class _Quick:
    """The guards of dictionaries and lists, put so that a look at them runs no Python code: 3,000 places take 0.1 ms."""

    def __init__(self, dicts: Any, keys: Any, lists: Any):
        by_dict: Dict[int, Tuple[Any, List[Any], List[Any]]] = {}
        self._without: Tuple[List[Any], List[Any]] = ([], [])
        for of, key, value, _ in zip(*dicts):
            if value is _MISSING:
                self._without[0].append(of)
                self._without[1].append(key)
            else:
                _, names, values = by_dict.setdefault(id(of), (of, [], []))
                names.append(key)
                values.append(value)
        self._one: Tuple[List[Any], List[Any], List[Any]] = ([], [], [])
        self._several: Tuple[List[Any], List[Any], List[Any]] = ([], [], [])
        for of, names, values in by_dict.values():
            if len(names) == 1:
                for part, new in zip(self._one, (of, names[0], values[0])):
                    part.append(new)
            else:
                self._several[0].append(itemgetter(*names))
                self._several[1].append(of)
                self._several[2].extend(values)
        self._sized = [*keys[0], *lists[0]]
        self._sizes = [len(before) for before in (*keys[1], *lists[1])]
        # each entry of a dictionary is guarded, so that of one key its length says all
        ordered = [(of, before) for of, before in zip(keys[0], keys[1]) if len(before) > 1 or isinstance(of, set)]
        self._ordered = [of for of, _ in ordered], [before for _, before in ordered]
        self._lists = lists[0], [*chain.from_iterable(lists[1])]

    def holds(self) -> bool:
        """True if each place has the same object. Errors: KeyError if it is not there."""
        dicts, keys, values = self._one
        gets, of, all_values = self._several
        return (
            [*map(len, self._sized)] == self._sizes
            and all(map(is_, map(dict.__getitem__, dicts, keys), values))
            and all(map(is_, chain.from_iterable(map(_call, gets, of)), all_values))
            and not any(map(dict.__contains__, *self._without))
            and [*map(tuple, self._ordered[0])] == self._ordered[1]
            and all(map(is_, chain.from_iterable(self._lists[0]), self._lists[1]))
        )


_call = getattr(operator, "call", None) or (lambda f, x: f(x))


class Guards:
    """Places, what they held, and how a person finds them."""

    def __init__(self) -> None:
        self._dicts: Tuple[List[Any], List[Any], List[Any], List[str]] = ([], [], [], [])
        self._classes: Tuple[List[Any], List[Any], List[Any], List[str], List[type]] = ([], [], [], [], [])
        self._cells: Tuple[List[Any], List[Any], List[str]] = ([], [], [])
        self._keys: Tuple[List[Any], List[Tuple[Any, ...]], List[str]] = ([], [], [])
        self._lists: Tuple[List[Any], List[Tuple[Any, ...]], List[str]] = ([], [], [])
        self._slots: List[Tuple[Any, str, List[Any], str]] = []
        self._bytes: List[Tuple[Any, bytes, str]] = []
        self._seen: Set[Any] = set()
        self._count = 0
        self._count_bytes = 0
        self._quick: Optional[_Quick] = None

    def _new(self, key: Any, path: str, count: int = 1) -> bool:
        if key in self._seen:
            return False
        self._seen.add(key)
        self._quick = None
        self._count += count
        if self._count > MOST:
            raise ValueError(
                f"the compiled function reaches more than {MOST:,} Python values from outside, the last of them `{path}`, which every "
                "call would have to look at; give it what it needs as arguments"
            )
        return True

    def entry(self, of: Any, key: Any, value: Any, path: str) -> None:
        """An entry of a dictionary, or none."""
        if self._new((id(of), "entry", key), path):
            for part, new in zip(self._dicts, (of, key, value, path)):
                part.append(new)

    def of_class(self, of: Any, name: str, value: Any, path: str) -> None:
        """An attribute of a class itself, or none."""
        if self._new((id(of), "class", name), path):
            for part, new in zip(self._classes, (vars(of), name, value, path, of)):
                part.append(new)

    def cell(self, of: Any, value: Any, path: str) -> None:
        """A cell of a closure, which is not empty."""
        if self._new((id(of), "cell"), path):
            for part, new in zip(self._cells, (of, value, path)):
                part.append(new)

    def keys(self, of: Any, path: str) -> None:
        """Which keys a dictionary, or elements a set, has, in order."""
        if self._new((id(of), "keys"), path, len(of)):
            for part, new in zip(self._keys, (of, tuple(of), path)):
                part.append(new)

    def elements(self, of: Any, path: str) -> None:
        """The elements of a list."""
        if self._new((id(of), "list"), path, len(of)):
            for part, new in zip(self._lists, (of, tuple(of), path)):
                part.append(new)

    def slot(self, of: Any, name: str, value: Any, path: str) -> None:
        """An attribute that is in no dictionary."""
        if self._new((id(of), "slot", name), path):
            self._slots.append((of, name, [value], path))

    def content(self, of: Any, path: str) -> None:
        """The bytes of an array. Errors: ValueError for too many."""
        view = memoryview(of) if not hasattr(of, "tobytes") else of
        self._count_bytes += view.nbytes if hasattr(view, "nbytes") else len(view) * view.itemsize
        if self._count_bytes > MOST_BYTES:
            raise ValueError(
                f"the compiled function reads the array `{path}` from outside, and every call would have to compare all of it; make a "
                "tensor of it first, or give it as an argument"
            )
        if self._new((id(of), "bytes"), path):
            self._bytes.append((of, view.tobytes(), path))

    def hold(self) -> bool:
        """True if every place holds what it held."""
        if self._quick is None:
            self._quick = _Quick(self._dicts, self._keys, self._lists)
        classes, names, attributes, _, _ = self._classes
        cells, contents, _ = self._cells
        try:
            quick = (
                self._quick.holds()
                and all(map(is_, map(types.MappingProxyType.get, classes, names, repeat(_MISSING)), attributes))  # type: ignore[arg-type]
                and all(map(is_, map(attrgetter("cell_contents"), cells), contents))
            )
        except (LookupError, ValueError, RuntimeError):
            quick = False
        return (quick or self._broken_place() is None) and self._broken_rest() is None

    def broken(self) -> Optional[str]:
        """The first place that holds something else, or None."""
        return self._broken_place() or self._broken_rest()

    def _broken_place(self) -> Optional[str]:
        """As `broken`, and takes equal constants for those that were there, so that the next look is quick."""
        self._quick = None
        for of, key, values, paths in (self._dicts, self._classes[:4]):
            for i, (where, name, value) in enumerate(zip(of, key, values)):
                now = dict.get(where, name, _MISSING) if isinstance(where, dict) else where.get(name, _MISSING)
                if not same(now, value):
                    return paths[i]
                values[i] = now
        cells, contents, paths = self._cells
        for i, (cell, value) in enumerate(zip(cells, contents)):
            try:
                now = cell.cell_contents
            except ValueError:
                return paths[i]
            if not same(now, value):
                return paths[i]
            contents[i] = now
        for where, before, path in zip(*self._keys):
            now = tuple(where)
            if len(now) != len(before) or not all(map(same, now, before)):
                return path
        lists, elements, paths = self._lists
        for i, (where, before) in enumerate(zip(lists, elements)):
            now = tuple(where)
            if len(now) != len(before) or not all(map(same, now, before)):
                return paths[i]
            elements[i] = now
        return None

    def _broken_rest(self) -> Optional[str]:
        for of, name, value, path in self._slots:
            now = getattr(of, name, _MISSING)
            if not same(now, value[0]):
                return path
            value[0] = now
        for of, content, path in self._bytes:
            if (of.tobytes() if hasattr(of, "tobytes") else bytes(of)) != content:
                return path
        return None

    def add(self, other: "Guards") -> None:
        """Takes the guards of another trace."""
        for of, key, value, path in zip(*other._dicts):
            self.entry(of, key, value, path)
        for _, name, value, path, of in zip(*other._classes):
            self.of_class(of, name, value, path)
        for cell, value, path in zip(*other._cells):
            self.cell(cell, value, path)
        for of, _, path in zip(*other._keys):
            self.keys(of, path)
        for of, _, path in zip(*other._lists):
            self.elements(of, path)
        for of, name, value, path in other._slots:
            self.slot(of, name, value[0], path)
        for of, _, path in other._bytes:
            self.content(of, path)


class Walk:
    """Finds what some code reads, from the objects where it begins."""

    def __init__(self, watch: Watch):
        self.guards = Guards()
        self._codes = watch.codes
        self._known: Dict[int, Any] = {}
        self._tensors: Set[int] = set()
        self._walked: Set[types.CodeType] = set()
        self._stack: List[Tuple[Any, str, bool]] = []
        found = [_names(code) for code in watch.codes]
        self._names: Set[str] = set().union(*(n.attributes for n in found))
        self._by_text = any(n.by_text for n in found)

    def is_known(self, x: Any) -> bool:
        """True for an object that was come by."""
        return id(x) in self._known

    def has_tensor(self, x: Tensor) -> bool:
        """True for a tensor that was come by."""
        return id(x) in self._tensors

    def globals(self) -> None:
        """Walks the globals of the code that ran."""
        for code, of in self._codes.items():
            if _is_library_file(code.co_filename):
                continue
            for name in sorted(_names(code).globals):
                value = of.get(name, _MISSING)
                if value is _MISSING and hasattr(builtins, name):
                    self.guards.entry(of, name, _MISSING, name)
                    continue
                self.guards.entry(of, name, value, name)
                self.walk(value, name)

    def closures(self) -> None:
        """Walks the functions whose code ran though no name led to them, such as hooks of parameters."""
        inner = {c for code in self._codes for c in code.co_consts if isinstance(c, types.CodeType)}
        lost = [c for c in self._codes if c.co_freevars and c not in self._walked and c not in inner and not _is_library_file(c.co_filename)]
        # who has a code is known to the collector alone
        for f in gc.get_referrers(*lost) if lost else ():
            if isinstance(f, types.FunctionType) and f.__code__ in self._codes:
                self.walk(f, f.__name__)

    def walk(self, x: Any, path: str, certain: bool = True) -> None:
        """Walks what is reached from `x`. Errors: ValueError for what cannot be guarded, if it is `certain` that code may read it."""
        self._stack.append((x, path, certain))
        while self._stack:
            x, path, certain = self._stack.pop()
            if isinstance(x, Tensor):
                self._tensors.add(id(x))
            if x is _MISSING or isinstance(x, (Tensor, Device, Generator, dtype)) or id(x) in self._known or constant(x) is not None:
                continue
            self._known[id(x)] = x
            self._visit(x, path, certain)

    def _later(self, x: Any, path: str, certain: bool = True) -> None:
        self._stack.append((x, path, certain))

    def _visit(self, x: Any, path: str, certain: bool) -> None:
        if isinstance(x, types.FunctionType):
            self._function(x, path)
        elif isinstance(x, types.MethodType):
            self._later(x.__self__, path)
            self._later(x.__func__, path)
        elif isinstance(x, types.BuiltinFunctionType):
            if not isinstance(x.__self__, types.ModuleType):
                self._later(x.__self__, path)
        elif isinstance(x, functools.partial):
            for part in (x.func, x.args, x.keywords):
                self._later(part, path)
        elif isinstance(x, (staticmethod, classmethod)):
            self._later(x.__func__, path)
        elif isinstance(x, property):
            self._later(x.fget, path)
        elif isinstance(x, functools.cached_property):
            self._later(x.func, path)
        elif isinstance(x, types.ModuleType):
            self._module(x, path)
        elif isinstance(x, type):
            self._class(x, path)
        elif isinstance(x, (weakref.ref, types.CodeType, types.MappingProxyType)):
            return
        elif isinstance(x, (bytearray, array.array)) or hasattr(x, "__array_interface__"):
            self.guards.content(x, path)
        else:
            self._object(x, path, certain)

    def _function(self, f: Any, path: str) -> None:
        if f.__code__ in self._codes:
            self._walked.add(f.__code__)
            for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
                try:
                    value = cell.cell_contents
                except ValueError:
                    continue
                self.guards.cell(cell, value, name)
                self._later(value, name)
            for name in ("__code__", "__defaults__", "__kwdefaults__"):
                self.guards.slot(f, name, getattr(f, name), f"{path}.{name}")
                self._later(getattr(f, name), f"{path}.{name}")
        self._attributes(f, path, vars(f))

    def _module(self, x: Any, path: str) -> None:
        if _is_library(x.__name__):
            return
        for name in self._names.intersection(vars(x)):
            value = vars(x)[name]
            self.guards.entry(vars(x), name, value, f"{path}.{name}")
            self._later(value, f"{path}.{name}")

    def _class(self, x: Any, path: str) -> None:
        """The attributes of a class and of its bases that code names, and where they would hide others."""
        own = [c for c in x.__mro__ if not _is_library(c.__module__)]
        for name in self._names:
            if not any(name in vars(c) for c in own):
                continue
            for c in own:
                value = vars(c).get(name, _MISSING)
                self.guards.of_class(c, name, value, f"{c.__name__}.{name}")
                self._later(value, f"{c.__name__}.{name}")

    def _attributes(self, x: Any, path: str, of: Dict[str, Any]) -> None:
        for name in list(of):
            is_named = name in self._names or name in _OF_MODULES
            if is_named or self._by_text:
                value = of[name]
                self.guards.entry(of, name, value, f"{path}.{name}")
                self._later(value, f"{path}.{name}", is_named)

    def _object(self, x: Any, path: str, certain: bool) -> None:
        kind = type(x)
        if isinstance(x, (list, collections.deque)):
            self.guards.elements(x, path)
            self._parts(x, path)
        elif isinstance(x, (tuple, frozenset)):
            self._parts(x, path)
        elif isinstance(x, (dict, set)):
            self.guards.keys(x, path)
            if isinstance(x, dict):
                for k, v in list(x.items()):
                    self.guards.entry(x, k, v, f"{path}[{k!r}]")
                    self._later(v, f"{path}[{k!r}]")
        elif hasattr(kind, "__next__") and not isinstance(x, io.IOBase):
            if certain:
                raise ValueError(
                    f"the compiled function reads from outside `{path}`, a {kind.__name__}, which gives something else each time; take from "
                    "it outside, and give what it gave as an argument"
                )
            return
        self._instance(x, path)

    def _parts(self, x: Any, path: str) -> None:
        for i, part in enumerate(list(x)):
            self._later(part, f"{path}[{i}]")

    def _instance(self, x: Any, path: str) -> None:
        kind = type(x)
        if kind in (list, tuple, dict, set, frozenset, collections.OrderedDict, collections.deque):
            return
        if getattr(kind, "_traced_alone", None) is not None:
            # another compiled function: within this one it is the function that it was made of
            self._later(getattr(x, kind._traced_alone), path)
            return
        self._later(kind, kind.__name__)
        of = getattr(x, "__dict__", None)
        if isinstance(of, dict):
            self._attributes(x, path, of)
            for name in self._names:
                found = next((vars(c)[name] for c in kind.__mro__ if name in vars(c)), _MISSING)
                if name not in of and found is not _MISSING and not hasattr(type(found), "__set__"):
                    self.guards.entry(of, name, _MISSING, f"{path}.{name}")
        for c in kind.__mro__:
            for name, member in vars(c).items():
                if isinstance(member, types.MemberDescriptorType) and (name in self._names or self._by_text):
                    value = getattr(x, name, _MISSING)
                    self.guards.slot(x, name, value, f"{path}.{name}")
                    self._later(value, f"{path}.{name}", name in self._names)
