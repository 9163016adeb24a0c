"""Reference solutions for the planner's quality table, by Google OR-tools CP-SAT (`pip install ortools`).

    python scripts/plan_reference.py --seconds 300 --out crates/graph/data/reference.json random-50.json ...

Each FILE is a graph as `remat plan --generate NAME --out NAME.json` writes it; graphs with views or writes are refused.
For each budget the optimum of the staged formulation (Jain et al., "Checkmate", MLSys 2020, with bytes counted at every
execution) is sought: stage t ends with the first execution of operator t, and before it operators of earlier stages may
run again, in order. Bytes are counted, not offsets; a second model then looks for offsets within the budget. Only with them is the result a
schedule (`has_arena`); without, it is what no schedule with these first executions in order is known to beat. A result
in --out is replaced by one that is faster.
"""

import argparse
import json
import pathlib
import sys

from ortools.sat.python import cp_model

SHARES = (90, 80, 70, 60, 50, 40)


class Graph:
    """Operators with one storage each."""

    def __init__(self, dag):
        align = dag.get("align", 1)

        def pad(n):
            return -(-n // align) * align

        self.given = sum(pad(v["bytes"]) for v in dag["values"])
        producer, self.time, self.bytes, self.work, self.reads, self.repeatable = {}, [], [], [], [], []
        for i, op in enumerate(dag["ops"]):
            if len(op["outputs"]) != 1 or "bytes" not in op["outputs"][0]:
                sys.exit(f"`{op['name']}`: only operators with one storage of their own are modelled")
            producer[op["outputs"][0]["name"]] = i
            self.time.append(op["time_ns"])
            self.bytes.append(pad(op["outputs"][0]["bytes"]))
            self.work.append(pad(op.get("workspace", 0)))
            self.reads.append(sorted({producer[v] for v in op["inputs"] if v in producer}))
            self.repeatable.append(op.get("repeatable", True))
        self.outputs = {producer[v] for v in dag["outputs"] if v in producer}
        self.n = len(self.time)
        self.readers = [[j for j in range(self.n) if i in self.reads[j]] for i in range(self.n)]

    def peak(self):
        last = [max(r, default=i) for i, r in enumerate(self.readers)]
        last = [self.n if i in self.outputs else e for i, e in enumerate(last)]
        return self.given + max(
            self.work[k] + sum(self.bytes[i] for i in range(k + 1) if last[i] >= k) for k in range(self.n)
        )


def solve(g, budget, seconds, workers):
    """Time, proven bound and sequence, or None; and the solver's status."""
    m = cp_model.CpModel()
    unit = 256  # alignment of the benchmark graphs: smaller coefficients
    n = g.n
    run = [[m.new_bool_var(f"r{t},{i}") for i in range(t)] + [1] for t in range(n)]
    kept = [[m.new_bool_var(f"s{t},{i}") for i in range(t)] for t in range(n + 1)]
    for t in range(n):
        for i in range(t):
            if not g.repeatable[i]:
                m.add(run[t][i] == 0)
            before = [run[t - 1][i]] if t > 0 else []
            if i < t - 1:
                before.append(kept[t - 1][i])
            if i != t - 1:  # the value of t - 1 was just made
                m.add_bool_or(before).only_enforce_if(kept[t][i])
        for j in range(t + 1):
            for i in g.reads[j]:
                clause = m.add_bool_or([run[t][i], kept[t][i]])
                if j < t:
                    clause.only_enforce_if(run[t][j])
    for i in range(n):
        if i < n - 1:
            m.add_bool_or([run[n - 1][i], kept[n - 1][i]]).only_enforce_if(kept[n][i])
        if i in g.outputs:
            m.add(kept[n][i] == 1)
    for t in range(n):
        for k in range(t + 1):
            held = []
            for i in range(t):
                if i == k:
                    continue
                if i > k:
                    held.append((g.bytes[i], kept[t][i]))
                    continue
                why = [run[t][j] for j in g.readers[i] if k <= j < t] + ([kept[t + 1][i]] if t + 1 <= n else [])
                h = m.new_bool_var(f"h{t},{k},{i}")
                if t in g.readers[i]:
                    m.add(h == 1)
                for w in why:
                    m.add_implication(w, h)
                held.append((g.bytes[i], h))
            room = (budget - g.given - g.work[k] - g.bytes[k]) // unit
            row = m.add(sum((b // unit) * h for b, h in held) <= room)
            if k < t:
                row.only_enforce_if(run[t][k])
    m.minimize(sum(g.time[i] * run[t][i] for t in range(n) for i in range(t)))
    s = cp_model.CpSolver()
    s.parameters.max_time_in_seconds = seconds
    s.parameters.num_workers = workers
    status = s.solve(m)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, s.status_name(status)
    base = sum(g.time)
    sequence = [i for t in range(n) for i in range(t + 1) if i == t or s.value(run[t][i])]
    return {
        "time_ns": base + round(s.objective_value),
        "bound_ns": base + int(s.best_objective_bound),
        "sequence": sequence,
    }, s.status_name(status)


def has_arena(g, sequence, budget, seconds, workers):
    """True if offsets for all storages of the sequence are found within the budget."""
    unit = 256
    open_at, intervals = {}, []
    for step, op in enumerate(sequence):
        for i in g.reads[op]:
            intervals[open_at[i]][1] = step
        open_at[op] = len(intervals)
        intervals.append([step, step, g.bytes[op]])
        if g.work[op]:
            intervals.append([step, step, g.work[op]])
    for i in g.outputs:
        intervals[open_at[i]][1] = len(sequence) - 1
    m = cp_model.CpModel()
    height = (budget - g.given) // unit
    x, y = [], []
    for start, end, size in intervals:
        if size:
            size = -(-size // unit)
            if size > height:
                return False
            x.append(m.new_fixed_size_interval_var(start, end - start + 1, ""))
            y.append(m.new_fixed_size_interval_var(m.new_int_var(0, height - size, ""), size, ""))
    m.add_no_overlap_2d(x, y)
    s = cp_model.CpSolver()
    s.parameters.max_time_in_seconds = seconds
    s.parameters.num_workers = workers
    return s.solve(m) in (cp_model.OPTIMAL, cp_model.FEASIBLE)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("files", nargs="+", type=pathlib.Path)
    a.add_argument("--out", type=pathlib.Path, required=True)
    a.add_argument("--seconds", type=float, default=300)
    a.add_argument("--workers", type=int, default=8)
    a.add_argument("--shares", type=int, nargs="*", default=SHARES)
    o = a.parse_args()
    results = json.loads(o.out.read_text()) if o.out.exists() else []
    for file in o.files:
        g = Graph(json.loads(file.read_text()))
        for share in o.shares:
            budget = g.peak() * share // 100
            same = [r for r in results if (r["problem"], r["percent"], r["solver"]) == (file.stem, share, "cp-sat")]
            found, status = solve(g, budget, o.seconds, o.workers)
            print(file.stem, share, status, found and (found["time_ns"], found["bound_ns"]), sum(g.time), flush=True)
            if found is None:
                continue
            arena = has_arena(g, found["sequence"], budget, o.seconds, o.workers)
            row = {
                "problem": file.stem,
                "percent": share,
                "budget_bytes": budget,
                "time_ns": found["time_ns"],
                "bound_ns": found["bound_ns"],
                "has_arena": arena,
                "solver": "cp-sat",
                "seconds": o.seconds,
            }
            if all(found["time_ns"] < r["time_ns"] or arena > r["has_arena"] for r in same):
                results = [r for r in results if r not in same] + [row]
            o.out.write_text("[\n" + ",\n".join("  " + json.dumps(r) for r in results) + "\n]\n")


if __name__ == "__main__":
    main()
