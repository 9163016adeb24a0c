#!/usr/bin/env python3
"""Compare recurrent layers with PyTorch's, in one run.

    python3 -m venv VENV && VENV/bin/pip install torch==2.15.0
    python3 scripts/bench_recurrent.py --torch VENV/bin/python                # prints a Markdown table
    python3 scripts/bench_recurrent.py --torch VENV/bin/python --only 'lstm 64' --rounds 9

Builds the example `recurrent` of remat-nn. It and a process of PyTorch answer in turns: each answer is the least time of some
runs of a layer, forward without a gradient, or forward and backward with the gradients of inputs and parameters. A ratio is the
median of those of neighbouring answers; below 1, Remat is faster.
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = [(64, 32, 256, 256), (16, 4, 64, 64), (64, 1, 256, 256), (32, 64, 512, 512)]
SECONDS, RUNS = 0.4, 5


def cases():
    for cell in ("lstm", "gru", "rnn"):
        for size in SIZES:
            for what in ("forward", "both"):
                for threads in (1, 2):
                    yield f"{cell} {' '.join(map(str, size))} {what} {threads}"


def torch_side():
    """Answers lines as the example does."""
    import torch

    for line in sys.stdin:
        cell, steps, batch, inputs, hidden, what, threads = line.split()
        steps, batch, inputs, hidden = map(int, (steps, batch, inputs, hidden))
        torch.set_num_threads(int(threads))
        layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[cell](inputs, hidden)
        x, dy = torch.randn(steps, batch, inputs), torch.randn(steps, batch, hidden)

        def run():
            if what == "forward":
                with torch.no_grad():
                    layer(x)
            else:
                layer.zero_grad()
                layer(x.detach().requires_grad_())[0].backward(dy)

        run()
        best, begin, runs = float("inf"), time.perf_counter(), 0
        while runs < RUNS or time.perf_counter() - begin < SECONDS:
            start = time.perf_counter()
            run()
            best, runs = min(best, time.perf_counter() - start), runs + 1
        print(best, flush=True)


class Peer:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--only", default="", help="a regular expression that a case must match")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--answer", action="store_true", help="be PyTorch's side")
    options = parser.parse_args()
    if options.answer:
        return torch_side()
    subprocess.run(["cargo", "build", "--release", "-p", "remat-nn", "--example", "recurrent"], cwd=ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    ours = Peer([str(target / "release/examples/recurrent")])
    theirs = Peer([options.torch, __file__, "--answer"])
    print("| layer, steps, batch, inputs, hidden | pass | threads | Remat, ms | PyTorch, ms | ratio |\n|---|---|---|---|---|---|")
    for case in (c for c in cases() if re.search(options.only, c)):
        pairs = [(ours.ask(case), theirs.ask(case)) for _ in range(options.rounds)]
        *what, which, threads = case.split()
        a, b = (1e3 * statistics.median(side) for side in zip(*pairs))
        ratio = statistics.median(x / y for x, y in pairs)
        print(f"| {' '.join(what)} | {which} | {threads} | {a:.3f} | {b:.3f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
