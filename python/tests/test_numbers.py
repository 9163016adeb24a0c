"""Numbers far from 1, and numbers that a dtype cannot hold: right, or told."""
import numpy as np
import pytest

import remat
from remat import nn, optim

F = nn.functional


def test_a_number_that_the_dtype_cannot_hold_is_told_where_a_tensor_is_made():
    for make in (
        lambda: remat.tensor([300], dtype="uint8"), lambda: remat.asarray([-1], dtype="uint8"), lambda: remat.full((2,), 300, dtype="uint8"),
        lambda: remat.asarray(2**40, dtype="int32"), lambda: remat.full_like(remat.zeros(2, dtype="int8"), 200),
        lambda: remat.tensor([float("nan")], dtype="int32"), lambda: remat.tensor([[1, 2], [3, 1e20]], dtype="int64"),
    ):
        with pytest.raises(remat.ArgumentError, match="does not fit"):
            make().tolist()
    assert remat.tensor([255, 1.9], dtype="uint8").tolist() == [255, 1]
    assert remat.tensor([2**64 - 1]).dtype == remat.uint64 and remat.tensor([-128], dtype="int8").item() == -128
    for low, high, dtype in ((0, 257, "uint8"), (-5, 5, "uint8"), (0, 2**40, "int32"), (0, 200, "int8")):
        with pytest.raises(remat.ArgumentError, match="wider"):
            remat.randint(low, high, (10,), dtype=dtype)
    x = remat.randint(-128, 128, (10_000,), dtype="int8", generator=remat.Generator(1))
    assert (x.min().item(), x.max().item()) == (-128, 127)


def test_uniform_numbers_of_16_bits_are_below_1():
    g = remat.Generator(1)
    for dtype in ("float16", "bfloat16"):
        x = remat.rand(1_000_000, dtype=dtype, generator=g).float()
        assert 0 <= x.min().item() and x.max().item() < 1, dtype


def test_draws_by_weights_never_give_what_has_none():
    def draw(weights, n, replacement):
        return remat.multinomial(remat.tensor(weights), n, replacement=replacement, generator=remat.Generator(1)).tolist()

    with pytest.raises(remat.ArgumentError, match="1 weights above 0, and 3 are needed"):
        draw([0.0, 1.0, 0.0, 0.0], 3, False)
    assert sorted(draw([0.0, 1.0, 0.0, 1e-30], 2, False)) == [1, 3] and draw([0.0, 1.0], 3, True) == [1, 1, 1]
    for weights in ([0.0, 0.0], [-1.0, 2.0], [float("nan"), 1.0], [float("inf"), 1.0], [[1.0, 1.0], [0.0, 0.0]]):
        for replacement in (False, True):
            with pytest.raises(remat.ArgumentError, match="row"):
                draw(weights, 1, replacement)


def test_small_concentrations_stay_on_the_simplex():
    g = remat.Generator(3)
    for a in (0.03, 0.001):
        p = remat.dirichlet_sample(remat.full((4000, 3), a), g.key()).numpy()
        assert np.abs(p.sum(1) - 1).max() < 1e-5 and np.abs(p.mean(0) - 1 / 3).max() < 0.03, a
        b = remat.beta_sample(remat.full((40_000,), a), remat.full((40_000,), 3 * a), g.key()).numpy()
        assert abs(b.mean() - 0.25) < 0.012 and ((b >= 0) & (b <= 1)).all(), a
    # the derivative of the mean of a beta distribution: b / (a + b)^2
    a = remat.full((200_000,), 0.5, dtype="float64").requires_grad_()
    remat.beta_sample(a, remat.full((200_000,), 1.5, dtype="float64"), g.key()).mean().backward()
    assert abs(a.grad.sum().item() - 1.5 / 4) < 0.01
    a = remat.full((400_000,), 0.02, dtype="float64").requires_grad_()
    remat.beta_sample(a, remat.full((400_000,), 0.05, dtype="float64"), g.key()).mean().backward()
    assert abs(a.grad.sum().item() / (0.05 / 0.07**2) - 1) < 0.1


