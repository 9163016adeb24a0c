#!/usr/bin/env python3
"""Checks what `remat scaling` predicts against what ranks take on this machine, over MPI, and prints a table.

    cargo build --release -p remat-cli --features mpi
    python3 scripts/check_scaling.py                      # all checks
    python3 scripts/check_scaling.py --only two --turns 5
    python3 scripts/check_scaling.py --write docs/src/scaling.md

two       `mpirun -n 2 remat scaling WORK --check` for several steps: the links are measured, a step is predicted, and measured in turns
          with what it is predicted from. The median error of some turns is within --bound.
four      4 ranks, predicted from the profile and the links that 2 ranks have found, with `--processors`, and measured. Where 4 ranks
          share fewer processors a prediction that knows them only by number is rough: the error is printed, and has no bound.
train     `remat train digits` and `chars` on 2 ranks, the median of their steps beside the prediction: this loop reads losses and asks
          for signals, which the model leaves out. The error is printed, and has no bound.
page      the tables of the page are those that the command prints from the profile in the repository (no MPI needed).

--overlap says which prediction has the bound: `off` where what reductions cost is taken from the pass (ranks that have a processor each share it
between computing and reducing), `on` where they cost the pass nothing (a further processor, or a network card that adds up).
`--write` puts the tables between the markers of a page. Exits with 1 if a check fails.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROFILE = ROOT / "crates/cli/data/scaling/resnet18.json"
# batches for which a step is short: of a long one no part is free of what other programs do
WORKS = [("train:mlp", []), ("train:digits", ["--batch", "16"]), ("train:resnet18", ["--batch", "1"]), ("train:chars", ["--batch", "1"])]
PAGE = [
    ("10gbe", []),
    ("100g-infiniband", []),
    ("100g-infiniband-faster", ["--faster", "100", "--reduction", "500"]),
]
FAILED = []


def check(ok, what):
    print(f"{'ok    ' if ok else 'FAILED'} {what}", flush=True)
    if not ok:
        FAILED.append(what)


class Command:
    def __init__(self, remat):
        self.remat = str(remat)
        self.mpirun = ["mpirun", "--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])

    def run(self, ranks, *arguments):
        """The last line of figures, or None if the command fails."""
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "figures.json"
            launcher = [*self.mpirun, "-n", str(ranks)] if ranks > 1 else []
            command = [*launcher, self.remat, *arguments, "--json", str(out)]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode != 0:
                print(run.stderr[-2000:], file=sys.stderr)
                return None
            text = out.read_text()
            try:
                return json.loads(text)
            except json.JSONDecodeError:
                return json.loads(text.splitlines()[-1])


def predicted(figures, overlap):
    return figures["predicted_overlapped" if overlap == "on" else "predicted"]


def check_two(command, args, kept):
    rows = []
    for work, more in WORKS:
        runs = []
        for _ in range(args.turns):
            run = command.run(2, "scaling", work, "--check", "--threads", "1", "--seconds", str(args.seconds), *more, "--save-profile", str(kept / f"{work}.json"), "--save-network", str(kept / "network.json"))
            if run is not None:
                runs.append(run)
        if not runs:
            check(False, f"{work} on 2 ranks")
            continue
        errors = [predicted(r, args.overlap)["error"] for r in runs]
        of = lambda f: statistics.median(f(r) for r in runs)
        alone, measured, said = of(lambda r: r["alone_ms"]), of(lambda r: r["measured_ms"]), of(lambda r: predicted(r, args.overlap)["step_ms"])
        error = statistics.median(errors)
        both = [statistics.median(predicted(r, o)["error"] for r in runs) for o in ("off", "on")]
        rows.append((work, runs[0]["batch"], alone, measured, said, *both, min(errors), max(errors)))
        r = runs[-1]
        links = f"latency {r['latency_us']:.2f} us, {r['bandwidth_gb_s']:.2f} GB/s, adding up {r['reduction_gb_s']:.2f} GB/s"
        check(abs(error) <= args.bound, f"{work} on 2 ranks: predicted {said:.2f} ms, measured {measured:.2f} ms, error {100 * error:+.1f} % ({100 * min(errors):+.1f} to {100 * max(errors):+.1f}); {links}")
    return rows


def check_four(command, args, kept):
    rows = []
    for work, more in WORKS:
        profile, network = kept / f"{work}.json", kept / "network.json"
        if not profile.exists():
            continue
        cores = len(os.sched_getaffinity(0))
        given = ["--network", str(network), "--ranks-per-machine", "4", "--ranks", "4", "--overlap", args.overlap, "--processors", str(cores)]
        said = command.run(1, "scaling", "--profile", str(profile), *given)
        run = command.run(4, "scaling", work, "--check", "--threads", "1", "--seconds", str(args.seconds), *more)
        if said is None or run is None:
            check(False, f"{work} on 4 ranks")
            continue
        far, near, measured = said["steps"][0]["step_ms"], predicted(run, args.overlap)["step_ms"], run["measured_ms"]
        rows.append((work, run["batch"], far, near, measured))
        print(f"       {work} on 4 ranks of {cores} processors: from 2 ranks {far:.2f} ms ({100 * (far / measured - 1):+.0f} %), from 4 ranks {near:.2f} ms ({100 * (near / measured - 1):+.0f} %), measured {measured:.2f} ms", flush=True)
    return rows


def check_train(command, args, kept):
    rows = []
    for task, batch in [("digits", 32), ("chars", 2)]:
        profile = kept / f"train:{task}.json"
        if not profile.exists():
            continue
        given = ["--network", str(kept / "network.json"), "--ranks-per-machine", "2", "--ranks", "2", "--overlap", args.overlap]
        said = command.run(1, "scaling", "--profile", str(profile), "--batch", str(batch // 2), *given)
        run = command.run(2, "train", task, "--threads", "1", "--steps", "200", "--batch-size", str(batch))
        if said is None or run is None:
            check(False, f"train {task} on 2 ranks")
            continue
        step, measured = said["steps"][0]["step_ms"], run["step_ms_median"]
        rows.append((task, batch, step, measured))
        print(f"       train {task} on 2 ranks: predicted {step:.2f} ms, measured {measured:.2f} ms, error {100 * (step / measured - 1):+.1f} %", flush=True)
    return rows


def table(heads, rows):
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join(["---"] + ["--:"] * (len(heads) - 1)) + "|"]
    return "\n".join(lines + ["| " + " | ".join(r) + " |" for r in rows])


def page_table(command, name, more):
    network = name.removesuffix("-faster")
    figures = command.run(1, "scaling", "--profile", str(PROFILE), "--network", network, "--all-reduce", "remat,cheapest", *more)
    if figures is None:
        return None
    steps = {(s["ranks"], s["all_reduce"], s["overlaps"]): s for s in figures["steps"]}
    rows = []
    for ranks in sorted({s["ranks"] for s in figures["steps"]}):
        cells = [str(ranks)]
        for how in ["remat", "cheapest"]:
            off, on = steps[ranks, how, False], steps[ranks, how, True]
            cells += [f"{100 * off['efficiency']:.1f} %", f"{100 * on['efficiency']:.1f} %", f"{on['step_ms']:.1f}", on["bound"].replace("_", " ")]
        rows.append(cells)
    heads = ["ranks"] + [f"{how}: {what}" for how in ["remat", "cheapest"] for what in ["off", "on", "ms", "bound by"]]
    return table(heads, rows)


def put(path, name, text):
    page = path.read_text()
    begin, end = f"<!-- {name}-table -->", f"<!-- /{name}-table -->"
    before, rest = page.split(begin, 1)
    _, after = rest.split(end, 1)
    path.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def on_page(path, name):
    begin, end = f"<!-- {name}-table -->", f"<!-- /{name}-table -->"
    return path.read_text().split(begin, 1)[1].split(end, 1)[0].strip()


def check_page(command, args):
    for name, more in PAGE:
        text = page_table(command, name, more)
        if text is None:
            check(False, f"the table of {name}")
        elif args.write:
            put(args.write, name, text)
        else:
            check(text == on_page(ROOT / "docs/src/scaling.md", name), f"the page has the table of {name}")


def write_measured(args, two, four, train):
    ms = lambda v: f"{v:.2f}"
    percent = lambda v: f"{100 * v:+.1f} %"
    if two:
        rows = [[f"`{w}`", f"{b:.0f}", ms(a), ms(m), ms(s), percent(off), percent(on), f"{percent(lo)} to {percent(hi)}"] for w, b, a, m, s, off, on, lo, hi in two]
        put(args.write, "two", table(["step", "batch of a rank", "by itself, ms", "measured, ms", f"predicted, {args.overlap}, ms", "error, off", "error, on", f"range, {args.overlap}"], rows))
    if four:
        rows = [[f"`{w}`", f"{b:.0f}", ms(f), percent(f / m - 1), ms(n), percent(n / m - 1), ms(m)] for w, b, f, n, m in four]
        put(args.write, "four", table(["step", "batch of a rank", "from 2 ranks, ms", "error", "from 4 ranks, ms", "error", "measured, ms"], rows))
    if train:
        rows = [[f"`remat train {t}`", str(b), ms(s), ms(m), percent(s / m - 1)] for t, b, s, m in train]
        put(args.write, "train", table(["run", "batch of both", "predicted, ms", "measured, ms", "error"], rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remat", type=pathlib.Path, default=ROOT / "target/release/remat", help="the command, built with --features mpi")
    parser.add_argument("--only", choices=["two", "four", "train", "page"], action="append", help="these checks alone; four and train take what two has found")
    parser.add_argument("--turns", type=int, default=5, help="runs of which the median counts")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each run")
    parser.add_argument("--bound", type=float, default=0.15, help="the largest error on 2 ranks, as a share")
    parser.add_argument("--overlap", choices=["on", "off"], default="off", help="whether reductions go on beside the backward pass")
    parser.add_argument("--write", type=pathlib.Path, help="the page to put the tables into")
    args = parser.parse_args()
    if not args.remat.exists():
        parser.error(f"{args.remat} is not there: cargo build --release -p remat-cli --features mpi")
    wanted = lambda name: not args.only or name in args.only
    command = Command(args.remat)
    two = four = train = []
    with tempfile.TemporaryDirectory() as folder:
        kept = pathlib.Path(folder)
        if wanted("two") or wanted("four") or wanted("train"):
            two = check_two(command, args, kept)
        if wanted("four"):
            four = check_four(command, args, kept)
        if wanted("train"):
            train = check_train(command, args, kept)
    if wanted("page"):
        check_page(command, args)
    if args.write:
        write_measured(args, two, four, train)
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
