#!/usr/bin/env python3
"""Compares operators and layers with PyTorch on the samples that PyTorch tests its own with.

    python3 scripts/check_torch_samples.py                    everything, as a table and counts
    python3 scripts/check_torch_samples.py --only softmax     operators and layers whose name has this in it
    python3 scripts/check_torch_samples.py --json FILE        the counts and the first difference of each, for programs
    python3 scripts/check_torch_samples.py --samples 200      how many samples of each operator and dtype at most (40)

Needs PyTorch, whose package has `torch.testing._internal`: `op_db` describes operators, `module_db` layers, each with inputs. An
operator is compared where Remat has one of the same name: `nn.functional.NAME` in `remat.nn.functional`, `linalg.NAME`,
`special.NAME` and plain names in `remat` or as a method of `Tensor`; layers where `remat.nn` has them, with PyTorch's weights.

Samples are of float64, int64 and bool. Values of float64 agree within 1e-9 of their magnitude and 1e-9, gradients (of all results
times numbers of a fixed seed, for every tensor of floats) within 1e-7; integers and bools agree exactly; shapes must be the same. A sample
is `equal`, it `differs` (a value, a shape, a gradient, a number of results), or it `raises` here where PyTorch does not. Samples
with complex or sparse tensors are left out, as is what PyTorch itself refuses. What is said to differ on purpose, with its reason, is
counted apart: that list is `ON_PURPOSE` below, and docs/src/differences.md says it in full.

A call that is refused here says so, and is counted apart.

Ends with 1 if anything differs that is not on purpose, or if an entry of that list has nothing that differs.
"""
import argparse
import collections
import json
import sys
import warnings

import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db

import remat

VALUES = 1e-9
GRADIENTS = 1e-7
DTYPES = (torch.float64, torch.int64, torch.bool)

# drawn by chance, or the content of memory: nothing to compare
BY_CHANCE = set(
    "bernoulli cauchy empty empty_like empty_permuted empty_strided exponential geometric log_normal multinomial new_empty "
    "new_empty_strided normal pca_lowrank rand_like randint randint_like randn randn_like svd_lowrank uniform "
    "nn.functional.alpha_dropout nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d "
    "nn.functional.feature_alpha_dropout nn.functional.rrelu nn.functional.fractional_max_pool2d "
    "nn.functional.fractional_max_pool3d FractionalMaxPool2d FractionalMaxPool3d".split()
)
# what has a name of its own in PyTorch and is another thing under the last part of it
OTHER_THINGS = ("masked.", "sparse.", "torch.", "signal.", "fft.", "_", "jiterator")
# left out of calls: where and how PyTorch stores a tensor
STORAGE = ("device", "layout", "pin_memory", "memory_format", "requires_grad", "out")

# By name of the operator or layer: why some of its samples differ.
VALUES_ALONE = "values alone: the places have a function of their own"
TIES = "among equal elements another one comes first"
INTEGERS = "of integers: floats where PyTorch has integers, or rounded another way"
CONSTANT = "a result that is constant has no gradient, not one of zeros"
ON_PURPOSE = {
    "CTCLoss": "the derivative; PyTorch's takes the logarithms for those of a softmax",
    "KLDivLoss": "of numbers of rank 0 PyTorch's module gives the gradient of another reduction",
    "argsort": TIES, "kthvalue": TIES, "topk": TIES,
    "cholesky_solve": "the factor comes first", "equal": "of each element, as ==", "roll": "along the first axis", "unfold": "of images",
    "split": "a number is how many parts", "std": "the correction is 0 unless given", "var": "the correction is 0 unless given",
    "cummax": VALUES_ALONE, "cummin": VALUES_ALONE, "max": VALUES_ALONE, "min": VALUES_ALONE, "median": VALUES_ALONE,
    "nanmedian": VALUES_ALONE, "mode": VALUES_ALONE, "sort": VALUES_ALONE,
    "div": INTEGERS, "linspace": INTEGERS, "nn.functional.local_response_norm": INTEGERS, "scatter_reduce": INTEGERS,
    "linalg.matrix_power": CONSTANT, "linalg.norm": CONSTANT, "norm": CONSTANT,
    "linalg.solve": "a vector of no matrices has their batch", "squeeze": "no axes are all of them",
    "nn.functional.prelu": "of rank 0 the weight's shape",
    "special.bessel_j0": "exact to the last digit; PyTorch's to the seventh", "special.bessel_j1": "exact to the last digit; PyTorch's to the seventh",
}


