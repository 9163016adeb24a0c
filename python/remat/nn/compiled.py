"""Modules that hold a layer of the compiled library, and modules for the parts of composed layers.

A `CompiledLayer` has a `Core`: the compiled layer, which knows its class and options, and its parameters by name. Two
modules never share a core. Copies, pickles and moves make another compiled layer of the same options and give it the
values. Tied parameters, which are in another module too, are found again by their core.

A compiled layer may have other layers within it, which `Part` modules stand for. Changes to a part act on the layer
within. Modes are set by name. Hooks, and other modules in the part's place, act through a pair of functions that the
compiled layer calls around the layer within. These functions hold the modules weakly, since the garbage collector
cannot see a cycle through the compiled layer.
"""
import copy
import functools
import inspect
import weakref
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from .. import _remat
from .._errors import ArgumentError
from .._remat import Device, Generator, Parameter, Tensor
from .._support import DTypeLike, default_device, default_generator
from .module import Module, RemovableHandle

RESERVED = frozenset(("self", "device", "dtype", "generator"))
"""Arguments that are no options of a layer."""

_owners: "weakref.WeakValueDictionary[int, Core]" = weakref.WeakValueDictionary()


class Core:
    """A compiled layer, the class of modules that makes it, and its parameters by name."""

    def __init__(self, of: Any, native: Any):
        self.of = of
        self.replaced: Set[str] = set()
        self._take(native)

    def _take(self, native: Any) -> None:
        """Holds a compiled layer in place of the one before."""
        for p in getattr(self, "parameters", {}).values():
            if _owners.get(p._address) is self:
                del _owners[p._address]
        self.native = native
        self.parameters: Dict[str, Parameter] = dict(native.state())
        for p in self.parameters.values():
            # a layer now owns the parameters of the layer that it wraps, as a WeightNorm owns the bias
            _owners[p._address] = self

    def own(self) -> Dict[str, Parameter]:
        """The layer's own parameters, without those of parts that other modules replace."""
        return {n: self.parameters[n] for n in self.native.own_names() if n in self.parameters}

    def name_of(self, p: Parameter) -> str:
        """The name of a parameter of this core."""
        return next(name for name, own in self.parameters.items() if own._address == p._address)

    @property
    def place(self) -> Tuple[Device, Any]:
        """The device and the dtype of the layer."""
        first = next(iter(self.parameters.values()), None)
        return (default_device(), "float32") if first is None else (first.device, first.dtype)

    def move(self, device: Device, dtype: DTypeLike) -> Dict[int, Tuple[Parameter, Parameter]]:
        """Moves the layer to a device and a dtype. Returns, by address, each old parameter with its new one."""
        before, native = self.own(), self.native.remade(device, dtype)
        _give(dict(native.state()), before)
        self._take(native)
        return {p._address: (p, self.parameters[name]) for name, p in before.items()}

    def change(self, options: Dict[str, Any]) -> bool:
        """Gives the layer other options and keeps its parameters. False if other options would need other parameters.
        Errors: those of making the layer."""
        kind, own = self.native.kind, list(self.parameters.items())
        # on a dry device, since only the shapes matter: parameters take no memory there
        twin = _remat._NativeLayer(kind, options, Device(threads=1).dry(), "float32", Generator(0))
        if [(n, p.shape) for n, p in own] != [(n, p.shape) for n, p in twin.state()]:
            return False
        try:
            native = _remat._NativeLayer.with_parameters(kind, options, *self.place, own)
        except ArgumentError:
            return False
        if [(n, p._address) for n, p in native.state()] != [(n, p._address) for n, p in own]:
            return False
        native.load_states(self.native.get_states())
        self.native.retire()
        self.native = native
        return True

    def tap(self, path: str, module: Optional[Module], is_replaced: bool) -> None:
        """Makes a module's hooks, or the module itself, act in the place of a part. None takes them away."""
        tap = None if module is None else _Tap(module, is_replaced)
        self.native.tap(path, None if tap is None else (tap.before, tap.after), is_replaced)
        (self.replaced.add if is_replaced else self.replaced.discard)(path)

    def __deepcopy__(self, memo: Dict[int, Any]) -> "Core":
        made = memo[id(self)] = Core(self.of, self.native.remade(*self.place))
        _give(made.parameters, self.own(), with_gradients=True)
        return made

    def __reduce__(self) -> Any:
        own, native = self.own(), self.native
        values = {name: p.detach() for name, p in own.items()}
        frozen = [name for name, p in own.items() if p.is_trained and not p.requires_grad]
        return _read_core, (self.of, native.kind, native.options, _remat.dtype(self.place[1]).name, values, frozen, native.get_states())


