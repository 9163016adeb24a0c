"""What disagrees between runs of one program.

Between forms of Remat every value that is told must have the same bits. A budget that is refused is an answer: what was told before
the refusal must be right all the same, and afterwards every optimiser's parameters must be one of the versions that they have in a run
without a budget, never a mixture and never a version that was told to be another.

With PyTorch values agree within what rounding can do, and that is measured: PyTorch runs the program twice more, with weights and data
moved by some units in the last place, and sixteen times more where a value is too far away. How far a value moves is how far the program carries such differences; a value of Remat may be
`CARRIED` times as far away, for the operations on the way round as well, and `FLOOR` of the largest element where nothing is carried. A
value that moves by more than `ILL` of its size says nothing, and is not compared. Nor is anything from where a value has grown `GROWN` times:
training explodes, and what comes after is the difference of large numbers.
"""
import dataclasses
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from .forms import Form, name_of
from .run import Outcome

CARRIED = 64.0
# calls after which a compiled function that was traced at each of them will never be done, unless there are many shapes and modes
SETTLED = 6
# as a multiple of the first value of the same name
GROWN = 1e5
FLOOR = {"float64": 1e-12, "float32": 3e-6}
ILL = {"float64": 1e-6, "float32": 1e-2}
Notes = Sequence[Tuple[str, np.ndarray]]


@dataclasses.dataclass
class Failure:
    """A disagreement: its kind, the form in which it shows, and what was seen.

    Kinds: `torch` (another value than PyTorch's), `bits` (other bits than the plain form's), `silent` (other bits, and a refusal
    that came later), `mixed` (parameters of no version), `told again` (a failure that was told is told once more), `poisoned` (a
    failure that is told first without figures), `retraced` (a compiled function that is traced at every call), `verdict` (a budget that suffices in one form and not in another), `peak`, `hang`,
    `memory`, `crash`, `panic`, `error` (any other error).
    """

    kind: str
    form: Form
    detail: str

    def __str__(self) -> str:
        return f"{self.kind} ({name_of(self.form)}): {self.detail}"

    @property
    def signature(self) -> str:
        """What failures of one cause mostly share."""
        words = "".join("0" if c.isdigit() else c for c in self.detail.splitlines()[0] if c not in ".-") if self.detail else ""
        while "00" in words:
            words = words.replace("00", "0")
        return f"{self.kind}: {words[:60]}" if self.kind in ("error", "panic", "crash", "poisoned") else self.kind


def first_difference(want: Notes, got: Notes) -> Optional[str]:
    """The first value that has not the same name, shape, dtype and bits, among those that were told."""
    for i, ((name, a), (other, b)) in enumerate(zip(want, got)):
        if name != other:
            return f"value {i} is `{other}` instead of `{name}`"
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"value {i}, `{name}`, is {b.dtype} {b.shape} instead of {a.dtype} {a.shape}"
        if a.tobytes() != b.tobytes():
            apart = np.abs(np.asarray(a, "float64") - np.asarray(b, "float64")) if a.size else np.zeros(1)
            return f"value {i}, `{name}`: {_shown(a)} and {_shown(b)}, {np.nanmax(apart):.3g} apart"
    return None


def _shown(x: np.ndarray) -> str:
    return np.array2string(x.reshape(-1)[:3], precision=17) + (" .." if x.size > 3 else "")


def _failed(error: Dict[str, Any]) -> Tuple[str, Any, Any]:
    """What tells one failure from another: the operator, what it needs, and where it was asked for."""
    text = error["text"]
    return text[text.find("[") : text.find("]") + 1] + text[text.rfind("(at ") :], error.get("needed_bytes"), error.get("least_bytes")


def _end(outcome: Outcome) -> Optional[Tuple[str, str]]:
    """Why a run did not come to its end, other than by a refusal."""
    if outcome.ended in ("hang", "memory"):
        return outcome.ended, f"ended after {outcome.seconds:.1f} s"
    if outcome.told is None or outcome.ended:
        return "crash", (outcome.ended or "no result") + ": " + outcome.log[-400:]
    error = outcome.error
    if error is None:
        return None
    text = f"{error['type']}: {error['text']}"
    if error["type"] in ("PanicException", "InternalError"):
        return "panic", text
    if error["type"] == "PoisonedError":
        return "poisoned", text
    if error["type"] != "BudgetError" or "budget" not in outcome.form:
        return "error", text
    return None


