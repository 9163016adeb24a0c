#!/usr/bin/env python3
"""Make Python's operators, and the types of the compiled part, from the catalogue of tensor methods.

    python3 scripts/make_python_operators.py            writes the three files
    python3 scripts/make_python_operators.py --check    says what would change, and fails if anything does

`crates/remat/src/catalogue.json` lists every public method of `Tensor` with its signature and text. A method whose arguments
are tensors, numbers, extents and names becomes a row of `crates/python/src/ops/table.rs`, which calls it, and a function of
`python/remat/_functions.py`, which has Python's names and defaults. Methods that take a structure of options are bound by
hand in the other files of `crates/python/src/ops`; those that are not bound at all are in `LEFT_OUT`, with the reason. A method that
is in none of these is an error, so that no new one is forgotten. `python/remat/_remat.pyi` has the methods of `Tensor` for type
checkers: those functions, and those of `python/remat/_tensor_methods.py` and its sisters. The example of each function is the
`python` block of the method's documentation, or else that of `scripts/python_operator_examples.txt`; pytest runs it with the
docstring. A function without one is an error.
"""
import ast
import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
CATALOGUE = ROOT / "crates/remat/src/catalogue.json"
TABLE = ROOT / "crates/python/src/ops/table.rs"
FUNCTIONS = ROOT / "python/remat/_functions.py"
BY_HAND = ROOT / "python/remat/_tensor_methods.py"
SISTERS = [ROOT / "python/remat/_layers.py", ROOT / "python/remat/_vision.py"]
EXAMPLES = ROOT / "scripts/python_operator_examples.txt"
TEMPLATE = ROOT / "python/stubs.pyi.in"
STUBS = ROOT / "python/remat/_remat.pyi"

# Rust's name: Python's names, NumPy's first. What is not here has one name in both.
NAMES = {
    "neg": "negative neg", "recip": "reciprocal recip", "is_nan": "isnan", "is_inf": "isinf", "is_finite": "isfinite",
    "rem": "remainder mod", "div": "divide div", "floor_div": "floor_divide", "pow": "pow power", "bit_and": "bitwise_and",
    "bit_or": "bitwise_or", "bit_xor": "bitwise_xor", "bit_not": "bitwise_invert bitwise_not", "shl": "bitwise_left_shift",
    "shr": "bitwise_right_shift", "eq": "equal eq", "ne": "not_equal ne", "lt": "less lt", "le": "less_equal le",
    "gt": "greater gt", "ge": "greater_equal ge", "add": "add", "sub": "subtract sub", "mul": "multiply mul",
    "log_add_exp": "logaddexp", "asin": "asin arcsin", "acos": "acos arccos", "atan": "atan arctan",
    "asinh": "asinh arcsinh", "acosh": "acosh arccosh", "atanh": "atanh arctanh", "atan2": "atan2 arctan2",
    "where_cond": "where", "clamp": "clip clamp", "concat": "concat concatenate cat", "permute": "permute_dims",
    "unsqueeze": "expand_dims unsqueeze", "log_sum_exp": "logsumexp", "repeat_interleave": "repeat repeat_interleave",
    "split": "split_with_sizes", "hsigmoid": "hardsigmoid", "hswish": "hardswish", "gelu_tanh": "gelu_tanh",
    "norm_of": "vector_norm", "std": "std", "round_to": "round_to", "movedim": "moveaxis movedim", "inverse": "inv inverse",
    "as_size": "as_size", "take_flat": "take_flat", "sum_sqr": "sum_of_squares", "sort": "sort_with_indices",
    "cummax": "cummax_with_indices", "cummin": "cummin_with_indices", "embedding": "embedding",
    "cumulate": "cumulate", "absolute": "abs", "abs": "abs absolute", "minimum": "minimum", "unique": "unique_values",
    "unique_all": "unique_all", "round": "round", "matrix_norm": "matrix_norm", "frames": "frames",
}

