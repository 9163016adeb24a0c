#!/usr/bin/env python3
"""Write small files with PyTorch's `torch.save`, and what is in them.

    python3 -m venv VENV && VENV/bin/pip install torch==2.15.0 torchvision==0.29.2 numpy
    VENV/bin/python scripts/make_torch_checkpoints.py       # crates/zoo/tests/data/torch.jsonl.gz and torch_resnet18.pt.gz.gz

Only this script needs them. Each line of torch.jsonl.gz is a case: a file in base64; its tensors by name, each with dtype,
shape and bytes; the names whose tensors have no values in Remat, with a part of the error; its single values; or, for a file
that is refused, a part of that error. Names are made here by a walk over what `torch.load` gives, apart from the walk over the
pickle that is tested. The test is crates/zoo/tests/suite/torch.rs.

torch_resnet18.pt.gz.gz is a state dict of torchvision's resnet18 for 10 classes. So that it is small, each tensor repeats some
numbers, at most 509 of them, which packs twice; the line `resnet18` has an input's shape and the output.
"""

import argparse
import base64
import collections
import functools
import gzip
import io
import json
import math
import pathlib
import pickle
import tarfile
import warnings
import zipfile

import numpy as np
import torch
import torchvision.models as tv
from torch import nn

from make_model_fixtures import uniform

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "crates" / "zoo" / "tests" / "data"
NAMES = {
    torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64",
    torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
    torch.uint8: "u8", torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64", torch.bool: "bool",
}
SAVE_ANEW = "torch.save(model.state_dict(), path)"


def saved(what, **options):
    to = io.BytesIO()
    torch.save(what, to, **options)
    return to.getvalue()


def flat(what, name=""):
    """Pairs of a name and a tensor or single value."""
    at = lambda key: f"{name}.{key}" if name else str(key)
    if isinstance(what, torch.Tensor):
        yield name, what
    elif isinstance(what, nn.Module):
        for key, value in what.state_dict().items():
            yield at(key), value
    elif isinstance(what, dict):
        for key, value in what.items():
            yield from flat(value, at(key))
    elif isinstance(what, (list, tuple)) and not isinstance(what, torch.Size):
        for i, value in enumerate(what):
            yield from flat(value, at(i))
    elif isinstance(what, np.generic):
        yield name, what.item()
    elif isinstance(what, (bool, int, float, str)):
        yield name, what
    elif isinstance(what, argparse.Namespace):
        yield from flat(vars(what), name)


def bytes_of(t):
    t = t.detach().contiguous()
    return t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.numel() else b""


def case(name, what, file=None, errors=None, **options):
    """A case of an object and the file that holds it."""
    errors = errors or {}
    file = saved(what, **options) if file is None else file
    tensors, scalars = {}, {}
    for key, value in flat(what):
        if not isinstance(value, torch.Tensor):
            if isinstance(value, str) or (-(2**63) <= value < 2**63 if isinstance(value, int) else math.isfinite(value)):
                scalars[key] = value
        elif key not in errors:
            tensors[key] = [NAMES[value.dtype], list(value.shape), base64.b64encode(bytes_of(value)).decode()]
    file = base64.b64encode(file).decode()
    return {"name": name, "file": file, "tensors": tensors, "errors": errors, "scalars": scalars}


def refused(name, file, error):
    return {"name": name, "file": base64.b64encode(file).decode(), "refused": error}


def numbers(shape, name="x"):
    return torch.from_numpy(uniform(name, math.prod(shape))).reshape(shape)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight


def small():
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3, 2))


def training():
    net = small()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    net(numbers([4, 2, 3, 3])).sum().backward()
    optimizer.step()
    schedule.step()
    return {
        "epoch": 7,
        "best": np.float64(0.875),
        "seen": np.int64(-3),
        "half": np.float32(0.1),
        "done": False,
        "arch": "small",
        "args": argparse.Namespace(lr=0.01, layers=[3, 4], note="\u00fc\u4e00"),
        "state_dict": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": schedule.state_dict(),
    }


def parameters():
    with_state = nn.Parameter(numbers([2, 2], "s"))
    with_state.note = "an attribute"
    return {"plain": nn.Parameter(numbers([3])), "fixed": nn.Parameter(numbers([2]), requires_grad=False),
            "state": with_state, "buffer": nn.Buffer(numbers([2], "b")), "list": [nn.Parameter(numbers([1])), 3]}