class Left(Exception):
    """A sample that is not compared."""


def dtype_of(of):
    name = str(of).split(".")[-1]
    if not hasattr(remat, name):
        raise Left(f"no dtype {name}")
    return getattr(remat, name)


class Converted:
    """PyTorch's arguments as Remat's, with the tensors of both that have gradients."""

    def __init__(self):
        self.theirs, self.ours = [], []

    def of(self, v):
        if isinstance(v, torch.Tensor):
            if v.layout != torch.strided or v.is_complex() or v.is_quantized:
                raise Left("a complex or sparse tensor")
            dtype_of(v.dtype)
            t = remat.tensor(v.detach().resolve_neg().numpy().copy())
            if v.dtype.is_floating_point and v.requires_grad:
                t.requires_grad = True
                self.theirs.append(v)
                self.ours.append(t)
            return t
        if isinstance(v, torch.dtype):
            return dtype_of(v)
        if isinstance(v, complex):
            raise Left("a complex number")
        if isinstance(v, (torch.device, torch.layout, torch.memory_format)):
            raise Left("where a tensor is")
        if isinstance(v, tuple):
            return tuple(self.of(part) for part in v)
        if isinstance(v, list):
            return [self.of(part) for part in v]
        if isinstance(v, dict):
            return {k: self.of(part) for k, part in v.items()}
        return v

    def options(self, options):
        return {k: self.of(v) for k, v in options.items() if k not in STORAGE}


def results(y):
    """The tensors of a result, or the number, in order."""
    if isinstance(y, (tuple, list)):
        return [part for one in y for part in results(one)]
    return [] if y is None else [y]


def as_array(v):
    if isinstance(v, torch.Tensor):
        if v.is_complex() or v.layout != torch.strided:
            raise Left("a complex or sparse result")
        v = v.detach()
        return (v.double() if v.dtype == torch.bfloat16 else v).numpy()
    if isinstance(v, remat.Tensor):
        v = v.detach()
        return (v.astype("float64") if v.dtype == remat.bfloat16 else v).numpy()
    return np.asarray(v)


def difference(ours, theirs, bound):
    """What is wrong with an array, or None."""
    if ours.shape != theirs.shape:
        return f"shape {ours.shape}, not {theirs.shape}"
    if "f" in (ours.dtype.kind, theirs.dtype.kind):
        # of results of f32 no more than its digits
        narrow = [a.dtype.itemsize for a in (ours, theirs) if a.dtype.kind == "f"]
        bound = max(bound, {2: 1e-2, 4: 1e-5}.get(min(narrow), 0))
        same = np.isclose(ours.astype("float64"), theirs.astype("float64"), rtol=bound, atol=bound, equal_nan=True)
    else:
        same = ours == theirs
    if same.all():
        return None
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{ours[at]}, not {theirs[at]}, at {at}" if at else f"{ours}, not {theirs}"


