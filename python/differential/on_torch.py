"""The names of a program, for PyTorch. What is not PyTorch's own is the same in `on_remat`."""
import sys
from types import SimpleNamespace
from typing import Any, Callable, List

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function, grad
from torch.optim import lr_scheduler

from .frame import FRAME

torch.set_num_threads(1)
# NAdam's product of momenta is of float32 there whatever the parameters are, which shows in the tenth digit
sys.modules[torch.optim.NAdam.__module__]._get_scalar_dtype = lambda *_, **__: torch.float64  # type: ignore[attr-defined]
F64, F32 = torch.float64, torch.float32
# what operands of shapes that do not fit raise
SHAPE_ERROR = RuntimeError


def array(x: Any) -> torch.Tensor:
    """A tensor with the values of an array."""
    return torch.from_numpy(np.array(x))


def normal(seed: int, *shape: int, dtype: Any = F64) -> torch.Tensor:
    """Normal numbers, the same for both frameworks."""
    return array(FRAME.normal(seed, shape)).to(dtype)


def integers(seed: int, below: int, *shape: int) -> torch.Tensor:
    """Integers from 0, the same for both frameworks."""
    return array(FRAME.integers(seed, below, shape))


def parameter(seed: int, name: str, *shape: int, dtype: Any = F64) -> nn.Parameter:
    """A parameter with values that both frameworks share."""
    return nn.Parameter(array(FRAME.first_value(seed, name, shape)).to(dtype))


def fill(net: nn.Module, seed: int) -> nn.Module:
    """Gives every parameter values that both frameworks share."""
    for name, p in net.named_parameters():
        assign(p, array(FRAME.first_value(seed, name, tuple(p.shape))).to(p.dtype))
    return net


def assign(p: nn.Parameter, value: torch.Tensor) -> None:
    """Gives a parameter another value."""
    with torch.no_grad():
        p.copy_(value)


def amax(x: torch.Tensor, dim: int) -> torch.Tensor:
    """The largest along an axis; equal ones share the gradient."""
    return torch.amax(x, dim=dim)


def lbfgs_step(optimizer: Any, loss: Callable[[], torch.Tensor]) -> Any:
    """A step of L-BFGS; the loss of before."""
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    value = torch.optim.LBFGS.step(optimizer, closure).detach()
    optimizer.zero_grad()
    FRAME.stepped(optimizer)
    return value


def compiled(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function, compiled in forms that say so."""
    return f


def sync() -> None:
    """Waits for what was asked for."""


def _stepping(of: Any) -> Any:
    class Stepping(of):  # type: ignore[misc]
        def __init__(self, params: Any, *args: Any, **options: Any):
            super().__init__(params, *args, **options)
            FRAME.made(self)

        def step(self, closure: Any = None) -> Any:
            # as in Remat, a step drops the gradients that it used
            super().step()
            self.zero_grad()
            FRAME.stepped(self)

    Stepping.__name__ = of.__name__
    return Stepping


def _parameters_of(optimizer: Any) -> List[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


optim = SimpleNamespace(
    **{
        name: _stepping(getattr(torch.optim, name))
        for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adamax", "NAdam", "RAdam", "Adadelta", "LBFGS")
    }
)
FRAME.is_tensor = lambda x: isinstance(x, torch.Tensor)
FRAME.to_numpy = lambda x: x.detach().to_dense().numpy()
FRAME.parameters_of = _parameters_of

__all__ = [
    "torch", "nn", "F", "optim", "lr_scheduler", "Function", "grad", "F64", "F32", "SHAPE_ERROR", "array", "normal", "integers",
    "parameter", "fill", "assign", "amax", "lbfgs_step", "compiled", "sync", "note", "note_all",
    "note_gradients", "keep", "steps", "np",
]
note, note_all, note_gradients = FRAME.note, FRAME.note_all, FRAME.note_gradients
keep, steps = FRAME.keep, FRAME.steps
