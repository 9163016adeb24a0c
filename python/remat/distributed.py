"""Training on several ranks: processes that `mpirun` started, or threads of this process.

Every rank runs the same program on its part of the data. It opens its device with its group of ranks, so that the
updates of a step are made on all ranks or on none:

    import remat
    from remat import distributed, nn, optim

    def main(ranks):
        device = remat.Device(budget="512MiB", ranks=ranks)
        remat.set_default_device(device)
        net = nn.Linear(4, 2)
        parallel = distributed.DataParallel(net, ranks)
        optimizer = optim.SGD(net, lr=0.1)
        for x, labels in batches_of(ranks.rank):
            parallel.backward(nn.cross_entropy(net(x), labels))
            optimizer.step()

    distributed.run(main)

`mpirun -n 4 python program.py` runs four processes; this needs a build with the feature `mpi`. `python program.py` runs
one rank. `distributed.run_threads(main, ranks=4)` runs four threads, for tests. The bits of results depend only on the
number of ranks, not on the way they run.
"""
from contextlib import contextmanager
from typing import Any, Callable, Iterable, Iterator, List, Optional, Tuple, Union

from . import _remat
from ._remat import Communicator, Tensor
from ._support import ShapeLike, begin_rank
from .nn.module import Module
from .optim import Optimizer

DEFAULT_LIMIT = 300.0
"""The default number of seconds that a rank waits for the others."""


def is_mpi_available() -> bool:
    """True if this build of the package has MPI.

    >>> import remat
    >>> remat.distributed.is_mpi_available() in (True, False)
    True
    """
    return _remat.has_mpi()


def run(main: Callable[..., Any], *args: Any, limit: float = DEFAULT_LIMIT) -> Any:
    """Calls `main(ranks, *args)` on every rank that the launcher (`mpirun`, `mpiexec`) started, or in this process
    alone without a launcher. Returns the result on this rank. Ranks wait for each other at most `limit` seconds. If
    `main` raises in one of several processes, the exception is printed and all of them end.

    Errors: DeviceError if there are several processes and this build has no MPI, or if they were started in a way in
    which they cannot find each other (`torchrun`, or `srun` without `--mpi`). The error says how to build the package
    or start the processes.

    >>> import remat
    >>> remat.distributed.run(lambda ranks: (ranks.rank, ranks.size))
    (0, 1)
    """
    found = _remat.launched_ranks()
    if found is None or found[1] == 1:
        return main(Communicator(), *args)
    return _remat.run_mpi(lambda ranks: main(ranks, *args), limit)


def run_threads(main: Callable[..., Any], *args: Any, ranks: int, limit: float = DEFAULT_LIMIT) -> List[Any]:
    """Calls `main(ranks, *args)` once for each of `ranks` ranks, each on a thread of its own. Returns the results in
    order. It is for tests, and shows the behaviour of several processes in one. Each thread has a default device and a
    default generator of its own.

    Errors: the exception of the first rank that failed by itself; its `rank` says which one. Ctrl-C ends the ranks at
    their next collective, or in the one in which they wait.

    >>> import remat
    >>> def main(ranks):
    ...     x = remat.ones(2, device=remat.Device(ranks=ranks)) * ranks.rank
    ...     return remat.distributed.all_reduce(x, ranks).tolist()
    >>> remat.distributed.run_threads(main, ranks=3)
    [[3.0, 3.0], [3.0, 3.0], [3.0, 3.0]]
    """

    def one(group: Communicator) -> Any:
        begin_rank()
        return main(group, *args)

    return _remat.run_threads(one, ranks, limit)


def _collective(name: str, *args: Any) -> Tensor:
    return _remat.collective(name, args)


