"""Indices of every kind, made at random, read and assigned to as NumPy does; and operators in place."""
import operator

import numpy as np
import pytest

import remat

SHAPES = [(), (5,), (3, 4), (2, 3, 4), (1, 2, 3, 2), (0,), (2, 0, 3)]
CASES_PER_SHAPE = 300


def same(x, y):
    a = x.numpy()
    assert a.dtype == y.dtype and a.shape == y.shape, (a.dtype, y.dtype, a.shape, y.shape)
    np.testing.assert_array_equal(a, y)


def a_slice(rng, n):
    """Bounds within, at and beyond the ends, and steps both ways."""
    bound = lambda: None if rng.random() < 0.3 else int(rng.integers(-n - 3, n + 4))
    step = None if rng.random() < 0.4 else int(rng.choice([1, 2, 3, -1, -2, -3]))
    return slice(bound(), bound(), step)


def an_array(rng, n, shape):
    """Places of an axis in one of the forms that an index takes: an array of a dtype, a list, a tuple, an array without axes."""
    places = rng.integers(-n, n, shape)
    form = rng.integers(0, 5)
    if form == 0:
        return places.astype(str(rng.choice(["int8", "int32", "int64"])))
    if form == 1:
        return (places % n).astype("uint8")
    if form == 2 and len(shape) > 0:
        return places.tolist()
    return places


def an_index(rng, shape):
    """Parts for a prefix of the axes, with new axes, an ellipsis and truth values among them."""
    parts, axis = [], 0
    named = int(rng.integers(0, len(shape) + 1))
    together = tuple(int(v) for v in rng.choice([1, 2, 3], int(rng.integers(0, 3))))
    skipped = False
    while axis < named:
        n = shape[axis]
        kind = rng.choice(["number", "slice", "array", "mask", "new", "dots", "numpy"], p=[0.2, 0.3, 0.2, 0.1, 0.08, 0.08, 0.04])
        if kind == "number" and n:
            parts.append(int(rng.integers(-n, n)))
        elif kind == "numpy" and n:
            parts.append(np.int64(rng.integers(-n, n)))
        elif kind == "array" and n:
            parts.append(an_array(rng, n, tuple(d if rng.random() < 0.8 else 1 for d in together)))
        elif kind == "mask":
            rank = min(int(rng.integers(1, 3)), named - axis)
            mask = rng.random(shape[axis : axis + rank]) < 0.5
            parts.append(mask if rng.random() < 0.7 or rank > 1 else mask.tolist() or mask)
            axis += rank
            continue
        elif kind == "new":
            parts.append(None)
            continue
        elif kind == "dots":
            if skipped:
                continue
            skipped = True
            parts.append(Ellipsis)
            # the axes after it are the last ones
            axis += len(shape) - named
            named = len(shape)
            continue
        else:
            parts.append(a_slice(rng, n))
        axis += 1
    if rng.random() < 0.06:
        parts.insert(int(rng.integers(0, len(parts) + 1)), [True, False, np.True_, np.array(False)][int(rng.integers(0, 4))])
    return parts[0] if len(parts) == 1 and rng.random() < 0.7 else tuple(parts)


def read(a, at):
    """What NumPy reads, or None where the index is none of its own."""
    try:
        return a[at]
    except (IndexError, ValueError):
        return None


