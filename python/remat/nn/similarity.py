"""Similarity of vectors, and normalisation over neighbouring channels: modules without state."""
from .. import _functions as F
from .._remat import Tensor
from .module import Module


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along the axis `dim`.

    >>> import remat
    >>> remat.nn.CosineSimilarity()(remat.tensor([[3.0, 4.0]]), remat.tensor([[3.0, 4.0]])).tolist()
    [1.0]
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The cosines of `x1` and `x2`."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The `p`-norm of the difference of vectors along the last axis. `eps` is added to each element of the difference.

    >>> import remat
    >>> remat.nn.PairwiseDistance(eps=0.0)(remat.zeros(1, 2), remat.tensor([[3.0, 4.0]])).tolist()
    [5.0]
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        super().__init__()
        self.p, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The distances of `x1` and `x2`."""
        return F.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)


class LocalResponseNorm(Module):
    """`x / (k + alpha mean(x^2))^beta`, with the mean over `size` neighbouring channels.

    >>> import remat
    >>> remat.nn.LocalResponseNorm(2)(remat.rand(1, 4, 3, 3)).shape
    (1, 4, 3, 3)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return F.local_response_norm(x, self.size, self.alpha, self.beta, self.k)


__all__ = ["CosineSimilarity", "LocalResponseNorm", "PairwiseDistance"]
