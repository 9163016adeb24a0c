"""The values that a traced function read beside its arguments, and guards that tell whether they have changed.

The trace notes the code that runs, with the names of globals and attributes in it. The walk begins at the function, its
closure, these globals and its arguments, and visits every object that the names lead to. It guards each place on the
way (an entry of a dictionary, an element of a list, a cell of a closure): the place must hold the same object, or a
constant of the same type and bits. A name that no code has cannot matter, so a new attribute that is never read causes
no new trace. If code goes on without an attribute that it does not find, the walk also guards the attribute's absence.

The walk does not guard values of tensors: a parameter is a state, and the compiled part knows the versions of other
tensors.
"""
import array
import builtins
import collections
import functools
import gc
import importlib
import importlib.util
import io
import operator
import os
import sys
import types
import weakref
from itertools import chain
from operator import attrgetter
from typing import Any, Dict, List, Set, Tuple

from ._code import OF_ENVIRON, OF_MODULES, TEXT_FUNCTIONS, Watch, is_library, is_library_file, names_of
from ._guards import MISSING, Guards
from ._remat import Device, Generator, Tensor, dtype
from ._structure import constant


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_asked_in_need(kind: type) -> bool:
    """True for a class of the program that computes missing attributes of its objects."""
    return any("__getattr__" in vars(c) and not is_library(c.__module__) for c in kind.__mro__)


