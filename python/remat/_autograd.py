"""Gradients of functions, blocks that record nothing, and functions with gradients that the caller writes."""
import functools
import inspect
from typing import Any, AsyncGenerator, Callable, Generator, List, Optional, Sequence, Tuple, Union

from . import _remat
from ._creation import zeros
from ._remat import Tensor


class _Awaited:
    """An awaitable that runs step by step, each step within a block of its own."""

    def __init__(self, stretch: Callable[[], Any], of: Any):
        self._stretch, self._steps = stretch, of

    def __await__(self) -> Generator[Any, Any, Any]:
        return (yield from _stepped(self._stretch, self._steps))


def _stepped(stretch: Callable[[], Any], of: Any) -> Generator[Any, Any, Any]:
    """Runs a generator or a coroutine so that its own code is within a block, and code that others run between two
    steps is not."""
    step: Callable[[], Any] = lambda: of.send(None)
    while True:
        try:
            with stretch():
                y = step()
        except StopIteration as e:
            return e.value
        try:
            sent = yield y
        except GeneratorExit:
            with stretch():
                of.close()
            raise
        except BaseException as e:
            # passes the exception into the generator, which decides what follows
            step = functools.partial(of.throw, e)
        else:
            step = functools.partial(of.send, sent)


async def _stepped_async(stretch: Callable[[], Any], of: Any) -> AsyncGenerator[Any, Any]:
    """As `_stepped`, for an asynchronous generator."""
    step = of.asend(None)
    while True:
        try:
            y = await _Awaited(stretch, step)
        except StopAsyncIteration:
            return
        try:
            sent = yield y
        except GeneratorExit:
            await _Awaited(stretch, of.aclose())
            raise
        except BaseException as e:
            step = of.athrow(e)
        else:
            step = of.asend(sent)


class _Stretch:
    """The base of `no_grad` and `enable_grad`: a context, and a decorator of functions, generators and coroutines."""

    _records = False

    def __init__(self) -> None:
        self._open: List[Any] = []

    def __enter__(self) -> Any:
        guard = _remat._GradMode(self._records)
        guard.begin()
        self._open.append(guard)
        return self

    def __exit__(self, *_: Any) -> None:
        self._open.pop().end()

    def __call__(self, f: Callable[..., Any]) -> Any:
        stretch = type(self)
        if inspect.isgeneratorfunction(f):
            return functools.wraps(f)(lambda *args, **kwargs: _stepped(stretch, f(*args, **kwargs)))
        if inspect.isasyncgenfunction(f):
            return functools.wraps(f)(lambda *args, **kwargs: _stepped_async(stretch, f(*args, **kwargs)))
        if inspect.iscoroutinefunction(f):
            @functools.wraps(f)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                return await _Awaited(stretch, f(*args, **kwargs))

            return awaited

        @functools.wraps(f)
        def called(*args: Any, **kwargs: Any) -> Any:
            with stretch():
                return f(*args, **kwargs)

        return called


class no_grad(_Stretch):
    """Within it, or within a function that it decorates, this thread records nothing for gradients. For a generator or
    a coroutine this holds for its own code, not for code that others run between its steps.

    >>> import remat
    >>> x = remat.ones(2).requires_grad_()
    >>> with remat.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    >>> @remat.no_grad()
    ... def doubled():
    ...     yield x * 2
    >>> [y.requires_grad for y in doubled()], (x * 2).requires_grad
    ([False], True)
    """


class enable_grad(_Stretch):
    """Within it, or within a function that it decorates, this thread records for gradients, even within `no_grad` or in
    the `backward` of a `Function`. Such a `backward` can compute a part of its forward pass again, and take gradients
    of that.

    >>> import remat
    >>> x = remat.ones(2).requires_grad_()
    >>> with remat.no_grad():
    ...     with remat.enable_grad():
    ...         y = x * 2
    >>> y.requires_grad
    True
    """

    _records = True