def all_reduce(x: Tensor, group: Communicator, op: str = "sum") -> Tensor:
    """The reduction of all ranks' tensors, element by element in the order of ranks, on all ranks. `op` is `sum`, `mean`, `max`, `min`
    or `prod`. Has a gradient. Errors: DTypeError if there is no such reduction; when a value is read, PeerError if a
    rank failed, does not come, or makes another call.

    >>> import remat
    >>> remat.distributed.all_reduce(remat.ones(2), remat.distributed.Communicator()).tolist()
    [1.0, 1.0]
    """
    return _collective("all_reduce", x, group, op)


def all_gather(x: Tensor, group: Communicator, axis: int = 0) -> Tensor:
    """The tensors of all ranks, joined along `axis`, on all ranks. Errors: AxisError; and as `all_reduce`.

    >>> import remat
    >>> main = lambda r: remat.distributed.all_gather(remat.tensor([r.rank], device=remat.Device()), r).tolist()
    >>> remat.distributed.run_threads(main, ranks=2)
    [[0, 1], [0, 1]]
    """
    return _collective("all_gather", x, group, axis)


def reduce_scatter(x: Tensor, group: Communicator, op: str = "sum", axis: int = 0) -> Tensor:
    """Cuts the tensors along `axis` into as many equal parts as there are ranks. The result is this rank's part,
    reduced over all ranks. Errors: ShapeError if the axis is not divisible; AxisError; and as `all_reduce`.

    >>> import remat
    >>> main = lambda r: remat.distributed.reduce_scatter(remat.tensor([1, 2], device=remat.Device()), r).tolist()
    >>> remat.distributed.run_threads(main, ranks=2)
    [[2], [4]]
    """
    return _collective("reduce_scatter", x, group, op, axis)


def broadcast(x: Tensor, group: Communicator, root: int = 0) -> Tensor:
    """The tensor of rank `root`, on all ranks. Tensors of other ranks only give dtype and shape. Errors: ArgumentError
    for a root that does not exist; and as `all_reduce`.

    >>> import remat
    >>> main = lambda r: remat.distributed.broadcast(remat.tensor([r.rank + 5], device=remat.Device()), r).tolist()
    >>> remat.distributed.run_threads(main, ranks=2)
    [[5], [5]]
    """
    return _collective("broadcast", x, group, root)


def reduce(x: Tensor, group: Communicator, root: int = 0, op: str = "sum") -> Tensor:
    """The reduction of all ranks' tensors on rank `root`, and zeros on the others. Errors: as `all_reduce` and `broadcast`.

    >>> import remat
    >>> main = lambda r: remat.distributed.reduce(remat.tensor([1, 2], device=remat.Device()), r).tolist()
    >>> remat.distributed.run_threads(main, ranks=2)
    [[2, 4], [0, 0]]
    """
    return _collective("reduce", x, group, root, op)


def gather(x: Tensor, group: Communicator, root: int = 0, axis: int = 0) -> Tensor:
    """The tensors of all ranks, joined along `axis`, on rank `root`. On other ranks this axis is empty. Errors: as
    `all_gather` and `broadcast`.

    >>> import remat
    >>> main = lambda r: remat.distributed.gather(remat.tensor([r.rank], device=remat.Device()), r).tolist()
    >>> remat.distributed.run_threads(main, ranks=2)
    [[0, 1], []]
    """
    return _collective("gather", x, group, root, axis)


def scatter(x: Tensor, group: Communicator, extent: int, root: int = 0, axis: int = 0) -> Tensor:
    """This rank's part of rank `root`'s tensor: `extent` places along `axis`. On other ranks `x` only gives dtype and
    the other extents: its `axis` is empty. Errors: ShapeError for other extents; and as `all_gather` and `broadcast`.

    >>> import remat
    >>> def main(r):
    ...     x = remat.tensor([1, 2] if r.rank == 0 else [], dtype="int64", device=remat.Device())
    ...     return remat.distributed.scatter(x, r, extent=1).tolist()
    >>> remat.distributed.run_threads(main, ranks=2)
    [[1], [2]]
    """
    return _collective("scatter", x, group, root, extent, axis)


