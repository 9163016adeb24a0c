"""The example trains as the command does: `REMAT_COMMAND` names the command to compare with."""
import json
import os
import pathlib
import struct
import subprocess
import sys

import pytest

EXAMPLE = pathlib.Path(__file__).parents[1] / "examples" / "digits.py"


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def bits(losses):
    return [struct.pack("<f", v).hex() for v in losses]


def example(tmp_path, *options):
    out = tmp_path / "python.json"
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--json", str(out), "--threads", "2", *options], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return lines(out)


def test_the_budget_changes_no_bit(tmp_path):
    few = ("--steps", "3", "--batch-size", "64")
    free, half = (example(tmp_path, "--memory-budget", b, *few)[-1] for b in ("unlimited", "50%"))
    assert bits(free["losses"]) == bits(half["losses"]) and free["weights_sha256"] == half["weights_sha256"]
    assert half["budget_bytes"] == half["unbudgeted_peak_bytes"] // 2 >= half["peak_bytes"]
    assert half["recomputed_ops"] > 0 and free["budget_bytes"] is None
    other = example(tmp_path, *few, "--seed", "2")[-1]
    assert bits(other["losses"]) != bits(free["losses"])


@pytest.mark.skipif("REMAT_COMMAND" not in os.environ, reason="REMAT_COMMAND names no command `remat` to compare with")
def test_losses_and_weights_are_the_commands(tmp_path):
    options = ("--memory-budget", "50%", "--steps", "4", "--batch-size", "64", "--seed", "5")
    mine, out = example(tmp_path, *options), tmp_path / "command.json"
    command = [os.environ["REMAT_COMMAND"], "train", "digits", "--json", str(out), "--threads", "2", *options]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    theirs = lines(out)
    steps = [[line["loss"] for line in all if "step" in line] for all in (mine, theirs)]
    assert bits(steps[0]) == bits(steps[1]) and len(steps[0]) == 4
    for name in ("weights_sha256", "test_accuracy"):
        assert mine[-1][name] == theirs[-1][name], name
