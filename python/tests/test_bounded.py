"""The work of a step under a budget is bounded, and a step that failed is told before its values are read."""
import contextlib
import itertools
import pathlib
import re
import threading

import numpy as np
import pytest

import remat
from remat import nn, optim


def gated(budget, layers, **options):
    """A step of a highway network; its loss, the weights after it, and the device."""
    device = remat.Device(budget=budget, threads=1, foresight="off", **options)
    remat.manual_seed(1)
    net = nn.ModuleList([nn.Sequential(nn.Linear(16, 16, device=device), nn.Tanh()) for _ in range(layers)])
    opt = optim.Adam(net.parameters(), lr=1e-3)
    x = remat.ones(96, 16, device=device)
    for f in net:
        g = x.sigmoid()
        x = g * f(x) + (1 - g) * x
    loss = x.square().mean()
    loss.backward()
    opt.step()
    return loss.item(), [p.numpy().tobytes() for p in net.parameters()], device


def test_gates_take_about_as_many_operators_again_as_there_are():
    loss, weights, free = gated(None, 12, always_record=True)
    for part, most in ((1.0, 0.0), (0.9, 0.5), (0.75, 1.0), (0.5, 3.0)):
        same, again, device = gated(int(free.peak_bytes * part), 12)
        stats = device.report().stats
        assert same == loss and again == weights, part
        assert device.peak_bytes <= free.peak_bytes * part
        assert stats["recomputed_ops"] <= most * stats["executed_ops"], part


def test_too_much_work_is_refused_with_the_limit():
    device = remat.Device(budget="12KiB", threads=1, recompute_limit=1)
    x = remat.ones(1024, device=device)
    made = [x]
    for i in range(40):
        made.append(made[-1].tanh() if i % 2 else made[-1].sin())
    with pytest.raises(remat.BudgetError, match="within 1 times the work") as told:
        [h.sum().item() for h in reversed(made)]
    assert told.value.recompute_limit == 1 and told.value.smallest_feasible_bytes > 12 << 10


def test_what_is_computed_from_a_step_that_was_not_taken_tells_it_once():
    # what the product works in depends on the processor's vectors; `wide` fits by far in neither case
    device = remat.Device(budget="1MiB", threads=1)
    w = nn.Parameter(remat.ones(64, 64, device=device))
    opt = optim.SGD([w], lr=0.1)
    before = w.numpy().copy()
    x = remat.ones(512, 64, device=device)
    (x @ w).sum().backward()
    wide = remat.ones(1 << 20, device=device)
    del wide
    opt.step()
    after = w.detach() * 1
    with pytest.raises(remat.BudgetError):
        after.numpy()
    assert (w.numpy() == before).all()
    assert (w * 2).sum().item() == 2 * 64 * 64


def two_optimisers(budget):
    """Two optimisers step on accumulated gradients while values of the forward passes are kept; the verdict, and what is left as leaves."""
    device = remat.Device(budget=budget, threads=1, async_level="sync", foresight="off")
    draw = np.random.default_rng(17)

    def normal(*shape):
        return remat.tensor((draw.standard_normal(shape) / 4).astype("f4"), device=device)

    weights = [nn.Parameter(normal(16, 16)) for _ in range(6)]
    sgd = optim.SGD(weights[::2], lr=0.01, momentum=0.9)
    adam = optim.Adam(weights[1::2], lr=1e-3)
    kept, leaves = [], None
    try:
        for _ in range(2):
            x = normal(16, 16) * 4
            for _ in range(22):
                w, cell = weights[draw.integers(6)], draw.integers(3)
                if draw.random() < 0.25:
                    kept = [*kept, x.detach() if draw.random() < 0.7 else x][-6:]
                x = (x @ w).tanh() if cell == 0 else x * (x @ w).sigmoid() + x * 0.5 if cell == 1 else x + (x @ w).sin()
            (x * x).mean().backward()
        sgd.step()
        device.sync()
        stats = device.report().stats
        leaves = stats["fixed_bytes"], stats["recipes"]
        adam.step()
        device.sync()
        verdict = "taken"
    except remat.BudgetError:
        verdict = "refused"
    again, asked = device.report().stats["recomputed_ops"], device.report().stats["executed_ops"]
    assert again <= 3 * 8 * asked
    with contextlib.suppress(remat.Error):
        device.close()
    return verdict, leaves


def test_what_a_step_leaves_does_not_depend_on_where_the_worker_stood():
    verdicts = set()
    for budget in range(42_000, 60_001, 750):
        ends = {two_optimisers(budget) for _ in range(6)}
        assert len(ends) == 1, (budget, ends)
        verdicts |= {verdict for verdict, _ in ends}
    assert verdicts == {"taken", "refused"}


