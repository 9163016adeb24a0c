"""Compiled functions: traced once for each structure, dtypes and shapes of the arguments, then run as one operation."""
import functools
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import _remat
from ._remat import Device, Tensor


def _flatten(x: Any, tensors: List[Tensor]) -> Any:
    """The structure of `x`, whose tensors are appended to `tensors`; what is no tensor is a part of the structure."""
    if isinstance(x, Tensor):
        tensors.append(x)
        return Tensor
    if isinstance(x, (list, tuple)):
        return (type(x).__name__, tuple(_flatten(part, tensors) for part in x))
    if isinstance(x, dict):
        return ("dict", tuple((k, _flatten(v, tensors)) for k, v in x.items()))
    return ("value", x)


def _unflatten(structure: Any, tensors: List[Tensor]) -> Any:
    """What had this structure; takes tensors from the front."""
    if structure is Tensor:
        return tensors.pop(0)
    kind, parts = structure
    if kind == "value":
        return parts
    if kind == "dict":
        return {k: _unflatten(v, tensors) for k, v in parts}
    made = [_unflatten(p, tensors) for p in parts]
    return made if kind == "list" else tuple(made)


class CompiledFunction:
    """What `remat.compile` makes of a function, which is called as that is. `traces` counts the shapes it was compiled for.

    >>> import remat
    >>> f = remat.compile(lambda x: x * 2)
    >>> f(remat.ones(2)).tolist(), type(f).__name__
    ([2.0, 2.0], 'CompiledFunction')
    """

    def __init__(self, f: Callable[..., Any], device: Optional[Device], memory_budget: Optional[int]):
        functools.update_wrapper(self, f)
        self._f, self._device, self._budget = f, device, memory_budget
        self._forms: Dict[Any, Tuple[Any, List[Any]]] = {}

    def _form(self, structure: Any, device: Device) -> Tuple[Any, List[Any]]:
        key = (structure, device)
        if key not in self._forms:
            f = self._f
            result: List[Any] = []

            def flat(*tensors: Tensor) -> List[Tensor]:
                args, kwargs = _unflatten(structure, list(tensors))
                given: List[Tensor] = []
                result[:] = [_flatten(f(*args, **kwargs), given)]
                return given

            self._forms[key] = (_remat._Compiled(device, flat, self._budget), result)
        return self._forms[key]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors: List[Tensor] = []
        structure = _flatten((args, kwargs), tensors)
        if self._device is not None:
            device = self._device
        elif tensors:
            device = tensors[0].device
        else:
            from ._support import default_device

            device = default_device()
        try:
            compiled, result = self._form(structure, device)
        except TypeError as e:
            raise TypeError(f"arguments that are no tensors are a part of what is compiled, and must be hashable: {e}") from None
        made = compiled.call(tensors)
        return _unflatten(result[0], made)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    @property
    def traces(self) -> int:
        """How often the function was traced."""
        return sum(c.traces for c, _ in self._forms.values())


def compile(
    f: Optional[Callable[..., Any]] = None, *, device: Optional[Device] = None, memory_budget: Optional[int] = None
) -> Any:
    """A function of tensors that is traced at its first call and then runs as one operation with a plan for its memory.

    Also a decorator. Arguments and results are tensors in lists, tuples and dictionaries; anything else in the arguments is a
    constant, for each value of which the function is traced again. Parameters and optimisers' state are read and updated by
    every call, so that a whole training step can be compiled. Errors: NoValueError, with the line, if the function reads a value.

    >>> import remat
    >>> @remat.compile
    ... def f(x, y):
    ...     return {"sum": x + y, "product": x * y}
    >>> f(remat.ones(2), remat.ones(2))["sum"].tolist(), f.traces
    ([2.0, 2.0], 1)
    """
    if f is None:
        return lambda g: CompiledFunction(g, device, memory_budget)
    return CompiledFunction(f, device, memory_budget)