def compared(ours, theirs, converted):
    """What differs between results and their gradients, or None."""
    ours, theirs = results(ours), results(theirs)
    if len(ours) != len(theirs):
        return f"{len(ours)} results, not {len(theirs)}"
    for i, (a, b) in enumerate(zip(ours, theirs)):
        wrong = difference(as_array(a), as_array(b), VALUES)
        if wrong:
            return f"result {i}: {wrong}"
    rng = np.random.default_rng(0)
    losses = [], []
    for a, b in zip(ours, theirs):
        if isinstance(b, torch.Tensor) and b.requires_grad and b.dtype == torch.float64:
            if not (isinstance(a, remat.Tensor) and a.requires_grad):
                return "a result has no gradient"
            by = rng.normal(size=tuple(b.shape))
            losses[0].append((a * remat.asarray(by)).sum())
            losses[1].append((b * torch.tensor(by)).sum())
    if not losses[0] or not converted.ours:
        return None
    want = torch.autograd.grad(sum(losses[1]), converted.theirs, allow_unused=True)
    got = remat.grad(sum(losses[0][1:], losses[0][0]), converted.ours)
    for i, (g, w) in enumerate(zip(got, want)):
        if w is None and g is None:
            continue
        one = g if g is not None else w
        g, w = (np.zeros(tuple(one.shape)) if v is None else as_array(v) for v in (g, w))
        wrong = difference(g, w, GRADIENTS)
        if wrong:
            return f"gradient {i}: {wrong}"
    return None


def ours_of(name):
    """Remat's function of PyTorch's name, or None."""
    if name.startswith(OTHER_THINGS) and not name.startswith("__"):
        return None
    if name.startswith("nn.functional."):
        return getattr(remat.nn.functional, name.split(".")[-1], None)
    last = name.split(".")[-1]
    found = getattr(remat, last, None)
    if callable(found) and not isinstance(found, type):
        return found
    method = getattr(remat.Tensor, last, None)
    return method if callable(method) else None


class Row:
    """The counts of one operator or layer."""

    def __init__(self, name, is_there):
        self.name, self.is_there = name, is_there
        self.counts = collections.Counter()
        self.first = {}

    def add(self, verdict, why, what):
        self.counts[verdict] += 1
        if verdict != "equal":
            self.first.setdefault(verdict, f"{what}: {why}"[:300])


def text_of(v):
    """An argument in short."""
    if isinstance(v, torch.Tensor):
        return f"{str(v.dtype).split('.')[-1]}{list(v.shape)}"
    if isinstance(v, (tuple, list)):
        return "(" + ", ".join(text_of(part) for part in v) + ")"
    return repr(v)


def called(args, options):
    return ", ".join([text_of(a) for a in args] + [f"{k}={text_of(v)}" for k, v in options.items()])


def run(row, theirs, ours, what):
    """One sample: `theirs` and `ours` give results and what was converted."""
    try:
        want = theirs()
    except Exception:
        return
    try:
        got, converted = ours()
        wrong = compared(got, want, converted)
    except Left:
        return
    except Exception as e:
        return row.add("raises", f"{type(e).__name__}: {e}", what)
    row.add("differs" if wrong else "equal", wrong, what)


def operator(op, name, most):
    ours = ours_of(name)
    row = Row(name, ours is not None)
    if ours is None:
        return row
    for dtype in DTYPES:
        if dtype not in op.dtypes:
            continue
        grads = dtype.is_floating_point and op.supports_autograd
        torch.manual_seed(0)
        try:
            samples = list(op.sample_inputs("cpu", dtype, requires_grad=grads))
        except Exception as e:
            print(f"{name}: no samples of {dtype}: {e}", file=sys.stderr)
            continue
        for s in samples[:most]:
            def call():
                c = Converted()
                args = [c.of(s.input), *(c.of(a) for a in s.args)]
                if name == "where":  # described with its condition second
                    args[:2] = args[1], args[0]
                return ours(*args, **c.options(s.kwargs)), c

            run(row, lambda: op.op(s.input, *s.args, **s.kwargs), call, called([s.input, *s.args], s.kwargs))
    return row


