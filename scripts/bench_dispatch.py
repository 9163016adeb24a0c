#!/usr/bin/env python3
"""Compare the cost of one small op with PyTorch's, in one run.

    python3 -m venv VENV && VENV/bin/pip install torch==2.15.0
    python3 scripts/bench_dispatch.py --torch VENV/bin/python                 # prints a Markdown table
    python3 scripts/bench_dispatch.py --torch VENV/bin/python --write docs/src/benchmarks.md

Builds the example `dispatch` of remat-tensor, then runs it and PyTorch in turns, one process each, both with one compute
thread. A process gives the median of its rounds; the table gives the median over processes, and the median of the
ratios of neighbouring processes, which a change of the machine's load disturbs least. With --write the table replaces
what is between the file's markers.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARKS = ("<!-- dispatch-table -->\n", "<!-- /dispatch-table -->\n")
BURST, CHAIN, ONE, ROUNDS = 500, 10_000, 200, 15  # as in the example

# Remat's figure, PyTorch's, what it is
ROWS = [
    ("burst channel", "burst plain", "caller's thread, one channel op"),
    ("burst tensor", "burst plain", "caller's thread, `&x + &y`"),
    ("burst recorded", "burst recorded", "caller's thread, `&x + &y` with a gradient"),
    ("chain channel", "chain plain", "end to end, one channel op"),
    ("chain tensor", "chain plain", "end to end, `x = &x + &y`"),
    ("chain recorded", "chain recorded", "end to end, `x = &x + &y` with a gradient"),
    ("one tensor", "one", "one `&x + &y`, waited for"),
]


def peer():
    """PyTorch's side: prints `name<TAB>nanoseconds per op`, as the example does."""
    import torch

    torch.set_num_threads(1)
    x0, y = torch.ones(4), torch.tensor([1.0, 2.0, 3.0, 4.0])
    p = torch.ones(4, requires_grad=True)

    def chain(start, n):
        x = start
        for _ in range(n):
            x = x + y

    def single(n):
        for _ in range(n):
            x0 + y

    def report(name, n, run):
        run()
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        print(f"{name}\t{statistics.median(times) / n * 1e9:.1f}")

    for name, n in (("burst", BURST), ("chain", CHAIN)):
        with torch.no_grad():
            report(f"{name} plain", n, lambda: chain(x0, n))
        report(f"{name} recorded", n, lambda: chain(p, n))
    with torch.no_grad():
        report("one", ONE, lambda: single(ONE))
    print(f"version\t{torch.__version__.split('+')[0]}")


def build(package="remat-tensor", example="dispatch"):
    command = ["cargo", "build", "--release", "-p", package, "--example", example, "--message-format=json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    return next(m["executable"] for m in messages if m.get("target", {}).get("name") == example and m.get("executable"))


def figures(command):
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return dict(line.split("\t") for line in lines)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown processor"


def table(runs):
    ours, theirs = zip(*runs)
    lines = ["| nanoseconds an op | Remat | PyTorch | Remat / PyTorch |", "|---|--:|--:|--:|"]
    for a, b, what in ROWS:
        ratio = statistics.median(float(o[a]) / float(t[b]) for o, t in runs)
        mid = [statistics.median(float(f[k]) for f in side) for side, k in ((ours, a), (theirs, b))]
        lines.append(f"| {what} | {mid[0]:.0f} | {mid[1]:.0f} | {ratio:.2f} |")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    note = f"Addition of four f32, one compute thread; PyTorch {theirs[0]['version']}, eager, from Python"
    # Two threads that want two cores at once suffer more from other programs than one does.
    load = f", load average {os.getloadavg()[0]:.0f}" if hasattr(os, "getloadavg") else ""
    lines += ["", f"{note}. {len(runs)} runs of each in turns on {cores} cores of {processor()}{load}.", ""]
    return "\n".join(lines)


def write(path, text):
    old = path.read_text()
    head, rest = old.split(MARKS[0])
    tail = rest.split(MARKS[1])[1]
    path.write_text(head + MARKS[0] + text + MARKS[1] + tail)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--torch", default=sys.executable, help="a Python that has PyTorch")
    ap.add_argument("--runs", type=int, default=7)
    ap.add_argument("--write", type=pathlib.Path, help="Markdown file with the markers of this table")
    ap.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    args = ap.parse_args()
    if args.peer:
        return peer()
    exe = build()
    other = [args.torch, str(pathlib.Path(__file__).resolve()), "--peer"]
    text = table([(figures([exe]), figures(other)) for _ in range(args.runs)])
    print(text)
    if args.write:
        write(args.write, text)


if __name__ == "__main__":
    main()
