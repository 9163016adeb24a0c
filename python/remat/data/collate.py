"""Collation of examples to a batch: numbers and arrays are stacked, within lists, tuples and dictionaries.

A batch is kept as a structure and a list of *parts*. A part is nested lists of numbers, or a triple of bytes, shape and
dtype, as the compiled loader takes it. All batches of a dataset have the same structure, so only the parts go through
the loader.
"""
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from .._errors import DeviceError
from .._remat import Device, Tensor

Part = Any
LEAF = "part"


def _array(x: Any) -> Tuple[bytes, Tuple[int, ...], str]:
    """Bytes, shape and dtype of a tensor or an array."""
    if isinstance(x, Tensor):
        return bytes(x._bytes()), tuple(x.shape), x.dtype.name
    import numpy

    a = numpy.asarray(x)
    if a.dtype.byteorder not in "=|<":
        a = a.astype(a.dtype.newbyteorder("="))
    return a.tobytes(), a.shape, a.dtype.name


def _is_array(x: Any) -> bool:
    return isinstance(x, Tensor) or hasattr(x, "__array_interface__")


def _stacked(examples: Sequence[Any]) -> Part:
    """Arrays with a new first axis. Errors: ValueError, with the places, unless shapes and dtypes agree."""
    all = [_array(x) for x in examples]
    _, shape, dtype = all[0]
    for i, (_, other, of) in enumerate(all):
        if (other, of) != (shape, dtype):
            raise ValueError(
                f"example {i} of the batch has shape {other} and dtype {of}, example 0 {shape} and {dtype}: "
                "let the dataset give one shape, or the loader a `collate` that makes them one"
            )
    return b"".join(data for data, _, _ in all), (len(all), *shape), dtype


def device_of(x: Any) -> Optional[Device]:
    """The device of the tensors in an example or a batch, None without a tensor. Errors: DeviceError for two."""
    if isinstance(x, Tensor):
        return x.device
    found: Optional[Device] = None
    if isinstance(x, (list, tuple, dict)):
        for part in x.values() if isinstance(x, dict) else x:
            own = device_of(part)
            if own is not None and found is not None and own != found:
                raise DeviceError(f"the tensors lie on two devices, {found} and {own}: put them on one")
            found = own if found is None else found
    return found


def default_collate(examples: Sequence[Any]) -> Any:
    """Numbers, arrays and tensors stacked along a new first axis, within lists, tuples and dictionaries of one structure.

    Python's floats become float32, integers int64; arrays keep their dtypes, and tensors their device. Errors:
    ValueError for shapes or structures that differ; TypeError for objects without numbers; DeviceError for tensors of
    two devices.

    >>> import remat
    >>> remat.data.default_collate([{"x": [1.0, 2.0], "y": 3}, {"x": [4.0, 5.0], "y": 6}])["y"].tolist()
    [3, 6]
    """
    from .._remat import batch_on
    from .._support import default_device

    structure, parts = collated(examples)
    return assembled(structure, batch_on(parts, default_device(device_of(examples))))


def collated(examples: Sequence[Any]) -> Tuple[Any, List[Part]]:
    """The structure of a batch, and its parts."""
    parts: List[Part] = []
    return _collate(list(examples), parts), parts


def _collate(examples: List[Any], parts: List[Part]) -> Any:
    first = examples[0]
    if _is_array(first):
        parts.append(_stacked(examples))
        return LEAF
    if isinstance(first, (bool, int, float)):
        parts.append(examples)
        return LEAF
    if not isinstance(first, (list, tuple, dict)):
        raise TypeError(
            f"an example holds {type(first).__name__}, which cannot become a tensor: let the dataset give numbers, arrays or "
            "tensors, or the loader a `collate` that makes some"
        )
    if any(type(e) is not type(first) or len(e) != len(first) for e in examples):
        raise ValueError("the examples of a batch differ in their structure")
    if isinstance(first, dict):
        if any(e.keys() != first.keys() for e in examples):
            raise ValueError("the examples of a batch differ in their keys")
        return {k: _collate([e[k] for e in examples], parts) for k in first}
    inner = [_collate([e[i] for e in examples], parts) for i in range(len(first))]
    return _like(first, inner)


def _like(of: Any, inner: List[Any]) -> Any:
    """A list, tuple or named tuple as `of`."""
    if isinstance(of, list):
        return inner
    return type(of)(*inner) if hasattr(of, "_fields") else tuple(inner)


def taken_apart(batch: Any, parts: List[Part]) -> Any:
    """The structure of a batch that a `collate` of the user's made; its arrays are appended to `parts`."""
    if _is_array(batch):
        parts.append(_array(batch))
        return LEAF
    if isinstance(batch, (bool, int, float)):
        parts.append(batch)
        return LEAF
    if isinstance(batch, dict):
        return {k: taken_apart(v, parts) for k, v in batch.items()}
    if isinstance(batch, (list, tuple)):
        return _like(batch, [taken_apart(v, parts) for v in batch])
    raise TypeError(f"a `collate` gives tensors or arrays in lists, tuples and dictionaries, not {type(batch).__name__}")


def assembled(structure: Any, tensors: List[Tensor]) -> Any:
    """A batch of this structure, with tensors in the places of parts."""
    return _assembled(structure, iter(tensors))


def _assembled(structure: Any, rest: Iterator[Tensor]) -> Any:
    # not a nested recursive function: it would hold the tensors until the garbage collector runs
    if isinstance(structure, str):
        return next(rest)
    if isinstance(structure, dict):
        return {k: _assembled(v, rest) for k, v in structure.items()}
    return _like(structure, [_assembled(v, rest) for v in structure])


def bytes_of(parts: List[Part]) -> int:
    """The approximate number of bytes of the parts."""

    def count(p: Any) -> int:
        if isinstance(p, tuple) and p and isinstance(p[0], bytes):
            return len(p[0])
        return sum(map(count, p)) if isinstance(p, (list, tuple)) else 8

    return sum(map(count, parts))
