"""Learning rates that a scheduler sets between epochs or steps, under the names of `torch.optim.lr_scheduler`.

`remat.optim.Schedule` is a value without a position, so a checkpoint need not hold it. The schedulers here have a
position, as PyTorch programs expect.

    >>> import remat
    >>> optimizer = remat.optim.SGD([remat.nn.Parameter(remat.ones(1))], lr=1.0)
    >>> scheduler = remat.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    >>> rates = []
    >>> for epoch in range(4):
    ...     rates.append(round(optimizer.lr, 4)); scheduler.step()
    >>> rates
    [1.0, 1.0, 0.1, 0.1]
"""
import bisect
import math
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

from .. import _remat
from . import Optimizer, one_cycle


def _first_rates(optimizer: Optimizer) -> List[float]:
    """The rates that the groups had before any scheduler set them."""
    known: List[float] = vars(optimizer).setdefault("_first_rates", [])
    known.extend(g["lr"] for g in optimizer.groups[len(known):])
    return list(known)


class LRScheduler:
    """Sets the rates of an optimiser's groups at once, and again at every `step`. A subclass defines
    `rate(base, epoch)`, from the rate that a group had before any scheduler set it and the number of steps, or
    `get_lr()`, which returns the rates of all groups. A scheduler with `rate` overwrites a rate that the program or
    another scheduler has set meanwhile. Schedulers here that multiply the present rate, as PyTorch's do, go on from it.

    >>> import remat
    >>> class Halved(remat.optim.lr_scheduler.LRScheduler):
    ...     def rate(self, base, epoch):
    ...         return base * 0.5 ** epoch
    >>> optimizer = remat.optim.SGD([remat.nn.Parameter(remat.ones(1))], lr=1.0)
    >>> scheduler = Halved(optimizer); scheduler.step(); scheduler.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer):
        self.optimizer = optimizer
        self.base_lrs: List[float] = _first_rates(optimizer)
        self.last_epoch = 0
        self._set()

    def rate(self, base: float, epoch: int) -> float:
        """The rate of a group that began with `base`, after `epoch` steps."""
        raise NotImplementedError(f"{type(self).__name__} has no `rate`")

    def get_lr(self) -> List[float]:
        """The rate of each group after `last_epoch` steps."""
        return self._from_first_rates()

    def _from_first_rates(self) -> List[float]:
        return [self.rate(base, self.last_epoch) for base in self.base_lrs]

    def _set(self) -> None:
        self._put(self.get_lr())

    def _put(self, rates: Sequence[float]) -> None:
        self._last_lr = [float(rate) for rate in rates]
        for i, rate in enumerate(self._last_lr):
            self.optimizer.set_group(i, lr=rate)

    def step(self) -> None:
        """Moves on by one step, and sets the rates."""
        self.last_epoch += 1
        self._set()

    def get_last_lr(self) -> List[float]:
        """The rate of each group that the last step set."""
        return list(self._last_lr)

    def state_dict(self) -> Dict[str, Any]:
        """The position, the first rates and the present ones, for `load_state_dict`."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs), "_last_lr": self.get_last_lr()}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on from a state that `state_dict` returned, and sets the rates."""
        self.last_epoch, self.base_lrs = int(state["last_epoch"]), [float(v) for v in state["base_lrs"]]
        # older states do not have the present rates
        self._put(state.get("_last_lr") or self._from_first_rates())


class _Following(LRScheduler):
    """A scheduler that computes the next rate from the present one."""

    def next_rate(self, lr: float, base: float) -> float:
        """The rate of a group after step `last_epoch`. The group had `lr` until then."""
        raise NotImplementedError(f"{type(self).__name__} has no `next_rate`")

    def get_lr(self) -> List[float]:
        """The rate of each group after `last_epoch` steps, from its present rate."""
        now = [g["lr"] for g in self.optimizer.groups]
        return now if self.last_epoch == 0 else [self.next_rate(lr, base) for lr, base in zip(now, self.base_lrs)]


