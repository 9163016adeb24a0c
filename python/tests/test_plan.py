"""The planner for graphs of other programs."""
import json
import os
import pathlib
import random
import subprocess
import sys

import pytest

import remat
from remat.plan import Graph, Output, Schedule

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "plan_torch_fx.py"


def chain(n, size=1000):
    """A training step of a chain: forward, and backward that reads what forward made."""
    graph = Graph()
    graph.value("x", size)
    for i in range(n):
        graph.op(f"f{i}", [f"a{i - 1}" if i else "x"], {f"a{i}": size}, time_ns=100)
    graph.op("loss", [f"a{n - 1}"], {"d": 8}, time_ns=10)
    last = "d"
    for i in reversed(range(n)):
        graph.op(f"b{i}", [last, f"a{i}"], {f"d{i}": size}, time_ns=200)
        last = f"d{i}"
    graph.output(last)
    return graph


def test_a_budget_is_kept_and_costs_time():
    graph = chain(12)
    assert len(graph) == 25 and graph.time_ns == 12 * 300 + 10
    free = graph.plan(None, time_limit=0.2)
    assert free.time_ns == graph.time_ns and not free.recomputed and free.overhead == 0
    assert free.peak_bytes <= free.arena_bytes
    half = graph.plan("50%", time_limit=0.3)
    assert half.peak_bytes <= half.arena_bytes <= half.budget_bytes == graph.peak_bytes // 2
    assert half.time_ns > half.base_time_ns and half.lower_bound_ns <= half.time_ns
    again = sum(time for _, _, time in half.recomputed)
    assert half.time_ns == half.base_time_ns + again == half.steps[-1].time_ns
    kinds = [s.kind for s in half.steps]
    assert kinds.count("compute") == 25 and kinds.count("recompute") == sum(n for _, n, _ in half.recomputed) > 0
    half.check()
    table = half.to_table(None)
    assert "recompute" in table and f"{len(half.steps) - 1}" in table and "more steps" in repr(half)


def test_the_resident_bytes_are_those_of_a_replay():
    rng = random.Random(5)
    graph = Graph(align=1)
    graph.value("v", 7)
    names = ["v"]
    for i in range(40):
        inputs = rng.sample(names, min(len(names), rng.randint(1, 3)))
        graph.op(f"op{i}", inputs, {f"r{i}": rng.choice([0, 10, 100])}, time_ns=rng.randint(1, 50))
        names.append(f"r{i}")
    graph.output("r39")
    schedule = graph.plan("90%", time_limit=0.3)
    sizes = {"v": 7, **{o["name"]: o["bytes"] for op in json.loads(graph.to_json())["ops"] for o in op["outputs"]}}
    live = {"v"}
    for s in schedule.steps:
        live |= set(s.at)
        live -= {s.name} if s.kind == "free" else set()
        assert s.live_bytes == sum(sizes[n] for n in live)
    assert schedule.peak_bytes <= schedule.arena_bytes


def test_what_cannot_be_met_is_an_error_with_figures():
    graph = chain(6, size=1 << 20)
    with pytest.raises(remat.BudgetError, match="least|fewer") as caught:
        graph.plan("1MiB")
    e = caught.value
    assert isinstance(e, MemoryError) and e.budget_bytes == 1 << 20
    assert e.budget_bytes < e.least_bytes <= e.smallest_feasible_bytes <= graph.peak_bytes
    assert graph.plan(e.smallest_feasible_bytes, time_limit=0.2).arena_bytes <= e.smallest_feasible_bytes


def test_views_writes_workspaces_and_what_runs_once():
    graph = Graph()
    graph.value("w", 64)
    graph.op("draw", [], {"r": 640}, 5, repeatable=False)
    graph.op("view", ["r"], {"v": Output(alias_of="r")})
    graph.op("grad", ["v", "w"], {"g": 64}, 9, workspace=128)
    graph.op("relu", ["g"], {"h": Output(64, may_take=["g"])}, 1)
    graph.op("update", ["w", "h"], {"w2": Output(writes="w")}, 2, repeatable=False)
    graph.output("w2")
    schedule = graph.plan(None, time_limit=0.1)
    schedule.check()
    assert schedule.arena_bytes == graph.peak_bytes == 64 + 640 + 64 + 128


def test_copies_are_planned_where_they_pay():
    graph = Graph(spill=(10**12, 10**12))
    slow = json.loads(chain(8, size=1 << 20).to_json())
    for op in slow["ops"]:
        op["time_ns"] = 10**8
    slow["spill"] = json.loads(graph.to_json())["spill"]
    schedule = Graph.from_json(json.dumps(slow)).plan("50%", time_limit=0.5)
    kinds = {s.kind for s in schedule.steps}
    assert {"spill", "fetch"} <= kinds and schedule.overhead < 0.01


def test_text_goes_both_ways(tmp_path):
    graph = chain(8)
    schedule = graph.plan("60%", time_limit=0.2)
    again = Schedule.from_json(schedule.to_json())
    assert again.steps == schedule.steps and again.recomputed == schedule.recomputed
    assert Graph.from_json(graph.to_json()).peak_bytes == graph.peak_bytes
    schedule.save(tmp_path / "s.json")
    assert Schedule.from_json((tmp_path / "s.json").read_text()).time_ns == schedule.time_ns
    broken = json.loads(schedule.to_json())
    broken["steps"] = [s for s in broken["steps"] if "free" not in s]
    with pytest.raises(remat.FormatError, match="steps"):
        Schedule.from_json(json.dumps(broken))
    if "REMAT_COMMAND" in os.environ:
        said = subprocess.run([os.environ["REMAT_COMMAND"], "plan", "--check", str(tmp_path / "s.json")], capture_output=True, text=True)
        assert said.returncode == 0 and "valid" in said.stdout + said.stderr


def test_what_is_wrong_names_its_place():
    graph = Graph()
    graph.op("a", ["nothing"], {"a": 4})
    with pytest.raises(remat.FormatError, match="nothing"):
        graph.plan("50%")
    twice = chain(2)
    twice.value("x", 3)
    with pytest.raises(remat.FormatError, match="x"):
        twice.peak_bytes
    for budget in ("-5%", "much%", "512", 3.5, "nan%"):
        with pytest.raises((ValueError, TypeError)):
            chain(2).plan(budget)
    for limit in (0, -1, float("nan"), 1e9):
        with pytest.raises(ValueError, match="time_limit"):
            chain(2).plan("90%", time_limit=limit)
    with pytest.raises(ValueError):
        Graph.from_json("[]")
    with pytest.raises(ValueError):
        Graph.from_json("{")
    with pytest.raises(remat.FormatError):
        Graph.from_json('{"version": 1, "ops": [{"name": 3}]}')


def test_the_example_plans_a_graph_of_torch(tmp_path):
    pytest.importorskip("torch")
    out = tmp_path / "schedule.json"
    command = [sys.executable, str(EXAMPLE), "--budget", "60%", "--batch-size", "4", "--width", "4", "--depth", "3", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "convolution_backward" in done.stdout
    schedule = Schedule.from_json(out.read_text())
    assert schedule.arena_bytes <= schedule.budget_bytes < schedule.graph.peak_bytes and len(schedule.graph) > 30
