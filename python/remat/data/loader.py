"""Loaders: batches of a dataset on a device, prepared by threads beside the steps."""
import atexit
import operator
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

from .. import _remat
from .._errors import DeviceError
from .._remat import Device, Generator
from .._support import default_device, default_generator
from .collate import assembled, collated, device_of, taken_apart
from .datasets import TensorDataset
from .stream import Stream

SEEDS = 2**63

_open: "weakref.WeakSet[DataLoader]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Threads that call Python end before it does."""
    for loader in list(_open):
        loader._stop()


class _Called:
    """A dataset of Python's as the compiled loader calls it, from its threads."""

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
            # one that leaves a generator would end somebody's loop in silence
            raise RuntimeError(f"example {i} of the dataset raised StopIteration") from e
        except Exception as e:
            _note(e, f"example {i} of the dataset")
            raise

    def batch(self, indices: List[int]) -> List[Any]:
        examples = [self._example(i) for i in indices]
        try:
            structure, parts = put_together(examples, self.collate, self.device)
            # the first batch says; a thread that comes at the same time says the same, or is told that it differs
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
    """Structure and parts of a batch. Errors: DeviceError for tensors that lie elsewhere than on `device`, unless that is None."""
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
    """True for bools, NumPy's as well."""
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
    """Says where an exception comes from: a note below its traceback, or from before there were notes, in its arguments."""
    if hasattr(e, "add_note"):
        e.add_note(text)
    elif len(e.args) == 1 and isinstance(e.args[0], str):
        e.args = (f"{e.args[0]} ({text})",)


class DataLoader:
    """Batches of a dataset on a device: iterating over it is one epoch, and the next time the next one.

    Args:
        dataset: a `TensorDataset`, `Digits`, any object with `__getitem__` and `__len__`, or one that can be iterated over.
        batch_size: examples of a batch.
        shuffle: True for another order in each epoch, by a seed that is drawn from `generator`; an integer is the seed itself, and
            bools of NumPy are bools. The order depends on seed and epoch alone, whatever the number of workers.
        drop_last: leave out a last batch that is smaller.
        workers: threads that prepare batches; 0 prepares them when they are asked for. What is iterated over has at most one.
        prefetch: batches ahead, at most. Their bytes count against the device's budget, take no more than a quarter of it, and
            give way where the device needs the room.
        device: where the batches go; unless given, where the tensors of a `TensorDataset` lie, else the default device, and then it is
            an error if a dataset of Python's gives tensors of another one.
        generator: where the seed comes from; the default generator.
        collate: makes a batch of a list of examples; `default_collate` unless given. It gives tensors or arrays in lists, tuples
            and dictionaries, of the same structure for all batches.

    `num_workers` and `collate_fn` are PyTorch's names of `workers` and `collate`; `pin_memory` changes nothing. Batches of
    `TensorDataset` and `Digits` are made by the compiled library, without the interpreter; those of Python's datasets by threads
    that take turns in the interpreter, side by side where NumPy, Pillow or files let go of it.

    What a dataset raises comes out of the loop as itself, with its traceback and the index of the example. A loop that ends early
    ends the threads, after the examples that they are at, and the next loop begins the next epoch. A loop that is begun while
    another one is under way ends that one: it raises RuntimeError if it goes on. Errors: ArgumentError for options outside
    their domain; TypeError for an object that is no dataset, or for shuffling what is iterated over.

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
        workers = workers if num_workers is None else num_workers
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        home = device if device is not None else getattr(dataset, "device", None)
        self.device, self.collate = default_device(home if isinstance(home, Device) else None), collate if collate_fn is None else collate_fn
        # where tensors of the dataset have to lie, if nobody said that they are to be moved
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
            raise TypeError("what is iterated over comes in its own order: shuffle where it is made")
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
        """The next batch, or None once at the end of each epoch. Errors: what the dataset raises; that batch is tried again next."""
        made = self._of.next_batch()
        return made if made is None or self._made is None else assembled(self._made.structure, made)

    def wait_for_prefetch(self) -> None:
        """Waits until all that may be prepared ahead of the next batch of this epoch is there.

        What it takes of the budget then does not depend on how the threads run: for a rehearsal, whose peak is to be that of every
        run. Begins no epoch.

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
        """The epoch that a loop has begun is given up: the next loop is the next epoch."""
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
        """Epoch and batch that come next; setting it goes on from there."""
        return self._of.position()

    @position.setter
    def position(self, at: Tuple[int, int]) -> None:
        self._of.set_position(*at)
        self._is_under_way = False

    def state_dict(self) -> Dict[str, Any]:
        """Where the loader is, for `load_state_dict`: seed, epoch and batch; and the dataset's own state if it is iterated over.

        >>> import remat
        >>> make = lambda: remat.data.DataLoader(remat.data.TensorDataset(remat.arange(6)), 2, shuffle=True)
        >>> loader = make(); _ = loader.next_batch(); other = make()
        >>> other.load_state_dict(loader.state_dict())
        >>> [x.tolist() for x, in other] == [x.tolist() for x, in loader]
        True
        """
        epoch, batch = self.position
        state = {"seed": self._seed, "epoch": epoch, "batch": batch}
        return state if self._native is not None else {**state, **self._of.state()}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on from where another loader of the same dataset and batch size was: the next loop begins there.

        What is iterated over is read, and let go, up to there, unless the dataset has `load_state_dict`. Errors: KeyError for a
        state that lacks something; ArgumentError for a batch past the end of an epoch.
        """
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
