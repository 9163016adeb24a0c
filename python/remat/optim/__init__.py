"""Optimisers, whose steps happen as a whole or not at all, and learning rates as functions of the step."""
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

from .. import _remat
from .._remat import Parameter, Tensor
from .._schedules import (
    Plateau, Schedule, chained, constant, cosine, cosine_restarts, exponential, inverse_sqrt, linear, multi_step, one_cycle, polynomial,
    sequential, step,
)
from ..nn.module import Module

Parameters = Union[Module, Iterable[Any]]


def _named(parameters: Any, start: int = 0) -> List[Tuple[str, Parameter]]:
    """Parameters with names: those of a module, those given in pairs, or numbers."""
    if isinstance(parameters, Module):
        return list(parameters.named_parameters())
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    if isinstance(parameters, str) or not isinstance(parameters, Iterable):
        raise TypeError(f"an optimiser takes a module or parameters, not {type(parameters).__name__}")
    named = []
    for i, p in enumerate(parameters):
        pair = tuple(p) if isinstance(p, tuple) else (f"parameter{start + i}", p)
        if len(pair) != 2 or not isinstance(pair[1], Tensor):
            raise TypeError(f"parameter {start + i} of an optimiser is a {type(p).__name__}, not a parameter")
        named.append(pair)
    return named


def _betas(betas: Any) -> Tuple[float, float]:
    """Both rates of `betas`. Errors: ValueError if they are not two."""
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ValueError(f"betas is {betas!r}, must be two numbers")
    return betas[0], betas[1]


def _both(betas: Any) -> Dict[str, float]:
    first, second = _betas(betas)
    return {"beta1": first, "beta2": second}


class ParamGroup(Dict[str, Any]):
    """The options of a group of parameters, and the parameters as `params`. Setting an option sets it in the optimiser.

    >>> import remat
    >>> optimizer = remat.optim.SGD([remat.nn.Parameter(remat.ones(1))], lr=0.5)
    >>> optimizer.param_groups[0]["lr"] = 0.25
    >>> optimizer.lr, len(optimizer.param_groups[0]["params"])
    (0.25, 1)
    """

    def __init__(self, of: "Optimizer", index: int, options: Dict[str, Any], params: List[Parameter]):
        super().__init__(options, params=params)
        if "beta1" in options:
            super().__setitem__("betas", (super().pop("beta1"), super().pop("beta2")))
        self._of, self._index = of, index

    def __setitem__(self, name: str, value: Any) -> None:
        if name == "params":
            raise TypeError("the parameters of a group stay; `add_param_group` adds others")
        self._of.set_group(self._index, **{name: value})
        super().__setitem__(name, value)


