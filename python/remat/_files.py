"""Weights in files: safetensors, and files that PyTorch's `torch.save` wrote."""
import os
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

from . import _remat
from ._creation import asarray
from ._remat import Device, Tensor
from ._support import default_device
from .nn.module import Module

PathLike = Union[str, "os.PathLike[str]"]


class StateDict(Dict[str, Tensor]):
    """Tensors by name, as a file has them, and the other values in the file.

    Attributes:
        metadata: text by key of a safetensors file; every number and text beside the tensors of a PyTorch file
            (`"epoch"`, `"optimizer.param_groups.0.lr"`).

    >>> import remat
    >>> state = remat.StateDict({"w": remat.ones(2)}, metadata={"made": "today"})
    >>> state["w"].tolist(), state.metadata
    ([1.0, 1.0], {'made': 'today'})
    """

    def __init__(self, tensors: Any = (), metadata: Optional[Mapping[str, Any]] = None):
        super().__init__(tensors)
        self.metadata: Dict[str, Any] = dict(metadata or {})


def save(obj: Union[Module, Mapping[str, Any]], path: PathLike, metadata: Optional[Mapping[str, str]] = None) -> None:
    """Writes a module's state, or tensors by name, to a file of the safetensors format; names, shapes and dtypes are kept.

    An old file is replaced only when all of the new one is on the disk, so a reader sees one or the other.
    `Checkpoint.save` saves a training run. Errors, after which the old file stays: IoError; TypeError for values that
    are no tensors by name; the failure of a tensor.

    >>> import os, remat, tempfile
    >>> net = remat.nn.Linear(2, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "net.safetensors")
    ...     remat.save(net, path, metadata={"task": "doubling"})
    ...     state = remat.load(path)
    >>> sorted(state), state.metadata, bool((state["weight"] == net.weight).all())
    (['bias', 'weight'], {'task': 'doubling'}, True)
    """
    state: Any = obj.state_dict() if isinstance(obj, Module) else obj
    if not isinstance(state, Mapping):
        raise TypeError(f"save() takes a module or a mapping of names to tensors, not {type(obj).__name__}")
    for name, value in state.items():
        if not isinstance(name, str):
            raise TypeError(f"names of tensors are texts; there is {name!r}")
        if isinstance(value, Mapping):
            raise TypeError(f"`{name}` is a mapping, not a tensor: a training run is saved by remat.Checkpoint.save")
    text = {} if metadata is None else metadata
    for key, value in text.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata are texts by key; there is {key!r}: {value!r}")
    _remat.save_tensors([(name, asarray(v)) for name, v in state.items()], dict(text), os.fspath(path))


def load(path: PathLike, device: Optional[Device] = None) -> StateDict:
    """The tensors of a file by name. The file has the safetensors format, or PyTorch's `torch.save` wrote it; its first
    bytes tell which.

    No code of a file is run. Names in PyTorch files are the keys and places on the way to a tensor, joined by dots:
    `state_dict.layer1.weight`. Errors, naming file and tensor: IoError; FormatError for a file that is damaged or of
    another format; DTypeError for a dtype that this library does not have (in PyTorch files, complex and quantised
    numbers); BudgetError.

    >>> import os, remat, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.safetensors")
    ...     remat.save({"x": remat.ones(2, dtype="bfloat16")}, path)
    ...     x = remat.load(path)["x"]
    >>> x.dtype, x.tolist()
    (remat.bfloat16, [1.0, 1.0])
    """
    return _load(path, "auto", device)


def load_torch(path: PathLike, device: Optional[Device] = None) -> StateDict:
    """As `load`, but only for a file that PyTorch's `torch.save` wrote (`.pt`, `.pth`). PyTorch need not be installed.

    >>> import os, remat, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "x.safetensors")
    ...     remat.save({"x": remat.ones(2)}, path)
    ...     try:
    ...         remat.load_torch(path)
    ...     except remat.FormatError as e:
    ...         print("x.safetensors" in str(e))
    True
    """
    return _load(path, "torch", device)


def _load(path: PathLike, kind: str, device: Optional[Device]) -> StateDict:
    tensors, said = _remat.load_tensors(os.fspath(path), kind, default_device(device))
    return StateDict(tensors, metadata=dict(said))


def load_weights(
    module: Module, path: PathLike, names: Optional[str] = None, within: str = "", strict: bool = True
) -> Tuple[List[str], List[str]]:
    """Replaces a module's parameters and buffers by a file's, all of them or none. Floats are cast to the parameters' dtypes.

    As `module.load_state_dict(remat.load(path))`, but one tensor at a time: the device holds no second copy of the
    file. `names` maps the file's names to the module's: one of `published_names()`, or rules, one a line, such as
    `"backbone.{x*} -> {x}"`; see `NameMap` in the library. `within` selects the part of a file whose names begin with
    it: `"state_dict."`. Returns the names that were missing and those that were not expected; they are errors if
    `strict`.

    Errors, after which nothing has changed: those of `load`; ArgumentError, which names every value that does not fit,
    each with the nearest name of the other side; BudgetError.

    >>> import os, remat, tempfile
    >>> theirs, ours = remat.nn.Linear(2, 3), remat.nn.Linear(2, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "net.safetensors")
    ...     remat.save({f"head.{name}": p for name, p in theirs.state_dict().items()}, path)
    ...     remat.load_weights(ours, path, names="head.{p} -> {p}")
    ([], [])
    >>> bool((ours.weight == theirs.weight).all())
    True
    """
    _, missing, unexpected = _remat.load_weights(module._library_state(), os.fspath(path), names, within, strict)
    return missing, unexpected


def published_names() -> List[str]:
    """The layouts of published files that `load_weights` knows.

    >>> import remat
    >>> "torchvision/resnet" in remat.published_names()
    True
    """
    return _remat.published_names()
