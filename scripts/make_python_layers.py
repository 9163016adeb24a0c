#!/usr/bin/env python3
"""Make Python's classes of compiled layers from their declaration in Rust.

    python3 scripts/make_python_layers.py            writes python/remat/nn/_layers.py
    python3 scripts/make_python_layers.py --check    fails if that would change it

The structs of `crates/python/src/nn/layers` say what each class takes: names, order, types and defaults; beside them stand the text and the
class with the `forward`, which is Python's. The compiled part of the package, `python/remat/_remat.abi3.so`, tells all of it, so build that
first: `cargo build -p remat-python`.
"""
import ast
import importlib.util
import json
import pathlib
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "remat"
MADE = PACKAGE / "nn" / "_layers.py"
CALLS = ["attention", "calls", "recurrent"]
PLACES = {"device": "None", "dtype": '"float32"', "generator": "None"}
WIDTH = 130

HEADER = '''"""Compiled layers. Made by scripts/make_python_layers.py from crates/python/src/nn/layers; do not edit."""
from typing import Any, Optional, Sequence, Union

from .._remat import Device, Generator
from .._support import DTypeLike, Extents
'''


def compiled():
    """The compiled part, without the package, which needs what is made here."""
    spec = importlib.util.spec_from_file_location("_remat", PACKAGE / "_remat.abi3.so")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def callers():
    """The module of each class that has a `forward`."""
    found = {}
    for module in CALLS:
        tree = ast.parse((PACKAGE / "nn" / f"{module}.py").read_text())
        found.update((node.name, module) for node in tree.body if isinstance(node, ast.ClassDef))
    return found


def written(default):
    """A default as Python writes it; of what is the same for each axis, once."""
    while isinstance(default, list) and default and all(v == default[0] for v in default):
        default = default[0]
    return json.dumps(default) if isinstance(default, str) else repr(default)


def signature(arguments):
    parts = ["self"]
    for name, hint, has_default, default in arguments:
        if name == "*":
            parts.append("*")
        elif name in PLACES:
            parts.append(f"{name}: {hint} = {PLACES[name]}")
        else:
            parts.append(f"{name}: {hint}" + (f" = {written(default)}" if has_default else ""))
    line = f"    def __init__({', '.join(parts)}) -> None:"
    if len(line) <= WIDTH:
        return line
    # no break within a hint
    kept = [p.replace(" ", "\0") for p in parts]
    lines = textwrap.wrap(", ".join(kept) + ",", WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 8, break_on_hyphens=False)
    return "\n".join(["    def __init__(", *lines, "    ) -> None:"]).replace("\0", " ")


def made_with(arguments):
    names = [name for name, *_ in arguments if name in PLACES]
    return "generator=generator" if names == ["generator"] else ", ".join(names)


def layer(of):
    text = of["text"].replace("\\", "\\\\").replace("\n", "\n    ").replace("\n    \n", "\n\n")
    return f'''class {of["name"]}({of["base"]}):
    """{text}
    """

{signature(of["arguments"])}
        self._make({made_with(of["arguments"])})
'''


def made():
    classes = compiled().layer_classes()
    where = callers()
    used = {of["base"] for of in classes}
    imports = ""
    for module in CALLS:
        names = ", ".join(sorted(name for name in used if where[name] == module))
        imports += f"from .{module} import {names}\n"
    listed = textwrap.wrap(", ".join(f'"{n}"' for n in sorted(of["name"] for of in classes)), 120)
    tail = "__all__ = [\n    " + "\n    ".join(listed) + ",\n]\n"
    return HEADER + imports + "\n\n" + "\n\n".join(map(layer, classes)) + "\n\n" + tail


def main():
    text = made()
    if "--check" in sys.argv:
        if not MADE.exists() or MADE.read_text() != text:
            sys.exit(f"stale, run scripts/make_python_layers.py: {MADE.relative_to(ROOT)}")
        return
    MADE.write_text(text)


if __name__ == "__main__":
    main()