def dense(budget):
    """Takes four steps of a network whose layers each read the outputs of all layers before them; returns whether they were taken."""
    device = remat.Device(budget=budget, threads=1, async_level="sync", foresight="off")
    draw = np.random.default_rng(5)

    def normal(*shape):
        return remat.tensor((draw.standard_normal(shape) / 4).astype("f4"), device=device)

    weights = [nn.Parameter(normal(32 * (k + 1), 32)) for k in range(7)]
    adam = optim.Adam(weights, lr=0.01)
    try:
        for _ in range(4):
            adam.zero_grad()
            xs = [normal(256, 32)]
            for w in weights:
                xs.append((remat.concat(xs, 1) @ w).tanh())
            xs[-1].square().mean().backward()
            adam.step()
        device.sync()
        verdict = "taken"
    except remat.BudgetError:
        verdict = "refused"
    with contextlib.suppress(remat.Error):
        device.close()
    return verdict


def test_a_schedule_that_begins_anew_is_followed_from_nothing():
    verdicts = set()
    for budget in range(1_000_000, 1_100_001, 5_000):
        ends = {dense(budget) for _ in range(4)}
        assert len(ends) == 1, (budget, ends)
        verdicts |= ends
    assert verdicts == {"taken", "refused"}


def test_the_smallest_budget_of_a_compiled_step_is_that_of_its_smallest_plan():
    def program():
        remat.manual_seed(3)
        net = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.Tanh()) for _ in range(12)])
        sgd = optim.SGD(net.parameters(), lr=0.1)

        @remat.compile
        def step(x):
            loss = net(x).square().mean()
            loss.backward()
            sgd.step()
            return loss.detach()

        for _ in range(2):
            step(remat.ones(512, 32))
        remat.get_default_device().sync()
        return remat.get_default_device().peak_bytes

    before = remat.get_default_device()
    try:
        remat.set_default_device(remat.Device(threads=1))
        peak = program()
        least = remat.smallest_budget(program)
        assert least < 0.6 * peak
        remat.set_default_device(remat.Device(threads=1, budget=least))
        assert program() <= least
        remat.set_default_device(remat.Device(threads=1, budget=least - peak // 256))
        with pytest.raises(remat.BudgetError, match="the whole run fits"):
            program()
    finally:
        remat.set_default_device(before)


def loop_of_the_book(budget):
    """The losses of the loop of budgets.md, and how often a step was refused."""
    page = (pathlib.Path(__file__).parents[2] / "docs/src/budgets.md").read_text()
    (loop,) = re.findall(r"^```python\n(for _ in range\(steps\):.*?)^```$", page, re.M | re.S)
    before = remat.get_default_device()
    device = remat.Device(budget=budget, threads=1)
    try:
        remat.set_default_device(device)
        remat.manual_seed(5)
        remat.randn(3)  # data before the network
        net = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.Linear(64, 64))
        optimizer = optim.SGD(net.parameters(), lr=0.1)
        scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.9)
        values, refused, set_budget = [], [], device.set_budget

        class Device:
            budget = property(lambda _: device.budget)

            sync = staticmethod(device.sync)

            def set_budget(self, bytes_):
                refused.append(bytes_)
                set_budget(bytes_)

        loop = loop.replace("    scheduler.step()", "    scheduler.step()\n    values.append(value)")
        names = {"steps": 4, "batch": 256, "net": net, "optimizer": optimizer, "scheduler": scheduler, "remat": remat}
        exec(loop, {**names, "device": Device(), "values": values})
        return values, len(refused), optimizer.param_groups[0]["lr"]
    finally:
        remat.set_default_device(before)


def test_the_loop_of_the_book_ends_as_one_that_nothing_interrupted():
    free, refused, rate = loop_of_the_book(None)
    assert refused == 0 and len(free) == 4
    values, refused, same = loop_of_the_book(160 << 10)
    assert refused > 0 and values == free and same == rate


def test_the_smallest_budget_says_what_it_tried():
    def program(device=None):
        net = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(8)])
        if device is not None:
            net = net.to(device)
        for _ in range(2):
            net(remat.ones(256, 64, device=device)).square().mean().backward()

    least, quick = remat.smallest_budget(program), remat.smallest_budget(program, times=1.2)
    assert 0 < least < quick, (least, quick)
    with pytest.raises(ValueError, match="at least as long"):
        remat.smallest_budget(program, times=0.5)
    elsewhere = remat.Device()
    with pytest.raises(ValueError, match="default device"):
        remat.smallest_budget(lambda: remat.ones(4, device=elsewhere).sum())
    with pytest.raises(ValueError, match="default device"):
        remat.largest_batch(lambda batch: remat.ones(batch, device=elsewhere).sum(), "1MiB")


def normed():
    """A small network, its optimiser, and an input."""
    remat.manual_seed(0)
    net = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16))
    x = remat.asarray(np.random.RandomState(0).randn(32, 16).astype("f"))
    return net, optim.SGD(net.parameters(), lr=0.05), x


def on_default_device(f, name="cpu"):
    """Calls `f` with the default device, on one thread, with a budget that is enough for all."""
    before = remat.get_default_device()
    device = remat.Device(name, threads=1, budget=1 << 20)
    remat.set_default_device(device)
    try:
        return f(device)
    finally:
        remat.set_default_device(before)


