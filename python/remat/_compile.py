"""Compiled functions. A function is traced once for each form of a call, that is all values that the trace read, and
then runs as one operation."""
import dataclasses
import functools
import json
import threading
import warnings
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from . import _remat
from ._autograd import no_grad
from ._code import Watch
from ._errors import NotDifferentiableError, NoValueError
from ._guards import Guards
from ._remat import Device, Tensor
from ._structure import Described, Results, replaced
from ._support import DTypeLike, default_device, default_generator, size_text, whole
from ._walk import Walk


@dataclasses.dataclass(frozen=True)
class CompiledPlan:
    """The memory and the time of a run of a compiled function, for arguments of some shapes.

    Attributes:
        arena_bytes: the workspace, for all values that live only within a run.
        lower_bound_bytes: the most bytes that live at once. No workspace for this order of operations is smaller.
        state_bytes: parameters and states that the run reads or updates.
        input_bytes, output_bytes, constant_bytes: arguments, results, and constants.
        recomputed_calls: operations that a run makes again because their results were freed.
        spilled_bytes, fetched_bytes: bytes that a run copies to the spill file and back.
        planned_ns: the expected time of a run in nanoseconds. This and the fields below are None if no limit binds.
        base_ns: the expected time of a run without a limit.
        bound_ns: a lower bound on the time of every plan within the limit.
        stall_ns: the time in a run of waiting for copies to and from the spill file.

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


class _Traced:
    """The findings of a trace beside its graph: how to make the result, and which new values the arguments get."""

    def __init__(self, results: Results, written: List[int], gradients: List[Tuple[int, bool]]):
        # the tensors of the trace must not live longer than the trace
        self.results, self.count = results, len(results.tensors)
        self.written, self.gradients = written, gradients
        results.forget_trace()

    def end(self, y: List[Tensor], given: List[Tensor]) -> Any:
        """The result of a run. Arguments and their gradients get the values that the function assigned to them."""
        rest = iter(y[self.count:])
        for i in self.written:
            with no_grad():
                given[i]._become(next(rest))
        for i, is_there in self.gradients:
            given[i].grad = next(rest) if is_there else None
        return self.results.made(y, given)


class _Form:
    """The compiled function for one structure of arguments, and for the outside Python values that the trace saw."""

    def __init__(self, f: Callable[..., Any], key: Any, device: Device, options: Tuple[Any, ...], objects: List[Any]):
        self.key, self.is_alive = key, True
        self.compiled: Any = _remat._Compiled(device, self._flat, *options)
        self.guards = Guards()
        self.traces = 0
        self._f = f
        self._calls = 0
        self._traced: Dict[int, _Traced] = {}
        self._is_second = False
        self._pending: Optional[Guards] = None
        self._given: Any = None
        # objects compared by identity are kept alive, so that no other object can take their address
        self._objects = [self._held(x) for x in objects]

    def _held(self, x: Any) -> Callable[[], Any]:
        own = weakref.ref(self)

        def gone(_: Any) -> None:
            form = own()
            if form is not None:
                form.is_alive, form.compiled, form.guards = False, None, Guards()

        try:
            return weakref.ref(x, gone)
        except TypeError:
            return lambda: x

    def is_for(self, key: Any) -> bool:
        """True if this form serves calls of this key now."""
        return self.is_alive and self.key == key and self.guards.hold()

    def call(self, args: Any, described: Described, histories: List[int]) -> Any:
        """Runs the function."""
        given = described.tensors
        old = [given[i].grad for i, history in enumerate(histories) if history == 2]
        self._given, self._is_second = (args, described, histories), False
        try:
            y, number = self.compiled.call(given + old)
        finally:
            self._given = self._pending = None
            self.traces = self.compiled.traces
        if len(self._traced) > 1:
            kept = self.compiled.kept()
            self._traced = {n: t for n, t in self._traced.items() if n in kept}
        return self._traced[number].end(y, given)

    def _flat(self, *tensors: Tensor) -> List[Tensor]:
        """The function that is traced, on the tensors of the arguments and of their gradients. Every trace is made
        twice. The first one finds the values that the function reads from outside. The second one checks that the
        function does not change them."""
        self._calls += 1
        is_second, self._is_second = self._is_second, not self._is_second
        args, described, histories = self._given
        given, leaves = self._arguments(tensors, histories)
        own = {id(old): new for old, new in zip(described.tensors, given)}
        args, kwargs = replaced(args, lambda t: own.get(id(t), t))
        before = [(t._identity(), t.requires_grad) for t in given]
        watch = Watch()
        watch.begin()
        try:
            y = self._f(*args, **kwargs)
        except NoValueError:
            # a size that only a run knows ends the trace; the values read so far are guarded
            watch.end()
            self._guard(watch, described, is_second)
            raise
        finally:
            watch.end()
        walk = self._guard(watch, described, is_second)
        self._check_arguments(args, kwargs, given, described)
        results = Results(y, tuple(given), _remat.is_traced, walk.is_known)
        made = results.tensors[:]
        written = [i for i, t in enumerate(given) if t._identity() != before[i][0]]
        if any(walk.has_tensor(described.tensors[i]) for i in written):
            raise ValueError(
                "the compiled function assigns to a tensor among its arguments that it can reach from outside as well, where it would read "
                "the old value; give it in only one way"
            )
        made += [given[i] for i in written]
        for i, t in enumerate(given):
            if i not in written and t.requires_grad != before[i][1]:
                raise ValueError(
                    f"the compiled function sets `requires_grad` of the tensor {i} among its arguments, which no later call would do; set it "
                    "outside, or use `x.detach().requires_grad_()`"
                )
        gradients = self._gradients(leaves, tensors, histories, made)
        self._traced[self._calls] = _Traced(results, written, gradients)
        return made

    @staticmethod
    def _arguments(tensors: Tuple[Tensor, ...], histories: List[int]) -> Tuple[List[Tensor], List[Optional[Tensor]]]:
        """The arguments as the function sees them. For an argument with a history, also the leaf that its gradient
        reaches."""
        given: List[Tensor] = []
        leaves: List[Optional[Tensor]] = []
        old = iter(tensors[len(histories):])
        for t, history in zip(tensors, histories):
            leaf = None
            if history == 3:
                t, leaf = _remat.as_result(t)
            elif history:
                t.requires_grad = True
                leaf = t
                if history == 2:
                    t.grad = next(old)
            given.append(t)
            leaves.append(leaf)
        return given, leaves

    @staticmethod
    def _gradients(
        leaves: List[Optional[Tensor]], tensors: Tuple[Tensor, ...], histories: List[int], made: List[Tensor]
    ) -> List[Tuple[int, bool]]:
        """The arguments whose gradient is another one at the end, each with whether it has a gradient. New gradients
        are added to `made`."""
        old = iter(tensors[len(histories):])
        changed = []
        for i, (leaf, history) in enumerate(zip(leaves, histories)):
            before = next(old) if history == 2 else None
            now = None if leaf is None else leaf.grad
            if history == 3 and now is not None:
                raise NotDifferentiableError(
                    "a gradient reaches an argument of the compiled function that is itself a result, and would go on to what that was made "
                    "of; give `x.detach()`, or take the gradient within the function"
                )
            if now is None and before is None or now is not None and before is not None and now._identity() == before._identity():
                continue
            changed.append((i, now is not None))
            if now is not None:
                made.append(now)
        return changed

    def _guard(self, watch: Watch, described: Described, is_second: bool) -> Walk:
        walk = Walk(watch, described.objects)
        name = getattr(self._f, "__name__", type(self._f).__name__)
        is_new = True
        while is_new:
            walk.walk(self._f, name)
            for x in described.objects:
                walk.walk(x, "self" if x is described.owner else f"<{type(x).__name__}>")
            walk.globals()
            walk.closures()
            is_new = walk.begins_again()
        if not is_second:
            self._pending = walk.guards
            return walk
        place = self._pending.broken() if self._pending is not None else None
        if place is not None:
            raise ValueError(
                f"the compiled function changes `{place}`, which would happen only while it is compiled; do it outside, return what is to be "
                "kept, or keep a tensor in a `Parameter`, which every run updates"
            )
        self.guards.add(walk.guards)
        return walk

    @staticmethod
    def _check_arguments(args: Any, kwargs: Any, given: List[Tensor], described: Described) -> None:
        """Errors (ValueError) if the function changed a list or a dictionary that it was given."""
        now = Described(tuple(given)).key((args, kwargs))
        if now != described.structure:
            raise ValueError(
                "the compiled function changes a list, a dictionary or an object that it was given, which would happen only while it is "
                "compiled; return what the caller is to have"
            )


RETRACED = 8
"""The number of traced calls in a row after which a warning says so."""


class CompiledFunction:
    """A compiled function, which `remat.compile` makes. It is called as the function that it was made from. `traces`
    counts how often it was compiled.

    A trace and a plan take much longer than a call. If a function is traced at each of eight calls in a row, a
    RuntimeWarning names the difference between them.

    >>> import remat
    >>> f = remat.compile(lambda x: x * 2)
    >>> f(remat.ones(2)).tolist(), type(f).__name__
    ([2.0, 2.0], 'CompiledFunction')
    """

    # within another compiled function, the function that it was made from runs in its place
    _traced_alone = "_f"

    def __init__(self, f: Callable[..., Any], device: Optional[Device], options: Tuple[Any, ...]):
        functools.update_wrapper(self, f)
        self._f, self._device, self._options = f, device, options
        self._most = options[-1]
        # the form used last stands last
        self._forms: List[_Form] = []
        self._let_go = 0
        # calls in a row that were traced, and the reason why the last one needed another form
        self._in_a_row = 0
        self._reason = ""
        # calls of several threads wait for one another
        self._lock = threading.RLock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _remat.is_tracing():
            return self._f(*args, **kwargs)
        described = Described()
        described.structure = described.key((args, kwargs))
        described.owner = args[0] if args else None
        tensors = described.tensors
        if self._device is not None:
            device = self._device
        elif tensors:
            device = tensors[0].device
        else:
            device = default_device()
        signatures, histories = _remat.signatures(tensors)
        outside = (device, default_device(), id(default_generator()), _remat.is_grad_enabled())
        key = (described.structure, signatures, outside)
        with self._lock:
            form = self._form(key, device, described.objects)
            before = form.traces
            try:
                return form.call((args, kwargs), described, histories)
            finally:
                if form.traces != before:
                    self._in_a_row += 1
                    self._trim()
                else:
                    self._in_a_row = 0
                if self._in_a_row == RETRACED:
                    self._warn()

    def _form(self, key: Any, device: Device, objects: List[Any]) -> _Form:
        for at in range(len(self._forms) - 1, -1, -1):
            form = self._forms[at]
            if form.is_for(key):
                self._reason = "a parameter, a tensor that it reads from outside, or the budget is another each time"
                if at + 1 < len(self._forms):
                    self._forms.append(self._forms.pop(at))
                return form
        self._reason = self._difference(key)
        form = _Form(self._f, key, device, self._options, objects)
        self._forms.append(form)
        return form

    def _difference(self, key: Any) -> str:
        """The difference between a call and those of the form that was used last."""
        last = self._forms[-1] if self._forms else None
        if last is None or not last.is_alive:
            return "an object that it was compiled for is gone each time"
        if last.key == key:
            return f"`{last.guards.broken() or 'something'}`, which it reads from outside, is another each time"
        structure, signatures, _ = (a == b for a, b in zip(last.key, key))
        if not structure:
            return "constants among its arguments, or how they are put together, are others each time"
        if not signatures:
            return "shapes or dtypes of its arguments, or whether they have gradients, are others each time"
        return "the device, the generator or whether gradients are recorded is another each time"

    def _warn(self) -> None:
        name = getattr(self._f, "__qualname__", type(self._f).__name__)
        warnings.warn(
            f"the compiled function `{name}` was traced and planned anew at each of {RETRACED} calls: {self._reason}. Keep it the same, give "
            "numbers that change as tensors, or do not compile the function", RuntimeWarning, stacklevel=3,
        )

    def _trim(self) -> None:
        """Drops forms without a graph, and the forms beyond the limit that were used longest ago."""
        counts = [len(f.compiled.kept()) if f.is_alive else 0 for f in self._forms]
        total, kept = 0, []
        for form, count in zip(reversed(self._forms), reversed(counts)):
            if count and (not kept or total + count <= self._most):
                kept.append(form)
                total += count
            else:
                self._let_go += form.traces
        self._forms = kept[::-1]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    @property
    def traces(self) -> int:
        """The number of times that the function was traced."""
        with self._lock:
            return self._let_go + sum(f.traces for f in self._forms)

    @property
    def plans(self) -> List[CompiledPlan]:
        """The memory and the time of a run, for each set of shapes that the function was compiled for.

        >>> import remat
        >>> f = remat.compile(lambda x: x * 2)
        >>> y = f(remat.ones(256))
        >>> print(f.plans[0])
        workspace 0 B, states 0 B, inputs 1.0 KiB, outputs 1.0 KiB, constants 4 B; 0 operations run again
        """
        with self._lock:
            pairs = [pair for f in self._forms if f.is_alive for pair in json.loads(f.compiled.plans())]
        return [CompiledPlan(**figures, **(times or {})) for figures, times in pairs]

    @property
    def is_settled(self) -> bool:
        """True once every form has its last plan. Under a budget a form begins with a plan for estimated times. After
        some runs it changes to a plan for measured times. Results are the same.
        """
        with self._lock:
            return all(f.compiled.is_settled for f in self._forms if f.is_alive)


def compile(
    f: Optional[Callable[..., Any]] = None, *, device: Optional[Device] = None, memory_budget: Union[int, str, None] = None,
    level: int = 2, freeze: bool = False, half: Optional[DTypeLike] = None, forms: int = 16,
) -> Any:
    """A function of tensors that is traced at its first call and then runs as one operation with a plan for its memory.

    Also a decorator. Arguments and results are tensors and constants in lists, tuples, dictionaries and data classes.
    Every call reads and updates parameters and optimisers' state, and draws new random keys, so a whole training step
    can be compiled. `plans` has the memory and the time of a run.

    A call also compares all other values that the trace read: constants among the arguments, attributes, globals,
    lists, and whether gradients are recorded. If one has changed, the function is traced again. A value that cannot be
    compared is an error that names it. The book has tables of both (compiled functions, functions of Python).

    Parameters:
        memory_budget: the most bytes of a run, in the forms that `Device` accepts. Values that do not fit are computed
            again. By default, the part of the device's budget that other tensors leave free when the function is
            planned.
        level: the level of the passes over the graph, 0 to 3. Level 3 is for inference: passes may change the last
            digits of results.
        freeze: True, for inference, makes parameters that are only read constants, so that passes can compute with
            them.
        half: "float16" or "bfloat16", the dtype in which float32 values are stored between operations. It rounds them.
        forms: the number of compiled forms that are kept. The form used longest ago is dropped first.

    Errors: NoValueError, with the line, if the function reads a value; BudgetError if no plan fits; ValueError for
    effects that would happen only during the trace.

    >>> import remat
    >>> @remat.compile
    ... def f(x, y):
    ...     return {"sum": x + y, "product": x * y}
    >>> f(remat.ones(2), remat.ones(2))["sum"].tolist(), f.traces
    ([2.0, 2.0], 1)
    """
    if device is not None and not isinstance(device, Device):
        raise TypeError(f"device is {device!r}, must be a Device")
    _remat.budget_bytes(memory_budget)
    if whole(level, "level", 0) > 3:
        raise ValueError(f"level {level} is none of 0 to 3")
    if whole(forms, "forms", 0) == 0:
        raise ValueError("forms=0 keeps nothing that could be called; it is at least 1")
    options = (memory_budget, level, freeze, half, forms)
    if f is None:
        return lambda g: compile(g, device=device, memory_budget=memory_budget, level=level, freeze=freeze, half=half, forms=forms)
    if not callable(f):
        raise TypeError(f"compile takes a function or a module, not {type(f).__name__}")
    return CompiledFunction(f, device, options)
