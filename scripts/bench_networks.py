#!/usr/bin/env python3
"""Compare whole networks with those of others, in one run: forward passes and training steps, eager and compiled.

    python3 -m venv VENV && VENV/bin/pip install torch==2.15.0
    VENV/bin/pip install onnx onnxscript onnxruntime==1.32.0 openvino==2026.4.1          # for --peers
    python3 scripts/bench_networks.py --torch VENV/bin/python                 # prints a Markdown table
    python3 scripts/bench_networks.py --torch VENV/bin/python --only train:mlp --threads 1
    python3 scripts/bench_networks.py --torch VENV/bin/python --peers torch,torch.compile --only train: \
        --write docs/src/benchmarks.md
    python3 scripts/bench_networks.py --torch VENV/bin/python --peers onnxruntime,openvino --only model: --inference-only

Builds the command `remat`, then times each work with `remat bench WORK --eager`, `--compiled` and eager PyTorch in turns.
With --peers, works run in turns with these, too. The peer torch.compile, which wants a C++ compiler, is PyTorch's network
compiled before training steps. Engines for forward passes get PyTorch's network as an ONNX file of one batch size, compute
in f32, and run one inference at a time.
Times are medians; a ratio is the median of the ratios of neighbouring measurements, which a change of the machine's load
disturbs least. Losses of compiled and eager steps are equal bit for bit by the tests of crates/nn; here only time counts.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time

from bench_conv import Peer, build, conditions, finish, options, peer

MARKS = ("<!-- network-table -->\n", "<!-- /network-table -->\n")
INFERENCE_MARKS = ("<!-- inference-table -->\n", "<!-- /inference-table -->\n")
# work, batch
WORKS = [("train:mlp", 64), ("train:resnet18", 32), ("train:resnet50", 8), ("train:gpt", 8), ("model:resnet18", 1),
         ("model:resnet18", 8), ("model:resnet50", 1), ("model:resnet50", 8), ("model:mobilenetv2", 1),
         ("model:mobilenetv2", 8), ("model:bert6", 1)]


PEERS = {"torch": "PyTorch", "torch.compile": "torch.compile", "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def torch_networks(torch, checkpointed=False):
    """The networks by name, as functions that make them; their blocks may be made again for the backward pass."""
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
    return {"resnet18": resnet18, "resnet50": resnet50, "mobilenetv2": lambda: Images(m.mobilenet(), F.relu6, False),
            "bert6": lambda: Places(m.Transformer()), "mlp": mlp, "gpt": lambda: Tokens(m.Gpt())}


def inference(torch, name, batch):
    """A network as it is used, and an input."""
    x = torch.randn(batch, 128, 384) if name == "bert6" else torch.randn(batch, 3, 224, 224)
    return torch_networks(torch)[name]().eval(), x


def torch_run(torch, work, batch, checkpointed=False, compiled=False):
    """A function that does the work once; a network for training may be compiled first."""
    F = torch.nn.functional
    kind, _, name = work.partition(":")
    if kind == "model":
        net, x = inference(torch, name, batch)

        def infer():
            with torch.inference_mode():
                return net(x)
        return infer
    shape, classes = {"mlp": ((784,), 10), "resnet18": ((3, 64, 64), 1000), "resnet50": ((3, 224, 224), 1000),
                      "gpt": ((256,), 256)}[name]
    net = torch_networks(torch, checkpointed)[name]().train()
    if compiled:
        torch._dynamo.reset()
        net = torch.compile(net)
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


def torch_resident():
    """PyTorch's memory, in a process of its own: the most that it has resident in three runs of `work batch threads`."""
    import torch
    from bench_budgets import resident

    work, batch, threads = sys.stdin.readline().split()
    torch.set_num_threads(int(threads))
    run = torch_run(torch, work, int(batch))
    for _ in range(3):
        run()
    print(resident("VmHWM"))


