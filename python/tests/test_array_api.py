"""The array API standard's functions against NumPy's, which has most of them from 2.0 on."""
import inspect
import math

import array_api_standard as standard
import numpy as np
import pytest

import remat
from remat import array_api as xp

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float32", "float64"]
NUMBERS = INTS + FLOATS
ALL = ["bool", *NUMBERS]

rng = np.random.default_rng(0)


def same(x, y, dtype=True, rtol=None):
    """A result of ours is NumPy's: dtype, shape and elements."""
    if isinstance(y, (tuple, list)):
        assert len(x) == len(y)
        for a, b in zip(x, y):
            same(a, b, dtype, rtol)
        return
    y = np.asarray(y)
    assert isinstance(x, remat.Tensor), type(x)
    a = x.numpy()
    assert a.shape == y.shape, (a.shape, y.shape)
    if dtype:
        assert a.dtype == y.dtype, (a.dtype, y.dtype)
    if a.dtype.kind == "f":
        # the library's levels for floats: 1e-5 for float32, 1e-12 for float64
        rtol = rtol or (1e-12 if a.dtype == y.dtype == np.float64 else 1e-5)
        np.testing.assert_allclose(a, y, rtol=rtol, atol=rtol)
        zero = (a == 0) & (y == 0)
        np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(y[zero]))
    else:
        np.testing.assert_array_equal(a, y)


def numpys(name):
    """NumPy's function of that name; skips where this NumPy has none."""
    f = np
    for part in name.split("."):
        f = getattr(f, part, None)
    if f is None:
        pytest.skip(f"NumPy {np.__version__} has no {name}")
    return f


def data(dtype, shape, low=None, high=None):
    """Random numbers of a dtype."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTS:
        low = (0 if dtype.startswith("u") else -20) if low is None else low
        return rng.integers(low, 20 if high is None else high, shape).astype(dtype)
    a = rng.uniform(-4 if low is None else low, 4 if high is None else high, shape)
    return np.asarray(a, dtype)


# ---- the list


def test_namespace_has_what_the_list_says_and_nothing_else():
    wanted = {n for names in standard.NAMESPACE.values() for n in names.split() if n not in standard.LEFT_OUT}
    assert set(xp.__all__) == wanted | {"linalg"}
    assert len(xp.__all__) == len(set(xp.__all__))
    for name in wanted:
        assert hasattr(xp, name), name
    assert set(xp.linalg.__all__) == set(standard.LINALG.split())
    for name in xp.linalg.__all__:
        assert callable(getattr(xp.linalg, name))
    for name in standard.LEFT_OUT:
        f = xp
        for part in name.split("."):
            f = getattr(f, part, None)
        assert f is None, f"{name} is there, and listed as left out"
    for name in (standard.ATTRIBUTES + " " + standard.METHODS + " " + standard.IN_PLACE + " " + standard.REFLECTED).split():
        assert hasattr(remat.Tensor, name), name
    for name in standard.INFO.split():
        assert callable(getattr(xp.__array_namespace_info__(), name)), name
    assert set(dir(xp)) == set(xp.__all__)
    assert set(standard.NOTES) <= {n for _, n in standard.listed()} and set(standard.LEFT_OUT) <= {n for _, n in standard.listed()}


@pytest.mark.skipif(not standard.PAGE.parent.exists(), reason="not in a clone of the repository")
def test_the_books_page_is_the_list():
    assert standard.PAGE.read_text() == standard.page(), "run python/tests/array_api_standard.py"


def test_every_function_is_compared_here():
    text = inspect.getsource(inspect.getmodule(same))
    for section, names in standard.NAMESPACE.items():
        for name in names.split():
            if name in standard.LEFT_OUT or section in ("Constants", "Data types", "Inspection"):
                continue
            assert name in CASES or name in UNARY or name in BINARY or f"xp.{name}(" in text, f"{name} is not compared"
    for name in standard.LINALG.split():
        assert f"linalg.{name}" in CASES or f"xp.linalg.{name}(" in text, f"linalg.{name} is not compared"


def test_arguments_are_the_standards():
    """Names, kinds and defaults of the arguments of each function, against the standard's; a number may be a float."""
    listed = {name: arguments for arguments, names in standard.SIGNATURES.items() for name in names.split()}
    functions = {n for n in xp.__all__ if callable(getattr(xp, n)) and not isinstance(getattr(xp, n), remat.dtype)}
    functions |= {f"linalg.{n}" for n in xp.linalg.__all__}
    assert set(listed) == functions - {"__array_namespace_info__"} and len(listed) > 150
    for name, arguments in listed.items():
        f = xp
        for part in name.split("."):
            f = getattr(f, part)
        own = inspect.signature(f)
        plain = own.replace(
            parameters=[p.replace(annotation=inspect.Parameter.empty) for p in own.parameters.values()],
            return_annotation=inspect.Signature.empty,
        )
        assert str(plain) == arguments, name


# ---- of each element

by_dtype = pytest.mark.skipif(not hasattr(np, "isdtype"), reason="before 2.0 NumPy promotes by values and makes floats of integers")