class Optimizer:
    """An optimiser over parameters in groups. Each group may have options of its own.

    `params` is a module, parameters, pairs of a name and a parameter, or dictionaries `{"params": .., "lr": ..}`, one a group.
    A step moves every parameter that has a gradient and drops the gradients. If anything failed, nothing has moved.
    This is the base of all optimisers; make `remat.optim.SGD` or another one.

    >>> import remat
    >>> isinstance(remat.optim.SGD(remat.nn.Linear(2, 2), lr=0.1), remat.optim.Optimizer)
    True
    """

    _kind = ""
    # the group of ranks among which state is divided, if it is
    _group: Any = None

    @classmethod
    def _divided(cls, params: Parameters, group: Any, options: Dict[str, Any]) -> "Optimizer":
        """An optimiser of this class over one group of parameters, whose state is divided among ranks."""
        made = cls.__new__(cls)
        made._group = group
        cls.__init__(made, params, **options)
        return made

    def __init__(self, params: Parameters, options: Dict[str, Any]):
        self._defaults = dict(options)
        groups: List[Tuple[Any, Dict[str, Any]]] = []
        given = list(params) if isinstance(params, Iterable) and not isinstance(params, (Module, Tensor, str)) else params
        if isinstance(given, list) and given and isinstance(given[0], dict):
            for g in given:
                own = {k: v for k, v in g.items() if k != "params"}
                groups.append((g["params"], {**options, **self._options(own)}))
        else:
            groups.append((given, options))
        self._count = 0
        self._params: List[List[Parameter]] = []
        self._names: List[List[str]] = []
        self._of: Any = None
        for of, own in groups:
            self._add(of, own)

    @classmethod
    def _options(cls, given: Dict[str, Any]) -> Dict[str, Any]:
        """Options under the library's names."""
        given = dict(given)
        if "betas" in given:
            given["beta1"], given["beta2"] = _betas(given.pop("betas"))
        return given

    def _add(self, params: Any, options: Dict[str, Any]) -> None:
        named = _named(params, self._count)
        if not named:
            raise ValueError("no parameters: an optimiser, and each of its groups, has one at least")
        self._count += len(named)
        self._device = named[0][1].device if named else None
        self._params.append([p for _, p in named])
        self._names.append([n for n, _ in named])
        if self._of is None:
            self._of = _remat._NativeOptimizer(self._kind, named, options, self._group)
        else:
            self._of.add_group(named, options)

    def __getstate__(self) -> Dict[str, Any]:
        if self._group is not None:
            raise TypeError("an optimiser whose state is divided among ranks has no copies: save its `state_dict`")
        groups = [list(zip(n, p)) for n, p in zip(self._names, self._params)]
        return {"defaults": self._defaults, "groups": groups, "options": self.groups, "state": self.state_dict()}

    def __setstate__(self, of: Dict[str, Any]) -> None:
        self._defaults, self._count, self._params, self._names, self._of = of["defaults"], 0, [], [], None
        for named, options in zip(of["groups"], of["options"]):
            self._add(named, options)
        self.load_state_dict(of["state"])

    def add_param_group(self, group: Dict[str, Any]) -> None:
        """Adds the parameters `group["params"]`. The other entries are options; missing ones are those that the
        optimiser was made with.

        >>> import remat
        >>> a, b = remat.nn.Parameter(remat.ones(1)), remat.nn.Parameter(remat.ones(1))
        >>> optimizer = remat.optim.SGD([a], lr=0.5, momentum=0.9)
        >>> optimizer.add_param_group({"params": [b], "lr": 0.25})
        >>> [(g["lr"], g["momentum"]) for g in optimizer.groups]
        [(0.5, 0.9), (0.25, 0.9)]
        """
        own = self._options({k: v for k, v in group.items() if k != "params"})
        self._add(group["params"], {**self._defaults, **own})

    def set_group(self, index: int, **options: Any) -> None:
        """Changes options of a group. Errors, after which nothing has changed: ArgumentError for an unknown option, or
        one outside its domain."""
        self._of.set_group(index, self._options(options))

    @property
    def groups(self) -> List[Dict[str, Any]]:
        """The present options of each group."""
        groups: List[Dict[str, Any]] = self._of.groups()
        return groups

    @property
    def param_groups(self) -> List[ParamGroup]:
        """The groups as dictionaries, as in PyTorch: `optimizer.param_groups[0]["lr"] = 0.1` changes the rate."""
        return [ParamGroup(self, i, g, self._params[i]) for i, g in enumerate(self.groups)]

    @property
    def lr(self) -> float:
        """The learning rate of the first group. Setting it scales the rates of the others, so that groups keep their
        proportions."""
        return self._of.lr

    @lr.setter
    def lr(self, lr: float) -> None:
        self._of.lr = lr

    def step(self) -> None:
        """Moves every parameter that has a gradient, drops the gradients, and ends the step.

        Errors, after which nothing has moved: failures on the device that no call has reported.
        """
        self._of.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops every accumulated gradient; `step` does so too. Gradients are then None, whatever `set_to_none`
        says."""
        self._of.zero_grad()

    def skip_step(self) -> None:
        """Gives up a step after an error: drops the gradients, so that the next step can begin."""
        self._of.skip_step()

    def state_dict(self) -> Dict[str, Any]:
        """Options and state by name, for `load_state_dict`. If the state is divided among ranks, all of them call this
        and get the whole."""
        if self._group is not None:
            return {"options": self._of.options(), "state": dict(self._of.whole_state(self._device))}
        return {"options": self._of.options(), "state": {name: p.detach() for name, p in self._of.state()}}

    def load_state_dict(self, state: Dict[str, Any], strict: bool = True) -> None:
        """Goes on from a state that `state_dict` returned. Errors: ArgumentError, FormatError."""
        _remat._State.of_parameters(self._of.state()).load(list(state["state"].items()), strict)
        self._of.load_options(state["options"])


class SGD(Optimizer):
    """`b = momentum b + (1 - dampening) (grad + weight_decay p); p -= lr b`, or Nesterov's form, as `torch.optim.SGD`.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.ones(1))
    >>> optimizer = remat.optim.SGD([p], lr=0.5)
    >>> (p * 1.0).sum().backward(); optimizer.step(); p.tolist()
    [0.5]
    """

    _kind = "sgd"

    def __init__(
        self, params: Parameters, lr: float = 1e-3, momentum: float = 0.0, dampening: float = 0.0, weight_decay: float = 0.0,
        nesterov: bool = False, maximize: bool = False,
    ):
        options = {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize,
        }
        super().__init__(params, options)


class AdamW(Optimizer):
    """Adam whose weight decay acts on the parameter (Loshchilov and Hutter, ICLR 2019), as `torch.optim.AdamW`.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.ones(1))
    >>> optimizer = remat.optim.AdamW([p], lr=0.1, weight_decay=0.0)
    >>> (p * 1.0).sum().backward(); optimizer.step(); round(p.item(), 4)
    0.9
    """

    _kind = "adamw"
    _decoupled = True

    def __init__(
        self, params: Parameters, lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: Optional[float] = None, amsgrad: bool = False,
    ):
        decay = (0.01 if self._decoupled else 0.0) if weight_decay is None else weight_decay
        options = {
            "lr": lr, **_both(betas), "eps": eps, "weight_decay": decay, "decoupled": self._decoupled,
            "amsgrad": amsgrad,
        }
        super().__init__(params, options)


class Adam(AdamW):
    """Adam (Kingma and Ba, ICLR 2015), whose weight decay is a part of the gradient, as `torch.optim.Adam`.

    >>> import remat
    >>> p = remat.nn.Parameter(remat.ones(1))
    >>> remat.optim.Adam([{"params": [p], "lr": 0.1}]).groups[0]["weight_decay"]
    0.0
    """

    _decoupled = False


def _plain(name: str, kind: str, text: str) -> Any:
    """Makes an optimiser class whose options have the library's names and defaults."""

    class Plain(Optimizer):
        _kind = kind

        def __init__(self, params: Parameters, lr: Optional[float] = None, **options: Any):
            given = options if lr is None else {"lr": lr, **options}
            super().__init__(params, self._options(given))

    Plain.__name__ = Plain.__qualname__ = name
    Plain.__module__ = "remat.optim"
    Plain.__doc__ = f"""{text} Options are by keyword, and `groups` shows them with their defaults.

    >>> import remat
    >>> net = remat.nn.Linear(2, 1)
    >>> optimizer = remat.optim.{name}(net, lr=0.01)
    >>> net(remat.ones(1, 2)).sum().backward()
    >>> optimizer.step()
    >>> optimizer.lr, net.weight.grad is None
    (0.01, True)
    """
    return Plain


