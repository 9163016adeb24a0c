"""Calls of kernels that are Python functions."""
import json
from typing import Any, Callable, Dict, List, Sequence, Tuple, Union

# not every version of Python casts to a format of 16-bit floats
_FORMATS = {
    "float16": "H", "bfloat16": "H", "float32": "f", "float64": "d", "bool": "?",
    "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
}

Operand = Tuple[str, Sequence[int], Union[bytes, bytearray]]


def _view(operand: Operand) -> memoryview:
    dtype, shape, data = operand
    view, form = memoryview(data), _FORMATS[dtype]
    # a memory view without elements cannot have a shape
    return view.cast(form, list(shape)) if shape and len(data) else view.cast(form)


def run_kernel(
    f: Callable[[Dict[str, Any], List[memoryview], List[memoryview]], None],
    op: str, inputs: Sequence[Operand], outputs: Sequence[Operand],
) -> None:
    """Calls `f` with the operator's description and views of its operands."""
    f(json.loads(op), [_view(x) for x in inputs], [_view(y) for y in outputs])
