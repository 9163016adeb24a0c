import base64
import gzip
import json
import pathlib

import numpy as np
import pytest

import remat
from remat import nn

DATA = pathlib.Path(__file__).parents[2] / "crates" / "zoo" / "tests" / "data"
DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64",
]


def test_every_dtype_comes_back_with_its_name(device, tmp_path):
    path = tmp_path / "all.safetensors"
    state = {f"part.{d}": remat.tensor([[0, 1, 1]], dtype=d) for d in DTYPES}
    state["empty"] = remat.zeros(0, 3)
    state["number"] = remat.tensor(2.5)
    remat.save(state, path, metadata={"a": "\"quoted\"", "b": "ä"})
    back = remat.load(path)
    assert set(back) == set(state) and back.metadata == {"a": "\"quoted\"", "b": "ä"}
    for name, t in state.items():
        assert (back[name].dtype, back[name].shape, back[name].tobytes()) == (t.dtype, t.shape, t.tobytes()), name
    assert list(tmp_path.iterdir()) == [path]
    remat.save({"x": np.arange(3)}, str(path))
    assert remat.load(path)["x"].tolist() == [0, 1, 2]


def test_a_module_goes_to_a_file_and_back(device, tmp_path):
    make = lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.LSTM(2, 3))  # noqa: E731
    a, b, c = make(), make(), make()
    path = tmp_path / "net.safetensors"
    remat.save(a, path)
    assert b.load_state_dict(remat.load(path)) == ([], [])
    assert remat.load_weights(c, path) == ([], [])
    for name, t in a.state_dict().items():
        assert b.state_dict()[name].tobytes() == c.state_dict()[name].tobytes() == t.tobytes(), name


def test_a_count_of_batches_is_loaded_where_the_module_keeps_one(device, tmp_path):
    make = lambda: nn.Sequential(nn.BatchNorm1d(3, momentum=None), nn.BatchNorm1d(3))  # noqa: E731
    a, b, plain = make(), make(), nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    for _ in range(2):
        a(remat.tensor(np.arange(12, dtype=np.float32).reshape(4, 3)))
    path = tmp_path / "net.safetensors"
    remat.save(a, path)
    assert remat.load_weights(b, path) == ([], [])
    assert b.state_dict()["0.num_batches_tracked"].item() == 2
    assert remat.load_weights(plain, path) == ([], [])
    assert plain.state_dict()["0.running_mean"].tobytes() == a.state_dict()["0.running_mean"].tobytes()


