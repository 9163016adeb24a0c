"""Deployment: a model from a file, planned ahead for its shapes and run within a memory budget.

A `Network` is a model that was read from a file: ONNX, or `.remat`, the library's own format. A `Session` is the
network for one set of input shapes, in memory of its own. All sessions of a network share its weights.

    >>> import os, remat, tempfile
    >>> net = remat.nn.Sequential(remat.nn.Linear(4, 8), remat.nn.ReLU(), remat.nn.Linear(8, 2)).eval()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "net.remat")
    ...     remat.lite.export(net, [remat.ones(1, 4)], path)
    ...     network = remat.lite.Network(path, memory_budget="1MiB", threads=1)
    >>> session = network.session()
    >>> y, = session.run(remat.ones(1, 4)).values()
    >>> y.shape, session.memory().total_bytes <= 1 << 20
    ((1, 2), True)
"""
import os
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from . import _remat
from ._models import Port, Sizes, Traced, as_input, as_output, as_text, is_text, ports, text_pairs
from ._remat import Device, Tensor
from ._support import DTypeLike, ShapeLike, default_device

PathLike = Union[str, "os.PathLike[str]"]
Shapes = Mapping[str, ShapeLike]


class Memory(NamedTuple):
    """Bytes of a session: constants, which all sessions of its shapes share, inputs and outputs, and the workspace,
    which lives only within a run. Beside these, the bytes that runs read from a file, which are no part of the memory,
    and the number of calls that a run makes again to keep to the budget."""

    constant_bytes: int
    io_bytes: int
    workspace_bytes: int
    stored_bytes: int
    recomputed_calls: int

    @property
    def total_bytes(self) -> int:
        """The bytes that count against the budget."""
        return self.constant_bytes + self.io_bytes + self.workspace_bytes


def _shapes(shapes: Optional[Shapes], extents: Mapping[str, int]) -> Tuple[List[Any], List[Any]]:
    given = [(n, [s] if isinstance(s, int) else [int(d) for d in s]) for n, s in (shapes or {}).items()]
    return given, list(extents.items())


class Network:
    """A model that was read: a path, or the bytes of a file.

    `memory_budget` is the most bytes of a session with the weights that it reads. Values that do not fit are computed
    again, with the same bits. `threads` is the number of threads that compute, on the processors `affinity` if given
    (Linux). `device`, a name that `remat.Device` accepts, makes a device compute instead, with one arena for all
    sessions. `outputs` names the outputs that are computed. `fixed` maps inputs to tensors that they always are.
    `level`, 0 to 3, is the level of the passes: at most 2 keeps every bit. `half` is float16 or bfloat16, the dtype in
    which values are stored between operators. `spill_to` is a folder for weights that do not fit. `key`, 32 bytes, is
    the key of a file whose weights are encrypted.

    Attributes:
        inputs, outputs: their descriptions in the file, in order.
        name, producer, opsets, metadata: the file's description of itself.

    Errors, naming the path: those of `remat.onnx.Model`; FormatError for a damaged file or a wrong key; ArgumentError
    for invalid options, and for names that the model does not have.
    """

    def __init__(
        self, source: Union[PathLike, bytes], *, memory_budget: Union[int, str, None] = None, threads: Optional[int] = None,
        affinity: Optional[Sequence[int]] = None, outputs: Optional[Sequence[str]] = None,
        fixed: Optional[Mapping[str, Any]] = None, level: int = 3, half: Optional[DTypeLike] = None,
        spill_to: Optional[PathLike] = None, key: Optional[bytes] = None, device: Optional[str] = None,
    ):
        options = {
            "memory_budget": memory_budget, "threads": threads, "affinity": None if affinity is None else list(affinity),
            "outputs": None if outputs is None else list(outputs), "level": level, "half": half, "spill_to": spill_to, "key": key,
            "device": device,
            "fixed": [(n, as_input(v, default_device())) for n, v in (fixed or {}).items()],
        }
        if isinstance(source, (bytes, bytearray, memoryview)):
            self._of = _remat._LiteNetwork.from_bytes(bytes(source), options)
        else:
            self._of = _remat._LiteNetwork.open(os.fspath(source), options)
        self.inputs: List[Port] = ports(self._of.inputs())
        self.outputs: List[Port] = ports(self._of.outputs())
        self.name, self.producer, opsets, metadata = self._of.about()
        self.opsets: Dict[str, int] = dict(opsets)
        self.metadata: Dict[str, str] = dict(metadata)

    @property
    def operators(self) -> Dict[str, int]:
        """The number of nodes of each operator. A domain other than the standard's stands in front of its name."""
        return {f"{domain}.{op}" if domain else op: n for domain, op, n in self._of.operators()}

    @property
    def unsupported(self) -> List[str]:
        """A line for each node that cannot run, with the nearest operator that can."""
        return self._of.unsupported()

    def session(self, shapes: Optional[Shapes] = None, **extents: int) -> "Session":
        """A session for inputs of these shapes, by name, and for named extents: `session(batch=4)`. Only extents that
        the model leaves open are needed.

        Errors: ArgumentError for extents that are open, unknown names, and operators without a rule; ShapeError,
        DTypeError for inputs that the model does not accept; BudgetError, with figures, if no order of calls keeps to
        the budget.
        """
        return Session(self._of.session(*_shapes(shapes, extents)))

    def save(
        self, path: PathLike, shapes: Optional[Shapes] = None, extents: Optional[Mapping[str, int]] = None,
        sizes: Optional[Sizes] = None, key: Optional[bytes] = None,
    ) -> None:
        """Writes the network as a `.remat` file, for these shapes. Extents for which `sizes` has bounds stay open. With
        a `key` of 32 bytes its weights are encrypted. Errors: ArgumentError for a model that is not one graph; as
        `session`; IoError."""
        bounds = [(name, least, most) for name, (least, most) in (sizes or {}).items()]
        self._of.save(os.fspath(path), _shapes(shapes, extents or {}), bounds, key)

    def __repr__(self) -> str:
        return f"Network({', '.join(map(repr, self.inputs))} -> {', '.join(map(repr, self.outputs))})"


