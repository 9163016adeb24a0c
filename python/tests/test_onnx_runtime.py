"""What `remat.onnx.export` writes, in ONNX Runtime: it loads, runs, and agrees."""
import math

import numpy as np
import pytest

import remat
from remat import nn, onnx
from remat.nn import functional as F

onnxruntime = pytest.importorskip("onnxruntime")


def agree(f, inputs, path, tolerance=1e-5, others=(), **options):
    """Exports a function, and compares what ONNX Runtime makes of the file with the function: on these inputs, and on `others`."""
    names = [f"x{i}" for i in range(len(inputs))]
    onnx.export(f, inputs, path, input_names=names, **options)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for given in (inputs, *others):
        want = f(*given)
        want = want if isinstance(want, (list, tuple)) else [want]
        got = session.run(None, {name: x.numpy() for name, x in zip(names, given)})
        assert len(got) == len(want)
        for a, b in zip(got, want):
            b = b.numpy()
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            size = max(float(np.abs(b.astype(np.float64)).max()), 1.0) if b.size else 1.0
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * size)
    return session


def test_the_default_version_is_one_that_the_runtime_runs(device, tmp_path, capfd):
    path = tmp_path / "f.onnx"
    agree(lambda x: x.relu(), [remat.ones(2)], path)
    assert onnx.Model(path).opsets[""] == 21
    # the runtime warns of versions that it does not know yet
    assert "opset" not in capfd.readouterr().err


@pytest.mark.parametrize("opset", [18, 20, 21, 22, None])
def test_nodes_of_one_operator_and_values_returned_twice_load(device, tmp_path, opset):
    x = remat.tensor([1.0, -2.0, 3.0])
    path = tmp_path / "m.onnx"
    for f in (
        lambda a: (a, a + 1, a),
        lambda a: (a * 2,) + (a,) * 2,
        lambda a: F.gelu(F.gelu(a)),
        lambda a: (F.gelu(a), F.gelu(F.gelu(a)), F.gelu(a)),
        lambda a: (lambda y: (y, y.relu(), y))(F.gelu(a)),
        lambda a: (remat.ones(2), a, remat.ones(2)),
    ):
        agree(f, [x], path, opset=opset)


def normed(norm, *shape):
    remat.manual_seed(1)
    net = nn.Sequential(nn.Conv2d(shape[1], 6, 3, padding=1), norm, nn.ReLU()).eval()
    for p in net.parameters():
        p.set_(remat.randn(*p.shape) * 0.5)
    return net


@pytest.mark.parametrize(
    "norm",
    [
        lambda: nn.GroupNorm(3, 6), lambda: nn.GroupNorm(1, 6), lambda: nn.InstanceNorm(6), lambda: nn.BatchNorm2d(6),
        lambda: nn.LayerNorm([4, 5]), lambda: nn.RMSNorm([4, 5]),
    ],
    ids=["groups", "one group", "instances", "batch", "layer", "rms"],
)
@pytest.mark.parametrize("opset", [18, None])
def test_norms_agree(device, tmp_path, norm, opset):
    x = remat.randn(2, 3, 4, 5)
    agree(normed(norm(), *x.shape), [x], tmp_path / "n.onnx", 1e-4, opset=opset)


def test_norms_of_groups_follow_an_open_batch(device, tmp_path):
    net = normed(nn.GroupNorm(3, 6), 2, 3, 4, 5)
    agree(
        net, [remat.randn(2, 3, 4, 5)], tmp_path / "n.onnx", 1e-4, others=[[remat.randn(n, 3, 4, 5)] for n in (1, 7)],
        dynamic={0: {0: "batch"}}, sizes={"batch": (1, 16)},
    )


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 16)
        self.layer = nn.EncoderBlock(16, 4, 32)
        self.out = nn.Linear(16, 5)

    def forward(self, tokens):
        return F.softmax(self.out(self.layer(self.words(tokens)) * math.sqrt(0.5)), -1)


class Recurrent(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell, self.out = cell(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        y, _ = self.cell(x)
        return self.out(y).log_softmax(-1)


def networks():
    image = lambda: remat.randn(2, 3, 16, 16)
    yield "convolutions", lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.SiLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=4),
        nn.Hardswish(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4), nn.Dropout(0.5), nn.Softmax(-1),
    ), lambda: [image()]
    yield "upsampling", lambda: nn.Sequential(
        nn.Conv2d(3, 4, 1), nn.Upsample(scale_factor=2, mode="nearest"), nn.LeakyReLU(0.2), nn.ConvTranspose2d(4, 3, 2, stride=2),
    ), lambda: [image()]
    yield "encoder", Encoder, lambda: [remat.tensor([[1, 2, 3], [4, 5, 19]])]
    yield "lstm", lambda: Recurrent(nn.LSTM), lambda: [remat.randn(2, 5, 6)]
    yield "gru", lambda: Recurrent(nn.GRU), lambda: [remat.randn(2, 5, 6)]


@pytest.mark.parametrize("name,make,inputs", list(networks()), ids=[n[0] for n in networks()])
def test_networks_agree(device, tmp_path, name, make, inputs):
    remat.manual_seed(2)
    agree(make().eval(), inputs(), tmp_path / "net.onnx", 1e-4)


FUNCTIONS = {
    "arithmetic": lambda x, y: (x + y, x - y, x * y, x / (y.abs() + 1), (x.abs() + 1) ** y, x.maximum(y), x.minimum(y)),
    "comparisons": lambda x, y: (x < y, x >= y, x == y, remat.where(x > y, x, y)),
    "functions": lambda x, y: (x.exp(), (x.abs() + 1).log(), x.sin(), x.tanh(), x.sigmoid(), x.abs().sqrt(), x.round(), x.erf()),
    "reductions": lambda x, y: (x.sum(0), x.mean(-1), x.max(1), x.argmax(1), x.var(0), x.logsumexp(-1), x.prod(1)),
    "shapes": lambda x, y: (x.reshape(-1), x.t(), remat.cat([x, y], 0), remat.stack([x, y], 1), x[1:, ::2], x.flip(0), x.roll(1, 0)),
    "products": lambda x, y: (x @ y.t(), remat.einsum("ij,kj->ik", [x, y]), x.t() @ y),
    "order": lambda x, y: (x.sort(-1)[0], x.topk(2, -1)[0], x.cumsum(0)),
    "gathers": lambda x, y: (x.gather(1, y.argsort(1)), x[[2, 0]], x.masked_fill(y > 0, 0.5), x.tril()),
    "attention": lambda x, y: F.scaled_dot_product_attention(
        x.reshape(1, 3, 1, 4), y.reshape(1, 3, 1, 4), (x + y).reshape(1, 3, 1, 4)
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree(device, tmp_path, name):
    remat.manual_seed(4)
    agree(FUNCTIONS[name], [remat.randn(3, 4), remat.randn(3, 4)], tmp_path / "f.onnx")
