#!/usr/bin/env python3
"""Runs test modules of the Python package under valgrind, which notices reads of memory that is not there or was never written.

    cargo build -p remat-python && cp target/debug/lib_remat.so python/remat/_remat.abi3.so
    python3 scripts/python_valgrind.py --python VENV/bin/python                       # tests/test_tensor.py
    python3 scripts/python_valgrind.py --python VENV/bin/python tests/test_autograd.py -k hook

An error counts if it is in the compiled part, or in a function of the C library that this called. The interpreter reads bytes that
valgrind holds to be unwritten, also without the package; those are counted and not held against it. Exits with 1 on an error that
counts, or if the tests fail.

The build is that of tests. The compiler's release build reads the bytes of a variant of an enum before it knows that the variant is
there, and drops what comes of it: valgrind reports such a condition, for example, where `vec![None; n]` clones in a compiled function.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = "_remat.abi3.so"


def run(args, folder):
    out = folder / "valgrind.xml"
    command = [
        "valgrind", "--xml=yes", f"--xml-file={out}", "--leak-check=no", "--num-callers=40",
        args.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(args.tests or ["tests/test_tensor.py"]),
    ]
    # the interpreter's own allocator hides from valgrind where an object ends
    environment = {**os.environ, "PYTHONMALLOC": "malloc", "PYTHONPATH": "."}
    status = subprocess.run(command, cwd=ROOT / "python", env=environment).returncode
    errors = ElementTree.parse(out).getroot().findall("error")
    # what is still allocated at the end is another question, which scripts/python_leaks.py asks
    return status, [e for e in errors if not (e.findtext("kind") or "").startswith("Leak_")]


def is_ours(error):
    stack = error.find("stack")
    objects = [frame.findtext("obj") or "" for frame in stack.iter("frame")] if stack is not None else []
    # below memcpy and the like, and valgrind's own in their place
    own = [o for o in objects if not any(part in pathlib.Path(o).name for part in ("libc.so", "libm.so", "ld-linux", "vgpreload"))]
    return bool(own) and own[0].endswith(OURS)


def told(error):
    text = error.findtext("what") or error.findtext("xwhat/text") or ""
    frames = [f"    {f.findtext('fn') or '?'} ({f.findtext('file') or f.findtext('obj')}:{f.findtext('line') or '?'})" for f in error.iter("frame")]
    return "\n".join([f"{error.findtext('kind')}: {text}", *frames[:20]])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--python", default=sys.executable, help="a Python with pytest and NumPy")
    args, args.tests = ap.parse_known_args()
    if os.sep in args.python:
        # it runs in another folder; a link to an interpreter stays one, since that makes it a virtual environment's
        args.python = os.path.abspath(args.python)
    with tempfile.TemporaryDirectory() as folder:
        status, errors = run(args, pathlib.Path(folder))
    ours = [e for e in errors if is_ours(e)]
    for error in ours:
        print(told(error))
    print(f"{len(ours)} errors of the package, {len(errors) - len(ours)} of the interpreter's own, tests {'passed' if status == 0 else 'FAILED'}")
    sys.exit(1 if ours or status else 0)


if __name__ == "__main__":
    main()