# Defaults by name of the argument, and by function and argument.
DEFAULTS = {
    "keepdims": "False", "equal_nan": "False", "rtol": "1e-05", "atol": "1e-08", "descending": "False", "largest": "True",
    "sorted": "True", "right": "False", "invert": "False", "density": "False", "correction": "0", "reduction": '"mean"',
    "between": '"linear"', "smoothing": "0.0", "ignore_index": "None", "padding_idx": "None", "weights": "None",
    "accumulate": "False", "include_self": "True", "exclusive": "False", "reverse": "False", "norm": '"backward"',
    "weight": None, "hard": "False", "count_include_pad": "True", "align_corners": "False", "periodic": "True",
}
OWN_DEFAULTS = {
    ("softmax", "axis"): "-1", ("log_softmax", "axis"): "-1", ("softmin", "axis"): "-1", ("elu", "alpha"): "1.0",
    ("celu", "alpha"): "1.0", ("leaky_relu", "slope"): "0.01", ("hardtanh", "lo"): "-1.0", ("hardtanh", "hi"): "1.0",
    ("hardshrink", "lambda_"): "0.5", ("softshrink", "lambda_"): "0.5", ("softplus_with", "beta"): "1.0",
    ("softplus_with", "threshold"): "20.0", ("glu", "axis"): "-1", ("swiglu", "axis"): "-1", ("geglu", "axis"): "-1",
    ("reglu", "axis"): "-1", ("sort_with_indices", "axis"): "-1", ("argsort", "axis"): "-1", ("topk", "axis"): "-1",
    ("kthvalue", "axis"): "-1", ("stack", "axis"): "0", ("concat", "axis"): "0", ("chunk", "axis"): "0",
    ("split_with_sizes", "axis"): "0", ("tril", "diagonal"): "0", ("triu", "diagonal"): "0", ("diagonal", "offset"): "0",
    ("diagonal", "axis1"): "0", ("diagonal", "axis2"): "1", ("diag_embed", "offset"): "0", ("diag", "offset"): "0",
    ("diff", "n"): "1", ("diff", "axis"): "-1", ("trapezoid", "dx"): "1.0", ("trapezoid", "axis"): "-1",
    ("nan_to_num", "nan"): "0.0", ("nan_to_num", "infinite"): "None", ("nan_to_num", "negative"): "None",
    ("logit", "eps"): "0.0", ("flatten", "start"): "0", ("flatten", "end"): "-1", ("layer_norm", "axes"): "1",
    ("layer_norm", "eps"): "1e-05", ("rms_norm", "axes"): "1", ("rms_norm", "eps"): "1e-06",
    ("group_norm", "weight"): "None", ("group_norm", "bias"): "None", ("group_norm", "eps"): "1e-05",
    ("instance_norm", "weight"): "None", ("instance_norm", "bias"): "None", ("instance_norm", "eps"): "1e-05",
    ("general_norm", "weight"): "None", ("general_norm", "bias"): "None", ("general_norm", "eps"): "1e-05",
    ("batch_norm", "eps"): "1e-05", ("batch_norm_with", "eps"): "1e-05", ("cdist", "p"): "2.0",
    ("vector_norm", "p"): "2.0", ("normalize", "p"): "2.0", ("normalize", "axis"): "1", ("normalize", "eps"): "1e-12",
    ("cosine_similarity", "axis"): "1", ("cosine_similarity", "eps"): "1e-08", ("pairwise_distance", "p"): "2.0",
    ("pairwise_distance", "eps"): "1e-06", ("squeeze", "axes"): "()", ("cross", "axis"): "-1",
    ("bincount", "minlength"): "0", ("histogram", "bins"): "10", ("histogram", "range"): "None",
    ("local_response_norm", "alpha"): "1e-04", ("local_response_norm", "beta"): "0.75", ("local_response_norm", "k"): "1.0",
    ("cummax_with_indices", "axis"): "0", ("cummin_with_indices", "axis"): "0", ("nms", "max_output"): "None", ("repeat", "axis"): "0", ("unbind", "axis"): "0", ("roll", "axis"): "0",
    ("multinomial", "replacement"): "False", ("shuffle", "axis"): "0", ("gumbel_softmax", "tau"): "1.0",
    ("gumbel_softmax", "axis"): "-1", ("fftshift", "axes"): "()", ("ifftshift", "axes"): "()",
    ("fftfreq", "d"): "1.0", ("rfftfreq", "d"): "1.0", ("logspace", "base"): "10.0", ("gather_nd", "batch"): "0",
    ("grid_sample", "between"): '"linear"', ("grid_sample", "beyond"): '"zeros"',
    ("embedding", "index"): None, ("bce_with_logits_weighted", "weight"): "None",
    ("pad", "value"): "0", ("rotate", "degrees"): None, ("rot90", "quarters"): "1", ("rot90", "axes"): "(0, 1)",
    ("logcumsumexp", "axis"): "0", ("deform_conv2d", "mask"): "None", ("roi_pool", "scale"): "1.0",
    ("ps_roi_pool", "scale"): "1.0", ("topk_accuracy", "k"): "1", ("rrelu", "lower"): "0.125", ("rrelu", "upper"): "0.3333333333333333",
}

