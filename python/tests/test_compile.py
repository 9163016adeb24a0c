import time

import pytest

import remat
from remat import _support, nn, optim
from remat.nn import functional as F


def stack(x, widths, w):
    for _ in range(widths):
        x = (x @ w).tanh()
    return x


def test_random_numbers_are_drawn_anew_in_every_run_as_without_compiling(device):
    def noisy(x):
        mask = F.dropout(x, 0.5)
        return x + remat.randn_like(x), mask, remat.rand(3), remat.randint(100, size=4), remat.randperm(5)

    f = remat.compile(noisy)
    x = remat.ones(8)
    remat.manual_seed(11)
    plain = [[t.tolist() for t in noisy(x)] for _ in range(3)]
    counter = _support.default_generator().counter
    remat.manual_seed(11)
    compiled = [[t.tolist() for t in f(x)] for _ in range(3)]
    assert compiled == plain and plain[0] != plain[1] and f.traces == 1
    # tracing draws nothing
    assert _support.default_generator().counter == counter


def test_a_generator_of_its_own_goes_on_through_runs(device):
    g = remat.Generator(5)
    f = remat.compile(lambda x: x + remat.rand(2, generator=g))
    first = [f(remat.zeros(2)).tolist() for _ in range(2)]
    assert g.counter == 2
    state = g.get_state()
    third = f(remat.zeros(2)).tolist()
    g.set_state(state)
    assert f(remat.zeros(2)).tolist() == third and third not in first
    g.manual_seed(5)
    assert [f(remat.zeros(2)).tolist() for _ in range(2)] == first


def test_a_step_that_draws_within_its_model_is_compiled(device):
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 4)

        def forward(self, x):
            h = self.a(x)
            return self.b(h + 0.1 * remat.randn_like(h))

    def train(compiled):
        remat.manual_seed(2)
        net = Noisy()
        optimizer = optim.Adam(net.parameters(), lr=0.01)

        def step(x):
            loss = ((net(x) - x) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        f = remat.compile(step) if compiled else step
        return [f(remat.ones(3, 4)).item() for _ in range(5)]

    losses = train(True)
    assert losses == train(False) and losses[-1] < losses[0]


def test_plans_say_what_a_run_takes(device):
    w = remat.randn(64, 64)
    w.requires_grad_()

    def gradient(x):
        loss = stack(x, 12, w).sum()
        return remat.grad(loss, w)

    free = remat.compile(gradient)
    assert free.plans == []
    x = remat.randn(256, 64)
    a = free(x).tolist()
    (without,) = free.plans
    assert without.recomputed_calls == 0 and without.planned_ns is None and without.input_bytes == 256 * 64 * 4
    with pytest.raises(remat.BudgetError) as e:
        remat.compile(gradient, memory_budget="64KiB")(x)
    least = e.value.smallest_feasible_bytes
    assert least < takes(without)
    tight = remat.compile(gradient, memory_budget=least)
    assert tight(x).tolist() == a
    end = time.monotonic() + 60
    while not tight.is_settled and time.monotonic() < end:
        assert tight(x).tolist() == a
    (within,) = tight.plans
    assert within.recomputed_calls > 0 and within.arena_bytes < without.arena_bytes and takes(within) <= least
    assert within.bound_ns <= within.planned_ns and within.base_ns <= within.planned_ns
    assert "operations run again, as planned" in str(within) and tight.is_settled and tight(x).tolist() == a
    free(remat.randn(8, 64))
    assert len(free.plans) == 2


def takes(plan):
    return plan.arena_bytes + plan.state_bytes + plan.input_bytes + plan.output_bytes


def test_options_that_are_wrong_are_told(device):
    x = remat.ones(2)
    for options, text in [
        ({"level": 4}, "level 4 is none of 0 to 3"), ({"forms": 0}, "forms=0"), ({"half": "int8"}, "neither float16 nor bfloat16"),
        ({"memory_budget": "12 parsecs"}, "12 parsecs is no budget"),
    ]:
        with pytest.raises(ValueError, match=text):
            remat.compile(lambda x: x * 2, **options)(x)


def test_inference_freezes_parameters(device):
    net = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4)).eval()
    f = remat.compile(net, level=3, freeze=True)
    x = remat.randn(2, 1, 8, 8)
    with remat.no_grad():
        before = f(x)
        assert bool(((before - net(x)).abs() < 1e-5).all())
        net[0].load_state_dict({"weight": net[0].weight * 2})
        assert bool(((f(x) - net(x)).abs() < 1e-5).all()) and f.traces == 2
    assert f.plans[-1].state_bytes == 0 and f.plans[-1].constant_bytes > 0


def test_values_in_half_precision_take_less(device):
    def f(x):
        return stack(x, 4, remat.ones(64, 64) / 64)

    x = remat.rand(512, 64)
    whole, half = remat.compile(f), remat.compile(f, half="bfloat16")
    assert bool(((whole(x) - half(x)).abs() < 0.05).all())
    assert half.plans[0].arena_bytes < whole.plans[0].arena_bytes