def _give(to: Dict[str, Parameter], of: Dict[str, Parameter], with_gradients: bool = False) -> None:
    """Sets parameters to the values of others of the same names."""
    for name, p in of.items():
        new = to[name]
        new.set_(p.detach().to(device=new.device, dtype=new.dtype))
        if p.is_trained:
            new.requires_grad = p.requires_grad
            if with_gradients and p.grad is not None:
                new.grad = p.grad


def _read_core(
    of: Any, kind: str, options: Dict[str, Any], dtype: str, values: Dict[str, Tensor], frozen: List[str], states: Dict[str, Any]
) -> Core:
    core = Core(of, _remat._NativeLayer(kind, options, default_device(), dtype, Generator(0)))
    core.native.load_states(states)
    for name, value in values.items():
        core.parameters[name].set_(value.to(device=core.parameters[name].device))
    for name in frozen:
        core.parameters[name].requires_grad = False
    return core


def _parameter_of(core: Core, name: str) -> Parameter:
    return core.parameters[name]


def _read_parameter(of: Any, value: Tensor, is_trained: bool, requires_grad: bool) -> Parameter:
    p: Parameter = of(value, requires_grad=is_trained)
    if is_trained and not requires_grad:
        p.requires_grad = False
    return p


def _reduce(p: Parameter) -> Any:
    """Pickles a parameter of a layer together with its layer. The layer is read once, however many parameters name
    it."""
    core = _owners.get(p._address)
    if core is not None:
        return _parameter_of, (core, core.name_of(p))
    return _read_parameter, (type(p), p.detach(), p.is_trained, p.requires_grad)


def _deepcopy(p: Parameter, memo: Dict[int, Any]) -> Parameter:
    core = _owners.get(p._address)
    # a parameter that is copied by itself leaves the other ones of its layer
    if core is not None and memo:
        return copy.deepcopy(core, memo).parameters[core.name_of(p)]
    made = _read_parameter(type(p), p.detach(), p.is_trained, p.requires_grad)
    if p.is_trained and p.grad is not None:
        made.grad = p.grad
    return made


Parameter.__reduce__ = _reduce  # type: ignore[method-assign, assignment]
Parameter.__deepcopy__ = _deepcopy  # type: ignore[method-assign, assignment]


class _Tap:
    """The functions that a compiled layer calls around a part: the hooks of a part, or the module in its place."""

    def __init__(self, module: Module, is_replaced: bool):
        self._module, self._is_replaced = weakref.ref(module), is_replaced

    def before(self, x: Tensor) -> Tuple[bool, Any]:
        """True and the result, or False and the input for the part."""
        module = self._module()
        if module is None:
            return False, x
        return (True, module(x)) if self._is_replaced else (False, module._with_pre_hooks((x,))[0])

    def after(self, x: Tensor, y: Tensor) -> Any:
        """The result."""
        module = self._module()
        return y if module is None else module._with_hooks((x,), y)


class _Inside(Module):
    """The base of compiled layers and their parts. The modules in it are parts, or replace parts."""

    def _place(self) -> Tuple[Core, str]:
        """The core, and the path within it."""
        raise NotImplementedError

    def _path_of(self, name: str) -> str:
        path = self._place()[1]
        return f"{path}.{name}" if path else name

    def _replace(self, name: str, module: Any) -> None:
        """Makes a module compute in the place of a part. Errors: TypeError if no module can."""
        core, path = self._place()[0], self._path_of(name)
        if module is self._modules[name]:
            return
        if not isinstance(module, Module):
            raise TypeError(f"`{name}` computes within {core.of.__name__}: assign a module, `remat.nn.Identity()` for none")
        if not core.native.takes_tap(path):
            raise TypeError(
                f"`{path}` of {core.of.__name__} is no layer of one tensor, and nothing can stand in its place: "
                f"replace one of its parts{_examples(core, path)}, or call the network from a module of your own"
            )
        self._modules[name] = module
        self._tap(name)

    def _tap(self, name: str) -> None:
        """Connects the module in the place of a part, or the part's hooks, to the compiled layer."""
        core, path = self._place()[0], self._path_of(name)
        module = self._modules[name]
        is_part = isinstance(module, Part) and module._place() == (core, path)
        has_hooks = is_part and bool(module._forward_hooks or module._forward_pre_hooks or module._listens)
        if is_part and not has_hooks:
            if path in core.replaced:
                core.tap(path, None, False)
        else:
            core.tap(path, module, not is_part)

    def _tap_all(self) -> None:
        """As `_tap`, for all parts within. For a compiled layer that was made anew."""
        for name, module in self._modules.items():
            if not isinstance(module, Part) or module._forward_hooks or module._forward_pre_hooks:
                self._tap(name)
            if isinstance(module, Part) and module._place()[0] is self._place()[0]:
                module._tap_all()

    def _takes(self, name: str, value: Any) -> bool:
        """True if an assignment named a part or a parameter; it is done then. Errors: TypeError for an assignment
        without effect."""
        core = self._place()[0]
        if name in self._parameters or name in self._buffers:
            if value is not getattr(self, name):
                raise TypeError(f"`{name}` of {core.of.__name__} stays the same parameter: change its value by `set_`")
            return True
        if name in self._modules:
            self._replace(name, value)
            return True
        if isinstance(value, (Module, Parameter)) and _is_ours(type(self)):
            has = ", ".join(self._modules) or "none"
            raise TypeError(
                f"{core.of.__name__} would never use `{name}`: only its parts ({has}) compute within it; replace one of them, or "
                "call the network from a module of your own"
            )
        return False

    def __delattr__(self, name: str) -> None:
        if name in self._parameters or name in self._buffers or name in self._modules:
            raise TypeError(f"`{name}` computes within {self._place()[0].of.__name__} and stays: put `remat.nn.Identity()` in its place")
        super().__delattr__(name)

    def add_module(self, name: str, module: Optional[Module]) -> None:
        """Puts a module in the place of a part. Errors: TypeError for a name that is no part."""
        setattr(self, name, module)