def all_to_all(x: Tensor, group: Communicator, split_axis: int = 0, concat_axis: int = 0) -> Tensor:
    """Cuts the tensor along `split_axis` into as many equal parts as there are ranks, and sends part `r` to rank `r`.
    The result is the parts that arrive, joined along `concat_axis` in the order of ranks. Errors: as `reduce_scatter`.

    >>> import remat
    >>> main = lambda r: remat.distributed.all_to_all(remat.tensor([r.rank, r.rank + 10], device=remat.Device()), r).tolist()
    >>> remat.distributed.run_threads(main, ranks=2)
    [[0, 1], [10, 11]]
    """
    return _collective("all_to_all", x, group, split_axis, concat_axis)


def send(x: Tensor, group: Communicator, to: int) -> Tensor:
    """Sends the tensor to rank `to`, which calls `receive`. The result has no elements. An operation that must happen
    after the message takes it as an input, and gradients come back through it. Errors: ArgumentError for this rank, or
    one that does not exist; when a value is read, or the device is synchronised, PeerError if that rank also sends
    instead of receiving first; and as `all_reduce`.

    >>> import remat
    >>> def main(r):
    ...     device = remat.Device()
    ...     if r.rank == 0:
    ...         return remat.distributed.send(remat.ones(2, device=device), r, to=1).tolist()
    ...     return remat.distributed.receive(r, 0, (2,), after=remat.zeros(0, device=device)).tolist()
    >>> remat.distributed.run_threads(main, ranks=2)
    [[], [1.0, 1.0]]
    """
    return _collective("send", x, group, to)


def receive(group: Communicator, source: int, shape: ShapeLike, after: Tensor) -> Tensor:
    """The tensor of this shape that rank `source` sends. `after` has the dtype and the device of the result, and no
    elements (`[0]`). It is the result of the message that must be sent before, or `remat.zeros(0)`. Errors: as `send`.

    >>> import remat
    >>> try:
    ...     remat.distributed.receive(remat.distributed.Communicator(), 1, (2,), after=remat.zeros(0)).tolist()
    ... except remat.ArgumentError as e:
    ...     print("rank" in str(e))
    True
    """
    return _collective("receive", after, group, source, shape)


