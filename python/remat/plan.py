"""The planner for graphs of any program. It decides which results to keep, to free and to compute again, so that a run
fits a memory budget.

    >>> import remat
    >>> graph = remat.plan.Graph()
    >>> graph.value("x", 1000)
    >>> graph.op("a", ["x"], {"a": 4000}, time_ns=50)
    >>> graph.op("b", ["a"], {"b": 4000}, time_ns=50)
    >>> graph.op("loss", ["b"], {"loss": 4}, time_ns=10)
    >>> graph.op("db", ["loss", "b"], {"db": 4000}, time_ns=50)
    >>> graph.op("da", ["db", "a"], {"da": 1000}, time_ns=50)
    >>> graph.output("da")
    >>> schedule = graph.plan("80%", time_limit=0.2)
    >>> schedule.recomputed, schedule.arena_bytes <= schedule.budget_bytes < graph.peak_bytes
    ([('a', 1, 50)], True)

A graph is a list of operators in the order of a run without a budget. Each has the values that it reads, the bytes that
it makes, and its time. The book's chapter on planning describes the form as JSON and the planner. `remat plan` does the
same on the command line.
"""
import json
import math
import os
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _remat
from ._support import size_text
from ._errors import BudgetError

UNLIMITED = 1 << 60
"""The limit of an arena in bytes. Graphs whose sizes together exceed it are refused."""
SHOWN = 40
"""The number of steps that a schedule shows; `to_table(None)` shows all."""


class Output(NamedTuple):
    """The memory of an operator's output: bytes of its own, those of an input that it is a view of, or those of an
    input that it overwrites.

    `may_take` names inputs of the same size. The output may be computed in the place of one of them, if nothing reads
    that input any more.

    >>> import remat
    >>> remat.plan.Output(alias_of="x").alias_of
    'x'
    """

    bytes: Optional[int] = None
    alias_of: Optional[str] = None
    writes: Optional[str] = None
    may_take: Sequence[str] = ()


class Step(NamedTuple):
    """A step of a schedule.

    `kind` is compute, recompute, free, spill or fetch. `name` is the operator, or the value that is freed or copied.
    `at` has the offset in the arena of each result, or of the value that is fetched. `live_bytes` is the number of
    bytes resident after the step, and `time_ns` the compute time so far. `Schedule` has an example.
    """

    kind: str
    name: str
    at: Dict[str, int]
    live_bytes: int
    time_ns: int