def test_singular_values_do_not_depend_on_the_scale():
    m = np.random.default_rng(1).normal(size=(6, 4))
    want = np.linalg.svd(m, compute_uv=False)
    for dtype, scales in (("float32", (1e-25, 1e-21, 1e22, 1e30)), ("float64", (1e-200, 1e-160, 1e170, 1e250))):
        for scale in scales:
            a = remat.asarray((m * scale).astype(dtype))
            np.testing.assert_allclose(remat.svdvals(a).numpy().astype("float64") / scale, want, rtol=1e-4)
            assert remat.matrix_rank(a).item() == 4
            np.testing.assert_allclose(remat.pinv(a).numpy().astype("float64") @ (m * scale), np.eye(4), atol=1e-4)
            x = remat.asarray(np.arange(4.0).astype(dtype))
            np.testing.assert_allclose(remat.lstsq(a, a @ x).numpy(), x.numpy(), atol=1e-3)


def test_cosines_and_distances_do_not_overflow_where_their_results_fit():
    f = F.cosine_similarity
    for x in (remat.full((1, 3), 1e20), remat.full((1, 4), 300.0, dtype="float16"), remat.full((1, 4), 1e200, dtype="float64")):
        assert abs(f(x, x).item() - 1.0) < 1e-2, x.dtype
        assert abs(f(x, x[:, :1]).item() - 1.0) < 1e-2, "one that broadcasts"
    half = remat.full((1, 4), 300.0, dtype="float16")
    assert remat.cdist(half, half * 0).item() == 600.0
    assert abs(F.pairwise_distance(half, half * 0, 3.0).item() - 476.0) < 2.0
    for scale, dtype in ((1e20, "float32"), (1e-25, "float32"), (1e200, "float64")):
        a, b = (remat.asarray((np.array(v) * scale).astype(dtype)) for v in ([[3.0, 0.0], [0.0, 0.0]], [[0.0, 4.0], [0.0, 0.0]]))
        for p in (2.0, 3.0):
            want = [[(3**p + 4**p) ** (1 / p), 3.0], [4.0, 0.0]]
            np.testing.assert_allclose(remat.cdist(a, b, p).numpy() / scale, want, rtol=1e-5)
        near = F.pairwise_distance(a, b, 3.0, eps=0.0).numpy() / scale
        np.testing.assert_allclose(near, [91 ** (1 / 3), 0.0], rtol=1e-5)


def test_cosines_and_distances_have_the_gradients_of_pytorch():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x0, y0 = rng.normal(size=(3, 1, 5)), rng.normal(size=(4, 5))
    cases = {
        "cosine": (lambda f, x, y: f.cosine_similarity(x, y, -1)), "p3": (lambda f, x, y: f.pairwise_distance(x, y, 3.0)),
        "p1.5": (lambda f, x, y: f.pairwise_distance(x, y, 1.5, keepdim=True)),
    }
    for name, case in cases.items():
        x, y = (remat.tensor(v, requires_grad=True) for v in (x0, y0))
        tx, ty = (torch.tensor(v, requires_grad=True) for v in (x0, y0))
        got, want = case(F, x, y), case(torch.nn.functional, tx, ty)
        np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=1e-12, err_msg=name)
        (got * got).sum().backward()
        (want * want).sum().backward()
        for g, w in ((x.grad, tx.grad), (y.grad, ty.grad)):
            np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)


