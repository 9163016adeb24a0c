"""Loaders: threads prepare batches of a dataset on a device beside the steps."""
import atexit
import operator
import weakref
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from .. import _remat
from .._errors import ArgumentError, DeviceError
from .._remat import Device, Generator
from .._support import default_device, default_generator, whole
from .collate import assembled, collated, device_of, taken_apart
from .datasets import TensorDataset
from .stream import Stream

SEEDS = 2**63

_open: "weakref.WeakSet[DataLoader]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Ends the threads that call Python before the interpreter ends."""
    for loader in list(_open):
        loader._stop()


class _Called:
    """A dataset written in Python, as the compiled loader's threads call it."""

    def __init__(self, dataset: Any, collate: Optional[Callable[[List[Any]], Any]], device: Optional[Device]):
        self.dataset, self.collate, self.device = dataset, collate, device
        self.structure: Any = None

    def begin(self, epoch: int) -> None:
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def _example(self, i: int) -> Any:
        try:
            return self.dataset[i]
        except StopIteration as e:
            # a StopIteration that passes through a generator would silently end a loop of the caller
            raise RuntimeError(f"example {i} of the dataset raised StopIteration") from e
        except Exception as e:
            _note(e, f"example {i} of the dataset")
            raise

    def batch(self, indices: List[int]) -> List[Any]:
        examples = [self._example(i) for i in indices]
        try:
            structure, parts = put_together(examples, self.collate, self.device)
            # the first batch sets the structure; the check below finds a batch of another thread that differs
            self.structure = structure if self.structure is None else self.structure
            if structure != self.structure:
                raise ValueError(f"this batch has the structure {structure}, another one had {self.structure}")
        except Exception as e:
            _note(e, f"putting together examples {_short(indices)}")
            raise
        return parts


def put_together(
    examples: List[Any], collate: Optional[Callable[[List[Any]], Any]], device: Optional[Device]
) -> Tuple[Any, List[Any]]:
    """Structure and parts of a batch. Errors: DeviceError for tensors on another device than `device`, unless that is
    None."""
    batch = examples if collate is None else collate(examples)
    lies = None if device is None else device_of(batch)
    if lies is not None and lies != device:
        raise DeviceError(
            f"the dataset's tensors lie on {lies}, and the loader was given no device: give it the one where batches go, `device=..`"
        )
    if collate is None:
        return collated(batch)
    parts: List[Any] = []
    return taken_apart(batch, parts), parts


def _is_bool(x: Any) -> bool:
    """True for Python's and NumPy's bools."""
    return isinstance(x, bool) or getattr(getattr(x, "dtype", None), "kind", None) == "b" and getattr(x, "shape", None) == ()


def _seed(shuffle: Any) -> int:
    """The seed that was given as `shuffle`. Errors: TypeError, ValueError."""
    try:
        seed = operator.index(shuffle)
    except TypeError:
        raise TypeError(f"shuffle is True, False or an integer, the seed, not {shuffle!r}") from None
    if not 0 <= seed < 2 * SEEDS:
        raise ValueError(f"shuffle is {seed}: a seed is from 0 to {2 * SEEDS - 1}")
    return seed


def _short(indices: List[int]) -> str:
    return ", ".join(map(str, indices)) if len(indices) <= 8 else f"{', '.join(map(str, indices[:8]))}, .."


def _note(e: BaseException, text: str) -> None:
    """Adds the origin to an exception: as a note below its traceback or, in versions of Python without notes, in its
    arguments."""
    if hasattr(e, "add_note"):
        e.add_note(text)
    elif len(e.args) == 1 and isinstance(e.args[0], str):
        e.args = (f"{e.args[0]} ({text})",)


