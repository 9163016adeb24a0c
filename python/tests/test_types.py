"""What type checkers and readers are told: stubs, docstrings, examples."""
import doctest
import importlib.util
import inspect
import os
import pathlib
import subprocess
import sys

import pytest

import remat

PACKAGE = pathlib.Path(remat.__file__).parent
MODULES = [
    remat, remat.nn, remat.optim, remat.data, remat.nn.init, remat.nn.utils, remat.array_api, remat.array_api.linalg, remat.fft,
    remat.complex_pairs,
]

# a program as users write it, every line of which is checked
PROGRAM = '''
from typing import Tuple

import remat
from remat import array_api as xp
from remat import nn, optim

device: remat.Device = remat.Device(budget="64MiB", threads=1)
generator = remat.Generator(1)


def norm(x: remat.Tensor) -> remat.Tensor:
    y = (x - x.mean(axis=0, keepdims=True)) / x.std(axis=0)
    y += 1
    y[0, ..., ::-1] = 2.0
    return y


x = remat.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
shape: Tuple[int, ...] = norm(x).shape
of: remat.dtype = x.dtype
number: float = float(x[0, 0])
best: remat.Tensor = (x @ x.mT > 3).any(dim=1)
peak: int = device.peak_bytes
total: remat.Tensor = xp.sum(x, axis=0)
pairs: remat.Tensor = remat.fft.rfft(x)
report: remat.MemoryReport = device.report()
key: remat.Tensor = generator.key(device)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)

    def forward(self, x: remat.Tensor) -> remat.Tensor:
        return remat.relu(self.first(x))


net = Net()
optimizer = optim.AdamW(net, lr=1e-3)
loss = nn.cross_entropy(net(x), remat.tensor([0, 1]))
loss.backward()
optimizer.step()
'''

# each has one mistake
MISTAKES = [
    "remat.Device(bugdet=1)", "remat.tensor([1.0]).shap", "x: str = remat.ones(2)", "remat.ones(2).sum(axes=1)",
    "remat.array_api.sum()", "remat.ones(1).to_device(3)", "n: str = remat.ones(1).ndim",
]

needs_mypy = pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")


def mypy(tmp_path, text):
    program = tmp_path / "program.py"
    program.write_text(text)
    environment = {**os.environ, "MYPYPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache"), str(program)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)


@needs_mypy
def test_a_program_passes_strict_type_checks(tmp_path):
    done = mypy(tmp_path, PROGRAM)
    assert done.returncode == 0, done.stdout


@needs_mypy
def test_mistakes_are_found(tmp_path):
    done = mypy(tmp_path, "import remat\n\n" + "\n".join(MISTAKES) + "\n")
    for i, line in enumerate(MISTAKES):
        assert f"program.py:{i + 3}: error" in done.stdout, (line, done.stdout)


@needs_mypy
def test_stubs_are_of_what_is_compiled():
    environment = {**os.environ, "MYPYPATH": str(PACKAGE.parent), "PYTHONPATH": str(PACKAGE.parent)}
    command = [sys.executable, "-m", "mypy.stubtest", "remat._remat", "--ignore-disjoint-bases"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_have_every_compiled_name():
    """Without mypy: that each public name of the compiled module stands in the stubs."""
    stubs = (PACKAGE / "_remat.pyi").read_text()
    for name, thing in vars(remat._remat).items():
        if name.startswith("__"):
            continue
        assert any(f"\n{word}{name}" in stubs for word in ("class ", "def ", "")), name
        if inspect.isclass(thing):
            body = stubs.split(f"\nclass {name}", 1)[1].split("\nclass ", 1)[0]
            for method in vars(thing):
                if not method.startswith("__"):
                    assert f"    def {method}(" in body or f"    {method}:" in body, f"{name}.{method}"


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__)
def test_what_a_module_lists_is_all_that_is_public(module):
    listed = getattr(module, "__all__", None)
    if listed is None:
        return  # all names of its own
    assert len(listed) == len(set(listed)) or module is remat, "a name stands twice"
    for name in listed:
        assert hasattr(module, name), name
    if module in (remat, remat.nn):  # of the others' names some are imports
        names = {n for n, thing in vars(module).items() if not n.startswith("_") and not inspect.ismodule(thing)}
        assert names <= set(listed), f"missing in __all__: {sorted(names - set(listed))}"


def public():
    """Every function and class that users see, by its first name."""
    seen = {}
    for module in MODULES:
        names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
        for name in names:
            thing = getattr(module, name)
            if inspect.isclass(thing) and str(thing.__module__).startswith("remat") or inspect.isroutine(thing):
                seen.setdefault(id(thing), (f"{module.__name__}.{name}", thing))
    return list(seen.values())


def test_everything_public_has_an_example():
    without = []
    for name, thing in public():
        if ">>>" not in (inspect.getdoc(thing) or ""):
            without.append(name)
    assert not without, f"{len(without)} without an example: {', '.join(without)}"


def test_examples_of_what_is_compiled_run():
    """pytest runs those of Python files; these are of compiled classes and their methods."""
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    ran = 0
    for thing in (remat.Tensor, remat.nn.Parameter, remat.nn.KvCache, remat.Device, remat.Generator, remat.dtype):
        texts = [(thing.__name__, thing.__doc__)]
        texts += [(f"{thing.__name__}.{n}", getattr(f, "__doc__", None)) for n, f in vars(thing).items() if not inspect.isfunction(f)]
        for name, text in texts:
            if not isinstance(text, str) or ">>>" not in text:
                continue
            test = doctest.DocTestParser().get_doctest(text, {}, name, None, 0)
            result = runner.run(test)
            assert result.failed == 0, name
            ran += 1
    for f in (remat.promote_types, remat.is_grad_enabled):
        result = runner.run(doctest.DocTestParser().get_doctest(f.__doc__, {}, f.__name__, None, 0))
        assert result.failed == 0 and result.attempted > 0
    assert ran >= 4