# Methods that Python has in another form, or not yet, each with the reason.
ELSEWHERE = {
    **dict.fromkeys("zeros ones zeros_like ones_like full_like eye".split(), "remat._creation"),
    **dict.fromkeys("backward backward_with".split(), "a method of Tensor, in crates/python/src/tensor.rs"),
    **dict.fromkeys("i at at.set at.add at.mul at.max at.min".split(), "`x[index]` and `x[index] = value`"),
    **dict.fromkeys("narrow slice slice_step select".split(), "`x[index]`"),
    "to_device": "a method of Tensor, in crates/python/src/tensor.rs",
    "repeat": "`tile`, as NumPy names it",
    "flatten_from": "`flatten(start)`",
}
# Methods with a row, whose function is in remat._tensor_methods or remat._creation: it takes several forms of arguments.
ROW_ALONE = set("transpose reshape cast clamp full arange linspace norm tensordot".split())
# Functions whose plain name is a more convenient one of the package: `from ._functions import *` does not bring them.
OVERRIDDEN = {"permute_dims", "randint"}
LEFT_OUT = {
    **dict.fromkeys(
        "all_reduce all_gather reduce_scatter broadcast_from reduce_to gather_to scatter_from all_to_all send_to "
        "receive_from receive".split(),
        "ranks are not bound yet",
    ),
    **dict.fromkeys("rnn lstm gru rnn_cell lstm_cell gru_cell".split(), "takes weights in a structure; not bound yet"),
}

SIMPLE = {
    "f64": "get::<f64>", "isize": "get::<isize>", "usize": "get::<usize>", "i64": "get::<i64>", "u64": "get::<u64>",
    "i32": "get::<i32>", "u32": "get::<u32>", "bool": "get::<bool>", "DType": "dtype", "remat_types::DType": "dtype",
    "&Tensor": "tensor", "Option<&Tensor>": "opt_tensor", "&[&Tensor]": "tensors", "&[isize]": "axes", "&[usize]": "sizes",
    "Option<f64>": "get::<Option<f64>>", "Option<usize>": "get::<Option<usize>>", "Option<isize>": "get::<Option<isize>>",
    "Option<i64>": "get::<Option<i64>>", "impl Into<Scalar>": "scalar", "impl Into<Shape>": "shape", "&Device": "device",
    "&remat_runtime::Device": "device", "&str": "get::<String>", "[usize; 2]": "get::<[usize; 2]>",
    "[isize; 2]": "get::<[isize; 2]>", "&[(usize, usize)]": "get::<Vec<(usize, usize)>>",
    "&[(isize, isize)]": "get::<Vec<(isize, isize)>>", "&[f64]": "get::<Vec<f64>>",
    "Option<(f64, f64)>": "get::<Option<(f64, f64)>>", "impl IntoOperand": "operand",
}
CHOICES = {
    "Reduction", "Interpolation", "PutFn", "ScatterReduce", "CumulateFn", "FftNorm", "BoxForm", "Colour", "Between",
    "Beyond", "MatrixNorm", "PadMode",
}
REFERENCES = {"&Tensor", "&[isize]", "&[usize]", "&Device", "&remat_runtime::Device", "&str", "&[(usize, usize)]",
              "&[(isize, isize)]", "&[f64]"}
RESULTS = {"Tensor", "(Tensor, Tensor)", "(Tensor, Tensor, Tensor)", "(Tensor, Tensor, Tensor, Tensor)", "Vec<Tensor>",
           "[Tensor; 2]", "usize"}