def _class_of_ours(of: type) -> Any:
    """The class of this package from which `of` derives; `of` may be a user's subclass of it."""
    return next(c for c in of.__mro__ if _is_ours(c))


def _is_ours(of: type) -> bool:
    """True for classes of this package, whose `forward` uses only the compiled layer."""
    return of.__module__.split(".")[0] == "remat"


def _examples(core: Core, path: str) -> str:
    """Some parts below a path that other modules can replace."""
    names = {n.rsplit(".", 1)[0] for n in core.parameters if n.startswith(f"{path}.")}
    some = sorted(n for n in names if core.native.takes_tap(n))[:3]
    return f" (`{'`, `'.join(some)}`)" if some else ""


class Part(_Inside):
    """A part of a network of the library. It computes within the network, with its parameters, modes and hooks.

    A part that is a layer of one tensor has hooks, and another module can be assigned in its place. A part is not
    called by itself.
    """

    def __init__(self, core: Core, path: str):
        super().__init__()
        object.__setattr__(self, "_of", (core, path))
        object.__setattr__(self, "_listens", False)

    def _place(self) -> Tuple[Core, str]:
        return self.__dict__["_of"]

    def __setattr__(self, name: str, value: Any) -> None:
        if "_of" in self.__dict__ and self._takes(name, value):
            return
        super().__setattr__(name, value)

    def _mode_changed(self, training: bool) -> None:
        core, path = self._place()
        core.native.set_training_of(path, training)

    def _listen(self) -> None:
        core, path = self._place()
        if not core.native.takes_tap(path):
            raise TypeError(
                f"`{path}` of {core.of.__name__} is no layer of one tensor: hooks are of the layers within{_examples(core, path)}"
            )
        if path not in core.replaced:
            object.__setattr__(self, "_listens", True)
            core.tap(path, self, False)

    def register_forward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(part, (x,), y)` when the part has computed within its network. Errors: TypeError for a part of several tensors."""
        self._listen()
        return super().register_forward_hook(hook)

    def register_forward_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Calls `hook(part, (x,))` before the part computes. Errors: as `register_forward_hook`."""
        self._listen()
        return super().register_forward_pre_hook(hook)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """A part is not called by itself."""
        core, path = self._place()
        raise NotImplementedError(f"`{path}` computes within {core.of.__name__}, and is not called by itself: call the network")

    def extra_repr(self) -> str:
        """The text that `repr` shows between the brackets."""
        return "" if self._modules else ", ".join(self._parameters)


class CompiledLayer(_Inside):
    """A module that holds one compiled layer, and registers its parameters under their names."""

    # the name of the compiled layer's class, if it differs from this class's
    KIND = ""
    # true if the options are the fields of a config
    _has_config = False
    # names of parts in other libraries, as aliases
    _also: Dict[str, str] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Makes the layers of this package note the arguments that they were made with."""
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__ and _is_ours(cls):
            cls.__init__ = _noted(cls.__init__)  # type: ignore[method-assign]

    def _make(
        self, device: Optional[Device] = None, dtype: DTypeLike = "float32", generator: Optional[Generator] = None,
        options: Optional[Dict[str, Any]] = None,
    ) -> None:
        """Makes the compiled layer from the noted options, unless others are given."""
        made_by = _class_of_ours(type(self))
        native = _remat._NativeLayer(
            made_by.KIND or made_by.__name__, self.__dict__["_given"] if options is None else options, default_device(device), dtype,
            default_generator() if generator is None else generator,
        )
        self._begin(native)

    def _begin(self, native: Any) -> None:
        given = self.__dict__.get("_given", {})
        Module.__init__(self)
        core = Core(type(self), native)
        self.__dict__.update(_given=given, _core=core)
        if given.get("bias") is False:
            self._parameters["bias"] = None
        for name in core.parameters:
            *path, _ = name.split(".")
            at: Module = self
            for i, part in enumerate(path):
                if part not in at._modules:
                    at._modules[part] = Part(core, ".".join(path[: i + 1]))
                at = at._modules[part]
        self._register()

    def _register(self) -> None:
        """Puts the core's parameters in their places."""
        for name, p in self.__dict__["_core"].own().items():
            *path, last = name.split(".")
            at: Module = self
            for part in path:
                at = at._modules[part]
            (at._parameters if p.is_trained else at._buffers)[last] = p

    @property
    def _layer(self) -> Any:
        return self.__dict__["_core"].native

    @property
    def _options(self) -> Dict[str, Any]:
        options: Dict[str, Any] = self._layer.options
        return options

    def _place(self) -> Tuple[Core, str]:
        return self.__dict__["_core"], ""

    def __getattr__(self, name: str) -> Any:
        given = self.__dict__.get("_given", {})
        if name in given and name not in self.__dict__["_parameters"]:
            return given[name]
        return super().__getattr__(type(self)._also.get(name, name))

    def __setattr__(self, name: str, value: Any) -> None:
        name = type(self)._also.get(name, name)
        if "_core" in self.__dict__:
            if self._takes(name, value):
                return
            if name in self.__dict__["_given"] or self._has_config and name in self._options:
                self._set_option(name, value)
                return
        super().__setattr__(name, value)

    def _set_option(self, name: str, value: Any) -> None:
        """Changes an option of the layer. Errors: TypeError for a fixed option; those of making such a layer."""
        core, given = self.__dict__["_core"], self.__dict__["_given"]
        if name in given and _same(given[name], value):
            return
        if name == "momentum" and value is not None and core.native.options.get("momentum") is not None:
            core.native.set_momentum(value)
        elif self._has_config or "layer" in core.native.options or name == "init" or not core.change({**given, name: value}):
            raise self._fixed(name, value)
        else:
            self._tap_all()
        self.__dict__["_given"] = {**given, name: value}

    def _fixed(self, name: str, value: Any) -> TypeError:
        made = f"{type(self).__name__}(.., {name}={value!r})"
        return TypeError(
            f"`{name}` of {type(self).__name__} is fixed when it is made: make another one, {made}, and load this one's `state_dict` "
            "into it where it fits"
        )

    def _mode_changed(self, training: bool) -> None:
        self._layer.set_training(training)

    def _moved(self, device: Device, dtype: Optional[DTypeLike]) -> Dict[int, Tuple[Parameter, Parameter]]:
        core: Core = self.__dict__["_core"]
        own = list(core.own().values())
        if not own or all(p.device == device and _kept_dtype(p, dtype) for p in own):
            return {}
        moved = core.move(device, own[0].dtype if dtype is None else dtype)
        self._register()
        self._tap_all()
        return moved

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._tap_all()

    def extra_repr(self) -> str:
        """The text that `repr` shows between the brackets."""
        return _shown(self._options)


def _kept_dtype(p: Tensor, dtype: Optional[DTypeLike]) -> bool:
    """True if a conversion to `dtype` leaves `p` as it is."""
    return dtype is None or not p.dtype.is_floating_point or p.dtype == _remat.dtype(dtype)


def _shown(options: Dict[str, Any]) -> str:
    """Options as they are shown. A wrapped layer is shown as its class with its options."""
    texts = {k: f"{v[0]}({_shown(v[1])})" if k == "layer" else v for k, v in options.items()}
    return ", ".join(f"{k}={v}" for k, v in texts.items())


def _same(a: Any, b: Any) -> bool:
    """True for options that are equal and of the same type, so that 1 is not True."""
    return type(a) is type(b) and bool(a == b)


def _noted(make: Callable[..., None]) -> Callable[..., None]:
    """Wraps a class's `__init__` so that it notes its options, defaults included, unless that of a subclass has noted
    them."""
    signature = inspect.signature(make)

    @functools.wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if "_given" not in self.__dict__:
            try:
                bound = signature.bind(self, *args, **kwargs)
            except TypeError as e:
                takes = ", ".join(n for n in signature.parameters if n != "self")
                raise TypeError(f"{type(self).__name__}: {e}; it takes {takes}") from None
            bound.apply_defaults()
            given: Dict[str, Any] = {}
            for name, value in bound.arguments.items():
                is_rest = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
                given.update(value if is_rest else {name: value})
            options = {n: v for n, v in given.items() if n not in RESERVED and not isinstance(v, Module)}
            self.__dict__["_given"] = options
        make(self, *args, **kwargs)

    return init