def layer(info, most):
    cls = info.module_cls
    name = cls.__name__
    own = getattr(remat.nn, name, None)
    row = Row(name, own is not None)
    if own is None:
        return row
    for training in (True, False):
        torch.manual_seed(0)
        inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=True, training=training)
        for s in list(inputs)[:most]:
            made, given = s.constructor_input, s.forward_input
            if given is None:
                continue
            options = {k: v for k, v in made.kwargs.items() if k not in ("device", "dtype")}
            torch.manual_seed(1)
            try:
                theirs = cls(*made.args, **options).double().train(training)
            except Exception:
                continue

            def call():
                c = Converted()
                net = own(*(c.of(a) for a in made.args), **c.options(options))
                state = {k: remat.asarray(v.numpy().copy()) for k, v in before.items()}
                if state:
                    net = net.to("float64")
                    net.load_state_dict(state)
                net.train(training)
                theirs_of = dict(theirs.named_parameters())
                for k, p in net.named_parameters():
                    if k in theirs_of:
                        c.theirs.append(theirs_of[k])
                        c.ours.append(p)
                args = [c.of(a) for a in given.args]
                return net(*args, **c.options(given.kwargs)), c

            before = {k: v.detach().clone() for k, v in theirs.state_dict().items()}
            mode = "train" if training else "eval"
            what = f"{name}({called(made.args, options)}) {mode} of {called(given.args, given.kwargs)}"
            run(row, lambda: theirs(*given.args, **given.kwargs), call, what)
    return row


def rows(only, most):
    seen = set()
    for op in op_db:
        name = op.name
        if name in BY_CHANCE or only and only not in name or (name, op.variant_test_name) in seen:
            continue
        seen.add((name, op.variant_test_name))
        yield "operator", operator(op, name, most)
    for info in module_db:
        if info.module_cls.__name__ not in BY_CHANCE and (not only or only in info.module_cls.__name__):
            yield "layer", layer(info, most)


def joined(found):
    """Variants of one operator in one row."""
    by_name = {}
    for kind, row in found:
        have = by_name.setdefault((kind, row.name), row)
        if have is not row:
            have.counts += row.counts
            have.first = {**row.first, **have.first}
    return by_name


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--only", help="names that have this in them")
    args.add_argument("--json", help="a file for the figures")
    args.add_argument("--samples", type=int, default=40, help="of an operator and dtype at most")
    args.add_argument("--not-there", action="store_true", help="list what has no operator or layer here")
    given = args.parse_args()
    warnings.simplefilter("ignore")
    found = joined(rows(given.only, given.samples))
    total, bad = collections.Counter(), []
    print(f"{'':10}{'name':45}{'equal':>7}{'differs':>9}{'raises':>8}{'on purpose':>12}")
    for (kind, name), row in sorted(found.items()):
        total[f"{kind}s"] += 1
        if not row.is_there:
            total[f"{kind}s not there"] += 1
            continue
        c = row.counts
        meant = c["differs"] if name in ON_PURPOSE else 0
        total["tried"] += sum(c.values())
        total["equal"] += c["equal"]
        total["on purpose"] += meant
        total["differs"] += c["differs"] - meant
        total["raises"] += c["raises"]
        if c["differs"] + c["raises"]:
            print(f"{kind:10}{name:45}{c['equal']:7}{c['differs'] - meant:9}{c['raises']:8}{meant:12}")
            for verdict, why in row.first.items():
                if verdict == "raises" or not meant:
                    print(f"{'':12}{verdict}: {why}")
        if c["differs"] > meant:
            bad.append(name)
    print(", ".join(f"{v} {k}" for k, v in total.items()))
    if given.not_there:
        print("not there:", " ".join(name for (_, name), row in sorted(found.items()) if not row.is_there))
    idle = [n for n in ON_PURPOSE if not given.only and not any(
        name == n and row.counts["differs"] for (_, name), row in found.items())]
    if idle:
        print("nothing differs of:", " ".join(idle))
    if given.json:
        table = [
            {"kind": kind, "name": name, "is_there": row.is_there, **row.counts, "first": row.first, "on_purpose": ON_PURPOSE.get(name)}
            for (kind, name), row in sorted(found.items())
        ]
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"total": total, "rows": table, "torch": torch.__version__}, file, indent=1)
    return 1 if bad or idle else 0


if __name__ == "__main__":
    sys.exit(main())
