"""Lines of a program, and the draws that its writers share."""
import contextlib
import random
from typing import Any, Dict, Iterator, List, Sequence


class Lines:
    """The lines of a block of statements, with their indentation."""

    def __init__(self, depth: int = 0):
        self.lines: List[str] = []
        self.depth = depth

    def add(self, line: str) -> None:
        """A line of the present block."""
        self.lines.append("    " * self.depth + line)

    @contextlib.contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A block below a head such as `for t in range(3):`; one that stays empty does nothing."""
        self.add(head)
        self.depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.add("pass")
        self.depth -= 1


class Draw:
    """Draws of one program. `traits` counts what was drawn, for the report."""

    def __init__(self, seed: int):
        self.seed = seed
        self.random = random.Random(seed)
        self.traits: Dict[str, int] = {}
        self._names = 0
        self._seeds = 0

    def chance(self, p: float) -> bool:
        """True with probability `p`."""
        return self.random.random() < p

    def of(self, options: Sequence[Any]) -> Any:
        """One of the options."""
        return self.random.choice(list(options))

    def weighted(self, options: Dict[str, float]) -> str:
        """One of the names, by weight."""
        return self.random.choices(list(options), list(options.values()))[0]

    def int(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return self.random.randint(low, high)

    def number(self, low: float, high: float) -> float:
        """A number of two digits."""
        return round(self.random.uniform(low, high), 2)

    def name(self, stem: str = "v") -> str:
        """A name that is not used yet."""
        self._names += 1
        return f"{stem}{self._names}"

    def fresh_seed(self) -> int:
        """A seed of data that no other data have."""
        self._seeds += 1
        return 1000 * (self.seed % 1_000_003) + self._seeds

    def trait(self, name: str) -> None:
        """Counts that something was drawn."""
        self.traits[name] = self.traits.get(name, 0) + 1
