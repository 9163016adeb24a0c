"""Losses, as functions and as modules."""
from typing import Any, Optional

from .. import _functions as F
from .._remat import Tensor
from .module import Module


def _reduced(x: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return F.mean(x)
    if reduction == "sum":
        return F.sum(x)
    if reduction == "none":
        return x
    raise ValueError(f"reduction is `mean`, `sum` or `none`, not `{reduction}`")


def cross_entropy(
    logits: Tensor, labels: Tensor, reduction: str = "mean", label_smoothing: float = 0.0, ignore_index: Optional[int] = None
) -> Tensor:
    """Cross-entropy of `softmax(logits)`, `[n, c, ..]`, with class labels `[n, ..]`. A label that is no class is an IndexError when
    the value is read.

    >>> import remat
    >>> remat.nn.cross_entropy(remat.zeros(2, 4), remat.tensor([0, 3])).item()  # doctest: +ELLIPSIS
    1.386294...
    """
    if reduction == "mean" and label_smoothing == 0.0 and ignore_index is None:
        return F.cross_entropy(logits, labels)
    return F.cross_entropy_with(logits, labels, reduction, label_smoothing, ignore_index)


def mse_loss(x: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    """`(x - y)^2`.

    >>> import remat
    >>> remat.nn.mse_loss(remat.ones(2), remat.zeros(2)).item()
    1.0
    """
    return _reduced(F.square(x - y), reduction)


def l1_loss(x: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    """`|x - y|`.

    >>> import remat
    >>> remat.nn.l1_loss(remat.ones(2), remat.zeros(2), "sum").item()
    2.0
    """
    return _reduced(F.abs(x - y), reduction)


def binary_cross_entropy_with_logits(x: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    """Binary cross-entropy of `sigmoid(x)` with `y` in 0 .. 1.

    >>> import remat
    >>> remat.nn.binary_cross_entropy_with_logits(remat.zeros(2), remat.ones(2)).item()  # doctest: +ELLIPSIS
    0.693147...
    """
    return _reduced(F.bce_with_logits(x, y), reduction)


class CrossEntropyLoss(Module):
    """`cross_entropy` as a module.

    >>> import remat
    >>> remat.nn.CrossEntropyLoss()(remat.zeros(2, 4), remat.tensor([0, 3])).shape
    ()
    """

    def __init__(self, reduction: str = "mean", label_smoothing: float = 0.0, ignore_index: Optional[int] = None):
        super().__init__()
        self.options = (reduction, label_smoothing, ignore_index)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss."""
        return cross_entropy(logits, labels, *self.options)


def _module(name: str, f: Any, shown: str) -> Any:
    class Loss(Module):
        def __init__(self, reduction: str = "mean"):
            super().__init__()
            self.reduction = reduction

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            """The loss."""
            return f(x, y, self.reduction)

    Loss.__name__ = Loss.__qualname__ = name
    Loss.__module__ = "remat.nn"
    call = f">>> remat.nn.{name}()(remat.zeros(2), remat.ones(2)){shown}"
    Loss.__doc__ = f"`{f.__name__}` as a module: {f.__doc__.splitlines()[0]}\n\n    >>> import remat\n    {call}\n    "
    return Loss


MSELoss = _module("MSELoss", mse_loss, ".item()\n    1.0")
L1Loss = _module("L1Loss", l1_loss, ".item()\n    1.0")
BCEWithLogitsLoss = _module("BCEWithLogitsLoss", binary_cross_entropy_with_logits, ".round_to(3).item() < 0.694\n    True")
