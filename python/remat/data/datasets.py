"""Datasets: examples by index, or one after the other."""
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from .. import _remat
from .._creation import asarray
from .._remat import Device, Generator, Tensor
from .._support import default_device, default_generator
from .collate import _array, device_of


class Dataset:
    """Examples by index: a subclass has `__getitem__(i)` and `__len__()`. Any other object with both methods is a
    dataset too.

    An example is a number, an array or a tensor, or a list, tuple or dictionary of such. A loader calls `__getitem__`
    from its threads, in any order and several at once. If there is a method `set_epoch(epoch)`, the loader calls it
    before it reads the examples of an epoch. Random choices that depend only on epoch and index are the same for any
    number of workers.

    >>> import remat
    >>> class Squares(remat.data.Dataset):
    ...     def __len__(self):
    ...         return 5
    ...     def __getitem__(self, i):
    ...         return {"x": float(i), "y": i * i}
    >>> [batch["y"].tolist() for batch in remat.data.DataLoader(Squares(), batch_size=3)]
    [[0, 1, 4], [9, 16]]
    """

    def __getitem__(self, i: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no `__getitem__`")

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no `__len__`")


class IterableDataset:
    """Examples one after the other, without a known number: a subclass has `__iter__()`, which begins anew.

    A loader takes any object that can be iterated over and has no `__getitem__`; a generator has only one epoch.

    >>> import remat
    >>> class Count(remat.data.IterableDataset):
    ...     def __iter__(self):
    ...         yield from range(5)
    >>> [batch.tolist() for batch in remat.data.DataLoader(Count(), batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} has no `__iter__`")


class TensorDataset(Dataset):
    """Example `i` is row `i` of each of the arrays, which are copied to the host. Batches go back to the device of the tensors unless
    another one is named. Errors: ShapeError for first extents that differ; DeviceError for tensors of two devices.

    >>> import remat
    >>> data = remat.data.TensorDataset(remat.arange(6).reshape(3, 2), remat.arange(3))
    >>> len(data), [t.tolist() for t in data.batch([2, 0])]
    (3, [[[4, 5], [0, 1]], [2, 0]])
    """

    device: Optional[Device] = None
    """The device of the tensors that it was made from; None if there were no tensors."""

    def __init__(self, *parts: Any):
        self.device = device_of(parts)
        # arrays go to the dataset directly: they need no room in the device's budget
        self._of = _remat.tensor_dataset([_array(p) if hasattr(p, "__array_interface__") else asarray(p) for p in parts])

    def __len__(self) -> int:
        return len(self._of)

    def batch(self, indices: List[int], device: Optional[Device] = None) -> List[Tensor]:
        """The examples at these indices, put together, on a device."""
        return self._of.batch(list(indices), default_device(self.device if device is None else device))

    def __getitem__(self, i: int) -> Tuple[Tensor, ...]:
        if not -len(self) <= i < len(self):
            raise IndexError(f"example {i} of a dataset of {len(self)}")
        return tuple(t[0] for t in self.batch([i % len(self)]))


class Digits(TensorDataset):
    """Handwritten digits that come with the library: 9000 for training, 1000 for tests; images `float32 [1, 28, 28]`, normalised,
    and labels `int64`. With `shift`, images move by up to two pixels each way, anew in each epoch of a loader.

    >>> import remat
    >>> digits = remat.data.Digits(train=False)
    >>> len(digits), [t.shape for t in digits.batch([0, 1])]
    (1000, [(2, 1, 28, 28), (2,)])
    """

    def __init__(self, train: bool = True, shift: bool = False):
        self._of = _remat.digits(train, shift)


class Subset(Dataset):
    """The examples of a dataset at some indices, in that order.

    >>> import remat
    >>> part = remat.data.Subset([10, 20, 30], [2, 0])
    >>> len(part), part[0]
    (2, 30)
    """

    def __init__(self, dataset: Any, indices: Sequence[int]):
        self.dataset, self.indices = dataset, [int(i) for i in indices]

    def __getitem__(self, i: int) -> Any:
        return self.dataset[self.indices[i]]

    def __len__(self) -> int:
        return len(self.indices)

    def set_epoch(self, epoch: int) -> None:
        """Tells the dataset which epoch is read, if it has a `set_epoch`."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)


class ConcatDataset(Dataset):
    """Datasets one behind the other.

    >>> import remat
    >>> both = remat.data.ConcatDataset([[1, 2], [3]])
    >>> len(both), both[2]
    (3, 3)
    """

    def __init__(self, datasets: Sequence[Any]):
        self.datasets = list(datasets)

    def __len__(self) -> int:
        return sum(map(len, self.datasets))

    def __getitem__(self, i: int) -> Any:
        if not -len(self) <= i < len(self):
            raise IndexError(f"example {i} of a dataset of {len(self)}")
        i %= len(self)
        for d in self.datasets:
            if i < len(d):
                return d[i]
            i -= len(d)
        raise IndexError("a dataset has become shorter")

    def set_epoch(self, epoch: int) -> None:
        """Tells the datasets that have a `set_epoch` which epoch is read."""
        for d in self.datasets:
            if hasattr(d, "set_epoch"):
                d.set_epoch(epoch)


def random_split(dataset: Any, lengths: Sequence[float], generator: Optional[Generator] = None) -> List[Subset]:
    """Parts of a dataset, drawn without overlap. `lengths` are numbers of examples, or shares that add up to 1;
    examples left over by rounding go to the first part.

    Errors: ValueError for lengths that do not add up to the dataset's.

    >>> import remat
    >>> [len(part) for part in remat.data.random_split(list(range(10)), [0.75, 0.25])]
    [8, 2]
    """
    n = len(dataset)
    if all(isinstance(v, float) for v in lengths) and abs(sum(lengths) - 1) < 1e-6:
        counts = [int(n * v) for v in lengths]
        counts[0] += n - sum(counts)
    else:
        counts = [int(v) for v in lengths]
    if sum(counts) != n or min(counts, default=0) < 0:
        raise ValueError(f"lengths {list(lengths)} of a dataset of {n}: they must add up to its length, or be shares that add up to 1")
    from .._creation import randperm

    order = randperm(n, generator=default_generator() if generator is None else generator).tolist()
    parts, at = [], 0
    for count in counts:
        parts.append(Subset(dataset, order[at : at + count]))
        at += count
    return parts