class DataLoader:
    """Batches of a dataset on a device. Each iteration over it is one epoch.

    Args:
        dataset: a `TensorDataset`, `Digits`, any object with `__getitem__` and `__len__`, or one that can be iterated over.
        batch_size: the number of examples in a batch.
        shuffle: True for another order in each epoch, by a seed that is drawn from `generator`. An integer is the seed
            itself; NumPy bools are bools. The order depends on seed and epoch only, not on the number of workers.
        drop_last: leave out a last batch that is smaller.
        workers: the number of threads that prepare batches; with 0, a batch is prepared when it is asked for. A dataset
            that is iterated over has at most one.
        prefetch: the most batches ahead. Their bytes count against the device's budget, and take at most a quarter of
            it. The device takes their room when it needs it.
        device: the device of the batches. By default that of the tensors of a `TensorDataset`, else the default device.
            Without `device` it is an error if a dataset written in Python gives tensors of another device.
        generator: the source of the seed; by default the default generator.
        collate: a function that makes a batch from a list of examples; by default `default_collate`. It returns tensors
            or arrays in lists, tuples and dictionaries, of the same structure for all batches.

    `num_workers` and `collate_fn` are PyTorch's names for `workers` and `collate`; `pin_memory` changes nothing. The
    compiled library makes batches of `TensorDataset` and `Digits` without the interpreter. Threads make batches of
    datasets that are written in Python. They take turns in the interpreter, and run side by side while NumPy, Pillow or
    files release its lock.

    The loop raises a dataset's exceptions unchanged, with their traceback and the index of the example. When a loop
    ends early, the threads end after their present examples, and the next loop begins the next epoch. A loop that
    begins while another one is under way ends the other one, which raises RuntimeError if it goes on. Errors:
    ArgumentError for options outside their domain; TypeError for an object that is no dataset, or for shuffling a
    dataset that is iterated over.

    >>> import remat
    >>> loader = remat.data.DataLoader(remat.data.TensorDataset(remat.arange(5)), batch_size=2)
    >>> len(loader), [x.tolist() for x, in loader]
    (3, [[0, 1], [2, 3], [4]])
    """

    def __init__(
        self, dataset: Any, batch_size: int = 32, shuffle: Union[bool, int] = False, drop_last: bool = False,
        workers: int = 1, prefetch: int = 2, device: Optional[Device] = None, generator: Optional[Generator] = None,
        collate: Optional[Callable[[List[Any]], Any]] = None, *, num_workers: Optional[int] = None,
        collate_fn: Optional[Callable[[List[Any]], Any]] = None, pin_memory: bool = False,
    ):
        workers = whole(workers if num_workers is None else num_workers, "workers", 0)
        batch_size, prefetch = whole(batch_size, "batch_size", 1), whole(prefetch, "prefetch", 0)
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        home = device if device is not None else getattr(dataset, "device", None)
        self.device, self.collate = default_device(home if isinstance(home, Device) else None), collate if collate_fn is None else collate_fn
        # the device on which tensors of the dataset must lie, unless `device` says that they are to be moved
        self._stays = self.device if device is None else None
        self._workers, self._prefetch = workers, prefetch if workers else 0
        self._seed: Optional[int] = None
        if _is_bool(shuffle):
            if shuffle:
                drawn = default_generator() if generator is None else generator
                self._seed = drawn.split().seed % SEEDS
        else:
            self._seed = _seed(shuffle)
        self._run, self._is_under_way = 0, False
        self._made: Optional[_Called] = None
        has_own = isinstance(dataset, TensorDataset) and type(dataset).__getitem__ is TensorDataset.__getitem__
        if has_own and self.collate is None:
            self._native: Any = dataset._of
        elif hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__"):
            self._made = _Called(dataset, self.collate, self._stays)
            self._native = _remat.called_dataset(self._made, len(dataset))
        elif hasattr(dataset, "__iter__"):
            self._native = None
        else:
            raise TypeError(f"{type(dataset).__name__} is no dataset: it has neither __getitem__ and __len__, nor __iter__")
        if self._native is None and self._seed is not None:
            raise TypeError("a dataset that is iterated over has its own order: shuffle where it is made")
        self._of: Any = self._opened()
        _open.add(self)

    def _opened(self) -> Any:
        if self._native is None:
            return Stream(
                self.dataset, self.device, self.batch_size, self.drop_last, self._workers, self._prefetch, self.collate, self._stays
            )
        return _remat._Loader(
            self._native, self.device, self.batch_size, self._seed, self.drop_last, self._workers, self._prefetch
        )

    def _stop(self) -> None:
        self._of.stop()

    def __len__(self) -> int:
        return len(self._of)

    def next_batch(self) -> Optional[Any]:
        """The next batch, or None once at the end of each epoch. Errors: those of the dataset; the next call tries that
        batch again."""
        made = self._of.next_batch()
        return made if made is None or self._made is None else assembled(self._made.structure, made)

    def wait_for_prefetch(self) -> None:
        """Waits until every batch that may be prepared ahead in this epoch is ready.

        Then the memory that it takes from the budget does not depend on the timing of the threads. It is for a
        rehearsal, whose peak must be that of every run. It begins no epoch.

        >>> import remat
        >>> loader = remat.data.DataLoader(remat.data.TensorDataset(remat.arange(8)), batch_size=2)
        >>> loader.next_batch()[0].tolist(), loader.wait_for_prefetch()
        ([0, 1], None)
        """
        self._of.wait_for_prefetch()

    def __iter__(self) -> Iterator[Any]:
        self._run += 1
        if self._is_under_way:
            self._end_epoch()
        return self._epoch(self._run)

    def _end_epoch(self) -> None:
        """Gives up the epoch that a loop has begun. The next loop begins the next epoch."""
        self._is_under_way = False
        self._of.set_position(self.position[0] + 1, 0)

    def _epoch(self, run: int) -> Iterator[Any]:
        try:
            while True:
                if run != self._run:
                    raise RuntimeError("another loop over this loader was begun: a loader is at one place at a time")
                self._is_under_way = True
                made = self.next_batch()
                if made is None:
                    self._is_under_way = False
                    return
                yield made
                del made
        finally:
            if run == self._run and self._is_under_way:
                self._end_epoch()

    @property
    def position(self) -> Tuple[int, int]:
        """The epoch and the batch that come next. Setting it moves the loader there."""
        return self._of.position()

    @position.setter
    def position(self, at: Tuple[int, int]) -> None:
        self._of.set_position(*at)
        self._is_under_way = False

    def state_dict(self) -> Dict[str, Any]:
        """The loader's position, for `load_state_dict`: seed, epoch, batch and batch size, and the dataset's own state if
        it is iterated over.

        >>> import remat
        >>> make = lambda: remat.data.DataLoader(remat.data.TensorDataset(remat.arange(6)), 2, shuffle=True)
        >>> loader = make(); _ = loader.next_batch(); other = make()
        >>> other.load_state_dict(loader.state_dict())
        >>> [x.tolist() for x, in other] == [x.tolist() for x, in loader]
        True
        """
        epoch, batch = self.position
        state = {"seed": self._seed, "epoch": epoch, "batch": batch, "batch_size": self.batch_size}
        return state if self._native is not None else {**state, **self._of.state()}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on from the position of another loader of the same dataset and batch size. The next loop begins there.

        A dataset that is iterated over is read up to there and the examples are dropped, unless it has
        `load_state_dict`. Errors: ArgumentError for an incomplete state, for a batch past the end of an epoch,
        and for a state of another batch size, where the number of a batch means other examples.
        """
        missing = [k for k in ("seed", "epoch", "batch") if k not in state] if isinstance(state, Mapping) else ["a mapping"]
        if missing:
            raise ArgumentError(f"the state of a loader lacks {', '.join(missing)}: it is what `state_dict` returned")
        batch_size = state.get("batch_size", self.batch_size)
        if batch_size != self.batch_size:
            raise ArgumentError(f"the state is of a loader with batch_size {batch_size}, this one has {self.batch_size}")
        seed, epoch, batch = state["seed"], int(state["epoch"]), int(state["batch"])
        if seed != self._seed:
            self._stop()
            self._seed = None if seed is None else int(seed)
            self._of = self._opened()
        self._run += 1
        if self._native is None:
            self._of.restore(state)
        else:
            self.position = (epoch, batch)
