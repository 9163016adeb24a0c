import copy
import pickle

import numpy as np
import pytest

import remat


def same(x, y):
    """The bits of a tensor are those of an array."""
    a = x.numpy()
    assert a.dtype == y.dtype and a.shape == y.shape, (a.dtype, y.dtype, a.shape, y.shape)
    np.testing.assert_array_equal(a, y)


def test_every_dtype_goes_in_and_out_of_numpy():
    names = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
    for name in names:
        a = np.array([[0, 1, 2], [3, 4, 5]]).astype(name)
        x = remat.asarray(a)
        assert x.dtype.name == name and x.dtype == getattr(remat, name)
        same(x, a)
        same(remat.asarray(a.T[:, ::-1]), a.T[:, ::-1])
        same(remat.asarray(a.astype(a.dtype.newbyteorder(">"))), a)
    same(remat.asarray(np.zeros((0, 3), "float32")), np.zeros((0, 3), "float32"))


def test_lists_have_numpys_shapes_and_tell_ragged_ones():
    assert remat.tensor([[1, 2], [3, 4]]).dtype == remat.int64
    assert remat.tensor([1.5]).dtype == remat.float32
    assert remat.tensor([True, False]).dtype == remat.bool
    assert remat.tensor([[], []]).shape == (2, 0)
    assert remat.tensor(3).shape == ()
    for ragged in ([[1], [2, 3]], [1, [2]], [[1], 2], [[[1]], [2]]):
        with pytest.raises(ValueError):
            remat.tensor(ragged)
    with pytest.raises(TypeError):
        remat.tensor(["a"])


def indices():
    mask = np.array([[True, False, True, False], [False, False, True, True], [True, True, False, False]])
    i, j = np.array([2, 0, -1]), np.array([[0], [1]])
    return [
        0, -1, slice(None), slice(1, None), slice(None, None, -1), slice(-1, 0, -2), slice(10, None), Ellipsis, None,
        (0, 1), (slice(None), 2), (Ellipsis, 1), (1, Ellipsis), (None, 1, None), (slice(None), None, slice(1, 3)),
        (Ellipsis, slice(None, None, -2)), [0, 2], [[0, 1], [2, 0]], i, (i, 1), (slice(None), [3, 0]), (i, i), (j, i), (i, slice(1, 3), 0),
        (0, slice(None), i), (i, None, i), (slice(None), slice(None), [0, 1]), mask, mask[:, 0], (mask[:, 0], slice(1, 3)),
        (mask, 1), (slice(None), mask[0]), (Ellipsis, [1, 0]), np.int64(1), (np.int64(1), np.array(2)), [],
    ]


@pytest.mark.parametrize("at", indices(), ids=str)
def test_indices_read_as_numpys(at):
    a = np.arange(3 * 4 * 5).reshape(3, 4, 5)
    same(remat.asarray(a)[at], a[at])


@pytest.mark.parametrize("at", indices(), ids=str)
def test_indices_assign_as_numpys(at):
    a = np.arange(3 * 4 * 5).reshape(3, 4, 5)
    x = remat.asarray(a)
    value = -np.arange(a[at].size).reshape(a[at].shape) - 1
    before = a.copy()
    view = x[0]
    a[at] = value
    x[at] = remat.asarray(value)
    same(x, a)
    same(view, before[0])  # a part is a value of its own
    a[at] = 7
    x[at] = 7
    same(x, a)


def test_tensors_index_tensors():
    a = np.arange(12).reshape(3, 4)
    x = remat.asarray(a)
    same(x[remat.tensor([2, 0])], a[[2, 0]])
    same(x[x > 5], a[a > 5])
    x[x > 5] = 0
    same(x, np.where(a > 5, 0, a))


def test_wrong_indices_are_index_errors():
    x = remat.zeros(2, 3)
    for at in [2, -3, (0, 3), (0, 0, 0)]:
        with pytest.raises(IndexError):
            x[at]
    for at in [1.5, "a", [0.5]]:
        with pytest.raises(TypeError):
            x[at]
    with pytest.raises(ValueError):
        x[::0]
    with pytest.raises(ValueError):
        x[0] = remat.zeros(4)


