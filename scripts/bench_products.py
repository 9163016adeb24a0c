#!/usr/bin/env python3
"""Compare matrix products with those of the crate `gemm` and of OpenBLAS, in one run.

    python3 -m venv VENV && VENV/bin/pip install numpy==2.4.6
    python3 scripts/bench_products.py --python VENV/bin/python                      # prints a Markdown table
    python3 scripts/bench_products.py --python VENV/bin/python --only 'f32 .* 1$'   # f32 on one thread
    python3 scripts/bench_products.py --python VENV/bin/python --write docs/src/benchmarks.md

Builds the example `products` of remat-kernels, which times Remat, the crate and multiply-adds from registers in turns in
one process. That process and one in which NumPy multiplies with OpenBLAS's products take turns, too. NumPy has no fast
products of f16, and small ones would time Python, so those rows have no ratio to OpenBLAS. Sizes are rows of the left
matrix, its columns, and columns of the right one. Times are medians, and a ratio is the median of the ratios of
neighbouring measurements, which a change of the machine's load disturbs least; below 1, Remat is faster. With --write the
table replaces what is between the file's markers.

OpenBLAS takes the kernels of the processor that it recognises, which the table names; what the environment says about
that (OPENBLAS_CORETYPE and the like) is not passed on.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

from bench_conv import Peer, conditions, finish
from bench_dispatch import ROOT, build

MARKS = ("<!-- products-table -->\n", "<!-- /products-table -->\n")
# Multiply-adds from which a call from Python, a microsecond, is a few hundredths at most.
OPENBLAS_MIN = 1 << 20
# Load average from which other programs take so much of the cores that two threads of OpenBLAS wait for each other.
BUSY = 0.5
# OpenBLAS's threads go on waiting in a loop for a moment after a product, which would disturb whoever is next.
SETTLE_SECONDS = 0.1


def peer(threads):
    """OpenBLAS's side: says its version, then answers `TYPE:MxKxN 1 THREADS SECONDS` with the median nanoseconds."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = str(threads)  # read when NumPy is loaded
    import numpy

    try:
        blas = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
    except (TypeError, KeyError):
        sys.exit(f"NumPy {numpy.__version__} does not say which BLAS it has; take 1.26 or newer")
    if "openblas" not in blas["name"].lower():
        sys.exit(f"this NumPy multiplies with {blas['name']}, not with OpenBLAS; that of the package index has it")
    print(f"OpenBLAS {blas['version']} of NumPy {numpy.__version__}", flush=True)
    random = numpy.random.default_rng(1)
    for line in sys.stdin:
        work, _, _, seconds = line.split()
        dtype, _, shape = work.partition(":")
        m, k, n = map(int, shape.split("x"))
        a, b = (random.random(size, dtype={"f32": "f4", "f64": "f8"}[dtype]) for size in ((m, k), (k, n)))
        c = numpy.matmul(a, b)
        times, start = [], time.perf_counter()
        while len(times) < 3 or time.perf_counter() - start < float(seconds):
            begin = time.perf_counter()
            numpy.matmul(a, b, out=c)
            times.append(time.perf_counter() - begin)
        time.sleep(SETTLE_SECONDS)
        print(statistics.median(times) * 1e9, flush=True)


def core(python):
    """The processor whose kernels OpenBLAS takes, as it says when it is loaded."""
    verbose = os.environ | {"OPENBLAS_VERBOSE": "2"}
    done = subprocess.run([python, "-c", "import numpy"], env=verbose, stderr=subprocess.PIPE, text=True)
    found = re.search(r"Core: (\S+)", done.stderr)
    return found[1] if found else "an unknown processor"


def measure(exe, peers, dtype, shape, threads, args):
    """A row of the table, from some turns of the example and of OpenBLAS where that takes part."""
    m, k, n = map(int, shape.split("x"))
    other = peers.get(threads) if dtype != "f16" and m * k * n >= OPENBLAS_MIN else None
    ours, theirs = [], []
    for turn in range(args.rounds):
        def run_ours():
            command = [exe, str(args.seconds), dtype, shape, str(threads)]
            ours.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))

        def run_theirs():
            if other:
                theirs.append(other.time(f"{dtype}:{shape}", 1, threads, args.seconds))

        for side in (run_ours, run_theirs) if turn % 2 == 0 else (run_theirs, run_ours):
            side()
    middle = lambda key: statistics.median(run[key] for run in ours)
    row = {"type": dtype, "shape": shape, "threads": threads, "gflops": 2 * m * k * n / middle("ours_ns")}
    row |= {key: middle(key) for key in ("ours_ns", "gemm_ns", "of_gemm", "share_of_peak")}
    if theirs:
        row["openblas_ns"] = statistics.median(theirs)
        row["of_openblas"] = statistics.median(run["ours_ns"] / ns for run, ns in zip(ours, theirs))
    return row