@pytest.mark.parametrize("room", range(28_000, 40_000, 1_600))
def test_a_compiled_step_beside_what_is_made_of_the_old_parameters_is_taken_or_refused(room):
    def run(device, room):
        net, optimizer, x = normed()

        @remat.compile
        def step(x):
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step(x).item()
        with remat.no_grad():
            kept = net(x)
        device.sync()
        before, want = [p.numpy().tobytes() for p in net.parameters()], kept.numpy().tobytes()
        device.evict_all()
        if room is not None:
            device.set_budget(device.in_use_bytes + room)
        try:
            step(x)
            device.sync()
        except remat.BudgetError:
            device.set_budget(1 << 20)
            assert [p.numpy().tobytes() for p in net.parameters()] == before, "a refused step changes nothing"
            step(x)
        device.set_budget(1 << 20)
        assert kept.numpy().tobytes() == want
        return [p.numpy().tobytes() for p in net.parameters()]

    assert on_default_device(lambda d: run(d, room)) == on_default_device(lambda d: run(d, None))


def test_a_refused_piece_of_a_compiled_step_has_drawn_nothing():
    def run(device, room):
        remat.manual_seed(0)
        net = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Dropout(0.3), nn.Linear(32, 16))
        optimizer = optim.SGD(net.parameters(), lr=0.05)
        x = remat.asarray(np.random.RandomState(0).randn(32, 16).astype("f"))

        @remat.compile
        def step(x):
            h = net(x)
            loss = h.square().mean() + h.masked_select(h > 0).square().sum() * 1e-3
            loss.backward()
            optimizer.step()
            return loss.detach()

        step(x).item()
        device.sync()
        device.evict_all()
        if room is not None:
            device.set_budget(device.in_use_bytes + room)
            with pytest.raises(remat.BudgetError):
                step(x)
            optimizer.zero_grad()
            device.set_budget(1 << 20)
        return step(x).item()

    free = on_default_device(lambda d: run(d, None))
    for room in (10_000, 16_000, 20_000, 22_000):
        assert on_default_device(lambda d: run(d, room)) == free, room


def test_the_budget_that_the_error_of_a_compiled_step_names_suffices_beside_other_tensors():
    def run(device):
        net, optimizer, x = normed()
        other = remat.asarray(np.zeros((10, 32), "f"))

        @remat.compile
        def step(x):
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        device.sync()
        device.set_budget(20 << 10)
        with pytest.raises(remat.BudgetError) as e:
            step(x)
        assert e.value.is_of_run
        device.set_budget(e.value.smallest_feasible_bytes)
        step(x)
        device.sync()
        return other

    on_default_device(run)


def test_another_thread_may_change_the_budget_during_a_call_in_pieces():
    def run(device):
        x = remat.asarray(np.random.RandomState(0).rand(64, 32).astype("f"))
        f = remat.compile(lambda x: x.masked_select(x > 0.5).square().sum())
        want, is_over = f(x).item(), threading.Event()

        def change():
            for k in itertools.count():
                if is_over.is_set():
                    return
                device.set_budget((400 << 10) + k % 50 * (10 << 10))

        other = threading.Thread(target=change)
        other.start()
        try:
            assert {f(x).item() for _ in range(200)} == {want}
        finally:
            is_over.set()
            other.join()

    on_default_device(run)


def test_a_step_in_pieces_that_is_refused_at_a_piece_and_then_at_its_update_has_drawn_nothing():
    def run(device, room):
        remat.manual_seed(0)
        net = nn.Sequential(nn.Linear(16, 32), nn.Dropout(0.3), nn.Linear(32, 16))
        optimizer = optim.SGD(net.parameters(), lr=0.05)
        x = remat.asarray(np.random.RandomState(0).randn(32, 16).astype("f"))

        def step(x):
            h = net(x)
            y, loss = h.masked_select(h > 0), h.square().mean()
            for _ in range(10):
                y = (y * 1.1).tanh()
                loss = loss + y.cumsum(0).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = remat.compile(step, memory_budget="1MiB")
        step(x).item()
        device.sync()
        device.evict_all()
        refused = []
        # there is no room for the key that the first piece draws, and then none for the update
        for more in [16, room] if room else []:
            device.set_budget(device.in_use_bytes + more)
            try:
                step(x)
                device.sync()
                return None, refused
            except remat.BudgetError as e:
                refused.append("update" in str(e))
            finally:
                device.set_budget(1 << 20)
        optimizer.zero_grad()
        return step(x).item(), refused

    for name in ("cpu", "emulated"):
        want, _ = on_default_device(lambda d: run(d, None), name)
        tried = [on_default_device(lambda d: run(d, room), name) for room in range(20_000, 30_000, 500)]
        assert any(refused == [False, True] for _, refused in tried), "an update was refused"
        assert all(got in (None, want) for got, _ in tried), (want, tried)
