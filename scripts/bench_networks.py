#!/usr/bin/env python3
"""Compare whole networks with PyTorch's, in one run: forward passes and training steps, eager and compiled.

    python3 -m venv VENV && VENV/bin/pip install torch==2.15.0
    python3 scripts/bench_networks.py --torch VENV/bin/python                 # prints a Markdown table
    python3 scripts/bench_networks.py --torch VENV/bin/python --only train:mlp --threads 1
    python3 scripts/bench_networks.py --torch VENV/bin/python --write docs/src/benchmarks.md

Builds the command `remat`, then times each work with `remat bench WORK --eager`, `--compiled` and eager PyTorch in turns.
Times are medians; a ratio is the median of the ratios of neighbouring measurements, which a change of the machine's load
disturbs least. Losses of compiled and eager steps are equal bit for bit by the tests of crates/nn; here only time counts.
"""

import json
import os
import re
import statistics
import subprocess
import sys

from bench_conv import Peer, build, conditions, options, peer, write

MARKS = ("<!-- network-table -->\n", "<!-- /network-table -->\n")
# work, batch
WORKS = [("train:mlp", 64), ("train:resnet18", 32), ("train:resnet50", 8), ("train:gpt", 8), ("model:resnet18", 1),
         ("model:resnet18", 8), ("model:resnet50", 1), ("model:resnet50", 8), ("model:mobilenetv2", 1),
         ("model:mobilenetv2", 8), ("model:bert6", 1)]


def torch_run(torch, work, batch, checkpointed=False):
    """A function that does the work once; the blocks of a network may be made again for the backward pass."""
    import models_reference as m
    from torch import nn
    F = nn.functional
    call = lambda block, x: block(x)
    if checkpointed:
        from torch.utils.checkpoint import checkpoint
        call = lambda block, x: checkpoint(block, x, use_reentrant=False)

    class Images(nn.Module):
        """The layers of a network of images: a stem, blocks, a classifier behind a mean over the image."""

        def __init__(self, layers, act, pool):
            super().__init__()
            self.layers, self.act, self.pool = layers, act, pool

        def forward(self, x):
            x = self.act(self.layers[0](x))
            x = F.max_pool2d(x, 3, 2, 1) if self.pool else x
            for layer in self.layers[1:-1]:
                x = call(layer, x)
            x = x if self.pool else self.act(x)
            return self.layers[-1](x.mean((2, 3)))

    class Places(nn.Module):
        def __init__(self, body):
            super().__init__()
            self.body = body

        def forward(self, x):
            for block in self.body.blocks:
                x = call(block, x)
            return self.body.norm(x)

    class Tokens(nn.Module):
        def __init__(self, gpt):
            super().__init__()
            self.gpt, self.body = gpt, Places(gpt.body)

        def forward(self, x):
            return self.gpt.head(self.body(self.gpt.tokens(x) + self.gpt.positions))

    resnet18 = lambda: Images(m.resnet([2, 2, 2, 2], False), F.relu, True)
    resnet50 = lambda: Images(m.resnet([3, 4, 6, 3], True), F.relu, True)
    mlp = lambda: nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    kind, _, name = work.partition(":")
    if kind == "model":
        net = {"resnet18": resnet18, "resnet50": resnet50, "mobilenetv2": lambda: Images(m.mobilenet(), F.relu6, False),
               "bert6": lambda: Places(m.Transformer())}[name]().eval()
        x = torch.randn(batch, 128, 384) if name == "bert6" else torch.randn(batch, 3, 224, 224)

        def infer():
            with torch.inference_mode():
                return net(x)
        return infer
    net, shape, classes = {"mlp": (mlp, (784,), 10), "resnet18": (resnet18, (3, 64, 64), 1000),
                           "resnet50": (resnet50, (3, 224, 224), 1000),
                           "gpt": (lambda: Tokens(m.Gpt()), (256,), 256)}[name]
    net = net().train()
    if name == "gpt":
        x, labels = torch.randint(0, 256, (batch, *shape)), torch.randint(0, classes, (batch, *shape))
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4)
    else:
        x, labels = torch.randn(batch, *shape), torch.randint(0, classes, (batch,))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(x).reshape(-1, classes), labels.reshape(-1))
        loss.backward()
        optimizer.step()
    return step


def ours(exe, work, batch, threads, how, args):
    command = [exe, "bench", work, "--batch", str(batch), "--threads", str(threads), how]
    command += ["--seconds", str(args.seconds), "--json", "-"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def measure(exe, other, work, batch, threads, args):
    """Medians of eager, compiled and PyTorch, and the ratios of each round."""
    rounds = []
    for _ in range(args.rounds):
        eager = ours(exe, work, batch, threads, "--eager", args)
        theirs = other.time(work, batch, threads, args.seconds)
        compiled = ours(exe, work, batch, threads, "--compiled", args)
        rounds.append((eager, compiled, theirs))
    ms = [[e["latency_ms"]["p50"], c["latency_ms"]["p50"], t] for e, c, t in rounds]
    middle = [statistics.median(column) for column in zip(*ms)]
    ratio = [statistics.median(of(*row) for row in ms) for of in
             (lambda e, c, t: e / t, lambda e, c, t: c / t, lambda e, c, t: c / e)]
    share = statistics.median(c["share_of_peak"] for _, c, _ in rounds)
    return {"work": work, "batch": batch, "threads": threads, "eager": middle[0], "compiled": middle[1],
            "theirs": middle[2], "ratio_eager": ratio[0], "ratio_compiled": ratio[1], "compiled_to_eager": ratio[2],
            "share_of_peak": share, "peak_bytes": rounds[0][0]["peak_bytes"]}


def table(rows, version, args, load):
    lines = ["| work | batch | threads | eager ms | compiled ms | PyTorch ms | eager / PyTorch | compiled / PyTorch "
             "| compiled / eager | of peak | arena MiB |", "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for r in rows:
        lines.append(f"| `{r['work']}` | {r['batch']} | {r['threads']} | {r['eager']:.1f} | {r['compiled']:.1f} "
                     f"| {r['theirs']:.1f} | {r['ratio_eager']:.2f} | {r['ratio_compiled']:.2f} "
                     f"| {r['compiled_to_eager']:.2f} | {100 * r['share_of_peak']:.0f} % | {r['peak_bytes'] / 2**20:.0f} |")
    lines += ["", f"PyTorch {version}, eager. {conditions(args, load)} The share of the peak is that of the compiled form; the "
              "arena's peak that of the eager one.", ""]
    return "\n".join(lines)


def main():
    args = options(__doc__, seconds=1)
    if args.peer:
        return peer(torch_run, fewest=3)
    exe, other, start = args.remat or build(), Peer(args.torch, __file__), os.getloadavg()[0]
    rows = []
    for work, batch in WORKS:
        for threads in args.threads if re.search(args.only, work) else []:
            rows.append(measure(exe, other, work, batch, threads, args))
            print(rows[-1], file=sys.stderr, flush=True)
    text = table(rows, other.version, args, (start, os.getloadavg()[0]))
    print(text)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    if args.write:
        write(args.write, text, MARKS)


if __name__ == "__main__":
    main()