def onnxruntime_run(file, x, threads):
    """A function that runs the file once, and the engine's version."""
    import onnxruntime

    o = onnxruntime.SessionOptions()
    o.intra_op_num_threads, o.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(file, o, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": x})[0]


def openvino_run(file, x, threads):
    """As above."""
    import openvino

    how = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1,
           "INFERENCE_PRECISION_HINT": "f32"}
    request = openvino.Core().compile_model(file, "CPU", how).create_infer_request()

    def run():
        request.infer({0: x})
        return request.get_output_tensor(0).data
    return run


def engine(name):
    """An inference engine's side: as `bench_conv.peer`, of an ONNX file that PyTorch writes."""
    import importlib
    import tempfile
    import warnings

    import torch

    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    # exporters talk; the protocol has standard output for itself
    answer, sys.stdout = sys.stdout, sys.stderr
    print(importlib.import_module(name).__version__.split("-")[0], file=answer, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            work, batch, threads, seconds = line.split()
            torch.manual_seed(1)
            net, x = inference(torch, work.partition(":")[2], int(batch))
            file = os.path.join(folder, f"{work.partition(':')[2]}-{batch}.onnx")
            with torch.no_grad():
                if not os.path.exists(file):
                    torch.onnx.export(net, (x,), file, opset_version=17, dynamo=False, input_names=["x"],
                                      output_names=["y"])
                want = net(x)
            run = {"onnxruntime": onnxruntime_run, "openvino": openvino_run}[name](file, x.numpy(), int(threads))
            worst = float((torch.from_numpy(run()) - want).abs().max() / want.abs().max())
            assert worst < 1e-3, f"{name} computes {work} otherwise: {worst}"
            run()
            times, start = [], time.perf_counter()
            while len(times) < 3 or time.perf_counter() - start < float(seconds):
                begin = time.perf_counter()
                run()
                times.append(time.perf_counter() - begin)
            print(statistics.median(times) * 1e3, file=answer, flush=True)


def ours(exe, work, batch, threads, how, args):
    command = [exe, "bench", work, "--batch", str(batch), "--threads", str(threads), how]
    command += ["--seconds", str(args.seconds), "--json", "-"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def theirs_resident(args, work, batch, threads):
    command = [args.torch, __file__, "--peer", "memory"]
    line = f"{work} {batch} {threads}\n"
    return int(subprocess.run(command, input=line, stdout=subprocess.PIPE, text=True, check=True).stdout)


def measure(exe, peers, work, batch, threads, args):
    """Medians of eager, compiled and each peer, and the ratios of each round."""
    rounds = []
    suits = lambda name: name == "torch" or (name == "torch.compile") == work.startswith("train:")
    names = [name for name in peers if suits(name)]
    for _ in range(args.rounds):
        eager = None if args.inference_only else ours(exe, work, batch, threads, "--eager", args)
        half = len(names) // 2
        theirs = {name: peers[name].time(work, batch, threads, args.seconds) for name in names[:half]}
        compiled = ours(exe, work, batch, threads, "--compiled", args)
        theirs |= {name: peers[name].time(work, batch, threads, args.seconds) for name in names[half:]}
        rounds.append((eager, compiled, theirs))
    p50 = lambda report: report["latency_ms"]["p50"]
    middle = lambda of: statistics.median(of(*row) for row in rounds)
    row = {"work": work, "batch": batch, "threads": threads, "compiled": middle(lambda e, c, t: p50(c)),
           "theirs": {name: middle(lambda e, c, t: t[name]) for name in names},
           "ratio_compiled": {name: middle(lambda e, c, t: p50(c) / t[name]) for name in names},
           "share_of_peak": middle(lambda e, c, t: c["share_of_peak"]),
           "round_trip_ns": middle(lambda e, c, t: c["round_trip_ns"] or 0),
           "resident": rounds[0][1]["resident_bytes"] or 0, "torch_resident": theirs_resident(args, work, batch, threads)}
    if not args.inference_only:
        row |= {"eager": middle(lambda e, c, t: p50(e)), "compiled_to_eager": middle(lambda e, c, t: p50(c) / p50(e)),
                "ratio_eager": {name: middle(lambda e, c, t: p50(e) / t[name]) for name in names},
                "peak_bytes": rounds[0][0]["peak_bytes"]}
    return row


def cells(row, peers, args):
    """The columns of the table: head, and what stands in the row."""
    yield "work", f"`{row['work']}`"
    yield "batch", row["batch"]
    yield "threads", row["threads"]
    if not args.inference_only:
        yield "eager ms", f"{row['eager']:.1f}"
    yield "compiled ms", f"{row['compiled']:.1f}"
    number = lambda of, name, digits: f"{of[name]:.{digits}f}" if name in of else ""
    for name in peers:
        yield f"{PEERS[name]} ms", number(row["theirs"], name, 1)
    if not args.inference_only and "torch" in peers:
        yield "eager / PyTorch", number(row["ratio_eager"], "torch", 2)
    for name in peers:
        yield f"compiled / {PEERS[name]}", number(row["ratio_compiled"], name, 2)
    if not args.inference_only:
        yield "compiled / eager", f"{row['compiled_to_eager']:.2f}"
    yield "of peak", f"{100 * row['share_of_peak']:.0f} %"
    yield "round trip ns", f"{row['round_trip_ns']:.0f}" if row["round_trip_ns"] else ""
    if not args.inference_only:
        yield "arena MiB", f"{row['peak_bytes'] / 2**20:.0f}"
    yield "resident MiB", f"{row['resident'] / 2**20:.0f}"
    yield "PyTorch's", f"{row['torch_resident'] / 2**20:.0f}"
    yield "resident / PyTorch's", f"{row['resident'] / row['torch_resident']:.2f}"


def table(rows, peers, args, load):
    head = [name for name, _ in cells(rows[0], peers, args)]
    lines = [head, ["---"] + ["--:"] * (len(head) - 1)]
    lines += [[str(text) for _, text in cells(row, peers, args)] for row in rows]
    lines = [f"| {' | '.join(line)} |" for line in lines]
    versions = ", ".join(f"{PEERS[name]} {peer.version}" for name, peer in peers.items())
    arena = "" if args.inference_only else "; the arena's peak that of the eager one"
    lines += ["", f"{versions}; PyTorch's memory is that of eager code. {conditions(args, load)} The share of the peak is that of the compiled "
              f"form{arena}. A round trip is a word's to the other core and back. Resident is the most that the whole process "
              "has in memory, of Remat the compiled form's, program and libraries counted.", ""]
    return "\n".join(lines)


def more(ap):
    ap.add_argument("--peers", default="torch", type=lambda text: text.split(","),
                    help="with what works are compared: torch, torch.compile (training), onnxruntime, openvino (inference) [torch]")
    ap.add_argument("--inference-only", action="store_true", help="compiled forward passes alone, a table of their own")


def main():
    args = options(__doc__, seconds=1, more=more)
    if args.peer == "memory":
        return torch_resident()
    if args.peer:
        if args.peer == "torch.compile":
            return peer(lambda *work: torch_run(*work, compiled=True), fewest=3)
        return peer(torch_run, fewest=3) if args.peer == "torch" else engine(args.peer)
    if unknown := set(args.peers) - set(PEERS):
        sys.exit(f"--peers: no {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    exe, start = args.remat or build(), os.getloadavg()[0]
    peers = {name: Peer(args.torch, __file__, name) for name in args.peers}
    works = [w for w in WORKS if re.search(args.only, w[0]) and (w[0].startswith("model:") or not args.inference_only)]
    rows = []
    for work, batch in works:
        for threads in args.threads:
            rows.append(measure(exe, peers, work, batch, threads, args))
            print(rows[-1], file=sys.stderr, flush=True)
    text = table(rows, peers, args, (start, os.getloadavg()[0])) if rows else sys.exit("nothing is called so")
    finish(args, text, rows, INFERENCE_MARKS if args.inference_only else MARKS)


if __name__ == "__main__":
    main()
