#!/usr/bin/env python3
"""Make the fixtures that the operators are compared with: inputs, outputs and gradients, as PyTorch and SciPy have them.

    python3 -m venv VENV && VENV/bin/pip install torch==2.15.0 scipy
    VENV/bin/python scripts/make_fixtures.py                 # all families
    VENV/bin/python scripts/make_fixtures.py order vision    # these only

Only this script needs PyTorch. It writes crates/remat/fixtures/FAMILY.jsonl.gz, a line for each case, and index.json, which
counts the cases of each operation; `cargo test -p remat --test fixtures` reads them. The seed is fixed, so a family that is
made again differs only where its cases do.

How to add cases: `scripts/fixtures/FAMILY.py` has a function `cases(g)` that calls `g.add`:

    def cases(g):
        for shape, axis in [([3, 4], 0), ([2, 3, 4], -1), ([5], 0)]:
            for dtype in ("f32", "f64"):
                x = g.normal(shape, dtype)
                g.add("cumsum", lambda x: torch.cumsum(x, axis), [x], axis=axis)

The name is that of the method, function, layer, loss or optimiser of Remat. Keywords are its arguments, which the runner reads:
numbers, bools, strings, None, lists. The function is called with the inputs in double precision (each kind of number in its
widest form would hide ties, so integers stay what they are), and what it gives is rounded to the inputs' dtype; `exact=True`
calls it with the inputs as they are, for operations whose result depends on the dtype. Gradients of all floating inputs are
taken for random cotangents unless `grad=False`; `grad=[0, 2]` takes those of these inputs only. `tol` replaces the tolerance
and needs a `why`.

The runner has the other half: in `crates/remat/tests/fixtures/rows/FAMILY.rs` a row for each name says what to call.
"""

import argparse
import base64
import gzip
import importlib
import json
import math
import pathlib
import sys
import zlib

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "crates" / "remat" / "fixtures"
FAMILIES = ROOT / "scripts" / "fixtures"

DTYPES = {
    "bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
}  # fmt: skip
NAMES = {v: k for k, v in DTYPES.items()}


def packed(t):
    """A tensor as [dtype, shape, bytes in base 64]."""
    # a copy, since one element may have any stride and count as contiguous
    t = torch.empty(t.shape, dtype=t.dtype).copy_(t.detach())
    data = t.reshape(-1).view(torch.uint8) if t.numel() else torch.zeros(0, dtype=torch.uint8)
    return [NAMES[t.dtype], list(t.shape), base64.b64encode(data.numpy().tobytes()).decode()]


def plain(v):
    """An argument as JSON has it: infinities and NaN as words."""
    if isinstance(v, float) and not math.isfinite(v):
        return str(v)
    return [plain(e) for e in v] if isinstance(v, (list, tuple)) else v