Adadelta = _plain("Adadelta", "adadelta", "Adadelta (Zeiler, 2012).")
Adafactor = _plain("Adafactor", "adafactor", "Adafactor (Shazeer and Stern, ICML 2018).")
Adagrad = _plain("Adagrad", "adagrad", "Adagrad (Duchi et al., JMLR 2011).")
Adamax = _plain("Adamax", "adamax", "Adamax (Kingma and Ba, ICLR 2015).")
Lamb = _plain("Lamb", "lamb", "LAMB (You et al., ICLR 2020).")
Lion = _plain("Lion", "lion", "Lion (Chen et al., NeurIPS 2023).")
NAdam = _plain("NAdam", "nadam", "NAdam (Dozat, 2016).")
RAdam = _plain("RAdam", "radam", "RAdam (Liu et al., ICLR 2020).")
RMSprop = _plain("RMSprop", "rmsprop", "RMSprop (Hinton, 2012).")


class SparseAdam(Optimizer):
    """Adam for the rows of tables that were looked up, as `torch.optim.SparseAdam`. Other rows and their moments stay
    as they are.

    For the weights of embeddings with `sparse=True`. Errors: ArgumentError at the step, after which nothing has moved,
    for a gradient that is a dense tensor. That is the gradient of another layer, or one that was read or clipped or has
    hooks.

    >>> import remat
    >>> table = remat.nn.Embedding(1000, 4, sparse=True)
    >>> optimizer = remat.optim.SparseAdam(table, lr=0.01)
    >>> table(remat.tensor([3, 7])).sum().backward()
    >>> optimizer.step()
    """

    _kind = "sparse_adam"

    def __init__(
        self, params: Parameters, lr: float = 1e-3, betas: Tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        maximize: bool = False,
    ):
        super().__init__(params, {"lr": lr, **_both(betas), "eps": eps, "maximize": maximize})


