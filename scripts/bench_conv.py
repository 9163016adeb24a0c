#!/usr/bin/env python3
"""Compare convolutions and matrix products with PyTorch's, in one run.

    python3 -m venv VENV && VENV/bin/pip install torch==2.15.0
    python3 scripts/bench_conv.py --torch VENV/bin/python                     # prints Markdown tables
    python3 scripts/bench_conv.py --torch VENV/bin/python --only mobilenet --threads 1
    python3 scripts/bench_conv.py --torch VENV/bin/python --write docs/src/benchmarks.md

Builds the command `remat`, then times each shape of ResNet-50, MobileNetV2 and ResNet-18 (forward, gradient of the input,
gradient of the weight) and the matrix products of a small GPT with `remat bench` and with eager PyTorch in turns, a few
times. PyTorch's side is one process that takes orders. Times are medians; the ratio is the median of the ratios of
neighbouring measurements, which a change of the machine's load disturbs least. With --write a summary per network
replaces what is between the file's markers.
"""

import argparse
import json
import math
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARKS = ("<!-- conv-table -->\n", "<!-- /conv-table -->\n")
PASSES = {"": "forward", ":dx": "input gradient", ":dw": "weight gradient"}

# batch, and how often each convolution occurs
RESNET50 = (8, """3x224x224-64k7s2p3 64x56x56-64k1 64x56x56-64k3p1*3 64x56x56-256k1*4 256x56x56-64k1*2 256x56x56-128k1
    128x56x56-128k3s2p1 128x28x28-512k1*4 256x56x56-512k1s2 512x28x28-128k1*3 128x28x28-128k3p1*3 512x28x28-256k1
    256x28x28-256k3s2p1 256x14x14-1024k1*6 512x28x28-1024k1s2 1024x14x14-256k1*5 256x14x14-256k3p1*5 1024x14x14-512k1
    512x14x14-512k3s2p1 512x7x7-2048k1*3 1024x14x14-2048k1s2 2048x7x7-512k1*2 512x7x7-512k3p1*2""")
MOBILENETV2 = (8, """3x224x224-32k3s2p1 32x112x112-32k3p1g32 32x112x112-16k1 16x112x112-96k1 96x112x112-96k3s2p1g96
    96x56x56-24k1 24x56x56-144k1*2 144x56x56-144k3p1g144 144x56x56-24k1 144x56x56-144k3s2p1g144 144x28x28-32k1
    32x28x28-192k1*3 192x28x28-192k3p1g192*2 192x28x28-32k1*2 192x28x28-192k3s2p1g192 192x14x14-64k1 64x14x14-384k1*4
    384x14x14-384k3p1g384*4 384x14x14-64k1*3 384x14x14-96k1 96x14x14-576k1*3 576x14x14-576k3p1g576*2 576x14x14-96k1*2
    576x14x14-576k3s2p1g576 576x7x7-160k1 160x7x7-960k1*3 960x7x7-960k3p1g960*3 960x7x7-160k1*2 960x7x7-320k1
    320x7x7-1280k1""")
RESNET18_64 = (32, """3x64x64-64k7s2p3 64x16x16-64k3p1*4 64x16x16-128k3s2p1 64x16x16-128k1s2 128x8x8-128k3p1*3
    128x8x8-256k3s2p1 128x8x8-256k1s2 256x4x4-256k3p1*3 256x4x4-512k3s2p1 256x4x4-512k1s2 512x2x2-512k3p1*3""")
# 6 layers of width 384 with 6 heads, 8 sequences of 256: products of the forward pass, of both gradients, of attention
GPT = """2048x384x1152*6 2048x384x384*6 2048x384x1536*6 2048x1536x384*6 2048x1152x384:nt*6 2048x384x384:nt*6
    2048x1536x384:nt*6 2048x384x1536:nt*6 384x2048x1152:tn*6 384x2048x384:tn*6 384x2048x1536:tn*6 1536x2048x384:tn*6
    256x64x256:nt@48*18 256x256x64@48*12 256x256x64:tn@48*12 2048x384x65 384x2048x65:tn"""