def grad(
    outputs: Tensor,
    inputs: Union[Tensor, Sequence[Tensor]],
    grad_outputs: Optional[Tensor] = None,
    create_graph: bool = False,
) -> Any:
    """Gradients of the sum of `outputs` (times `grad_outputs`) with respect to `inputs`. The `grad` of leaves stays as
    it is.

    Returns one gradient for one tensor, and a tuple for a sequence. A gradient is None if `outputs` does not depend on
    the input. With `create_graph` gradients can be differentiated again. Errors: NotDifferentiableError if nothing
    requires a gradient.

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
    """The values that `forward` of a `Function` keeps for its `backward`: tensors, and all attributes that it sets.

    >>> import remat
    >>> ctx = remat.Context()
    >>> ctx.save_for_backward(remat.ones(2))
    >>> [t.tolist() for t in ctx.saved_tensors]
    [[1.0, 1.0]]
    """

    def __init__(self) -> None:
        self.saved_tensors: Tuple[Tensor, ...] = ()
        self._materializes = True

    def set_materialize_grads(self, on: bool) -> None:
        """Sets whether `backward` gets zeros (the default) or None for a result that nothing depends on. `forward`
        calls it.

        >>> import remat
        >>> ctx = remat.Context()
        >>> ctx.set_materialize_grads(False)
        """
        self._materializes = bool(on)

    def save_for_backward(self, *tensors: Tensor) -> None:
        """Keeps tensors until the graph is freed. If gradients are differentiated again, saved arguments and results
        have their history.

        Intermediate values that `forward` made have no history. A gradient of a gradient that has to pass through one
        raises NotDifferentiableError: save the arguments and compute the value again in `backward`, or return it as a
        result. Attributes of the context are for constants.
        """
        self.saved_tensors = tensors


class Function:
    """A function whose gradient the caller writes: a class with static methods `forward(ctx, ..)` and
    `backward(ctx, ..)`.

    `backward` gets a gradient for each result: zeros if nothing depends on it. It returns a gradient for each argument
    of `forward`: None for an argument that is no tensor or needs none. Call `apply` to use the function.

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
        """Computes the function. Nothing within it is recorded."""
        raise NotImplementedError("a Function has a static method `forward`")

    @staticmethod
    def backward(ctx: Context, *grads: Any) -> Any:
        """Computes the gradients of the arguments from those of the results. It may take gradients itself, with respect
        to leaves that it makes."""
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
        # the graph keeps the tensors: the rule holds the context, so a result in the context would be a cycle
        saved = [_place(t, tensors, results) for t in ctx.saved_tensors]
        ctx.saved_tensors = ()
        like = [(r.shape, r.dtype, r.device) if isinstance(r, Tensor) else None for r in results]

        def rule(dy: List[Any], kept: List[Tensor]) -> Tuple[Any, ...]:
            is_kept = _remat.is_grad_enabled()
            ctx.saved_tensors = tuple(kept)
            if ctx._materializes:
                dy = [zeros(of[0], dtype=of[1], device=of[2]) if d is None and of is not None else d for d, of in zip(dy, like)]
            try:
                # `backward` may take gradients of values that it computes; they are no part of its own gradients,
                # unless those are to be differentiated again
                with enable_grad():
                    g = backward(ctx, *dy)
            finally:
                ctx.saved_tensors = ()
            g = g if isinstance(g, tuple) else (g,)
            if not is_kept:
                g = tuple(x.detach() if isinstance(x, Tensor) else x for x in g)
            if len(g) != len(args):
                raise ValueError(f"{cls.__name__}.backward gives {len(g)} gradients for {len(args)} arguments")
            return tuple(g[i] for i in at)

        made = _remat.custom(cls.__name__, tensors, list(results), saved, begun, rule)
        return tuple(made) if isinstance(y, tuple) else made[0]


def _place(saved: Tensor, tensors: Sequence[Tensor], results: Sequence[Any]) -> Union[int, Tensor]:
    """The number of the saved result, or the saved tensor itself."""
    if any(saved is t for t in tensors):
        return saved
    return next((j for j, r in enumerate(results) if saved is r), saved)
