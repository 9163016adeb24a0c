import gc
import weakref

import numpy as np
import pytest

import remat
from remat import nn, optim


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(4 * 16, 3))
        self.scale = nn.Parameter(remat.ones(1))
        self.register_buffer("seen", remat.zeros((), dtype="int64"))
        self.name = "plain"

    def forward(self, x):
        return self.head(self.drop(self.norm(self.conv(x)).relu())) * self.scale


NAMES = [
    "scale", "seen", "conv.weight", "conv.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var",
    "head.1.weight", "head.1.bias",
]


def test_parts_are_found_by_attribute(device):
    net = Net()
    assert list(net.state_dict()) == NAMES
    assert [n for n, _ in net.named_parameters()] == [n for n in NAMES if n != "seen" and "running" not in n]
    assert [n for n, _ in net.named_modules()][:3] == ["", "conv", "norm"]
    assert net.conv.weight.shape == (4, 1, 3, 3) and isinstance(net.scale, nn.Parameter)
    net.shared = net.conv
    assert list(net.state_dict()) == NAMES  # once, under the first name
    net.shared = None
    with pytest.raises(TypeError):
        net.scale = 3.0
    with pytest.raises(TypeError):
        net.conv.weight = nn.Parameter(remat.ones(4, 1, 3, 3))
    with pytest.raises(AttributeError, match="nothing"):
        net.nothing
    del net.scale
    assert "scale" not in net.state_dict()
    assert "Linear(inputs=64, outputs=3, bias=True)" in repr(net)

    class NoSuper(nn.Module):
        def __init__(self):
            self.x = nn.ReLU()

    with pytest.raises(AttributeError, match="super"):
        NoSuper()


def test_the_seed_decides_the_first_values(device):
    def weights(seed):
        remat.manual_seed(seed)
        return [t.tolist() for t in Net().state_dict().values()]

    assert weights(1) == weights(1) != weights(2)


def test_training_mode_reaches_compiled_layers(device):
    net, x = Net(), remat.rand(8, 1, 4, 4)
    assert net.training and net(x).tolist() != net(x).tolist()
    net.eval()
    assert not net.norm.training and net(x).tolist() == net(x).tolist()
    before = net.norm.running_mean.tolist()
    net(x)
    assert net.norm.running_mean.tolist() == before
    net.train()(x)
    assert net.norm.running_mean.tolist() != before


def test_state_goes_over_as_a_whole_or_not_at_all(device):
    a, b = Net(), Net()
    state = a.state_dict()
    assert b.load_state_dict(state) == ([], [])
    assert all((b.state_dict()[n] == v).all() for n, v in state.items())
    before = {n: t.tolist() for n, t in b.state_dict().items()}
    wrong = {**a.state_dict(), "conv.bias": remat.zeros(5), "other": remat.zeros(1)}
    del wrong["scale"]
    with pytest.raises(ValueError) as e:
        b.load_state_dict(wrong)
    assert all(n in str(e.value) for n in ("conv.bias", "other", "scale"))
    assert {n: t.tolist() for n, t in b.state_dict().items()} == before
    assert b.load_state_dict({"scale": np.float32([4.0]), "x": [1.0]}, strict=False)[1] == ["x"]
    assert b.scale.tolist() == [4.0]


def test_a_snapshot_does_not_change_with_later_updates(device):
    p = nn.Parameter(remat.ones(2))
    net = nn.Module()
    net.p = p
    state = net.state_dict()
    (p * 1.0).sum().backward()
    optim.SGD(net, lr=1.0).step()
    assert p.tolist() == [0.0, 0.0] and state["p"].tolist() == [1.0, 1.0]


def test_hooks_see_and_change_what_passes(device):
    layer, seen = nn.Linear(2, 2), []
    h = layer.register_forward_pre_hook(lambda m, x: seen.append(x[0].tolist()))
    layer.register_forward_hook(lambda m, x, y: y * 0)
    assert layer(remat.ones(1, 2)).tolist() == [[0.0, 0.0]] and seen == [[[1.0, 1.0]]]
    h.remove()
    h.remove()
    layer(remat.ones(1, 2))
    assert len(seen) == 1


def test_a_frozen_parameter_stays(device):
    net = nn.Linear(2, 2)
    net.bias.requires_grad = False
    before = net.bias.tolist()
    net(remat.ones(1, 2)).sum().backward()
    assert net.bias.grad is None and net.weight.grad is not None
    optim.SGD(net, lr=1.0).step()
    assert net.bias.tolist() == before