POSITIVE, UNIT, ABOVE_ONE = (0.01, 4), (-0.99, 0.99), (1.01, 4)
UNARY = {
    "abs": (NUMBERS, ()), "acos": (FLOATS, UNIT), "acosh": (FLOATS, ABOVE_ONE), "asin": (FLOATS, UNIT), "asinh": (FLOATS, ()),
    "atan": (FLOATS, ()), "atanh": (FLOATS, UNIT), "bitwise_invert": (["bool", *INTS], ()), "ceil": (NUMBERS, ()),
    "conj": (NUMBERS, ()), "cos": (FLOATS, ()), "cosh": (FLOATS, ()), "exp": (FLOATS, ()), "expm1": (FLOATS, ()),
    "floor": (NUMBERS, ()), "imag": (NUMBERS, ()), "isfinite": (NUMBERS, ()), "isinf": (NUMBERS, ()), "isnan": (NUMBERS, ()),
    "log": (FLOATS, POSITIVE), "log10": (FLOATS, POSITIVE), "log1p": (FLOATS, POSITIVE), "log2": (FLOATS, POSITIVE),
    "logical_not": (["bool"], ()), "negative": (NUMBERS, ()), "positive": (NUMBERS, ()), "real": (NUMBERS, ()),
    "reciprocal": (FLOATS, ()), "round": (NUMBERS, ()), "sign": (NUMBERS, ()), "signbit": (FLOATS, ()), "sin": (FLOATS, ()),
    "sinh": (FLOATS, ()), "sqrt": (FLOATS, POSITIVE), "square": (NUMBERS, ()), "tan": (FLOATS, (-1.4, 1.4)), "tanh": (FLOATS, ()),
    "trunc": (NUMBERS, ()),
}
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0]


@by_dtype
@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary(name):
    f, (dtypes, bounds) = numpys(name), UNARY[name]
    for dtype in dtypes:
        for shape in [(), (7,), (2, 3, 4), (0, 2)]:
            a = data(dtype, shape, *(bounds if dtype in FLOATS else ()))
            same(getattr(xp, name)(xp.asarray(a)), f(a))
        if dtype in FLOATS:
            a = np.array(SPECIAL, dtype)
            with np.errstate(all="ignore"):
                same(getattr(xp, name)(xp.asarray(a)), f(a))
    for dtype in set(ALL) - set(dtypes):
        with pytest.raises(TypeError):
            getattr(xp, name)(xp.ones(2, dtype=getattr(xp, dtype)))
    with pytest.raises(TypeError):
        getattr(xp, name)(2.0)


BINARY = {
    "add": NUMBERS, "atan2": FLOATS, "bitwise_and": ["bool", *INTS], "bitwise_left_shift": INTS, "bitwise_or": ["bool", *INTS],
    "bitwise_right_shift": INTS, "bitwise_xor": ["bool", *INTS], "copysign": FLOATS, "divide": NUMBERS, "equal": ALL,
    "floor_divide": NUMBERS, "greater": NUMBERS, "greater_equal": NUMBERS, "hypot": FLOATS, "less": NUMBERS, "less_equal": NUMBERS,
    "logaddexp": FLOATS, "logical_and": ["bool"], "logical_or": ["bool"], "logical_xor": ["bool"], "maximum": NUMBERS,
    "minimum": NUMBERS, "multiply": NUMBERS, "nextafter": FLOATS, "not_equal": ALL, "pow": NUMBERS, "remainder": NUMBERS,
    "subtract": NUMBERS,
}


def right_of(name, dtype, shape):
    if "shift" in name:
        return data(dtype, shape, 0, 6)
    if name in ("divide", "floor_divide", "remainder"):
        b = data(dtype, shape)
        return np.where(b == 0, np.asarray(3, dtype), b).astype(dtype)
    return data(dtype, shape, 0, 3) if name == "pow" else data(dtype, shape)


@by_dtype
@pytest.mark.parametrize("name", sorted(BINARY))
def test_binary(name):
    f, g, dtypes = numpys(name), getattr(xp, name), BINARY[name]
    for i, one in enumerate(dtypes):
        for two in dtypes[i:]:
            try:
                is_known = {one, two} <= {"bool"} or one in INTS and two in INTS or one in FLOATS and two in FLOATS
                common = np.result_type(one, two)
            except TypeError:
                continue
            if not is_known or common.name == "float64" and "float64" not in (one, two):
                continue  # the standard leaves it open
            for left, right in [((3, 4), (3, 4)), ((3, 1), (4,)), ((), (2,)), ((0, 2), (1, 2))]:
                a = data(one, left, *((0.1, 4) if name == "pow" and one in FLOATS else (0, 4) if name == "pow" else ()))
                b = right_of(name, two, right)
                # an exact quotient of integers is a float32 here, which the standard leaves open
                same(g(xp.asarray(a), xp.asarray(b)), f(a, b), dtype=name != "divide" or one in FLOATS, rtol=None)
    if dtypes != ["bool"]:
        number = 2 if dtypes[0] != "float32" else 2.0
        a = right_of(name, dtypes[-1], (5,))
        same(g(xp.asarray(a), number), f(a, np.asarray(number, a.dtype)), dtype=name != "divide")
        same(g(number, xp.asarray(a)), f(np.asarray(number, a.dtype), a), dtype=name != "divide")
    if "float64" in dtypes:
        a, b = (v.ravel() for v in np.meshgrid(SPECIAL, SPECIAL))
        with np.errstate(all="ignore"):
            for dtype in FLOATS:
                left, right = a.astype(dtype), b.astype(dtype)
                if name in ("floor_divide", "remainder"):
                    keep = np.isfinite(left) & np.isfinite(right) & (right != 0)  # the standard and NumPy differ beyond
                    left, right = left[keep], right[keep]
                same(g(xp.asarray(left), xp.asarray(right)), f(left, right))
    with pytest.raises(TypeError):
        g(1, 2)
    for dtype in set(ALL) - set(dtypes):
        with pytest.raises(TypeError):
            g(xp.ones(2, dtype=getattr(xp, dtype)), xp.ones(2, dtype=getattr(xp, dtype)))


