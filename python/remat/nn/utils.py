"""Functions for the gradients of many parameters at once."""
from typing import Iterable, Union

from .. import _remat
from .._creation import zeros
from .._remat import Parameter, Tensor


def _all(parameters: Union[Parameter, Iterable[Parameter]]) -> list:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)


def clip_grad_norm_(parameters: Union[Parameter, Iterable[Parameter]], max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Scales the gradients so that their joint norm is at most `max_norm`. Returns the norm that they had, 0 without
    any gradient. It waits for nothing.

    Errors: ArgumentError for a negative norm.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.zeros(4)); p.grad = remat.ones(4) * 3
    >>> remat.nn.utils.clip_grad_norm_([p], 1.0).item(), round(p.grad.norm().item(), 3)
    (6.0, 1.0)
    """
    own = _all(parameters)
    if max_norm >= 0 and own and all(p.grad is None for p in own):
        return zeros((), dtype=own[0].dtype, device=own[0].device)
    return _remat.clip_grad_norm(own, max_norm, norm_type)


def clip_grad_value_(parameters: Union[Parameter, Iterable[Parameter]], clip_value: float) -> None:
    """Limits every element of every gradient to `-clip_value ..= clip_value`.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.zeros(2)); p.grad = remat.tensor([-9.0, 0.5])
    >>> remat.nn.utils.clip_grad_value_([p], 1.0); p.grad.tolist()
    [-1.0, 0.5]
    """
    _remat.clip_grad_value(_all(parameters), clip_value)
