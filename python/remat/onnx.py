"""ONNX models: files read as functions of tensors, and functions written as files.

    >>> import os, remat, tempfile
    >>> net = remat.nn.Sequential(remat.nn.Linear(4, 8), remat.nn.ReLU(), remat.nn.Linear(8, 2)).eval()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "net.onnx")
    ...     remat.onnx.export(net, [remat.ones(1, 4)], path, input_names=["x"], output_names=["scores"])
    ...     network = remat.onnx.load(path, device=remat.Device(budget="16MiB"))
    >>> network.inputs, network(remat.ones(1, 4, device=network.device)).shape
    ([Port(x: f32[1, 4])], (1, 2))
"""
import json
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _remat
from ._models import Port, Sizes, Traced, as_input, as_output, as_text, is_text, ports, text_pairs
from ._remat import Device, Tensor
from ._support import default_device

PathLike = Union[str, "os.PathLike[str]"]


class Model:
    """An ONNX model that was read and checked. `source` is a path, or the bytes of a file. External data may lie in the
    file's folder and below.

    Attributes:
        inputs, outputs: their descriptions in the file, in order.
        name, producer: of the graph, and of the program that wrote the file.
        opsets: versions of the operators, by domain; the standard's is empty.
        metadata: the file's description of itself, by key.

    Errors, naming the path and the node: IoError; FormatError for a file that is no model, or contradicts itself;
    DTypeError for constants of dtypes that this library does not have; ArgumentError for versions newer than those it
    supports.

    >>> import remat
    >>> try:
    ...     remat.onnx.Model(b"no model")
    ... except remat.FormatError as e:
    ...     print("ONNX" in str(e))
    True
    """

    def __init__(self, source: Union[PathLike, bytes]):
        is_bytes = isinstance(source, (bytes, bytearray, memoryview))
        of = _remat._OnnxModel.from_bytes(bytes(source)) if is_bytes else _remat._OnnxModel.open(os.fspath(source))  # type: ignore
        self._set(of)

    def _set(self, of: Any) -> None:
        self._of = of
        self.inputs: List[Port] = ports(of.inputs())
        self.outputs: List[Port] = ports(of.outputs())
        self.name, self.producer, opsets, metadata = of.about()
        self.opsets: Dict[str, int] = dict(opsets)
        self.metadata: Dict[str, str] = dict(metadata)

    @property
    def operators(self) -> Dict[str, int]:
        """The number of nodes of each operator. A domain other than the standard's stands in front of its name."""
        return {f"{domain}.{op}" if domain else op: n for domain, op, n in self._of.operators()}

    @property
    def unsupported(self) -> List[str]:
        """A line for each node that has no rule, with the nearest operator that has one."""
        return self._of.unsupported()

    def with_outputs(self, names: Sequence[str]) -> "Model":
        """The model with only these outputs, and without nodes that only others need. Errors: ArgumentError for an
        unknown name."""
        return self._with(self._of.with_outputs(list(names)))

    def with_input(self, name: str, value: Any) -> "Model":
        """The model with an input fixed to this tensor. Branches that it decides are removed. Errors: ArgumentError for
        an unknown name; DTypeError, ShapeError for another tensor than the file declares."""
        return self._with(self._of.with_input(name, as_input(value, default_device())))

    @staticmethod
    def _with(of: Any) -> "Model":
        made = Model.__new__(Model)
        made._set(of)
        return made

    def on(self, device: Optional[Device] = None) -> "Network":
        """The model with its constants on a device, within its budget. Errors: ArgumentError, with the nodes, if some have no rule;
        BudgetError."""
        return Network(self, default_device(device))

    def __repr__(self) -> str:
        return f"Model({self.name}: {', '.join(map(repr, self.inputs))} -> {', '.join(map(repr, self.outputs))})"


