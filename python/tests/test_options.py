"""Every option that is accepted acts, and what would not act is refused."""
import collections
import math

import numpy as np
import pytest

import remat
from remat import nn, optim

SMALL = {"classes": 4, "blocks": [1]}


def test_options_of_layers_that_are_written_act_or_are_refused(device):
    drop = nn.Dropout(0.5)
    drop.p = 0.0
    assert drop.p == 0.0 and bool((drop(remat.ones(64)) == 1).all())
    with pytest.raises(ValueError):
        drop.p = 2.0
    assert drop.p == 0.0, "nothing changed"
    norm = nn.BatchNorm1d(1)
    norm.momentum = 0.5
    norm(remat.ones(4, 1))
    assert norm.running_mean.tolist() == [0.5] and norm.momentum == 0.5
    with pytest.raises(ValueError, match="momentum"):
        norm.momentum = 1.5
    up = nn.Upsample(scale_factor=2)
    up.mode = "bilinear"
    x = remat.tensor([[[[0.0, 4.0]]]])
    assert up(x).tolist() == nn.Upsample(scale_factor=2, mode="bilinear")(x).tolist() != nn.Upsample(scale_factor=2)(x).tolist()
    pool = nn.MaxPool1d(2)
    pool.stride = 1
    assert pool(remat.arange(4).reshape(1, 1, 4)).shape == (1, 1, 3)
    slope = nn.LeakyReLU(0.01)
    slope.negative_slope = 0.5
    assert slope(remat.tensor([-1.0])).tolist() == [-0.5] and slope.negative_slope == 0.5
    for layer, name, value in (
        (nn.Conv2d(1, 1, 3), "out_channels", 2), (nn.LayerNorm(4), "normalized_shape", 5), (nn.Linear(2, 2), "bias", False),
        (nn.LSTM(2, 2), "hidden_size", 3), (nn.BatchNorm1d(1), "affine", False), (nn.PReLU(), "init", 0.5), (nn.BatchNorm1d(1), "momentum", None),
        (remat.models.Vae(inputs=8, hidden=6, code=2), "code", 3),
    ):
        with pytest.raises(TypeError, match=f"`{name}` of {type(layer).__name__} is fixed|same parameter"):
            setattr(layer, name, value)
    assert nn.Conv2d(1, 1, 3, stride=2).stride == 2
    same = nn.LayerNorm(4)
    same.eps = same.eps


def test_options_of_layers_with_parameters_act_on_the_same_parameters(device):
    x, image = remat.rand(3, 4), remat.rand(1, 1, 8, 8)
    for old, name, value, new, of in (
        (nn.Conv2d(1, 1, 3), "stride", 2, lambda: nn.Conv2d(1, 1, 3, stride=2), image),
        (nn.Conv2d(1, 1, 3), "padding", (5, 5), lambda: nn.Conv2d(1, 1, 3, padding=5), image),
        (nn.LayerNorm(4), "eps", 10.0, lambda: nn.LayerNorm(4, eps=10.0), x),
        (nn.BatchNorm1d(4), "eps", 10.0, lambda: nn.BatchNorm1d(4, eps=10.0), x),
        (nn.GroupNorm(2, 4), "num_groups", 1, lambda: nn.GroupNorm(1, 4), x),
        (nn.MultiHeadAttention(4, 2), "heads", 4, lambda: nn.MultiHeadAttention(4, 4), remat.rand(1, 3, 4)),
        (nn.LSTM(4, 2), "batch_first", True, lambda: nn.LSTM(4, 2, batch_first=True), remat.rand(2, 3, 4)),
    ):
        before = dict(old.named_parameters())
        want = new()
        want.load_state_dict(old.state_dict())
        setattr(old, name, value)
        got, other = old(of), want(of)
        got, other = (got[0], other[0]) if isinstance(got, tuple) else (got, other)
        assert got.tolist() == other.tolist(), (old, name)
        assert all(p is before[n] for n, p in old.named_parameters()), "the same parameters"
    optimizer = optim.SGD(old, lr=0.5)
    before = old.weight_ih_l0.tolist()
    old(remat.rand(2, 3, 4))[0].sum().backward()
    optimizer.step()
    assert old.weight_ih_l0.tolist() != before