def compare_forms(plain: Outcome, other: Outcome, form: Form, versions: Optional[Sequence[Tuple[str, str]]] = None) -> List[Failure]:
    """What a form disagrees in with the plain one, which ran to its end. `versions` are those of the optimisers' parameters."""
    assert plain.told is not None
    end = _end(other)
    if end is not None:
        failures = [Failure(end[0], form, end[1])]
        if other.told is None or end[0] in ("hang", "memory"):
            return failures
    else:
        failures = []
    told = other.told
    assert told is not None
    want, got = plain.told["notes"], told["notes"]
    different = first_difference(want, got)
    if different is not None:
        failures.append(Failure("bits" if other.is_whole else "silent", form, different))
    elif other.is_whole and len(want) != len(got):
        failures.append(Failure("bits", form, f"{len(got)} values instead of {len(want)}"))
    for traces, calls, shapes in told.get("compiled", []):
        if traces == calls >= SETTLED and 4 * shapes <= calls:
            failures.append(Failure("retraced", form, f"{traces} traces of {calls} calls with {shapes} shapes"))
    budget = other.form.get("budget")
    if budget is not None and told["peak_bytes"] > budget:
        failures.append(Failure("peak", form, f"{told['peak_bytes']} of {budget} bytes"))
    told_before = {_failed(told["error"])} if told["error"] is not None else set()
    texts = {told["error"]["text"]} if told["error"] is not None else set()
    for later in [e for after in told.get("after", []) for e in after["errors"]] + told.get("closing", []):
        # operations behind the failed one may have failed for reasons of their own, each of which is told once as well
        # what was put into a parameter and failed is what that parameter is from then on
        is_first_value = later["type"] == "PoisonedError" and "[put]" in later["text"]
        # the same line of a loop, or of the next step, is another failure where the device runs ahead
        is_same = later["text"] in texts and other.form.get("async_level", "full") == "sync"
        is_again = is_same or (later["type"] == "PoisonedError" and _failed(later) in told_before)
        if is_again and not is_first_value:
            failures.append(Failure("told again", form, f"{later['type']}: {later['text'][:200]}"))
        told_before.add(_failed(later))
        texts.add(later["text"])
    for after in told.get("after", []) if versions is not None else []:
        mine = {digest for key, digest in versions or () if key == after["optimizer"]}
        if after["value"] is not None and mine and after["value"] not in mine:
            failures.append(Failure("mixed", form, f"parameters {after['optimizer']} of an optimiser are of no version after the refusal"))
    return failures


def compare_verdicts(pairs: Sequence[Tuple[Form, Outcome]]) -> List[Failure]:
    """Whether forms that have a budget in common, and differ in asynchrony alone, end alike."""
    seen: Dict[Any, Tuple[Form, Outcome]] = {}
    failures = []
    for form, outcome in pairs:
        if "share" not in form or form.get("foresight") != "off" or outcome.told is None:
            continue
        before = seen.setdefault(form["share"], (form, outcome))
        if before[1].is_refused != outcome.is_refused and (outcome.is_whole or before[1].is_whole):
            text = [f"{name_of(f)}: {'refused' if o.is_refused else 'ran'}" for f, o in (before, (form, outcome))]
            failures.append(Failure("verdict", form, "; ".join(text)))
    return failures


@dataclasses.dataclass
class Agreement:
    """How values agree with PyTorch's: how many were compared, how many say nothing, and what differs."""

    compared: int = 0
    ill: int = 0
    failures: List[Failure] = dataclasses.field(default_factory=list)


def compare_torch(torch: Outcome, nudged: Sequence[Outcome], plain: Outcome, precision: str, times: float = CARRIED) -> Agreement:
    """How Remat's values agree with PyTorch's: they may be `times` as far away as nudged runs carry differences."""
    made = Agreement()
    assert torch.told is not None and plain.told is not None
    want, got = torch.told["notes"], plain.told["notes"]
    moved = [o.told["notes"] for o in nudged if o.told is not None]
    form: Form = {"torch": True}
    first: Dict[str, float] = {}
    for i, ((name, a), (other, b)) in enumerate(zip(want, got)):
        if name != other or a.shape != b.shape:
            made.failures.append(Failure("torch", form, f"value {i} is `{other}` {b.shape}, PyTorch's `{name}` {a.shape}"))
            return made
        if any(i >= len(m) or m[i][0] != name or m[i][1].shape != a.shape for m in moved) or len(moved) != len(nudged):
            # the program takes another way for other last digits: what follows cannot be compared
            made.ill += len(want) - i
            return made
        a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
        size = np.max(np.abs(a), initial=0.0)
        carried = max((np.max(np.abs(np.asarray(m[i][1], "float64") - a), initial=0.0) for m in moved), default=0.0)
        begun = first.setdefault(name, size)
        if begun > 0.0 and size > GROWN * begun:
            made.ill += len(want) - i
            return made
        if not np.isfinite(size) or carried > ILL[precision] * size:
            made.ill += 1
            continue
        made.compared += 1
        apart = np.max(np.abs(a - b), initial=0.0)
        if not apart <= times * carried + FLOOR[precision] * size:
            text = f"value {i}, `{name}`: {_shown(b)}, PyTorch's {_shown(a)}; {apart:.3g} apart, where {carried:.3g} is carried"
            made.failures.append(Failure("torch", form, text))
            return made
    if len(want) != len(got):
        made.failures.append(Failure("torch", form, f"{len(got)} values, PyTorch's {len(want)}"))
    return made