class DataParallel:
    """Data parallel training of a module. Every rank has the same parameters, runs its own batch, and gets the gradient
    of the mean of all ranks' losses. The bits are those of one process that accumulates the ranks' batches in their
    order.

    Parameters and buffers become those of rank 0. All ranks make one, with modules of the same structure. Gradients are
    reduced in buckets of about `bucket_bytes` while the backward pass goes on. With `find_unused`, a parameter that no
    rank uses gets no gradient, and the ranks wait for each other to know it. Without it, such a gradient is zeros. With
    `gradients="divided"` each rank keeps its part of each gradient (ZeRO stage 2). This is for a `sharded` optimiser,
    which must be made before the first pass. Errors: ArgumentError for a device without ranks; PeerError if ranks
    differ.

    >>> import remat
    >>> from remat import distributed, nn, optim
    >>> def main(ranks):
    ...     remat.set_default_device(remat.Device(ranks=ranks))
    ...     remat.manual_seed(ranks.rank)
    ...     net = nn.Linear(1, 1)
    ...     parallel, optimizer = distributed.DataParallel(net, ranks), optim.SGD(net, lr=0.1)
    ...     for _ in range(3):
    ...         x = remat.ones(1, 1) * (1 + ranks.rank)
    ...         parallel.backward(nn.mse_loss(net(x), x))
    ...         optimizer.step()
    ...     return net.weight.item()
    >>> a, b = distributed.run_threads(main, ranks=2)
    >>> a == b
    True
    """

    def __init__(
        self, module: Module, group: Communicator, bucket_bytes: Optional[int] = None, find_unused: bool = False,
        gradients: str = "whole",
    ):
        if gradients not in ("whole", "divided"):
            raise ValueError(f"gradients are `whole` or `divided`, not `{gradients}`")
        self.module, self.group = module, group
        self._of = _remat._DataParallel(module._library_state(), group, bucket_bytes, find_unused, gradients == "divided")

    def backward(self, loss: Tensor) -> None:
        """Accumulates the gradient of the mean of all ranks' losses into the parameters. Within `no_sync` only this
        rank's loss counts. Errors: those of `Tensor.backward`; PeerError if a rank failed, or does not come."""
        self._of.backward(loss)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes within it, `parallel.backward(loss)` or `loss.backward()`, add to this rank's gradients
        without communication. The next `backward` after it reduces the sum. It is for steps of several batches. Each
        pass within it counts as much as a pass of all ranks. A `loss.backward()` outside of it adds the rank's gradient
        as it is.

        >>> import remat
        >>> from remat import distributed, nn
        >>> def main(ranks):
        ...     remat.set_default_device(remat.Device(ranks=ranks))
        ...     net = nn.Linear(1, 1)
        ...     parallel = distributed.DataParallel(net, ranks)
        ...     x = remat.ones(1, 1) * (1 + ranks.rank)
        ...     with parallel.no_sync():
        ...         parallel.backward(net(x).sum())
        ...     parallel.backward(net(x).sum())
        ...     return net.weight.grad.tolist()
        >>> distributed.run_threads(main, ranks=2)
        [[[3.0]], [[3.0]]]
        """
        self._of.begin_no_sync()
        try:
            yield
        finally:
            self._of.end_no_sync()

    def broadcast_parameters(self) -> None:
        """Copies the parameters of rank 0 to every rank, for use after rank 0 has loaded a checkpoint. Errors:
        PeerError."""
        self._of.broadcast_parameters()

    def broadcast_buffers(self) -> None:
        """Copies the buffers of rank 0 to every rank, such as running statistics before a test. Errors: PeerError."""
        self._of.broadcast_buffers()

    @property
    def buckets(self) -> int:
        """The number of buckets for gradients."""
        return self._of.buckets


def sharded(of: Any, params: Union[Module, Iterable[Any]], group: Communicator, **options: Any) -> Optimizer:
    """An optimiser of the class `of` whose state is divided among ranks (ZeRO stage 1). Each rank keeps the state of
    its part of every parameter, moves that part, and gets the parts of the others. Parameters have the bits of the same
    optimiser without division. Its `state_dict` and its checkpoint have the whole state. All ranks save and load them
    together, and they fit any number of ranks.

    Errors: ArgumentError for a rule that needs whole parameters (`Lamb`, `Adafactor`), or options outside their domain.

    >>> import remat
    >>> from remat import distributed, nn, optim
    >>> def main(ranks):
    ...     remat.set_default_device(remat.Device(ranks=ranks))
    ...     net = nn.Linear(8, 8)
    ...     parallel = distributed.DataParallel(net, ranks)
    ...     optimizer = distributed.sharded(optim.AdamW, net, ranks, lr=0.1)
    ...     parallel.backward(net(remat.ones(1, 8)).sum())
    ...     optimizer.step()
    ...     return net.weight.tolist(), len(optimizer.state_dict()["state"])
    >>> a, b = distributed.run_threads(main, ranks=2)
    >>> a == b
    True
    """
    if not (isinstance(of, type) and issubclass(of, Optimizer)):
        raise TypeError("`of` is a class of remat.optim, such as AdamW")
    return of._divided(params, group, options)


def synchronise_batch_norms(module: Module, group: Optional[Communicator]) -> int:
    """Makes the batch norms of a module compute statistics over the batches of all ranks, or with None over their own
    rank's again. Returns the number of batch norms.

    >>> import remat
    >>> remat.distributed.synchronise_batch_norms(remat.nn.BatchNorm1d(2), remat.distributed.Communicator())
    1
    """
    return _remat.set_norm_ranks(module._library_state(), group)