def test_nextafter_at_every_size_has_numpys_bits():
    f = numpys("nextafter")
    for dtype, bits in (("float32", np.int32), ("float64", np.int64)):
        a = rng.integers(np.iinfo(bits).min, np.iinfo(bits).max, 20000).astype(bits).view(dtype)
        limits = np.finfo(dtype)
        edges = np.array([0, limits.max, limits.tiny, limits.smallest_subnormal, np.inf, 1, 2, limits.eps], dtype)
        powers = np.ldexp(np.asarray(1, dtype), np.arange(limits.minexp - limits.nmant, limits.maxexp)).astype(dtype)
        a = np.concatenate([a[~np.isnan(a)], edges, -edges, powers, -powers])
        for to in (np.inf, -np.inf, 0.0):
            b = np.asarray(to, dtype)
            with np.errstate(all="ignore"):
                want = f(a, b)
            np.testing.assert_array_equal(xp.nextafter(xp.asarray(a), xp.asarray(b)).numpy(), want)


def test_clip_as_numpys():
    for dtype in NUMBERS:
        a = data(dtype, (3, 4))
        low, high = np.asarray(2, dtype), data(dtype, (4,), 3, 6)
        same(xp.clip(xp.asarray(a)), a)
        same(xp.clip(xp.asarray(a), 2), np.clip(a, low, None))
        same(xp.clip(xp.asarray(a), None, 2), np.clip(a, None, low))
        same(xp.clip(xp.asarray(a), 2, xp.asarray(high)), np.clip(a, low, high))
    with pytest.raises(TypeError):
        xp.clip(xp.asarray([1]), 0.5)


# ---- what is called as it is, with arrays made by `a`

F = data("float64", (3, 4, 5))
M = data("int32", (3, 4, 5))
V = data("float32", (6,))
B = data("bool", (3, 4))
SQUARE = data("float64", (2, 3, 3)) + 5 * np.eye(3)
DEFINITE = SQUARE @ np.swapaxes(SQUARE, -1, -2)
AXES = [None, 0, -1, (0, 2), ()]


def over(name, arrays, axes=AXES, **more):
    return [
        lambda np_, a, x=x, axis=axis, keep=keep: getattr(np_, name)(a(x), axis=axis, keepdims=keep, **more)
        for x in arrays for axis in axes for keep in (False, True)
    ]


