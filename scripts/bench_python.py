#!/usr/bin/env python3
"""Time the Python package beside PyTorch, and beside the same steps from Rust, in one run.

    python3 -m venv VENV && VENV/bin/pip install torch==2.15.0 numpy ./python
    python3 scripts/bench_python.py --python VENV/bin/python                 # prints Markdown tables
    python3 scripts/bench_python.py --python VENV/bin/python --write docs/src/benchmarks.md

ops       one addition of four f32, one compute thread: what the caller's thread takes, with and without a gradient, and a chain
          of additions that is waited for
train     steps of `train:mlp` and `train:resnet18` with two threads: from Python, by `remat bench` (the same loop in Rust, whose
          losses must have the same bits), and by PyTorch
import    what a process takes to import the package, beyond what it takes to do nothing

Each figure is the median over processes that run in turns; each ratio is the median of those of neighbouring processes, which a
change of the machine's load disturbs least. With --write the tables replace what is between the file's markers. Exits with 1 if
the losses differ.
"""

import argparse
import array
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARKS = ("<!-- python-table -->\n", "<!-- /python-table -->\n")
BURST, CHAIN, ROUNDS = 500, 10_000, 15  # as scripts/bench_dispatch.py
MLP = (784, 512, 512, 10)
STEPS = {"train:mlp": 300, "train:resnet18": 20}
WARM = 12
LOSSES = 5


def median_of(run, rounds):
    run()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def ops_of(add_many, wait, x0, y, p):
    """Nanoseconds of an addition. A burst is not waited for within its time: it fits into the queue."""

    def burst(start):
        times = []
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            z = add_many(start, y, BURST)
            times.append(time.perf_counter() - begin)
            wait(z)
        return statistics.median(times) / BURST * 1e9

    def chain(start):
        return median_of(lambda: wait(add_many(start, y, CHAIN)), ROUNDS) / CHAIN * 1e9

    burst(x0)
    return {"burst": burst(x0), "burst, gradient": burst(p), "chain": chain(x0), "chain, gradient": chain(p)}


def add_many(x, y, n):
    for _ in range(n):
        x = x + y
    return x


def remat_ops():
    import remat

    remat.set_default_device(remat.Device(threads=1))
    y = remat.tensor([1.0, 2.0, 3.0, 4.0])
    p = remat.ones(4)
    p.requires_grad_()
    return ops_of(add_many, lambda z: z.sum().item(), remat.ones(4), y, p)


def torch_ops():
    import torch

    torch.set_num_threads(1)
    y = torch.tensor([1.0, 2.0, 3.0, 4.0])
    return ops_of(add_many, lambda z: z.sum().item(), torch.ones(4), y, torch.ones(4, requires_grad=True))


def floats(n):
    """The numbers that `remat bench` feeds: its quotient is rounded to f32 before 2 is taken off."""
    quotients = array.array("f", ((i % 8009 * 7919 % 1009) / 252.0 for i in range(n)))
    return [q - 2.0 for q in quotients]


def integers(n, below):
    return [i % 8009 * 7919 % below for i in range(n)]


def residual(nn, conv_norm, inputs, outputs, stride):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = conv_norm(inputs, outputs, 3, stride)
            self.b = conv_norm(outputs, outputs, 3, 1)
            self.skip = conv_norm(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None

        def forward(self, x):
            y = self.b(self.a(x).relu())
            return (y + (x if self.skip is None else self.skip(x))).relu()

    return Block()


def network(nn, conv_norm, name):
    """The network of `remat bench NAME`, of the layers of either library."""
    if name == "train:mlp":
        layers = []
        for i in range(3):
            layers += ([nn.ReLU()] if i else []) + [nn.Linear(MLP[i], MLP[i + 1])]
        return nn.Sequential(*layers), (64, MLP[0]), MLP[-1]
    layers = [conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage in range(4):
        for i in range(2):
            layers.append(residual(nn, conv_norm, inputs, 64 << stage, 2 if stage and i == 0 else 1))
            inputs = 64 << stage
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000)]
    return nn.Sequential(*layers), (32, 3, 64, 64), 1000


def timed_steps(step, name):
    """Milliseconds of a step whose loss is read, and the first losses."""
    losses, times = [], []
    for i in range(WARM + STEPS[name]):
        start = time.perf_counter()
        losses.append(step())
        if i >= WARM:
            times.append(time.perf_counter() - start)
    return {"ms": statistics.median(times) * 1e3, "losses": losses[:LOSSES]}


def remat_train(name):
    import remat
    from remat import nn, optim

    remat.set_default_device(remat.Device(threads=2))
    remat.manual_seed(1)
    net, shape, classes = network(nn, nn.ConvNorm, name)
    optimizer = optim.SGD(net, lr=0.01, momentum=0.9)
    x, labels = remat.tensor(floats(remat_size(shape))).reshape(shape), remat.tensor(integers(shape[0], classes))

    def step():
        loss = nn.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return timed_steps(step, name)


