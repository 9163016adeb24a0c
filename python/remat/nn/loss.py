"""Losses, as functions and as modules. Names, formulas and the divisors of means are PyTorch's.

`reduction` is `mean`, `sum` or `none`. Labels are integers; other targets have the prediction's dtype and shape. Errors of all:
ShapeError, DTypeError and AxisError for inputs that do not fit; ArgumentError for options outside their domain;
IndexError, when the value is read, for a label that is no class.
"""
import inspect
from typing import Any, Optional

from .. import _functions as F
from .. import _remat
from .._remat import Tensor
from .module import Module


def _loss(name: str, *args: Any) -> Tensor:
    return _remat.loss(name, args)


def cross_entropy(
    logits: Tensor, labels: Tensor, reduction: str = "mean", label_smoothing: float = 0.0, ignore_index: Optional[int] = None,
    weight: Optional[Tensor] = None,
) -> Tensor:
    """Cross-entropy of `softmax(logits)`, `[n, c, ..]`, with class labels `[n, ..]`, or with probabilities of the
    logits' shape. A label that is no class is an IndexError when the value is read. A label equal to `ignore_index`
    does not count. `weight: [c]` has a weight for each class.

    >>> import remat
    >>> remat.nn.cross_entropy(remat.zeros(2, 4), remat.tensor([0, 3])).item()  # doctest: +ELLIPSIS
    1.386294...
    """
    if labels.ndim == logits.ndim and labels.dtype == logits.dtype:
        if ignore_index is not None:
            raise ValueError("`ignore_index` is of labels, and the targets are probabilities")
        return _loss("cross_entropy_soft", logits, labels, weight, reduction, label_smoothing)
    if weight is not None:
        return _loss("cross_entropy_weighted", logits, labels, weight, reduction, label_smoothing, ignore_index)
    if reduction == "mean" and label_smoothing == 0.0 and ignore_index is None:
        return F.cross_entropy(logits, labels)
    return F.cross_entropy_with(logits, labels, reduction, label_smoothing, ignore_index)


def nll_loss(
    log_probabilities: Tensor, labels: Tensor, weight: Optional[Tensor] = None, ignore_index: Optional[int] = None,
    reduction: str = "mean",
) -> Tensor:
    """Minus the log-probability of each label. `x: [n, c, ..]` has log-probabilities, and labels are `[n, ..]`.

    >>> import remat
    >>> remat.nn.nll_loss(remat.tensor([[-1.0, -2.0]]), remat.tensor([1])).item()
    2.0
    """
    if weight is None and ignore_index is None:
        return _loss("nll", log_probabilities, labels, reduction)
    return _loss("nll_weighted", log_probabilities, labels, weight, ignore_index, reduction)