class LambdaLR(LRScheduler):
    """`base f(epoch)`, with one function for all groups or one for each. Errors: ValueError for another number of
    functions.

    >>> import remat
    >>> optimizer = remat.optim.SGD([remat.nn.Parameter(remat.ones(1))], lr=1.0)
    >>> scheduler = remat.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
    >>> for _ in range(3):
    ...     scheduler.step()
    >>> round(optimizer.lr, 4)
    0.25
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Union[Callable[[int], float], Sequence[Callable[[int], float]]]):
        groups = len(optimizer.groups)
        self.lr_lambdas = [lr_lambda] * groups if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"{len(self.lr_lambdas)} functions for {groups} groups")
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """Not defined for a single group: each has a function of its own."""
        raise NotImplementedError("each group has a function of its own")

    def _from_first_rates(self) -> List[float]:
        return [base * f(self.last_epoch) for base, f in zip(self.base_lrs, self.lr_lambdas)]


class StepLR(_Following):
    """The present rate times `gamma` at every `step_size`th step: `base gamma^floor(epoch / step_size)` if nothing else
    sets the rate.

    >>> import remat
    >>> optimizer = remat.optim.SGD([remat.nn.Parameter(remat.ones(1))], lr=1.0)
    >>> scheduler = remat.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for _ in range(4):
    ...     scheduler.step()
    >>> round(optimizer.lr, 4)
    0.25
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1):
        if step_size < 1:
            raise ValueError(f"step_size is {step_size}, must be at least 1")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """The rate after `epoch` steps, where nothing else sets it."""
        return base * self.gamma ** (epoch // self.step_size)

    def next_rate(self, lr: float, base: float) -> float:
        """The rate of a group that had `lr`."""
        return lr if self.last_epoch % self.step_size else lr * self.gamma


class MultiStepLR(_Following):
    """The present rate times `gamma` at each milestone: `base gamma^k` after `k` of them, if nothing else sets the
    rate.

    >>> import remat
    >>> optimizer = remat.optim.SGD([remat.nn.Parameter(remat.ones(1))], lr=1.0)
    >>> scheduler = remat.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1, 3], gamma=0.5)
    >>> for _ in range(3):
    ...     scheduler.step()
    >>> round(optimizer.lr, 4)
    0.25
    """

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1):
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """The rate after `epoch` steps, where nothing else sets it."""
        return base * self.gamma ** bisect.bisect_right(self.milestones, epoch)

    def next_rate(self, lr: float, base: float) -> float:
        """The rate of a group that had `lr`."""
        return lr * self.gamma ** self.milestones.count(self.last_epoch)


class ExponentialLR(_Following):
    """The present rate times `gamma` at every step: `base gamma^epoch` if nothing else sets the rate.

    >>> import remat
    >>> optimizer = remat.optim.SGD([remat.nn.Parameter(remat.ones(1))], lr=1.0)
    >>> scheduler = remat.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> for _ in range(2):
    ...     scheduler.step()
    >>> round(optimizer.lr, 4)
    0.25
    """

    def __init__(self, optimizer: Optimizer, gamma: float):
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """The rate after `epoch` steps, where nothing else sets it."""
        return base * self.gamma**epoch

    def next_rate(self, lr: float, base: float) -> float:
        """The rate of a group that had `lr`."""
        return lr * self.gamma


