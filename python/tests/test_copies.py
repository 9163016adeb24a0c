"""Deep copies, pickles and moves: values, types, and what is shared."""
import copy
import pickle

import pytest

import remat
from remat import nn, optim


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = None
        self.table = nn.Embedding(5, 3)
        self.head = self.table.weight
        self.own = nn.Parameter(remat.ones(2))
        self.drop = nn.Dropout(0.5)

    def forward(self, i):
        return self.drop(self.table(i)) @ self.head.T


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda x: pickle.loads(pickle.dumps(x))}
copies = pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)


@copies
def test_networks_are_copied_with_what_they_share(device, copied):
    net = Tied()
    net.own.requires_grad = False
    net(remat.tensor([0]))
    made = copied(net)
    assert made.head is made.table.weight and isinstance(made.own, nn.Parameter)
    assert made.head is not net.head and [n for n, _ in made.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert not made.own.requires_grad and made.table.weight.requires_grad
    i = remat.tensor([1, 2, 3])
    assert made(i).tolist() == net(i).tolist(), "the random numbers go on as the original's"
    optim.SGD(made, lr=1.0).step()
    optimizer = optim.SGD(made, lr=1.0)
    made.eval()(i).sum().backward()
    optimizer.step()
    assert made.head.tolist() != net.head.tolist() and made.table.weight.tolist() == made.head.tolist()


@copies
def test_networks_of_the_library_are_copied_with_hooks_parts_and_modes(device, copied):
    net = remat.models.ResNet("resnet18", classes=4, blocks=[1])
    net.head = nn.Linear(64, 7)
    dict(net.named_modules())["stem.norm"].eval()
    x = remat.rand(2, 3, 16, 16)
    net(x)
    made = copied(net)
    state = made.state_dict()
    assert all(v.tolist() == state[n].tolist() for n, v in net.state_dict().items()) and made.head is not net.head
    assert bool((made(x) == net(x)).all()), "the part's mode is the same"
    before = made.state_dict()["stem.norm.running_mean"].tolist()
    made(x)
    assert made.state_dict()["stem.norm.running_mean"].tolist() == before
    del net
    assert made.eval()(x).shape == (2, 7)


@copies
@pytest.mark.parametrize("make", [lambda l: nn.WeightNorm(l), lambda l: nn.SpectralNorm(l)], ids=["weight_norm", "spectral_norm"])
def test_layers_over_layers_are_copied(device, copied, make):
    layer = make(nn.Linear(3, 2)).eval()
    x = remat.rand(4, 3)
    assert copied(layer)(x).tolist() == layer(x).tolist()
    moved = make(nn.Linear(3, 2)).eval().to("float64")
    assert moved(x.to("float64")).dtype == remat.float64


@copies
@pytest.mark.parametrize("make", [lambda l: nn.WeightNorm(l), lambda l: nn.SpectralNorm(l)], ids=["weight_norm", "spectral_norm"])
def test_a_layer_over_another_has_what_that_had(device, copied, make):
    made = copied(make(nn.Linear(3, 2)))
    made.bias.set_(remat.full((2,), 7.0))
    assert made(remat.zeros(1, 3)).tolist() == [[7.0, 7.0]], "the bias that is shown is the one that is added"
    assert "layer=Linear(inputs=3, outputs=2, bias=True), name=weight" in repr(made)


@copies
def test_an_option_that_was_changed_stays_so(device, copied):
    norm = nn.BatchNorm1d(1)
    norm.momentum = 0.5
    drop = nn.Dropout(0.5)
    drop.p = 0.0
    for made in (copied(norm), norm.to("float64")):
        made(remat.ones(4, 1, dtype=made.weight.dtype))
        assert made.running_mean.tolist() == [0.5] and made.momentum == 0.5 and "momentum=0.5" in repr(made)
    assert bool((copied(drop)(remat.ones(64)) == 1).all())


@copies
@pytest.mark.parametrize("make", [
    lambda p: optim.SGD(p, lr=0.5, momentum=0.9), lambda p: optim.Adam(p, lr=0.5), lambda p: optim.RMSprop(p, lr=0.5),
], ids=["sgd", "adam", "rmsprop"])
def test_optimisers_are_copied_with_the_parameters_that_they_move(device, copied, make):
    net = nn.Linear(2, 1)
    optimizer = make([{"params": [net.weight]}, {"params": [net.bias], "lr": 0.25}])

    def step(net, optimizer):
        net(remat.ones(3, 2)).sum().backward()
        optimizer.step()

    step(net, optimizer)
    for pair in ((net, optimizer), (optimizer, net)):
        made = copied(pair)
        other, moved = made if isinstance(made[0], nn.Module) else made[::-1]
        assert moved.groups == optimizer.groups and moved.param_groups[0]["params"][0] is other.weight
        twin, its = copied([net, optimizer])
        step(other, moved)
        step(twin, its)
        assert other.weight.tolist() == twin.weight.tolist() != net.weight.tolist()


def test_a_parameter_by_itself_is_copied_as_one(device):
    p = nn.Linear(2, 1).weight
    p.grad = remat.ones(1, 2)
    made = copy.deepcopy(p)
    assert isinstance(made, nn.Parameter) and made.tolist() == p.tolist() and made.grad.tolist() == [[1.0, 1.0]]
    read = pickle.loads(pickle.dumps(nn.Parameter(remat.ones(2), requires_grad=False)))
    assert isinstance(read, nn.Parameter) and not read.is_trained and read.tolist() == [1.0, 1.0]


def test_weights_that_are_shared_stay_so_where_a_network_moves(device):
    for where in ("float64", remat.Device(budget="16MiB")):
        net = Tied()
        net.table.weight.requires_grad = False
        before = net.head.tolist()
        net.to(where)
        assert net.head is net.table.weight and not net.head.requires_grad
        assert len([n for n, _ in net.named_parameters()]) == 2
        assert [[round(v, 5) for v in row] for row in net.head.tolist()] == [[round(v, 5) for v in row] for row in before]
