"""`python -m differential`: draws programs, runs them in all forms, and keeps what fails, shrunk."""
import argparse
import collections
import itertools
import json
import pathlib
import statistics
import sys
import time
from typing import Any, Counter, Dict, List, Optional, Tuple

from .check import LIMIT_S, Checked, Checker
from .compare import Failure
from .forms import Form
from .generate import Program, draw_program, read_program
from .shrink import shrink
from .training import KINDS

CASES = pathlib.Path(__file__).parent / "cases"
FORM_MARK = "# form: "
# the seeds of continuous integration: programs that every form runs to its end, or is refused
CI_SEEDS = tuple(range(5, 25))


def case_text(program: Program, failure: Failure) -> str:
    """The file of a case: a program, and how it failed."""
    first, *rest = program.source.splitlines()
    detail = failure.detail.splitlines()[0][:200] if failure.detail else ""
    return "\n".join([first, FORM_MARK + json.dumps(failure.form), f"# failed as {failure.kind}: {detail}", *rest]) + "\n"


def read_case(path: pathlib.Path) -> Tuple[Program, Form]:
    """The program of a case, and the form in which it failed."""
    text = path.read_text()
    program = read_program(text)
    line = next(line for line in text.splitlines() if line.startswith(FORM_MARK))
    return program, json.loads(line[len(FORM_MARK) :])


class Report:
    """Counts of a run of the command."""

    def __init__(self) -> None:
        self.kinds: Counter = collections.Counter()
        self.traits: Counter = collections.Counter()
        self.ends: Counter = collections.Counter()
        self.failures: List[Dict[str, Any]] = []
        self.times: Dict[str, List[Tuple[float, float]]] = {}
        self.programs = self.invalid = self.failing = self.runs = self.compared = self.ill = 0

    def add(self, checked: Checked) -> None:
        """Counts the runs of a program."""
        self.programs += 1
        self.runs += checked.runs
        if not checked.is_valid:
            self.invalid += 1
            return
        self.kinds[checked.program.kind] += 1
        self.traits.update(checked.program.traits)
        self.ends.update(checked.ends)
        self.failing += bool(checked.failures)
        self.compared += checked.compared
        self.ill += checked.ill
        for failure in checked.failures:
            self.failures.append({
                "seed": checked.program.seed, "kind": failure.kind, "form": failure.form, "detail": failure.detail[:400],
            })
        for share, seconds, work in checked.times:
            self.times.setdefault(share, []).append((seconds, work))

    def facts(self) -> Dict[str, Any]:
        """The counts as data."""
        ends: Dict[str, Dict[str, int]] = {}
        for (share, end), n in sorted(self.ends.items()):
            ends.setdefault(share, {})[end] = n
        times = {
            share: {
                "runs": len(pairs), "median_time": round(statistics.median(t for t, _ in pairs), 2), "most_time": round(max(t for t, _ in pairs), 1),
                "median_work": round(statistics.median(w for _, w in pairs), 3), "most_work": round(max(w for _, w in pairs), 1),
            }
            for share, pairs in sorted(self.times.items())
        }
        return {
            "programs": self.programs, "invalid": self.invalid, "failing": self.failing, "runs": self.runs,
            "values_compared_with_torch": self.compared, "values_ill_conditioned": self.ill,
            "failures_by_kind": dict(collections.Counter(f["kind"] for f in self.failures)),
            "programs_by_kind": dict(self.kinds), "statements_by_rule": dict(self.traits.most_common()),
            "ends_by_budget": ends, "times_by_budget": times, "failures": self.failures,
        }

    def __str__(self) -> str:
        facts = self.facts()
        lines = [
            f"{facts['programs']} programs ({facts['invalid']} that PyTorch refuses too), {facts['runs']} runs, {facts['failing']} programs fail",
            f"with PyTorch: {facts['values_compared_with_torch']} values compared, {facts['values_ill_conditioned']} say nothing",
            "budget in percent of the peak: ends; time and operations as multiples of the plain run, median and most",
        ]
        for share, ends in facts["ends_by_budget"].items():
            t = facts["times_by_budget"].get(share)
            times = f"; time {t['median_time']} and {t['most_time']}, work {t['median_work']} and {t['most_work']}" if t else ""
            lines.append(f"  {share}: " + ", ".join(f"{n} {end}" for end, n in ends.items()) + times)
        lines += [f"  {kind}: {n} failures" for kind, n in facts["failures_by_kind"].items()]
        return "\n".join(lines)


