#!/usr/bin/env python3
"""Compare every operator with PyTorch's, in one run: forward, and forward with backward, at a small and a large size.

    python3 -m venv VENV && VENV/bin/pip install torch==2.15.0
    python3 scripts/bench_operators.py --torch VENV/bin/python                  # prints a Markdown table
    python3 scripts/bench_operators.py --torch VENV/bin/python --only cumsum,sort
    python3 scripts/bench_operators.py --torch VENV/bin/python --write docs/src/benchmarks-operators.md

Builds the example `time_operators` of remat, which runs the rows of the fixtures, then times it and PyTorch in turns, both eager
and with one compute thread. Times are medians; a ratio is the median of the ratios of neighbouring measurements, which a change
of the machine's load disturbs least. What binds a row above 2.0 stands in `WHY`.

How to add an operator: a line in `scripts/operators_to_time.py`.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from bench_conv import processor  # noqa: E402
from bench_dispatch import build  # noqa: E402

MARKS = ("<!-- operator-table -->\n", "<!-- /operator-table -->\n")
SMALL_MS, LARGE_MS, ROUNDS = 20, 60, 5


def peer():
    """PyTorch's side: a line of JSON is an order, the answer nanoseconds a call."""
    import torch

    import operators_to_time

    torch.set_num_threads(1)
    torch.manual_seed(7)
    table = {row.name: row for row in operators_to_time.rows()}
    print(torch.__version__.split("+")[0], flush=True)

    def tensor(spec):
        dtype = {"f32": torch.float32, "i64": torch.int64, "i32": torch.int32, "bool": torch.bool}[spec["dtype"]]
        low, high = spec.get("low", 0.0), spec.get("high", 1.0)
        if spec["kind"] == "ints":
            return torch.randint(int(low), int(high), spec["shape"]).to(dtype)
        if spec["kind"] == "uniform":
            return (torch.rand(spec["shape"]) * (high - low) + low).to(dtype)
        return torch.randn(spec["shape"]).to(dtype)

    for line in sys.stdin:
        order = json.loads(line)
        f = table[order["row"]].torch
        x = [tensor(s) for s in order["x"]]
        if order["grad"]:
            x = [t.requires_grad_() if t.is_floating_point() else t for t in x]
        wanted = [t for t in x if t.requires_grad]

        def once():
            y = f(*x)
            if not order["grad"]:
                return y
            first = next(t for t in (y if isinstance(y, (tuple, list)) else [y]) if t.requires_grad)
            return torch.autograd.grad(first, wanted, first.detach(), allow_unused=True)

        def round_of(calls):
            begin = time.perf_counter()
            for _ in range(calls):
                once()
            return time.perf_counter() - begin

        context = torch.enable_grad() if order["grad"] else torch.no_grad()
        with context:
            round_of(2)
            calls = max(1, min(1000, int(2e-3 / max(round_of(1), 2e-7))))
            times, begin = [], time.perf_counter()
            while len(times) < 3 or time.perf_counter() - begin < order["ms"] / 1e3:
                times.append(round_of(calls) / calls)
        print(statistics.median(times) * 1e9, flush=True)


class Failed(Exception):
    pass


class Side:
    def __init__(self, command, greets):
        self.command, self.greets = command, greets
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self.process.stdout.readline().strip() if self.greets else None

    def time(self, order):
        print(json.dumps(order), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline().strip()
        if not answer or answer.startswith("error"):
            if not answer:
                self.start()
            raise Failed(answer or "the process ended")
        return float(answer)


def measure(ours, theirs, order):
    pairs = []
    for turn in range(ROUNDS):
        if turn % 2:
            b, a = theirs.time(order), ours.time(order)
        else:
            a, b = ours.time(order), theirs.time(order)
        pairs.append((a, b, a / b))
    return [statistics.median(p[i] for p in pairs) for i in range(3)]


def shown(ns):
    return f"{ns / 1e3:.1f} µs" if ns < 1e6 else f"{ns / 1e6:.2f} ms"


def main():
    if "--peer" in sys.argv:
        return peer()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", required=True, help="a Python with PyTorch")
    parser.add_argument("--only", help="rows whose names begin with one of these, separated by commas")
    parser.add_argument("--write", type=pathlib.Path, help="put the table between the marks of this file")
    parser.add_argument("--json", type=pathlib.Path, help="write all measurements to this file")
    args = parser.parse_args()
    import operators_to_time

    ours = Side([build("remat", "time_operators")], False)
    theirs = Side([args.torch, str(pathlib.Path(__file__).resolve()), "--peer"], True)
    lines, ratios, slow, failed, all_results = [], [], [], [], []
    for row in operators_to_time.rows():
        if args.only and not any(row.name.startswith(p) for p in args.only.split(",")):
            continue
        for size, x in (("small", row.small), ("large", row.large)):
            cells = []
            for grad in (False, True):
                if grad and not row.grad:
                    cells.append("")
                    continue
                order = {"row": row.name, "op": row.op, "args": row.args, "x": x, "grad": grad}
                order["ms"] = SMALL_MS if size == "small" else LARGE_MS
                try:
                    a, b, ratio = measure(ours, theirs, order)
                except Failed as e:
                    # the rest is measured still
                    failed.append(f"{row.name}, {size}{', with backward' if grad else ''}: {e}")
                    cells.append("failed")
                    continue
                ratios.append(ratio)
                all_results.append({"row": row.name, "size": size, "backward": grad, "remat_ns": a, "torch_ns": b, "ratio": ratio})
                cells.append(f"{shown(a)}, {shown(b)}: **{ratio:.2f}**")
                if ratio > 2.0:
                    slow.append((row.name, f"{size}{', with backward' if grad else ''}: {ratio:.2f}"))
            shape = " ".join("x".join(map(str, s["shape"])) or "1" for s in x)
            lines.append(f"| `{row.name}` | {shape} | {cells[0]} | {cells[1]} |")
            print(lines[-1], flush=True)
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    head = f"{len(ratios)} measurements, geometric mean of the ratios **{mean:.3f}**. Medians of {ROUNDS} turns, one thread, {processor()}, beside PyTorch {theirs.version}.\n\n"
    head += "| operator | inputs | forward: Remat, PyTorch, ratio | with backward |\n|---|---|---|---|\n"
    tail = ""
    why = operators_to_time.WHY
    for name in dict.fromkeys(name for name, _ in slow):
        where = "; ".join(text for of, text in slow if of == name)
        tail += f"\n* `{name}` ({where}): {why.get(name, 'no reason is known')}"
    table = head + "\n".join(lines) + "\n" + (f"\nAbove 2.0:\n{tail}\n" if tail else "")
    print("\n" + head.splitlines()[0] + tail)
    if args.json:
        args.json.write_text(json.dumps(all_results, indent=1) + "\n")
    if args.write:
        text = args.write.read_text()
        before, rest = text.split(MARKS[0])
        args.write.write_text(before + MARKS[0] + table + MARKS[1] + rest.split(MARKS[1])[1])
    if failed:
        sys.exit("not measured:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