def test_a_layer_keeps_modes_and_random_numbers_where_an_option_changes(device):
    remat.manual_seed(3)
    a = nn.Dropout(0.5)
    remat.manual_seed(3)
    b = nn.Dropout(0.25)
    a(remat.ones(8)), b(remat.ones(8))
    b.p = 0.5
    assert a(remat.ones(64)).tolist() == b(remat.ones(64)).tolist()
    b.eval()
    b.p = 0.75
    assert bool((b(remat.ones(8)) == 1).all())


def test_a_compiled_function_sees_that_an_option_changed(device):
    drop = nn.Dropout(0.5)
    f = remat.compile(lambda x: drop(x) * 2)
    f(remat.ones(64))
    drop.p = 0.0
    assert bool((f(remat.ones(64)) == 2).all())


def test_attributes_of_ones_own_subclasses_are_their_own(device):
    class Scaled(nn.Linear):
        def __init__(self, n):
            super().__init__(n, n)
            self.gain, self.more = 2.0, nn.ReLU()

        def forward(self, x):
            return self.more(super().forward(x)) * self.gain

    layer = Scaled(2)
    assert layer(remat.ones(1, 2)).shape == (1, 2) and layer.in_features == 2
    with pytest.raises(TypeError, match="fixed"):
        layer.in_features = 3


def test_what_would_not_be_used_is_refused(device):
    net = remat.models.ResNet("resnet18", **SMALL)
    with pytest.raises(TypeError, match="never use `last`.*stem, blocks, head"):
        net.last = nn.Linear(64, 7)
    net.fc = nn.Linear(64, 7)
    assert net.head is net.fc and net(remat.rand(1, 3, 16, 16)).shape == (1, 7), "torchvision's name"
    with pytest.raises(TypeError, match="never use `more`"):
        nn.Linear(1, 1).more = nn.ReLU()
    with pytest.raises(TypeError, match="Identity"):
        net.head = None
    with pytest.raises(TypeError, match="stays"):
        del net.head
    with pytest.raises(TypeError, match="no device"):
        net.to("cuda")
    assert net.to("cpu") is net
    for wrong in (nn.ModuleList, nn.Sequential):
        with pytest.raises(TypeError, match="Module"):
            wrong(["a"])
    with pytest.raises(ValueError, match="`valid`"):
        nn.Conv2d(1, 1, 3, padding="valid")
    with pytest.raises(TypeError, match="each once"):
        nn.LeakyReLU(0.1, negative_slope=0.2)


def test_modules_in_a_dictionary_have_its_names(device):
    net = nn.Sequential(collections.OrderedDict(a=nn.Linear(2, 3), b=nn.ReLU()))
    assert net(remat.ones(1, 2)).shape == (1, 3) and list(net.state_dict()) == ["a.weight", "a.bias"]
    net[1] = nn.Linear(3, 4)
    assert net(remat.ones(1, 2)).shape == (1, 4) and "b.weight" in net.state_dict()


def test_parts_of_a_network_evaluate_by_themselves(device):
    net = remat.models.ResNet("resnet18", **SMALL)
    for m in net.modules():
        if m is not net:
            m.eval()
    before = {n: b.tolist() for n, b in net.named_buffers()}
    net(remat.rand(4, 3, 16, 16))
    assert {n: b.tolist() for n, b in net.named_buffers()} == before
    stem = dict(net.named_modules())["stem"]
    stem.train()
    net(remat.rand(4, 3, 16, 16))
    moved = {n for n, b in net.named_buffers() if b.tolist() != before[n]}
    assert moved == {"stem.norm.running_mean", "stem.norm.running_var"}


