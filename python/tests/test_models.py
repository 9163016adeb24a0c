"""Ready-made networks."""
import json
import pathlib
import re

import numpy as np
import pytest

import remat
from remat import models, optim
from remat.nn import functional as F

NETWORKS = [getattr(models, name) for name in models.__all__]
IMAGES = [models.ResNet, models.Vgg, models.MobileNetV2, models.MobileNetV3, models.EfficientNet, models.ConvNeXt, models.DenseNet,
          models.ShuffleNetV2]

# of torchvision 0.20 with 1000 classes, except those of other papers
COUNTS = {
    (models.ResNet, "resnet18"): 11_689_512, (models.ResNet, "resnet50"): 25_557_032,
    (models.MobileNetV2, "mobilenet_v2"): 3_504_872, (models.MobileNetV3, "mobilenet_v3_small"): 2_542_856,
    (models.EfficientNet, "efficientnet_b0"): 5_288_548, (models.ShuffleNetV2, "shufflenet_v2_x0_5"): 1_366_792,
    (models.DenseNet, "densenet121"): 7_978_856, (models.ConvNeXt, "convnext_tiny"): 28_589_128,
    (models.Vit, "vit_b_16"): 86_567_656, (models.Vae, "vae"): 652_824,
}


def count(net):
    return sum(int(np.prod(p.shape, dtype=np.int64)) for p in net.parameters())


def test_every_network_of_the_library_is_here():
    text = (pathlib.Path(__file__).parents[2] / "crates/zoo/src/models/mod.rs").read_text()
    uses = re.findall(r"^pub use \w+::\{(.*)\};", text, re.M)
    names = {n.strip() for use in uses for n in use.split(",")}
    networks = {n.removesuffix("Config") for n in names if n.endswith("Config")}
    # its config has another name
    networks = networks - {"Diffusion"} | {"DiffusionUNet"}
    assert networks == set(models.__all__) and networks <= names


@pytest.mark.parametrize("of", COUNTS, ids=lambda of: of[1])
def test_published_sizes_have_the_published_number_of_parameters(of):
    kind, name = of
    assert count(kind(name, device=remat.Device(threads=1).dry())) == COUNTS[of]


@pytest.mark.parametrize("kind", NETWORKS, ids=lambda k: k.__name__)
def test_sizes_have_fields_that_can_be_changed(kind):
    configs = kind.configs()
    assert kind.DEFAULT in configs and kind.__doc__
    for name in configs:
        assert name == kind.DEFAULT or f"`{name}`" in kind.__doc__ or "efficientnet" in name, name
    fields = configs[kind.DEFAULT]
    with pytest.raises(TypeError, match=f"no field `colour`; it has {next(iter(fields))}"):
        kind(colour=3)
    with pytest.raises(ValueError, match=f"no config `nothing`, but {next(iter(configs))}"):
        kind("nothing")
    with pytest.raises(TypeError, match="wrong"):
        kind(**{next(iter(fields)): "text"})


@pytest.mark.parametrize("kind", IMAGES, ids=lambda k: k.__name__)
def test_images_are_told_apart(kind, device):
    small = {"hidden": 32} if kind is models.Vgg else {}
    if kind is models.ConvNeXt:
        small = {"stages": [(8, 1), (16, 1)]}
    net = kind(classes=5, channels=1, **small).eval()
    y = net(remat.randn(2, 1, 32, 32))
    assert y.shape == (2, 5) and net.config["classes"] == 5
    y.sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_a_seed_and_a_generator_of_it_give_the_same_parameters(device):
    remat.manual_seed(3)
    a = models.ResNet(blocks=[1, 1], classes=3)
    b = models.ResNet(blocks=[1, 1], classes=3, generator=remat.Generator(3))
    for (name, p), (same, q) in zip(a.state_dict().items(), b.state_dict().items()):
        assert name == same and p.tolist() == q.tolist()


def test_published_weights_are_read_by_name(device, tmp_path):
    net = models.Vit(image=32, layers=1, width=16, heads=2, hidden=32, classes=3)
    remat.save(net, tmp_path / "net.safetensors")
    other = models.Vit(image=32, layers=1, width=16, heads=2, hidden=32, classes=3, generator=remat.Generator(9))
    x = remat.randn(1, 3, 32, 32)
    assert net(x).tolist() != other(x).tolist()
    remat.load_weights(other, tmp_path / "net.safetensors")
    assert net(x).tolist() == other(x).tolist()
    assert {"torchvision/resnet", "torchvision/vit", "huggingface/bert"} <= set(remat.published_names())


def test_a_text_is_learnt_and_gone_on_with(device):
    remat.manual_seed(1)
    net = models.Gpt(layers=1, width=32, heads=2, sequence=16, vocabulary=8)
    optimizer = optim.AdamW(net, lr=0.01)
    text = remat.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6]])

    def step():
        loss = F.cross_entropy(net(text[:, :-1]).reshape(-1, 8), text[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = [step() for _ in range(60)]
    assert losses[-1] < 0.1 < losses[0]
    assert net.generate(remat.tensor([[0, 1]]), 6, temperature=0).tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]
    drawn = net.generate(remat.tensor([[2, 3], [5, 6]]), 3, temperature=1.5, top_k=2, generator=remat.Generator(4))
    assert drawn.shape == (2, 5) and drawn.dtype == remat.int64
    again = net.generate(remat.tensor([[2, 3], [5, 6]]), 3, temperature=1.5, top_k=2, generator=remat.Generator(4))
    assert drawn.tolist() == again.tolist()
    with pytest.raises(remat.ShapeError):
        net.generate(remat.zeros(1, 10, dtype="int64"), 20)


@pytest.mark.parametrize("kind", [models.Gpt, models.Llama], ids=lambda k: k.__name__)
def test_a_cache_gives_what_all_tokens_at_once_give(kind, device):
    more = {"sequence": 8} if kind is models.Gpt else {"kv_heads": 2, "hidden": 24}
    net = kind(layers=2, width=16, heads=4, vocabulary=20, **more).eval()
    tokens = remat.tensor([[1, 2, 3, 4, 5]])
    whole, cache = net(tokens), net.cache(1, 8)
    parts = [net(tokens[:, :3], cache), net(tokens[:, 3:4], cache), net(tokens[:, 4:], cache)]
    assert len(cache) == 5 and cache.places == 8
    assert bool((remat.concat(parts, 1) - whole).abs().max() < 1e-4)
    cache.truncate(3)
    assert bool((net(tokens[:, 3:4], cache) - parts[1]).abs().max() == 0) and len(cache) == 4


def test_a_layer_without_keys_keeps_none(device):
    net = models.Bert(layers=1, width=8, heads=1, hidden=8, vocabulary=9)
    with pytest.raises(ValueError, match="keeps no keys"):
        net._layer.cache(1, 4)


def test_networks_move_and_are_saved(device, tmp_path):
    net = models.LstmLm(layers=1, width=8, vocabulary=9)
    other = remat.Device(threads=1)
    before = {k: v.tolist() for k, v in net.state_dict().items()}
    net.to(other)
    assert {k: v.tolist() for k, v in net.state_dict().items()} == before
    y, (h, c) = net(remat.tensor([[1, 2]], device=other))
    assert y.shape == (1, 2, 9) and h.shape == c.shape == (1, 1, 8) and y.device == other
    json.dumps(net.config)