HINTS = {
    "&Tensor": "Tensor", "Option<&Tensor>": "Optional[Tensor]", "&[&Tensor]": "Sequence[Tensor]", "f64": "float",
    "isize": "int", "usize": "int", "i64": "int", "u64": "int", "i32": "int", "u32": "int", "bool": "bool",
    "DType": "DTypeLike", "remat_types::DType": "DTypeLike", "&[isize]": "AxisLike", "&[usize]": "ShapeLike",
    "impl Into<Scalar>": "Number", "impl Into<Shape>": "ShapeLike", "&str": "str", "impl IntoOperand": "Operand",
    "&[f64]": "Sequence[float]", "&Device": "Optional[Device]", "&remat_runtime::Device": "Optional[Device]",
}
# PyTorch's names of arguments, which are taken beside NumPy's
ALIASES = {"axis": "dim", "axes": "dim", "keepdims": "keepdim"}
PYTHON_WORDS = {"lambda": "lambda_", "from": "from_", "in": "in_", "is": "is_", "not": "not_", "or": "or_"}
# the first arguments of what Rust has as plain functions
HAND = [ROOT / "crates/python/src/ops" / name for name in ("options.rs", "spectral.rs", "vision.rs")]


def split_top(text):
    """The parts between commas that are in no bracket."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += c in "([<{"
        depth -= c in ")]>}" and text[i - 1 : i + 1] != "->"
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return parts + [last] if last else parts


class Method:
    """A method of the catalogue, as far as its arguments can be bound."""

    def __init__(self, entry):
        self.entry, self.rust, self.text = entry, entry["name"], entry["text"]
        signature = entry["signature"]
        m = re.match(r"(\w+)(<[^(]*>)?\((.*)\) -> (.*)$", signature)
        self.is_bound = bool(m) and not m.group(2)
        if not self.is_bound:
            return
        params = split_top(m.group(3))
        self.has_self = bool(params) and params[0] in ("&self", "self")
        self.params = [tuple(s.strip() for s in p.split(":", 1)) for p in params if p not in ("&self", "self")]
        result = re.match(r"Result<(.*)>$", m.group(4))
        self.result = result.group(1) if result else None
        known = all(t in SIMPLE or t in CHOICES for _, t in self.params)
        self.is_bound = known and self.result in RESULTS

    def row(self):
        """The line of the table."""
        lets, call, at = [], [], 0
        if self.has_self:
            lets.append("let x = a.tensor(0)?;")
            at = 1
        for name, ty in self.params:
            var = f"p_{name}"
            if ty == "impl IntoOperand":
                lets.append(f"let {var} = a.operand({at}, 0)?;")
            elif ty in CHOICES:
                lets.append(f"let {var} = a.choice::<{ty}>({at})?;")
            else:
                lets.append(f"let {var} = a.{SIMPLE[ty]}({at})?;")
            at += 1
            if ty == "Option<&Tensor>":
                call.append(f"{var}.as_ref()")
            elif ty == "&[&Tensor]":
                call.append(f"&{var}.iter().collect::<Vec<_>>()")
            else:
                call.append(("&" if ty in REFERENCES else "") + var)
        target = f"x.{self.rust}" if self.has_self else f"Tensor::{self.rust}"
        body = " ".join(lets + [f"a.run(move || {target}({', '.join(call)}))"])
        return f'    ("{self.rust}", |a| {{ {body} }}),'


def python_names(rust):
    return NAMES.get(rust, rust).split()


def plain(text):
    """The catalogue's text without Rust's names of types and methods."""
    text = re.sub(r"`Tensor::(\w+)`", r"`\1`", text)
    text = re.sub(r"\bself\b", "x", text)
    kinds = "Shape DType Axis Value Index Arity Device Budget Poisoned NotDifferentiable NoValue".split()
    head, *errors = text.split("Errors:", 1)
    if errors:
        tail = re.sub(r"\b(" + "|".join(kinds) + r")\b", r"\1Error", errors[0])
        text = head + "Errors:" + tail
    return text


def examples(entries):
    """Lines of Python with what they print, by function: those of the catalogue, and those of the file, where they are indented
    behind a line with the name."""
    found, name = {python_names(e["name"])[0]: e["python"] for e in entries if "python" in e}, ""
    beside = set(found)
    for line in EXAMPLES.read_text().splitlines():
        if line.startswith("    "):
            found[name].append(line[4:])
        elif line and not line.startswith("#"):
            name = line
            if name in beside:
                sys.exit(f"{EXAMPLES.relative_to(ROOT)} has an example of {name}, which the method's documentation has")
            found[name] = []
    return found


def docstring(text, names, shown, indent="    "):
    also = f" Also called {', '.join(f'`{n}`' for n in names[1:])}." if len(names) > 1 else ""
    lines = textwrap.wrap(plain(text) + also, 116 - len(indent))
    if names[0] not in shown:
        sys.exit(f"{names[0]} has no example: its method's documentation needs a block ```python, with lines `>>> ..` and what they print")
    lines += ["", ">>> import remat", *shown[names[0]]]
    quoted = '"""' + ("\n" + indent).join(lines).replace("\\", "\\\\")
    return f'{indent}{quoted}\n{indent}"""'.replace(f"\n{indent}\n", "\n\n")