def test_hooks_of_parts_are_called_and_change_what_they_give(device):
    net = remat.models.ResNet("resnet18", **SMALL).eval()
    parts, x = dict(net.named_modules()), remat.rand(2, 3, 16, 16)
    plain, seen = net(x), []
    handles = [
        parts["stem.conv"].register_forward_hook(lambda m, a, y: seen.append(("conv", m is parts["stem.conv"], y.shape))),
        parts["blocks.0"].register_forward_pre_hook(lambda m, a: seen.append(("block", len(a), a[0].shape))),
    ]
    assert bool((net(x) == plain).all())
    assert seen == [("conv", True, (2, 64, 8, 8)), ("block", 1, (2, 64, 4, 4))]
    doubled = parts["head"].register_forward_hook(lambda m, a, y: y * 2)
    assert bool((net(x) == plain * 2).all())
    for h in (*handles, doubled):
        h.remove()
    assert bool((net(x) == plain).all()) and len(seen) == 4
    with pytest.raises(TypeError, match="hooks are of the layers within"):
        parts["blocks"].register_forward_hook(lambda *_: None)
    with pytest.raises(NotImplementedError, match="call the network"):
        parts["stem"](x)

    def wrong(m, a, y):
        raise KeyError("of the hook")

    parts["head"].register_forward_hook(wrong)
    with pytest.raises(KeyError, match="of the hook"):
        net(x)


def test_a_part_that_is_replaced_computes_trains_and_is_saved(device):
    net = remat.models.ResNet("resnet18", **SMALL)
    old = net.head
    net.head = nn.Linear(64, 7)
    assert net(remat.rand(2, 3, 16, 16)).shape == (2, 7)
    assert [tuple(p.shape) for n, p in net.named_parameters() if n.startswith("head")] == [(7, 64), (7,)]
    assert net.state_dict()["head.weight"].shape == (7, 64)
    optimizer = optim.SGD(net, lr=0.5)
    before = net.head.bias.tolist()
    net(remat.rand(2, 3, 16, 16)).sum().backward()
    optimizer.step()
    assert net.head.bias.tolist() != before
    state = net.state_dict()
    other = remat.models.ResNet("resnet18", **SMALL)
    other.head = nn.Linear(64, 7)
    assert other.load_state_dict(state) == ([], [])
    x = remat.rand(2, 3, 16, 16)
    assert bool((other.eval()(x) == net.eval()(x)).all())
    net.stem.norm = nn.Identity()
    assert not any(n.startswith("stem.norm") for n in net.state_dict()) and net(x).shape == (2, 7)
    net.to("float64")
    assert net(x.to("float64")).dtype == remat.float64
    net.head = old
    assert net(x.to("float64")).shape == (2, 4)
    with pytest.raises(TypeError, match="no layer of one tensor"):
        net.blocks = nn.Identity()


def test_a_compiled_network_sees_hooks_and_parts_that_change(device):
    net = remat.models.ResNet("resnet18", **SMALL).eval()
    f, x = remat.compile(lambda x: net(x)), remat.rand(2, 3, 16, 16)
    plain = f(x)
    handle = dict(net.named_modules())["head"].register_forward_hook(lambda m, a, y: y + 1)
    assert bool(remat.isclose(f(x), plain + 1, rtol=1e-5, atol=1e-5).all())
    handle.remove()
    net.head = nn.Linear(64, 7).eval()
    assert f(x).shape == (2, 7)


