#!/usr/bin/env python3
"""Compare the example programs with the PyTorch programs that they are ports of.

    python scripts/compare_ports.py --torch-python VENV/bin/python
    python scripts/compare_ports.py --torch-python VENV/bin/python --write docs/src/from_pytorch.md

Each of `python/examples/NAME.py` has its PyTorch form beside it, `NAME_torch.py`. Both run as processes of their own with the same
options; the Remat form a second time within half of the first run's peak, or within the smallest share in steps of ten percent
that it can be run in. The table has: lines of the PyTorch form; how many
of them the port changes (inserted, deleted or replaced, of which a replacement counts the longer side); the largest resident set of
each process; the peak of Remat's device; the median time of a step, without the first tenth; the mean loss of the last tenth of
the steps; and a figure of the test data. `--write` puts the table between the markers of the page.

To be run on a machine that does nothing else: PyTorch's threads spin while they wait, and beside other programs a step takes ten
times as long. The Remat runs use the interpreter that runs this script, or `--remat-python`, with `python/` on its path.
"""
import argparse
import difflib
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "python" / "examples"
STEPS = {"mnist": 282, "char_gpt": 120, "unet": 200, "vae": 284}
FIGURES = {"mnist": "test_accuracy", "char_gpt": "test_loss", "unet": "test_dice", "vae": "test_loss"}
MARKERS = ("<!-- ports-table -->", "<!-- /ports-table -->")
MIB = 1 << 20


def lines_changed(a, b):
    """Lines of two texts that differ."""
    codes = difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return sum(max(j - i, m - k) for tag, i, j, k, m in codes if tag != "equal")


def run(python, program, options, out, env, may_lack=False):
    """What a program wrote, and the largest resident set of its process in bytes; None if it lacked memory, and may."""
    command = [python, str(program), *options, "--json", str(out)]
    child = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    error = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode and may_lack and "BudgetError" in error:
        return None
    if child.returncode:
        sys.exit(f"{program.name} {' '.join(options)} ended with {child.returncode}:\n{error[-2000:]}")
    return json.loads(out.read_text()), usage.ru_maxrss * 1024


def figures(log):
    tenth = max(len(log["losses"]) // 10, 1)
    return statistics.median(log["step_ms"][tenth:] or log["step_ms"]), statistics.fmean(log["losses"][-tenth:])


def compare(name, args, folder):
    """The row of an example."""
    port = EXAMPLES / f"{name}.py"
    form = EXAMPLES / f"{name}_torch.py"
    a, b = form.read_text().splitlines(), port.read_text().splitlines()
    row = {"name": name, "lines": len(a), "changed": lines_changed(a, b)}
    steps = args.steps or STEPS[name]
    options = ["--steps", str(steps), "--seed", str(args.seed), "--threads", str(args.threads)]
    if name in ("mnist", "unet", "vae"):
        options += ["--epochs", "1000"]
    if name in ("char_gpt", "vae"):
        options += ["--sample", "0"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": str(args.threads)}
    print(f"{name}: {steps} steps", file=sys.stderr)
    free, rss = run(args.remat_python, port, options, folder / "free.json", env)
    row["remat"] = (*figures(free), free[FIGURES[name]], rss, free["peak_bytes"])
    for share in range(args.budget, 100, 10):
        budget = free["peak_bytes"] * share // 100
        less = run(args.remat_python, port, [*options, "--memory-budget", f"{budget}B"], folder / "less.json", env, may_lack=True)
        if less is not None:
            break
    else:
        sys.exit(f"{name} runs within no share of its peak")
    less, less_rss = less
    row["budget"] = (*figures(less), less[FIGURES[name]], less_rss, less["peak_bytes"])
    row["share"], row["is_same"] = share, free["losses"] == less["losses"]
    if less["peak_bytes"] > budget:
        sys.exit(f"{name}: the peak is {less['peak_bytes']} within a budget of {budget}")
    if args.torch_python:
        log, rss = run(args.torch_python, form, options, folder / "torch.json", env)
        row["torch"] = (*figures(log), log[FIGURES[name]], rss, None)
    return row


def table(rows):
    text = [
        "| program | lines | changed | | step, ms | loss | test | process, MiB | device, MiB |",
        "|---|--:|--:|---|--:|--:|--:|--:|--:|",
    ]
    for r in rows:
        names = {"torch": "PyTorch", "remat": "Remat", "budget": f"Remat, {r['share']} %"}
        head = f"| `{r['name']}.py` | {r['lines']} | {r['changed']} ({100 * r['changed'] / r['lines']:.1f} %) |"
        for kind in ("torch", "remat", "budget"):
            if kind not in r:
                continue
            ms, loss, test, rss, peak = r[kind]
            device = "" if peak is None else f"{peak / MIB:.1f}"
            text.append(f"{head} {names[kind]} | {ms:.1f} | {loss:.4f} | {test:.4f} | {rss / MIB:.0f} | {device} |")
            head = "| | | |"
    return "\n".join(text)


def written(page, text):
    """The page with the text between its markers."""
    old = page.read_text()
    begin, end = (old.find(m) for m in MARKERS)
    if begin < 0 or end < begin:
        sys.exit(f"{page} has no {MARKERS[0]} and {MARKERS[1]}")
    page.write_text(f"{old[: begin + len(MARKERS[0])]}\n{text}\n{old[end:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[[], *STEPS], help="which examples; all of them if none is named")
    parser.add_argument("--torch-python", help="an interpreter that has PyTorch; without it only Remat runs")
    parser.add_argument("--remat-python", default=sys.executable, help="the interpreter for Remat")
    parser.add_argument("--steps", type=int, help="of each run; else as many as each example needs to learn something")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--budget", type=int, default=50, help="percent of the peak, of the second run, to begin with")
    parser.add_argument("--write", type=pathlib.Path, help="the page whose table this is")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [compare(name, args, pathlib.Path(folder)) for name in args.names or STEPS]
    text = table(rows)
    same = [r["name"] for r in rows if not r["is_same"]]
    note = (
        f"{args.threads} threads of {platform.machine()}, {os.cpu_count()} cores. "
        + ("The budget changes no loss." if not same else f"The budget changes losses of {', '.join(same)}.")
    )
    print(text, note, sep="\n\n")
    if args.write:
        written(args.write, f"{text}\n\n{note}")


if __name__ == "__main__":
    main()
