"""What a running program tells: values, times of steps, and the versions of parameters.

A program is run once in a process, so there is one `FRAME`. The form it is run in comes from the process that started it, or, where
a person runs a case by hand, from the environment variable `DIFFERENTIAL_FORM`, as JSON.
"""
import hashlib
import json
import os
import time
import zlib
from typing import Any, Callable, Dict, Iterator, List, Tuple

import numpy as np

# relative size of what is added to weights and data to see how far a program carries rounding: some units in the last place
NUDGES = {"float64": 2.0**-49, "float32": 2.0**-21}


class Frame:
    """What one run of a program tells, and the form that it is run in."""

    def __init__(self, form: Dict[str, Any]):
        self.form = form
        self.notes: List[Tuple[str, np.ndarray]] = []
        self.kept: List[Tuple[str, Any]] = []
        self.step_starts: List[float] = []
        self.versions: List[Tuple[str, str]] = []
        # of each compiled function: how often it was traced, how often it was called, with how many shapes
        self.compiled: List[Callable[[], Tuple[int, int, int]]] = []
        self.optimizers: List[Any] = []
        # parameters in the order in which optimisers named them first, and sets whose earlier versions nobody knows
        self.parameters: List[Any] = []
        self.unknown: set[str] = set()
        self.to_numpy: Callable[[Any], np.ndarray] = np.asarray
        self.parameters_of: Callable[[Any], List[Any]] = list
        self.is_tensor: Callable[[Any], bool] = lambda x: False

    # what a program calls

    def note(self, name: str, value: Any) -> None:
        """Reads a value now, and tells it."""
        try:
            array = np.array(self.to_numpy(value) if self.is_tensor(value) else value)
        except MemoryError:
            if self.form.get("plant") != "swallow":
                raise
            array = np.zeros(tuple(value.shape))
        if self.form.get("plant") == "bit" and array.dtype.kind == "f" and len(self.notes) == self.form.get("plant_at", 2):
            array = np.nextafter(array, np.inf).astype(array.dtype)
        self.notes.append((name, array))

    def keep(self, name: str, value: Any) -> None:
        """Reads a value when the program has ended: until then it is in memory, or can be computed again."""
        self.kept.append((name, value))

    def note_all(self, name: str, net: Any) -> None:
        """Reads all parameters and buffers of a module."""
        named = [*net.named_parameters(), *net.named_buffers()]
        for part, p in sorted(named, key=lambda pair: pair[0]):
            if not part.endswith("num_batches_tracked"):
                self.note(f"{name}.{part}", p)

    def note_gradients(self, name: str, net: Any) -> None:
        """Reads the gradients of all parameters of a module that have one."""
        for part, p in sorted(net.named_parameters(), key=lambda pair: pair[0]):
            if p.grad is not None:
                self.note(f"grad of {name}.{part}", p.grad)

    def steps(self, n: int) -> Iterator[int]:
        """`range(n)`, or so many times that, of training steps whose times are told."""
        for k in range(n * self.form.get("times", 1)):
            self.step_starts.append(time.perf_counter())
            if self.form.get("plant") == "hang" and k == 1:
                time.sleep(3600)
            if self.form.get("plant") == "crash" and k == 1:
                os.abort()
            yield k
        self.step_starts.append(time.perf_counter())

    # what the frameworks' sides call

    def stepped(self, optimizer: Any) -> None:
        """An optimiser has moved its parameters: in a form that asks for it, what they are now is a version."""
        if self.form.get("versions"):
            self.tell_version(optimizer)

    def places(self, optimizer: Any) -> List[int]:
        """Which parameters an optimiser has, by numbers that are the same in every run of a program."""
        found = []
        for p in self.parameters_of(optimizer):
            at = next((i for i, q in enumerate(self.parameters) if q is p), len(self.parameters))
            if at == len(self.parameters):
                self.parameters.append(p)
            found.append(at)
        return found

    def key(self, optimizer: Any) -> str:
        """The same for optimisers of the same parameters."""
        return ",".join(map(str, self.places(optimizer)))

    def tell_version(self, optimizer: Any) -> None:
        """Remembers a digest of an optimiser's parameters, and of those of each other one that has some of them."""
        moved = set(self.places(optimizer))
        alike = {self.key(o): o for o in self.optimizers if moved & set(self.places(o))}
        self.versions += [(key, self.digest(o)) for key, o in alike.items() if key not in self.unknown]

    def made(self, optimizer: Any) -> None:
        """There is a new optimiser."""
        before = [self.places(o) for o in self.optimizers]
        self.optimizers.append(optimizer)
        mine = self.places(optimizer)
        if mine not in before and any(set(mine) & set(other) for other in before):
            self.unknown.add(self.key(optimizer))
        self.stepped(optimizer)

    def digest(self, optimizer: Any) -> str:
        """A digest of the bits of an optimiser's parameters."""
        of = hashlib.sha256()
        for p in self.parameters_of(optimizer):
            of.update(self.to_numpy(p).tobytes())
        return of.hexdigest()[:16]

    def read_kept(self) -> None:
        """Tells what was kept."""
        kept, self.kept = self.kept, []
        for name, value in kept:
            self.note(name, value)

    # numbers that both frameworks begin with

    def nudged(self, x: np.ndarray, seed: int) -> np.ndarray:
        """`x`, moved by some units in the last place in forms that measure how far that carries."""
        nudge = self.form.get("nudge")
        if not nudge:
            return x
        signs = np.random.default_rng([seed, nudge]).choice([-1.0, 1.0], x.shape)
        return x * (1.0 + signs * NUDGES[self.form.get("precision", "float64")])

    def normal(self, seed: int, shape: Tuple[int, ...]) -> np.ndarray:
        """Normal numbers."""
        return self.nudged(np.random.default_rng(seed).standard_normal(shape), seed)

    def integers(self, seed: int, below: int, shape: Tuple[int, ...]) -> np.ndarray:
        """Integers from 0."""
        return np.random.default_rng(seed).integers(0, below, shape)

    def first_value(self, seed: int, name: str, shape: Tuple[int, ...]) -> np.ndarray:
        """The first value of a parameter, which depends on its name and shape alone: other parameters may come and go."""
        seed = zlib.crc32(f"{seed} {name} {shape}".encode())
        fan = shape[-1] if len(shape) < 3 else int(np.prod(shape[1:]))
        x = np.random.default_rng(seed).standard_normal(shape)
        x = x / np.sqrt(max(fan, 1)) if len(shape) > 1 else 0.1 * x + (1.0 if name.endswith("weight") else 0.0)
        return self.nudged(x, seed)


FRAME = Frame(json.loads(os.environ.get("DIFFERENTIAL_FORM", "{}")))