class Walk:
    """Finds the objects that some code reads, from given first objects on."""

    def __init__(self, watch: Watch, arguments: List[Any]):
        self._codes, self._imported = watch.codes, watch.imported
        self._arguments = {*map(id, arguments)}
        found = [names_of(code) for code in watch.codes]
        self._names: Set[str] = set().union(*(n.attributes for n in found))
        self._by_text = any(n.by_text for n in found)
        self._all_globals = False
        self._shows = any(n.shows for n in found)
        self._asked: Set[str] = set().union(*(n.asked for n in found))
        self._may_miss = any(n.may_miss for n in found)
        self._begin()

    def _begin(self) -> None:
        self.guards = Guards()
        self._known: Dict[int, Any] = {}
        # objects on paths that the code certainly takes
        self._certain: Set[int] = set()
        self._tensors: Set[int] = set()
        self._walked: Set[types.CodeType] = set()
        self._stack: List[Tuple[Any, str, bool]] = []
        # names of attributes that objects on the way read, and that no code has
        self._found_names: Set[str] = set()
        self._is_certain = True
        self._found_text = self._found_globals = False

    def begins_again(self) -> bool:
        """True if objects on the way read attributes that the walk has not visited. The results are dropped then, and
        the walk must be made again."""
        names = self._found_names - self._asked
        if not names and (self._by_text or not self._found_text) and (self._all_globals or not self._found_globals):
            return False
        self._names |= names
        self._asked |= names
        self._by_text, self._all_globals = self._by_text or self._found_text, self._all_globals or self._found_globals
        self._begin()
        return True

    def is_known(self, x: Any) -> bool:
        """True for an object that the walk has visited."""
        return id(x) in self._known

    def has_tensor(self, x: Tensor) -> bool:
        """True for a tensor that the walk has visited."""
        return id(x) in self._tensors

    def globals(self) -> None:
        """Walks the globals of the code that ran."""
        for code, of in self._codes.items():
            if is_library_file(code.co_filename):
                continue
            names = names_of(code)
            read = names.globals
            if names.all_globals or self._all_globals:
                self.guards.keys(of, f"the globals of {of.get('__name__')}")
                read = read.union(name for name in of if isinstance(name, str) and not _is_special(name))
            for name in sorted(read):
                value = of.get(name, MISSING)
                if value is MISSING and hasattr(builtins, name):
                    self.guards.entry(of, name, MISSING, name)
                    continue
                self.guards.entry(of, name, value, name)
                self.walk(value, name, name in names.globals)
            for name, level in names.imports:
                self._import("." * level + name, of.get("__package__") or str(of.get("__name__")).rpartition(".")[0])
        for name, package in self._imported:
            self._import(name, package or "")
        if not OF_ENVIRON.isdisjoint(self._codes):
            self.walk(os.environ._data, "os.environ")  # type: ignore[attr-defined]

    def _import(self, name: str, package: str) -> None:
        """Walks a module that code imports as it runs, and the packages that it is in."""
        try:
            parts = importlib.util.resolve_name(name, package).split(".")
        except (ImportError, ValueError):
            return
        for count in range(1, len(parts) + 1):
            whole = ".".join(parts[:count])
            if is_library(whole):
                return
            found = sys.modules.get(whole, MISSING)
            self.guards.entry(sys.modules, whole, found, whole)
            self.walk(found, whole)

    def closures(self) -> None:
        """Walks the functions whose code ran, but to which no name led, such as hooks of parameters."""
        inner = {c for code in self._codes for c in code.co_consts if isinstance(c, types.CodeType)}
        lost = [c for c in self._codes if c.co_freevars and c not in self._walked and c not in inner and not is_library_file(c.co_filename)]
        # only the garbage collector knows which functions have a code object
        for f in gc.get_referrers(*lost) if lost else ():
            if isinstance(f, types.FunctionType) and f.__code__ in self._codes:
                self.walk(f, f.__name__)

    def walk(self, x: Any, path: str, certain: bool = True) -> None:
        """Walks the objects that are reached from `x`. Errors: ValueError for an object that cannot be guarded, if it
        is `certain` that code may read it."""
        self._stack.append((x, path, certain))
        while self._stack:
            x, path, certain = self._stack.pop()
            if isinstance(x, Tensor):
                self._tensors.add(id(x))
            is_known = id(x) in self._certain or not certain and id(x) in self._known
            if x is MISSING or isinstance(x, (Tensor, Device, Generator, dtype)) or is_known or constant(x) is not None:
                continue
            self._known[id(x)] = x
            if certain:
                self._certain.add(id(x))
            self._is_certain = certain
            self._visit(x, path, certain)

    def _later(self, x: Any, path: str, certain: bool = True) -> None:
        self._stack.append((x, path, certain and self._is_certain))

    def _visit(self, x: Any, path: str, certain: bool) -> None:
        if isinstance(x, types.FunctionType):
            self._function(x, path)
        elif isinstance(x, types.MethodType):
            self._later(x.__self__, path)
            self._later(x.__func__, path)
        elif isinstance(x, types.BuiltinFunctionType):
            self._found_text = self._found_text or x in TEXT_FUNCTIONS
            self._found_globals = self._found_globals or x is globals
            if not isinstance(x.__self__, types.ModuleType):
                self._later(x.__self__, path)
        elif isinstance(x, (types.WrapperDescriptorType, types.MethodWrapperType)):
            self._found_text = self._found_text or x.__name__ == "__getattribute__"
        elif isinstance(x, (attrgetter, operator.methodcaller)):
            self._getter(x, path)
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
            self._module(x, path, certain)
        elif isinstance(x, type):
            self._class(x, path)
        elif isinstance(x, (weakref.ref, types.CodeType)):
            return
        elif isinstance(x, types.MappingProxyType):
            # only the garbage collector knows which objects it refers to
            for of in gc.get_referents(x):
                self._later(of, path)
        elif isinstance(x, (bytearray, array.array, memoryview)):
            self.guards.content(x, path)
        elif hasattr(type(x), "__array_interface__"):
            self._array(x, path)
        else:
            self._object(x, path, certain)

    def _getter(self, x: Any, path: str) -> None:
        """Walks an `attrgetter` or a `methodcaller`, which holds names and, for a method, its arguments."""
        make, given = x.__reduce__()
        if isinstance(make, functools.partial):
            given = (*make.args, *given)
            self._later(make.keywords, path)
        names = given[:1] if isinstance(x, operator.methodcaller) else given
        self._found_names.update(chain.from_iterable(name.split(".") for name in names))
        self._later(given, path)

    def _array(self, x: Any, path: str) -> None:
        """Guards a NumPy array by its bytes, and an array of objects by the objects."""
        kind = getattr(x, "dtype", None)
        if not getattr(kind, "hasobject", False):
            self.guards.content(x, path)
        elif kind.names is not None or kind.subdtype is not None:
            raise ValueError(
                f"the compiled function reads the array `{path}` from outside, whose records have objects in them that no call could compare; "
                "take them out of it outside, or give them as arguments"
            )
        elif x.ndim == 1:
            self.guards.elements(x, path)
            self._parts(x, path)
        else:
            # each row is a view of the same memory
            self._parts(x if x.ndim else (x.reshape(1),), path)

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
        if not is_library(f.__module__):
            self._called(f, path)
        self._attributes(f, path, vars(f))
        if not is_library(f.__module__):
            self._missing(vars(f), path, self._optional())

    def _called(self, x: Any, path: str) -> None:
        """Walks the names of a class or a function itself."""
        for name in sorted(self._asked.intersection(("__name__", "__qualname__", "__doc__"))):
            self.guards.slot(x, name, getattr(x, name), f"{path}.{name}")

    def _module(self, x: Any, path: str, certain: bool) -> None:
        if is_library(x.__name__):
            return
        of = vars(x)
        for name in list(of):
            # names that a module imports for itself do not lead to everything in the imported modules
            if name in self._names or self._by_text and certain and not _is_special(name):
                self.guards.entry(of, name, of[name], f"{path}.{name}")
                self._later(of[name], f"{path}.{name}", name in self._names)
        if certain:
            self._missing(of, path, self._asked if "__getattr__" in of else self._optional())

    def _class(self, x: Any, path: str) -> None:
        """Walks the attributes of a class and of its bases that code names, and the places where new ones would hide
        them."""
        own = [c for c in x.__mro__ if not is_library(c.__module__)]
        every = {name for c in own for name in vars(c) if not _is_special(name)} if self._by_text else set()
        for name in self._names | every:
            if not any(name in vars(c) for c in own):
                continue
            for c in own:
                value = vars(c).get(name, MISSING)
                self.guards.of_class(c, name, value, f"{c.__name__}.{name}")
                self._later(value, f"{c.__name__}.{name}", name in self._names)
        asked = self._asked if _is_asked_in_need(x) or _is_asked_in_need(type(x)) else self._optional()
        missing = frozenset(name for name in asked if not any(name in vars(c) for c in own))
        for c in own:
            self._called(c, c.__name__)
            self.guards.bases(c, c.__name__)
            if self._by_text:
                self.guards.names_of_class(c, c.__name__)
            else:
                self.guards.absent(c, missing, c.__name__)

    def _optional(self) -> Set[str]:
        """The attributes that code may ask for, and can do without."""
        return self._asked if self._may_miss else set()

    def _missing(self, of: Dict[str, Any], path: str, asked: Set[str]) -> None:
        """Guards the absence of `asked` attributes that a dictionary does not have."""
        if self._by_text:
            self.guards.keys(of, path)
        else:
            self.guards.absent(of, frozenset(asked - of.keys()), path)

    def _attributes(self, x: Any, path: str, of: Dict[str, Any]) -> None:
        # the text of the object shows all of its attributes
        is_shown = self._shows and isinstance(x, types.SimpleNamespace)
        for name in list(of):
            is_named = name in self._names or name in OF_MODULES
            if is_named or self._by_text or is_shown:
                value = of[name]
                self.guards.entry(of, name, value, f"{path}.{name}")
                self._later(value, f"{path}.{name}", is_named)
        if is_shown:
            self.guards.keys(of, path)

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
            # another compiled function: within this one the function that it was made from runs in its place
            self._later(getattr(x, kind._traced_alone), path)
            return
        self._later(kind, kind.__name__)
        of = getattr(x, "__dict__", None)
        if isinstance(of, dict):
            if x.__dict__ is of and (not is_library(kind.__module__) or hasattr(kind, "_library_state")):
                self.guards.kind(x, path, id(x) in self._arguments)
            self._attributes(x, path, of)
            asked = set(self._asked if _is_asked_in_need(kind) else self._optional())
            for name in self._names:
                found = next((vars(c)[name] for c in kind.__mro__ if name in vars(c)), MISSING)
                if name not in of and found is not MISSING and not hasattr(type(found), "__set__"):
                    self.guards.entry(of, name, MISSING, f"{path}.{name}")
                if found is not MISSING:
                    asked.discard(name)
            self._missing(of, path, asked)
        elif not is_library(kind.__module__) and any(isinstance(m, types.MemberDescriptorType) for c in kind.__mro__ for m in vars(c).values()):
            self.guards.slot(x, "__class__", kind, f"{path}.__class__")
        for c in kind.__mro__:
            for name, member in vars(c).items():
                if isinstance(member, types.MemberDescriptorType) and (name in self._names or self._by_text):
                    value = getattr(x, name, MISSING)
                    self.guards.slot(x, name, value, f"{path}.{name}")
                    self._later(value, f"{path}.{name}", name in self._names)