def default_of(function, name):
    if (function, name) in OWN_DEFAULTS:
        return OWN_DEFAULTS[function, name]
    return DEFAULTS.get(name)


def arguments(function, params, has_self):
    """Python's parameters as (name, hint, default), in order: those of the device last, by keyword."""
    found = [("x", "Tensor", None)] if has_self else []
    last = []
    for name, ty in params:
        name = PYTHON_WORDS.get(name, name)
        hint = HINTS.get(ty, '"str"' if ty in CHOICES else "Any")
        if "Device" in ty:
            last.append((name, hint, "None"))
        else:
            default = default_of(function, name)
            # what has another name as well may be given by that one alone
            found.append((name, hint, "_REQUIRED" if default is None and name in ALIASES else default))
    # a default may not stand before an argument without one
    seen = False
    for i, (name, hint, default) in enumerate(found):
        if default is not None:
            seen = True
        elif seen:
            found[i] = (name, hint, "_REQUIRED")
    return found, last


def signature(found, last, aliases):
    text = [n + f": {h}" + (f" = {d}" if d is not None else "") for n, h, d in found]
    if last or aliases:
        text.append("*")
        text += [f"{n}: {h} = {d}" for n, h, d in last]
        text += [f"{n}: Any = None" for n in aliases]
    return ", ".join(text)


def aliases_of(names):
    return [(ALIASES[n], n) for n in names if n in ALIASES]


def function(method, shown):
    """The Python function of a method of one form."""
    names = python_names(method.rust)
    name = names[0]
    found, last = arguments(name, method.params, method.has_self)
    params = [n for n, _, _ in found]
    both = aliases_of(params)
    lines = [f"def {name}({signature(found, last, [a for a, _ in both])}) -> {returns(method.result)}:"]
    lines.append(docstring(method.text, names, shown))
    for alias, own in both:
        lines.append(f"    {own} = {own} if {alias} is None else {alias}")
    for n, _, d in found:
        if d == "_REQUIRED":
            lines.append(f'    _required({n}, "{name}", "{n}")')
    for n, _, _ in last:
        lines.append(f"    {n} = _device({n})")
    order = ["x"] if method.has_self else []
    order += [PYTHON_WORDS.get(n, n) for n, _ in method.params]
    lines.append(f'    return _t["{method.rust}"]({", ".join(order)})')
    return "\n".join(lines)


def returns(result):
    return {"Tensor": "Tensor", "usize": "int", "Vec<Tensor>": "List[Tensor]", "[Tensor; 2]": "Tuple[Tensor, Tensor]"}.get(
        result, result.replace("(", "Tuple[").replace(")", "]")
    )


