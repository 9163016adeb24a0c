"""Reference values for `remat_zoo::models`, by PyTorch: blocks forward and backward on tiny sizes, in double precision.

    python scripts/models_reference.py [--out crates/zoo/tests/data/models.safetensors]

For each block the file holds the weights under Remat's names, an input x, a cotangent dy, the output y in training, the
input's gradient dx, and the buffers afterwards. Its metadata holds parameter counts of whole networks, counted on the
definitions that the benchmarks in docs/src/benchmarks.md were taken with.
"""

import argparse
import json
import pathlib
import struct

import torch
import torch.nn.functional as F
from torch import nn


class ConvNorm(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride=1, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return self.norm(self.conv(x))


class Residual(nn.Module):
    """BasicBlock with two convolutions, Bottleneck with three."""

    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        self.outputs = 4 * width if bottleneck else width
        if bottleneck:
            self.a, self.b = ConvNorm(inputs, width, 1), ConvNorm(width, width, 3, stride)
            self.c = ConvNorm(width, self.outputs, 1)
        else:
            self.a, self.b, self.c = ConvNorm(inputs, width, 3, stride), ConvNorm(width, width, 3), None
        reshapes = stride != 1 or inputs != self.outputs
        self.skip = ConvNorm(inputs, self.outputs, 1, stride) if reshapes else None

    def forward(self, x):
        y = self.b(F.relu(self.a(x)))
        y = y if self.c is None else self.c(F.relu(y))
        return F.relu(y + (x if self.skip is None else self.skip(x)))


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride, factor):
        super().__init__()
        wide = inputs * factor
        self.widen = None if factor == 1 else ConvNorm(inputs, wide, 1)
        self.filter, self.narrow = ConvNorm(wide, wide, 3, stride, groups=wide), ConvNorm(wide, outputs, 1)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        y = x if self.widen is None else F.relu6(self.widen(x))
        y = self.narrow(F.relu6(self.filter(y)))
        return x + y if self.adds else y


class Attention(nn.Module):
    def __init__(self, d, heads, causal):
        super().__init__()
        self.qkv, self.out, self.heads, self.causal = nn.Linear(d, 3 * d), nn.Linear(d, d), heads, causal

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = (p.reshape(n, t, self.heads, -1).transpose(1, 2) for p in self.qkv(x).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(n, t, d))


class Block(nn.Module):
    def __init__(self, d, heads, causal):
        super().__init__()
        self.norm1, self.attention, self.norm2 = nn.LayerNorm(d), Attention(d, heads, causal), nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, layers=6, d=384, heads=6, causal=False):
        super().__init__()
        self.blocks, self.norm = nn.ModuleList(Block(d, heads, causal) for _ in range(layers)), nn.LayerNorm(d)


class Gpt(nn.Module):
    def __init__(self, layers=6, d=384, heads=6, sequence=256, vocabulary=256):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, d), nn.Parameter(torch.zeros(sequence, d))
        self.body, self.head = Transformer(layers, d, heads, True), nn.Linear(d, vocabulary, bias=False)


def resnet(blocks, bottleneck):
    layers, inputs = [ConvNorm(3, 64, 7, 2)], 64
    for stage, count in enumerate(blocks):
        for i in range(count):
            layers.append(Residual(inputs, 64 << stage, 2 if stage and not i else 1, bottleneck))
            inputs = layers[-1].outputs
    return nn.Sequential(*layers, nn.Linear(inputs, 1000))


def mobilenet():
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    layers, inputs = [ConvNorm(3, 32, 3, 2)], 32
    for factor, outputs, count, stride in rows:
        for i in range(count):
            layers.append(InvertedResidual(inputs, outputs, stride if i == 0 else 1, factor))
            inputs = outputs
    return nn.Sequential(*layers, ConvNorm(inputs, 1280, 1), nn.Linear(1280, 1000))


def reference(name, block, shape, out):
    with torch.no_grad():
        for parameter in block.parameters():
            # away from the ones and zeros that norms begin with; wide enough for relu6 to cut
            parameter.copy_(torch.randn_like(parameter) if parameter.dim() == 1 else parameter * 2)
    for key, value in block.named_parameters():
        out[f"{name}.parameter.{key}"] = value.detach().clone()
    x = torch.randn(shape, requires_grad=True)
    y = block.train()(x)
    dy = torch.randn_like(y)
    (dx,) = torch.autograd.grad(y, x, dy)
    out |= {f"{name}.x": x.detach(), f"{name}.dy": dy, f"{name}.y": y.detach(), f"{name}.dx": dx}
    for key, value in block.named_buffers():
        if not key.endswith("num_batches_tracked"):
            out[f"{name}.buffer.{key}"] = value


def write(path, tensors, metadata):
    """Safetensors: length of the header, header, data."""
    header, data = {"__metadata__": metadata}, b""
    for key, value in sorted(tensors.items()):
        raw = value.contiguous().numpy().astype("<f8").tobytes()
        span = [len(data), len(data) + len(raw)]
        header[key] = {"dtype": "F64", "shape": list(value.shape), "data_offsets": span}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default="crates/zoo/tests/data/models.safetensors")
    args = parser.parse_args()
    torch.manual_seed(20240229)
    torch.set_default_dtype(torch.float64)
    out = {}
    reference("basic", Residual(3, 4, 2, False), (2, 3, 5, 6), out)
    reference("bottleneck", Residual(8, 2, 1, True), (2, 8, 4, 3), out)
    reference("inverted", InvertedResidual(4, 4, 1, 3), (2, 4, 5, 4), out)
    reference("inverted_stride", InvertedResidual(3, 5, 2, 1), (2, 3, 5, 5), out)
    reference("attention", Attention(8, 2, False), (2, 5, 8), out)
    reference("block", Block(8, 2, True), (2, 5, 8), out)
    nets = {
        "resnet18": resnet([2, 2, 2, 2], False),
        "resnet50": resnet([3, 4, 6, 3], True),
        "mobilenetv2": mobilenet(),
        "gpt": Gpt(),
        "bert": Transformer(),
    }
    counts = {name: str(sum(p.numel() for p in net.parameters())) for name, net in nets.items()}
    write(args.out, out, counts | {"torch": torch.__version__})
    print(counts, args.out.stat().st_size, "bytes")


if __name__ == "__main__":
    main()
