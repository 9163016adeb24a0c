"""Optimisers, whose step happens as a whole or not at all, and learning rates as functions of the step."""
import json
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

from . import _remat
from ._remat import Parameter, Tensor
from .nn.module import Module

Parameters = Union[Module, Iterable[Any]]


def _named(parameters: Any, start: int = 0) -> List[Tuple[str, Parameter]]:
    """Parameters with names: a module's own, those of pairs, or numbers."""
    if isinstance(parameters, Module):
        return list(parameters.named_parameters())
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    named = []
    for i, p in enumerate(parameters):
        named.append(tuple(p) if isinstance(p, tuple) else (f"parameter{start + i}", p))
    return named


class Optimizer:
    """An optimiser over parameters in groups, which may have options of their own.

    `params` is a module, parameters, pairs of a name and a parameter, or dictionaries `{"params": .., "lr": ..}`, one a group.
    A step moves every parameter that has a gradient and drops the gradients. If anything failed, nothing has moved. The base of all
    optimisers: `remat.optim.SGD` and others are made.

    >>> import remat
    >>> isinstance(remat.optim.SGD(remat.nn.Linear(2, 2), lr=0.1), remat.optim.Optimizer)
    True
    """

    _kind = ""

    def __init__(self, params: Parameters, options: Dict[str, Any]):
        groups: List[Tuple[Any, Dict[str, Any]]] = []
        given = params if isinstance(params, (Module, Tensor)) else list(params)
        if isinstance(given, list) and given and isinstance(given[0], dict):
            for g in given:
                own = {k: v for k, v in g.items() if k != "params"}
                groups.append((g["params"], {**options, **self._options(own)}))
        else:
            groups.append((given, options))
        self._count = 0
        self._of: Any = None
        for of, own in groups:
            self._add(of, own)

    @classmethod
    def _options(cls, given: Dict[str, Any]) -> Dict[str, Any]:
        """Options in the library's names."""
        given = dict(given)
        if "betas" in given:
            given["beta1"], given["beta2"] = given.pop("betas")
        return given

    def _add(self, params: Any, options: Dict[str, Any]) -> None:
        named = _named(params, self._count)
        self._count += len(named)
        if self._of is None:
            self._of = _remat._NativeOptimizer(self._kind, named, json.dumps(options))
        else:
            self._of.add_group(named, json.dumps(options))

    def add_param_group(self, group: Dict[str, Any]) -> None:
        """Adds parameters `group["params"]` with the other entries as options; the rest are the library's defaults."""
        self._add(group["params"], self._options({k: v for k, v in group.items() if k != "params"}))

    def set_group(self, index: int, **options: Any) -> None:
        """Changes options of a group. Errors: ArgumentError for one that is not there, or outside its domain; nothing has changed."""
        self._of.set_group(index, json.dumps(self._options(options)))

    @property
    def groups(self) -> List[Dict[str, Any]]:
        """The options of each group now."""
        return [json.loads(g) for g in self._of.groups()]

    @property
    def lr(self) -> float:
        """The learning rate of the first group; setting it scales the others', so that groups keep their proportions."""
        return self._of.lr

    @lr.setter
    def lr(self, lr: float) -> None:
        self._of.lr = lr

    def step(self) -> None:
        """Moves every parameter that has a gradient, drops the gradients, and ends the step.

        Errors, after which nothing has moved: what failed on the device and was not told yet.
        """
        self._of.step()

    def zero_grad(self) -> None:
        """Drops every accumulated gradient; `step` does so too."""
        self._of.zero_grad()

    def skip_step(self) -> None:
        """Gives a step up after an error: drops the gradients, and goes on."""
        self._of.skip_step()

    def state_dict(self) -> Dict[str, Any]:
        """Options and state by name, for `load_state_dict`."""
        return {"options": self._of.options(), "state": {name: p.detach() for name, p in self._of.state()}}

    def load_state_dict(self, state: Dict[str, Any], strict: bool = True) -> None:
        """Goes on from what `state_dict` gave. Errors: ArgumentError, FormatError."""
        _remat._State(self._of.state(), []).load(list(state["state"].items()), strict)
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
            "lr": lr, "beta1": betas[0], "beta2": betas[1], "eps": eps, "weight_decay": decay, "decoupled": self._decoupled,
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
    """An optimiser whose options have the library's names and defaults."""

    class Plain(Optimizer):
        _kind = kind

        def __init__(self, params: Parameters, **options: Any):
            super().__init__(params, self._options(options))

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
Adagrad = _plain("Adagrad", "adagrad", "Adagrad (Duchi et al., JMLR 2011).")
Adamax = _plain("Adamax", "adamax", "Adamax (Kingma and Ba, ICLR 2015).")
Lamb = _plain("Lamb", "lamb", "LAMB (You et al., ICLR 2020).")
Lion = _plain("Lion", "lion", "Lion (Chen et al., NeurIPS 2023).")
NAdam = _plain("NAdam", "nadam", "NAdam (Dozat, 2016).")
RAdam = _plain("RAdam", "radam", "RAdam (Liu et al., ICLR 2020).")
RMSprop = _plain("RMSprop", "rmsprop", "RMSprop (Hinton, 2012).")