def mse_loss(x: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    """`(x - y)^2`.

    >>> import remat
    >>> remat.nn.mse_loss(remat.ones(2), remat.zeros(2)).item()
    1.0
    """
    return _loss("mse", x, y, reduction)


def l1_loss(x: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    """`|x - y|`.

    >>> import remat
    >>> remat.nn.l1_loss(remat.ones(2), remat.zeros(2), "sum").item()
    2.0
    """
    return _loss("l1", x, y, reduction)


def smooth_l1_loss(x: Tensor, y: Tensor, beta: float = 1.0, reduction: str = "mean") -> Tensor:
    """`d^2 / (2 beta)` where `|d| < beta`, else `|d| - beta / 2`, of `d = x - y` (Girshick, ICCV 2015).

    >>> import remat
    >>> remat.nn.smooth_l1_loss(remat.tensor([1.0, 5.0]), remat.zeros(2), beta=2.0, reduction="none").tolist()
    [0.25, 4.0]
    """
    return _loss("smooth_l1", x, y, beta, reduction)


def huber_loss(x: Tensor, y: Tensor, delta: float = 1.0, reduction: str = "mean") -> Tensor:
    """`d^2 / 2` where `|d| <= delta`, else `delta (|d| - delta / 2)`, of `d = x - y` (Huber, 1964).

    >>> import remat
    >>> remat.nn.huber_loss(remat.tensor([1.0, 5.0]), remat.zeros(2), delta=2.0, reduction="none").tolist()
    [0.5, 8.0]
    """
    return _loss("huber", x, y, delta, reduction)


def binary_cross_entropy(x: Tensor, y: Tensor, weight: Optional[Tensor] = None, reduction: str = "mean") -> Tensor:
    """Binary cross-entropy of probabilities `x` with `y` in 0 .. 1; logarithms are at least -100.

    >>> import remat
    >>> remat.nn.binary_cross_entropy(remat.tensor([0.5]), remat.ones(1)).item()  # doctest: +ELLIPSIS
    0.693147...
    """
    return _loss("bce", x, y, weight, reduction)


def binary_cross_entropy_with_logits(
    x: Tensor, y: Tensor, reduction: str = "mean", weight: Optional[Tensor] = None, pos_weight: Optional[Tensor] = None
) -> Tensor:
    """Binary cross-entropy of `sigmoid(x)` with `y` in 0 .. 1. `pos_weight` has factors for the term of `y = 1`.

    >>> import remat
    >>> remat.nn.binary_cross_entropy_with_logits(remat.zeros(2), remat.ones(2)).item()  # doctest: +ELLIPSIS
    0.693147...
    """
    if weight is None and pos_weight is None:
        return _loss("bce_with_logits", x, y, reduction)
    return _loss("bce_with_logits_weighted", x, y, weight, pos_weight, reduction)


def sigmoid_focal_loss(
    x: Tensor, y: Tensor, alpha: Optional[float] = 0.25, gamma: float = 2.0, reduction: str = "none"
) -> Tensor:
    """Binary cross-entropy whose easy examples count less (Lin et al., ICCV 2017), as
    `torchvision.ops.sigmoid_focal_loss`. Without `alpha` both classes have the same weight.

    >>> import remat
    >>> remat.nn.sigmoid_focal_loss(remat.zeros(1), remat.ones(1), alpha=None, gamma=0.0).item()  # doctest: +ELLIPSIS
    0.693147...
    """
    return _loss("sigmoid_focal", x, y, alpha, gamma, reduction)


def dice_loss(x: Tensor, y: Tensor, smooth: float = 1.0, reduction: str = "mean") -> Tensor:
    """`1 - (2 sum x y + smooth) / (sum x + sum y + smooth)` of each example's probabilities (Milletari et al., 3DV 2016).

    >>> import remat
    >>> remat.nn.dice_loss(remat.ones(1, 2), remat.ones(1, 2)).item()
    0.0
    """
    return _loss("dice", x, y, smooth, reduction)


def kl_div(x: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """`target (ln target - x)`, where `x` has log-probabilities. `reduction` may be `batchmean`: the sum divided by the
    number of examples.

    >>> import remat
    >>> remat.nn.kl_div(remat.tensor([[0.0]]), remat.ones(1, 1), reduction="batchmean").item()
    0.0
    """
    if reduction == "batchmean":
        return _loss("kl_div_batch_mean", x, target, log_target)
    return _loss("kl_div", x, target, log_target, reduction)


def gaussian_nll_loss(
    x: Tensor, y: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """`(ln var + (x - y)^2 / var) / 2` with variances of at least `eps`; `full` adds the constant.

    >>> import remat
    >>> remat.nn.gaussian_nll_loss(remat.ones(1), remat.zeros(1), remat.ones(1)).item()
    0.5
    """
    return _loss("gaussian_nll", x, y, var, full, eps, reduction)


def poisson_nll_loss(
    x: Tensor, y: Tensor, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
) -> Tensor:
    """`e^x - y x`, or `x - y ln(x + eps)` unless `log_input`; `full` adds Stirling's term.

    >>> import remat
    >>> remat.nn.poisson_nll_loss(remat.zeros(1), remat.ones(1)).item()
    1.0
    """
    return _loss("poisson_nll", x, y, log_input, full, eps, reduction)


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification (Graves et al., ICML 2006): `log_probs: [steps, n, c]`,
    `targets: [n, labels]`, or all of them joined, and the lengths of both, `[n]`. A mean is over losses, each divided
    by the length of its target.

    >>> import remat
    >>> y = remat.zeros(4, 1, 3).log_softmax(-1)
    >>> remat.nn.ctc_loss(y, remat.tensor([[1, 2]]), remat.tensor([4]), remat.tensor([2])).shape
    ()
    """
    return _loss("ctc", log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)


def info_nce_loss(x: Tensor, y: Tensor, temperature: float = 0.1, reduction: str = "mean") -> Tensor:
    """Cross-entropy of finding, for each row of `x: [n, d]`, its own row of `y: [n, d]` by cosines divided by the
    temperature (van den Oord et al., 2018).

    >>> import remat
    >>> remat.nn.info_nce_loss(remat.eye(2), remat.eye(2)).item() < 1e-3
    True
    """
    return _loss("info_nce", x, y, temperature, reduction)


def nt_xent_loss(x: Tensor, y: Tensor, temperature: float = 0.5, reduction: str = "mean") -> Tensor:
    """As `info_nce_loss`, but each row of both views must find its partner among all other rows of both (Chen et al.,
    ICML 2020).

    >>> import remat
    >>> remat.nn.nt_xent_loss(remat.eye(2), remat.eye(2), 0.1).item() < 1e-3
    True
    """
    return _loss("nt_xent", x, y, temperature, reduction)


def hinge_embedding_loss(x: Tensor, y: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """`x` where `y` is 1, `max(0, margin - x)` where it is -1.

    >>> import remat
    >>> remat.nn.hinge_embedding_loss(remat.tensor([0.25, 0.25]), remat.tensor([1.0, -1.0]), reduction="none").tolist()
    [0.25, 0.75]
    """
    return _loss("hinge_embedding", x, y, margin, reduction)


def soft_margin_loss(x: Tensor, y: Tensor, reduction: str = "mean") -> Tensor:
    """`ln(1 + e^(-y x))`, where `y` is 1 or -1.

    >>> import remat
    >>> remat.nn.soft_margin_loss(remat.zeros(1), remat.ones(1)).item()  # doctest: +ELLIPSIS
    0.693147...
    """
    return _loss("soft_margin", x, y, reduction)


def margin_ranking_loss(x1: Tensor, x2: Tensor, y: Tensor, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """`max(0, -y (x1 - x2) + margin)`: `x1` should be larger where `y` is 1, and `x2` where it is -1.

    >>> import remat
    >>> remat.nn.margin_ranking_loss(remat.zeros(1), remat.ones(1), remat.ones(1)).item()
    1.0
    """
    return _loss("margin_ranking", x1, x2, y, margin, reduction)


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6,
    swap: bool = False, reduction: str = "mean",
) -> Tensor:
    """`max(0, |anchor - positive| - |anchor - negative| + margin)` with `p`-norms along the last axis. With `swap` the
    distance of the negative is that to the nearer of anchor and positive.

    >>> import remat
    >>> a = remat.zeros(1, 2)
    >>> remat.nn.triplet_margin_loss(a, a, a).item()
    1.0
    """
    return _loss("triplet_margin", anchor, positive, negative, margin, p, eps, swap, reduction)


def cosine_embedding_loss(x1: Tensor, x2: Tensor, labels: Tensor, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """`1 - cos` where the label is 1, `max(0, cos - margin)` where it is -1, of the rows of `x1` and `x2: [n, d]`.

    >>> import remat
    >>> remat.nn.cosine_embedding_loss(remat.ones(1, 2), remat.ones(1, 2), remat.tensor([1])).item() < 1e-6
    True
    """
    return _loss("cosine_embedding", x1, x2, labels, margin, reduction)


def multi_margin_loss(
    x: Tensor, labels: Tensor, p: int = 1, margin: float = 1.0, weight: Optional[Tensor] = None, reduction: str = "mean"
) -> Tensor:
    """`sum_k max(0, margin - x[label] + x[k])^p / c` over the other classes, of `x: [n, c]`; `p` is 1 or 2.

    >>> import remat
    >>> remat.nn.multi_margin_loss(remat.tensor([[1.0, 0.5]]), remat.tensor([0])).item()
    0.25
    """
    return _loss("multi_margin", x, labels, p, margin, weight, reduction)


def multilabel_margin_loss(x: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """`sum_(j, k) max(0, 1 - x[j] + x[k]) / c` over the labels `j` of an example and all other classes `k`. The labels
    of a row of `[n, c]` end before the first negative one.

    >>> import remat
    >>> remat.nn.multilabel_margin_loss(remat.tensor([[1.0, 0.5, 0.0, 2.0]]), remat.tensor([[0, 3, -1, 1]])).item()
    0.125
    """
    return _loss("multilabel_margin", x, labels, reduction)


def multilabel_soft_margin_loss(
    x: Tensor, y: Tensor, weight: Optional[Tensor] = None, reduction: str = "mean"
) -> Tensor:
    """The mean over the classes, the last axis, of the binary cross-entropy of `sigmoid(x)`, times the weights of the classes.

    >>> import remat
    >>> remat.nn.multilabel_soft_margin_loss(remat.zeros(1, 2), remat.ones(1, 2)).item()  # doctest: +ELLIPSIS
    0.693147...
    """
    return _loss("multilabel_soft_margin", x, y, weight, reduction)


def _module(name: str, f: Any) -> Any:
    """A loss as a module, whose options are the arguments of the function that have defaults."""

    known = [n for n, p in inspect.signature(f).parameters.items() if p.default is not p.empty]

    class Loss(Module):
        def __init__(self, reduction: Optional[str] = None, **options: Any):
            super().__init__()
            unknown = [k for k in options if k not in known]
            if unknown:
                raise TypeError(f"{name} has no option `{unknown[0]}`; there are {', '.join(known)}")
            self.options = options if reduction is None else {"reduction": reduction, **options}

        def forward(self, *x: Tensor) -> Tensor:
            """The loss."""
            return f(*x, **self.options)

        def extra_repr(self) -> str:
            """The text that `repr` shows between the brackets."""
            return ", ".join(f"{k}={v}" for k, v in self.options.items())

    Loss.__name__ = Loss.__qualname__ = name
    Loss.__module__ = "remat.nn"
    Loss.__doc__ = f"`remat.nn.{f.__name__}` as a module; options are by keyword. {f.__doc__}"
    return Loss


CrossEntropyLoss = _module("CrossEntropyLoss", cross_entropy)
NLLLoss = _module("NLLLoss", nll_loss)
MSELoss = _module("MSELoss", mse_loss)
L1Loss = _module("L1Loss", l1_loss)
SmoothL1Loss = _module("SmoothL1Loss", smooth_l1_loss)
HuberLoss = _module("HuberLoss", huber_loss)
BCELoss = _module("BCELoss", binary_cross_entropy)
BCEWithLogitsLoss = _module("BCEWithLogitsLoss", binary_cross_entropy_with_logits)
KLDivLoss = _module("KLDivLoss", kl_div)
GaussianNLLLoss = _module("GaussianNLLLoss", gaussian_nll_loss)
PoissonNLLLoss = _module("PoissonNLLLoss", poisson_nll_loss)
CTCLoss = _module("CTCLoss", ctc_loss)
HingeEmbeddingLoss = _module("HingeEmbeddingLoss", hinge_embedding_loss)
SoftMarginLoss = _module("SoftMarginLoss", soft_margin_loss)
MarginRankingLoss = _module("MarginRankingLoss", margin_ranking_loss)
TripletMarginLoss = _module("TripletMarginLoss", triplet_margin_loss)
CosineEmbeddingLoss = _module("CosineEmbeddingLoss", cosine_embedding_loss)
MultiMarginLoss = _module("MultiMarginLoss", multi_margin_loss)
MultiLabelMarginLoss = _module("MultiLabelMarginLoss", multilabel_margin_loss)
MultiLabelSoftMarginLoss = _module("MultiLabelSoftMarginLoss", multilabel_soft_margin_loss)

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "CTCLoss", "GaussianNLLLoss",
    "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "MarginRankingLoss", "MSELoss", "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "SmoothL1Loss", "SoftMarginLoss",
    "TripletMarginLoss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss",
    "cross_entropy", "ctc_loss", "dice_loss", "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss",
    "info_nce_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "nt_xent_loss", "poisson_nll_loss",
    "sigmoid_focal_loss", "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss",
]
