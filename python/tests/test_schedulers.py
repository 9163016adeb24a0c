"""Schedulers of learning rates set what PyTorch's set, also where something else sets the rate between their steps."""
import math

import pytest

import remat
from remat import nn, optim
from remat.optim import lr_scheduler

np = pytest.importorskip("numpy")

RATES = (1.0, 0.3)
MADE = {
    "StepLR": {"step_size": 2, "gamma": 0.5}, "MultiStepLR": {"milestones": [1, 3, 3], "gamma": 0.5}, "ExponentialLR": {"gamma": 0.7},
    "CosineAnnealingLR": {"T_max": 3, "eta_min": 0.05}, "LambdaLR": {"lr_lambda": lambda epoch: 1 / (epoch + 2)},
}


def optimizer():
    groups = [{"params": [nn.Parameter(remat.ones(1))], "lr": rate} for rate in RATES]
    return optim.SGD(groups, lr=1.0, momentum=0.9)


def rates(of, schedulers, steps, sets=None):
    """The learning rates of both groups before each step. `sets` maps a step to the rate that the program gives the first group there."""
    seen = []
    for k in range(steps):
        seen.append([g["lr"] for g in of.param_groups])
        if sets and k in sets:
            of.param_groups[0]["lr"] = sets[k]
        for s in schedulers:
            s.step()
    return np.array(seen)


def made(name, of, library=lr_scheduler):
    return getattr(library, name)(of, **MADE[name])


def test_a_rate_that_the_program_sets_is_gone_on_from():
    of = optimizer()
    seen = rates(of, [made("StepLR", of)], 5, {0: 0.008})
    assert seen[:, 0].tolist() == [1.0, 0.008, 0.004, 0.004, 0.002] and seen[:, 1].tolist() == [0.3, 0.3, 0.15, 0.15, 0.075]
    of = optimizer()
    assert rates(of, [made("MultiStepLR", of)], 5, {1: 0.5})[:, 0].tolist() == [1.0, 0.5, 0.5, 0.125, 0.125]
    of = optimizer()
    assert rates(of, [made("ExponentialLR", of)], 3, {0: 0.5})[:, 0].tolist() == [1.0, 0.35, 0.35 * 0.7]
    of = optimizer()
    wave = [(1 + math.cos(math.pi * k / 3)) / 2 for k in range(4)]
    seen = rates(of, [made("CosineAnnealingLR", of)], 4, {0: 0.5})[:, 0]
    assert np.allclose(seen[1:], [0.05 + 0.45 * w for w in wave[1:]], rtol=1e-14)
    of = optimizer()
    assert rates(of, [made("LambdaLR", of)], 3, {0: 7.0})[:, 0].tolist() == [0.5, 1 / 3, 0.25], "LambdaLR says what the rate is"


def test_two_schedulers_go_on_from_each_other():
    of = optimizer()
    seen = rates(of, [made("ExponentialLR", of), made("StepLR", of)], 3)[:, 0]
    assert np.allclose(seen, [1.0, 0.7, 0.7 * 0.7 * 0.5], rtol=1e-14)
    of = optimizer()
    made("LambdaLR", of)
    assert made("LambdaLR", of).base_lrs == [1.0, 0.3], "the rates before any scheduler set them"


@pytest.mark.parametrize("name", [name for name in MADE if name != "LambdaLR"])
def test_a_saved_scheduler_goes_on(name):
    of, again = optimizer(), optimizer()
    scheduler, other = made(name, of), made(name, again)
    rates(of, [scheduler], 2, {1: 0.2})
    other.load_state_dict(scheduler.state_dict())
    assert rates(again, [other], 4).tolist() == rates(of, [scheduler], 4).tolist()


@pytest.mark.parametrize("second", [None, *MADE])
@pytest.mark.parametrize("name", MADE)
def test_rates_are_those_of_pytorch(name, second):
    torch = pytest.importorskip("torch")
    for sets in (None, {1: 0.007, 4: 0.2}):
        mine = optimizer()
        theirs = torch.optim.SGD([{"params": [torch.nn.Parameter(torch.ones(1))], "lr": rate} for rate in RATES], lr=1.0)
        both = []
        for of, library in ((mine, lr_scheduler), (theirs, torch.optim.lr_scheduler)):
            names = [name] if second is None else [name, second]
            both.append(rates(of, [made(n, of, library) for n in names], 10, sets))
        assert np.allclose(both[0], both[1], rtol=1e-13, atol=0), (sets, both)


def test_a_scheduler_of_ones_own_says_the_rates():
    class Growing(lr_scheduler.LRScheduler):
        def get_lr(self):
            return [base * (self.last_epoch + 1) for base in self.base_lrs]

    of = optimizer()
    assert rates(of, [Growing(of)], 3)[:, 0].tolist() == [1.0, 2.0, 3.0]


def test_the_last_rate_is_the_schedulers_own():
    of = optimizer()
    step, exponential = made("StepLR", of), made("ExponentialLR", of)
    for _ in range(2):
        step.step(), exponential.step()
    assert step.get_last_lr() == [0.35, 0.105] and exponential.get_last_lr() == [0.35 * 0.7, 0.105 * 0.7]
    of.param_groups[0]["lr"] = 3.0
    assert step.get_last_lr() == [0.35, 0.105]
    plateau = lr_scheduler.ReduceLROnPlateau(of, patience=0)
    assert plateau.get_last_lr()[0] == 3.0
