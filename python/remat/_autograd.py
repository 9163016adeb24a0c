"""Gradients: of functions, within stretches that record nothing, and by rules of one's own."""
import contextlib
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

from . import _remat
from ._remat import Tensor


class no_grad(contextlib.ContextDecorator):
    """Within it, or within a function that it decorates, this thread records nothing for gradients.

    >>> import remat
    >>> x = remat.ones(2).requires_grad_()
    >>> with remat.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def __init__(self) -> None:
        self._open: List[Any] = []

    def _recreate_cm(self) -> "no_grad":
        return no_grad()

    def __enter__(self) -> "no_grad":
        guard = _remat._NoGrad()
        guard.begin()
        self._open.append(guard)
        return self

    def __exit__(self, *_: Any) -> None:
        self._open.pop().end()


def grad(
    outputs: Tensor,
    inputs: Union[Tensor, Sequence[Tensor]],
    grad_outputs: Optional[Tensor] = None,
    create_graph: bool = False,
) -> Any:
    """Gradients of the sum of `outputs` (times `grad_outputs`) with respect to `inputs`; nothing is accumulated.

    One gradient for one tensor, a tuple for a sequence; None where `outputs` does not depend on one. With `create_graph` they can
    be differentiated again. Errors: NotDifferentiableError if nothing requires a gradient.

    >>> import remat
    >>> x = remat.tensor(3.0, requires_grad=True)
    >>> dy = remat.grad(x ** 3, x, create_graph=True)
    >>> dy.item(), remat.grad(dy, x).item()
    (27.0, 18.0)
    """
    if isinstance(inputs, Tensor):
        return _remat.grad(outputs, [inputs], grad_outputs, create_graph)[0]
    return tuple(_remat.grad(outputs, list(inputs), grad_outputs, create_graph))


class Context:
    """What `forward` of a `Function` leaves for its `backward`: tensors, and whatever is set as an attribute.

    >>> import remat
    >>> ctx = remat.Context()
    >>> ctx.save_for_backward(remat.ones(2))
    >>> [t.tolist() for t in ctx.saved_tensors]
    [[1.0, 1.0]]
    """

    def __init__(self) -> None:
        self.saved_tensors: Tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keeps tensors until the graph is freed. Where gradients are differentiated again, arguments and results have their history.

        What `forward` made on the way to its results has none, and a gradient of a gradient that has to pass it is a
        NotDifferentiableError: save arguments and compute it again in `backward`, or return it as a result. Attributes of the
        context are for what counts as constant.
        """
        self.saved_tensors = tensors


class Function:
    """A function with a gradient of one's own: a class with static methods `forward(ctx, ..)` and `backward(ctx, ..)`.

    `backward` gets a gradient for each result, None where there is none, and gives one for each argument of `forward`, None for
    what is no tensor or needs none. The call is `apply`.

    >>> import remat
    >>> class Clipped(remat.Function):
    ...     @staticmethod
    ...     def forward(ctx, x, limit):
    ...         ctx.limit = limit
    ...         return x.clip(-limit, limit)
    ...     @staticmethod
    ...     def backward(ctx, dy):
    ...         return dy * ctx.limit, None
    >>> x = remat.tensor([5.0], requires_grad=True)
    >>> Clipped.apply(x, 2.0).backward(); x.grad.tolist()
    [2.0]
    """

    @staticmethod
    def forward(ctx: Context, *args: Any) -> Any:
        """What the function computes; nothing that it does is recorded."""
        raise NotImplementedError("a Function has a static method `forward`")

    @staticmethod
    def backward(ctx: Context, *grads: Any) -> Any:
        """The gradients of the arguments from those of the results."""
        raise NotImplementedError("a Function has a static method `backward`")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Calls the function."""
        ctx = Context()
        at = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        tensors = [args[i] for i in at]
        begun = _remat.custom_begins(tensors)
        with no_grad():
            y = cls.forward(ctx, *args)
        results = y if isinstance(y, tuple) else (y,)
        backward: Callable[..., Any] = cls.backward
        # the graph keeps them: the context, which the rule holds, must not keep a result that leads back to it
        saved = [_place(t, tensors, results) for t in ctx.saved_tensors]
        ctx.saved_tensors = ()

        def rule(dy: List[Any], kept: List[Tensor]) -> Tuple[Any, ...]:
            ctx.saved_tensors = tuple(kept)
            try:
                g = backward(ctx, *dy)
            finally:
                ctx.saved_tensors = ()
            g = g if isinstance(g, tuple) else (g,)
            if len(g) != len(args):
                raise ValueError(f"{cls.__name__}.backward gives {len(g)} gradients for {len(args)} arguments")
            return tuple(g[i] for i in at)

        made = _remat.custom(cls.__name__, tensors, list(results), saved, begun, rule)
        return tuple(made) if isinstance(y, tuple) else made[0]


def _place(saved: Tensor, tensors: Sequence[Tensor], results: Sequence[Any]) -> Union[int, Tensor]:
    """The number of the result that was saved, or the tensor itself."""
    if any(saved is t for t in tensors):
        return saved
    return next((j for j, r in enumerate(results) if saved is r), saved)