def test_numbers_of_numpy_are_options(device):
    assert nn.Linear(np.int64(3), np.int32(2))(remat.ones(1, 3)).shape == (1, 2)
    assert nn.Conv2d(np.int32(1), 2, np.int64(3), padding=np.int64(1))(remat.ones(1, 1, 4, 4)).shape == (1, 2, 4, 4)
    assert nn.LayerNorm(np.int64(4), eps=np.float32(1e-3))(remat.rand(2, 4)).shape == (2, 4)
    assert nn.Dropout(np.float32(0.5)).eval()(remat.ones(1)).tolist() == [1.0]
    optimizer = optim.SGD(nn.Linear(1, 1), lr=np.float32(0.5), nesterov=np.bool_(False))
    optimizer.param_groups[0]["lr"] = np.float64(0.25)
    assert optimizer.lr == 0.25
    with pytest.raises(TypeError, match="`inputs` is wrong.*4.5"):
        nn.Linear(4.5, 2)
    with pytest.raises(ValueError, match="`lr` is nan"):
        optim.SGD(nn.Linear(1, 1), lr=math.nan)
    with pytest.raises(TypeError, match="no option"):
        optim.SGD(nn.Linear(1, 1), lr=object())
    with pytest.raises(ValueError, match="`p` is nan"):
        nn.Dropout(math.nan)
    assert nn.Pad2d(np.array([[1, 0], [0, 2]]))(remat.ones(1, 1)).shape == (2, 3)
    assert nn.LayerNorm(range(2, 4))(remat.rand(2, 3)).shape == (2, 3)
    assert nn.Embedding(4, 2, padding_idx=remat.tensor(1)).padding_idx.item() == 1
    with pytest.raises(TypeError, match="`padding_idx` is wrong"):
        nn.Embedding(4, 2, padding_idx=2**70)


def test_one_of_several_things_is_told_with_all_of_them(device):
    for wrong, text in (
        (lambda: nn.RNN(2, 3, nonlinearity="gelu"), "nonlinearity is `tanh` or `relu`, not `gelu`"),
        (lambda: nn.EmbeddingBag(2, 3, mode="least"), "mode is `sum`, `mean` or `max`, not `least`"),
        (lambda: nn.EncoderBlock(4, 2, activation="tanh"), "activation is `relu` or `gelu`, not `tanh`"),
        (lambda: nn.Conv1d(1, 1, 3, padding="valid"), "padding is numbers or `same`, not `valid`"),
    ):
        with pytest.raises(ValueError) as e:
            wrong()
        assert str(e.value) == text
    with pytest.raises(TypeError, match="`classes` is wrong: invalid type.*a whole number"):
        remat.models.ResNet("resnet18", classes="many")


def test_a_batch_norm_without_momentum_counts_all_batches(device):
    norm = nn.BatchNorm1d(1, momentum=None)
    for v in (1.0, 2.0, 6.0):
        norm(remat.full((4, 1), v))
    assert norm.running_mean.tolist() == [3.0]


def test_a_group_that_is_added_has_the_options_of_the_optimiser(device):
    p, q, r = (nn.Parameter(remat.ones(1)) for _ in range(3))
    adam = optim.Adam([p], lr=0.1, betas=(0.5, 0.75))
    adam.add_param_group({"params": [q]})
    adam.add_param_group({"params": [r], "lr": 0.2})
    one, two, three = adam.groups
    assert one == two and not two["decoupled"] and three == {**one, "lr": 0.2}
    with pytest.raises(remat.ArgumentError, match="momentun"):
        optim.SGD([p]).add_param_group({"params": [q], "momentun": 0.5})


def test_the_first_step_of_momentum_is_not_damped(device):
    p = nn.Parameter(remat.zeros(1, dtype="float64"))
    sgd = optim.SGD([p], lr=1.0, momentum=0.5, dampening=0.75)
    seen = []
    for _ in range(3):
        p.grad = remat.ones(1, dtype="float64")
        sgd.step()
        seen.append(p.item())
    # buffers of 1, 0.75 and 0.625
    assert seen == [-1.0, -1.75, -2.375]
    other = optim.SGD([nn.Parameter(remat.zeros(1, dtype="float64"))], lr=1.0, momentum=0.5, dampening=0.75)
    other.load_state_dict(sgd.state_dict())
    assert other.state_dict()["state"]["parameter0.step"].item() == 3


@pytest.mark.parametrize("figures", [[-1.0] * 6, [-1.0, -0.99995, -0.9999, -0.99985, -0.9998, -0.99975], [math.inf] * 6, [5.0] * 6])
def test_both_plateaus_lower_the_rate_where_a_figure_stays(device, figures):
    optimizer = optim.SGD([nn.Parameter(remat.ones(1))], lr=1.0)
    a = optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    b = optim.Plateau(lr=1.0, factor=0.5, patience=1)
    rates = []
    for v in figures:
        a.step(v)
        rates.append((optimizer.lr, b.observe(v)))
    assert all(x == y for x, y in rates) and rates[-1][0] < 1.0