class Graph:
    """Operators in the order of a run without a budget, and the values that exist before the run.

    Offsets and sizes are rounded up to multiples of `align`. With both rates of `spill`, in bytes per second for
    writing and reading, results may be copied out and back. Names are unique among values and outputs, and among
    operators. Planning reports a fault in a graph: FormatError with the place.

    >>> import remat
    >>> graph = remat.plan.Graph()
    >>> graph.value("x", 4096)
    >>> graph.op("double", ["x"], {"y": 4096}, time_ns=1000)
    >>> graph.output("y")
    >>> graph, graph.peak_bytes, graph.time_ns
    (Graph(1 values, 1 operators), 8192, 1000)
    """

    def __init__(self, align: int = 64, spill: Optional[Tuple[int, int]] = None):
        self._form: Dict[str, Any] = {"version": 1, "align": align, "values": [], "ops": [], "outputs": []}
        if spill is not None:
            self._form["spill"] = {"write_bytes_per_s": spill[0], "read_bytes_per_s": spill[1]}
        self._figures: Optional[Tuple[int, int]] = None

    def value(self, name: str, bytes: int) -> None:
        """Adds a value that exists before the first operator, and stays: a parameter, optimiser state, data."""
        self._figures = None
        self._form["values"].append({"name": name, "bytes": int(bytes)})

    def op(
        self, name: str, inputs: Iterable[str], outputs: Mapping[str, Union[int, Output]], time_ns: float = 0, workspace: int = 0,
        repeatable: bool = True,
    ) -> None:
        """Adds an operator: the values that it reads, and its outputs. Each output has its number of bytes, or an
        `Output` that says more.

        `workspace` is the number of bytes that it needs while it runs. An operator that is not `repeatable` runs once,
        as one that draws random numbers or overwrites an input.
        """
        self._figures = None
        made = []
        for output, of in outputs.items():
            of = of if isinstance(of, Output) else Output(int(of))
            form = {k: v for k, v in of._asdict().items() if v is not None and v != ()}
            made.append({"name": output, **{k: list(v) if k == "may_take" else v for k, v in form.items()}})
        self._form["ops"].append({
            "name": name, "time_ns": max(int(round(time_ns)), 0), "inputs": list(inputs), "outputs": made,
            "workspace": int(workspace), "repeatable": repeatable,
        })

    def output(self, *names: str) -> None:
        """Names the values that must exist at the end."""
        self._figures = None
        self._form["outputs"] += names

    @staticmethod
    def from_json(text: str) -> "Graph":
        """A graph from the JSON form, which `remat plan --dag` takes too. Errors: ValueError; FormatError with the
        place."""
        made = Graph()
        form = json.loads(text)
        if not isinstance(form, dict):
            raise ValueError(f"a graph is an object, not {type(form).__name__}")
        made._form = form
        made._measured()
        # the form is valid, so fields that are missing have defaults
        for name in ("values", "ops", "outputs"):
            form.setdefault(name, [])
        for op in form["ops"]:
            op.setdefault("outputs", [])
            op.setdefault("time_ns", 0)
        return made

    def to_json(self) -> str:
        """The JSON form."""
        return json.dumps(self._form)

    def _measured(self) -> Tuple[int, int]:
        if self._figures is None:
            self._figures = _remat.plan_figures(self.to_json())
        return self._figures

    def __len__(self) -> int:
        return len(self._form["ops"])

    @property
    def peak_bytes(self) -> int:
        """The most bytes alive at once in a run without a budget. Errors: FormatError."""
        return self._measured()[0]

    @property
    def time_ns(self) -> int:
        """The time of a run without a budget. Errors: FormatError."""
        return self._measured()[1]

    def plan(self, budget: Union[int, str, None], time_limit: Optional[float] = None, seed: int = 1) -> "Schedule":
        """A schedule within the budget, of the shortest time that the planner finds. The checker has replayed it.

        `budget` is bytes, a text such as `"64MiB"`, a share of the peak such as `"50%"`, or None for no limit.
        `time_limit` is the time of the search in seconds. The default is 1.6, and more from 1000 operators on. Whether
        a budget can be met depends on the graph only. Errors: BudgetError with `least_bytes` (no schedule needs less:
        proven) and `smallest_feasible_bytes` (for which a schedule is known); FormatError; ValueError.

        >>> import remat
        >>> graph = remat.plan.Graph()
        >>> graph.op("a", [], {"a": 1 << 20}); graph.output("a")
        >>> try:
        ...     graph.plan("512KiB")
        ... except remat.BudgetError as e:
        ...     print(e.least_bytes, e.smallest_feasible_bytes)
        1048576 1048576
        """
        found = json.loads(_remat.plan_graph(self.to_json(), self._bytes(budget), time_limit, seed))
        if found["feasible"]:
            if budget is None:
                found["budget_bytes"] = found["arena_bytes"]
            return Schedule(found, self)
        raise self._shortfall(found)

    def _bytes(self, budget: Union[int, str, None]) -> int:
        if isinstance(budget, str) and budget.strip().endswith("%"):
            try:
                share = float(budget.strip()[:-1])
            except ValueError:
                share = math.nan
            if not 0 < share < math.inf:
                raise ValueError(f"{budget!r} is no budget: a share of the peak is a number above 0, such as \"50%\"")
            return int(self.peak_bytes * share / 100)
        found = _remat.budget_bytes(budget)
        return UNLIMITED if found is None else found

    def _shortfall(self, found: Dict[str, Any]) -> BudgetError:
        least, smallest, op = found["least_bytes"], found["smallest_feasible_bytes"], found["limiting_op"]
        is_proven = least > found["budget_bytes"]
        how = "no schedule fits" if is_proven else "no schedule was found for"
        where = "" if op is None else f"; `{op}` " + ("needs the most at once" if is_proven else "runs where memory is shortest")
        error = BudgetError(
            f"{how} {found['budget_bytes']} bytes; the smallest budget with a known schedule is {smallest} bytes "
            f"({100 * smallest / max(self.peak_bytes, 1):.1f} % of the peak), and none does with fewer than {least}{where}"
        )
        error.kind, error.op, error.message = "budget", op, str(error)
        error.needed_bytes = error.least_bytes = least
        error.budget_bytes, error.smallest_feasible_bytes = found["budget_bytes"], smallest
        return error

    def __repr__(self) -> str:
        return f"Graph({len(self._form['values'])} values, {len(self)} operators)"


