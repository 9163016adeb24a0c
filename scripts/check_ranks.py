#!/usr/bin/env python3
"""Checks training on several ranks with the command itself, over MPI on this machine, and says what it found.

    cargo build --release -p remat-cli --features mpi
    python3 scripts/check_ranks.py                        # all checks
    python3 scripts/check_ranks.py --only kills --kills 5

bits    `train digits` and `train chars` on 2 and 4 ranks, eager and compiled, under half of the peak (chars on 4 with divided state and
        gradients): two runs have the same weights,
        eager and compiled have the same weights, and no rank's peak is above its budget.
state   with --shard-state each of two ranks has at most 0.55 of the optimiser's state, and with --shard-gradients of the gradients,
        and the same weights; where gradients are limited by their norm, that of parts may change the last bits.
saving  a run with divided state that stopped goes on from its checkpoint with the same weights as if it had not, on one, two and four
        ranks, with divided and with whole state.
kills   `kill -9` of one rank at random moments, every second time with divided state: all processes end within a limit, and the run
        goes on from its checkpoint.
sum     `bench allreduce` on two ranks: the bandwidth beside that of MPI_Allreduce.

Needs mpirun. Exits with 1 if a check fails.
"""

import argparse
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# seconds within which all processes must have ended
END_LIMIT = 20
FAILED = []


def check(ok, what):
    print(f"{'ok    ' if ok else 'FAILED'} {what}", flush=True)
    if not ok:
        FAILED.append(what)


class Ranks:
    def __init__(self, remat):
        self.remat = str(remat)
        self.mpirun = ["mpirun", "--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])

    def command(self, ranks, *arguments):
        return [*self.mpirun, "-n", str(ranks), self.remat, *arguments]

    def train(self, ranks, task, *arguments):
        """The results of a run, or None if it fails."""
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "run.json"
            command = self.command(ranks, "train", task, "--threads", "1", "--json", str(out), *arguments)
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode != 0:
                print(run.stderr[-2000:], file=sys.stderr)
                return None
            return json.loads(out.read_text().splitlines()[-1])


def check_bits(ranks, steps):
    # on 4 ranks a rank's batch of chars is so small that half of its peak is less than whole weights, gradients and state take
    thin = ["--shard-state", "--shard-gradients"]
    for task, few in [("digits", []), ("chars", thin)]:
        for n in [2, 4]:
            divided = few if n == 4 else []
            seen = {}
            for mode in [[], ["--compiled"]]:
                for turn in range(2):
                    run = ranks.train(n, task, "--memory-budget", "50%", "--steps", str(steps[task]), *divided, *mode)
                    name = f"{task} on {n} ranks, {'compiled' if mode else 'eager'}, turn {turn + 1}"
                    if run is None:
                        check(False, name)
                        continue
                    peaks = [r["peak_bytes"] for r in run["ranks"]]
                    budgets = {r["budget_bytes"] for r in run["ranks"]}
                    check(budgets == {run["budget_bytes"]}, f"{name}: one budget of all ranks: {budgets}")
                    check(max(peaks) <= run["budget_bytes"], f"{name}: peaks {peaks} within {run['budget_bytes']}")
                    seen.setdefault(run["weights_sha256"], []).append(name)
            check(len(seen) == 1, f"{task} on {n} ranks: one result of all runs: {[h[:12] for h in seen]}")


# the same loss for those who read it, after sums in another order
LOSS_PART = 1e-3


def check_state(ranks, steps):
    for task in ["digits", "chars"]:
        run = lambda *options: ranks.train(2, task, "--steps", str(steps[task]), *options)
        whole = run()
        part, compiled = run("--shard-state"), run("--shard-state", "--compiled")
        thin = [run("--shard-state", "--shard-gradients", *mode) for mode in [[], [], ["--compiled"]]]
        if None in (whole, part, compiled, *thin):
            check(False, f"{task} with divided state")
            continue
        for key, of, runs in [("optimizer_state", whole, [part, *thin]), ("gradient", part, thin)]:
            all_bytes = of["ranks"][0][f"{key}_bytes"]
            parts = [r[f"{key}_bytes"] for one in runs for r in one["ranks"]]
            ok = 0 < max(parts) <= 0.55 * all_bytes
            check(ok, f"{task}: {max(parts)} bytes of {key.replace('_', ' ')} on each of two ranks, {all_bytes} undivided")
        peaks = [r["ranks"][0]["peak_bytes"] for r in [whole, part, thin[0]]]
        check(True, f"{task}: peaks of {peaks} bytes with nothing, state, and state and gradients divided")
        same = whole["weights_sha256"] == part["weights_sha256"] == compiled["weights_sha256"]
        check(same, f"{task}: the same weights with whole and with divided state, eager and compiled")
        hashes = {r["weights_sha256"] for r in thin}
        check(len(hashes) == 1, f"{task}: the same weights with divided gradients each time, eager and compiled")
        if task == "digits":
            check(hashes == {whole["weights_sha256"]}, f"{task}: the same weights with whole and with divided gradients")
        else:
            losses = [r["losses"][-1] for r in [whole, thin[0]]]
            ok = abs(losses[1] - losses[0]) <= LOSS_PART * losses[0]
            check(ok, f"{task}: losses of {losses} with whole and with divided gradients, which are limited by their norm")


def check_saving(ranks):
    divided = ["--shard-state", "--shard-gradients"]
    train = lambda n, steps, *options: ranks.train(n, "digits", "--batch-size", "400", "--steps", str(steps), *options)
    for options in [divided[:1], divided]:
        with tempfile.TemporaryDirectory() as folder:
            kept = pathlib.Path(folder) / "kept"
            whole, half = train(2, 40, *options), train(2, 20, *options, "--save", str(kept))
            if None in (whole, half):
                check(False, f"a run with {' '.join(options)}")
                continue
            again = {n: train(n, 40, "--resume", str(kept), *options) for n in [1, 2, 4]}
            undivided = {n: train(n, 40, "--resume", str(kept)) for n in [1, 2, 4]}
            if None in [*again.values(), *undivided.values()]:
                check(False, f"the checkpoint of a run with {' '.join(options)} does not resume")
                continue
            same = again[2]["weights_sha256"] == whole["weights_sha256"]
            check(same, f"{' '.join(options)}: a run that stopped has the weights of one that did not")
            for n in again:
                ok = again[n]["weights_sha256"] == undivided[n]["weights_sha256"]
                check(ok and again[n]["first_step"] == 20, f"{' '.join(options)}: it goes on on {n} ranks, divided and undivided")


def pids_of(launcher):
    """The processes that mpirun started."""
    out = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(launcher)], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in out.splitlines() if " train " in line]


