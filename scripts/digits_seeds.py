#!/usr/bin/env python3
"""What `remat train digits` reaches from one seed to the next.

    python3 scripts/digits_seeds.py                                    # 20 seeds, a Markdown table
    python3 scripts/digits_seeds.py --seeds 7,8 --threads 2 --args "--epochs 12 --learning-rate 0.1"
    python3 scripts/digits_seeds.py --keep results --write docs/src/command-line.md

With `--keep` each seed's results stay in a folder, and what is there is not trained again: a run that was stopped goes on.
Builds the command `remat` and trains with each seed, to the end. Exits with 1 if a seed stays below `--least`.
"""

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

from bench_conv import build, processor, write

MARKS = ("<!-- seeds-table -->\n", "<!-- /seeds-table -->\n")


def accuracy(exe, seed, threads, more, keep):
    """(accuracy of the test, seconds)"""
    with tempfile.TemporaryDirectory() as folder:
        kept = (keep or pathlib.Path(folder)) / f"seed-{seed}.json"
        if not kept.exists():
            out = pathlib.Path(folder) / "run.json"
            command = [exe, "train", "digits", "--seed", str(seed), "--threads", str(threads), "--json", str(out), *more]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            kept.write_text(out.read_text().splitlines()[-1])
        results = json.loads(kept.read_text())
        if results["threads"] != threads:
            sys.exit(f"{kept} is of {results['threads']} threads")
        return results["test_accuracy"], results["seconds"]


def options():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--remat", help="the command, if it is built already")
    ap.add_argument("--seeds", type=lambda text: [int(s) for s in text.split(",")], default=list(range(1, 21)))
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--least", type=float, default=0.98, help="what every seed must reach")
    ap.add_argument("--args", type=shlex.split, default=[], help="more arguments of the run")
    ap.add_argument("--keep", type=pathlib.Path, help="a folder for each seed's results")
    ap.add_argument("--write", type=pathlib.Path, help="a Markdown file with the markers of the table")
    return ap.parse_args()


def main():
    args = options()
    exe = args.remat or build()
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
    reached = {}
    for seed in args.seeds:
        reached[seed], seconds = accuracy(exe, seed, args.threads, args.args, args.keep)
        print(f"seed {seed}: {100 * reached[seed]:.1f} % in {seconds:.0f} s", file=sys.stderr, flush=True)
    values = list(reached.values())
    rows = "".join(f"| {seed} | {100 * value:.1f} % |\n" for seed, value in reached.items())
    text = (f"| seed | test accuracy |\n|--:|--:|\n{rows}\nLeast {100 * min(values):.1f} %, median "
            f"{100 * statistics.median(values):.1f} %, most {100 * max(values):.1f} %, with {args.threads} threads on "
            f"{processor()}.\n")
    print(text)
    if args.write:
        write(args.write, text, MARKS)
    sys.exit(min(values) < args.least)


if __name__ == "__main__":
    main()
