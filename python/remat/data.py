"""Datasets, and loaders that prepare batches beside the steps, within the device's budget."""
from typing import Any, Iterator, List, Optional, Tuple, Union

from . import _remat
from ._creation import asarray
from ._remat import Device, Tensor
from ._support import default_device as _default_device


class TensorDataset:
    """Example `i` is row `i` of each of the arrays, which are copied to the host. Errors: ShapeError for first extents that differ.

    >>> import remat
    >>> data = remat.data.TensorDataset(remat.arange(6).reshape(3, 2), remat.arange(3))
    >>> len(data), [t.tolist() for t in data.batch([2, 0])]
    (3, [[[4, 5], [0, 1]], [2, 0]])
    """

    def __init__(self, *parts: Any):
        self._of = _remat.tensor_dataset([asarray(p) for p in parts])

    def __len__(self) -> int:
        return len(self._of)

    def batch(self, indices: List[int], device: Optional[Device] = None) -> List[Tensor]:
        """The examples at these indices, put together, on a device."""
        return self._of.batch(list(indices), _default_device(device))

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


class DataLoader:
    """Batches of a dataset on a device: iterating over it is one epoch, and the next time the next one.

    `shuffle` is a seed, or True for seed 0; the order of an epoch depends on seed and epoch alone, whatever the number of
    `workers`, which are threads that prepare up to `prefetch` batches ahead; their bytes count against the budget.

    >>> import remat
    >>> loader = remat.data.DataLoader(remat.data.TensorDataset(remat.arange(5)), batch_size=2)
    >>> len(loader), [x.tolist() for x, in loader]
    (3, [[0, 1], [2, 3], [4]])
    """

    def __init__(
        self, dataset: TensorDataset, batch_size: int = 32, shuffle: Union[bool, int] = False, drop_last: bool = False,
        workers: int = 1, prefetch: int = 2, device: Optional[Device] = None,
    ):
        seed = None if shuffle is False else int(shuffle is not True and shuffle)
        self.dataset = dataset
        self._of = _remat._Loader(
            dataset._of, _default_device(device), batch_size, seed, drop_last, workers, prefetch if workers else 0
        )

    def __len__(self) -> int:
        return len(self._of)

    def next_batch(self) -> Optional[List[Tensor]]:
        """The next batch, or None once at the end of each epoch."""
        return self._of.next_batch()

    def __iter__(self) -> Iterator[List[Tensor]]:
        while (batch := self._of.next_batch()) is not None:
            yield batch

    @property
    def position(self) -> Tuple[int, int]:
        """Epoch and batch that come next; setting it goes on from there."""
        return self._of.position()

    @position.setter
    def position(self, at: Tuple[int, int]) -> None:
        self._of.set_position(*at)