def test_layers_agree_with_the_formula(device):
    x = remat.rand(5, 6)
    layer = nn.Linear(6, 3)
    np.testing.assert_allclose(layer(x).numpy(), x.numpy() @ layer.weight.numpy().T + layer.bias.numpy(), rtol=1e-5)
    norm = nn.LayerNorm(6)
    a = x.numpy()
    want = (a - a.mean(1, keepdims=True)) / np.sqrt(a.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(norm(x).numpy(), want, rtol=1e-4, atol=1e-5)
    table = nn.Embedding(5, 3, padding_idx=0)
    index = remat.tensor([[0, 2], [4, 2]])
    np.testing.assert_array_equal(table(index).numpy(), table.weight.numpy()[index.numpy()])
    table(index).sum().backward()
    assert table.weight.grad.tolist() == [[0.0] * 3, [0.0] * 3, [2.0] * 3, [0.0] * 3, [1.0] * 3]


OPTIMIZERS = [
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}), (optim.AdamW, {"lr": 0.1}), (optim.Adam, {"lr": 0.1}),
    (optim.RMSprop, {"lr": 0.05}), (optim.Adagrad, {"lr": 0.5}), (optim.Adamax, {"lr": 0.1}), (optim.NAdam, {"lr": 0.1}),
    (optim.RAdam, {"lr": 0.1}), (optim.Lion, {"lr": 0.05}), (optim.Lamb, {"lr": 0.1}), (optim.Adadelta, {"lr": 1.0}),
]


@pytest.mark.parametrize("of, options", OPTIMIZERS, ids=lambda o: getattr(o, "__name__", ""))
def test_every_optimiser_goes_down_and_goes_on_from_its_state(device, of, options):
    def make():
        p = nn.Parameter(remat.tensor([3.0, -2.0]))
        return p, of([("p", p)], **options)

    def steps(p, optimizer, n):
        for _ in range(n):
            loss = (p * p).sum()
            loss.backward()
            optimizer.step()
        return p.tolist()

    p, optimizer = make()
    steps(p, optimizer, 5)
    assert (p * p).sum().item() < 13.0
    q, other = make()
    q.set_(p.detach())
    other.load_state_dict(optimizer.state_dict())
    assert steps(p, optimizer, 5) == steps(q, other, 5)


def test_groups_have_their_own_options(device):
    a, b = nn.Parameter(remat.ones(1)), nn.Parameter(remat.ones(1))
    optimizer = optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=0.1)
    (a * 1.0 + b * 1.0).sum().backward()
    optimizer.step()
    np.testing.assert_allclose([a.item(), b.item()], [0.9, 0.5], rtol=1e-6)
    optimizer.lr = 0.2
    assert [g["lr"] for g in optimizer.groups] == [0.2, 1.0]
    optimizer.set_group(1, momentum=0.9)
    assert optimizer.groups[1]["momentum"] == 0.9
    for wrong in (lambda: optimizer.set_group(1, nothing=1), lambda: optimizer.set_group(5, lr=1), lambda: optim.SGD([a], lr=-1)):
        with pytest.raises(ValueError):
            wrong()


def test_a_step_that_fails_moves_nothing(device):
    net = nn.Embedding(4, 2)
    optimizer = optim.SGD(net, lr=1.0)
    before = net.weight.tolist()
    with pytest.raises(IndexError):
        net(remat.tensor([0, 9])).sum().backward()
        optimizer.step()
        net.weight.tolist()
        optimizer.step()
    optimizer.skip_step()
    assert net.weight.tolist() == before
    net(remat.tensor([0])).sum().backward()
    optimizer.step()
    assert net.weight.tolist() != before


def test_schedules_are_values():
    s = optim.multi_step(1.0, [2, 4], 0.1)
    assert [s.at(i) for i in range(5)] == [1.0, 1.0, 0.1, 0.1, 0.1 * 0.1] or s.at(4) == pytest.approx(0.01)
    assert optim.linear(1.0, 0.0, 4).at(1) == 0.75
    with pytest.raises(ValueError):
        optim.cosine(lr="x", steps=3)