def main(arguments: Optional[List[str]] = None) -> int:
    """Runs the command; 1 if anything disagrees."""
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__)
    parser.add_argument("programs", nargs="*", type=pathlib.Path, help="run these programs instead of drawing any")
    parser.add_argument("--minutes", type=float, default=2.0, help="how long programs are drawn for")
    parser.add_argument("--seed", type=int, default=0, help="of the first program; the next one has the next")
    parser.add_argument("--count", type=int, help="so many programs instead of so many minutes")
    parser.add_argument("--ci", action="store_true", help="the fixed seeds of continuous integration")
    parser.add_argument("--only", choices=sorted(KINDS), help="one kind of program")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds of processor time after which a run hangs")
    parser.add_argument("--no-torch", action="store_true", help="compare the forms of Remat among themselves alone")
    parser.add_argument("--torch-only", action="store_true", help="compare the plain form with PyTorch alone")
    parser.add_argument("--times", type=int, default=1, help="as many steps of each program: a soak, which PyTorch is not compared with")
    parser.add_argument("--shrink", type=float, default=60.0, metavar="SECONDS", help="for each failing program; 0 keeps them as they are")
    parser.add_argument("--keep", type=int, default=2, help="how many cases of one kind are kept")
    parser.add_argument("--save", type=pathlib.Path, metavar="FOLDER", help="write shrunk cases there")
    parser.add_argument("--show", action="store_true", help="only print the program of the seed")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the counts there")
    args = parser.parse_args(arguments)
    if args.show:
        print(draw_program(args.seed, args.only).source)
        return 0

    report = Report()
    kept: Counter = collections.Counter()
    start = time.monotonic()
    if args.times < 1:
        parser.error("argument --times: must be at least 1")
    if args.times > 1 and args.torch_only:
        parser.error("argument --times: PyTorch is not compared with")
    with Checker(args.limit * args.times, not args.no_torch and args.times == 1, times=args.times) as checker:
        for program, forms in _programs(args, start):
            checked = checker.check(program, [{"torch": True}] if args.torch_only else forms)
            report.add(checked)
            if not checked.is_valid:
                print(f"{program.seed}: not run: {checked.why_invalid}", flush=True)
            for failure in checked.failures:
                print(f"{program.seed}, {program.kind}: {str(failure)[:400]}", flush=True)
            for failure in checked.failures[:1] if args.save else []:
                kept[failure.signature] += 1
                if kept[failure.signature] <= args.keep:
                    small = shrink(program, failure, checker, args.shrink) if args.shrink else program
                    args.save.mkdir(parents=True, exist_ok=True)
                    path = args.save / f"{failure.kind.replace(' ', '_')}_{program.seed}.py"
                    path.write_text(case_text(small, failure))
                    print(f"{program.seed}: kept as {path}", flush=True)
            if args.json:
                args.json.write_text(json.dumps({**report.facts(), "seconds": round(time.monotonic() - start)}, indent=1))
    print(report)
    return 1 if report.failures else 0


def _programs(args: argparse.Namespace, start: float) -> Any:
    """The programs of a run of the command, and their forms where those are given."""
    if args.programs:
        for path in args.programs:
            text = path.read_text()
            yield read_program(text), None
        return
    for seed in CI_SEEDS if args.ci else itertools.count(args.seed):
        if args.count is not None and seed - args.seed >= args.count:
            return
        if not args.ci and args.count is None and time.monotonic() - start > 60 * args.minutes:
            return
        yield draw_program(seed, args.only), None


if __name__ == "__main__":
    sys.exit(main())
