#!/usr/bin/env python3
"""Make what the models are compared with: names, shapes and outputs of torchvision's, timm's and Hugging Face's own modules.

    python3 -m venv VENV && VENV/bin/pip install torch==2.15.0 torchvision==0.29.2 timm transformers safetensors
    VENV/bin/python scripts/make_model_fixtures.py                    # crates/zoo/tests/data/weights.json
    VENV/bin/python scripts/make_model_fixtures.py --full FOLDER      # whole files of published sizes, as their makers begin them

Only this script needs them. A case of weights.json has a module's names and shapes, an input's shape, and the outputs;
the weights themselves are numbers of a generator that the test has, too (`value`), so that networks of full width
need few bytes. The test, crates/zoo/tests/suite/weights.rs, makes the safetensors file of them, loads it by name, and compares outputs within 1e-4.

With --full, each network gets FOLDER/NAME.safetensors, with the weights that its own constructor draws, and
FOLDER/NAME.io.safetensors with an input x and an output y; then

    cargo run --release -p remat-zoo --example compare_files FOLDER

loads and compares them. Published figures of torchvision's metadata are in weights.json, too: parameters and
GFLOPS (multiply-adds).
"""

import argparse
import json
import math
import pathlib

import numpy as np
import safetensors.torch
import timm.models.resnet
import timm.models.vision_transformer
import torch
import torchvision.models as tv
import transformers
from torch import nn
from torchvision.models.convnext import CNBlockConfig

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "crates" / "zoo" / "tests" / "data" / "weights.json"
CLASSES = 10


def uniform(name, count):
    """Multiples of 2^-24 in -0.5 .. 0.5: SplitMix64 (Steele et al., 2014) from the FNV-1a hash of the name."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(40)).astype(np.float32) * np.float32(2**-24) - np.float32(0.5)


def value(name, shape):
    """The weight of a name: matrices keep the variance of what a relu halves, factors are near 1, and offsets near 0."""
    u = uniform(name, math.prod(shape))
    last = name.split(".")[-1]
    if len(shape) >= 2:
        u = u * np.float32(math.sqrt(24 / math.prod(shape[1:])))
    elif last == "running_var":
        u = np.float32(1) + u
    elif last == "weight":
        u = np.float32(1) + u * np.float32(0.5)
    else:
        u = u * np.float32(0.25)
    return torch.from_numpy(u.reshape(shape))


def vgg():
    net = tv.VGG(tv.vgg.make_layers([8, "M", 12, "M", 16, 16, "M"], batch_norm=True), CLASSES, init_weights=False)
    sizes = [(16 * 49, 24), (24, 24), (24, CLASSES)]
    a, b, c = (nn.Linear(*s) for s in sizes)
    net.classifier = nn.Sequential(a, nn.ReLU(True), nn.Dropout(), b, nn.ReLU(True), nn.Dropout(), c)
    return net


def convnext():
    stages = [CNBlockConfig(16, 32, 2), CNBlockConfig(32, 48, 1), CNBlockConfig(48, 64, 2), CNBlockConfig(64, None, 1)]
    return tv.ConvNeXt(stages, num_classes=CLASSES)


def bert():
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=16, type_vocab_size=2,
    )  # fmt: skip
    return transformers.BertModel(config)


def llama():
    config = transformers.LlamaConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=48, max_position_embeddings=32, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


# name of the case: layout, module, extent of the images
IMAGES = {
    "resnet18": ("torchvision/resnet", lambda: tv.resnet18(num_classes=CLASSES), 64),
    "resnext": (
        "torchvision/resnet",
        lambda: tv.ResNet(tv.resnet.Bottleneck, [1, 2, 1, 1], CLASSES, groups=8, width_per_group=8),
        64,
    ),
    "timm_resnet": (
        "timm/resnet",
        lambda: timm.models.resnet.ResNet(timm.models.resnet.BasicBlock, [1, 1, 2, 1], num_classes=CLASSES),
        64,
    ),
    "vgg": ("torchvision/vgg", vgg, 64),
    "mobilenet_v2": ("torchvision/mobilenet_v2", lambda: tv.mobilenet_v2(num_classes=CLASSES), 64),
    "mobilenet_v3_small": ("torchvision/mobilenet_v3", lambda: tv.mobilenet_v3_small(num_classes=CLASSES), 64),
    "mobilenet_v3_large": ("torchvision/mobilenet_v3", lambda: tv.mobilenet_v3_large(num_classes=CLASSES), 64),
    "efficientnet_b0": ("torchvision/efficientnet", lambda: tv.efficientnet_b0(num_classes=CLASSES), 64),
    "convnext": ("torchvision/convnext", convnext, 64),
    "densenet": (
        "torchvision/densenet",
        lambda: tv.DenseNet(growth_rate=8, block_config=(2, 3, 4, 2), num_init_features=16, num_classes=CLASSES),
        64,
    ),
    "shufflenet_x0_5": ("torchvision/shufflenet_v2", lambda: tv.shufflenet_v2_x0_5(num_classes=CLASSES), 64),
    "shufflenet_x1_0": ("torchvision/shufflenet_v2", lambda: tv.shufflenet_v2_x1_0(num_classes=CLASSES), 64),
    "vit": ("torchvision/vit", lambda: tv.VisionTransformer(32, 8, 2, 4, 32, 48, num_classes=CLASSES), 32),
    "timm_vit": (
        "timm/vit",
        lambda: timm.models.vision_transformer.VisionTransformer(
            img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=4, mlp_ratio=1.5, num_classes=CLASSES
        ),
        32,
    ),
}

TOKENS, VOCABULARY = [2, 7], 50
TEXTS = {"bert": ("huggingface/bert", bert), "llama": ("huggingface/llama", llama)}

# networks whose published figures are compared: name there, weights
PUBLISHED = [
    "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn",
    "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "resnext101_32x8d",
    "wide_resnet50_2", "wide_resnet101_2", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large",
    "efficientnet_b0", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4", "efficientnet_b5",
    "efficientnet_b6", "efficientnet_b7", "convnext_tiny", "convnext_small", "convnext_base", "convnext_large",
    "densenet121", "densenet161", "densenet169", "densenet201", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0",
    "shufflenet_v2_x1_5", "shufflenet_v2_x2_0", "vit_b_16", "vit_b_32", "vit_l_16",
]  # fmt: skip
# the largest that is written whole has some 90 million parameters
WHOLE = [
    "resnet18", "resnet50", "resnext50_32x4d", "mobilenet_v2", "mobilenet_v3_small", "mobilenet_v3_large",
    "efficientnet_b0", "efficientnet_b3", "convnext_tiny", "densenet121", "shufflenet_v2_x1_0", "vit_b_16",
]  # fmt: skip


def rounded(y):
    return [float(f"{v:.8g}") for v in y.detach().flatten().tolist()]


def filled(net):
    """Evaluating, with the generator's numbers; the names and shapes of its state."""
    state = net.state_dict()
    for name, t in state.items():
        state[name] = value(name, list(t.shape)) if t.is_floating_point() else torch.zeros_like(t)
    net.load_state_dict(state)
    net.eval()
    return [[name, list(t.shape)] for name, t in state.items()]


