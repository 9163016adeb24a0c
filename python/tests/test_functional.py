"""What PyTorch's programs name: `remat.nn.functional`, losses, groups and schedulers of optimisers, moving modules."""
import math

import numpy as np
import pytest

import remat
import remat.nn.functional as F
from remat import nn, optim


def rand(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def agree(mine, theirs, tolerance=1e-5):
    np.testing.assert_allclose(mine.numpy(), theirs.detach().numpy(), rtol=tolerance, atol=tolerance)


CASES = [
    ("linear", [(3, 4), (2, 4), (2,)], {}),
    ("gelu", [(5,)], {"approximate": "tanh"}),
    ("softplus", [(50,)], {"beta": 2.0, "threshold": 1.0}),
    ("layer_norm", [(2, 3, 4)], {"normalized_shape": (3, 4)}),
    ("group_norm", [(2, 4, 3)], {"num_groups": 2}),
    ("pad", [(1, 2, 3, 4)], {"pad": [1, 2, 0, 1], "value": 3.0}),
    ("pad", [(1, 2, 3, 4)], {"pad": [-1, 2, 1, -2]}),
    ("pad", [(1, 2, 4, 4)], {"pad": [2, 1, 1, 0], "mode": "reflect"}),
    ("pad", [(1, 2, 4, 4)], {"pad": [2, 1, 1, 0], "mode": "replicate"}),
    ("interpolate", [(1, 2, 4, 4)], {"scale_factor": 2, "mode": "nearest"}),
    ("interpolate", [(1, 2, 4, 5)], {"size": (7, 9), "mode": "bilinear", "align_corners": True}),
    ("interpolate", [(1, 2, 4, 5)], {"scale_factor": 1.5, "mode": "bilinear"}),
    ("interpolate", [(1, 2, 4, 5)], {"size": 6, "mode": "bicubic"}),
    ("interpolate", [(1, 2, 6)], {"size": 4, "mode": "linear"}),
    ("interpolate", [(1, 2, 6, 6)], {"size": 3, "mode": "area"}),
    ("scaled_dot_product_attention", [(1, 2, 3, 4)] * 3, {"is_causal": True}),
    ("smooth_l1_loss", [(9,), (9,)], {"beta": 0.5}),
]


@pytest.mark.parametrize("name, shapes, options", CASES)
def test_functions_agree_with_pytorch(name, shapes, options, device):
    torch = pytest.importorskip("torch")
    arrays = [rand(*s, seed=i) for i, s in enumerate(shapes)]
    x, y = [remat.tensor(a) for a in arrays], [torch.tensor(a) for a in arrays]
    x[0].requires_grad_(), y[0].requires_grad_()
    mine, theirs = getattr(F, name)(*x, **options), getattr(torch.nn.functional, name)(*y, **options)
    agree(mine, theirs)
    weights = rand(*theirs.shape, seed=9)
    (mine * remat.tensor(weights)).sum().backward()
    (theirs * torch.tensor(weights)).sum().backward()
    agree(x[0].grad, y[0].grad, 1e-4)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses_agree_with_pytorch(reduction, device):
    torch = pytest.importorskip("torch")
    p, q = rand(4, 5, 3), rand(4, 5, 3, seed=1)
    labels = np.random.default_rng(2).integers(0, 5, (4, 3))
    logs = F.log_softmax(remat.tensor(p), 1)
    their_logs = torch.log_softmax(torch.tensor(p), 1)
    agree(F.nll_loss(logs, remat.tensor(labels), reduction=reduction), torch.nn.functional.nll_loss(their_logs, torch.tensor(labels), reduction=reduction))
    target = 1 / (1 + np.exp(-q))
    x, y = remat.tensor(p).sigmoid(), torch.tensor(p).sigmoid()
    agree(F.binary_cross_entropy(x, remat.tensor(target), reduction=reduction), torch.nn.functional.binary_cross_entropy(y, torch.tensor(target), reduction=reduction))
    agree(F.kl_div(logs, remat.tensor(target), reduction=reduction), torch.nn.functional.kl_div(their_logs, torch.tensor(target), reduction=reduction))


def test_the_logarithm_of_zero_is_finite_and_so_is_its_gradient(device):
    x = remat.tensor([0.0, 1.0, 1e-40, 0.25], requires_grad=True)
    y = remat.tensor([1.0, 0.0, 1.0, 1.0])
    loss = F.binary_cross_entropy(x, y, reduction="none")
    # those of PyTorch: the logarithm is at least -100, the divisor of the gradient at least 1e-12
    assert loss.tolist()[:2] == [100.0, 100.0] and abs(loss.tolist()[2] - 92.1034) < 1e-4
    loss.sum().backward()
    assert x.grad.tolist() == [-999999995904.0, 999999995904.0, -999999995904.0, -4.0]
    half = F.binary_cross_entropy(remat.tensor([0.0, 0.5], dtype="float16"), remat.tensor([1.0, 1.0], dtype="float16"), reduction="none")
    assert half.tolist()[0] == 100.0 and abs(half.tolist()[1] - math.log(2)) < 1e-3


def test_what_is_wrong_is_said(device):
    x = remat.ones(1, 1, 2, 2)
    for f in (
        lambda: F.pad(x, [1]), lambda: F.pad(x, [1] * 10), lambda: F.pad(x, [1, 1], mode="wrong"), lambda: F.pad(x, [-3, 0]),
        lambda: F.interpolate(x), lambda: F.interpolate(x, size=2, scale_factor=2), lambda: F.interpolate(x, size=2, mode="x"),
        lambda: F.interpolate(x, size=3, mode="nearest", align_corners=True), lambda: F.gelu(x, "x"), lambda: nn.GELU("x"),
        lambda: F.layer_norm(x, 3), lambda: F.smooth_l1_loss(x, x, beta=-1.0), lambda: F.mse_loss(x, x, "x"),
        lambda: F.dropout(x, 2.0), lambda: F.interpolate(x, size=(1, 2, 3)),
    ):
        with pytest.raises(ValueError):
            f()


def test_masks_and_dropout_of_attention(device):
    q, k = remat.tensor(rand(1, 2, 5, 4)), remat.tensor(rand(1, 2, 5, 4, seed=1))
    v = remat.ones(1, 2, 5, 4)
    seen = remat.ones(5, 5, dtype="bool").tril()
    causal = F.scaled_dot_product_attention(q, k, q, is_causal=True)
    for mask in (seen, remat.zeros(5, 5).masked_fill(seen.logical_not(), float("-inf"))):
        np.testing.assert_allclose(F.scaled_dot_product_attention(q, k, q, attn_mask=mask).numpy(), causal.numpy(), rtol=1e-5)
    np.testing.assert_allclose(F.scaled_dot_product_attention(q[0], k[0], q[0], is_causal=True).numpy(), causal[0].numpy(), rtol=1e-5)
    dropped = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5, is_causal=True, generator=remat.Generator(3))
    assert set(dropped[:, :, 0].flatten().tolist()) <= {0.0, 2.0}  # the first sees itself alone
    other = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5, is_causal=True, generator=remat.Generator(3))
    assert other.tolist() == dropped.tolist()
    many = remat.ones(1, 1, 400, 4)
    assert abs(F.scaled_dot_product_attention(many, many, many, dropout_p=0.5).mean().item() - 1) < 0.02


