"""Lists and sequences of modules, and modules that only change shapes."""
from typing import Any, Iterable, Iterator, Mapping, Sequence

from .. import _functions as F
from .._remat import Tensor
from .module import Module


class Flatten(Module):
    """Merges the axes from `start_dim` to `end_dim`, both included.

    >>> import remat
    >>> remat.nn.Flatten()(remat.ones(2, 3, 4)).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return F.flatten(x, self.start_dim, self.end_dim)


class Unflatten(Module):
    """Splits an axis into several. One of the extents may be -1: it is what the others leave. Errors at the call:
    AxisError, ShapeError.

    >>> import remat
    >>> remat.nn.Unflatten(1, (3, -1))(remat.ones(2, 12)).shape
    (2, 3, 4)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]):
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        """The output for `x`."""
        return F.unflatten(x, self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """The text that `repr` shows between the brackets."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class Identity(Module):
    """The input.

    >>> import remat
    >>> remat.nn.Identity()(remat.ones(1)).tolist()
    [1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """`x`."""
        return x


class ModuleList(Module):
    """Modules in a list, with their numbers as names.

    >>> import remat
    >>> blocks = remat.nn.ModuleList([remat.nn.ReLU(), remat.nn.Linear(2, 2)])
    >>> len(blocks), [n for n, _ in blocks.named_parameters()]
    (2, ['1.weight', '1.bias'])
    """

    def __init__(self, modules: Iterable[Module] = ()):
        super().__init__()
        for m in modules:
            self.append(m)

    def append(self, module: Module) -> "ModuleList":
        """Adds a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __getitem__(self, at: Any) -> Any:
        all = list(self._modules.values())
        return type(self)(all[at]) if isinstance(at, slice) else all[at]

    def __setitem__(self, at: int, module: Module) -> None:
        self.add_module(list(self._modules)[at], module)


class Sequential(ModuleList):
    """Calls modules one after the other. They are given one by one, in a list, or in a dictionary by name.

    >>> import remat
    >>> net = remat.nn.Sequential(remat.nn.Linear(4, 8), remat.nn.ReLU(), remat.nn.Linear(8, 2))
    >>> net(remat.ones(3, 4)).shape
    (3, 2)
    """

    def __init__(self, *modules: Any):
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            super().__init__()
            for name, m in modules[0].items():
                self.add_module(name, m)
        else:
            super().__init__(modules[0] if len(modules) == 1 and not isinstance(modules[0], Module) else modules)

    def forward(self, x: Any) -> Any:
        """The output of the last module."""
        for m in self:
            x = m(x)
        return x


__all__ = ["Flatten", "Identity", "ModuleList", "Sequential", "Unflatten"]