CASES = {
    "arange": [
        lambda n, a: n.arange(5), lambda n, a: n.arange(2, 9, 3), lambda n, a: n.arange(5, 1, -2), lambda n, a: n.arange(5, 1),
        lambda n, a: n.arange(0.5, 3, 0.5, dtype=n.float32), lambda n, a: n.arange(3, dtype=n.int8),
    ],
    "asarray": [
        lambda n, a: n.asarray([[1, 2], [3, 4]]), lambda n, a: n.asarray([True]), lambda n, a: n.asarray(a(V), copy=True),
        lambda n, a: n.asarray([1.5], dtype=n.float64), lambda n, a: n.asarray(a(M), dtype=n.float32),
    ],
    "empty": [lambda n, a: n.empty((2, 3), dtype=n.int8) * 0], "empty_like": [lambda n, a: n.empty_like(a(M)) * 0],
    "eye": [
        lambda n, a: n.eye(3, dtype=n.float32), lambda n, a: n.eye(2, 4, k=1, dtype=n.int8),
        lambda n, a: n.eye(4, 2, k=-1, dtype=n.bool), lambda n, a: n.eye(0, 2, dtype=n.float64),
    ],
    "full": [lambda n, a: n.full((2, 1), 7), lambda n, a: n.full((), True), lambda n, a: n.full(3, 1.5, dtype=n.float32)],
    "full_like": [lambda n, a: n.full_like(a(M), 3), lambda n, a: n.full_like(a(M), 2, dtype=n.float64)],
    "linspace": [
        lambda n, a: n.linspace(0, 1, 5, dtype=n.float32), lambda n, a: n.linspace(2.0, -1.0, 4, dtype=n.float64, endpoint=False),
        lambda n, a: n.linspace(0, 1, 1, dtype=n.float64), lambda n, a: n.linspace(0, 1, 0, dtype=n.float64),
    ],
    "meshgrid": [
        lambda n, a: list(n.meshgrid(a(V), a(M[0, 0]))), lambda n, a: list(n.meshgrid(a(V), a(M[0, 0]), a(V), indexing="ij")),
        lambda n, a: list(n.meshgrid(a(V), a(M[0, 0]), a(V))), lambda n, a: list(n.meshgrid(a(V))),
    ],
    "ones": [lambda n, a: n.ones((2, 3), dtype=n.int8)], "ones_like": [lambda n, a: n.ones_like(a(M))],
    "zeros": [lambda n, a: n.zeros(3, dtype=n.uint64)], "zeros_like": [lambda n, a: n.zeros_like(a(F), dtype=n.bool)],
    "tril": [lambda n, a, k=k: n.tril(a(M), k=k) for k in (-5, -1, 0, 2, 9)],
    "triu": [lambda n, a, k=k: n.triu(a(M), k=k) for k in (-5, -1, 0, 2, 9)],
    "take": [
        lambda n, a: n.take(a(V), a(np.array([2, 0]))), lambda n, a: n.take(a(M), a(np.array([1, 1, 3])), axis=1),
        lambda n, a: n.take(a(M), a(np.array([-1, 0])), axis=-1), lambda n, a: n.take(a(M), a(np.array([], int)), axis=0),
    ],
    "take_along_axis": [
        lambda n, a, k=k: n.take_along_axis(a(M), a(np.argsort(M, axis=k)), axis=k) for k in (0, 1, -1)
    ] + [lambda n, a: n.take_along_axis(a(M), a(np.array([[[1], [-1]]])), axis=1)],
    "matmul": [
        lambda n, a: n.matmul(a(SQUARE), a(SQUARE)), lambda n, a: n.matmul(a(V[:3]), a(V[:3])),
        lambda n, a: n.matmul(a(SQUARE), a(SQUARE[0, 0])), lambda n, a: n.matmul(a(SQUARE[0, 0]), a(SQUARE)),
        lambda n, a: n.matmul(a(M[0]), a(M[1].T)), lambda n, a: n.matmul(a(SQUARE[:, None]), a(SQUARE)),
        lambda n, a: n.matmul(a(SQUARE), a(SQUARE.astype("float32"))), lambda n, a: n.matmul(a(M[0].astype("int8")), a(M[1].T)),
        lambda n, a: n.matmul(a(V[:3].astype("uint8")), a(V[:3].astype("int16"))),
    ],
    "matrix_transpose": [lambda n, a: n.matrix_transpose(a(M))],
    "tensordot": [
        lambda n, a: n.tensordot(a(F), a(F[0].T), axes=1), lambda n, a: n.tensordot(a(F), a(F[0])),
        lambda n, a: n.tensordot(a(F), a(F), axes=([0, 2], [0, 2])), lambda n, a: n.tensordot(a(V), a(V), axes=0),
    ],
    "vecdot": [
        lambda n, a: n.vecdot(a(F), a(F)), lambda n, a: n.vecdot(a(F), a(F[0, 0])), lambda n, a: n.vecdot(a(F), a(F[:, :1]), axis=-3),
        lambda n, a: n.vecdot(a(M), a(M)),
    ],
    "broadcast_arrays": [lambda n, a: list(n.broadcast_arrays(a(M), a(V[:5]), a(B[..., None])))],
    "broadcast_to": [lambda n, a: n.broadcast_to(a(V), (2, 3, 6)), lambda n, a: n.broadcast_to(a(V[:1]), (0,))],
    "concat": [
        lambda n, a: n.concat([a(M), a(M[:1])]), lambda n, a: n.concat((a(M), a(M)), axis=-1), lambda n, a: n.concat([a(M), a(M[0])], axis=None),
        lambda n, a: n.concat([a(V), a(F[0, 0])]),
    ],
    "expand_dims": [lambda n, a, k=k: n.expand_dims(a(M), axis=k) for k in (0, 1, 3, -1, -4)],
    "flip": [lambda n, a, k=k: n.flip(a(M), axis=k) for k in (None, 0, -1, (0, 2), ())],
    "moveaxis": [
        lambda n, a, s=s, d=d: n.moveaxis(a(M), s, d) for s, d in [(0, 2), (-1, 0), ((0, 1), (2, 0)), ((2, 0), (0, 1)), ((0, 1, 2), (1, 2, 0))]
    ],
    "permute_dims": [lambda n, a: n.permute_dims(a(M), (2, 0, 1)), lambda n, a: n.permute_dims(a(M), (-1, 0, 1))],
    "repeat": [
        lambda n, a: n.repeat(a(M), 2), lambda n, a: n.repeat(a(M), 3, axis=1), lambda n, a: n.repeat(a(M), a(np.array([0, 2, 1])), axis=0),
        lambda n, a: n.repeat(a(M), 0, axis=1), lambda n, a: n.repeat(a(V), a(np.array([2]))),
    ],
    "reshape": [lambda n, a: n.reshape(a(M), (5, -1)), lambda n, a: n.reshape(a(M[:0]), (0, 7)), lambda n, a: n.reshape(a(V[:1]), ())],
    "roll": [
        lambda n, a: n.roll(a(M), 7), lambda n, a: n.roll(a(M), -1, axis=1), lambda n, a: n.roll(a(M), (1, 9), axis=(0, -1)),
        lambda n, a: n.roll(a(M), 2, axis=(0, 1)),
    ],
    "squeeze": [lambda n, a, k=k: n.squeeze(a(M[:1, :, None]), axis=k) for k in (0, 2, -2, (0, 2), ())],
    "stack": [lambda n, a, k=k: n.stack([a(M), a(M)], axis=k) for k in (0, 1, -1)] + [lambda n, a: n.stack([a(V), a(F[0, 0, 0] * V)])],
    "tile": [lambda n, a, k=k: n.tile(a(M), k) for k in ((2,), (1, 2, 3), (2, 1, 1, 2), (), (0, 1, 1))],
    "unstack": [lambda n, a, k=k: list(n.unstack(a(M), axis=k)) for k in (0, 1, -1)],
    "argmax": over("argmax", [M, F], [None, 0, -1]), "argmin": over("argmin", [M, F], [None, 0, -1]),
    "count_nonzero": over("count_nonzero", [M, B[..., None]], [None, 0, -1, (0, 2)]),
    "nonzero": [lambda n, a: list(n.nonzero(a(M))), lambda n, a: list(n.nonzero(a(B))), lambda n, a: list(n.nonzero(a(V[:0])))],
    "searchsorted": [
        lambda n, a: n.searchsorted(a(np.sort(V)), a(V[:3])), lambda n, a: n.searchsorted(a(np.array([1, 2, 2, 3])), a(np.array([[2, 0], [4, 1]])), side="right"),
        lambda n, a: n.searchsorted(a(V), a(V), sorter=a(np.argsort(V))), lambda n, a: n.searchsorted(a(np.array([1, 2, 2, 3])), a(np.array(2))),
    ],
    "where": [
        lambda n, a: n.where(a(B), a(M[..., 0]), a(M[..., 1])), lambda n, a: n.where(a(B[:, :1]), a(V[:4]), a(F[0, :, 0])),
        lambda n, a: n.where(a(B), a(V[0]), 2.0),
    ],
    "unique_all": [lambda n, a: tuple(n.unique_all(a(M))), lambda n, a: tuple(n.unique_all(a(V[:0])))],
    "unique_counts": [lambda n, a: tuple(n.unique_counts(a(M)))],
    "unique_inverse": [lambda n, a: tuple(n.unique_inverse(a(M)))],
    "unique_values": [lambda n, a: n.sort(n.unique_values(a(M)))],
    "argsort": [lambda n, a, k=k: n.argsort(a(M), axis=k, stable=True) for k in (0, 1, -1)],
    "sort": [lambda n, a, k=k, x=x: n.sort(a(x), axis=k) for k in (0, 1, -1) for x in (M, F)],
    "cumulative_prod": [lambda n, a: n.cumulative_prod(a(V)), lambda n, a: n.cumulative_prod(a(F), axis=1, include_initial=True)],
    "cumulative_sum": [
        lambda n, a: n.cumulative_sum(a(V)), lambda n, a: n.cumulative_sum(a(M), axis=-1), lambda n, a: n.cumulative_sum(a(M), axis=0, include_initial=True),
        lambda n, a: n.cumulative_sum(a(M), axis=0, dtype=n.float64), lambda n, a: n.cumulative_sum(a(data("uint8", 5))) * 0,
    ],
    "max": over("max", [M, F]), "min": over("min", [M, F]), "mean": over("mean", [F]),
    "sum": over("sum", [M, F, data("uint8", (3, 4, 5)), data("float32", (3, 4, 5)), data("bool", (3, 4, 5))]) + [lambda n, a: n.sum(a(M), dtype=n.float32)],
    "prod": over("prod", [M[:, :2, :2], F, data("uint16", (3, 2, 2))], [None, 0, -1, (0, 2)]) + [lambda n, a: n.prod(a(M), axis=0, dtype=n.float64)],
    "std": over("std", [F], correction=0) + over("std", [F], [0, (0, 2)], correction=1.5),
    "var": over("var", [F], correction=0) + over("var", [F], [0, (0, 2)], correction=1.5),
    "all": over("all", [B[..., None], M, F]), "any": over("any", [B[..., None], M, F, M[:0]]),
    "diff": [lambda n, a, k=k, m=m: n.diff(a(M), axis=k, n=m) for k in (0, 1, -1) for m in (0, 1, 2)]
    + [lambda n, a: n.diff(a(M), prepend=a(M[..., :1]), append=a(M[..., :2])), lambda n, a: n.diff(a(V), n=9)],
    "linalg.cholesky": [lambda n, a: n.linalg.cholesky(a(DEFINITE)), lambda n, a: n.linalg.cholesky(a(DEFINITE), upper=True)],
    "linalg.cross": [lambda n, a: n.linalg.cross(a(F[..., :3]), a(F[0, 0, 2:]))],
    "linalg.det": [lambda n, a: n.linalg.det(a(SQUARE))],
    "linalg.diagonal": [lambda n, a, k=k: n.linalg.diagonal(a(M), offset=k) for k in (-3, -1, 0, 2, 4)],
    "linalg.eigvalsh": [lambda n, a: n.linalg.eigvalsh(a(DEFINITE))],
    "linalg.inv": [lambda n, a: n.linalg.inv(a(SQUARE))],
    "linalg.matmul": [lambda n, a: n.linalg.matmul(a(SQUARE), a(SQUARE))],
    "linalg.matrix_norm": [
        lambda n, a, o=o, k=k: n.linalg.matrix_norm(a(F), ord=o, keepdims=k)
        for o in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf) for k in (False, True)
    ],
    "linalg.matrix_power": [lambda n, a, k=k: n.linalg.matrix_power(a(SQUARE), k) for k in (-2, 0, 1, 3)],
    "linalg.matrix_rank": [lambda n, a: n.linalg.matrix_rank(a(F)), lambda n, a: n.linalg.matrix_rank(a(F[..., :1] * F[..., :1, :]), rtol=1e-6)],
    "linalg.matrix_transpose": [lambda n, a: n.linalg.matrix_transpose(a(M))],
    "linalg.outer": [lambda n, a: n.linalg.outer(a(V), a(F[0, 0]))],
    "linalg.pinv": [lambda n, a: n.linalg.pinv(a(F)), lambda n, a: n.linalg.pinv(a(F), rtol=1e-6), lambda n, a: n.linalg.pinv(a(0 * F[0]))],
    "linalg.slogdet": [lambda n, a: tuple(n.linalg.slogdet(a(SQUARE)))],
    "linalg.solve": [
        lambda n, a: n.linalg.solve(a(SQUARE), a(F[:2, :3])), lambda n, a: n.linalg.solve(a(SQUARE), a(V[:3].astype("float64"))),
        lambda n, a: n.linalg.solve(a(SQUARE), a(F[0, :3])),
    ],
    "linalg.svdvals": [lambda n, a: n.linalg.svdvals(a(F))],
    "linalg.tensordot": [lambda n, a: n.linalg.tensordot(a(F), a(F), axes=([0, 2], [0, 2]))],
    "linalg.trace": [lambda n, a: n.linalg.trace(a(M)), lambda n, a: n.linalg.trace(a(F), offset=1), lambda n, a: n.linalg.trace(a(M), dtype=n.float32)],
    "linalg.vecdot": [lambda n, a: n.linalg.vecdot(a(F), a(F))],
    "linalg.vector_norm": [
        lambda n, a, o=o, k=k, axis=axis: n.linalg.vector_norm(a(F), ord=o, axis=axis, keepdims=k)
        for o in (1, 2, 3, -1, 0, 0.5, np.inf, -np.inf) for axis in (None, 0, (0, 2)) for k in (False, True)
    ],
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_function(name):
    numpys(name)
    numpys("astype")  # the dtype names `bool` and others are of that version
    for case in CASES[name]:
        # more steps in other orders than NumPy's: products of matrices of condition 10
        rtol = 1e-9 if name.startswith("linalg.") else None
        same(case(xp, xp.asarray), case(np, lambda v: np.asarray(v)), rtol=rtol)


