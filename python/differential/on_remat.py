"""The names of a program, for Remat: the few that differ from PyTorch's, and a device as the form of the run says."""
from types import SimpleNamespace
from typing import Any, Callable, List

import numpy as np

import remat as torch
from remat import Function, grad, nn
from remat import optim as _optim
from remat.nn import functional as F
from remat.optim import lr_scheduler

from .frame import FRAME

F64, F32 = torch.float64, torch.float32
SHAPE_ERROR = torch.ShapeError

_form = FRAME.form
DEVICE = torch.Device(
    _form.get("budget"), threads=_form.get("threads", 1), foresight=_form.get("foresight", "beside"),
    async_level=_form.get("async_level", "full"), always_record=_form.get("always_record", False),
)
torch.set_default_device(DEVICE)
torch.manual_seed(1)


def array(x: Any) -> torch.Tensor:
    """A tensor with the values of an array."""
    return torch.tensor(np.array(x))


def normal(seed: int, *shape: int, dtype: Any = F64) -> torch.Tensor:
    """Normal numbers, the same for both frameworks."""
    return array(FRAME.normal(seed, shape).astype(dtype.name))


def integers(seed: int, below: int, *shape: int) -> torch.Tensor:
    """Integers from 0, the same for both frameworks."""
    return array(FRAME.integers(seed, below, shape))


def parameter(seed: int, name: str, *shape: int, dtype: Any = F64) -> Any:
    """A parameter with values that both frameworks share."""
    return nn.Parameter(array(FRAME.first_value(seed, name, shape).astype(dtype.name)))


def fill(net: Any, seed: int) -> Any:
    """Gives every parameter values that both frameworks share."""
    for name, p in net.named_parameters():
        assign(p, array(FRAME.first_value(seed, name, tuple(p.shape)).astype(p.dtype.name)))
    # a value that fails leaves the one before, which is no version of this program's
    sync()
    return net


def assign(p: Any, value: torch.Tensor) -> None:
    """Gives a parameter another value."""
    p.set_(value.detach())


def amax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The largest along an axis."""
    return x.max(dim=dim)


def lbfgs_step(optimizer: Any, loss: Callable[[], torch.Tensor]) -> Any:
    """A step of L-BFGS; the loss of before."""
    value = torch.tensor(_optim.LBFGS.step(optimizer, loss), dtype=F64)
    FRAME.stepped(optimizer)
    return value


def compiled(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled in forms that say so. How often it was traced, and for how many calls and shapes, is told."""
    if not _form.get("compiled"):
        return f
    made = torch.compile(f)
    shapes: List[Any] = []
    FRAME.compiled.append(lambda: (made.traces, len(shapes), len(set(shapes))))

    def call(*args: Any) -> Any:
        shapes.append(tuple(a.shape for a in args))
        return made(*args)

    return call


def sync() -> None:
    """Waits for what was asked for."""
    DEVICE.sync()


def _stepping(of: Any) -> Any:
    class Stepping(of):  # type: ignore[misc]
        def __init__(self, params: Any, *args: Any, **options: Any):
            params = list(params)
            if isinstance(params[0], dict):
                params = [{**group, "params": list(group["params"])} for group in params]
                self._watched = [p for group in params for p in group["params"]]
            else:
                self._watched = list(params)
            super().__init__(params, *args, **options)
            FRAME.made(self)

        def add_param_group(self, group: Any) -> None:
            params = list(group["params"])
            super().add_param_group({**group, "params": params})
            self._watched += params

        def step(self, *args: Any) -> Any:
            super().step(*args)
            FRAME.stepped(self)

    class Losing(Stepping):
        # planted: an update that was lost without a word, whole or in part. What this reads decides when a compiled step is traced again,
        # so that only runs with a plant have it
        def step(self, *args: Any) -> Any:
            old = [p.detach() for p in self._watched] if len(FRAME.step_starts) == 2 else []
            super().step(*args)
            for p, value in list(zip(self._watched, old))[: len(old) if _form["plant"] == "old" else 1]:
                p.set_(value)

    Stepping.__name__ = Losing.__name__ = of.__name__
    return Losing if _form.get("plant") in ("old", "half") else Stepping


def _parameters_of(optimizer: Any) -> List[Any]:
    return optimizer._watched


optim = SimpleNamespace(
    **{
        name: _stepping(getattr(_optim, name))
        for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adamax", "NAdam", "RAdam", "Adadelta", "LBFGS")
    }
)
FRAME.is_tensor = lambda x: isinstance(x, torch.Tensor)
FRAME.to_numpy = lambda x: x.detach().numpy()
FRAME.parameters_of = _parameters_of

__all__ = [
    "torch", "nn", "F", "optim", "lr_scheduler", "Function", "grad", "F64", "F32", "SHAPE_ERROR", "array", "normal", "integers",
    "parameter", "fill", "assign", "amax", "lbfgs_step", "compiled", "sync", "note", "note_all",
    "note_gradients", "keep", "steps", "np",
]
note, note_all, note_gradients = FRAME.note, FRAME.note_all, FRAME.note_gradients
keep, steps = FRAME.keep, FRAME.steps
