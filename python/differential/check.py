"""All runs of one program, and what disagrees between them."""
import collections
import dataclasses
import pathlib
import tempfile
from typing import Any, Counter, Dict, List, Optional, Sequence, Tuple

from .compare import Failure, compare_forms, compare_torch, compare_verdicts
from .forms import Form, forms_of
from .generate import Program
from .run import Outcome, Runner, frameworks

# how often a budget follows the figures of errors
CLIMBS = 6
# a budget `just above` a figure: blocks are padded to as many bytes
PADDING_BYTES = 64
NUDGES = (1, 2)
# where a value is too far away: rules that divide by the size of a gradient carry differences far, and only sometimes, so that the
# most of a few runs says little
MORE_NUDGES = tuple(range(3, 19))
MORE_CARRIED = 256.0
# a run of more processor time hangs: without a budget these programs take some tenths of a second
LIMIT_S = 20.0


@dataclasses.dataclass
class Checked:
    """What the runs of a program came to."""

    program: Program
    is_valid: bool = True
    why_invalid: str = ""
    failures: List[Failure] = dataclasses.field(default_factory=list)
    runs: int = 0
    refused: int = 0
    compared: int = 0
    ill: int = 0
    times: List[Tuple[Any, float, float]] = dataclasses.field(default_factory=list)
    ends: Counter = dataclasses.field(default_factory=collections.Counter)


