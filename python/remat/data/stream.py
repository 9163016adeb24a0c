"""Batches of a dataset that is iterated over. One thread reads ahead, and its batches count against the device's
budget.

A generator does not give an example a second time, unlike a dataset that is read by index. So when the device takes
back the charge of a batch that was read ahead, the batch stays. From then on the thread reads no more batches ahead
than it has charges.
"""
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple

from .. import _remat
from .._errors import ArgumentError, BudgetError
from .._remat import Device
from .collate import assembled, bytes_of

BUDGET_SHARE = 4
"""Batches that are read ahead take at most the budget divided by this."""
ASK_SECONDS = 0.05
"""A wait for the thread is cut into parts of this length, so that signals are handled."""


class _Ahead:
    """A thread that reads the batches of one pass. It holds no reference to the loader, so dropping the loader ends
    it."""

    def __init__(self, read: Callable[[], Any], device: Device, depth: int):
        self._read, self._device, self._depth = read, device, depth
        self._changed = threading.Condition()
        self._ready: Deque[Tuple[str, Any, Any]] = deque()
        self._is_awaited = self._is_stopped = False
        self._thread = threading.Thread(target=self._work, name="remat-data", daemon=True)
        self._thread.start()

    def _charged(self, size: int, others: int) -> Optional[Any]:
        """A charge of `size` bytes, or None if the budget has no room for it."""
        budget = self._device.budget
        if budget is not None and others + size > budget // BUDGET_SHARE:
            return None
        try:
            return _remat._Charge(self._device, max(size, 1))
        except BudgetError:
            return None

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._is_stopped and not (len(self._ready) < self._depth or self._is_awaited and not self._ready):
                    self._changed.wait()
                if self._is_stopped:
                    return
            try:
                kind, value = "batch", self._read()
            except BaseException as e:  # it is the consumer's, whatever it is
                kind, value = "error", e
            charge = None
            if kind == "batch" and value is not None:
                size = bytes_of(value[1])
                try:
                    with self._changed:
                        others = sum(bytes_of(v[1]) for k, v, _ in self._ready if k == "batch" and v is not None)
                    charge = self._charged(size, others)
                except BaseException as e:
                    kind, value = "error", e
            with self._changed:
                if kind == "batch" and value is not None and charge is None:
                    self._depth = min(self._depth, len(self._ready))
                if any(c is not None and c.has_ended for _, _, c in self._ready):
                    self._depth = min(self._depth, sum(c is not None and not c.has_ended for _, _, c in self._ready))
                self._ready.append((kind, value, charge))
                self._changed.notify_all()
                if kind == "error" or value is None:
                    return

    def take(self) -> Any:
        """The next batch, or None behind the last. Errors: those that the iteration raised."""
        with self._changed:
            self._is_awaited = True
            self._changed.notify_all()
            while not self._ready:
                self._changed.wait(ASK_SECONDS)
            kind, value, charge = self._ready.popleft()
            self._is_awaited = False
            self._changed.notify_all()
        if charge is not None:
            charge.release()
        if kind == "error":
            raise value
        return value

    def fill(self) -> None:
        """Waits until the batches that may be read ahead are ready."""
        with self._changed:
            while self._thread.is_alive() and len(self._ready) < self._depth:
                self._changed.wait(ASK_SECONDS)

    def stop(self) -> None:
        """Ends the thread, after its present example."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        for _, _, charge in self._ready:
            if charge is not None:
                charge.release()
        self._ready.clear()


class Stream:
    """Batches of an iterable, epoch after epoch, with the methods of the compiled loader. `DataLoader` holds it in the
    compiled loader's place."""

    def __init__(
        self, dataset: Any, device: Device, batch_size: int, drop_last: bool, workers: int, prefetch: int,
        collate: Optional[Callable[[List[Any]], Any]], stays: Optional[Device],
    ):
        if batch_size < 1:
            raise ArgumentError(f"batch_size is {batch_size}, must be at least 1")
        if workers > 1:
            raise ArgumentError(f"workers is {workers}: at most one thread reads a dataset that is iterated over")
        if workers < 0 or prefetch < 0:
            raise ArgumentError(f"workers is {workers} and prefetch {prefetch}, must be at least 0")
        if workers and not prefetch:
            raise ArgumentError("prefetch is 0 with workers; without prefetch set workers to 0")
        self._dataset, self._device, self._size, self._drop_last = dataset, device, batch_size, drop_last
        self._depth, self._collate, self._stays = prefetch if workers else 0, collate, stays
        self._at = (0, 0)
        self._ahead: Optional[_Ahead] = None
        self._read: Optional[Callable[[], Any]] = None
        self._is_resumed = False

    def __len__(self) -> int:
        n = len(self._dataset)
        return n // self._size if self._drop_last else -(-n // self._size)

    def _begin_epoch(self) -> None:
        """Tells the dataset which epoch is read, if it has a `set_epoch`."""
        if hasattr(self._dataset, "set_epoch"):
            self._dataset.set_epoch(self._at[0])

    def _reader(self, skip: int) -> Callable[[], Any]:
        """A function that returns the next batch at each call, and None behind the last. Batches before `skip` are
        dropped."""
        if not self._is_resumed:
            self._begin_epoch()
        dataset, size, drop_last, collate, stays = self._dataset, self._size, self._drop_last, self._collate, self._stays
        source: List[Iterator[Any]] = []
        at = [0]

        def next_examples() -> List[Any]:
            if not source:
                source.append(iter(dataset))
            examples: List[Any] = []
            for example in source[0]:
                examples.append(example)
                if len(examples) == size:
                    break
            return examples

        def read() -> Any:
            from .loader import _note, put_together

            try:
                while at[0] < skip:
                    if len(next_examples()) < size:
                        return None
                    at[0] += 1
                examples = next_examples()
                if not examples or drop_last and len(examples) < size:
                    return None
                at[0] += 1
                return put_together(examples, collate, stays)
            except Exception as e:
                _note(e, f"batch {at[0]} of the iteration, examples from {at[0] * size} on")
                raise

        return read

    def next_batch(self) -> Optional[Any]:
        """The next batch, or None once at the end of each epoch."""
        if self._read is None:
            self._read = self._reader(0 if self._is_resumed else self._at[1])
            self._is_resumed = False
            if self._depth:
                self._ahead = _Ahead(self._read, self._device, self._depth)
        try:
            made = self._read() if self._ahead is None else self._ahead.take()
        except KeyboardInterrupt:
            raise
        except BaseException:
            # an iteration that has raised an exception has ended
            self.stop()
            self._at = (self._at[0] + 1, 0)
            raise
        if made is None:
            self.stop()
            self._at = (self._at[0] + 1, 0)
            return None
        self._at = (self._at[0], self._at[1] + 1)
        structure, parts = made
        return assembled(structure, _remat.batch_on(parts, self._device))

    def wait_for_prefetch(self) -> None:
        """Waits until the batches that may be read ahead are ready."""
        if self._ahead is not None:
            self._ahead.fill()

    def stop(self) -> None:
        """Ends thread and iteration."""
        ahead, self._ahead, self._read = self._ahead, None, None
        if ahead is not None:
            ahead.stop()

    def position(self) -> Tuple[int, int]:
        """The epoch and the batch that come next."""
        return self._at

    def set_position(self, epoch: int, batch: int) -> None:
        """Goes on from there. The batches before are read and dropped."""
        self.stop()
        self._at = (int(epoch), int(batch))

    def state(self) -> Dict[str, Any]:
        """The dataset's own state. It belongs to the next batch only if no thread reads ahead."""
        if self._depth == 0 and hasattr(self._dataset, "state_dict"):
            return {"dataset": self._dataset.state_dict()}
        return {}

    def restore(self, state: Dict[str, Any]) -> None:
        """Goes on from `DataLoader.state_dict`."""
        self.set_position(state["epoch"], state["batch"])
        if "dataset" in state and hasattr(self._dataset, "load_state_dict"):
            # the epoch begins first: a dataset that begins one after this would lose a state within it
            self._begin_epoch()
            self._dataset.load_state_dict(state["dataset"])
            self._is_resumed = True

    def __del__(self) -> None:
        if getattr(self, "_ahead", None) is not None:
            self.stop()