class Cases:
    """The cases of a family, and random inputs for them."""

    def __init__(self, family):
        self.rng = np.random.default_rng(zlib.crc32(family.encode()))
        self.lines = []
        self.counts = {}

    def _tensor(self, values, dtype):
        return torch.from_numpy(np.asarray(values)).to(DTYPES[dtype])

    def normal(self, shape, dtype="f32", scale=1.0):
        """Normal numbers, whose values in the narrow dtypes are what the operation gets."""
        return self._tensor(self.rng.normal(0.0, scale, shape), dtype)

    def uniform(self, shape, low=0.0, high=1.0, dtype="f32"):
        return self._tensor(self.rng.uniform(low, high, shape), dtype)

    def ints(self, shape, low, high, dtype="i64"):
        """Whole numbers from low to high - 1, of any dtype."""
        return self._tensor(self.rng.integers(low, high, shape), dtype)

    def bools(self, shape, p=0.5):
        return self._tensor(self.rng.uniform(0, 1, shape) < p, "bool")

    def permutation(self, n, dtype="i64"):
        return self._tensor(self.rng.permutation(n), dtype)

    def values(self, values, dtype="f32"):
        """These values: for edge cases."""
        return torch.tensor(values, dtype=DTYPES[dtype])

    def add(self, op, fn, x, grad=True, exact=False, tol=None, why=None, out=None, **args):
        """A case: `fn(*x)` is what `op` gives for `x`. `out` names dtypes of outputs where they are not the inputs'."""
        assert (tol is None) == (why is None), f"{op}: a tolerance of its own needs a reason, and a reason a tolerance"
        floats = [i for i, t in enumerate(x) if t is not None and t.dtype.is_floating_point]
        wanted = [] if grad is False or not floats else floats if grad is True else list(grad)
        narrow = next((x[i].dtype for i in floats), torch.float32)

        def wide(i, t):
            if t is None:
                return None
            t = t if exact or not t.dtype.is_floating_point else t.double()
            return t.clone().requires_grad_(i in wanted)

        inputs = [wide(i, t) for i, t in enumerate(x)]
        y = fn(*inputs)
        y = list(y) if isinstance(y, (tuple, list)) else [y]
        dy, dx = [None] * len(y), [None] * len(x)
        if wanted:
            for i, t in enumerate(y):
                if t.dtype.is_floating_point and t.requires_grad:
                    dy[i] = self.normal(list(t.shape), NAMES[narrow])
            live = [(t, d) for t, d in zip(y, dy) if d is not None]
            total = sum((t * d.to(t.dtype)).sum() for t, d in live)
            found = torch.autograd.grad(total, [inputs[i] for i in wanted], allow_unused=True)
            for i, d in zip(wanted, found):
                dx[i] = torch.zeros_like(inputs[i]) if d is None else d

        def rounded(t, dtype):
            return None if t is None else packed(t.to(dtype) if t.dtype.is_floating_point else t)

        outs = [DTYPES[d] for d in out] if out else [narrow] * len(y)
        line = {"op": op, "args": {k: plain(v) for k, v in args.items()}, "x": [None if t is None else packed(t) for t in x]}
        line["y"] = [rounded(t, d) for t, d in zip(y, outs)]
        if wanted:
            line["dy"] = [rounded(t, narrow) for t in dy]
            line["dx"] = [rounded(t, x[i].dtype) if t is not None else None for i, t in enumerate(dx)]
        if tol is not None:
            line["tol"], line["why"] = tol, why
        self.lines.append(json.dumps(line, separators=(",", ":")))
        count = self.counts.setdefault(op, {"cases": 0, "gradients": 0})
        count["cases"] += 1
        count["gradients"] += bool(wanted)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = sorted(p.stem for p in FAMILIES.glob("*.py") if not p.stem.startswith("_"))
    parser.add_argument("family", nargs="*", help=f"one of {', '.join(every)}; all if none is named")
    chosen = parser.parse_args().family or every
    for unknown in set(chosen) - set(every):
        parser.error(f"no family is called {unknown}; there are {', '.join(every)}")
    sys.path.insert(0, str(FAMILIES))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    index = OUT / "index.json"
    counts = json.loads(index.read_text()) if index.exists() else {}
    counts = {family: c for family, c in counts.items() if family in every}
    for family in chosen:
        g = Cases(family)
        importlib.import_module(family).cases(g)
        text = "\n".join(g.lines) + "\n"
        (OUT / f"{family}.jsonl.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        counts[family] = dict(sorted(g.counts.items()))
        size = (OUT / f"{family}.jsonl.gz").stat().st_size
        print(f"{family}: {len(g.lines)} cases of {len(g.counts)} operations, {size / 1024:.0f} KiB")
    rows = {f: ",\n".join(f'  "{op}": {json.dumps(c)}' for op, c in ops.items()) for f, ops in sorted(counts.items())}
    index.write_text("{\n" + ",\n".join(f' "{f}": {{\n{ops}\n }}' for f, ops in rows.items()) + "\n}\n")
    total = sum(c["cases"] for family in counts.values() for c in family.values())
    print(f"{total} cases in all")


if __name__ == "__main__":
    main()
