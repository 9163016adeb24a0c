"""Searches for the smallest budget of a program, and for the largest batch within a budget, by dry runs that compute
nothing."""
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional, Union

from . import _remat
from ._errors import BudgetError, PoisonedError
from ._remat import Device
from ._support import default_device, replace_default_device


@contextmanager
def _as_default(device: Device) -> Iterator[None]:
    before = replace_default_device(device)
    try:
        yield
    finally:
        replace_default_device(before)


def _tried(device: Device, program: Callable[[], Any]) -> Optional[int]:
    """None if the program succeeded; else the bytes that would suffice for the operation that failed, or 0 if they are
    unknown."""
    with _as_default(device):
        try:
            program()
            device.sync()
        except BudgetError as e:
            return e.smallest_feasible_bytes
        except PoisonedError:
            return 0
    if device.peak_bytes == 0:
        raise ValueError("the program made nothing on the default device, where it is tried: it must name no other device")
    return None


def smallest_budget(program: Callable[[], Any], *, times: Optional[float] = None, device: Optional[Device] = None) -> int:
    """The smallest budget, in bytes, under which `program` runs, within a thousandth of its peak.

    Close to this budget, steps take several times as long as without one. `times=1.5` finds the smallest budget under
    which they take at most half as long again.

    Calls `program` ten to twenty times, with a device that computes nothing as the default one. So a call takes neither
    the memory nor the time of the kernels. The program makes everything that it uses (the network, the optimiser, the
    batches) on the default device. It runs as many steps as differ: two of a training loop, since the first also makes
    the optimiser's state. It must not read values, since there are none.

    Arguments:
        program: a function without arguments.
        times: the most times as long as without a budget that the program may take. Times are estimates without plans,
            so steps that repeat take less. With None, only `recompute_limit` bounds the time.
        device: the trials use its threads, its `recompute_limit` and its other options, but not its budget. The default
            device if None.

    Raises:
        NoValueError: the program read a value.
        ValueError: the program made nothing on the default device, but on another one, say; `times` is below 1.
        BudgetError: it takes more than `times` as long under its own peak.
        DeviceError: the program used a tensor that was made before, on a device that computes.

    >>> import remat
    >>> def program():
    ...     net = remat.nn.Sequential(*[remat.nn.Sequential(remat.nn.Linear(64, 64), remat.nn.ReLU()) for _ in range(8)])
    ...     optimizer = remat.optim.SGD(net.parameters(), lr=0.1)
    ...     for _ in range(2):
    ...         optimizer.zero_grad()
    ...         net(remat.ones(256, 64)).square().mean().backward()
    ...         optimizer.step()
    >>> least = remat.smallest_budget(program)
    >>> remat.set_default_device(remat.Device(budget=least)); program(); remat.get_default_device().sync()
    >>> remat.set_default_device(None)
    """
    return _remat.smallest_budget(default_device(device), lambda dry: _tried(dry, program), times)


def largest_batch(
    program: Callable[[int], Any], budget: Union[int, str], *, device: Optional[Device] = None, most: int = 1 << 20
) -> int:
    """The largest batch with which `program` runs under a budget; 0 if not even a batch of one does.

    Calls `program(batch)` as `smallest_budget` does: with twice as many examples each time until they do not fit, and
    then with numbers in between. It assumes that a batch does not fit if a smaller one does not.

    Arguments:
        program: a function of the number of examples in a batch.
        budget: bytes, or a text such as "512MiB".
        device: as for `smallest_budget`.
        most: the largest batch that is tried.

    >>> import remat
    >>> def program(batch):
    ...     net = remat.nn.Linear(64, 64)
    ...     net(remat.ones(batch, 64)).square().mean().backward()
    >>> small, large = (remat.largest_batch(program, budget) for budget in ("256KiB", "1MiB"))
    >>> 0 < small < large
    True
    """
    bytes_ = _remat.budget_bytes(budget)
    if bytes_ is None:
        raise ValueError("without a budget every batch fits: give bytes, or a text such as \"512MiB\"")
    if most < 1:
        raise ValueError(f"`most` is {most}, must be at least 1")
    return _remat.largest_batch(default_device(device), lambda dry, batch: _tried(dry, lambda: program(batch)), bytes_, most)
