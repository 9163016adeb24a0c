"""Learning rates that a scheduler sets between epochs or steps, under the names of `torch.optim.lr_scheduler`.

`remat.optim.Schedule` is a value without a position, which a checkpoint need not hold; these have one, as PyTorch's programs
expect it.

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
from typing import Any, Callable, Dict, List, Sequence, Union

from . import Optimizer


class LRScheduler:
    """Sets the rates of an optimiser's groups at once and at every `step`: a subclass says `rate(base, epoch)`, of a group's first
    rate and the number of steps.

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
        self.base_lrs: List[float] = [g["lr"] for g in optimizer.groups]
        self.last_epoch = 0
        self._set()

    def rate(self, base: float, epoch: int) -> float:
        """The rate of a group that began with `base`, after `epoch` steps."""
        raise NotImplementedError(f"{type(self).__name__} has no `rate`")

    def _set(self) -> None:
        for i, base in enumerate(self.base_lrs):
            self.optimizer.set_group(i, lr=self.rate(base, self.last_epoch))

    def step(self) -> None:
        """Goes on by one, and sets the rates."""
        self.last_epoch += 1
        self._set()

    def get_last_lr(self) -> List[float]:
        """The rate of each group now."""
        return [g["lr"] for g in self.optimizer.groups]

    def state_dict(self) -> Dict[str, Any]:
        """The position and the first rates, for `load_state_dict`."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave, and sets the rates."""
        self.last_epoch, self.base_lrs = int(state["last_epoch"]), [float(v) for v in state["base_lrs"]]
        self._set()


class LambdaLR(LRScheduler):
    """`base f(epoch)`, of one function or of one for each group. Errors: ValueError for another number of functions.

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
        """Not of one group alone: `_set` has the function of each."""
        raise NotImplementedError("each group has a function of its own")

    def _set(self) -> None:
        for i, (base, f) in enumerate(zip(self.base_lrs, self.lr_lambdas)):
            self.optimizer.set_group(i, lr=float(base * f(self.last_epoch)))


class StepLR(LRScheduler):
    """`base gamma^floor(epoch / step_size)`.

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
        """The rate after `epoch` steps."""
        return base * self.gamma ** (epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """`base gamma^k`, where `k` of the milestones are at or before the epoch.

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
        """The rate after `epoch` steps."""
        return base * self.gamma ** bisect.bisect_right(self.milestones, epoch)


class ExponentialLR(LRScheduler):
    """`base gamma^epoch`.

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
        """The rate after `epoch` steps."""
        return base * self.gamma**epoch


class CosineAnnealingLR(LRScheduler):
    """`eta_min + (base - eta_min) (1 + cos(pi epoch / T_max)) / 2` (Loshchilov and Hutter, ICLR 2017).

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
        """The rate after `epoch` steps."""
        return self.eta_min + (base - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2


class ReduceLROnPlateau:
    """Multiplies the rates by `factor` when a figure has not become better for more than `patience` steps.

    Better is less by the share `threshold` of the best with `mode="min"`, more with `"max"`. Errors: ValueError for another mode,
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
        cooldown: int = 0, min_lr: float = 0.0,
    ):
        if mode not in ("min", "max"):
            raise ValueError(f"mode is `min` or `max`, not `{mode}`")
        if not 0 < factor < 1:
            raise ValueError(f"factor is {factor}, must be between 0 and 1")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.cooldown, self.min_lr = threshold, cooldown, min_lr
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = 0

    def _is_better(self, value: float) -> bool:
        if math.isinf(self.best):
            return not math.isnan(value)
        if self.mode == "min":
            return value < self.best - self.threshold * abs(self.best)
        return value > self.best + self.threshold * abs(self.best)

    def step(self, metrics: Any) -> None:
        """Takes a figure, and lowers the rates if it is time."""
        value = float(metrics)
        if self._is_better(value):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        if self.num_bad_epochs > self.patience:
            for i, g in enumerate(self.optimizer.groups):
                self.optimizer.set_group(i, lr=max(g["lr"] * self.factor, self.min_lr))
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def get_last_lr(self) -> List[float]:
        """The rate of each group now."""
        return [g["lr"] for g in self.optimizer.groups]

    def state_dict(self) -> Dict[str, Any]:
        """The best figure and the counts, for `load_state_dict`."""
        return {"best": self.best, "num_bad_epochs": self.num_bad_epochs, "cooldown_counter": self.cooldown_counter}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave; the rates are the optimiser's state."""
        self.best = float(state["best"])
        self.num_bad_epochs, self.cooldown_counter = int(state["num_bad_epochs"]), int(state["cooldown_counter"])