class Schedule:
    """A learning rate for each step, counted from 0: a value, without a position of its own.

    >>> import remat
    >>> s = remat.optim.cosine(lr=0.2, steps=100).after_warmup(10)
    >>> s.at(0), s.at(10), s.at(110)
    (0.02, 0.2, 0.0)
    """

    def __init__(self, of: Dict[str, Any]):
        self._of = of
        self.at(0)  # a wrong option is told here

    def at(self, step: int) -> float:
        """The learning rate of a step."""
        return _remat.schedule_at(json.dumps(self._of), step)

    def after_warmup(self, steps: int) -> "Schedule":
        """This schedule behind so many steps in which the rate grows to its first."""
        return Schedule({"warmup": {"steps": steps, "then": self._of}})

    def __repr__(self) -> str:
        return f"Schedule({self._of})"


def constant(lr: float) -> Schedule:
    """One rate.

    >>> import remat
    >>> remat.optim.constant(0.5).at(9)
    0.5
    """
    return Schedule({"constant": {"lr": lr}})


def step(lr: float, every: int, gamma: float) -> Schedule:
    """`lr gamma^floor(step / every)`.

    >>> import remat
    >>> [remat.optim.step(1.0, every=2, gamma=0.5).at(i) for i in range(4)]
    [1.0, 1.0, 0.5, 0.5]
    """
    return Schedule({"step": {"lr": lr, "every": every, "gamma": gamma}})


def multi_step(lr: float, at: List[int], gamma: float) -> Schedule:
    """`lr gamma^k`, where `k` of the milestones are at or before the step.

    >>> import remat
    >>> [remat.optim.multi_step(1.0, at=[1, 3], gamma=0.5).at(i) for i in range(4)]
    [1.0, 0.5, 0.5, 0.25]
    """
    return Schedule({"multi_step": {"lr": lr, "at": at, "gamma": gamma}})


def cosine(lr: float, steps: int, min: float = 0.0) -> Schedule:
    """`min + (lr - min) (1 + cos(pi step / steps)) / 2`, and `min` from `steps` on (Loshchilov and Hutter, ICLR 2017).

    >>> import remat
    >>> remat.optim.cosine(1.0, steps=2).at(0), remat.optim.cosine(1.0, steps=2, min=0.25).at(9)
    (1.0, 0.25)
    """
    return Schedule({"cosine": {"lr": lr, "min": min, "steps": steps}})


def linear(lr: float, end: float, steps: int) -> Schedule:
    """From `lr` to `end` in a straight line.

    >>> import remat
    >>> remat.optim.linear(1.0, end=0.0, steps=4).at(1)
    0.75
    """
    return Schedule({"linear": {"lr": lr, "end": end, "steps": steps}})


def exponential(lr: float, gamma: float) -> Schedule:
    """`lr gamma^step`.

    >>> import remat
    >>> remat.optim.exponential(1.0, gamma=0.5).at(3)
    0.125
    """
    return Schedule({"exponential": {"lr": lr, "gamma": gamma}})
