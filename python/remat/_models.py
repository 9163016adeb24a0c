"""Common parts of `remat.onnx` and `remat.lite`: descriptions of inputs and outputs, and the way from a function to a
file."""
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _remat
from ._creation import asarray
from ._remat import Device, Tensor, dtype
from ._structure import tensors_in
from .nn.module import Module

Extent = Union[int, str, None]
Sizes = Mapping[str, Tuple[int, int]]


class Port:
    """An input or an output of a model.

    Attributes:
        name: its name.
        type: its type in the file, as text: `float32 [batch, 3]`.
        dtype: its dtype, or None if it is no tensor or its dtype does not exist here.
        shape: its extents, each a number, a name, or None for an open one. None if the rank is open or it is no tensor.
        has_default: True for an input with a default, which may be left out.
    """

    def __init__(self, name: str, type: str, dtype: Optional[dtype], shape: Optional[List[Extent]], has_default: bool):
        self.name, self.type, self.dtype, self.has_default = name, type, dtype, has_default
        self.shape: Optional[Tuple[Extent, ...]] = None if shape is None else tuple(shape)

    def __repr__(self) -> str:
        return f"Port({self.name}: {self.type})"


def ports(all: List[Any]) -> List[Port]:
    """Descriptions, as the compiled part gives them."""
    return [Port(*one) for one in all]


def as_input(x: Any, device: Device) -> Tensor:
    """A tensor on the device of the model."""
    return x if isinstance(x, Tensor) else asarray(x, device=device)


def is_text(x: Any) -> bool:
    """True for strings, and NumPy's arrays of them."""
    return isinstance(x, str) or getattr(getattr(x, "dtype", None), "kind", None) in ("U", "O")


def as_text(x: Any) -> Tuple[List[int], List[str]]:
    """Strings with their shape, from a string, nested lists of strings, or a NumPy array."""
    if isinstance(x, str):
        return [], [x]
    if hasattr(x, "tolist"):
        return as_text(x.tolist())
    if not isinstance(x, (list, tuple)):
        raise TypeError(f"expected strings, or lists of them, got {type(x).__name__}")
    parts = [as_text(part) for part in x]
    shape = parts[0][0] if parts else []
    if any(s != shape for s, _ in parts):
        raise ValueError("the nested lists of strings are of unequal length")
    return [len(parts), *shape], [t for _, all in parts for t in all]


def _nested(shape: Sequence[int], data: List[str]) -> Any:
    """Strings as nested lists; a string without axes as itself."""
    if not shape:
        return data[0]
    n = len(data) // max(shape[0], 1)
    return [_nested(shape[1:], data[i * n:(i + 1) * n]) for i in range(shape[0])]


def as_output(y: Any) -> Any:
    """An output of the compiled part, with strings as nested lists."""
    if isinstance(y, tuple):
        return _nested(*y)
    return [as_output(part) for part in y] if isinstance(y, list) else y


class Traced:
    """A function of tensors, with its example inputs, as a function of lists of tensors."""

    def __init__(
        self, f: Callable[..., Any], inputs: Sequence[Any], dynamic: Optional[Mapping[int, Mapping[int, str]]],
        sizes: Optional[Sizes],
    ):
        if not isinstance(inputs, (list, tuple)):
            raise TypeError("`inputs` is a list or tuple of example tensors, one for each argument")
        given = [asarray(x) for x in inputs]
        if not given:
            raise ValueError("a function without inputs is a constant: there is nothing to write")
        self.device = given[0].device
        self.inputs: List[Tuple[Any, List[Union[int, str]]]] = []
        named = dict(sizes or {})
        seen = set()
        for i, x in enumerate(given):
            extents: List[Union[int, str]] = list(x.shape)
            for axis, name in dict((dynamic or {}).get(i, {})).items():
                if not -len(extents) <= axis < len(extents):
                    raise IndexError(f"input {i} has {len(extents)} axes, and `dynamic` names axis {axis}")
                if name not in named:
                    raise ValueError(f"the size `{name}` of input {i} has no bounds in `sizes`")
                extents[axis] = name
                seen.add(name)
            self.inputs.append((x.dtype, extents))
        unknown = [n for n in [*named] if n not in seen] + [i for i in (dynamic or {}) if i not in range(len(given))]
        if unknown:
            raise ValueError(f"no input has {unknown[0]!r} of `sizes` or `dynamic`")
        self.sizes = [(name, least, most) for name, (least, most) in named.items()]
        self.parameters = list(f.state_dict().items()) if isinstance(f, Module) else []
        if isinstance(f, Module) and f.training:
            raise ValueError("the module trains: call its `eval()` first, since a file is for inference")

        def flat(*tensors: Tensor) -> List[Tensor]:
            return tensors_in(f(*tensors))

        self.flat = flat


def text_pairs(metadata: Optional[Mapping[str, str]]) -> List[Tuple[str, str]]:
    """Metadata as pairs. Errors: TypeError for a key or a value that is no text."""
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"metadata are texts by key; there is {key!r}: {value!r}")
    return list((metadata or {}).items())
