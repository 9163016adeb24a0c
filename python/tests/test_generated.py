import inspect
import pathlib
import subprocess
import sys

import pytest

import remat

SCRIPTS = pathlib.Path(__file__).parents[2] / "scripts"


@pytest.mark.skipif(not SCRIPTS.exists(), reason="not in a clone of the repository")
@pytest.mark.parametrize("script", ["make_python_operators.py", "make_python_layers.py"])
def test_what_is_made_is_what_the_script_makes_now(script):
    done = subprocess.run([sys.executable, str(SCRIPTS / script), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_layer_that_is_made_of_its_defaults_has_those_of_its_declaration():
    for of in remat._remat.layer_classes():
        made = inspect.signature(getattr(remat.nn, of["name"])).parameters
        told = [(name, default) for name, _, has_default, default in of["arguments"] if has_default]
        assert [name for name, *_ in of["arguments"] if name != "*"] == list(made), of["name"]
        for name, default in told:
            python = made[name].default
            while isinstance(default, list):
                default = default[0]
            assert default == python and type(default) is type(python), (of["name"], name)


def test_every_operator_has_a_row_and_a_text():
    rows = remat._remat._operators
    for name in remat.ops.__all__:
        f = getattr(remat.ops, name)
        assert f.__doc__, name
        source = inspect.getsource(f)
        row = source.split('_t["')[1].split('"]')[0]
        assert row in rows, name
    for name in remat.ops.METHODS:
        assert callable(getattr(remat.Tensor, name)), name


def test_everything_public_has_a_text():
    modules = [
        remat, remat.nn, remat.optim, remat.data, remat.nn.init, remat.nn.utils, remat.onnx, remat.lite, remat.distributed,
    ]
    for module in modules:
        assert module.__doc__
        for name, thing in vars(module).items():
            if name.startswith("_") or not (inspect.isclass(thing) or inspect.isroutine(thing)):
                continue
            assert thing.__doc__, f"{module.__name__}.{name}"
            if inspect.isclass(thing) and str(thing.__module__).startswith("remat"):
                for method in vars(thing):
                    f = getattr(thing, method)
                    if not method.startswith("_") and inspect.isroutine(f):
                        assert inspect.getdoc(f), f"{module.__name__}.{name}.{method}"