class Schedule:
    """The order in which to compute, free and recompute values, and the offset of each in one arena. `print` shows it
    as a table.

    Attributes:
        steps: the `Step`s, in order.
        budget_bytes: the budget.
        arena_bytes: the memory that it takes, holes included.
        time_ns: the time of all computations, and of the part of copies that is not hidden behind them.
        base_time_ns: the time of a run without a budget.
        lower_bound_ns: a proven lower bound on the time of every schedule within the budget.
        values: the offset of each value that exists before the run.
        recomputed: triples of an operator, the number of times it runs again, and the time of that in nanoseconds,
            longest first.

    >>> import remat
    >>> graph = remat.plan.Graph()
    >>> graph.op("a", [], {"a": 4096}); graph.op("b", ["a"], {"b": 64}); graph.output("b")
    >>> for step in graph.plan(None, time_limit=0.1).steps:
    ...     print(step.kind, step.name, step.live_bytes)
    compute a 4096
    compute b 4160
    free a 64
    """

    def __init__(self, form: Dict[str, Any], graph: Graph):
        self._form, self.graph = form, graph
        self.budget_bytes: int = form["budget_bytes"]
        self.arena_bytes: int = form["arena_bytes"]
        self.time_ns: int = form["time_ns"]
        self.base_time_ns: int = form["base_time_ns"]
        self.lower_bound_ns: int = form["lower_bound_ns"]
        self.values: Dict[str, int] = form["values"]
        self.steps: List[Step] = self._replayed()
        self.recomputed: List[Tuple[str, int, int]] = self._again()

    def _replayed(self) -> List[Step]:
        form = self.graph._form
        align = form.get("align", 64)
        times = {op["name"]: op["time_ns"] for op in form["ops"]}
        sizes = {v["name"]: v["bytes"] for v in form["values"]}
        sizes.update((o["name"], o["bytes"]) for op in form["ops"] for o in op["outputs"] if "bytes" in o)
        padded = {name: -(-size // align) * align for name, size in sizes.items()}
        # by offset: a value in the place of an input ends that input, and one that is recomputed in place replaces
        # itself
        resident = {at: padded[name] for name, at in self.values.items() if padded[name]}
        at_of = dict(self.values)
        seen: set = set()
        time, live, steps = 0, sum(resident.values()), []

        def put(name: str, offset: int) -> int:
            at_of[name] = offset
            if not padded[name]:
                return 0  # an empty value may share its offset with another one
            before = resident.get(offset, 0)
            resident[offset] = padded[name]
            return padded[name] - before

        for s in self._form["steps"]:
            at: Dict[str, int] = {}
            if "compute" in s:
                name = s["compute"]
                kind, at = ("recompute" if name in seen else "compute"), s.get("at", {})
                seen.add(name)
                time += times[name]
                live += sum(put(output, offset) for output, offset in at.items())
            elif "free" in s:
                kind, name = "free", s["free"]
                live -= resident.pop(at_of[name], 0) if padded[name] else 0
            elif "fetch" in s:
                kind, name = "fetch", s["fetch"]
                at = {name: s["at"]}
                live += put(name, s["at"])
            else:
                kind, name = "spill", s["spill"]
            steps.append(Step(kind, name, dict(at), live, time))
        return steps

    def _again(self) -> List[Tuple[str, int, int]]:
        times = {op["name"]: op["time_ns"] for op in self.graph._form["ops"]}
        counts: Dict[str, int] = {}
        for s in self.steps:
            if s.kind == "recompute":
                counts[s.name] = counts.get(s.name, 0) + 1
        return sorted(((n, c, c * times[n]) for n, c in counts.items()), key=lambda r: (-r[2], r[0]))

    @property
    def peak_bytes(self) -> int:
        """The most bytes that are resident at once, without the holes between them. `arena_bytes` includes the
        holes."""
        given = sum(-(-v["bytes"] // self.graph._form.get("align", 64)) for v in self.graph._form["values"])
        return max((s.live_bytes for s in self.steps), default=given * self.graph._form.get("align", 64))

    @property
    def overhead(self) -> float:
        """The added time as a share of the time without a budget: 0.1 is ten percent."""
        return self.time_ns / self.base_time_ns - 1 if self.base_time_ns else 0.0

    def check(self) -> None:
        """Replays the schedule: checks that every input exists and is not overwritten, that nothing overlaps, and that
        the figures are true. `Graph.plan` has done so already. The checker shares no code with the planner. Errors:
        FormatError with the step.
        """
        _remat.plan_check(json.dumps(self._form), self.graph.to_json())

    def to_json(self) -> str:
        """The JSON form with the graph in its field `problem`: `remat plan --check FILE` replays it."""
        return json.dumps(self._form)

    @staticmethod
    def from_json(text: str) -> "Schedule":
        """A schedule from the text of `to_json` or `remat plan --out`, which is replayed. Errors: ValueError;
        FormatError with the step."""
        _remat.plan_check(text, None)
        form = json.loads(text)
        return Schedule(form, Graph.from_json(json.dumps(form["problem"])))

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes the JSON form to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_json())

    def to_table(self, steps: Optional[int] = SHOWN) -> str:
        """The schedule as text: figures, operators that run again, and the first `steps` steps, or all of them for
        None."""
        peak = self.graph.peak_bytes
        lines = [
            f"{len(self.graph)} operators, {self.base_time_ns / 1e6:.3f} ms and {size_text(peak)} without a budget",
            f"budget {size_text(self.budget_bytes)} ({100 * self.budget_bytes / max(peak, 1):.1f} %), arena {size_text(self.arena_bytes)}; "
            f"time {self.time_ns / 1e6:.3f} ms ({100 * self.overhead:+.2f} %)",
        ]
        if self.recomputed:
            shown = ", ".join(f"{n} x {c}" for n, c, _ in self.recomputed[:8])
            more = f", and {len(self.recomputed) - 8} others" if len(self.recomputed) > 8 else ""
            lines.append(f"computed again: {shown}{more}")
        rows = [("step", "", "name", "offset", "resident", "ms")]
        for i, s in enumerate(self.steps[:steps]):
            offsets = ", ".join(map(str, s.at.values()))
            rows.append((str(i), s.kind, s.name, offsets, size_text(s.live_bytes), f"{s.time_ns / 1e6:.3f}"))
        widths = [max(len(r[c]) for r in rows) for c in range(6)]
        for r in rows:
            left = f"{r[0]:>{widths[0]}}  {r[1]:<{widths[1]}}  {r[2]:<{widths[2]}}"
            lines.append(f"{left}  {r[3]:>{widths[3]}}  {r[4]:>{widths[4]}}  {r[5]:>{widths[5]}}")
        if steps is not None and len(self.steps) > steps:
            lines.append(f".. {len(self.steps) - steps} more steps")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.to_table()