def views():
    x = numbers([4, 6])
    return {
        "whole": x, "transposed": x.T, "rows": x[1:3], "columns": x[:, 2:5], "steps": x[::2, ::3], "last": x[3, 5],
        "expanded": x[:, :1].expand(4, 3), "overlap": x.reshape(-1).as_strided([5, 4], [1, 2], 3), "empty": x[:0],
        "empty_axis": torch.zeros(2, 0, 3), "scalar": torch.tensor(2.5), "permuted": numbers([2, 3, 4]).permute(2, 0, 1),
        "one": x[2:3, 1:2], "i8": torch.arange(24, dtype=torch.int8).reshape(2, 3, 4).transpose(0, 2),
    }


def dtypes():
    values = {NAMES[d]: (numbers([5]) * 9).to(d) for d in NAMES}
    values["bool"] = torch.tensor([True, False, True])
    values["nan"] = torch.tensor([math.nan, math.inf, -0.0])
    return values


def unsupported():
    f8 = {f"f8_{i}": torch.zeros(2, dtype=d) for i, d in enumerate([torch.float8_e4m3fn, torch.float8_e5m2])}
    return f8 | {
        "c64": torch.zeros(2, dtype=torch.complex64), "c128": torch.zeros(2, dtype=torch.complex128),
        "quantised": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "sparse": torch.eye(2).to_sparse(),
        "csr": torch.eye(2).to_sparse_csr(), "meta": torch.zeros(2, device="meta"),
        "negated": torch.zeros(2, dtype=torch.complex64).conj().imag, "good": torch.ones(2),
    }


def of_all_kinds():
    """What pickles have opcodes for."""
    deep = [1.5]
    for _ in range(50):
        deep = [deep]
    text = "k" * 300
    x = numbers([2], "y")
    return collections.OrderedDict([
        (text, numbers([1])), ("set", {1, 2}), ("frozen", frozenset({3})), ("bytes", b"\x00\xff" * 200),
        ("array", bytearray(b"ab")),
        ("ints", [0, 255, 256, 65535, 65536, -1, -129, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**64, 1 << 2100]),
        ("floats", [0.1, -math.inf, 1e300]), ("none", None), ("bools", (True, False)), ("deep", deep), ("same", [x, x]),
        ("tuples", ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4))), ("dict", {1: x, "a": {"b": numbers([1, 2])}, 2.5: 4, None: 1}),
        ("size", torch.Size([1, 2])), ("dtype", torch.float32), ("device", torch.device("cpu")), ("many", list(range(1500))),
    ])


class Touch:
    """Makes a file when it is loaded by a machine that calls what it is told."""

    def __init__(self, function, *args):
        self.call = (function, args)

    def __reduce__(self):
        return self.call


def malicious():
    import os

    touch = "touch remat-was-here"
    return {
        "system": Touch(os.system, touch), "eval": Touch(eval, f"__import__('os').system('{touch}')"),
        "exec": Touch(exec, f"import os; os.system('{touch}')"), "open": Touch(open, "remat-was-here", "w"),
        "partial": Touch(functools.partial, os.system, touch), "weight": numbers([2]),
    }


def safe_view(what):
    return {key: value for key, value in what.items() if isinstance(value, torch.Tensor)}


def edited(file, edit, packed=zipfile.ZIP_STORED):
    """The archive with each member's bytes as `edit` makes them of name and bytes."""
    to = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(file)) as old, zipfile.ZipFile(to, "w", packed) as new:
        for info in old.infolist():
            new.writestr(zipfile.ZipInfo(info.filename), edit(info.filename, old.read(info)), packed)
    return to.getvalue()


def big_endian(file, size):
    def edit(name, data):
        if "/data/" in name:
            return np.frombuffer(data, dtype=f"V{size}").tobytes() if size == 1 else swapped(data, size)
        return b"big" if name.endswith("/byteorder") else data

    return edited(file, edit)


def swapped(data, size):
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, size)[:, ::-1].tobytes()


def python2(x):
    """A state dict as Python 2 pickles it: strings of bytes, an OrderedDict by a list of pairs."""
    tensor = (
        b"ctorch._utils\n_rebuild_tensor\n((U\x07storagectorch\nFloatStorage\nU\x010U\x03cpuK\x02tQK\x00K\x02\x85K\x01\x85tR"
    )
    of = b"\x80\x02ccollections\nOrderedDict\n](](U\x06weight" + tensor + b"ee\x85R."
    return edited(saved({"x": x}), lambda name, data: of if name.endswith("data.pkl") else data)


def cyclic(x):
    inner = {"x": x}
    inner["again"] = inner
    whole = [inner, inner]
    whole.append(whole)
    return whole


def jit(net):
    to = io.BytesIO()
    torch.jit.save(torch.jit.script(net), to)
    return to.getvalue()