def test_what_cannot_be_saved_is_told_and_the_old_file_stays(device, tmp_path):
    path = tmp_path / "x.safetensors"
    remat.save({"x": remat.ones(1)}, path)
    before = path.read_bytes()
    zero = remat.zeros(1, dtype="int64")
    wrong = [
        ({"a": {"b": remat.ones(1)}}, TypeError, "Checkpoint"), ([remat.ones(1)], TypeError, "list"), ({1: remat.ones(1)}, TypeError, "1"),
        ({"__metadata__": remat.ones(1)}, ValueError, "__metadata__"), ({"bad": zero // zero}, remat.Error, "bad"),
    ]
    for state, kind, told in wrong:
        with pytest.raises(kind, match=told):
            remat.save(state, path)
    with pytest.raises(TypeError, match="text"):
        remat.save({}, path, metadata={"n": 1})
    with pytest.raises(OSError, match="nowhere"):
        remat.save({}, tmp_path / "nowhere" / "x.safetensors")
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_damaged_files_are_errors_that_name_file_and_place(device, tmp_path):
    path = tmp_path / "x.safetensors"
    remat.save({"flag": remat.tensor([True, False]), "w": remat.ones(3)}, path)
    good = path.read_bytes()
    for wrong in (*(good[:n] for n in range(len(good))), good + b"\0"):
        path.write_bytes(wrong)
        with pytest.raises(remat.FormatError) as e:
            remat.load(path)
        assert str(path) in str(e.value)
    at = good.index(b"\1\0", good.index(b"}}"))
    path.write_bytes(good[:at] + b"\7" + good[at + 1:])
    with pytest.raises(remat.FormatError, match="flag.*7") as e:
        remat.load(path)
    assert str(path) in str(e.value)
    with pytest.raises(OSError, match="none"):
        remat.load(tmp_path / "none")
    with pytest.raises(remat.FormatError, match="folder"):
        remat.load(tmp_path)


def test_a_failed_loading_changes_nothing(device, tmp_path):
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    before = {n: t.tolist() for n, t in net.state_dict().items()}
    path = tmp_path / "x.safetensors"
    state = {n: t + 1 for n, t in net.state_dict().items()}
    remat.save({**state, "1.weight": remat.ones(2, 2)}, path)
    with pytest.raises(ValueError, match="1.weight"):
        remat.load_weights(net, path)
    with pytest.raises(ValueError, match="1.weight"):
        net.load_state_dict(remat.load(path))
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    with pytest.raises(remat.FormatError, match="x.safetensors"):
        remat.load_weights(net, path)
    assert {n: t.tolist() for n, t in net.state_dict().items()} == before
    small = remat.Device(budget="64KiB")
    remat.save({"w": remat.zeros(1 << 16)}, path)
    with pytest.raises(remat.BudgetError, match="w"):
        remat.load(path, device=small)["w"].tolist()


def test_names_and_parts_of_a_file(device, tmp_path):
    net, path = nn.Linear(2, 3), tmp_path / "x.safetensors"
    theirs = {f"state_dict.head.{n}": (t + 1).cast("float64") for n, t in net.state_dict().items()}
    remat.save({**theirs, "optimizer.step": remat.zeros(1)}, path)
    with pytest.raises(ValueError, match="weight"):
        remat.load_weights(net, path)
    want = {n: (t + 1).tolist() for n, t in net.state_dict().items()}
    assert remat.load_weights(net, path, names="head.{p} -> {p}", within="state_dict.") == ([], [])
    assert {n: t.tolist() for n, t in net.state_dict().items()} == want and net.weight.dtype == remat.float32
    remat.save({"weight": remat.zeros(3, 2), "other": remat.zeros(1)}, path)
    assert remat.load_weights(net, path, strict=False) == (["bias"], ["other"])
    with pytest.raises(ValueError):
        remat.load_weights(net, path, names="no arrow")


def cases():
    if not DATA.exists():
        pytest.skip("not in a clone of the repository")
    with gzip.open(DATA / "torch.jsonl.gz") as f:
        return [c for c in map(json.loads, f) if "file" in c]


NAMES = {"i": "int", "u": "uint", "f": "float"}


def test_files_of_pytorch_hold_what_pytorch_says(device, tmp_path):
    path, read = tmp_path / "x.pt", 0
    for case in cases():
        path.write_bytes(base64.b64decode(case["file"]))
        if "refused" in case or case["errors"]:
            with pytest.raises((remat.FormatError, remat.DTypeError)) as e:
                remat.load_torch(path)
            assert str(path) in str(e.value) and case.get("refused", "") in str(e.value), case["name"]
            continue
        state = remat.load_torch(path)
        assert set(state) == set(case["tensors"]), case["name"]
        assert {k: state.metadata[k] for k in case["scalars"]} == case["scalars"], case["name"]
        for name, (dtype, shape, data) in case["tensors"].items():
            own = {"bf16": "bfloat16", "bool": "bool"}.get(dtype) or NAMES[dtype[0]] + dtype[1:]
            t = state[name]
            assert (t.dtype.name, list(t.shape), bytes(t.tobytes())) == (own, shape, base64.b64decode(data)), (case["name"], name)
            read += 1
        # its first bytes tell what it is
        assert {n: t.shape for n, t in remat.load(path).items()} == {n: t.shape for n, t in state.items()}
    assert read > 100


def uniform(name, count):
    """The numbers of `scripts/make_model_fixtures.py`, from which PyTorch's file and the input were made."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float32) * np.float32(2**-24) - np.float32(0.5)


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(o)
        self.conv2 = nn.Conv2d(o, o, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(o)
        self.down = stride > 1
        if self.down:
            self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride=stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (self.downsample(x) if self.down else x)).relu()


class ResNet18(nn.Module):
    """With the names that torchvision's has."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, 2, 1)
        for i, (before, width) in enumerate(((64, 64), (64, 128), (128, 256), (256, 512)), 1):
            setattr(self, f"layer{i}", nn.Sequential(Block(before, width, 1 + (i > 1)), Block(width, width, 1)))
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = self.pool(self.bn1(self.conv1(x)).relu())
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean(axis=(2, 3)))


def test_a_state_dict_of_pytorch_goes_into_layers_of_the_same_names(tmp_path):
    if not DATA.exists():
        pytest.skip("not in a clone of the repository")
    path = tmp_path / "resnet18.pt"
    path.write_bytes(gzip.decompress(gzip.decompress((DATA / "torch_resnet18.pt.gz.gz").read_bytes())))
    with gzip.open(DATA / "torch.jsonl.gz") as f:
        told = next(c for c in map(json.loads, f) if c["name"] == "resnet18")
    before = remat.get_default_device()
    remat.set_default_device(remat.Device(budget="512MiB", threads=2))
    try:
        x = remat.asarray(uniform("x", 4800).reshape(told["x"]) * 3)
        whole, streamed = ResNet18().eval(), ResNet18().eval()
        assert whole.load_state_dict(remat.load(path)) == ([], [])
        assert remat.load_weights(streamed, path) == ([], [])
        with remat.no_grad():
            y = whole(x).numpy()
            np.testing.assert_array_equal(streamed(x).numpy(), y)
        np.testing.assert_allclose(y.reshape(-1), told["y"], rtol=1e-4, atol=1e-4)
        # and back: PyTorch finds its names
        remat.save(whole, tmp_path / "back.safetensors")
        names = {n for n in remat.load(path) if not n.endswith("num_batches_tracked")}
        assert set(remat.load(tmp_path / "back.safetensors")) == names
    finally:
        remat.set_default_device(before)