def test_one_cycle_moves_the_momentum_against_the_rate(device):
    sgd = optim.SGD([nn.Parameter(remat.ones(1))], lr=0.1, momentum=0.9)
    scheduler = optim.lr_scheduler.OneCycleLR(sgd, max_lr=1.0, total_steps=5, pct_start=0.6, anneal_strategy="linear", div_factor=4.0)
    seen = []
    for i in range(5):
        seen += [sgd.lr, sgd.groups[0]["momentum"]]
        if i < 4:
            scheduler.step()
    # torch.optim.lr_scheduler.OneCycleLR of the same arguments
    assert seen == pytest.approx([0.25, 0.95, 0.625, 0.9, 1.0, 0.85, 0.5000125, 0.9, 0.000025, 0.95], abs=1e-9)
    with pytest.raises(ValueError, match="has ended"):
        scheduler.step()
    adam = optim.Adam([nn.Parameter(remat.ones(1))])
    optim.lr_scheduler.OneCycleLR(adam, max_lr=1.0, total_steps=5)
    assert adam.groups[0]["beta1"] == 0.95
    with pytest.raises(ValueError, match="no momentum"):
        optim.lr_scheduler.OneCycleLR(optim.SGD([nn.Parameter(remat.ones(1))]), max_lr=1.0, total_steps=5)


def test_a_handle_takes_its_own_hook_out_and_no_other(device):
    layer, log = nn.ReLU(), []
    layer.register_forward_hook(lambda *_: log.append("a"))
    b = layer.register_forward_hook(lambda *_: log.append("b"))
    b.remove()
    layer.register_forward_hook(lambda *_: log.append("c"))
    b.remove()
    layer(remat.ones(1))
    assert log == ["a", "c"]


def test_dim_is_another_name_of_axis_wherever_there_is_one(device):
    x, i = remat.arange(6).reshape(2, 3), remat.tensor([[0, 1, 0]])
    assert x.cumsum(dim=0).tolist() == x.cumsum(0).tolist() and x.unsqueeze(dim=0).shape == (1, 2, 3)
    assert remat.gather(x, dim=0, index=i).tolist() == x.gather(0, i).tolist()
    assert remat.index_select(x, dim=0, index=i[0]).shape == (3, 3)
    with pytest.raises(TypeError, match=r"cumsum\(\) misses the argument `axis`"):
        x.cumsum()
    with pytest.raises(TypeError, match="index"):
        remat.gather(x, dim=0)


# what a class is made with, beside names that none of them knows
MADE_WITH = {
    "GRU": (2, 3), "LSTM": (2, 3), "RNN": (2, 3), "GRUCell": (2, 3), "LSTMCell": (2, 3), "RNNCell": (2, 3), "MaxPool1d": (2,),
    "MaxPool2d": (2,), "MaxPool3d": (2,), "AvgPool1d": (2,), "AvgPool2d": (2,), "AvgPool3d": (2,), "LPPool1d": (2, 2),
    "LPPool2d": (2, 2), "EncoderBlock": (4, 2), "DecoderBlock": (4, 2), "ChannelShuffle": (2,), "PixelShuffle": (2,), "PixelUnshuffle": (2,),
    "Threshold": (0.1, 0.0),
}
WITHOUT_ARGUMENTS = [name for name in dir(nn) if name.endswith("Loss")] + (
    "CELU ELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish ReLU ReLU6 SELU SiLU Sigmoid Softplus Softshrink "
    "Softsign Tanh Tanhshrink"
).split()


@pytest.mark.parametrize("name", sorted({*MADE_WITH, *WITHOUT_ARGUMENTS}))
def test_a_layer_refuses_names_that_it_does_not_know(name, device):
    made = getattr(nn, name)
    arguments = MADE_WITH.get(name, ())
    made(*arguments)
    with pytest.raises((TypeError, ValueError), match="nobody_knows"):
        made(*arguments, nobody_knows=1)


