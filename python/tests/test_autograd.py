import asyncio
import gc
import math
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


def test_grad_gives_what_hooks_of_the_inputs_make():
    x = remat.tensor([1.0, 2.0], requires_grad=True)
    other = remat.tensor([1.0, 1.0], requires_grad=True)
    other.register_hook(lambda g: pytest.fail("its gradient is not wanted"))
    handle = x.register_hook(lambda g: g.tanh() * 2)
    want = [2 * math.tanh(2.0), 2 * math.tanh(4.0)]
    assert remat.grad((x * x * other).sum(), x).tolist() == pytest.approx(want)
    compiled = remat.compile(lambda: remat.grad((x * x * other).sum(), [x])[0])
    for _ in range(2):
        assert compiled().tolist() == pytest.approx(want)
    handle.remove()
    assert compiled().tolist() == remat.grad((x * x * other).sum(), x).tolist() == [2.0, 4.0]
    assert x.grad is None


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


class Cube(remat.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * 3 * x * x


class Exp(remat.Function):
    """Its result is what its gradient is made of."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0]


class Squared(remat.Function):
    """Saves what `forward` made on the way: only the first derivative has all parts."""

    @staticmethod
    def forward(ctx, x, as_attribute):
        slope = x * 2
        if as_attribute:
            ctx.slope = slope
        else:
            ctx.save_for_backward(slope)
        return x * x

    @staticmethod
    def backward(ctx, dy):
        return dy * (ctx.saved_tensors or [ctx.slope])[0], None


def test_what_a_function_saved_has_its_history_in_gradients_of_gradients():
    x = remat.tensor(2.0, requires_grad=True)
    g = remat.grad(Cube.apply(x) * x, x, create_graph=True)
    h = remat.grad(g, x, create_graph=True)
    assert (g.item(), h.item(), remat.grad(h, x).item()) == (32.0, 48.0, 48.0)
    # behind another operation, whose part of the history it is
    g = remat.grad(Cube.apply(x * x), x, create_graph=True)
    assert (g.item(), remat.grad(g, x).item()) == (192.0, 480.0)
    y = Exp.apply(x * 2)
    for order in range(1, 4):
        y = remat.grad(y, x, create_graph=True)
        assert abs(y.item() - 2**order * np.exp(4.0)) < 1e-3, order
    # a penalty on gradients, as critics are trained
    w = remat.tensor([1.0, 2.0], requires_grad=True)
    (slope,) = remat.grad(Cube.apply(w * x).sum(), [x], create_graph=True)
    ((slope - 1) ** 2).backward()
    assert w.grad.tolist() == [2 * 107 * 36.0, 2 * 107 * 144.0]


def test_a_value_on_the_way_is_refused_in_gradients_of_gradients_and_not_left_out():
    x = remat.tensor(3.0, requires_grad=True)
    Squared.apply(x, False).backward()
    assert x.grad.item() == 6.0
    g = remat.grad(Squared.apply(x, False), x, create_graph=True)
    assert g.item() == 6.0
    with pytest.raises(remat.NotDifferentiableError, match="made on its way"):
        remat.grad(g, x)
    # an attribute counts as constant, as does what is no number
    g = remat.grad(Squared.apply(x, True) * x, x, create_graph=True)
    assert remat.grad(g, x).item() == 12.0


def test_a_function_that_saved_its_result_is_freed():
    device = remat.Device()
    x = remat.ones(100_000, device=device).requires_grad_()

    def in_use():
        device.sync()
        return device.in_use_bytes

    live = in_use()
    y = Exp.apply(x)
    alive = weakref.ref(y)
    del y
    assert alive() is None and in_use() == live
    Exp.apply(x).sum().backward()
    x.grad = None
    assert in_use() == live


def test_several_elements_have_no_gradient_without_a_cotangent():
    x = remat.ones(2).requires_grad_()
    with pytest.raises(remat.ShapeError, match="sum"):
        (x * 3).backward()
    with pytest.raises(TypeError):
        (x * 3).backward(3.0)
    (x[:1] * 3).backward()
    (x * 3).backward(remat.ones(2))
    assert x.grad.tolist() == [6.0, 3.0]


def test_only_gradients_that_are_asked_for_are_computed():
    device = remat.Device()
    x, w = (remat.ones(64, 64, device=device).requires_grad_() for _ in range(2))
    b = remat.ones(64, device=device).requires_grad_()
    y = ((x @ w + b).tanh() * x).sum()

    def work(of):
        with device.trace() as trace:
            remat.grad(y, of)
            device.sync()
        return sum(e["name"] == "matmul" and e.get("cat") == "execution" for e in trace.events)

    both = work([x, w])
    assert both == 2 and work([w]) == 1 and work([b]) == 0
    assert [g.shape for g in remat.grad(y, [b, w])] == [(64,), (64, 64)]


def test_products_with_zeros_have_all_derivatives():
    x = remat.tensor([2.0, 3.0, 0.0, 0.0], requires_grad=True)
    g = remat.grad(x.prod(), x, create_graph=True)
    assert g.tolist() == [0.0, 0.0, 0.0, 0.0]
    assert remat.grad(g.sum(), x).tolist() == [0.0, 0.0, 6.0, 6.0]
    x = remat.tensor([[2.0, 0.0, 3.0, 5.0, 0.0]], requires_grad=True)
    g = remat.grad(x.prod(axis=1).sum(), x, create_graph=True)
    h = remat.grad(g.sum(), x, create_graph=True)
    assert h.tolist() == [[0.0, 30.0, 0.0, 0.0, 30.0]]
    assert remat.grad(h.sum(), x).tolist() == [[30.0, 62.0, 20.0, 12.0, 62.0]]


def test_what_is_overwritten_has_no_gradient():
    v = remat.tensor([10.0, 20.0], requires_grad=True)
    y = remat.zeros(3)
    y[remat.tensor([0, 0])] = v
    y.sum().backward()
    assert y.tolist() == [20.0, 0.0, 0.0] and v.grad.tolist() == [0.0, 1.0]
    at = remat.tensor([1, 1, 2])
    puts = {
        "scatter": lambda x, s: x.scatter(0, at, s),
        "index_copy": lambda x, s: x.index_copy(0, at, s),
        "put": lambda x, s: x.put(at, s),
    }
    for name, put in puts.items():
        x, s = remat.ones(3).requires_grad_(), remat.tensor([10.0, 20.0, 30.0], requires_grad=True)
        z = put(x, s)
        (z * remat.tensor([1.0, 2.0, 3.0])).sum().backward()
        assert z.tolist() == [1.0, 20.0, 30.0], name
        assert s.grad.tolist() == [0.0, 2.0, 3.0] and x.grad.tolist() == [1.0, 0.0, 0.0], name
    # rows, and a value that broadcasts to all of them
    v = remat.tensor([1.0, 2.0], requires_grad=True)
    y = remat.zeros(3, 2)
    y[remat.tensor([2, 2, 0])] = v
    y.sum().backward()
    assert v.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("stretch, records", [(remat.no_grad, False), (remat.enable_grad, True)])
def test_a_decorated_generator_has_its_own_mode_and_its_caller_too(stretch, records):
    @stretch()
    def numbers(n):
        """Of the generator."""
        got = []
        try:
            for _ in range(n):
                got.append((yield remat.is_grad_enabled()))
        except KeyError:
            yield ("caught", remat.is_grad_enabled())
        finally:
            ends.append(remat.is_grad_enabled())
        return got

    ends = []
    outer = remat.no_grad if records else remat.enable_grad
    with outer():
        g = numbers(2)
        assert next(g) == records and remat.is_grad_enabled() != records
        assert g.send("sent") == records
        with pytest.raises(StopIteration) as end:
            next(g)
        assert end.value.value == ["sent", None] and ends == [records]
        g = numbers(2)
        next(g)
        assert g.throw(KeyError()) == ("caught", records) and remat.is_grad_enabled() != records
        g.close()
        assert ends == [records] * 2 and remat.is_grad_enabled() != records
    assert numbers.__doc__ == "Of the generator."


def test_a_decorated_coroutine_has_its_own_mode_while_others_run():
    @remat.no_grad()
    async def quiet(seen):
        seen.append(remat.is_grad_enabled())
        await asyncio.sleep(0)
        seen.append(remat.is_grad_enabled())
        return "done"

    @remat.no_grad()
    async def several():
        for _ in range(2):
            await asyncio.sleep(0)
            yield remat.is_grad_enabled()

    async def loud(seen):
        for _ in range(4):
            seen.append(remat.is_grad_enabled())
            await asyncio.sleep(0)

    async def both():
        own, others = [], []
        done, _ = await asyncio.gather(quiet(own), loud(others))
        return done, own, others, [x async for x in several()], remat.is_grad_enabled()

    assert asyncio.run(both()) == ("done", [False] * 2, [True] * 4, [False] * 2, True)


def test_a_backward_that_computes_again_takes_gradients_of_that():
    class Cube(remat.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            y = x.detach().requires_grad_()
            if is_told:
                with remat.enable_grad():
                    return remat.grad(y * y * y, y, g)
            return remat.grad(y * y * y, y, g)

    for is_told in (True, False):
        x = remat.tensor(2.0, requires_grad=True)
        Cube.apply(x).backward()
        assert x.grad.item() == 12.0 and not x.grad.requires_grad


@pytest.mark.parametrize("used", [0, 1])
def test_backward_gets_zeros_for_a_result_that_nothing_depends_on(used, device):
    seen = []

    class Two(remat.Function):
        @staticmethod
        def forward(ctx, x, materialises):
            ctx.set_materialize_grads(materialises)
            return x * 0.5, x.sin().sum()

        @staticmethod
        def backward(ctx, *dy):
            seen.append([d if d is None else d.tolist() for d in dy])
            return next(d for d in dy if d is not None) * remat.ones(3), None

    x = remat.ones(3).requires_grad_()
    for materialises in (True, False):
        Two.apply(x, materialises)[used].sum().backward()
    none = [[0.0, 0.0, 0.0], 0.0]
    ones = [[1.0, 1.0, 1.0], 1.0]
    assert seen[0] == [ones[j] if j == used else none[j] for j in range(2)]
    assert seen[1] == [ones[j] if j == used else None for j in range(2)]