def cases():
    """(group, work, batch, how often)"""
    for name, (batch, text) in (("ResNet-50", RESNET50), ("MobileNetV2", MOBILENETV2), ("ResNet-18, 64x64", RESNET18_64)):
        for part in PASSES:
            for i, item in enumerate(text.split()):
                shape, _, count = item.partition("*")
                if part == ":dx" and i == 0:
                    continue  # nobody asks for the gradient of the image
                yield f"{name}, batch {batch}", PASSES[part], f"conv:{shape}{part}", batch, int(count or 1)
    for item in GPT.split():
        shape, _, count = item.partition("*")
        shape, _, batch = shape.partition("@")
        yield "GPT", "products", f"matmul:{shape}", int(batch or 1), int(count or 1)


def torch_run(torch, work, batch):
    """A function that does the work once."""
    kind, _, rest = work.partition(":")
    if kind == "matmul":
        sizes, _, form = rest.partition(":")
        m, k, n = map(int, sizes.split("x"))
        a = torch.randn(batch, k, m).mT if form[:1] == "t" else torch.randn(batch, m, k)
        b = torch.randn(batch, n, k).mT if form[1:] == "t" else torch.randn(batch, k, n)
        if batch == 1:
            a, b = a[0], b[0]
        return lambda: torch.matmul(a, b)
    shape, _, part = rest.partition(":")
    c, h, w, k, taps = re.fullmatch(r"(\d+)x(\d+)x(\d+)-(\d+)(.*)", shape).groups()
    taps = {letter: int(value) for letter, value in re.findall(r"([kspdg])(\d+)", taps)}
    r, s, p, d, g = taps["k"], taps.get("s", 1), taps.get("p", 0), taps.get("d", 1), taps.get("g", 1)
    x, weight = torch.randn(batch, int(c), int(h), int(w)), torch.randn(int(k), int(c) // g, r, r)
    forward = lambda: torch.conv2d(x, weight, None, s, p, d, g)
    if not part:
        return forward
    dy = torch.randn_like(forward())
    mask = [part == "dx", part == "dw", False]
    backward = torch.ops.aten.convolution_backward
    return lambda: backward(dy, x, weight, None, [s, s], [p, p], [d, d], False, [0, 0], g, mask)


def peer(torch_run, fewest):
    """PyTorch's side: for each line `work batch threads seconds`, prints the median milliseconds of `fewest` runs or more."""
    import torch

    print(torch.__version__.split("+")[0], flush=True)
    last = run = None
    for line in sys.stdin:
        work, batch, threads, seconds = line.split()
        torch.set_num_threads(int(threads))
        if (work, batch, threads) != last:
            last, run = (work, batch, threads), torch_run(torch, work, int(batch))
        for _ in range(2):
            run()
        times, start = [], time.perf_counter()
        while len(times) < fewest or time.perf_counter() - start < float(seconds):
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
        print(statistics.median(times) * 1e3, flush=True)


def build():
    command = ["cargo", "build", "--release", "-p", "remat-cli", "--message-format=json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    return next(m["executable"] for m in messages if m.get("target", {}).get("name") == "remat" and m.get("executable"))


class Peer:
    def __init__(self, python, script=__file__, name="torch"):
        command = [python, str(pathlib.Path(script).resolve()), "--peer", name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.version = self.process.stdout.readline().strip()

    def time(self, work, batch, threads, seconds):
        print(work, batch, threads, seconds, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def measure(exe, peer, work, batch, threads, args):
    """(our ms, their ms, ratio, our report of the middle round)"""
    rounds = []
    for turn in range(args.rounds):
        command = [exe, "bench", work, "--batch", str(batch), "--threads", str(threads)]
        command += ["--seconds", str(args.seconds), "--json", "-"]
        theirs = peer.time(work, batch, threads, args.seconds) if turn % 2 else None
        report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        theirs = theirs or peer.time(work, batch, threads, args.seconds)
        rounds.append((report["latency_ms"]["p50"], theirs, report))
    rounds.sort(key=lambda r: r[0])
    ratio = statistics.median(ours / theirs for ours, theirs, _ in rounds)
    return rounds[len(rounds) // 2][0], statistics.median(r[1] for r in rounds), ratio, rounds[len(rounds) // 2][2]


def show(rows):
    """All shapes, the one that loses most first."""
    print("| shape | batch | threads | Remat ms | PyTorch ms | Remat / PyTorch | of peak | bound | workspace KiB |")
    print("|---|--:|--:|--:|--:|--:|--:|---|--:|")
    for row in sorted(rows, key=lambda row: -row["ratio"]):
        r = row["report"]
        print(f"| {row['work']} | {row['batch']} | {row['threads']} | {row['ours']:.3f} | {row['theirs']:.3f} "
              f"| {row['ratio']:.2f} | {100 * r['share_of_peak']:.0f} % | {r['bound']} | {r['workspace_bytes'] >> 10} |")


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown processor"


def summary(rows, version, args, load):
    """Per network, pass and number of threads: the sum over its layers, the mean ratio, and the worst shape."""
    lines = ["| network | | threads | Remat ms | PyTorch ms | Remat / PyTorch | worst shape |", "|---|---|--:|--:|--:|--:|---|"]
    keys = dict.fromkeys((row["group"], row["part"], row["threads"]) for row in rows)
    for group, part, threads in keys:
        some = [row for row in rows if (row["group"], row["part"], row["threads"]) == (group, part, threads)]
        ours, theirs = (sum(row[side] * row["count"] for row in some) for side in ("ours", "theirs"))
        worst = max(some, key=lambda row: row["ratio"])
        lines.append(f"| {group} | {part} | {threads} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} "
                     f"| {worst['ratio']:.2f}, `{worst['work']}` |")
    slower = sum(row["ratio"] > 1 for row in rows)
    mean = math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))
    computing = [row["report"] for row in rows if row["report"]["bound"] == "compute"]
    low = sum(report["share_of_peak"] < 0.6 for report in computing)
    lines += ["", f"Sums over the layers of a network. {len(rows)} shapes, geometric mean of the ratios {mean:.2f}, {slower} "
              f"slower than PyTorch {version} (eager, NCHW); of {len(computing)} that compute binds {low} are below 60 % of the "
              f"machine's multiply-adds. {conditions(args, load)}", ""]
    return "\n".join(lines)


def write(path, text, marks):
    head, rest = path.read_text().split(marks[0])
    path.write_text(head + marks[0] + text + marks[1] + rest.split(marks[1])[1])


def finish(args, text, figures, marks):
    """Shows a table, and writes it and its figures where the options say."""
    print(text)
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))
    for path in args.write:
        write(path, text, marks)


def options(doc, seconds, more=lambda ap: None, peer_args=None):
    """The options of a comparison with PyTorch, and `more`; its side takes a name, or so many arguments."""
    ap = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--torch", default=sys.executable, help="a Python that has PyTorch and NumPy")
    ap.add_argument("--remat", help="the command, if it is built already")
    ap.add_argument("--threads", type=lambda text: [int(t) for t in text.split(",")], default=[1, 2])
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--seconds", type=float, default=seconds, help="of each measurement")
    ap.add_argument("--only", default="", help="a regular expression of what to measure")
    ap.add_argument("--json", type=pathlib.Path, help="all figures")
    ap.add_argument("--write", type=lambda text: [pathlib.Path(p) for p in text.split(",")], default=[],
                    metavar="FILE,..", help="Markdown files with the markers of the table")
    ap.add_argument("--peer", nargs=peer_args, help=argparse.SUPPRESS)
    more(ap)
    return ap.parse_args()


def conditions(args, load):
    """Under which figures were taken."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (f"Medians of {args.rounds} turns of {args.seconds} s each on {cores} cores of {processor()}, load average "
            f"{load[0]:.1f} at the start and {load[1]:.1f} at the end.")


def main():
    args = options(__doc__, seconds=0.2)
    if args.peer:
        import torch
        with torch.no_grad():
            return peer(torch_run, fewest=5)
    exe, other, start = args.remat or build(), Peer(args.torch), os.getloadavg()[0]
    rows, all_cases = [], [c for c in cases() if re.search(args.only, " ".join(map(str, c)), re.IGNORECASE)]
    for at, (group, part, work, batch, count) in enumerate(all_cases):
        for threads in args.threads:
            if sys.stderr.isatty():
                print(f"\r{at + 1}/{len(all_cases)} {work:50}", end="", file=sys.stderr, flush=True)
            ours, theirs, ratio, report = measure(exe, other, work, batch, threads, args)
            rows.append({"group": group, "part": part, "work": work, "batch": batch, "count": count, "threads": threads,
                         "ours": ours, "theirs": theirs, "ratio": ratio, "report": report})
    if sys.stderr.isatty():
        print(file=sys.stderr)
    show(rows)
    print()
    finish(args, summary(rows, other.version, args, (start, os.getloadavg()[0])), rows, MARKS)


if __name__ == "__main__":
    main()