class Network:
    """A model with its constants on a device: a function of tensors, with gradients, that runs within the device's
    budget. `remat.onnx.load` makes one.

    A call takes the inputs in order: all of them, or those without a default. It returns the outputs in order, and a
    single output as itself. NumPy arrays and numbers are copied to the device. Strings are nested lists, sequences are
    lists, and an absent value is None.

    Errors of a call: TypeError, ArgumentError, DTypeError, ShapeError for other inputs than the file declares, with their names; those
    of the operators, with the node's name, operator and version; BudgetError.
    """

    def __init__(self, model: Model, device: Device):
        self.model, self.device = model, device
        self._of = model._of.on(device)

    @property
    def inputs(self) -> List[Port]:
        """The descriptions of the inputs in the file, in order."""
        return self.model.inputs

    @property
    def outputs(self) -> List[Port]:
        """The descriptions of the outputs in the file, in order."""
        return self.model.outputs

    def _input(self, port: Port, x: Any) -> Any:
        if port.type.startswith("a sequence") or (x is None and port.dtype is None):
            return None if x is None else [self._input(Port(port.name, "", None, None, False), part) for part in x]
        if port.type == "strings" or is_text(x):
            return as_text(x)
        try:
            return as_input(x, self.device)
        except (TypeError, ValueError) as e:
            raise type(e)(f"input `{port.name}`: {e}") from None

    def _run(self, given: Sequence[Any]) -> List[Any]:
        needed = [p for p in self.inputs if not p.has_default]
        these = self.inputs if len(given) == len(self.inputs) else needed
        if len(given) != len(these):
            names = ", ".join(p.name for p in needed)
            raise TypeError(f"{len(given)} inputs, where the model takes {len(needed)}: {names}")
        return [as_output(y) for y in self._of.run([self._input(p, x) for p, x in zip(these, given)])]

    def __call__(self, *inputs: Any) -> Any:
        y = self._run(inputs)
        return y[0] if len(y) == 1 else tuple(y)

    def run(self, inputs: Mapping[str, Any]) -> Dict[str, Any]:
        """The outputs by name, for inputs by name: all of them, or those without a default.

        >>> import os, remat, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "double.onnx")
        ...     remat.onnx.export(lambda x: x * 2, [remat.ones(2)], path, input_names=["x"], output_names=["y"])
        ...     network = remat.onnx.load(path)
        >>> network.run({"x": [1.0, 3.0]})["y"].tolist()
        [2.0, 6.0]
        """
        known = [p.name for p in self.inputs]
        unknown = [n for n in inputs if n not in known]
        if unknown:
            raise ValueError(f"the model has no input `{unknown[0]}`; it has {', '.join(known)}")
        missing = [p.name for p in self.inputs if p.name not in inputs and not p.has_default]
        if missing:
            raise ValueError(f"input `{missing[0]}` is missing")
        with_default = [p.name for p in self.inputs if p.has_default]
        given = [n for n in with_default if n in inputs]
        if given and len(given) != len(with_default):
            raise ValueError(f"inputs with a default are given all or none; `{given[0]}` is one of {', '.join(with_default)}")
        y = self._run([inputs[p.name] for p in self.inputs if p.name in inputs])
        return {p.name: v for p, v in zip(self.outputs, y)}

    def __repr__(self) -> str:
        return f"Network({self.model!r}, device={self.device!r})"


def load(source: Union[PathLike, bytes], device: Optional[Device] = None) -> Network:
    """The model from a path or bytes as a function of tensors on a device: `Model(source).on(device)`. Errors: as
    these."""
    return Model(source).on(device)


def export(
    f: Callable[..., Any], inputs: Sequence[Any], path: PathLike, *, input_names: Sequence[str] = (),
    output_names: Sequence[str] = (), dynamic: Optional[Mapping[int, Mapping[int, str]]] = None, sizes: Optional[Sizes] = None,
    opset: Optional[int] = None, name: str = "remat", metadata: Optional[Mapping[str, str]] = None, external_data: bool = False,
) -> None:
    """Writes a function of tensors, or a module in evaluation, as an ONNX model of the standard's own operators.

    `inputs` are examples; only their dtypes and shapes matter. Results are tensors in lists, tuples and dictionaries.
    Parameters become constants, under the module's names. `dynamic={0: {0: "batch"}}` names axis 0 of input 0, and
    `sizes={"batch": (1, 64)}` gives its bounds. The file computes all sizes that depend on it. `opset` is from 18 to
    the newest, 28. The default is 21, which most runtimes support. `external_data` puts constants in a file beside the
    model.

    Errors: ArgumentError, which names each operation without a form in ONNX, with its place and the reason (gradients,
    random numbers, and others); ArgumentError for a module that trains and for an unknown `opset`; FormatError for a
    name that occurs twice; IoError.

    >>> import os, remat, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "f.onnx")
    ...     remat.onnx.export(
    ...         lambda x: x.reshape(-1).relu(), [remat.ones(2, 3)], path, dynamic={0: {0: "batch"}}, sizes={"batch": (1, 64)},
    ...     )
    ...     network = remat.onnx.load(path)
    >>> network.inputs[0].shape, network(remat.ones(5, 3)).shape
    (('batch', 3), (15,))
    """
    traced = Traced(f, inputs, dynamic, sizes)
    options = {
        "opset": opset, "name": name, "inputs": list(input_names), "outputs": list(output_names),
        "metadata": text_pairs(metadata), "beside": external_data,
    }
    _remat.export_onnx(
        traced.flat, traced.device, traced.inputs, traced.sizes, traced.parameters, json.dumps(options), os.fspath(path)
    )
