#!/usr/bin/env python3
"""What a memory budget costs: training steps under shares of their peak, and PyTorch with and without checkpointing.

    python3 -m venv VENV && VENV/bin/pip install torch==2.15.0
    python3 scripts/bench_budgets.py --torch VENV/bin/python                       # prints Markdown tables
    python3 scripts/bench_budgets.py --torch VENV/bin/python --batch 2 --only gpt --rounds 1
    python3 scripts/bench_budgets.py --torch VENV/bin/python --largest-batch 1GiB,2GiB --seconds 1 --write docs/src/budgets.md
    python3 scripts/bench_budgets.py --torch VENV/bin/python --write docs/src/budgets.md
    python3 scripts/bench_budgets.py --spill-to DIR --budgets 50%,33% --write docs/src/budgets.md

Builds the command `remat`, then runs training steps of ResNet-50 (3x224x224, SGD with momentum) and of a GPT (6 layers of
width 384, 6 heads, 256 places, AdamW) under each budget: eager with the online policy alone, eager with foresight, and
compiled. A budget is a share of the peak that the same form has without one, parameters and optimiser state counted. `ms`
and `time` are medians: of steps, and of the ratios to the run without a budget of the same turn. `least` is the ratio of the
fastest steps of all turns, for whoever shares the machine only ever adds time. `planned`, `bound` and `taken` are the
operators' time over that of a run without a budget: as the planner says, as no plan can beat, and as the last step took.
PyTorch has a process for each measurement; its bytes are what the system counts as resident beyond what it had after
`import torch`. The largest batches are found by planning with estimated times, and then run. With `--spill-to` another table
compares plans that may copy to a file in DIR with those that may not, without PyTorch.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time

from bench_conv import build, conditions, finish, options, write
from bench_networks import torch_run

MARKS = ("<!-- budget-table -->\n", "<!-- /budget-table -->\n")
SPILL_MARKS = ("<!-- spill-table -->\n", "<!-- /spill-table -->\n")
LARGEST_MARKS = ("<!-- largest-table -->\n", "<!-- /largest-table -->\n")
WORKS = ["train:resnet50", "train:gpt"]
BUDGETS = ["100%", "75%", "50%", "33%"]
WAYS = {"eager, online": ["--eager", "--no-foresight"], "eager, foresight": ["--eager"], "compiled": ["--compiled"]}
MIB, INFEASIBLE = 2**20, 2
SIZES = {"MiB": 2**20, "GiB": 2**30}


def resident(key):
    """Bytes that the process has, or had, resident."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(key))


def peer(args):
    """PyTorch's side, in a process of its own: `work batch threads seconds checkpointed`."""
    import torch

    work, batch, threads, seconds, checkpointed = args.peer
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    before = resident("VmRSS")
    step = torch_run(torch, work, int(batch), checkpointed == "1")
    step()
    times, start = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - start < float(seconds):
        begin = time.perf_counter()
        step()
        times.append(time.perf_counter() - begin)
    ms = statistics.median(times) * 1e3
    print(json.dumps({"ms": ms, "bytes": resident("VmHWM") - before, "version": torch.__version__.split("+")[0]}))


def theirs(args, work, batch, checkpointed):
    command = [args.torch, __file__, "--peer", work, str(batch), str(args.threads[-1]), str(args.seconds),
               str(int(checkpointed))]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def ways(args):
    """The ways of the table, with the options that they take."""
    if not args.spill_to:
        return WAYS
    planned, spill = {"eager, foresight": ["--eager"], "compiled": ["--compiled"]}, ["--spill-to", args.spill_to]
    return planned | {f"{way}, spilling": [*how, *spill] for way, how in planned.items()}


