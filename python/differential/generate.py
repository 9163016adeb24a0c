"""Draws programs: a seed gives a text, the same one on every machine."""
import dataclasses
import json
from typing import Any, Dict, Optional

from .run import IMPORTS
from .text import Draw
from .training import KINDS, Training

MARK = "# differential: "


@dataclasses.dataclass
class Program:
    """The text of a program, and what the ways to run and compare it need to know of it."""

    source: str
    seed: int
    kind: str
    precision: str = "float64"
    is_random: bool = False
    traits: Dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def head(self) -> str:
        """The line that a file of the program begins with, from which it is read again."""
        facts = {"seed": self.seed, "kind": self.kind, "precision": self.precision, "random": self.is_random}
        return MARK + json.dumps(facts)

    def with_source(self, source: str) -> "Program":
        """A program with another text, of which all else is true as well."""
        return dataclasses.replace(self, source=source)


def draw_program(seed: int, kind: Optional[str] = None) -> Program:
    """The program of a seed, of any kind or of one."""
    draw = Draw(seed)
    drawn = draw.weighted(KINDS)
    training = Training(draw, kind or drawn)
    body = training.text
    # random bits differ between the frameworks, and values of half the precision carry its rounding
    is_single = training.is_single or "single" in draw.traits
    made = Program("", seed, training.kind, "float32" if is_single else "float64", "random" in draw.traits, draw.traits)
    made.source = f"{made.head}\n{IMPORTS['torch']}\n\n{body}"
    return made


def read_program(text: str) -> Program:
    """The program that a file has."""
    first = text.splitlines()[0]
    if not first.startswith(MARK):
        raise ValueError(f"a program begins with `{MARK}` and its facts, not with `{first[:60]}`")
    facts: Dict[str, Any] = json.loads(first[len(MARK) :])
    return Program(text, facts["seed"], facts["kind"], facts["precision"], facts["random"])
