"""Modules: parts of a network with parameters, by attribute."""
import itertools
from collections import OrderedDict
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from .. import _remat
from .._remat import Device, Parameter, Tensor
from .._support import DTypeLike


_hook_ids = itertools.count(1)
"""Each hook has a number of its own, so that an old handle never takes out another hook."""


class RemovableHandle:
    """The handle of a registered hook: `remove()` takes the hook out.

    >>> import remat
    >>> layer = remat.nn.ReLU()
    >>> handle = layer.register_forward_hook(lambda module, x, y: print(y.tolist()))
    >>> y = layer(remat.ones(1))
    [1.0]
    >>> handle.remove()
    >>> y = layer(remat.ones(1))
    """

    def __init__(self, hooks: Dict[int, Any]):
        self._hooks, self._id = hooks, next(_hook_ids)

    def remove(self) -> None:
        """Takes the hook out; a second time does nothing."""
        self._hooks.pop(self._id, None)


def _where(args: Tuple[Any, ...], device: Any, dtype: Any) -> Tuple[Optional[Device], Any]:
    """Device and dtype from the arguments of `to`. Errors: TypeError for an argument that is neither."""
    for a in args:
        if isinstance(a, Device):
            device = a
        elif a != "cpu":
            dtype = a
    device = None if device == "cpu" else device
    if device is not None and not isinstance(device, Device):
        raise TypeError(f"{device!r} is no device: give a `remat.Device`")
    if dtype is not None:
        try:
            dtype = _remat.dtype(dtype)
        except (TypeError, ValueError):
            raise TypeError(f"{dtype!r} is no dtype, and no device: tensors lie on a `remat.Device`, of the processor") from None
    return device, dtype