def token_ids(name, shape, most):
    u = uniform(name, math.prod(shape))
    return torch.from_numpy(((u + np.float32(0.5)) * np.float32(most)).astype(np.int64).reshape(shape))


def small_cases():
    for name, (layout, make, extent) in IMAGES.items():
        net = make()
        tensors, shape = filled(net), [2, 3, extent, extent]
        x = torch.from_numpy((uniform("x", math.prod(shape)) * np.float32(3)).reshape(shape))
        yield {"name": name, "layout": layout, "x": shape, "tensors": tensors, "y": rounded(net(x))}
    for name, (layout, make) in TEXTS.items():
        net = make()
        tensors, x = filled(net), token_ids("x", TOKENS, VOCABULARY)
        case = {"name": name, "layout": layout, "x": TOKENS, "tensors": tensors}
        if name == "bert":
            kinds, mask = token_ids("kinds", TOKENS, 2), torch.ones(TOKENS, dtype=torch.int64)
            mask[1, 4:] = 0
            y = net(x, attention_mask=mask, token_type_ids=kinds)
            # places that are padding say nothing
            yield case | {"y": rounded(y.last_hidden_state * mask.unsqueeze(-1)), "pooled": rounded(y.pooler_output)}
        else:
            yield case | {"y": rounded(net(x).logits)}


def published():
    for name in PUBLISHED:
        meta = tv.get_model_weights(name).DEFAULT.meta
        first = list(tv.get_model_weights(name))[0].meta
        yield {"name": name, "parameters": meta["num_params"], "gflops": first["_ops"]}


def with_statistics(net):
    """Statistics of a batch, without which untrained networks give almost nothing; weights for a head of zeros."""
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = 1.0
        if isinstance(part, nn.Linear) and not part.weight.any():
            nn.init.normal_(part.weight, std=0.02)
    with torch.no_grad():
        net.train()(torch.randn(4, 3, 224, 224))
    net.eval()


def whole_files(folder):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    for name in WHOLE:
        net = getattr(tv, name)(weights=None)
        with_statistics(net)
        x = torch.randn(1, 3, 224, 224)
        safetensors.torch.save_file(net.state_dict(), folder / f"{name}.safetensors")
        with torch.no_grad():
            safetensors.torch.save_file({"x": x, "y": net(x)}, folder / f"{name}.io.safetensors")
        print(name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    parser.add_argument("--full", type=pathlib.Path, metavar="FOLDER", help="write whole files there instead")
    args = parser.parse_args()
    if args.full:
        whole_files(args.full)
        return
    versions = {"torch": torch.__version__, "timm": timm.__version__, "transformers": transformers.__version__}
    lines = lambda rows: ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows)
    with torch.no_grad():
        cases = lines(small_cases())
    text = f'{{"made_with":{json.dumps(versions)},\n"published":[\n{lines(published())}],\n"cases":[\n{cases}]}}\n'
    args.out.write_text(text)
    print(f"{args.out}: {len(text)} bytes")


if __name__ == "__main__":
    main()