class LBFGS:
    """L-BFGS (Liu and Nocedal, 1989), as `torch.optim.LBFGS`. `step(closure)` calls a function that computes the loss,
    as often as it needs. It takes the gradients itself, and waits. It needs the memory of `2 history_size + 2` copies
    of the parameters.

    Errors: ArgumentError for options outside their domain or no parameter; DTypeError, DeviceError for parameters of two.

    >>> import remat
    >>> net, x = remat.nn.Linear(1, 1), remat.tensor([[1.0], [2.0], [3.0]])
    >>> optimizer = remat.optim.LBFGS(net, line_search_fn="strong_wolfe")
    >>> _ = optimizer.step(lambda: remat.nn.mse_loss(net(x), 2 * x + 1))
    >>> abs(net.weight.item() - 2) < 1e-3
    True
    """

    def __init__(
        self, params: Parameters, lr: float = 1.0, max_iter: int = 20, max_eval: Optional[int] = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100,
        line_search_fn: Optional[str] = None,
    ):
        if line_search_fn not in (None, "strong_wolfe"):
            raise ValueError(f"line_search_fn is None or `strong_wolfe`, not `{line_search_fn}`")
        options = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_eval, "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change, "history": history_size, "line_search": line_search_fn is not None,
        }
        self._begin(_named(params), options)

    def __getstate__(self) -> Dict[str, Any]:
        return {"named": self._named, "options": {**self._given, "lr": self.lr}, "state": self.state_dict()}

    def __setstate__(self, of: Dict[str, Any]) -> None:
        self._begin(of["named"], of["options"])
        self.load_state_dict(of["state"])

    def _begin(self, named: List[Tuple[str, Parameter]], options: Dict[str, Any]) -> None:
        self._named, self._given = named, options
        self._of = _remat._Lbfgs([p for _, p in named], options)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of the parameters; `step` computes the ones that it needs itself. Gradients are then
        None, whatever `set_to_none` says."""
        for _, p in self._named:
            p.grad = None

    @property
    def lr(self) -> float:
        """The length of a step, or the first trial of the line search."""
        return self._of.lr

    @lr.setter
    def lr(self, lr: float) -> None:
        self._of.set_lr(lr)

    @property
    def evaluations(self) -> int:
        """The number of times that the loss was computed."""
        return self._of.evaluations

    def step(self, closure: Callable[[], Tensor]) -> float:
        """Moves the parameters by up to `max_iter` iterations. Returns the loss before the step. `closure` returns the
        loss, a tensor without axes, and does not call `backward`. Errors: those of `closure`; the parameters are then
        where the last iteration left them."""
        return self._of.step(closure)

    def state_dict(self) -> Dict[str, Tensor]:
        """The history that the optimiser keeps, by name, for `load_state_dict`."""
        return dict(self._of.state(self._named[0][1].device))

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on from a state that `state_dict` returned. Errors, after which nothing has changed: ArgumentError;
        BudgetError."""
        self._of.load(list(state.items()))


class Accumulate:
    """Accumulates gradients of several batches for one step. If losses are means, the gradient is that of one batch of
    all examples.

    >>> import remat
    >>> net = remat.nn.Linear(1, 1)
    >>> optimizer, accumulate = remat.optim.SGD(net), remat.optim.Accumulate(2)
    >>> steps = 0
    >>> for _ in range(4):
    ...     if accumulate.backward(net(remat.ones(2, 1)).mean()):
    ...         optimizer.step(); steps += 1
    >>> steps
    2
    """

    def __init__(self, batches: int):
        self._of = _remat._Accumulate(batches)

    def backward(self, loss: Tensor) -> bool:
        """Adds the gradient of the loss, divided by the number of batches, to those of the parameters. True if the step
        is due. Errors: those of `Tensor.backward`; the batch then does not count."""
        return self._of.backward(loss)

    def restart(self) -> None:
        """Begins a step anew, for use after `Optimizer.skip_step`."""
        self._of.restart()