class CosineAnnealingLR(_Following):
    """`eta_min + (base - eta_min) (1 + cos(pi epoch / T_max)) / 2` if nothing else sets the rate (Loshchilov and
    Hutter, ICLR 2017). If something does, the distance of the present rate from `eta_min` changes by the same factor as
    that of the formula.

    >>> import remat
    >>> optimizer = remat.optim.SGD([remat.nn.Parameter(remat.ones(1))], lr=1.0)
    >>> scheduler = remat.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    >>> for _ in range(2):
    ...     scheduler.step()
    >>> round(optimizer.lr, 4)
    0.5
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0):
        if T_max < 1:
            raise ValueError(f"T_max is {T_max}, must be at least 1")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """The rate after `epoch` steps, where nothing else sets it."""
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2

    def next_rate(self, lr: float, base: float) -> float:
        """The rate of a group that had `lr`."""
        before, now = ((1 + math.cos(math.pi * epoch / self.T_max)) / 2 for epoch in (self.last_epoch - 1, self.last_epoch))
        if (self.last_epoch - 1 - self.T_max) % (2 * self.T_max) == 0:
            # at the bottom of the wave the distance is 0, and there is no factor
            return lr + (base - self.eta_min) * now
        return self.eta_min + (lr - self.eta_min) * now / before


class OneCycleLR(LRScheduler):
    """One cycle of the rate, and an opposite cycle of the momentum, as `torch.optim.lr_scheduler.OneCycleLR` (Smith and
    Topin, 2017).

    The rate goes from `max_lr / div_factor` up to `max_lr`, then down to the first rate divided by `final_div_factor`.
    `max_lr` is one rate for all groups, or one for each. With `cycle_momentum` the momentum goes from `max_momentum`
    down to `base_momentum` and up again. For optimisers with `betas`, the momentum is the first of them. The number of
    steps is `total_steps`, or `epochs * steps_per_epoch`. Errors: ValueError if neither is given, for another strategy,
    for a step beyond the last, or if there is no momentum to cycle.

    >>> import remat
    >>> optimizer = remat.optim.SGD([remat.nn.Parameter(remat.ones(1))], lr=0.1, momentum=0.9)
    >>> scheduler = remat.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10, pct_start=0.5)
    >>> for _ in range(4):
    ...     scheduler.step()
    >>> optimizer.lr, optimizer.groups[0]["momentum"]
    (1.0, 0.85)
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: Union[float, Sequence[float]], total_steps: Optional[int] = None,
        epochs: Optional[int] = None, steps_per_epoch: Optional[int] = None, pct_start: float = 0.3, anneal_strategy: str = "cos",
        cycle_momentum: bool = True, base_momentum: float = 0.85, max_momentum: float = 0.95, div_factor: float = 25.0,
        final_div_factor: float = 1e4, three_phase: bool = False,
    ):
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("give `total_steps`, or `epochs` and `steps_per_epoch`")
            total_steps = epochs * steps_per_epoch
        if total_steps < 1:
            raise ValueError(f"there are {total_steps} steps, must be at least 1")
        groups = optimizer.groups
        rates = [float(max_lr)] * len(groups) if isinstance(max_lr, (int, float)) else [float(v) for v in max_lr]
        if len(rates) != len(groups):
            raise ValueError(f"{len(rates)} rates for {len(groups)} groups")
        if cycle_momentum and not all("beta1" in g or g.get("momentum", 0.0) > 0.0 for g in groups):
            raise ValueError("there is no momentum to cycle: make the optimiser with one, or give `cycle_momentum=False`")
        shape = (pct_start, div_factor, final_div_factor, anneal_strategy, three_phase)
        self.total_steps = total_steps
        self._rates = [one_cycle(v, total_steps, *shape) for v in rates]
        self._cycles_momentum, self._momenta = cycle_momentum, (base_momentum, max_momentum)
        super().__init__(optimizer)

    def rate(self, base: float, epoch: int) -> float:
        """Not defined for a single group: `_set` computes the cycle of each."""
        raise NotImplementedError("each group has a cycle of its own")

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on from a state that `state_dict` returned, and sets rates and momenta."""
        self.last_epoch, self.base_lrs = int(state["last_epoch"]), [float(v) for v in state["base_lrs"]]
        self._set()

    def _set(self) -> None:
        if self.last_epoch >= self.total_steps:
            raise ValueError(f"step {self.last_epoch} of a cycle of {self.total_steps} steps: it has ended")
        for i, (g, rate) in enumerate(zip(self.optimizer.groups, self._rates)):
            options = {"lr": rate.at(self.last_epoch)}
            if self._cycles_momentum:
                name = "beta1" if "beta1" in g else "momentum"
                options[name] = rate._schedule.cycled_momentum(self.last_epoch, *self._momenta)
            self.optimizer.set_group(i, **options)
        self._last_lr = [rate.at(self.last_epoch) for rate in self._rates]


class ReduceLROnPlateau:
    """Multiplies the rates by `factor` when a figure has not improved for more than `patience` steps.

    With `mode="min"`, a figure has improved if it is less than the best by more than the share `threshold` of the
    best's absolute value; with `"max"`, if it is greater by as much. With `threshold_mode="abs"` the difference is
    `threshold` itself. A rate stays if it would change by no more than `eps`. Figures below 0 count as others do. In
    PyTorch, by contrast, a constant loss of -1 counts as an improvement each time. Errors: ValueError for another mode,
    or a factor that is not below 1.

    >>> import remat
    >>> optimizer = remat.optim.SGD([remat.nn.Parameter(remat.ones(1))], lr=1.0)
    >>> scheduler = remat.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "min", patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     scheduler.step(loss)
    >>> optimizer.lr
    0.1
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: float = 0.0, eps: float = 1e-8,
    ):
        if mode not in ("min", "max") or threshold_mode not in ("rel", "abs"):
            raise ValueError(f"mode is `min` or `max`, threshold_mode `rel` or `abs`; not `{mode}` and `{threshold_mode}`")
        if not 0 < factor < 1:
            raise ValueError(f"factor is {factor}, must be between 0 and 1")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode = threshold, threshold_mode
        self.cooldown, self.min_lr, self.eps = cooldown, min_lr, eps
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = 0
        self._last_lr = [g["lr"] for g in optimizer.groups]

    def _is_better(self, value: float) -> bool:
        margin = 0.0
        if not math.isinf(self.best):  # a share of infinity is no number
            margin = self.threshold * (abs(self.best) if self.threshold_mode == "rel" else 1.0)
        return value < self.best - margin if self.mode == "min" else value > self.best + margin

    def step(self, metrics: Any) -> None:
        """Takes a figure, and lowers the rates if they are due."""
        value = float(metrics)
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        if self.num_bad_epochs > self.patience:
            for i, g in enumerate(self.optimizer.groups):
                lower = max(g["lr"] * self.factor, self.min_lr)
                if g["lr"] - lower > self.eps:
                    self.optimizer.set_group(i, lr=lower)
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
        self._last_lr = [g["lr"] for g in self.optimizer.groups]

    def get_last_lr(self) -> List[float]:
        """The rate of each group after the last step."""
        return list(self._last_lr)

    def state_dict(self) -> Dict[str, Any]:
        """The best figure and the counts, for `load_state_dict`."""
        return {"best": self.best, "num_bad_epochs": self.num_bad_epochs, "cooldown_counter": self.cooldown_counter}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on from a state that `state_dict` returned. The rates are part of the optimiser's state."""
        self.best = float(state["best"])
        self.num_bad_epochs, self.cooldown_counter = int(state["num_bad_epochs"]), int(state["cooldown_counter"])
