"""The example programs that have a PyTorch form: they run, a budget changes no loss, and few lines differ from that form."""
import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

PYTHON = pathlib.Path(__file__).parents[1]
SCRIPT = PYTHON.parent / "scripts" / "compare_ports.py"
SMALL = {
    "mnist": ["--batch-size", "64"],
    "char_gpt": ["--batch-size", "16", "--block-size", "64", "--n-embd", "16", "--n-layer", "2", "--eval-iters", "1", "--sample", "8"],
    "unet": ["--batch-size", "2", "--size", "32", "--width", "4"],
    "vae": ["--batch-size", "64", "--sample", "1"],
}
# of the peak; a convolution of mnist.py needs more than the other programs' operators
SHARE = {"mnist": 0.9, "char_gpt": 0.8, "unet": 0.8, "vae": 0.8}
MOST_CHANGED = 0.15

pytest.importorskip("numpy")


def run(name, tmp_path, *options):
    out = tmp_path / "out.json"
    command = [sys.executable, str(PYTHON / "examples" / f"{name}.py"), "--steps", "4", "--json", str(out), *SMALL[name], *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())


@pytest.mark.parametrize("name", SMALL)
def test_a_budget_changes_no_loss(name, tmp_path):
    free = run(name, tmp_path)
    assert len(free["losses"]) == len(free["step_ms"]) == 4 and free["losses"][0] != free["losses"][-1]
    budget = int(SHARE[name] * free["peak_bytes"])
    less = run(name, tmp_path, "--memory-budget", f"{budget}B")
    assert less["losses"] == free["losses"] and less["peak_bytes"] <= budget
    assert run(name, tmp_path, "--seed", "2")["losses"] != free["losses"]


@pytest.mark.parametrize("name", SMALL)
def test_few_lines_differ_from_pytorchs(name):
    if not SCRIPT.exists():
        pytest.skip("not in a clone of the repository")
    spec = importlib.util.spec_from_file_location("compare_ports", SCRIPT)
    compare = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(compare)
    form, port = ((PYTHON / "examples" / f"{n}.py").read_text().splitlines() for n in (f"{name}_torch", name))
    assert 0 < compare.lines_changed(form, port) < MOST_CHANGED * len(form)
