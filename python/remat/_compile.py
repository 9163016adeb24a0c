"""Compiled functions: traced once for each structure, dtypes and shapes of the arguments, then run as one operation."""
import dataclasses
import functools
import json
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from . import _remat
from ._remat import Device, Tensor
from ._support import DTypeLike, size_text


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


@dataclasses.dataclass(frozen=True)
class CompiledPlan:
    """What a run of a compiled function takes, for arguments of some shapes.

    Attributes:
        arena_bytes: the workspace: everything that lives only within a run.
        lower_bound_bytes: no workspace of this order of operations is smaller: the most bytes that live at once.
        state_bytes: parameters and states that the run reads or updates.
        input_bytes, output_bytes, constant_bytes: arguments, results, and constants.
        recomputed_calls: operations that a run makes again because what they gave had to go.
        spilled_bytes, fetched_bytes: what a run copies to the spill file and back.
        planned_ns: a run as the planner expects it, in nanoseconds; None, as all that follow, if no limit binds.
        base_ns: a run without a limit.
        bound_ns: no plan within the limit takes less.
        stall_ns: what of a run is waiting for copies to and from the spill file.

    >>> import remat
    >>> f = remat.compile(lambda x: (x * 2).exp())
    >>> y = f(remat.ones(256))
    >>> f.plans[0].input_bytes, f.plans[0].output_bytes, f.plans[0].recomputed_calls
    (1024, 1024, 0)
    """

    arena_bytes: int
    lower_bound_bytes: int
    state_bytes: int
    input_bytes: int
    output_bytes: int
    constant_bytes: int
    recomputed_calls: int
    spilled_bytes: int
    fetched_bytes: int
    planned_ns: Optional[int] = None
    base_ns: Optional[int] = None
    bound_ns: Optional[int] = None
    stall_ns: Optional[int] = None

    def __str__(self) -> str:
        parts = [("workspace", self.arena_bytes), ("states", self.state_bytes), ("inputs", self.input_bytes)]
        parts += [("outputs", self.output_bytes), ("constants", self.constant_bytes)]
        text = ", ".join(f"{what} {size_text(n)}" for what, n in parts)
        text += f"; {self.recomputed_calls} operations run again"
        if self.planned_ns is not None and self.base_ns is not None and self.bound_ns is not None:
            times = f"{self.planned_ns / 1e6:.2f} ms against {self.base_ns / 1e6:.2f} without a limit"
            text += f", as planned {times} (no plan takes less than {self.bound_ns / 1e6:.2f})"
        return text


class CompiledFunction:
    """What `remat.compile` makes of a function, which is called as that is. `traces` counts the shapes it was compiled for.

    >>> import remat
    >>> f = remat.compile(lambda x: x * 2)
    >>> f(remat.ones(2)).tolist(), type(f).__name__
    ([2.0, 2.0], 'CompiledFunction')
    """

    def __init__(self, f: Callable[..., Any], device: Optional[Device], options: Tuple[Any, ...]):
        functools.update_wrapper(self, f)
        self._f, self._device, self._options = f, device, options
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

            self._forms[key] = (_remat._Compiled(device, flat, *self._options), result)
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

    @property
    def plans(self) -> List[CompiledPlan]:
        """What a run takes, for each of the shapes that the function was compiled for. Errors: RuntimeError while it runs.

        >>> import remat
        >>> f = remat.compile(lambda x: x * 2)
        >>> y = f(remat.ones(256))
        >>> print(f.plans[0])
        workspace 0 B, states 0 B, inputs 1.0 KiB, outputs 1.0 KiB, constants 4 B; 0 operations run again
        """
        pairs = [pair for c, _ in self._forms.values() for pair in json.loads(c.plans())]
        return [CompiledPlan(**figures, **(times or {})) for figures, times in pairs]

    @property
    def is_settled(self) -> bool:
        """True once every form has its last plan. Under a budget a form begins with a plan for estimated times, and goes over
        to one for measured times within some runs; results are the same.
        """
        return all(c.is_settled for c, _ in self._forms.values())


def compile(
    f: Optional[Callable[..., Any]] = None, *, device: Optional[Device] = None, memory_budget: Union[int, str, None] = None,
    level: int = 2, freeze: bool = False, half: Optional[DTypeLike] = None, forms: int = 16,
) -> Any:
    """A function of tensors that is traced at its first call and then runs as one operation with a plan for its memory.

    Also a decorator. Arguments and results are tensors in lists, tuples and dictionaries; anything else in the arguments is a
    constant, for each value of which the function is traced again. Parameters and optimisers' state are read and updated by
    every call, and random keys drawn anew, so that a whole training step can be compiled. `plans` says what a run takes.

    Parameters:
        memory_budget: the most bytes of a run, as `Device` takes them; what does not fit is computed again. Unless given, what the
            budget of the device leaves beside all else that is on it then.
        level: of the passes over the graph, 0 to 3. At 3, for inference, they may change the last digits of results.
        freeze: parameters that are only read become constants, so that passes can compute with them; for inference.
        half: "float16" or "bfloat16" to store float32 values between operations as. Rounds them.
        forms: for how many shapes compiled forms are kept.

    Errors: NoValueError, with the line, if the function reads a value; BudgetError if no plan fits.

    >>> import remat
    >>> @remat.compile
    ... def f(x, y):
    ...     return {"sum": x + y, "product": x * y}
    >>> f(remat.ones(2), remat.ones(2))["sum"].tolist(), f.traces
    ([2.0, 2.0], 1)
    """
    options = (memory_budget, level, freeze, half, forms)
    if f is None:
        return lambda g: CompiledFunction(g, device, options)
    return CompiledFunction(f, device, options)