def test_norm_layers_of_any_scale_normalise():
    x = np.random.default_rng(0).normal(size=(4, 8))
    want = (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    for scale in (1e20, 1e25, 1e35):
        t = remat.asarray((x * scale).astype("float32")).requires_grad_()
        y = F.layer_norm(t, 8)
        np.testing.assert_allclose(y.detach().numpy(), want, atol=1e-3)
        (y * y * y).sum().backward()
        u = remat.tensor(x, requires_grad=True)
        (F.layer_norm(u, 8, eps=0.0) ** 3).sum().backward()
        np.testing.assert_allclose(t.grad.numpy().astype("float64") * scale, u.grad.numpy(), atol=1e-3)
        np.testing.assert_allclose(remat.rms_norm(remat.full((1, 4), scale), remat.ones(4)).numpy(), 1.0, atol=1e-3)


def test_parameters_of_f64_move_by_a_rate_of_f64():
    for kind in (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.Adagrad, optim.NAdam, optim.RAdam, optim.Adamax):
        p = nn.Parameter(remat.zeros(1, dtype="float64"))
        other = nn.Parameter(remat.zeros(1))
        o = kind([p, other], lr=0.1)
        p.grad, other.grad = remat.ones(1, dtype="float64"), remat.ones(1)
        o.step()
        first = p.item()
        # to f32 the rate would be rounded by 1.5e-9
        q = nn.Parameter(remat.zeros(1, dtype="float64"))
        o = kind([q], lr=0.2)
        q.grad = remat.ones(1, dtype="float64")
        o.step()
        assert abs(q.item() / 2 - first) < 1e-14 and abs(other.item() - first) < 1e-6, kind.__name__
    p = nn.Parameter(remat.zeros(1, dtype="float64"))
    o = optim.SGD([p], lr=0.1)
    p.grad = remat.ones(1, dtype="float64")
    o.step()
    assert p.item() == -0.1


def test_the_logarithm_of_a_sum_keeps_the_digits_of_the_smaller_ones():
    x = remat.tensor(np.array([0.0, -40.0]))
    want = np.logaddexp(0.0, -40.0)
    assert abs(x.logsumexp().item() / want - 1) < 1e-12 and abs(x.logcumsumexp(0)[1].item() / want - 1) < 1e-12
    x = remat.tensor(np.array([[-40.0, 3.0, 0.0, 3.0], [-np.inf] * 4]))
    assert x.logsumexp(axis=1).tolist() == [pytest.approx(np.log(2 * np.exp(3.0) + 1 + np.exp(-40.0)), rel=1e-14), -np.inf]


def test_orders_and_axes_stand_where_numpy_and_pytorch_have_them():
    a = np.arange(27.0).reshape(3, 3, 3)
    b = a * 2 + 1
    x, y = remat.asarray(a), remat.asarray(b)
    for axes in (2, 0, 1, ((1, 2), (0, 1)), (1, 0), ([0, 2], [2, 0]), (-1, 0)):
        np.testing.assert_allclose(remat.tensordot(x, y, axes).numpy(), np.tensordot(a, b, axes=axes), rtol=1e-12)
    for axes in ([(1, 0)], 4, ((0, 1), (0,))):
        with pytest.raises(ValueError, match="tensordot"):
            x.tensordot(y, axes)
    for p in (1, 2, 0, 3, float("inf"), -float("inf")):
        np.testing.assert_allclose(x.norm(p).item(), np.linalg.norm(a.reshape(-1), p), rtol=1e-12)
        for axis in (0, -1):
            np.testing.assert_allclose(x.norm(p, axis).numpy(), np.linalg.norm(a, p, axis), rtol=1e-12)
    assert x.norm(axis=1, keepdims=True).shape == (3, 1, 3) and x.norm("fro").item() == x.norm().item() == x.norm(None).item()
    np.testing.assert_allclose(x[0].norm("nuc").item(), np.linalg.norm(a[0], "nuc"), rtol=1e-10)
    for wrong in ("2", "nuc"):
        with pytest.raises(ValueError, match="norm"):
            x.norm(wrong)


def test_integers_between_floats_are_clipped_as_floats():
    x = remat.arange(3)
    assert x.clip(0.5, 1.5).tolist() == [0.5, 1.0, 1.5] and x.clip(0, 1).dtype == remat.int64
    assert x.clip(min=0.5).tolist() == [0.5, 1.0, 2.0] and x.clamp(max=1.5).dtype == remat.float32
    assert x.clip(remat.tensor(0.5)).tolist() == [0.5, 1.0, 2.0]