def generated(shape):
    rng = np.random.default_rng(1 + SHAPES.index(shape))
    return [an_index(rng, shape) for _ in range(CASES_PER_SHAPE)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_generated_indices_read_as_numpys(shape):
    a = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    x = remat.asarray(a)
    compared = 0
    for at in generated(shape):
        want = read(a, at)
        if want is None:
            with pytest.raises((IndexError, ValueError)):
                x[at].wait()
            continue
        compared += 1
        try:
            same(x[at], np.asarray(want))
        except Exception as e:
            raise AssertionError(f"x{list(shape)}[{at!r}]: {e}") from e
    assert compared > CASES_PER_SHAPE // 3


def a_value(rng, want):
    """Something that broadcasts to what an index names: a number, an array of it, or of some of its axes."""
    form = rng.integers(0, 5)
    if form == 0:
        return int(rng.integers(100, 200))
    shape = want.shape
    if form == 1:
        shape = shape[int(rng.integers(0, len(shape) + 1)) :]
    elif form == 2:
        shape = tuple(1 if rng.random() < 0.4 else n for n in shape)
    elif form == 3:
        shape = (1, 1, *shape)  # more axes, of extent 1
    value = rng.integers(100, 200, shape)
    return value.astype("int16") if rng.random() < 0.2 else value


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_generated_indices_assign_as_numpys(shape):
    rng = np.random.default_rng(7)
    compared = 0
    for at in generated(shape):
        a = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        want = read(a, at)
        if want is None:
            continue
        x = remat.asarray(a)
        part = x[at]
        before = part.tolist()
        value = a_value(rng, np.asarray(want))
        given = value if isinstance(value, int) or rng.random() < 0.5 else remat.asarray(value)
        try:
            try:
                a[at] = value
            except (TypeError, ValueError):
                # NumPy takes more first axes of extent 1 for some kinds of indices only
                value = value.reshape(np.shape(value)[2:])
                a[at] = value
            x[at] = given
            same(x, a)
            assert part.tolist() == before  # a part is a value of its own
        except Exception as e:
            raise AssertionError(f"x{list(shape)}[{at!r}] = {np.shape(value)}: {e}") from e
        compared += 1
    assert compared > CASES_PER_SHAPE // 3


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_generated_indices_add_in_place_as_numpys(shape):
    for at in generated(shape)[:100]:
        a = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        if read(a, at) is None:
            continue
        x = remat.asarray(a)
        a[at] += 3
        x[at] += 3
        same(x, a)


def test_values_are_cast_to_the_dtype():
    for dtype in ("float32", "float64", "int8", "int64", "bool"):
        for value in (1, True, 0, np.float32(2.5), np.array([1.5, 0.0]), [1, 0], np.array([[1, 2]]), remat.tensor([0.0, 3.0])):
            a, x = np.zeros((3, 2), dtype), remat.zeros(3, 2, dtype=dtype)
            a[1] = np.asarray(value)
            x[1] = value
            same(x, a)


def test_tensors_and_sequences_are_indices():
    a = np.arange(24).reshape(4, 6)
    x = remat.asarray(a)
    same(x[remat.tensor([3, 0]), remat.tensor([[1], [2]])], a[[3, 0], [[1], [2]]])
    same(x[remat.asarray(a) % 2 == 0], a[a % 2 == 0])
    same(x[remat.tensor(1)], a[1])
    same(x[range(2)], a[range(2)])
    same(x[(0, 2), :], a[(0, 2), :])
    same(x[[np.int64(1), 2]], a[[1, 2]])
    same(x[[remat.tensor(1), remat.tensor(2)]], a[[1, 2]])
    same(x[[[]]], a[[[]]])
    same(x[True], a[True])
    same(x[False], a[False])
    same(x[np.bool_(True), 1], a[True, 1])
    same(x[..., remat.tensor(True)], a[..., np.array(True)])
    x[True] = 1
    assert x.shape == (4, 6) and bool((x == 1).all())
    x[False] = 2
    assert bool((x == 1).all())


def test_wrong_indices_say_what_is_wrong():
    x = remat.zeros(2, 3)
    for at, error, text in [
        (2, IndexError, "index 2 is outside axis 0 of extent 2"),
        ((0, -4), IndexError, "index -4 is outside axis 1 of extent 3"),
        (10**30, IndexError, "outside"),
        ((0, 0, 0), IndexError, "names 3 axes"),
        ((..., 0, ...), IndexError, "one ellipsis"),
        (remat.tensor([0.5]), TypeError, "integers or bools, not f32"),
        ([0.5], TypeError, "integers or bools, not f32"),
        (1.5, TypeError, "an index is a number"),
        ("a", TypeError, "an index is a number"),
        (slice(None, None, 0), ValueError, "step"),
        (slice(0.5), TypeError, "bounds of a slice"),
        (np.array([True]), ValueError, "mask of shape"),
        ((np.array([0, 1]), np.array([0, 1, 2])), ValueError, "broadcast"),
    ]:
        with pytest.raises(error, match=text):
            x[at]
        with pytest.raises(error, match=text):
            x[at] = 1
    with pytest.raises(IndexError, match="5"):
        x[remat.tensor([0, 5])].tolist()
    with pytest.raises(ValueError, match="broadcast|shape"):
        x[0] = remat.zeros(4)
    with pytest.raises(TypeError):
        x[0] = "a"


OPERATORS = {
    "iadd": "float32 int8", "isub": "float32 int8", "imul": "float32 int8", "itruediv": "float32", "ifloordiv": "float32 int8",
    "imod": "float32 int8", "ipow": "float32 int8", "iand": "int8 bool", "ior": "int8 bool", "ixor": "int8 bool", "ilshift": "int8",
    "irshift": "int8",
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_in_place_are_numpys(name):
    f = getattr(operator, name)
    for dtype in OPERATORS[name].split():
        a = np.array([[1, 2, 3], [4, 5, 6]]).astype(dtype)
        x = remat.asarray(a)
        one, part = x, x[0]
        for value in (2, np.array([1, 2, 1], dtype), np.array(1, dtype)):
            if dtype == "bool" and isinstance(value, int):
                value = True
            f(a, value)
            assert f(x, value) is x
            same(one, a)
        assert part.tolist() == np.array([1, 2, 3]).astype(dtype).tolist()


def test_operators_in_place_keep_shape_and_kind():
    x = remat.arange(3)
    for wrong in (lambda: operator.iadd(x, remat.ones(3)), lambda: operator.itruediv(x, 2), lambda: operator.iadd(x, "a")):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError):
        operator.iadd(x, remat.arange(6).reshape(2, 3))
    with pytest.raises(TypeError):
        operator.iadd(remat.zeros(2, dtype="uint8"), remat.zeros(2, dtype="int64"))
    y = remat.zeros(2)
    y += remat.ones(2, dtype="float64")
    assert y.dtype == remat.float32 and y.tolist() == [1.0, 1.0] and x.tolist() == [0, 1, 2]
    m = remat.tensor([[0.0, 1.0], [1.0, 0.0]])
    m @= m
    assert m.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_gradients_flow_through_operators_in_place():
    w = remat.tensor([1.0, 2.0], requires_grad=True)
    y = w * 2
    z = y
    y *= w
    y[0] += w[1]
    assert z is y
    y.sum().backward()
    assert w.grad.tolist() == [4.0, 9.0]
    with pytest.raises(ValueError, match="no_grad"):
        w += 1
    with remat.no_grad():
        w -= 0.5 * w.grad
    assert w.requires_grad and w.is_leaf and w.tolist() == [-1.0, -2.5] and w.grad.tolist() == [4.0, 9.0]
    p = remat.nn.Parameter(remat.ones(2))
    (p * 3).sum().backward()
    same_object = p
    with pytest.raises(ValueError, match="no_grad"):
        p -= 1
    with remat.no_grad():
        p -= p.grad
    assert p is same_object and p.tolist() == [-2.0, -2.0] and p.is_trained