class Session:
    """A network for one set of input shapes, with memory of its own. `Network.session` makes one. A session makes one
    run at a time, so each thread should have its own."""

    def __init__(self, of: Any):
        self._of = of

    @property
    def inputs(self) -> Dict[str, Any]:
        """Dtype and shape of each input by name, None for one that is no tensor."""
        return {name: None if fact is None else (fact[0], tuple(fact[1])) for name, fact in self._of.inputs()}

    def run(self, *given: Any, device: Optional[Device] = None, **by_name: Any) -> Dict[str, Any]:
        """Runs the network. Returns the outputs by name, as tensors on `device` or nested lists of strings. Inputs are
        tensors, NumPy arrays, numbers or strings, in order or by name, or in a mapping by name. An input that is left
        out keeps its last value, at first zeros.

        Errors: ArgumentError for unknown names, and for other dtypes and shapes; those of the operators, with node and
        operator; BudgetError.
        """
        device = default_device(device)
        if len(given) == 1 and isinstance(given[0], Mapping):
            by_name = {**given[0], **by_name}
            given = ()
        names = list(self.inputs)
        if len(given) > len(names):
            raise TypeError(f"{len(given)} inputs, where the network takes {len(names)}: {', '.join(names)}")
        all = [*zip(names, given), *by_name.items()]
        facts = self.inputs

        def one(name: str, x: Any) -> Any:
            if isinstance(x, Tensor):
                return x
            if is_text(x) or (name in facts and facts[name] is None):
                return as_text(x)
            fact = facts.get(name)
            t = as_input(x, device)
            # Python numbers have no dtype of their own
            return t if fact is None or hasattr(x, "dtype") else t.cast(fact[0])

        outputs = self._of.run([(name, one(name, x)) for name, x in all], device)
        return {name: as_output(y) for name, y in outputs}

    def memory(self) -> Memory:
        """The memory of the session."""
        return Memory(*self._of.memory())

    @property
    def is_planned(self) -> bool:
        """True if one graph runs under one plan. False if sizes depend on values: operators then run one by one, within
        the same budget."""
        return self._of.is_planned


def export(
    f: Callable[..., Any], inputs: Sequence[Any], path: PathLike, *, dynamic: Optional[Mapping[int, Mapping[int, str]]] = None,
    sizes: Optional[Sizes] = None, metadata: Optional[Mapping[str, str]] = None, key: Optional[bytes] = None,
) -> None:
    """Writes a function of tensors, or a module in evaluation, as a `.remat` file for a `Network`, the command `remat`
    and the C interface. Arguments are those of `remat.onnx.export`. With a `key` of 32 bytes its weights are encrypted.

    Errors: ArgumentError for a module that trains, and for a function that does not follow from the sizes; IoError.

    >>> import os, remat, tempfile
    >>> key = bytes(range(32))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "f.remat")
    ...     remat.lite.export(
    ...         lambda x: x * 2, [remat.ones(2, 3)], path, dynamic={0: {0: "batch"}}, sizes={"batch": (1, 64)}, key=key,
    ...     )
    ...     network = remat.lite.Network(path, key=key)
    >>> [y.shape for y in network.session(batch=5).run(remat.ones(5, 3)).values()]
    [(5, 3)]
    """
    traced = Traced(f, inputs, dynamic, sizes)
    _remat.export_graph_file(
        traced.flat, traced.device, traced.inputs, traced.sizes, text_pairs(metadata), key, os.fspath(path)
    )