class Checker:
    """Runs programs in all forms, `times` as many steps of each. `with_torch` compares with PyTorch, if it is installed."""

    def __init__(self, limit_s: float = LIMIT_S, with_torch: bool = True, plant: Optional[str] = None, times: int = 1):
        self.limit_s = limit_s
        self.times = times
        self.plant = plant
        self._folder = tempfile.TemporaryDirectory(prefix="differential-")
        folder = pathlib.Path(self._folder.name)
        self.remat = Runner("remat", folder)
        self.torch = Runner("torch", folder) if with_torch and "torch" in frameworks() else None

    def __enter__(self) -> "Checker":
        return self

    def __exit__(self, *_: Any) -> None:
        for runner in (self.remat, self.torch):
            if runner is not None:
                runner.close()
        self._folder.cleanup()

    def _run(self, program: Program, form: Form, budget: Optional[int] = None) -> Outcome:
        """A run under Remat. A fault is planted in budgeted and compiled forms only, which leaves the plain one as it is."""
        given = {key: value for key, value in form.items() if key not in ("share", "least", "torch")}
        if budget is not None:
            given["budget"] = budget
        if self.plant is not None and (budget is not None or form.get("compiled")):
            given["plant"] = self.plant
        if self.times > 1:
            given["times"] = self.times
        return self.remat.run(program.source, {**given, "precision": program.precision}, self.limit_s)

    def plain(self, program: Program) -> Outcome:
        """The run that all others are compared with."""
        return self._run(program, {})

    def in_form(self, program: Program, form: Form, plain: Outcome) -> Outcome:
        """A run in a form. A budget that is a share is one of the plain run's peak; `just above the least` follows the figures of
        errors from a tenth of the peak up, as a user would."""
        peak = plain.told["peak_bytes"] if plain.told else 0
        if not form.get("least"):
            return self._run(program, form, peak * form["share"] // 100 if "share" in form else None)
        budget = max(peak // 10, 1)
        for _ in range(CLIMBS):
            made = self._run(program, form, budget)
            if not made.is_refused or made.error is None:
                break
            figure = made.error.get("smallest_feasible_bytes", 0)
            if figure <= budget or figure > peak:
                break
            budget = figure + PADDING_BYTES
        return made

    def versions(self, program: Program) -> Optional[Sequence[Tuple[str, str]]]:
        """The versions that the optimisers' parameters have; None for a program that also sets them by other means."""
        if any(name in program.source for name in ("load_state_dict(", "LBFGS")):
            return None
        told = self._run(program, {"versions": True}).told
        return told["versions"] if told is not None and told["error"] is None else None

    def with_torch(self, program: Program, plain: Outcome, made: Checked) -> None:
        """Compares with PyTorch, where random numbers do not decide."""
        if self.torch is None or program.is_random:
            return
        runs: List[Outcome] = []

        def run(nudges: Sequence[int]) -> None:
            for nudge in nudges:
                form = {"precision": program.precision, **({"nudge": nudge} if nudge else {})}
                runs.append(self.torch.run(program.source, form, self.limit_s))
                made.runs += 1
                if not runs[0].is_whole:
                    break

        run((0, *NUDGES))
        if not runs[0].is_whole:
            error = runs[0].error or {"type": runs[0].ended, "text": ""}
            made.is_valid, made.why_invalid = False, f"PyTorch: {error['type']}: {error['text'][:120]}"
            return
        if not plain.is_whole:
            return
        agreement = compare_torch(runs[0], runs[1:], plain, program.precision)
        if agreement.failures:
            run(MORE_NUDGES)
            agreement = compare_torch(runs[0], runs[1:], plain, program.precision, MORE_CARRIED)
        made.compared, made.ill = agreement.compared, agreement.ill
        made.failures += agreement.failures

    def check(self, program: Program, forms: Optional[Sequence[Form]] = None) -> Checked:
        """Runs a program in its forms, or in those given, and compares. A form that was kept says how many times the steps were."""
        made = Checked(program)
        self.times = max([self.times, *(form.get("times", 1) for form in forms or ())])
        plain = self.plain(program)
        made.runs += 1
        if forms is None or any(form.get("torch") for form in forms):
            self.with_torch(program, plain, made)
        if not made.is_valid:
            return made
        if not plain.is_whole:
            made.failures += _failed_plain(plain)
            return made
        assert plain.told is not None
        ends: List[Tuple[Form, Outcome]] = []
        versions: Optional[Sequence[Tuple[str, str]]] = None
        for form in forms_of(program) if forms is None else forms:
            form = {**form, "times": self.times} if self.times > 1 else form
            if form.get("torch") or (any(f.kind == "hang" for f in made.failures) and ("share" in form or "least" in form)):
                # a program that hangs under one budget does so under others: one wait is enough
                continue
            outcome = self.in_form(program, form, plain)
            made.runs += 1
            if outcome.is_refused and versions is None:
                versions = self.versions(program)
            made.failures += compare_forms(plain, outcome, form, versions)
            ends.append((form, outcome))
            made.refused += outcome.is_refused
            made.ends[_end_of(form, outcome)] += 1
            if outcome.is_whole and outcome.told is not None and "ops" in outcome.told:
                key = ("compiled " if form.get("compiled") else "") + str(form.get("share", "least" if form.get("least") else "free"))
                made.times.append((key, outcome.told["seconds"] / max(plain.told["seconds"], 1e-3), outcome.told["ops"] / max(plain.told["ops"], 1)))
        made.failures += compare_verdicts(ends)
        return made


def _end_of(form: Form, outcome: Outcome) -> Tuple[str, str]:
    share = "least" if form.get("least") else str(form.get("share", "free"))
    return ("compiled " if form.get("compiled") else "") + share, "ran" if outcome.is_whole else "refused" if outcome.is_refused else "failed"


def _failed_plain(plain: Outcome) -> List[Failure]:
    """What a program that PyTorch runs, and Remat does not, failed with."""
    if plain.ended in ("hang", "memory"):
        return [Failure(plain.ended, {}, f"ended after {plain.seconds:.1f} s")]
    if plain.error is None:
        return [Failure("crash", {}, f"{plain.ended or 'no result'}: {plain.log[-400:]}")]
    error: Dict[str, Any] = plain.error
    kind = "panic" if error["type"] in ("PanicException", "InternalError") else "error"
    return [Failure(kind, {}, f"{error['type']}: {error['text']}")]