def remat_size(shape):
    n = 1
    for extent in shape:
        n *= extent
    return n


def torch_train(name):
    import torch
    from torch import nn

    def conv_norm(inputs, outputs, kernel, stride):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)
        )

    torch.set_num_threads(2)
    torch.manual_seed(1)
    net, shape, classes = network(nn, conv_norm, name)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    x, labels = torch.tensor(floats(remat_size(shape))).reshape(shape), torch.tensor(integers(shape[0], classes))

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return timed_steps(step, name)


def rust_train(command, name):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "figures.json"
        subprocess.run([command, "bench", name, "--threads", "2", "--json", str(out)], check=True, stdout=subprocess.DEVNULL)
        figures = json.loads(out.read_text())
    return {"ms": figures["latency_ms"]["p50"], "losses": figures["losses"][:LOSSES]}


def start(python, code):
    begin = time.perf_counter()
    subprocess.run([python, "-c", code], check=True)
    return (time.perf_counter() - begin) * 1e3


def side(python, what, name=""):
    done = subprocess.run([python, str(pathlib.Path(__file__).resolve()), "--side", what, name], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def row(what, ours, theirs, unit, digits):
    mid = [statistics.median(v) for v in (ours, theirs)]
    ratio = statistics.median(a / b for a, b in zip(ours, theirs))
    return f"| {what} | {unit} | {mid[0]:.{digits}f} | {mid[1]:.{digits}f} | {ratio:.2f} |"


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown processor"


def tables(args):
    lines = ["| from Python | | Remat | PyTorch | Remat / PyTorch |", "|---|---|--:|--:|--:|"]
    runs = [(side(args.python, "remat-ops"), side(args.torch, "torch-ops")) for _ in range(args.runs)]
    texts = [
        ("burst", "caller's thread, `x + y`"), ("burst, gradient", "caller's thread, `x + y` with a gradient"),
        ("chain", "end to end, `x = x + y`"), ("chain, gradient", "end to end, `x = x + y` with a gradient"),
    ]
    for key, what in texts:
        lines.append(row(what, [a[key] for a, _ in runs], [b[key] for _, b in runs], "ns", 0))
    rust = ["", "| step | | from Python | from Rust | Python / Rust |", "|---|---|--:|--:|--:|"]
    equal = True
    for name in STEPS:
        runs = []
        for _ in range(args.runs):
            ours, native = side(args.python, "remat-train", name), rust_train(args.remat, name)
            runs.append((ours, native, side(args.torch, "torch-train", name)))
            if [float_bits(l) for l in ours["losses"]] != [float_bits(l) for l in native["losses"]]:
                print(f"{name}: losses {ours['losses']} from Python, {native['losses']} from Rust", file=sys.stderr)
                equal = False
        lines.append(row(f"a step of `{name}`", [r[0]["ms"] for r in runs], [r[2]["ms"] for r in runs], "ms", 2))
        rust.append(row(f"`{name}`", [r[0]["ms"] for r in runs], [r[1]["ms"] for r in runs], "ms", 2))
    starts = []
    for _ in range(args.runs):
        nothing = start(args.python, "pass")
        starts.append((start(args.python, "import remat") - nothing, start(args.torch, "import torch") - nothing))
    lines.append(row("import of the package", [a for a, _ in starts], [b for _, b in starts], "ms", 0))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load average {os.getloadavg()[0]:.0f}" if hasattr(os, "getloadavg") else ""
    note = f"Python {platform.python_version()}. Additions of four f32, one compute thread; steps with two. {args.runs} runs of each in turns on {cores} cores of {processor()}{load}."
    return "\n".join([*lines, *rust, "", note, ""]), equal


def float_bits(v):
    """Of an f32: the command prints fewer digits than Python."""
    import struct

    return struct.pack("<f", v)


SIDES = {
    "remat-ops": lambda _: remat_ops(), "torch-ops": lambda _: torch_ops(), "remat-train": remat_train, "torch-train": torch_train,
}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--python", default=sys.executable, help="a Python that has the package")
    ap.add_argument("--torch", help="a Python that has PyTorch, if it is another")
    ap.add_argument("--remat", type=pathlib.Path, default=ROOT / "target/release/remat", help="the command, a release build")
    ap.add_argument("--runs", type=int, default=7)
    ap.add_argument("--write", type=pathlib.Path, help="Markdown file with the markers of this table")
    ap.add_argument("--side", nargs=2, metavar=("WHAT", "NAME"), help=argparse.SUPPRESS)
    args = ap.parse_args()
    if args.side:
        return print(json.dumps(SIDES[args.side[0]](args.side[1])))
    args.torch = args.torch or args.python
    text, equal = tables(args)
    print(text)
    if args.write:
        old = args.write.read_text()
        head, rest = old.split(MARKS[0])
        args.write.write_text(head + MARKS[0] + text + MARKS[1] + rest.split(MARKS[1])[1])
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