def size(shape):
    """`MxKxN` for people: one number where the matrices are square."""
    extents = shape.split("x")
    return extents[0] if len(set(extents)) == 1 else " x ".join(extents)


def table(rows, versions, args, load):
    lines = ["| type | size | threads | Remat GFLOP/s | of peak | Remat / `gemm` | Remat / OpenBLAS |",
             "|---|--:|--:|--:|--:|--:|--:|"]
    for row in rows:
        ratio = f"{row['of_openblas']:.2f}" if "of_openblas" in row else ""
        lines.append(f"| {row['type']} | {size(row['shape'])} | {row['threads']} | {row['gflops']:.1f} "
                     f"| {100 * row['share_of_peak']:.0f} % | {row['of_gemm']:.2f} | {ratio} |")
    slower = {name: sum(row.get(key, 0) > 1 for row in rows) for name, key in
              (("the crate", "of_gemm"), ("OpenBLAS", "of_openblas"))}
    counts = " and ".join(f"{count} slower than {name}" for name, count in slower.items())
    lines += ["", f"Ratios of times; {len(rows)} products, {counts}. {versions}. {conditions(args, load)}", ""]
    return "\n".join(lines)


def crate_version():
    lock = (ROOT / "Cargo.lock").read_text()
    return re.search(r'name = "gemm"\nversion = "([^"]+)"', lock)[1]


def options():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--python", default=sys.executable, help="a Python that has NumPy with OpenBLAS")
    ap.add_argument("--exe", help="the example, if it is built already")
    ap.add_argument("--rounds", type=int, default=3, help="turns of each side")
    ap.add_argument("--seconds", type=float, default=0.3, help="of each side's turn")
    ap.add_argument("--only", default="", help="a regular expression of what to measure, as in `f32 256x256x256 1`")
    ap.add_argument("--json", type=pathlib.Path, metavar="FILE", help="all figures")
    ap.add_argument("--write", type=lambda text: [pathlib.Path(p) for p in text.split(",")], default=[],
                    metavar="FILE,..", help="Markdown files with the markers of the table")
    ap.add_argument("--peer", help=argparse.SUPPRESS)
    return ap.parse_args()


def main():
    args = options()
    if args.peer:
        return peer(args.peer)
    exe, start = args.exe or build("remat-kernels", "products"), os.getloadavg()[0]
    listed = subprocess.run([exe, "list"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    works = [work.split() for work in listed if re.search(args.only, work)]
    if not works:
        sys.exit(f"no product matches {args.only!r}; there are:\n" + "\n".join(listed))
    if start > BUSY:
        print(f"load average {start:.1f}: rows of two threads say nothing while other programs run", file=sys.stderr)
    for name in [name for name in os.environ if name.startswith("OPENBLAS_")]:
        del os.environ[name]
    peers = {int(threads): Peer(args.python, __file__, threads) for threads in {work[2] for work in works}}
    version = next(iter(peers.values())).version
    if not version:
        sys.exit("NumPy's process has ended, see above; --python names a Python that has NumPy with OpenBLAS")
    rows = []
    for at, (dtype, shape, threads) in enumerate(works):
        if sys.stderr.isatty():
            print(f"\r{at + 1}/{len(works)} {dtype} {shape:30}", end="", file=sys.stderr, flush=True)
        rows.append(measure(exe, peers, dtype, shape, int(threads), args))
    if sys.stderr.isatty():
        print(file=sys.stderr)
    versions = f"`gemm` {crate_version()}, {version} with its kernels for {core(args.python)}"
    finish(args, table(rows, versions, args, (start, os.getloadavg()[0])), rows, MARKS)


if __name__ == "__main__":
    main()