def ours(exe, args, work, batch, way, budget):
    """The report of `remat bench`, or None if the budget cannot be met."""
    command = [exe, "bench", work, "--batch", str(batch), "--threads", str(args.threads[-1]), *ways(args)[way]]
    command += ["--memory-budget", budget, "--seconds", str(args.seconds), "--json", "-"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode == INFEASIBLE:
        return None
    done.check_returncode()
    return json.loads(done.stdout)


def measure(exe, args, work, batch):
    """For each way and budget the rounds' (ratio to the run without a budget, report), and PyTorch's reports."""
    rows, peers = {}, {} if args.spill_to else {False: [], True: []}
    for _ in range(args.rounds):
        for way in ways(args):
            base = None
            for budget in ["unlimited", *args.budgets]:
                # without a budget there is nothing to foresee
                report = ours(exe, args, work, batch, way, budget)
                base = base or report
                print(work, way, budget, report and report["latency_ms"]["p50"], file=sys.stderr, flush=True)
                if report:
                    ratio = report["latency_ms"]["p50"] / base["latency_ms"]["p50"]
                    rows.setdefault((way, budget), []).append((ratio, report))
        for checkpointed in peers:
            peers[checkpointed].append(theirs(args, work, batch, checkpointed))
    return rows, peers


def fastest(some):
    """Milliseconds of the fastest step of all turns."""
    return min(report["latency_ms"]["min"] for _, report in some)


def table(args, work, rows, peers):
    name = {"train:resnet50": "ResNet-50", "train:gpt": "GPT"}.get(work, work)
    lines = [f"{name}, batch {args.batch}:", "",
             "| | budget | ms | time | least | planned | bound | taken | arena MiB | resident MiB | losses |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|"]
    losses = next(r["losses"] for _, r in next(iter(rows.values())))
    for way in ways(args):
        for budget in ["unlimited", *args.budgets]:
            if not rows.get((way, budget)):
                lines.append(f"| {way} | {budget.replace('%', ' %')} | not feasible | | | | | | | | |")
                continue
            some = rows[(way, budget)]
            report = sorted(some, key=lambda r: r[0])[len(some) // 2][1]
            plan, ms = report["plan"], statistics.median(r["latency_ms"]["p50"] for _, r in some)
            shares = [f"{ns / plan['base_ns']:.3f}" for ns in (plan["planned_ns"], plan["bound_ns"], report["ops_ns"])] \
                if plan and plan["base_ns"] else ["", "", ""]
            ratio, least = statistics.median(r for r, _ in some), fastest(some) / fastest(rows[(way, "unlimited")])
            equal = all(r["losses"] == losses for _, r in some)
            lines.append(f"| {way} | {budget.replace('%', ' %')} | {ms:.0f} | {ratio:.3f} | {least:.3f} "
                         f"| {' | '.join(shares)} | {report['peak_bytes'] / MIB:.0f} "
                         f"| {(report['resident_bytes'] or 0) / MIB:.0f} | {'equal' if equal else 'DIFFERENT'} |")
    for checkpointed, some in peers.items():
        ms, held = (statistics.median(r[key] for r in some) for key in ("ms", "bytes"))
        base = statistics.median(r["ms"] for r in peers[False])
        lines.append(f"| PyTorch{', checkpoints' if checkpointed else ''} | | {ms:.0f} | {ms / base:.3f} | | | | | "
                     f"| {held / MIB:.0f} | |")
    return "\n".join(lines + [""])


def largest(fits):
    """The largest batch that fits, if 1 does; else 0."""
    high = 1
    while fits(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def largest_batches(exe, args, work="train:resnet50"):
    """Rows of (limit, whose, batch)."""
    rows = []
    for limit in args.largest_batch:
        number, unit = re.fullmatch(r"([\d.]+)(\w+)", limit).groups()
        most = float(number) * SIZES[unit]

        def planned(batch):
            command = [exe, "plan", work, "--batch", str(batch), "--estimated", "--budget", limit, "--out", os.devnull]
            code = subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode
            if code not in (0, INFEASIBLE):
                raise SystemExit(f"{' '.join(command)} ended with {code}")
            return code == 0

        batch = largest(planned)
        # what is beside the plan may take the last example
        while batch and not (report := ours(exe, args, work, batch, "compiled", limit)):
            batch -= 1
        rows.append((limit, "Remat, compiled", batch, report["latency_ms"]["p50"] / batch if batch else 0.0))
        for checkpointed in (False, True):
            times = {}

            def fits(batch):
                report = theirs(args, work, batch, checkpointed)
                times[batch] = report["ms"]
                return report["bytes"] <= most

            batch = largest(fits)
            name = "PyTorch, checkpoints" if checkpointed else "PyTorch"
            rows.append((limit, name, batch, times[batch] / batch if batch else 0.0))
    return "\n".join(["| memory | | largest batch | ms per image |", "|--:|---|--:|--:|"]
                     + [f"| {limit} | {who} | {batch} | {ms:.0f} |" for limit, who, batch, ms in rows] + [""])


def main():
    def more(ap):
        ap.add_argument("--batch", type=int, default=32)
        ap.add_argument("--budgets", type=lambda text: text.split(","), default=BUDGETS, metavar="BUDGET,..",
                        help="beside none at all: shares of the peak or sizes [100%%,75%%,50%%,33%%]")
        ap.add_argument("--spill-to", metavar="DIR", help="compare plans that may copy to a file in DIR with those that may not")
        ap.add_argument("--largest-batch", type=lambda text: text.split(","), metavar="SIZE,..",
                        help="find the largest batches of ResNet-50 within so much memory instead")
    args = options(__doc__, seconds=5, more=more, peer_args=5)
    if args.peer:
        return peer(args)
    exe, start = args.remat or build(), os.getloadavg()[0]
    if args.largest_batch:
        text = largest_batches(exe, args) + "\n" + conditions(args, (start, os.getloadavg()[0])) + "\n"
        return finish(args, text, {}, LARGEST_MARKS)
    texts, figures = [], {}
    for work in (w for w in WORKS if re.search(args.only, w)):
        rows, peers = measure(exe, args, work, args.batch)
        texts.append(table(args, work, rows, peers))
        figures[work] = {"rows": [(way, budget, some) for (way, budget), some in rows.items()], "peers": list(peers.items())}
        how = conditions(args, (start, os.getloadavg()[0]))
        if peers:
            how = f"PyTorch {peers[False][0]['version']}, eager. {how}"
        text = "\n".join([*texts, how, ""])
        for path in args.write:
            # each network takes long: what there is is kept
            write(path, text, SPILL_MARKS if args.spill_to else MARKS)
    finish(args, text, figures, SPILL_MARKS if args.spill_to else MARKS)


if __name__ == "__main__":
    main()
