"""Guards of compiled functions: places, and the values that they held."""
import operator
import types
import weakref
from itertools import chain, repeat
from operator import attrgetter, is_, itemgetter
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Set, Tuple

from ._structure import same

MISSING: Any = object()

MOST = 1 << 16
"""The most places that are guarded for one form. More would take longer to check than compiled calls save."""

MOST_BYTES = 1 << 20
"""The most bytes of arrays that are guarded for one form."""

class _Quick:
    """The guards of dictionaries and lists, in a form whose check runs no Python code: 3,000 places take 0.1 ms."""

    def __init__(self, dicts: Any, keys: Any, lists: Any, names_of_classes: Any, absent: Any):
        by_dict: Dict[int, Tuple[Any, List[Any], List[Any]]] = {}
        self._without: Tuple[List[Any], List[Any]] = ([], [])
        for of, key, value, _ in zip(*dicts):
            if value is MISSING:
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
        # each attribute of these classes is guarded, so that their number says the rest
        self._sized = [*keys[0], *lists[0], *names_of_classes[1]]
        self._sizes = [len(before) for before in (*keys[1], *lists[1], *names_of_classes[2])]
        # each entry of a dictionary is guarded, so for one with a single key the length says the rest
        ordered = [(of, before) for of, before in zip(keys[0], keys[1]) if len(before) > 1 or isinstance(of, set)]
        self._ordered = [of for of, _ in ordered], [before for _, before in ordered]
        self._lists = lists[0], [*chain.from_iterable(lists[1])]
        self._absent = [of.keys().isdisjoint for of in absent[0]], absent[1]

    def holds(self) -> bool:
        """True if each place has the same object. Errors: KeyError if it is not there."""
        dicts, keys, values = self._one
        gets, of, all_values = self._several
        # a loop over nothing takes as long as a check of ten places
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
    """Places, the values that they held, and the paths that name them for people."""

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
        # objects that must not be kept alive: arguments
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
        """An entry of a dictionary, or its absence."""
        if self._new((id(of), "entry", key), path):
            for part, new in zip(self._dicts, (of, key, value, path)):
                part.append(new)

    def of_class(self, of: Any, name: str, value: Any, path: str) -> None:
        """An attribute of the class itself, or its absence."""
        if self._new((id(of), "class", name), path):
            for part, new in zip(self._classes, (vars(of), name, value, path, of)):
                part.append(new)

    def cell(self, of: Any, value: Any, path: str) -> None:
        """A cell of a closure, which is not empty."""
        if self._new((id(of), "cell"), path):
            for part, new in zip(self._cells, (of, value, path)):
                part.append(new)

    def keys(self, of: Any, path: str) -> None:
        """The keys of a dictionary, or the elements of a set, in order."""
        if self._new((id(of), "keys"), path, len(of)):
            for part, new in zip(self._keys, (of, tuple(of), path)):
                part.append(new)

    def elements(self, of: Any, path: str) -> None:
        """The elements of a list."""
        if self._new((id(of), "list"), path, len(of)):
            for part, new in zip(self._lists, (of, tuple(of), path)):
                part.append(new)

    def names_of_class(self, of: type, path: str) -> None:
        """The names of the attributes of the class itself."""
        if self._new((id(of), "names"), path):
            for part, new in zip(self._names_of_classes, (of, vars(of), tuple(vars(of)), path)):
                part.append(new)

    def bases(self, of: type, path: str) -> None:
        """The bases from which a class inherits attributes."""
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
        """The class of an object with attributes, and the dictionary that holds them. An argument is not kept alive."""
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
        """True if every place holds the value that it held."""
        if self._quick is None:
            self._quick = _Quick(self._dicts, self._keys, self._lists, self._names_of_classes, self._absent)
        classes, names, attributes, _, _ = self._classes
        cells, contents, _ = self._cells
        objects, kinds, own, _ = self._kinds
        of_bases, bases, _ = self._bases
        try:
            quick = (
                self._quick.holds()
                and (not classes or all(map(is_, map(_of_proxy, classes, names, repeat(MISSING)), attributes)))
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
        """As `broken`. It also stores equal constants in place of the old ones, so that the next check is quick."""
        self._quick = None
        for of, key, values, paths in (self._dicts, self._classes[:4]):
            for i, (where, name, value) in enumerate(zip(of, key, values)):
                now = dict.get(where, name, MISSING) if isinstance(where, dict) else where.get(name, MISSING)
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
            now = getattr(of, name, MISSING)
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