def reduction(whole, over, shown):
    """The Python function of a method that takes all elements and its sister that takes axes."""
    names = python_names(whole.rust)
    name = names[0]
    extra = [(n, t) for n, t in whole.params]
    found, _ = arguments(name, extra, True)
    is_one = any(n == "axis" for n, _ in over.params)
    hint = "Optional[int]" if is_one else "Optional[AxisLike]"
    first = [found[0]] + [f for f in found[1:] if f[2] is None]
    rest = [f for f in found[1:] if f[2] is not None]
    found = first + [("axis", hint, "None"), ("keepdims", "bool", "False")] + rest
    pair = over.result == "(Tensor, Tensor)"
    lines = [f"def {name}({signature(found, [], ['dim', 'keepdim'])}) -> Tensor:"]
    lines.append(docstring(over.text + " Over all elements without an axis.", names, shown))
    lines.append("    axis = axis if dim is None else dim")
    lines.append("    keepdims = keepdims if keepdim is None else keepdim")
    lines.append("    if axis is None:")
    whole_args = ["x"] + [n for n, _ in whole.params]
    lines.append(f'        y = _t["{whole.rust}"]({", ".join(whole_args)})')
    lines.append("        return _kept(y, x) if keepdims else y")
    over_args = ["x"] + ["axis" if n in ("axes", "axis") else n for n, _ in over.params]
    call = f'_t["{over.rust}"]({", ".join(over_args)})'
    lines.append(f"    return {call}[0]" if pair else f"    return {call}")
    return "\n".join(lines)


HEADER = '''"""Operators as functions. Made by scripts/make_python_operators.py from the catalogue; do not edit.

The first argument of a function is the tensor that has it as a method: `remat.exp(x)` is `x.exp()`. A number beside a tensor
takes the tensor's dtype. `dim` and `keepdim` are other names of `axis` and `keepdims`.
"""
from typing import Any, List, Optional, Sequence, Tuple

from ._remat import Tensor
from ._remat import _operators as _t
from ._support import AxisLike, Device, DTypeLike, Number, Operand, ShapeLike
from ._support import default_device as _device, kept as _kept, required as _required, REQUIRED as _REQUIRED
'''

RUST_HEADER = '''// Made by scripts/make_python_operators.py from the catalogue; do not edit.
//! Every tensor method whose arguments are tensors, numbers, extents and names.

use remat::tensor::{Between, Beyond, BoxForm, Colour, MatrixNorm, PadMode};
use remat::{Reduction, Tensor};

use super::Row;
use super::choices::{CumulateFn, Interpolation, PutFn, ScatterReduce};

// a row a line
#[rustfmt::skip]
pub(super) const METHODS: &[Row] = &[
'''


def made():
    entries = [e for e in json.loads(CATALOGUE.read_text()) if e["kind"] == "method"]
    methods = {}
    for e in entries:
        methods.setdefault(e["name"], Method(e))
    by_hand = set(re.findall(r'^\s*\("(\w+)", ', "".join(p.read_text() for p in HAND), re.M))
    # a method over any number of axes has a row for each
    by_hand |= {re.sub(r"[123]d$", "", name) for name in by_hand}
    rows, functions, names, missing = [], [], {}, []
    done, shown = set(), examples(entries)
    for rust, m in methods.items():
        if rust in ELSEWHERE or rust in LEFT_OUT or rust in by_hand or rust.endswith("_over") and rust[:-5] in methods:
            continue
        if not m.is_bound:
            missing.append(f"{rust}: {m.entry['signature']}")
            continue
        over = methods.get(rust + "_over")
        rows.append(m.row())
        if over is not None:
            rows.append(over.row())
        if rust in ROW_ALONE:
            continue
        if over is not None:
            functions.append(reduction(m, over, shown))
        else:
            functions.append(function(m, shown))
        for n in python_names(rust):
            if n in done:
                sys.exit(f"two functions are called {n}")
            done.add(n)
        names[python_names(rust)[0]] = python_names(rust)[1:]
    spare = sorted(set(shown) - set(names))
    if spare:
        sys.exit(f"{EXAMPLES.relative_to(ROOT)} or a method has examples of what is no function: {', '.join(spare)}")
    aliases = [f"{alias} = {name}" for name, more in names.items() for alias in more]
    exported = sorted(done - OVERRIDDEN)
    tail = "\n__all__ = [\n" + "\n".join(f'    "{n}",' for n in exported) + "\n]\n"
    methods_of = sorted(n for rust, m in methods.items() for n in python_names(rust) if n in done and m.has_self)
    tail += "\n# those whose first argument is the tensor\nMETHODS = [\n" + "\n".join(f'    "{n}",' for n in methods_of) + "\n]\n"
    python = HEADER + "\n\n" + "\n\n\n".join(functions) + "\n\n\n" + "\n".join(aliases) + "\n" + tail
    rust = RUST_HEADER + "\n".join(rows) + "\n];\n"
    return rust, python, missing


BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
COMPARED = "lt le gt ge".split()


def stub_of(f, name):
    """The line of a function as a method."""
    args = ast.unparse(f.args)
    first = f.args.args[0].arg
    # a method's own name of what it is called on, as it is without the stub
    args = re.sub(rf"^{first}(: Tensor)?", first, args).replace("_REQUIRED", "...")
    result = ast.unparse(f.returns) if f.returns else "Any"
    # methods are called as the types are
    args, result = (re.sub(r"(?<=[:\\[ ])(int|float|bool)\b(?!\()", r"_\1", f": {t}")[2:] for t in (args, result))
    return f"    def {name}({args}) -> {result}: ..."


def stubs(python):
    """The types of the compiled part."""
    made = ast.parse(python)
    functions = {f.name: f for f in made.body if isinstance(f, ast.FunctionDef)}
    alias = {a.targets[0].id: a.value.id for a in made.body if isinstance(a, ast.Assign) and isinstance(a.value, ast.Name)}
    listed = next(a.value for a in made.body if isinstance(a, ast.Assign) and a.targets[0].id == "METHODS")
    methods = {n.value: functions[alias.get(n.value, n.value)] for n in listed.elts}
    own = {}
    for path in (*SISTERS, BY_HAND):
        hand = ast.parse(path.read_text())
        own = {f.name: f for f in hand.body if isinstance(f, ast.FunctionDef)}
        listed = next(a.value for a in hand.body if isinstance(a, ast.Assign) and getattr(a.targets[0], "id", "") == "FUNCTIONS")
        methods.update({n.id: own[n.id] for n in listed.elts if n.id in own})
    install = own["install"]
    pairs = next(a.value for a in install.body if isinstance(a, ast.AnnAssign))
    lines = []
    for pair in pairs.elts:
        name, value = pair.elts[0].value, pair.elts[1]
        if name.startswith("__") or name == "device":
            continue
        if isinstance(value, ast.Name) and not value.id.startswith("_"):
            methods[name] = own[value.id]
        else:
            methods.pop(name, None)
            lines.append(f"    def {name}(x) -> {'_int' if name == 'dim' else 'Tensor'}: ...")
    lines += [stub_of(f, name) for name, f in sorted(methods.items())]
    for name in BINARY:
        # the compiled operators take their operand by position, and powers a modulus that is none
        more = ", mod: None = None, /" if name == "pow" else ", /"
        lines.append(f"    def __{name}__(self, other: Operand{more}) -> Tensor: ...")
        lines.append(f"    def __r{name}__(self, other: Operand{more}) -> Tensor: ...")
        told = "  # type: ignore[misc]" if name == "pow" else ""
        lines.append(f"    def __i{name}__(x, other: Operand) -> Self: ...{told}")
    lines += [f"    def __{name}__(self, other: Operand, /) -> Tensor: ..." for name in COMPARED]
    text = TEMPLATE.read_text().replace("@METHODS@", "\n".join(lines))
    names = []
    for node in ast.parse(text).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            names.append(node.name)
        elif isinstance(node, ast.AnnAssign) and not node.target.id.startswith("__"):
            names.append(node.target.id)
    listed = textwrap.wrap(", ".join(f'"{n}"' for n in names), 120)
    return text.replace("__all__: List[str]", "__all__ = [\n    " + "\n    ".join(listed) + ",\n]")


def main():
    rust, python, missing = made()
    if missing:
        sys.exit("bind these in a file of crates/python/src/ops, or say in LEFT_OUT why not:\n  " + "\n  ".join(missing))
    files = ((TABLE, rust), (FUNCTIONS, python), (STUBS, stubs(python)))
    if "--check" in sys.argv:
        stale = [p for p, text in files if not p.exists() or p.read_text() != text]
        if stale:
            sys.exit(f"stale, run scripts/make_python_operators.py: {', '.join(str(p.relative_to(ROOT)) for p in stale)}")
        return
    for path, text in files:
        path.write_text(text)


if __name__ == "__main__":
    main()