def runs(pid):
    """Whether a process is there and has not ended; one that nobody waits for stays as a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def check_kills(ranks, kills, seed):
    draw = random.Random(seed)
    slowest, resumed, early = 0.0, 0, 0
    for i in range(kills):
        with tempfile.TemporaryDirectory() as folder:
            kept = pathlib.Path(folder) / "kept"
            divided = ["--shard-state"] if i % 2 else []
            train = ["train", "digits", "--threads", "1", "--epochs", "2", "--batch-size", "500", "--save", str(kept), *divided]
            log = open(pathlib.Path(folder) / "log", "w+")
            run = subprocess.Popen(ranks.command(2, *train), stdout=log, stderr=log)
            time.sleep(draw.uniform(0.3, 6.0))
            found = pids_of(run.pid)
            if not found:
                early += 1
                run.wait()
                continue
            os.kill(draw.choice(found), signal.SIGKILL)
            start = time.monotonic()
            try:
                status = run.wait(timeout=END_LIMIT)
            except subprocess.TimeoutExpired:
                run.kill()
                check(False, f"kill {i}: processes are still there after {END_LIMIT} s")
                continue
            # the launcher may end before the processes that it has killed
            while (left := [p for p in found if runs(p)]) and time.monotonic() - start < END_LIMIT:
                time.sleep(0.05)
            slowest = max(slowest, time.monotonic() - start)
            if status == 0 or left:
                check(False, f"kill {i}: exit status {status}, left {left}")
            if (kept / "checkpoint.safetensors").exists():
                again = ranks.train(2, "digits", "--resume", str(kept), "--steps", "60", *divided)
                resumed += 1
                if again is None:
                    check(False, f"kill {i}: the checkpoint does not resume")
    check(True, f"{kills} kills: all ended, the slowest in {slowest:.1f} s; {resumed} had a checkpoint, and went on; {early} runs had ended")


def check_sum(ranks):
    # a call costs 5 us before it moves anything, in which ranks agree: below this size that is what is measured
    for size in ["256KiB", "1MiB", "16MiB", "64MiB"]:
        command = ranks.command(2, "bench", f"allreduce:{size}", "--seconds", "3")
        run = subprocess.run(command, capture_output=True, text=True)
        ratio = re.search(r"ratio ([0-9.]+)", run.stdout)
        check(ratio is not None and float(ratio[1]) >= 0.9, run.stdout.strip() or run.stderr.strip()[-300:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--remat", type=pathlib.Path, default=ROOT / "target/release/remat", help="the command, built with --features mpi")
    parser.add_argument("--only", choices=["bits", "state", "saving", "kills", "sum"], action="append", help="these checks alone")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1, help="of the moments of kills")
    args = parser.parse_args()
    if not args.remat.exists():
        parser.error(f"{args.remat} is not there: cargo build --release -p remat-cli --features mpi")
    ranks, steps = Ranks(args.remat), {"digits": 60, "chars": 20}
    for name, run in [
        ("bits", lambda: check_bits(ranks, steps)),
        ("state", lambda: check_state(ranks, steps)),
        ("saving", lambda: check_saving(ranks)),
        ("sum", lambda: check_sum(ranks)),
        ("kills", lambda: check_kills(ranks, args.kills, args.seed)),
    ]:
        if not args.only or name in args.only:
            run()
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
