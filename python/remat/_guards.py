"""What a traced function read beside its arguments, and whether that is still as it was.

While the function is traced, the code that runs is noted, with the names that it has: of globals, and of attributes. From the function,
its closure, those globals and its arguments, the objects are walked that those names lead to. Each place on the way (an entry of a
dictionary, an element of a list, a cell of a closure) is guarded: it holds the same object, or a constant of the same type and bits.
Which object is called by a name that no code had cannot matter, so an attribute that is set and not read makes nothing new. Where code
goes on without an attribute that it does not find, that the attribute is not there is guarded as well.

Values of tensors are not guarded here: a parameter is a state, and the compiled part has the versions of other tensors.
"""
import array
import builtins
import collections
import dis
import functools
import gc
import importlib
import importlib.util
import io
import operator
import os
import re
import sys
import sysconfig
import types
import weakref
from itertools import chain, repeat
from operator import attrgetter, is_, itemgetter
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

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
# builtins that are given one name, which is often written where they are called
_ONE_NAME = frozenset(("getattr", "hasattr", "setattr", "delattr"))
_BY_TEXT = _ONE_NAME | {
    "vars", "dir", "eval", "exec", "locals", "attrgetter", "methodcaller", "__dict__", "__getattribute__", "__getstate__", "__reduce__",
    "__reduce_ex__",
}
# the same as values, under whatever names code has for them
_TEXT_FUNCTIONS = (getattr, hasattr, setattr, delattr, vars, dir, object.__getattribute__, type.__getattribute__)
_SHOWING = frozenset(("repr", "str", "format", "print", "ascii"))
_GLOBAL_OPS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"))
_ATTRIBUTE_OPS = frozenset(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"))
# instructions that do nothing of their own
_FILLING = frozenset(("CACHE", "NOP", "PRECALL", "PUSH_NULL", "NOT_TAKEN"))

_IMPORT_MODULE = importlib.import_module.__code__
# every look at an environment variable runs one of these
_OF_ENVIRON = frozenset(f.__code__ for f in vars(type(os.environ)).values() if isinstance(f, types.FunctionType))

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
    # the attributes that it asks objects of the program for
    asked: FrozenSet[str]
    # it may go on if one of them is not there
    may_miss: bool
    # it may read globals by names that are no part of the code
    all_globals: bool
    # it makes texts of objects
    shows: bool
    # modules that it imports as it runs, with the level of the import
    imports: FrozenSet[Tuple[str, int]]


def _is_written_name(code: List[dis.Instruction], at: int) -> bool:
    """True if the instruction `at` loads a function that is called with a constant text as its second argument."""
    effect = lambda i: dis.stack_effect(i.opcode, i.arg, jump=False)  # noqa: E731
    depth = callee = effect(code[at])
    is_constant, early = False, 0
    for i in code[at + 1:]:
        if i.opcode in dis.hasjrel or i.opcode in dis.hasjabs:
            return False
        if i.opname == "PRECALL":
            # a part of the call after it
            early = effect(i)
            continue
        before, depth, early = depth, depth + effect(i) + early, 0
        if depth <= callee and before > callee and i.opname.startswith("CALL"):
            # with the function gone, what it gave is all that is left
            return is_constant and depth == 1
        if depth < callee:
            return False
        if depth == callee + 2 and i.opname not in _FILLING:
            # what comes later to this place of the stack is made of the constant
            is_constant = before == callee + 1 and i.opname == "LOAD_CONST" and isinstance(i.argval, str)
        elif depth < callee + 2:
            is_constant = False
    return False


def _written_global(code: List[dis.Instruction], at: int) -> Optional[str]:
    """The name in `globals()["name"]` and `globals().get("name", ..)` whose `globals` the instruction `at` loads."""
    after = [i for i in code[at + 1:at + 16] if i.opname not in _FILLING][:5]
    names = [i.opname for i in after] + [""] * 5
    if not names[0].startswith("CALL"):
        return None
    first = 2 if names[1] in ("LOAD_ATTR", "LOAD_METHOD") and after[1].argval == "get" else 1
    if names[first] != "LOAD_CONST" or not isinstance(after[first].argval, str):
        return None
    if first == 1:
        is_all = names[2] == "BINARY_SUBSCR" or names[2] == "BINARY_OP" and after[2].argrepr == "[]"
    else:
        is_all = names[3].startswith("CALL") or names[3].startswith("LOAD_") and names[4].startswith("CALL")
    return after[first].argval if is_all else None


def _may_catch(code: List[dis.Instruction]) -> bool:
    """True for code that goes on after an error, other than at the end of a `with` block."""
    return any(
        i.opname == "SETUP_FINALLY" or i.opname == "PUSH_EXC_INFO" and after.opname != "WITH_EXCEPT_START" for i, after in zip(code, code[1:])
    )


@functools.lru_cache(maxsize=4096)
def _names(code: types.CodeType) -> _Names:
    steps = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
    of_globals = {i.argval for i in steps if i.opname in _GLOBAL_OPS}
    texts = {c for c in code.co_consts if isinstance(c, str)}
    is_quiet, is_library = _is_quiet(code.co_filename), _is_library_file(code.co_filename)
    by_text = _BY_TEXT.intersection(code.co_names)
    attributes, asked = {*code.co_names}, {i.argval for i in steps if i.opname in _ATTRIBUTE_OPS}
    for more in (attributes, asked) if by_text else ():
        more.update(c for c in texts if c.isidentifier())
    if not {"format", "format_map"}.isdisjoint(code.co_names):
        attributes.update(name for c in texts if "{" in c for name in re.findall(r"\.(\w+)", c))
    is_matched = any(i.opname == "MATCH_CLASS" for i in steps)
    is_by_text = bool(by_text) or is_matched
    # a text to fill in that is none of the code's names attributes by itself
    is_filled = any(i.opname in _ATTRIBUTE_OPS and i.argval in ("format", "format_map") for i in steps) and not any("{" in c for c in texts)
    # a library that asks for a written name may go on with others in compiled code, as `copy` does
    if by_text and by_text <= _ONE_NAME and not is_library and not is_matched:
        calls = [at for at, i in enumerate(steps) if i.argval in by_text and isinstance(i.argval, str) and i.opname != "LOAD_CONST"]
        is_by_text = not all(steps[at].opname == "LOAD_GLOBAL" and _is_written_name(steps, at) for at in calls)
    may_miss = bool(by_text) or _may_catch(steps) or "suppress" in code.co_names or code.co_name in ("__exit__", "__aexit__")
    all_globals = False
    if not is_library:
        found = [_written_global(steps, at) for at, i in enumerate(steps) if i.opname in _GLOBAL_OPS and i.argval == "globals"]
        of_globals.update(name for name in found if name is not None)
        all_globals = None in found
    imports = {(i.argval, steps[at - 2].argval) for at, i in enumerate(steps) if i.opname == "IMPORT_NAME"}
    if not {"__import__", "modules"}.isdisjoint(code.co_names):
        imports.update((c, 0) for c in texts if all(map(str.isidentifier, c.split("."))))
    shows = not _SHOWING.isdisjoint(code.co_names) or any(i.opname.startswith("FORMAT_") for i in steps)
    return _Names(
        frozenset(of_globals), frozenset(attributes), (is_by_text or is_filled) and not is_quiet, frozenset() if is_quiet else frozenset(asked),
        may_miss and not is_quiet, all_globals, shows and not is_library, frozenset() if is_library else frozenset(imports),
    )


class Watch:
    """Notes the code that this thread runs between `begin` and `end`."""

    def __init__(self) -> None:
        self.codes: Dict[types.CodeType, Dict[str, Any]] = {}
        # names of modules, and the packages that they are relative to, given to `importlib.import_module`
        self.imported: Set[Tuple[str, Optional[str]]] = set()
        self._before: Any = None

    def _note(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code not in self.codes:
            self.codes[frame.f_code] = frame.f_globals
        if frame.f_code is _IMPORT_MODULE and event == "call":
            self.imported.add((frame.f_locals["name"], frame.f_locals["package"]))

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

    def __init__(self, dicts: Any, keys: Any, lists: Any, names_of_classes: Any, absent: Any):
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
        # each attribute of those classes is guarded
        self._sized = [*keys[0], *lists[0], *names_of_classes[1]]
        self._sizes = [len(before) for before in (*keys[1], *lists[1], *names_of_classes[2])]
        # each entry of a dictionary is guarded, so that of one key its length says all
        ordered = [(of, before) for of, before in zip(keys[0], keys[1]) if len(before) > 1 or isinstance(of, set)]
        self._ordered = [of for of, _ in ordered], [before for _, before in ordered]
        self._lists = lists[0], [*chain.from_iterable(lists[1])]
        self._absent = [of.keys().isdisjoint for of in absent[0]], absent[1]

    def holds(self) -> bool:
        """True if each place has the same object. Errors: KeyError if it is not there."""
        dicts, keys, values = self._one
        gets, of, all_values = self._several
        # to go over nothing takes as long as to look at ten places
        return (
            [*map(len, self._sized)] == self._sizes
            and (not dicts or all(map(is_, map(dict.__getitem__, dicts, keys), values)))
            and (not gets or all(map(is_, chain.from_iterable(map(_call, gets, of)), all_values)))
            and (not self._without[0] or not any(map(dict.__contains__, *self._without)))
            and (not self._absent[0] or all(map(_call, *self._absent)))
            and (not self._ordered[0] or [*map(tuple, self._ordered[0])] == self._ordered[1])
            and (not self._lists[0] or all(map(is_, chain.from_iterable(self._lists[0]), self._lists[1])))
        )


_call = getattr(operator, "call", None) or (lambda f, *x: f(*x))

_of_proxy: Any = types.MappingProxyType.get
_own_dict, _mro, _content = attrgetter("__dict__"), attrgetter("__mro__"), attrgetter("cell_contents")


class Guards:
    """Places, what they held, and how a person finds them."""

    def __init__(self) -> None:
        self._dicts: Tuple[List[Any], List[Any], List[Any], List[str]] = ([], [], [], [])
        self._classes: Tuple[List[Any], List[Any], List[Any], List[str], List[type]] = ([], [], [], [], [])
        self._cells: Tuple[List[Any], List[Any], List[str]] = ([], [], [])
        self._keys: Tuple[List[Any], List[Tuple[Any, ...]], List[str]] = ([], [], [])
        self._lists: Tuple[List[Any], List[Tuple[Any, ...]], List[str]] = ([], [], [])
        self._names_of_classes: Tuple[List[type], List[Any], List[Tuple[str, ...]], List[str]] = ([], [], [], [])
        self._bases: Tuple[List[type], List[Tuple[type, ...]], List[str]] = ([], [], [])
        self._absent: Tuple[List[Any], List[FrozenSet[str]], List[str], List[Any]] = ([], [], [], [])
        self._kinds: Tuple[List[Any], List[type], List[Any], List[str]] = ([], [], [], [])
        # those that must not be kept alive: arguments
        self._weak_kinds: List[Tuple[Callable[[], Any], type, Any, str]] = []
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

    def names_of_class(self, of: type, path: str) -> None:
        """Which attributes a class itself has."""
        if self._new((id(of), "names"), path):
            for part, new in zip(self._names_of_classes, (of, vars(of), tuple(vars(of)), path)):
                part.append(new)

    def bases(self, of: type, path: str) -> None:
        """The classes that a class has attributes of."""
        if self._new((id(of), "bases"), path, 0):
            for part, new in zip(self._bases, (of, of.__mro__, path)):
                part.append(new)

    def absent(self, of: Any, names: FrozenSet[str], path: str) -> None:
        """Names that a dictionary, or the class `of` itself, does not have."""
        if names and self._new((id(of), "absent", names), path):
            where = vars(of) if isinstance(of, type) else of
            for part, new in zip(self._absent, (where, names, path, of)):
                part.append(new)

    def kind(self, of: Any, path: str, is_argument: bool) -> None:
        """The class of an object with attributes, and the dictionary that these are in. An argument is not kept alive."""
        if not self._new((id(of), "kind"), path, 0):
            return
        if is_argument:
            try:
                self._weak_kinds.append((weakref.ref(of), type(of), of.__dict__, path))
                return
            except TypeError:
                # nor is it otherwise let go of
                pass
        for part, new in zip(self._kinds, (of, type(of), of.__dict__, path)):
            part.append(new)

    def slot(self, of: Any, name: str, value: Any, path: str) -> None:
        """An attribute that is in no dictionary."""
        if self._new((id(of), "slot", name), path):
            self._slots.append((of, name, [value], path))

    def content(self, of: Any, path: str) -> None:
        """The bytes of an array. Errors: ValueError for too many."""
        if not self._new((id(of), "bytes"), path):
            return
        view = memoryview(of) if not hasattr(of, "tobytes") else of
        self._count_bytes += view.nbytes if hasattr(view, "nbytes") else len(view) * view.itemsize
        if self._count_bytes > MOST_BYTES:
            raise ValueError(
                f"the compiled function reads the array `{path}` from outside, and every call would have to compare all of it; make a "
                "tensor of it first, or give it as an argument"
            )
        self._bytes.append((of, view.tobytes(), path))

    def hold(self) -> bool:
        """True if every place holds what it held."""
        if self._quick is None:
            self._quick = _Quick(self._dicts, self._keys, self._lists, self._names_of_classes, self._absent)
        classes, names, attributes, _, _ = self._classes
        cells, contents, _ = self._cells
        objects, kinds, own, _ = self._kinds
        of_bases, bases, _ = self._bases
        try:
            quick = (
                self._quick.holds()
                and (not classes or all(map(is_, map(_of_proxy, classes, names, repeat(_MISSING)), attributes)))
                and (not cells or all(map(is_, map(_content, cells), contents)))
                and [*map(type, objects)] == kinds
                and (not own or all(map(is_, map(_own_dict, objects), own)))
                and (not bases or all(map(is_, map(_mro, of_bases), bases)))
            )
        except (AttributeError, LookupError, ValueError, RuntimeError):
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
        return self._broken_kind()

    def _broken_kind(self) -> Optional[str]:
        for x, kind, own, path in zip(*self._kinds):
            if type(x) is not kind or x.__dict__ is not own:
                return f"{path}.__class__" if type(x) is not kind else f"{path}.__dict__"
        for of, bases, path in zip(*self._bases):
            if of.__mro__ is not bases:
                return f"{path}.__bases__"
        for where, names, path, _ in zip(*self._absent):
            for name in sorted(names.intersection(where)):
                return f"{path}.{name}"
        for _, now, before, path in zip(*self._names_of_classes):
            if {*now} != {*before}:
                return path
        return None

    def _broken_rest(self) -> Optional[str]:
        for find, kind, own, path in self._weak_kinds:
            x = find()
            if type(x) is not kind or x.__dict__ is not own:
                return f"{path}.__class__" if type(x) is not kind else f"{path}.__dict__"
        for of, name, value, path in self._slots:
            now = getattr(of, name, _MISSING)
            if not same(now, value[0]):
                return path
            value[0] = now
        for of, content, path in self._bytes:
            try:
                now = of.tobytes() if hasattr(of, "tobytes") else bytes(of)
            except ValueError:
                # a view that was released
                return path
            if now != content:
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
        for of, _, _, path in zip(*other._names_of_classes):
            self.names_of_class(of, path)
        for of, _, path in zip(*other._bases):
            self.bases(of, path)
        for _, names, path, of in zip(*other._absent):
            self.absent(of, names, path)
        for x, _, _, path in zip(*other._kinds):
            self.kind(x, path, False)
        for find, _, _, path in other._weak_kinds:
            self.kind(find(), path, True)


def _is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_asked_in_need(kind: type) -> bool:
    """True for a class of the program whose objects give attributes that they do not have."""
    return any("__getattr__" in vars(c) and not _is_library(c.__module__) for c in kind.__mro__)


class Walk:
    """Finds what some code reads, from the objects where it begins."""

    def __init__(self, watch: Watch, arguments: List[Any]):
        self._codes, self._imported = watch.codes, watch.imported
        self._arguments = {*map(id, arguments)}
        found = [_names(code) for code in watch.codes]
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
        # those that were come by on a way that the code takes for certain
        self._certain: Set[int] = set()
        self._tensors: Set[int] = set()
        self._walked: Set[types.CodeType] = set()
        self._stack: List[Tuple[Any, str, bool]] = []
        # what was met on the way and reads attributes by names that no code has
        self._found_names: Set[str] = set()
        self._is_certain = True
        self._found_text = self._found_globals = False

    def begins_again(self) -> bool:
        """True if what was met on the way reads attributes that were not looked at before; nothing is walked then, and all is to be."""
        names = self._found_names - self._asked
        if not names and (self._by_text or not self._found_text) and (self._all_globals or not self._found_globals):
            return False
        self._names |= names
        self._asked |= names
        self._by_text, self._all_globals = self._by_text or self._found_text, self._all_globals or self._found_globals
        self._begin()
        return True

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
            names = _names(code)
            read = names.globals
            if names.all_globals or self._all_globals:
                self.guards.keys(of, f"the globals of {of.get('__name__')}")
                read = read.union(name for name in of if isinstance(name, str) and not _is_special(name))
            for name in sorted(read):
                value = of.get(name, _MISSING)
                if value is _MISSING and hasattr(builtins, name):
                    self.guards.entry(of, name, _MISSING, name)
                    continue
                self.guards.entry(of, name, value, name)
                self.walk(value, name, name in names.globals)
            for name, level in names.imports:
                self._import("." * level + name, of.get("__package__") or str(of.get("__name__")).rpartition(".")[0])
        for name, package in self._imported:
            self._import(name, package or "")
        if not _OF_ENVIRON.isdisjoint(self._codes):
            self.walk(os.environ._data, "os.environ")  # type: ignore[attr-defined]

    def _import(self, name: str, package: str) -> None:
        """Walks a module that code imports as it runs, and the packages that it is in."""
        try:
            parts = importlib.util.resolve_name(name, package).split(".")
        except (ImportError, ValueError):
            return
        for count in range(1, len(parts) + 1):
            whole = ".".join(parts[:count])
            if _is_library(whole):
                return
            found = sys.modules.get(whole, _MISSING)
            self.guards.entry(sys.modules, whole, found, whole)
            self.walk(found, whole)

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
            is_known = id(x) in self._certain or not certain and id(x) in self._known
            if x is _MISSING or isinstance(x, (Tensor, Device, Generator, dtype)) or is_known or constant(x) is not None:
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
            self._found_text = self._found_text or x in _TEXT_FUNCTIONS
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
            # what is behind it is known to the collector alone
            for of in gc.get_referents(x):
                self._later(of, path)
        elif isinstance(x, (bytearray, array.array, memoryview)):
            self.guards.content(x, path)
        elif hasattr(type(x), "__array_interface__"):
            self._array(x, path)
        else:
            self._object(x, path, certain)

    def _getter(self, x: Any, path: str) -> None:
        """An `attrgetter` or a `methodcaller`, which has the names, and for a method its arguments."""
        make, given = x.__reduce__()
        if isinstance(make, functools.partial):
            given = (*make.args, *given)
            self._later(make.keywords, path)
        names = given[:1] if isinstance(x, operator.methodcaller) else given
        self._found_names.update(chain.from_iterable(name.split(".") for name in names))
        self._later(given, path)

    def _array(self, x: Any, path: str) -> None:
        """An array of NumPy, by its bytes; one of objects by these."""
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
        if not _is_library(f.__module__):
            self._called(f, path)
        self._attributes(f, path, vars(f))
        if not _is_library(f.__module__):
            self._missing(vars(f), path, self._optional())

    def _called(self, x: Any, path: str) -> None:
        """The names of a class or a function itself."""
        for name in sorted(self._asked.intersection(("__name__", "__qualname__", "__doc__"))):
            self.guards.slot(x, name, getattr(x, name), f"{path}.{name}")

    def _module(self, x: Any, path: str, certain: bool) -> None:
        if _is_library(x.__name__):
            return
        of = vars(x)
        for name in list(of):
            # what a module imports for itself is no way to everything that those have
            if name in self._names or self._by_text and certain and not _is_special(name):
                self.guards.entry(of, name, of[name], f"{path}.{name}")
                self._later(of[name], f"{path}.{name}", name in self._names)
        if certain:
            self._missing(of, path, self._asked if "__getattr__" in of else self._optional())

    def _class(self, x: Any, path: str) -> None:
        """The attributes of a class and of its bases that code names, and where they would hide others."""
        own = [c for c in x.__mro__ if not _is_library(c.__module__)]
        every = {name for c in own for name in vars(c) if not _is_special(name)} if self._by_text else set()
        for name in self._names | every:
            if not any(name in vars(c) for c in own):
                continue
            for c in own:
                value = vars(c).get(name, _MISSING)
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
        """The attributes that code may ask for and do without."""
        return self._asked if self._may_miss else set()

    def _missing(self, of: Dict[str, Any], path: str, asked: Set[str]) -> None:
        """What a dictionary of attributes does not have of those that are `asked` for."""
        if self._by_text:
            self.guards.keys(of, path)
        else:
            self.guards.absent(of, frozenset(asked - of.keys()), path)

    def _attributes(self, x: Any, path: str, of: Dict[str, Any]) -> None:
        # its text has all of them
        is_shown = self._shows and isinstance(x, types.SimpleNamespace)
        for name in list(of):
            is_named = name in self._names or name in _OF_MODULES
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
            # another compiled function: within this one it is the function that it was made of
            self._later(getattr(x, kind._traced_alone), path)
            return
        self._later(kind, kind.__name__)
        of = getattr(x, "__dict__", None)
        if isinstance(of, dict):
            if x.__dict__ is of and (not _is_library(kind.__module__) or hasattr(kind, "_named_state")):
                self.guards.kind(x, path, id(x) in self._arguments)
            self._attributes(x, path, of)
            asked = set(self._asked if _is_asked_in_need(kind) else self._optional())
            for name in self._names:
                found = next((vars(c)[name] for c in kind.__mro__ if name in vars(c)), _MISSING)
                if name not in of and found is not _MISSING and not hasattr(type(found), "__set__"):
                    self.guards.entry(of, name, _MISSING, f"{path}.{name}")
                if found is not _MISSING:
                    asked.discard(name)
            self._missing(of, path, asked)
        elif not _is_library(kind.__module__) and any(isinstance(m, types.MemberDescriptorType) for c in kind.__mro__ for m in vars(c).values()):
            self.guards.slot(x, "__class__", kind, f"{path}.__class__")
        for c in kind.__mro__:
            for name, member in vars(c).items():
                if isinstance(member, types.MemberDescriptorType) and (name in self._names or self._by_text):
                    value = getattr(x, name, _MISSING)
                    self.guards.slot(x, name, value, f"{path}.{name}")
                    self._later(value, f"{path}.{name}", name in self._names)
