"""Checkpoints: the whole state that a training run needs to go on bit for bit."""
import json
import os
from typing import Any, Optional, Tuple, Union

from . import _remat
from ._files import StateDict
from ._remat import Device, Generator
from ._support import default_device, default_generator
from .nn.module import Module
from .optim import Optimizer, Schedule

PathLike = Union[str, "os.PathLike[str]"]


class Checkpoint:
    """A checkpoint that was read from a folder. `Checkpoint(folder)` reads one, and `Checkpoint.save` writes one.

    It has parameters, buffers and the generators of layers such as dropout, the optimiser's options and state, the
    run's generator, the place in the data, and the values below. A run that is restored in a new process goes on bit
    for bit. It is one file, `checkpoint.safetensors`, with checksums over every byte. The library's Rust programs read
    and write the same format.

    Attributes:
        step: steps done.
        epoch: epochs done.
        schedule: the learning rate's schedule, or None.
        position: epoch and batch of the loader that come next, or None.
        user: the value that was given as `user`: anything that JSON has.

    Errors, naming the file and the tensor or field: IoError; FormatError for a file that is no checkpoint, or in which
    a bit has changed.

    >>> import remat, tempfile
    >>> net = remat.nn.Sequential(remat.nn.Linear(2, 4), remat.nn.Dropout(0.5))
    >>> optimizer = remat.optim.AdamW(net, lr=0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     remat.Checkpoint.save(folder, net, optimizer, step=3, user={"best": 0.5})
    ...     checkpoint = remat.Checkpoint(folder)
    >>> other = remat.nn.Sequential(remat.nn.Linear(2, 4), remat.nn.Dropout(0.5))
    >>> again = remat.optim.AdamW(other, lr=0.2)
    >>> checkpoint.restore(other, again)
    >>> checkpoint.step, checkpoint.user, again.lr, bool((other[0].weight == net[0].weight).all())
    (3, {'best': 0.5}, 0.1, True)
    """

    def __init__(self, folder: PathLike):
        self._of = _remat._Checkpoint(os.fspath(folder))
        train = json.loads(self._of.train)
        self.step: int = train["step"]
        self.epoch: int = train["epoch"]
        self.user: Any = train["user"]
        self.schedule: Optional[Schedule] = None if train["schedule"] is None else Schedule(train["schedule"])
        at = train["loader"]
        self.position: Optional[Tuple[int, int]] = None if at is None else (at["epoch"], at["batch"])

    @staticmethod
    def save(
        folder: PathLike, module: Module, optimizer: Optional[Optimizer] = None, *, loader: Any = None,
        generator: Optional[Generator] = None, schedule: Optional[Schedule] = None, step: int = 0, epoch: int = 0,
        user: Any = None,
    ) -> None:
        """Writes a checkpoint into a folder, and replaces an older one. The folder is made if it does not exist.

        `generator` is the default one unless given. `loader` is a `remat.data.DataLoader`, or any object with such a
        `position`. Other programs may save and load there at the same time: every checkpoint that is read is whole.
        Errors, after which the old checkpoint stays: IoError; the failure of a tensor, and other failures on its device
        that no call has reported; TypeError for a `user` that JSON cannot hold.

        >>> import remat, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     remat.Checkpoint.save(folder, remat.nn.Linear(1, 1), epoch=2)
        ...     remat.Checkpoint(folder).epoch
        2
        """
        if not isinstance(module, Module):
            raise TypeError(f"a checkpoint is of a remat.nn.Module, not of {type(module).__name__}")
        if optimizer is not None and not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"a checkpoint has one optimiser of remat.optim, not {type(optimizer).__name__}; of several give one, and the "
                "`state_dict` of the others by `remat.save`"
            )
        position = None
        if loader is not None:
            at = loader.position
            position = {"epoch": at[0], "batch": at[1]}
        try:
            user_text = json.dumps(user, allow_nan=False)
        except (TypeError, ValueError) as e:
            raise TypeError(f"`user` is kept as JSON, which has no form for it: {e}") from None
        train = json.dumps({
            "step": step, "epoch": epoch, "schedule": None if schedule is None else schedule._of, "loader": position,
            "user": json.loads(user_text),
        })
        _remat.save_checkpoint(
            os.fspath(folder), module._library_state(), None if optimizer is None else optimizer._of,
            default_generator() if generator is None else generator, train,
        )

    @staticmethod
    def prepare(folder: PathLike) -> None:
        """Checks that a checkpoint can be written into a folder, so that a run fails before its work and not after it.
        Errors: IoError.

        >>> import remat, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     remat.Checkpoint.prepare(folder)
        """
        _remat.prepare_checkpoint(os.fspath(folder))

    @staticmethod
    def exists(folder: PathLike) -> bool:
        """True if there is a checkpoint in a folder.

        >>> import remat, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     remat.Checkpoint.exists(folder)
        False
        """
        return _remat.checkpoint_is_in(os.fspath(folder))

    def restore(
        self, module: Module, optimizer: Optional[Optimizer] = None, *, loader: Any = None, generator: Optional[Generator] = None
    ) -> None:
        """Restores module, optimiser, loader and generator from the checkpoint: all of them, or none.

        `generator` is the default one unless given. Module and optimiser must have exactly the names, shapes and dtypes
        that were saved. Errors, after which nothing has changed: ArgumentError, which names every value that does not
        fit; BudgetError if there is no room for the old and the new state together; FormatError or ArgumentError for
        options of another optimiser.
        """
        if loader is not None and self.position is None:
            raise ValueError("the checkpoint has no place in the data: it was saved without `loader`")
        before = None if loader is None else loader.position
        if loader is not None:
            loader.position = self.position
        try:
            self._of.restore(
                module._library_state(), None if optimizer is None else optimizer._of,
                default_generator() if generator is None else generator,
            )
        except BaseException:
            if loader is not None:
                loader.position = before
            raise

    def state_dict(self, device: Optional[Device] = None) -> StateDict:
        """Only the parameters and buffers, by name, as tensors. For a module that is used and not trained. Errors:
        BudgetError.

        >>> import remat, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     remat.Checkpoint.save(folder, remat.nn.Linear(1, 1))
        ...     list(remat.Checkpoint(folder).state_dict())
        ['bias', 'weight']
        """
        return StateDict(self._of.model(default_device(device)))

    def __repr__(self) -> str:
        return f"Checkpoint(step={self.step}, epoch={self.epoch}, has_optimizer={self._of.has_optimizer})"