def test_arithmetic_is_numpys_where_dtypes_agree():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.5, 4, (3, 4)).astype("float32"), rng.uniform(0.5, 4, 4).astype("float32")
    x, y = remat.asarray(a), remat.asarray(b)
    for f in [
        lambda p, q: p + q, lambda p, q: p - q, lambda p, q: p * q, lambda p, q: p / q, lambda p, q: p // q, lambda p, q: p % q,
    ]:
        np.testing.assert_allclose(f(x, y).numpy(), f(a, b), rtol=1e-6)
        np.testing.assert_allclose(f(2.0, y).numpy(), f(np.float32(2), b), rtol=1e-6)
        np.testing.assert_allclose(f(x, 2).numpy(), f(a, np.float32(2)), rtol=1e-6)
        np.testing.assert_allclose(f(x, b).numpy(), f(a, b), rtol=1e-6)
        np.testing.assert_allclose(f(a, y).numpy(), f(a, b), rtol=1e-6)
    np.testing.assert_allclose((x @ x.T).numpy(), a @ a.T, rtol=1e-5)
    np.testing.assert_allclose((x**2).numpy(), a**2, rtol=1e-6)
    np.testing.assert_allclose((2.0**y).numpy(), 2.0**b, rtol=1e-6)
    same(-x, -a)
    same(abs(-x), a)
    for f in [lambda p, q: p < q, lambda p, q: p <= q, lambda p, q: p > q, lambda p, q: p >= q, lambda p, q: p == q, lambda p, q: p != q]:
        same(f(x, y), f(a, b))
        same(f(x, 2.0), f(a, np.float32(2)))
    i = np.array([5, -7, 3])
    n = remat.asarray(i)
    for f in [lambda p: p // 2, lambda p: p % 3, lambda p: p & 6, lambda p: p | 8, lambda p: p ^ 5, lambda p: ~p, lambda p: p << 2, lambda p: p >> 1]:
        same(f(n), f(i))
    m = np.array([True, False])
    same(~remat.asarray(m) | True, ~m | True)


def test_promotion_is_the_books():
    assert remat.promote_types("float16", "bfloat16") == remat.float32
    assert (remat.ones(1, dtype="int64") + remat.ones(1, dtype="float16")).dtype == remat.float16
    assert (remat.ones(1, dtype="int32") / remat.ones(1, dtype="int32")).dtype == remat.float32
    assert (remat.ones(1, dtype="float16") * 2).dtype == remat.float16
    with pytest.raises(remat.DTypeError):
        remat.ones(1, dtype="int32") + 0.5
    with pytest.raises(TypeError):
        remat.ones(1) + "a"


def test_reading_a_tensor_as_python_does():
    x = remat.tensor([[1, 2], [3, 4]])
    assert len(x) == 2 and x.tolist() == [[1, 2], [3, 4]] and [r.tolist() for r in x] == [[1, 2], [3, 4]]
    assert remat.tensor(3).item() == 3 and float(remat.tensor([2.5])) == 2.5 and int(remat.tensor(7)) == 7
    assert range(5)[remat.tensor(3)] == 3
    assert remat.tensor(2**63, dtype="uint64").item() == 2**63
    assert bool(remat.tensor(1)) and not bool(remat.tensor([0.0]))
    for wrong in (lambda: x.item(), lambda: bool(x)):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(TypeError):
        len(remat.tensor(1))
    with pytest.raises(TypeError):
        iter(remat.tensor(1))
    assert f"{remat.tensor(1.5):.2f}" == "1.50"
    assert {x: 1}[x] == 1


def test_repr_shows_values_shape_and_dtype():
    assert repr(remat.tensor([[1.0, 2.0], [3.0, 4.5]])) == (
        "tensor([[1.0, 2.0],\n        [3.0, 4.5]], shape=(2, 2), dtype=float32)"
    )
    assert repr(remat.tensor(True)) == "tensor(True, shape=(), dtype=bool)"
    assert repr(remat.zeros(0, 2)) == "tensor([], shape=(0, 2), dtype=float32)"
    assert len(repr(remat.zeros(100, 100))) < 1000


def test_copies_and_pickles_keep_the_value():
    x = remat.tensor([1.0, 2.0], requires_grad=True)
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.tolist() == [1.0, 2.0] and y.requires_grad and y is not x
    y = remat.arange(3)
    z = copy.deepcopy(y)
    z[0] = 9
    assert y.tolist() == [0, 1, 2]
    assert pickle.loads(pickle.dumps(remat.float16)) == remat.float16


def test_dlpack_goes_both_ways_in_both_forms():
    a = np.arange(24, dtype="float32").reshape(2, 3, 4)
    for b in (a, a.T, a[:, ::-1, 1::2], a[0, 0, :1].reshape(()), np.zeros((0, 2), "int8")):
        same(remat.from_dlpack(b), np.ascontiguousarray(b).reshape(b.shape))
    x = remat.asarray(a)
    back = np.from_dlpack(x)
    same(x, back)
    if back.flags.writeable:  # before 2.0 NumPy marks all that it takes as not to be written to
        back[0, 0, 0] = 99  # the consumer's own
    assert x[0, 0, 0].item() == 0
    assert x.__dlpack_device__() == (1, 0)
    capsule = x.__dlpack__()
    assert "dltensor" in repr(capsule) and "versioned" not in repr(capsule)
    same(remat.from_dlpack(capsule), a)
    with pytest.raises(BufferError):
        remat.from_dlpack(capsule)  # taken already
    assert "versioned" in repr(x.__dlpack__(max_version=(1, 0)))
    with pytest.raises(BufferError):
        x.__dlpack__(copy=False)
    with pytest.raises(BufferError):
        remat.ones(1).requires_grad_().__dlpack__()
    with pytest.raises(TypeError):
        remat.from_dlpack(3)


def test_numpy_takes_a_tensor_as_an_array():
    x = remat.arange(4)
    same(x, np.asarray(x))
    assert np.asarray(x, dtype="float32").dtype == np.float32
    if hasattr(np, "isdtype"):  # before 2.0 it meant a copy where one is needed
        with pytest.raises(ValueError):
            np.array(x, copy=False)
    y = x.numpy()
    y[0] = 9
    assert x.tolist() == [0, 1, 2, 3]


def test_both_names_of_an_argument_work():
    x = remat.arange(6).reshape(2, 3)
    assert x.sum(axis=1).tolist() == x.sum(dim=1).tolist() == [3, 12]
    assert x.sum(dim=0, keepdim=True).shape == (1, 3)
    assert x.max(keepdims=True).shape == (1, 1)
    assert x.view(3, 2).shape == x.reshape((3, 2)).shape == (3, 2)
    with pytest.raises(TypeError):
        remat.embedding(remat.ones(2, 2))


def test_creation_has_numpys_forms():
    assert remat.arange(1, 2, 0.5).tolist() == [1.0, 1.5]
    assert remat.full((2,), 2.5).dtype == remat.float32
    assert remat.eye(2, 3, k=1).tolist() == np.eye(2, 3, 1).tolist()
    assert remat.linspace(0, 1, 5).tolist() == [0, 0.25, 0.5, 0.75, 1]
    remat.manual_seed(5)
    a = remat.randn(3)
    remat.manual_seed(5)
    assert a.tolist() == remat.randn(3).tolist() != remat.randn(3).tolist()


def test_uneven_arguments_are_told():
    with pytest.raises(ValueError, match="no dtype"):
        remat.zeros(1, dtype="float31")
    with pytest.raises(ValueError, match="linear"):
        remat.arange(3).astype("float32").quantile(0.5, between="other")
    with pytest.raises(TypeError, match="expected a tensor"):
        remat.exp(3)
