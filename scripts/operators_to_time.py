"""What `bench_operators.py` times: for each operator PyTorch's function, arguments, and inputs of a small and a large size."""

import types


def spec(shape, kind="normal", low=0.0, high=1.0, dtype="f32"):
    return {"shape": list(shape), "kind": kind, "low": low, "high": high, "dtype": dtype}


def uniform(shape, low, high):
    return spec(shape, "uniform", low, high)


def ints(shape, high, low=0):
    return spec(shape, "ints", low, high, "i64")


def bools(shape):
    return spec(shape, "ints", 0, 2, "bool")


# A row whose ratio is above 2.0, and what binds it.
WHY = {}

SMALL, LARGE = (32, 32), (1024, 1024)


def rows():
    """Each operator, with `name`, `op`, `args`, `torch`, `small`, `large` and whether it has a gradient."""
    try:
        import torch
        import torch.nn.functional as F
    except ImportError:  # the side that only gives orders
        torch = F = None

    def row(name, f, small, large, grad=True, op=None, **args):
        return types.SimpleNamespace(name=name, op=op or name, torch=f, small=small, large=large, grad=grad, args=args)

    def t(path):
        """A function of PyTorch by its name, for where PyTorch is."""
        module, name = (F, path[2:]) if path.startswith("F.") else (torch, path)
        return getattr(module, name) if torch else None

    positive, unit = (0.1, 4.0), (-0.95, 0.95)
    for name, f, (low, high) in [
        ("relu", "relu", (-2, 2)), ("relu6", "F.relu6", (-2, 8)), ("abs", "abs", (-2, 2)), ("neg", "neg", (-2, 2)),
        ("exp", "exp", (-2, 2)), ("expm1", "expm1", (-2, 2)), ("log", "log", positive), ("log1p", "log1p", positive),
        ("sqrt", "sqrt", positive), ("rsqrt", "rsqrt", positive), ("square", "square", (-2, 2)),
        ("recip", "reciprocal", positive), ("sin", "sin", (-3, 3)), ("cos", "cos", (-3, 3)), ("tan", "tan", (-1, 1)),
        ("asin", "asin", unit), ("acos", "acos", unit), ("atan", "atan", (-3, 3)), ("sinh", "sinh", (-2, 2)),
        ("cosh", "cosh", (-2, 2)), ("tanh", "tanh", (-2, 2)), ("asinh", "asinh", (-3, 3)), ("acosh", "acosh", (1.1, 4)),
        ("atanh", "atanh", unit), ("sigmoid", "sigmoid", (-4, 4)), ("logsigmoid", "F.logsigmoid", (-4, 4)),
        ("softplus", "F.softplus", (-4, 4)), ("silu", "F.silu", (-4, 4)), ("gelu", "F.gelu", (-4, 4)),
        ("erf", "erf", (-2, 2)), ("erfc", "erfc", (-2, 2)), ("erfinv", "erfinv", unit), ("hsigmoid", "F.hardsigmoid", (-4, 4)),
        ("hswish", "F.hardswish", (-4, 4)),
    ]:  # fmt: skip
        yield row(name, t(f), [uniform(SMALL, low, high)], [uniform(LARGE, low, high)])
    for name, f in [("floor", "floor"), ("ceil", "ceil"), ("trunc", "trunc"), ("sign", "sign")]:
        yield row(name, t(f), [spec(SMALL)], [spec(LARGE)], grad=False)
    for name, f in [
        ("add", "add"), ("sub", "sub"), ("mul", "mul"), ("div", "div"), ("maximum", "maximum"), ("minimum", "minimum"),
        ("atan2", "atan2"), ("log_add_exp", "logaddexp"), ("pow", "pow"), ("rem", "remainder"),
    ]:  # fmt: skip
        pair = lambda s: [uniform(s, *positive), uniform(s, *positive)]
        yield row(name, t(f), pair(SMALL), pair(LARGE))
    for name, f in [("eq", "eq"), ("lt", "lt")]:
        yield row(name, t(f), [spec(SMALL), spec(SMALL)], [spec(LARGE), spec(LARGE)], grad=False)
    yield row("where_cond", t("where"), [bools(SMALL)] + [spec(SMALL)] * 2, [bools(LARGE)] + [spec(LARGE)] * 2)
    yield row("clamp", lambda x: torch.clamp(x, -1, 1), [spec(SMALL)], [spec(LARGE)], lo=-1.0, hi=1.0)
    yield row("elu", t("F.elu"), [spec(SMALL)], [spec(LARGE)], alpha=1.0)
    yield row("leaky_relu", lambda x: F.leaky_relu(x, 0.1), [spec(SMALL)], [spec(LARGE)], slope=0.1)
    yield row("lerp", lambda a, b: torch.lerp(a, b, 0.3), [spec(SMALL)] * 2, [spec(LARGE)] * 2, weight=0.3)
    prob = lambda s: [spec(s), uniform(s, 0, 1)]
    f = lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none")
    yield row("bce_with_logits", f, prob(SMALL), prob(LARGE))