def test_groups_are_dictionaries_that_write_through(device):
    a, b = nn.Parameter(remat.ones(2)), nn.Parameter(remat.ones(3))
    optimizer = optim.AdamW([{"params": [a], "lr": 0.1}, {"params": [b]}], lr=0.2, betas=(0.8, 0.9))
    first, second = optimizer.param_groups
    assert (first["lr"], second["lr"], first["betas"]) == (0.1, 0.2, (0.8, 0.9)) and first["params"][0] is a
    second["lr"], second["betas"] = 0.05, (0.5, 0.6)
    assert optimizer.groups[1]["lr"] == 0.05 and optimizer.groups[1]["beta2"] == 0.6 and optimizer.groups[0]["lr"] == 0.1
    with pytest.raises(ValueError):
        first["nothing"] = 1
    with pytest.raises(TypeError):
        first["params"] = []
    optimizer.zero_grad(set_to_none=True)


def test_a_plateau_agrees_with_pytorch(device):
    torch = pytest.importorskip("torch")
    for mode in ("min", "max"):
        mine, theirs = optim.SGD([nn.Parameter(remat.ones(1))], lr=1.0), torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
        a = optim.lr_scheduler.ReduceLROnPlateau(mine, mode, patience=1, cooldown=1)
        b = torch.optim.lr_scheduler.ReduceLROnPlateau(theirs, mode, patience=1, cooldown=1)
        for v in [3.0, 2.0, 2.0, 2.5, 2.1, 2.0, 1.0, 4.0, 4.0, 4.0, 4.0, 4.0]:
            a.step(v), b.step(v)
            assert mine.lr == pytest.approx(theirs.param_groups[0]["lr"])


def test_a_module_moves_as_a_whole(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.ConvNorm(1, 2, 3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(8, 3, bias=False))
            self.scale = nn.Parameter(remat.ones(1))
            self.register_buffer("seen", remat.ones(2, dtype="int64"), persistent=False)

        def forward(self, x):
            return self.body(x) * self.scale

    net = Net().eval()
    net.body[3].weight.requires_grad = False
    x = remat.randn(2, 1, 2, 2)
    before = net(x).numpy()
    assert net.to(device).body[3].weight is net.body[3].weight and "seen" not in net.state_dict()
    other = remat.Device(budget="16MiB", threads=1)
    assert net.to(other) is net
    assert {p.device for p in [*net.parameters(), *net.buffers()]} == {other}
    np.testing.assert_array_equal(net(x.to(other)).numpy(), before)
    assert not net.body[3].weight.requires_grad and net.body[3].bias is None and net.scale.requires_grad
    net.to("float64")
    assert net.body[0].conv.weight.dtype == remat.float64 and net.seen.dtype == remat.int64
    np.testing.assert_allclose(net(x.to(other).to("float64")).numpy(), before, rtol=1e-5, atol=1e-6)
    optimizer = optim.SGD(net.train().parameters(), lr=0.1)
    net(x.to(other).to("float64")).sum().backward()
    old = net.scale.tolist()
    optimizer.step()
    assert net.scale.tolist() != old


def test_creation_as_in_pytorch(device):
    assert remat.randint(5, (2, 3)).shape == (2, 3) and remat.randint(2, 5, (4,)).shape == (4,)
    assert remat.randn_like(remat.ones(2, dtype="float64")).dtype == remat.float64
    a = np.arange(4.0)
    x = remat.from_numpy(a)
    a[0] = 9
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0] and x.view_as(remat.ones(2, 2)).shape == (2, 2)
    assert x.expand(2, -1).shape == (2, 4) and x.contiguous() is x
    g = remat.Generator(1)
    assert remat.multinomial(remat.ones(3, 4), 2, generator=g).shape == (3, 2)
    with pytest.raises(ValueError):
        x.expand(-1, 4)