def tar():
    to = io.BytesIO()
    with tarfile.open(fileobj=to, mode="w") as archive:
        for name in ["sys_info", "pickle", "tensors", "storages"]:
            data = pickle.dumps(0, 2)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return to.getvalue()


def cases():
    net = small()
    old = {"_use_new_zipfile_serialization": False}
    yield case("state dict", net.state_dict())
    yield case("training checkpoint", training())
    yield case("parameters", parameters())
    yield case("tied weights", Tied().state_dict())
    yield case("whole module", net)
    yield case("whole module with tied weights", Tied())
    yield case("views", views())
    yield case("dtypes", dtypes())
    yield case("one tensor", numbers([2, 3]))
    yield case("list", [numbers([1]), (numbers([2]), {"a": numbers([3])})])
    for protocol in range(1, 6):
        yield case(f"protocol {protocol}", of_all_kinds(), pickle_protocol=protocol)
        yield case(f"training checkpoint of protocol {protocol}", training(), pickle_protocol=protocol)
    errors = {
        "f8_0": "float8_e4m3fn", "f8_1": "float8_e5m2", "c64": "ComplexFloatStorage", "c128": "ComplexDoubleStorage",
        "quantised": "dequantize", "sparse": "to_dense", "csr": "to_dense", "meta": "meta", "negated": "resolve_neg",
    }
    yield case("unsupported", unsupported(), errors=errors)
    for name, what in [("state dict", net.state_dict()), ("training checkpoint", training()), ("views", views()),
                       ("dtypes", dtypes()), ("tied weights", Tied().state_dict()), ("whole module", net)]:
        yield case(f"old {name}", what, **old)
    yield case("old of protocol 4", of_all_kinds(), pickle_protocol=4, **old)
    bad = malicious()
    yield case("malicious", safe_view(bad), file=saved(bad))
    yield case("malicious of protocol 4", safe_view(bad), file=saved(bad, pickle_protocol=4))
    yield case("old malicious", safe_view(bad), file=saved(bad, **old))
    yield case("deflated", views(), file=edited(saved(views()), lambda name, data: data, zipfile.ZIP_DEFLATED))
    x = {"x": numbers([3, 2]).T}
    yield case("big-endian", x, file=big_endian(saved(x), 4))
    halves = {"x": numbers([5]).half()}
    yield case("big-endian halves", halves, file=big_endian(saved(halves), 2))
    torch.serialization.set_crc32_options(False)
    yield case("without check sums", net.state_dict())
    torch.serialization.set_crc32_options(True)
    two = numbers([2])
    yield case("python 2", {"weight": two}, file=python2(two))
    yield case("cyclic", [{"x": two}, {"x": two}], file=saved(cyclic(two)))
    yield case("script", net.state_dict(), file=jit(net))
    yield refused("tar", tar(), SAVE_ANEW)
    yield refused("pickle", pickle.dumps({"a": 1}, 4), SAVE_ANEW)
    other = io.BytesIO()
    np.savez(other, a=np.zeros(2))
    yield refused("npz", other.getvalue(), "data.pkl")


def resnet18():
    net = tv.resnet18(num_classes=10)
    state = {}
    for name, old in net.state_dict().items():
        if name.endswith("num_batches_tracked"):
            state[name] = torch.zeros_like(old)
            continue
        count = old.numel()
        u = np.resize(uniform(name, min(count, 509)), count).reshape(old.shape)
        if old.dim() >= 2:
            u = u * np.float32(math.sqrt(24 / math.prod(old.shape[1:])))
        elif name.endswith("running_var"):
            u = u + np.float32(1)
        elif name.endswith("weight"):
            u = u * np.float32(0.5) + np.float32(1)
        else:
            u = u * np.float32(0.25)
        state[name] = torch.from_numpy(np.ascontiguousarray(u))
    net.load_state_dict(state)
    net.eval()
    shape = [1, 3, 40, 40]
    with torch.no_grad():
        y = net(numbers(shape) * 3)
    line = {"name": "resnet18", "x": shape, "y": [float(v) for v in y.reshape(-1)]}
    return saved(net.state_dict()), line


def write(path, data, times=1):
    packed = data
    for _ in range(times):
        packed = gzip.compress(packed, 9, mtime=0)
    path.write_bytes(packed)
    print(f"{path.name}: {len(data)} bytes, {len(packed)} packed")


def main():
    warnings.simplefilter("ignore")
    file, line = resnet18()
    write(DATA / "torch_resnet18.pt.gz.gz", file, times=2)
    lines = [json.dumps(c) for c in [*cases(), line]]
    write(DATA / "torch.jsonl.gz", "\n".join(lines).encode())


if __name__ == "__main__":
    main()
