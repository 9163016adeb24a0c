"""Names in code: globals, attributes, imported modules, and names that code makes as text. Also tells which code
belongs to a library."""
import dis
import functools
import importlib
import importlib.util
import os
import re
import sys
import sysconfig
import types
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

# attributes of a module that the library reads through the module's dictionary
OF_MODULES = frozenset(
    ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "training", "_layer")
)
# builtins that take one name, which is often a constant in the call
_ONE_NAME = frozenset(("getattr", "hasattr", "setattr", "delattr"))
_BY_TEXT = _ONE_NAME | {
    "vars", "dir", "eval", "exec", "locals", "attrgetter", "methodcaller", "__dict__", "__getattribute__", "__getstate__", "__reduce__",
    "__reduce_ex__",
}
# the functions themselves, since code may call them by any name
TEXT_FUNCTIONS = (getattr, hasattr, setattr, delattr, vars, dir, object.__getattribute__, type.__getattribute__)
_SHOWING = frozenset(("repr", "str", "format", "print", "ascii"))
_GLOBAL_OPS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "STORE_NAME", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"))
_ATTRIBUTE_OPS = frozenset(("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"))
# instructions without an effect of their own
_FILLING = frozenset(("CACHE", "NOP", "PRECALL", "PUSH_NULL", "NOT_TAKEN"))

_IMPORT_MODULE = importlib.import_module.__code__
# every access to an environment variable runs one of these
OF_ENVIRON = frozenset(f.__code__ for f in vars(type(os.environ)).values() if isinstance(f, types.FunctionType))

OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_SITE = ("site-packages", "dist-packages")


def _folders() -> Tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    return (*sorted(p + os.sep for p in paths if p), OWN)


_LIBRARIES = _folders()


def is_library_file(path: str) -> bool:
    """True for files of the standard library, of this library and of NumPy: compiled functions do not depend on their
    state."""
    if path.startswith("<frozen"):
        return True
    if any(site in path for site in _SITE) and not path.startswith(OWN):
        return f"{os.sep}numpy{os.sep}" in path
    return path.startswith(_LIBRARIES)


@functools.lru_cache(maxsize=4096)
def is_library(module: Optional[str]) -> bool:
    """True if the module of this name belongs to a library."""
    if module is None or module in sys.builtin_module_names:
        return module is not None
    found = sys.modules.get(module)
    path = getattr(found, "__file__", None)
    return path is not None and is_library_file(path)


# parts of the standard library that read attributes by name from functions and classes only
_QUIET = frozenset(("contextlib", "functools", "abc", "enum", "threading", "weakref", "_weakrefset", "typing", "warnings", "json", "collections"))


def _is_quiet(path: str) -> bool:
    """True for library code that never reads an attribute of a program's objects by a name it was given."""
    if not is_library_file(path):
        return False
    name = os.path.splitext(os.path.basename(path))[0]
    folder = os.path.basename(os.path.dirname(path))
    is_own = path.startswith(OWN) or f"{os.sep}numpy{os.sep}" in path or path.startswith("<frozen")
    return is_own or name in _QUIET or folder in _QUIET


class _Names(NamedTuple):
    globals: FrozenSet[str]
    attributes: FrozenSet[str]
    # true if it may read attributes by names that are no part of the code
    by_text: bool
    # the attributes that it reads from objects of the program
    asked: FrozenSet[str]
    # true if it may go on when one of them is missing
    may_miss: bool
    # true if it may read globals by names that are no part of the code
    all_globals: bool
    # true if it makes texts of objects
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
            # belongs to the call that follows
            early = effect(i)
            continue
        before, depth, early = depth, depth + effect(i) + early, 0
        if depth <= callee and before > callee and i.opname.startswith("CALL"):
            # the call has taken the function off the stack: only its result is left
            return is_constant and depth == 1
        if depth < callee:
            return False
        if depth == callee + 2 and i.opname not in _FILLING:
            # only the first value in this place of the stack can be the constant itself
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
def names_of(code: types.CodeType) -> _Names:
    steps = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
    of_globals = {i.argval for i in steps if i.opname in _GLOBAL_OPS}
    texts = {c for c in code.co_consts if isinstance(c, str)}
    is_quiet, is_library = _is_quiet(code.co_filename), is_library_file(code.co_filename)
    by_text = _BY_TEXT.intersection(code.co_names)
    attributes, asked = {*code.co_names}, {i.argval for i in steps if i.opname in _ATTRIBUTE_OPS}
    for more in (attributes, asked) if by_text else ():
        more.update(c for c in texts if c.isidentifier())
    if not {"format", "format_map"}.isdisjoint(code.co_names):
        attributes.update(name for c in texts if "{" in c for name in re.findall(r"\.(\w+)", c))
    is_matched = any(i.opname == "MATCH_CLASS" for i in steps)
    is_by_text = bool(by_text) or is_matched
    # a format text that is no constant of the code may name attributes
    is_filled = any(i.opname in _ATTRIBUTE_OPS and i.argval in ("format", "format_map") for i in steps) and not any("{" in c for c in texts)
    # a library that reads a constant name may read others in compiled code, as `copy` does
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
        # arguments of `importlib.import_module`: names of modules, and the packages that they are relative to
        self.imported: Set[Tuple[str, Optional[str]]] = set()
        self._before: Any = None

    def _note(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code not in self.codes:
            self.codes[frame.f_code] = frame.f_globals
        if frame.f_code is _IMPORT_MODULE and event == "call":
            self.imported.add((frame.f_locals["name"], frame.f_locals["package"]))

    def begin(self) -> None:
        """Begins. A profiler that the program has set pauses until `end`."""
        self._before = sys.getprofile()
        sys.setprofile(self._note)

    def end(self) -> None:
        """Ends."""
        if self._before is None or callable(self._before):
            sys.setprofile(self._before)
        else:
            sys.setprofile(None)
            # a profiler in C has to set itself
            self._before.enable()
