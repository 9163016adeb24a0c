"""Learning rates as functions of the step, and one that follows a measurement."""
from typing import Any, Dict, List

from . import _remat
from ._support import plain


class Schedule:
    """A learning rate for each step, counted from 0. A schedule is a value: it keeps no position.

    >>> import remat
    >>> s = remat.optim.cosine(lr=0.2, steps=100).after_warmup(10)
    >>> s.at(0), s.at(10), s.at(110)
    (0.02, 0.2, 0.0)
    """

    def __init__(self, of: Dict[str, Any]):
        self._of = of
        self._schedule = _remat._Schedule(of)

    def at(self, step: int) -> float:
        """The learning rate of a step."""
        return self._schedule.at(step)

    def after_warmup(self, steps: int) -> "Schedule":
        """This schedule after a warm-up of `steps` steps, in which the rate grows to its first value."""
        return Schedule({"warmup": {"steps": steps, "then": self._of}})

    def __reduce__(self) -> Any:
        return Schedule, (self._of,)

    def __repr__(self) -> str:
        return f"Schedule({self._of})"


def constant(lr: float) -> Schedule:
    """One rate.

    >>> import remat
    >>> remat.optim.constant(0.5).at(9)
    0.5
    """
    return Schedule({"constant": {"lr": lr}})


def step(lr: float, every: int, gamma: float) -> Schedule:
    """`lr gamma^floor(step / every)`.

    >>> import remat
    >>> [remat.optim.step(1.0, every=2, gamma=0.5).at(i) for i in range(4)]
    [1.0, 1.0, 0.5, 0.5]
    """
    return Schedule({"step": {"lr": lr, "every": every, "gamma": gamma}})


def multi_step(lr: float, at: List[int], gamma: float) -> Schedule:
    """`lr gamma^k`, where `k` is the number of milestones at or before the step.

    >>> import remat
    >>> [remat.optim.multi_step(1.0, at=[1, 3], gamma=0.5).at(i) for i in range(4)]
    [1.0, 0.5, 0.5, 0.25]
    """
    return Schedule({"multi_step": {"lr": lr, "at": at, "gamma": gamma}})


def cosine(lr: float, steps: int, min: float = 0.0) -> Schedule:
    """`min + (lr - min) (1 + cos(pi step / steps)) / 2`, and `min` from `steps` on (Loshchilov and Hutter, ICLR 2017).

    >>> import remat
    >>> remat.optim.cosine(1.0, steps=2).at(0), remat.optim.cosine(1.0, steps=2, min=0.25).at(9)
    (1.0, 0.25)
    """
    return Schedule({"cosine": {"lr": lr, "min": min, "steps": steps}})


def linear(lr: float, end: float, steps: int) -> Schedule:
    """From `lr` to `end` in a straight line.

    >>> import remat
    >>> remat.optim.linear(1.0, end=0.0, steps=4).at(1)
    0.75
    """
    return Schedule({"linear": {"lr": lr, "end": end, "steps": steps}})


def exponential(lr: float, gamma: float) -> Schedule:
    """`lr gamma^step`.

    >>> import remat
    >>> remat.optim.exponential(1.0, gamma=0.5).at(3)
    0.125
    """
    return Schedule({"exponential": {"lr": lr, "gamma": gamma}})


def polynomial(lr: float, end: float, steps: int, power: float) -> Schedule:
    """`end + (lr - end) (1 - step / steps)^power`, and `end` from `steps` on.

    >>> import remat
    >>> [remat.optim.polynomial(lr=5.0, end=1.0, steps=2, power=2.0).at(i) for i in (0, 1, 2)]
    [5.0, 2.0, 1.0]
    """
    return Schedule({"polynomial": {"lr": lr, "end": end, "steps": steps, "power": power}})


def cosine_restarts(lr: float, steps: int, factor: int = 1, min: float = 0.0) -> Schedule:
    """`cosine` repeated, each time over `factor` times as many steps (Loshchilov and Hutter, ICLR 2017, equation 5).

    >>> import remat
    >>> [remat.optim.cosine_restarts(lr=1.0, steps=2, factor=3).at(i) for i in (0, 2, 8)]
    [1.0, 1.0, 1.0]
    """
    return Schedule({"cosine_restarts": {"lr": lr, "min": min, "steps": steps, "factor": factor}})