class Module:
    """A network or a part of one. A subclass makes its parts in `__init__`, and computes in `forward`.

    Attributes that are parameters or modules are found by name: `block.0.weight`, as in PyTorch. A parameter that is
    found twice is listed once, under its first name.

    >>> import remat
    >>> class Net(remat.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.hidden = remat.nn.Linear(4, 8)
    ...         self.head = remat.nn.Linear(8, 2)
    ...     def forward(self, x):
    ...         return self.head(self.hidden(x).relu())
    >>> net = Net()
    >>> net(remat.ones(3, 4)).shape, [name for name, _ in net.named_parameters()]
    ((3, 2), ['hidden.weight', 'hidden.bias', 'head.weight', 'head.bias'])
    """

    training: bool

    def __init__(self) -> None:
        object.__setattr__(self, "_parameters", OrderedDict())
        object.__setattr__(self, "_buffers", OrderedDict())
        object.__setattr__(self, "_modules", OrderedDict())
        object.__setattr__(self, "_not_saved", set())
        object.__setattr__(self, "_forward_hooks", OrderedDict())
        object.__setattr__(self, "_forward_pre_hooks", OrderedDict())
        object.__setattr__(self, "training", True)

    # attributes

    def __setattr__(self, name: str, value: Any) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"call super().__init__() in {type(self).__name__} before anything is assigned")
        kind = None
        if isinstance(value, Parameter):
            kind = "_parameters" if value.is_trained else "_buffers"
        elif isinstance(value, Module):
            kind = "_modules"
        if kind is not None:
            self.__forget(name)
            self.__dict__[kind][name] = value
            return
        for store in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__[store]:
                if value is not None:
                    what = "a Module" if store == "_modules" else "a Parameter"
                    raise TypeError(f"`{name}` is {what}: assign another one, or None, or use its `set_`")
                self.__dict__[store][name] = None
                return
        object.__setattr__(self, name, value)

    def __forget(self, name: str) -> None:
        self.__dict__.pop(name, None)
        for store in ("_parameters", "_buffers", "_modules"):
            self.__dict__[store].pop(name, None)

    def __getattr__(self, name: str) -> Any:
        for store in ("_parameters", "_buffers", "_modules"):
            found = self.__dict__.get(store, {})
            if name in found:
                return found[name]
        raise AttributeError(f"{type(self).__name__} has no attribute `{name}`")

    def __delattr__(self, name: str) -> None:
        for store in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__[store]:
                del self.__dict__[store][name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> Iterable[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def register_parameter(self, name: str, parameter: Optional[Parameter]) -> None:
        """Adds a parameter under a name, or None for a missing one. Errors: TypeError for another object."""
        if parameter is not None and not isinstance(parameter, Parameter):
            raise TypeError(f"`{name}` is to be a Parameter or None, not {type(parameter).__name__}")
        self._parameters[name] = parameter

    def register_buffer(self, name: str, value: Optional[Tensor], persistent: bool = True) -> None:
        """Adds state that is not trained, such as running statistics: a Parameter with `requires_grad=False`, or a tensor.

        If it is not `persistent`, `state_dict` leaves it out.

        >>> import remat
        >>> m = remat.nn.Module(); m.register_buffer("mean", remat.zeros(2))
        >>> [name for name, _ in m.named_buffers()]
        ['mean']
        """
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(f"{name!r} is no name of a buffer: a text without dots that is not empty")
        if value is not None and not isinstance(value, Parameter):
            value = Parameter(value, requires_grad=False)
        self._buffers[name] = value
        (self._not_saved.discard if persistent else self._not_saved.add)(name)

    def add_module(self, name: str, module: Optional["Module"]) -> None:
        """Adds a part under a name, or None for a missing one. Errors: TypeError for another object."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"`{name}` is to be a Module or None, not {type(module).__name__}")
        self._modules[name] = module

    # parts and state

    def named_modules(self, prefix: str = "") -> Iterator[Tuple[str, "Module"]]:
        """This module and all modules within it, each once, by name."""
        for name, module in _remat.module_tree(self):
            yield (f"{prefix}.{name}" if prefix and name else prefix or name), module

    def modules(self) -> Iterator["Module"]:
        """This module and all modules within it, each once."""
        return (m for _, m in self.named_modules())

    def named_children(self) -> Iterator[Tuple[str, "Module"]]:
        """The parts, by name."""
        return ((n, m) for n, m in self._modules.items() if m is not None)

    def children(self) -> Iterator["Module"]:
        """The parts."""
        return (m for _, m in self.named_children())

    def _library_state(self, is_saved: bool = True) -> Any:
        """All state for the compiled part, which traverses it, with the generators and modes of the compiled layers."""
        return _remat._State(self, is_saved)

    def named_parameters(self) -> Iterator[Tuple[str, Parameter]]:
        """Trained parameters by name."""
        yield from self._library_state(False).trained()

    def parameters(self) -> Iterator[Parameter]:
        """Trained parameters."""
        return (p for _, p in self.named_parameters())

    def named_buffers(self) -> Iterator[Tuple[str, Parameter]]:
        """State without a gradient, by name."""
        yield from self._library_state(False).buffers()

    def buffers(self) -> Iterator[Parameter]:
        """State without a gradient."""
        return (p for _, p in self.named_buffers())

    # state

    def state_dict(self) -> "OrderedDict[str, Tensor]":
        """The present values of parameters and buffers by name: a snapshot, which later updates do not change.

        >>> import remat
        >>> a, b = remat.nn.Linear(2, 2), remat.nn.Linear(2, 2)
        >>> _ = b.load_state_dict(a.state_dict())
        >>> bool((a.weight == b.weight).all())
        True
        """
        return OrderedDict((name, p.detach()) for name, p in self._library_state().all())

    def load_state_dict(self, state: Dict[str, Any], strict: bool = True) -> Tuple[List[str], List[str]]:
        """Replaces parameters and buffers by those of `state`, all of them or none; gradients stay.

        Names are PyTorch's for the layers that both libraries have. The `num_batches_tracked` of PyTorch's batch norms
        is ignored, unless the batch norm here has such a count too. Returns the names that were missing and those that
        were not expected; they are errors if `strict`. Errors: ArgumentError, which names every value that does not
        fit; BudgetError if there is no room for the old and the new state together.
        """
        from .._creation import asarray

        if not isinstance(state, Mapping):
            raise TypeError(f"a state is a mapping of names to tensors, not {type(state).__name__}")
        counts = self._torch_counts()
        values = [(name, asarray(v)) for name, v in state.items() if name not in counts]
        _, missing, unexpected = self._library_state().load(values, strict)
        return missing, unexpected

    def _torch_counts(self) -> List[str]:
        """Names under which PyTorch's batch norms count batches, for batch norms here that have no such count."""
        return [
            f"{name}.num_batches_tracked" if name else "num_batches_tracked"
            for name, m in self.named_modules() if "running_mean" in m._buffers and "num_batches_tracked" not in m._buffers
        ]

    def train(self, mode: bool = True) -> "Module":
        """Puts every part into training mode: dropout drops, and normalisation uses the batch's statistics. Returns the
        module."""
        for m in self.modules():
            object.__setattr__(m, "training", mode)
            m._mode_changed(mode)
        return self

    def eval(self) -> "Module":
        """Puts every part into evaluation mode. Returns the module."""
        return self.train(False)

    def _mode_changed(self, training: bool) -> None:
        """Called when the mode changes, for layers whose compiled part has a mode of its own."""

    def requires_grad_(self, requires_grad: bool = True) -> "Module":
        """Freezes every parameter, or unfreezes it. Returns the module."""
        for p in self.parameters():
            p.requires_grad = requires_grad
        return self

    def to(self, *args: Any, device: Optional[Device] = None, dtype: Optional[DTypeLike] = None) -> "Module":
        """Moves parameters and buffers to a device, converts floats to a dtype, or both. Returns the module.

        Parameters that are there already stay, and shared parameters stay shared. **Parameters that move are replaced
        by new ones**, without gradients, so move the module before you make the optimiser. Errors: BudgetError if it
        does not fit there.

        >>> import remat
        >>> net = remat.nn.Linear(4, 2)
        >>> net.to(remat.Device(budget="16MiB")).weight.device.budget
        16777216
        """
        device, dtype = _where(args, device, dtype)
        from .compiled import CompiledLayer, _kept_dtype

        all = list(self.modules())
        # layers first: a tied weight in another module is then replaced by the layer's new parameter
        moved: Dict[int, Tuple[Parameter, Parameter]] = {}
        for m in all:
            if isinstance(m, CompiledLayer):
                there = device
                if there is None:
                    there = next((p.device for _, p in m._library_state(False).all()), None)
                if there is not None:
                    moved.update(m._moved(there, dtype))
        for m in all:
            for store in (m._parameters, m._buffers):
                for name, p in store.items():
                    if p is None:
                        continue
                    if p._address not in moved:
                        if (device is None or p.device == device) and _kept_dtype(p, dtype):
                            continue
                        of = p.dtype if _kept_dtype(p, dtype) else dtype
                        made = Parameter(p.detach().to(device=device, dtype=of), requires_grad=p.is_trained)
                        if p.is_trained:
                            made.requires_grad = p.requires_grad
                        moved[p._address] = (p, made)
                    store[name] = moved[p._address][1]
        return self

    def cpu(self) -> "Module":
        """The module itself: it lies on the processor."""
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops every accumulated gradient."""
        for p in self.parameters():
            p.grad = None

    def apply(self, f: Callable[["Module"], Any]) -> "Module":
        """Calls `f` with every part, innermost first. Returns the module."""
        for m in self.children():
            m.apply(f)
        f(self)
        return self

    # calls

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Computes the module's output. A subclass defines it."""
        raise NotImplementedError(f"{type(self).__name__} has no `forward`")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args = self._with_pre_hooks(args)
        return self._with_hooks(args, self.forward(*args, **kwargs))

    def _with_pre_hooks(self, args: Tuple[Any, ...]) -> Tuple[Any, ...]:
        for hook in tuple(self._forward_pre_hooks.values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        return args

    def _with_hooks(self, args: Tuple[Any, ...], y: Any) -> Any:
        for hook in tuple(self._forward_hooks.values()):
            changed = hook(self, args, y)
            y = y if changed is None else changed
        return y

    def register_forward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, args, result)` after `forward`. If the hook returns a value other than None, that is the
        result.

        >>> import remat
        >>> m = remat.nn.ReLU(); h = m.register_forward_hook(lambda m, x, y: y + 1)
        >>> m(remat.zeros(1)).tolist()
        [1.0]
        >>> h.remove(); m(remat.zeros(1)).tolist()
        [0.0]
        """
        return self._hooked(self._forward_hooks, hook)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(module, args)` before `forward`. If the hook returns a value other than None, these are the
        arguments."""
        return self._hooked(self._forward_pre_hooks, hook)

    @staticmethod
    def _hooked(hooks: Dict[int, Any], hook: Callable[..., Any]) -> RemovableHandle:
        handle = RemovableHandle(hooks)
        hooks[handle._id] = hook
        return handle

    def extra_repr(self) -> str:
        """The text that a subclass shows between the brackets."""
        return ""

    def __repr__(self) -> str:
        inner = [f"({n}): " + repr(m).replace("\n", "\n  ") for n, m in self.named_children()]
        extra = self.extra_repr()
        if not inner:
            return f"{type(self).__name__}({extra})"
        lines = ([extra] if extra else []) + inner
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)"