class Average:
    """A second copy of a module's state, an average over updates, as `torch.optim.swa_utils.AveragedModel`. With
    `decay` it is an exponential moving average (EMA), `a = decay a + (1 - decay) w`. With None all updates count the
    same, as in stochastic weight averaging (SWA). `buffers` averages float buffers too; otherwise the copy has their
    last values. It lies on the device, within its budget.

    >>> import remat
    >>> net = remat.nn.Linear(2, 1)
    >>> average = remat.optim.Average(net, decay=0.99)
    >>> average.update()       # after each step
    >>> average.swap()         # the averages are evaluated ..
    >>> average.swap()         # .. and training goes on
    >>> sorted(average.state_dict())
    ['bias', 'n_averaged', 'weight']
    """

    def __init__(self, module: Module, decay: Optional[float] = None, buffers: bool = False):
        self._of = _remat._Average(module._library_state(), decay, buffers)

    def update(self) -> None:
        """Takes the module's state into the average."""
        self._of.update()

    def swap(self) -> None:
        """Exchanges the module's state and the averages. A second call undoes the first."""
        self._of.swap()

    def copy_to_module(self) -> None:
        """Copies the averages to the module. Errors: BudgetError if there is no room for both."""
        self._of.copy_to_module()

    def state_dict(self) -> Dict[str, Tensor]:
        """The averages under the module's names, and the count of updates as `n_averaged`."""
        return {name: p.detach() for name, p in self._of.state()}

    def load_state_dict(self, state: Dict[str, Any], strict: bool = True) -> None:
        """Replaces the averages, all or none. Errors: ArgumentError; BudgetError."""
        _remat._State.of_parameters(self._of.state()).load(list(state.items()), strict)


def update_batch_norm(module: Module, batches: Iterable[Any], forward: Optional[Callable[[Any], Any]] = None) -> int:
    """Computes the running statistics of a module's batch norms anew, as means over all batches. It is for averaged
    weights. It calls `forward` with each batch, by default the module itself. Modes and momenta are as before when it
    returns. Returns the number of batches. Errors: those of `batches` and `forward`.

    >>> import remat
    >>> norm = remat.nn.BatchNorm1d(1)
    >>> remat.optim.update_batch_norm(norm, [remat.zeros(4, 1), remat.ones(4, 1)]), norm.running_mean.tolist()
    (2, [0.5])
    """
    modes = [(m, m.training) for m in module.modules()]
    module.train()
    try:
        return _remat.update_batch_norm(module._library_state(), iter(batches), module if forward is None else forward)
    finally:
        for m, training in modes:
            object.__setattr__(m, "training", training)
            m._mode_changed(training)


Named = List[Tuple[str, Parameter]]


def group_by_name(parameters: Parameters, patterns: Iterable[str]) -> List[Named]:
    """The parameters whose names match each pattern, and those that match none: one list more than there are patterns.
    The first matching pattern counts. `*` is any text, dots included, and `?` any character.

    >>> import remat
    >>> biases, rest = remat.optim.group_by_name(remat.nn.Linear(2, 3), ["*bias"])
    >>> [name for name, _ in biases], [name for name, _ in rest]
    (['bias'], ['weight'])
    """
    named = _named(parameters)
    return [[(n, dict(named)[n]) for n in group] for group in _remat.group_by_name(named, list(patterns))]


def split_decay(parameters: Parameters) -> Tuple[Named, Named]:
    """The parameters on which weight decay should act, and those on which it should not: vectors and numbers, such as
    biases and scales.

    >>> import remat
    >>> net = remat.nn.Linear(2, 3)
    >>> decay, others = remat.optim.split_decay(net)
    >>> optimizer = remat.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}])
    >>> [g["weight_decay"] for g in optimizer.groups]
    [0.1, 0.0]
    """
    named = _named(parameters)
    decay, others = _remat.split_decay(named)
    return [(n, dict(named)[n]) for n in decay], [(n, dict(named)[n]) for n in others]


from . import lr_scheduler  # noqa: E402  it needs `Optimizer`