def test_bindings_are_the_standards():
    """Arguments and their kinds are those of NumPy's namespace, where that has the standard's."""
    for name in ("sum", "mean", "std", "take", "concat", "argsort", "unique_all", "permute_dims", "astype"):
        f = getattr(xp, name)
        first = next(iter(inspect.signature(f).parameters.values()))
        assert first.kind == inspect.Parameter.POSITIONAL_ONLY, name
    for f in (xp.sum, xp.max, xp.all):
        with pytest.raises(TypeError):
            f(xp.ones((2, 2)), 0)


# ---- decompositions, which are unique up to signs


def tensors(x):
    return x.numpy()


def test_decompositions_compose_to_what_they_were_of():
    for a in (F, np.swapaxes(F, -1, -2), SQUARE):
        x, m, n = xp.asarray(a), a.shape[-2], a.shape[-1]
        for mode, k in (("reduced", min(m, n)), ("complete", m)):
            q, r = xp.linalg.qr(x, mode=mode)
            assert q.shape[-2:] == (m, k) and r.shape[-2:] == (k, n)
            same(q @ r, a, rtol=1e-12)
            same(q.mT @ q, np.broadcast_to(np.eye(k), (*a.shape[:-2], k, k)), rtol=1e-12)
            same(xp.tril(r, k=-1), np.zeros(r.shape))
        for full in (True, False):
            u, s, vh = xp.linalg.svd(x, full_matrices=full)
            k = min(m, n)
            assert u.shape[-2:] == (m, m if full else k) and vh.shape[-2:] == (n if full else k, n) and s.shape[-1] == k
            same((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, rtol=1e-11)
            same(u.mT @ u, np.broadcast_to(np.eye(u.shape[-1]), (*a.shape[:-2], u.shape[-1], u.shape[-1])), rtol=1e-11)
            same(vh @ vh.mT, np.broadcast_to(np.eye(vh.shape[-2]), (*a.shape[:-2], vh.shape[-2], vh.shape[-2])), rtol=1e-11)
            same(s, np.linalg.svd(a, compute_uv=False), rtol=1e-11)
    values, vectors = xp.linalg.eigh(xp.asarray(DEFINITE))
    same(values, np.linalg.eigvalsh(DEFINITE), rtol=1e-11)
    same(xp.asarray(DEFINITE) @ vectors, tensors(vectors) * tensors(values)[..., None, :], rtol=1e-9)
    with pytest.raises(ValueError):
        xp.linalg.qr(xp.ones((2, 2)), mode="r")


# ---- orders, sets, NaN


def test_descending_order_is_stable():
    a = np.array([[3, 1, 3, 2, 1]])
    assert xp.argsort(xp.asarray(a), descending=True).tolist() == [[0, 2, 3, 1, 4]]
    assert xp.sort(xp.asarray(a), descending=True).tolist() == [[3, 3, 2, 1, 1]]
    with pytest.raises(TypeError):
        xp.sort(xp.asarray([True]))


def test_nan_differs_from_nan_in_sets_and_rules_extremes():
    x = xp.asarray([math.nan, 1.0, math.nan, 1.0])
    values, indices, inverse, counts = xp.unique_all(x)
    assert values.shape == (3,) and counts.tolist() == [2, 1, 1] and indices.tolist() == [1, 0, 2]
    assert inverse.tolist() == [1, 0, 2, 0]
    assert math.isnan(xp.max(x).item()) and math.isnan(xp.min(x).item())


# ---- what the page's notes say


def test_floor_division_by_and_of_infinities_is_pythons():
    assert "inf // 1` is NaN" in standard.NOTES["floor_divide"] and "`-1 // inf` is -1" in standard.NOTES["floor_divide"]
    inf = math.inf
    pairs = [(x, y) for x in (0.0, -0.0, 1.0, -1.0, 2.5, -2.5, inf, -inf) for y in (0.0, -0.0, 1.0, -1.0, 2.5, -2.5, inf, -inf)]
    for dtype in FLOATS:
        x, y = (np.array(v, dtype) for v in zip(*pairs))
        with np.errstate(all="ignore"):
            same(xp.floor_divide(xp.asarray(x), xp.asarray(y)), x // y)
            same(xp.asarray(x) // xp.asarray(y), x // y)
            same(xp.remainder(xp.asarray(x), xp.asarray(y)), x % y)
    assert math.isnan(xp.floor_divide(xp.asarray([inf]), 1.0).item()) and xp.floor_divide(xp.asarray([-1.0]), inf).item() == -1


def test_integers_without_a_result_are_errors():
    for f, y in ((xp.floor_divide, 0), (xp.remainder, 0), (xp.pow, -1)):
        assert "an error for an integer" in standard.NOTES[f.__name__]
        with pytest.raises(ValueError):
            f(xp.asarray([3]), xp.asarray([y])).tolist()


def test_the_operator_of_products_takes_one_dtype():
    x, y = xp.ones((2, 2)), xp.ones((2, 2), dtype=xp.float64)
    assert {"__matmul__", "__rmatmul__", "__imatmul__"} <= set(standard.NOTES)
    with pytest.raises(TypeError):
        x @ y
    with pytest.raises(TypeError):
        x @= y
    assert xp.matmul(x, y).dtype == xp.linalg.matmul(x, y).dtype == xp.float64


def test_masks():
    """The sole index, as the standard has it: NumPy's; and masks that do not fit are another error than the standard's."""
    assert "ShapeError" in standard.NOTES["__getitem__"]
    for a in (M, F):
        for mask in (a > 0, a[:, 0, 0] > 0, a[..., 0] > 0, a > np.inf, np.True_, np.False_):
            same(xp.asarray(a)[xp.asarray(np.asarray(mask))], a[mask])
    x = xp.ones((3, 2))
    for wrong in (xp.ones(2, dtype=xp.bool), xp.ones((2, 2), dtype=xp.bool), xp.ones(0, dtype=xp.bool), xp.ones((3, 0), dtype=xp.bool)):
        with pytest.raises(remat.ShapeError) as e:
            x[wrong]
        assert isinstance(e.value, ValueError) and not isinstance(e.value, IndexError)
    with pytest.raises(IndexError):
        x[xp.ones((3, 2, 1), dtype=xp.bool)]
    same(xp.ones((0, 2))[xp.ones(0, dtype=xp.bool)], np.ones((0, 2), np.float32))


def test_expand_dims_needs_its_axis():
    x = xp.ones((2, 3))
    assert xp.expand_dims(x, 1).shape == xp.expand_dims(x, axis=1).shape == (2, 1, 3)
    with pytest.raises(TypeError):
        xp.expand_dims(x)
    for axis in (3, -4):
        with pytest.raises(IndexError):
            xp.expand_dims(x, axis)


# ---- dtypes


def test_promotion_is_the_standards():
    f = numpys("result_type")
    for one in NUMBERS:
        for two in NUMBERS:
            a, b = getattr(xp, one), getattr(xp, two)
            if (one in INTS) == (two in INTS) and {one, two} & {"uint64"} != {"uint64"} or one == two:
                assert xp.result_type(a, b).name == f(one, two).name
                assert xp.can_cast(a, b) == np.can_cast(one, two)
                assert (xp.ones(1, dtype=a) + xp.ones(1, dtype=b)).dtype.name == f(one, two).name
    assert not xp.can_cast(xp.float32, xp.int64) and not xp.can_cast(xp.int8, xp.float64) and xp.can_cast(xp.ones(1), xp.float64)
    assert xp.result_type(xp.int8, 2) == xp.int8 and xp.result_type(xp.ones(1), 1.5, xp.float64) == xp.float64
    with pytest.raises(ValueError):
        xp.result_type(1, 2.0)


def test_kinds_and_limits():
    for name in ALL:
        of = getattr(xp, name)
        for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric"):
            want = {"b": ("bool",), "i": ("signed integer", "integral", "numeric"), "u": ("unsigned integer", "integral", "numeric"),
                    "f": ("real floating", "numeric")}[np.dtype(name).kind]
            assert xp.isdtype(of, kind) == (kind in want), (name, kind)
        assert xp.isdtype(of, of) and xp.isdtype(of, ("bool", "numeric")) and not xp.isdtype(of, ())
    for name in INTS:
        ours, theirs = xp.iinfo(getattr(xp, name)), np.iinfo(name)
        assert (ours.bits, ours.max, ours.min, ours.dtype.name) == (theirs.bits, theirs.max, theirs.min, name)
    for name in ["float16", *FLOATS]:
        ours, theirs = xp.finfo(getattr(remat, name)), np.finfo(name)
        for field in ("bits", "eps", "max", "min", "smallest_normal"):
            assert getattr(ours, field) == getattr(theirs, field), (name, field)
    assert xp.finfo(xp.ones(1)).dtype == xp.float32
    for wrong in (lambda: xp.finfo(xp.int8), lambda: xp.iinfo(xp.float32), lambda: xp.isdtype("int8", "bool"), lambda: xp.isdtype(xp.int8, 3)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError):
        xp.isdtype(xp.int8, "float")


def test_astype_copies_unless_told_otherwise():
    for one in ALL:
        for two in ALL:
            a = data(one, (4,), 0, 100)
            same(xp.astype(xp.asarray(a), getattr(xp, two)), a.astype(two))
    x = xp.ones(2)
    assert xp.astype(x, xp.float32, copy=False) is x and xp.astype(x, xp.float32) is not x
    assert xp.astype(x, xp.int8, device=x.device).dtype == xp.int8


# ---- the array object


def test_an_array_tells_its_namespace_and_what_that_can_do():
    x = xp.ones((2, 3))
    assert x.__array_namespace__() is xp and x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueError):
        x.__array_namespace__(api_version="2099.12")
    assert xp.__array_api_version__ == "2024.12"
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}
    assert info.default_device() == x.device and info.devices() == [x.device]
    assert info.default_dtypes() == {"real floating": xp.float32, "integral": xp.int64, "indexing": xp.int64}
    assert list(info.dtypes()) == ALL and list(info.dtypes(kind="unsigned integer")) == INTS[4:]
    assert list(info.dtypes(kind=("bool", "real floating"))) == ["bool", *FLOATS] and info.dtypes(kind="complex floating") == {}
    assert (xp.e, xp.pi, xp.inf, xp.newaxis) == (math.e, math.pi, math.inf, None) and math.isnan(xp.nan)
    assert x.T.shape == (3, 2) and x.mT.shape == (3, 2) and x.size == 6 and x.ndim == 2 and x.shape == (2, 3)
    y = x.to_device(remat.Device())
    assert y.device != x.device and y.tolist() == x.tolist() and x.to_device(x.device).tolist() == x.tolist()
    assert complex(xp.asarray(2.0)) == 2 and isinstance(complex(xp.asarray(2.0)), complex)
    for wrong in (complex, float, int, bool):
        with pytest.raises(ValueError):
            wrong(xp.ones(2))


def test_asarray_refuses_what_it_cannot_do():
    x = xp.ones(2)
    assert xp.asarray(x) is x and xp.asarray(x, copy=False) is x and xp.asarray(x, copy=True) is not x
    for wrong in (lambda: xp.asarray([1], copy=False), lambda: xp.asarray(x, dtype=xp.int8, copy=False), lambda: xp.asarray([[1], [1, 2]])):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(TypeError):
        xp.asarray([1j])
    same(xp.from_dlpack(np.arange(3.0)), np.arange(3.0))
    with pytest.raises(BufferError):
        xp.from_dlpack(np.arange(3.0), copy=False)


def test_wrong_arguments_are_told():
    x = xp.ones((2, 3))
    for error, wrong in [
        (ValueError, lambda: xp.arange(1, 2, 0)), (ValueError, lambda: xp.linspace(0, 1, -1)), (ValueError, lambda: xp.take(x, xp.asarray([0]))),
        (ValueError, lambda: xp.meshgrid(x)), (ValueError, lambda: xp.meshgrid(xp.ones(1), indexing="yx")), (ValueError, lambda: xp.squeeze(x, 0)),
        (ValueError, lambda: xp.cumulative_sum(x)), (ValueError, lambda: xp.broadcast_arrays(x, xp.ones(2))), (ValueError, lambda: xp.nonzero(xp.asarray(1))),
        (IndexError, lambda: xp.sum(x, axis=2)), (IndexError, lambda: xp.moveaxis(x, 2, 0)), (ValueError, lambda: xp.moveaxis(x, (0, 1), 0)),
        (ValueError, lambda: xp.repeat(x, -1)), (ValueError, lambda: xp.repeat(x, xp.asarray([1, 2, 3]), axis=0)), (ValueError, lambda: xp.roll(x, (1, 2), axis=0)),
        (ValueError, lambda: xp.searchsorted(xp.ones(2), xp.ones(2), side="middle")), (ValueError, lambda: xp.searchsorted(x, x)),
        (TypeError, lambda: xp.where(x, x, x)), (TypeError, lambda: xp.mean(xp.asarray([1]))), (TypeError, lambda: xp.max(xp.asarray([True]))),
        (ValueError, lambda: xp.matmul(xp.asarray(1.0), x)), (ValueError, lambda: xp.vecdot(x, xp.ones(2))), (ValueError, lambda: xp.tensordot(x, x, axes=3)),
        (ValueError, lambda: xp.linalg.matrix_norm(x, ord=3)), (ValueError, lambda: xp.linalg.matrix_transpose(xp.ones(2))), (ValueError, lambda: xp.diff(x, n=-1)),
        (ValueError, lambda: xp.linalg.cross(x, xp.ones(2))), (ValueError, lambda: xp.take_along_axis(x, xp.asarray([0]))), (ValueError, lambda: xp.max(xp.ones(0))),
        (TypeError, lambda: xp.add(x, "a")), (TypeError, lambda: xp.linalg.vector_norm(xp.asarray([1]))),
    ]:
        with pytest.raises(error):
            wrong()