def one_cycle(
    max_lr: float, steps: int, pct_start: float = 0.3, div_factor: float = 25.0, final_div_factor: float = 1e4,
    anneal_strategy: str = "cos", three_phase: bool = False,
) -> Schedule:
    """One cycle of the rate (Smith and Topin, 2017): from `max_lr / div_factor` up to `max_lr`, then down to the first
    rate divided by `final_div_factor`. The rate moves in half waves of a cosine, or in straight lines (`linear`). It is
    only the rate of PyTorch's `OneCycleLR`: `lr_scheduler.OneCycleLR` cycles the momentum too.

    >>> import remat
    >>> s = remat.optim.one_cycle(max_lr=1.0, steps=10, pct_start=0.5)
    >>> round(s.at(0), 3), s.at(4)
    (0.04, 1.0)
    """
    if anneal_strategy not in ("cos", "linear"):
        raise ValueError(f"anneal_strategy is `cos` or `linear`, not `{anneal_strategy}`")
    cycle = {
        "max": max_lr, "steps": steps, "rise": pct_start, "div": div_factor, "final_div": final_div_factor,
        "linear": anneal_strategy == "linear", "three_phase": three_phase,
    }
    return Schedule({"one_cycle": cycle})


def inverse_sqrt(lr: float, warmup: int) -> Schedule:
    """`lr min((step + 1) / warmup, sqrt(warmup / (step + 1)))` (Vaswani et al., 2017, equation 3).

    >>> import remat
    >>> [remat.optim.inverse_sqrt(lr=2.0, warmup=4).at(i) for i in (0, 3, 15)]
    [0.5, 2.0, 1.0]
    """
    return Schedule({"inverse_sqrt": {"lr": lr, "warmup": warmup}})


def chained(schedules: List[Schedule]) -> Schedule:
    """The product of all schedules. Give all but the first an `lr` of 1.

    >>> import remat
    >>> remat.optim.chained([remat.optim.constant(0.5), remat.optim.exponential(1.0, 0.5)]).at(1)
    0.25
    """
    return Schedule({"chained": {"of": [s._of for s in schedules]}})


def sequential(schedules: List[Schedule], milestones: List[int]) -> Schedule:
    """One schedule after the other, each from its beginning. At each milestone the next one begins.

    >>> import remat
    >>> s = remat.optim.sequential([remat.optim.constant(3.0), remat.optim.constant(1.0)], [2])
    >>> [s.at(i) for i in (1, 2)]
    [3.0, 1.0]
    """
    return Schedule({"sequential": {"of": [s._of for s in schedules], "at": list(milestones)}})


class Plateau:
    """A learning rate that shrinks when a measurement does not improve, as PyTorch's `ReduceLROnPlateau`. It treats
    figures below 0 as `lr_scheduler.ReduceLROnPlateau` here does. Errors: ArgumentError for a factor that is not at
    least 0 and below 1.

    >>> import remat
    >>> plateau = remat.optim.Plateau(lr=1.0, factor=0.5, patience=0)
    >>> [plateau.observe(loss) for loss in (3.0, 2.0, 2.0)], plateau.best
    ([1.0, 1.0, 0.5], 2.0)
    """

    def __init__(
        self, lr: float, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: float = 0.0, eps: float = 1e-8,
    ):
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(f"mode is `min` or `max`, threshold_mode `rel` or `abs`; not `{mode}` and `{threshold_mode}`")
        options = {
            "maximize": mode == "max", "factor": factor, "patience": patience, "threshold": threshold,
            "relative": threshold_mode == "rel", "cooldown": cooldown, "min": min_lr, "eps": eps,
        }
        self._of = _remat._Plateau(plain(lr), options)

    @property
    def lr(self) -> float:
        """The learning rate."""
        return self._of.lr

    @property
    def best(self) -> Any:
        """The best measurement so far, or None."""
        return self._of.best

    def observe(self, measured: float) -> float:
        """Takes a measurement, and returns the learning rate from now on. A NaN never counts as an improvement."""
        return self._of.observe(measured)

    def state_dict(self) -> Dict[str, Any]:
        """Options and position, for `load_state_dict`. They may be the `user` of a `Checkpoint`."""
        state: Dict[str, Any] = self._of.get_state()
        return state

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on from a state that `state_dict` returned. Errors: ValueError."""
        self._of.set_state(state)