def test_losses(device):
    x = remat.tensor([[2.0, 0.0], [0.0, 1.0]])
    p = np.exp(x.numpy()) / np.exp(x.numpy()).sum(1, keepdims=True)
    want = -np.log([p[0, 0], p[1, 0]])
    labels = remat.tensor([0, 0])
    np.testing.assert_allclose(nn.CrossEntropyLoss("none")(x, labels).numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(nn.cross_entropy(x, labels).item(), want.mean(), rtol=1e-6)
    with pytest.raises(ValueError):
        nn.mse_loss(x, x, "other")
    with pytest.raises(IndexError):
        nn.cross_entropy(x, remat.tensor([0, 5])).item()


def test_initialisers_draw_in_place(device):
    p = nn.Parameter(remat.zeros(50, 40))
    nn.init.kaiming_normal_(p, mode="fan_out", nonlinearity="relu")
    assert p.std().item() == pytest.approx((2 / 50) ** 0.5, rel=0.1)
    nn.init.xavier_uniform_(p)
    assert p.abs().max().item() <= (6 / 90) ** 0.5
    nn.init.trunc_normal_(p, std=5.0)
    assert p.abs().max().item() <= 2.0
    with pytest.raises(ValueError):
        nn.init.kaiming_normal_(p, nonlinearity="other")


def test_a_module_with_a_cycle_is_collected(device):
    class Cyclic(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 2)
            object.__setattr__(self, "me", self)
            object.__setattr__(self, "compiled", remat.compile(self.forward))

        def forward(self, x):
            return self.layer(x)

    net = Cyclic()
    net.compiled(remat.ones(1, 2))
    alive = weakref.ref(net)
    del net
    gc.collect()
    assert alive() is None


def test_many_steps_leave_nothing_behind(device):
    net = nn.Linear(4, 4)
    optimizer = optim.SGD(net, lr=0.01, momentum=0.9)

    def step():
        loss = (net(remat.ones(2, 4)) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(50):
        step()
    device.sync()
    before, objects = device.report().stats, len(gc.get_objects())
    for _ in range(300):
        step()
    device.sync()
    after = device.report().stats
    for name in ("tensors", "storages", "recipes", "in_use_bytes"):
        assert after[name] <= before[name], name
    assert len(gc.get_objects()) <= objects + 20


def test_compiled_steps_have_the_bits_of_plain_ones(device):
    def train(compiled):
        remat.manual_seed(3)
        net = Net()
        optimizer = optim.AdamW(net, lr=0.01)

        def step(x, labels):
            loss = nn.cross_entropy(net(x), labels)
            loss.backward()
            optimizer.step()
            return {"loss": loss.detach()}

        f = remat.compile(step) if compiled else step
        remat.manual_seed(4)
        losses = [f(remat.rand(6, 1, 4, 4), remat.randint(3, size=6))["loss"].item() for _ in range(4)]
        if compiled:
            assert f.traces == 1
        return losses, [t.tolist() for t in net.state_dict().values()]

    assert train(False) == train(True)


def test_reading_a_value_while_tracing_names_the_line(device):
    @remat.compile
    def f(x):
        y = x * 2
        return y * y.sum().item()

    with pytest.raises(remat.NoValueError) as e:
        f(remat.ones(2))
    assert e.value.file == __file__ and e.value.line == f.__wrapped__.__code__.co_firstlineno + 3

    @remat.compile
    def g(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        g(remat.ones(2))


def test_loaders_give_every_example_once(device):
    data = remat.data.TensorDataset(remat.arange(10), np.arange(20).reshape(10, 2))
    loader = remat.data.DataLoader(data, 3, shuffle=7)
    first = [x.tolist() for x, _ in loader]
    second = [x.tolist() for x, _ in loader]
    assert sorted(sum(first, [])) == list(range(10)) == sorted(sum(second, [])) and first != second
    loader.position = (0, 0)
    assert [x.tolist() for x, _ in loader] == first
    x, y = next(iter(remat.data.DataLoader(data, 3, workers=0)))
    assert y.tolist() == [[0, 1], [2, 3], [4, 5]] and data[-1][0].item() == 9
    with pytest.raises(ValueError):
        remat.data.DataLoader(data, 0)
    with pytest.raises(remat.ShapeError):
        remat.data.TensorDataset(remat.arange(2), remat.arange(3))
    with pytest.raises(IndexError):
        data.batch([10])
