"""Takes away from a failing program whatever it fails without."""
import ast
import copy
import time
from typing import Any, Callable, Iterator, List, Optional, Tuple

from .check import Checker
from .compare import Failure
from .generate import Program

Path = Tuple[Tuple[str, int], ...]


def shrink(program: Program, failure: Failure, checker: Checker, seconds: float) -> Program:
    """A smaller program that fails in the same kind, in the same form."""

    def fails(candidate: Program) -> bool:
        checked = checker.check(candidate, [failure.form])
        return checked.is_valid and any(f.signature == failure.signature for f in checked.failures)

    return shrink_while(program, fails, seconds)


def shrink_while(program: Program, fails: Callable[[Program], bool], seconds: float) -> Program:
    """The smallest program that was found within a time for which `fails` holds. Statements go first, whole blocks before their
    parts; then numbers become smaller and expressions one of their operands."""
    until = time.monotonic() + seconds
    tree = ast.parse(program.source)
    head, imports = program.source.splitlines()[:2]

    def text_of(of: ast.Module) -> Program:
        body = ast.unparse(of)
        return program.with_source(f"{head}\n{body}\n" if imports in body else f"{head}\n{imports}\n{body}\n")

    if not fails(text_of(tree)):
        return program
    changed = True
    while changed and time.monotonic() < until:
        changed = False
        for edits in (_removals, _smaller_numbers, _operands):
            at = 0
            while time.monotonic() < until:
                candidate = _edited(tree, edits, at)
                if candidate is None:
                    break
                if _is_program(candidate) and fails(text_of(candidate)):
                    tree, changed = candidate, True
                else:
                    at += 1
    return text_of(tree)


def _is_program(tree: ast.Module) -> bool:
    try:
        compile(ast.unparse(tree), "candidate", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def _edited(tree: ast.Module, edits: Callable[[ast.Module], Iterator[Callable[[], None]]], at: int) -> Optional[ast.Module]:
    """A copy with the edit of a number; None beyond the last one."""
    made = copy.deepcopy(tree)
    for i, edit in enumerate(edits(made)):
        if i == at:
            edit()
            return made
    return None


def _blocks(node: ast.AST) -> Iterator[List[ast.stmt]]:
    """Every list of statements, outer ones first."""
    queue: List[ast.AST] = [node]
    while queue:
        at = queue.pop(0)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(at, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block
        queue += list(ast.iter_child_nodes(at))


def _removals(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """A statement goes, or a block takes the place of the statement that it is of."""
    for block in _blocks(tree):
        for i in range(len(block) - 1, -1, -1):
            if isinstance(block[i], (ast.ImportFrom, ast.Pass)):
                continue
            yield lambda block=block, i=i: _remove(block, i)
            inner = getattr(block[i], "body", None)
            if isinstance(inner, list) and isinstance(block[i], (ast.With, ast.If, ast.Try)):
                yield lambda block=block, i=i, inner=inner: block.__setitem__(slice(i, i + 1), inner)
            if isinstance(block[i], ast.For) and isinstance(block[i].target, ast.Name):
                first = ast.parse(f"{block[i].target.id} = 0").body
                yield lambda block=block, i=i, both=[*first, *block[i].body]: block.__setitem__(slice(i, i + 1), both)


def _remove(block: List[ast.stmt], i: int) -> None:
    del block[i]
    if not block:
        block.append(ast.Pass())


def _smaller_numbers(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """All integers of one value become a smaller one: extents that must agree go on to do so."""
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and type(n.value) is int]
    for value in sorted({n.value for n in found if 1 < n.value < 1000}, reverse=True):
        for smaller in sorted({1, 2, value // 2} - {value}):
            yield lambda value=value, smaller=smaller: _set([n for n in found if n.value == value], smaller)
    for n in found:
        if 2 < n.value < 1000:
            yield lambda n=n: _set([n], n.value // 2)


def _set(numbers: List[ast.Constant], value: int) -> None:
    for n in numbers:
        n.value = value


def _operands(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """An expression becomes one of its operands."""
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            places: List[Tuple[Any, Any]] = [(None, value)] if isinstance(value, ast.expr) else []
            if isinstance(value, list):
                places = [(i, v) for i, v in enumerate(value) if isinstance(v, ast.expr)]
            for i, v in places:
                for operand in _parts(v):
                    yield lambda node=node, name=name, i=i, operand=operand: _put(node, name, i, operand)


# what gives both frameworks the same numbers: without it any two programs differ
SEEDED = ("fill", "parameter", "normal", "integers")


def _parts(v: ast.expr) -> List[ast.expr]:
    if isinstance(v, ast.Call) and isinstance(v.func, ast.Name) and v.func.id in SEEDED:
        return []
    if isinstance(v, ast.BinOp):
        return [v.left, v.right]
    if isinstance(v, ast.UnaryOp):
        return [v.operand]
    if isinstance(v, ast.Call):
        own = [v.func.value] if isinstance(v.func, ast.Attribute) else []
        return [*(a for a in v.args if not isinstance(a, ast.Constant)), *own]
    if isinstance(v, ast.IfExp):
        return [v.body, v.orelse]
    return []


def _put(node: ast.AST, name: str, i: Optional[int], value: ast.expr) -> None:
    if i is None:
        setattr(node, name, value)
    else:
        getattr(node, name)[i] = value
