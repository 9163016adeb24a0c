import gc
import weakref

import numpy as np
import pytest

import remat


def test_gradients_accumulate_in_leaves():
    x = remat.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x * x).sum().backward()
    (x * x).sum().backward()
    assert x.grad.tolist() == [4.0, 8.0, 12.0]
    x.grad = None
    (x[1:] * 3).sum().backward()
    assert x.grad.tolist() == [0.0, 3.0, 3.0]
    x.grad = remat.ones(3)
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    assert x.is_leaf and not (x * 2).is_leaf and (x * 2).requires_grad and not x.detach().requires_grad


def test_a_copy_of_a_leaf_is_no_leaf_and_is_assigned_to():
    x = remat.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x.clone()
    assert not y.is_leaf and y.requires_grad
    y[0] = 9.0
    y[1:] *= 2
    (y * y).sum().backward()
    assert x.grad.tolist() == [0.0, 16.0, 24.0] and x.tolist() == [1.0, 2.0, 3.0]
    with remat.no_grad():
        assert not x.clone().requires_grad


def test_a_cotangent_and_a_graph_that_stays():
    x = remat.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    y.backward(remat.tensor([1.0, 10.0]), retain_graph=True)
    assert x.grad.tolist() == [2.0, 40.0]
    y.sum().backward()
    assert x.grad.tolist() == [4.0, 44.0]
    with pytest.raises(remat.NoValueError):
        y.sum().backward()


def test_grad_of_grad_and_of_what_does_not_depend():
    x = remat.tensor([2.0], requires_grad=True)
    z = remat.tensor([2.0], requires_grad=True)
    dx, dz = remat.grad(x**3, [x, z], create_graph=True)
    assert dx.tolist() == [12.0] and dz is None
    assert remat.grad(dx, x).tolist() == [12.0]
    assert x.grad is None
    with pytest.raises(remat.NotDifferentiableError):
        remat.ones(1).backward()


def test_no_grad_is_a_context_and_a_decorator():
    x = remat.tensor([2.0], requires_grad=True)
    guard = remat.no_grad()
    with guard:
        assert not remat.is_grad_enabled() and not (x * 2).requires_grad
        with guard:
            assert not remat.is_grad_enabled()
        assert not remat.is_grad_enabled()
    assert remat.is_grad_enabled()

    @remat.no_grad()
    def f():
        raise KeyError("as itself")

    with pytest.raises(KeyError):
        f()
    assert remat.is_grad_enabled()


def test_a_hook_sees_the_gradient_and_its_exception_comes_out():
    x = remat.tensor([1.0], requires_grad=True)
    seen = []
    handle = x.register_hook(lambda g: seen.append(g.tolist()))
    (x * 3).sum().backward()
    assert seen == [[3.0]]
    handle.remove()
    handle.remove()
    (x * 3).sum().backward()
    assert seen == [[3.0]]

    class Mine(Exception):
        pass

    def fails(g):
        raise Mine("from the hook")

    x.register_hook(fails)
    with pytest.raises(Mine, match="from the hook") as e:
        (x * 3).sum().backward()
    assert any(entry.name == "fails" for entry in e.traceback)
    with pytest.raises(ValueError):
        (x * 2).register_hook(print)


class Scaled(remat.Function):
    @staticmethod
    def forward(ctx, x, factor, y):
        ctx.save_for_backward(x, y)
        ctx.factor = factor
        return x * factor, x + y

    @staticmethod
    def backward(ctx, da, db):
        x, y = ctx.saved_tensors
        none = remat.zeros_like(x)
        da, db = none if da is None else da, none if db is None else db
        return da * 100 + db, None, db * 7


def test_a_function_has_the_gradient_that_python_says():
    x = remat.tensor([1.0], requires_grad=True)
    y = remat.tensor([2.0], requires_grad=True)
    a, b = Scaled.apply(x, 5.0, y)
    assert (a.item(), b.item()) == (5.0, 3.0)
    (a.sum() + b.sum()).backward()
    assert (x.grad.item(), y.grad.item()) == (101.0, 7.0)
    a, _ = Scaled.apply(x, 5.0, y)
    a.sum().backward()
    assert x.grad.item() == 201.0


def test_a_wrong_backward_is_told():
    class Wrong(remat.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, dy):
            return remat.ones(5)

    x = remat.tensor([1.0], requires_grad=True)
    with pytest.raises(remat.ShapeError):
        Wrong.apply(x).sum().backward()


def test_a_graph_with_python_functions_is_freed():
    x = remat.tensor([1.0], requires_grad=True)
    a, b = Scaled.apply(x, 5.0, x)
    alive = weakref.ref(a)
    del a, b
    assert alive() is None
    gc.collect()


def test_gradients_are_those_of_differences():
    rng = np.random.default_rng(1)
    w0 = rng.normal(size=(3, 2))
    a = remat.asarray(rng.normal(size=(4, 3)))

    def loss(w):
        return ((a @ w).tanh() ** 2).mean()

    w = remat.tensor(w0, requires_grad=True)
    loss(w).backward()
    got, h = w.grad.numpy(), 1e-5
    for i in np.ndindex(*w0.shape):
        up, down = w0.copy(), w0.copy()
        up[i] += h
        down[i] -= h
        want = (loss(remat.tensor(up)).item() - loss(remat.tensor(down)).item()) / (2 * h)
        assert abs(got[i] - want) < 1e-8 * max(1, abs(want))