@pytest.mark.parametrize("name", [n for n in dir(optim) if isinstance(getattr(optim, n), type) and issubclass(getattr(optim, n), optim.Optimizer)])
def test_an_optimiser_refuses_names_that_it_does_not_know(name, device):
    if name != "Optimizer":
        with pytest.raises((TypeError, ValueError), match="nobody_knows"):
            getattr(optim, name)([nn.Parameter(remat.ones(2))], lr=0.1, nobody_knows=1)


def test_options_that_a_convolution_does_not_have_are_refused():
    """They were taken and did nothing."""
    with pytest.raises(TypeError, match="output_padding"):
        remat.nn.Conv2d(1, 1, 3, output_padding=1)
    with pytest.raises(ValueError, match="no `same`"):
        remat.nn.ConvTranspose2d(1, 1, 3, padding="same")
    layer = remat.nn.ConvTranspose2d(1, 1, 3, stride=2, output_padding=1)
    assert layer(remat.ones(1, 1, 4, 4)).shape == (1, 1, 10, 10)


@pytest.mark.parametrize(
    "kind, says, wrong",
    [
        (ValueError, "out of range: -1", lambda x: x.topk(-1)),
        (ValueError, "out of range: -1", lambda x: x.chunk(-1)),
        (ValueError, "out of range", lambda x: x.roll(1 << 70, 0)),
        (ValueError, "batch_size is -1", lambda x: remat.data.DataLoader(remat.data.TensorDataset(x), batch_size=-1)),
        (TypeError, "batch_size is 'a'", lambda x: remat.data.DataLoader(remat.data.TensorDataset(x), batch_size="a")),
        (ValueError, "seed is -1", lambda x: remat.manual_seed(-1)),
        (TypeError, "mapping of names", lambda x: remat.nn.Linear(2, 3).load_state_dict(None)),
        (TypeError, "not str", lambda x: remat.optim.Adam("abc")),
        (TypeError, "not NoneType", lambda x: remat.optim.Adam(None)),
        (TypeError, "parameter 1 of an optimiser", lambda x: remat.optim.SGD([remat.nn.Parameter(x), 3])),
        (ValueError, "threads is True", lambda x: remat.Device(threads=True)),
        (ValueError, "spill is empty", lambda x: remat.Device(spill="")),
        (TypeError, "default device", lambda x: remat.set_default_device(3)),
        (ValueError, "betas is", lambda x: remat.optim.Adam([remat.nn.Parameter(x)], betas=(0.9,))),
        (ValueError, "betas is", lambda x: remat.optim.Lion([remat.nn.Parameter(x)], betas=(0.9, 0.9, 0.9))),
        (ValueError, "no name of a buffer", lambda x: remat.nn.Module().register_buffer("a.b", x)),
        (remat.ArgumentError, "lacks seed", lambda x: remat.data.DataLoader([1, 2]).load_state_dict({})),
        (remat.ArgumentError, "a mapping", lambda x: remat.data.DataLoader([1, 2]).load_state_dict(3)),
        (ValueError, "is no budget", lambda x: remat.compile(lambda x: x, memory_budget="junk")),
        (ValueError, "level 77 is none", lambda x: remat.compile(lambda x: x, level=77)),
        (ValueError, "forms=0 keeps nothing", lambda x: remat.compile(lambda x: x, forms=0)),
        (TypeError, "must be a Device", lambda x: remat.compile(lambda x: x, device="cpu")),
        (ValueError, "n is -1", lambda x: remat.eye(-1)),
        (TypeError, "seed is True", lambda x: remat.manual_seed(True)),
        (remat.ArgumentError, "has no taps", lambda x: remat.nn.Conv2d(3, 4, 0)),
        (remat.ArgumentError, "has no taps", lambda x: remat.nn.ConvTranspose1d(3, 4, 0)),
    ],
)
def test_an_argument_that_is_wrong_is_named(kind, says, wrong):
    with pytest.raises(kind, match=says):
        wrong(remat.ones(3, 4))
