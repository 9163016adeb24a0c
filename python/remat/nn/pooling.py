"""Pools of images, with the windows that most networks use."""
from typing import Any, Optional

from .. import _tensor_methods as T
from .._remat import Tensor
from .._support import Extents
from .module import Module


class MaxPool2d(Module):
    """The largest of each window of the last two axes.

    >>> import remat
    >>> remat.nn.MaxPool2d(2)(remat.ones(1, 1, 4, 4)).shape
    (1, 1, 2, 2)
    """

    def __init__(self, kernel_size: Extents, stride: Optional[Extents] = None, padding: Any = 0):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return T.max_pool2d(x, self.kernel_size, self.stride, self.padding)

    def extra_repr(self) -> str:
        """The text that `repr` shows between the brackets."""
        return f"{self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(MaxPool2d):
    """The mean of each window of the last two axes.

    >>> import remat
    >>> remat.nn.AvgPool2d(2)(remat.ones(1, 1, 4, 4)).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return T.avg_pool2d(x, self.kernel_size, self.stride, self.padding)


__all__ = ["AvgPool2d", "MaxPool2d"]
