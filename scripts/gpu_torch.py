#!/usr/bin/env python3
"""Times PyTorch on a GPU: the operators of crates/cuda/examples/operators.rs and the networks of `remat bench train:..`.

    python3 scripts/gpu_torch.py                          # on a GPU, as scripts/gpu.sh does
    python3 scripts/gpu_torch.py --device cpu --small     # shows that the script works

f32 is f32: products do not round to TF32. Times are means of a run of launches, and medians of steps.
"""

import argparse
import statistics
import time

import torch

from bench_networks import torch_run

F = torch.nn.functional
LONG_ENOUGH = 0.5


def synchronize():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def mean_ms(work):
    """The mean time of a launch among many."""
    for _ in range(3):
        work()
    synchronize()
    start = time.perf_counter()
    work()
    synchronize()
    count = max(1, min(200, int(LONG_ENOUGH / max(time.perf_counter() - start, 1e-6))))
    start = time.perf_counter()
    for _ in range(count):
        work()
    synchronize()
    return (time.perf_counter() - start) / count * 1e3


def operators(small):
    """Names, functions and multiply-adds; sizes are those of the example."""
    n, images, channels, side, heads, t = (64, 1, 8, 8, 2, 32) if small else (4096, 32, 64, 56, 16, 1024)
    d = 64
    for dtype in (torch.float32, torch.bfloat16):
        kind = {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]
        a, b = (torch.randn(n, n, dtype=dtype) for _ in range(2))
        yield f"matmul {kind}", lambda a=a, b=b: a @ b, n ** 3
        x, w = torch.randn(images, channels, side, side, dtype=dtype), torch.randn(channels, channels, 3, 3, dtype=dtype)
        yield f"conv2d {kind}", lambda x=x, w=w: F.conv2d(x, w, padding=1), images * side ** 2 * channels ** 2 * 9
        q, k, v = (torch.randn(8, heads, t, d, dtype=dtype) for _ in range(3))
        yield (f"attention {kind}", lambda q=q, k=k, v=v: F.scaled_dot_product_attention(q, k, v, scale=0.125),
               2 * 8 * heads * t * t * d)


def step_ms(step):
    """The median time of a training step."""
    for _ in range(3):
        step()
    times = []
    begin = time.perf_counter()
    while len(times) < 3 or time.perf_counter() - begin < 2:
        synchronize()
        start = time.perf_counter()
        step()
        synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="sizes for a processor")
    args = parser.parse_args()
    torch.set_default_device(args.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(1)
    with torch.inference_mode():
        for name, work, muls in operators(args.small):
            ms = mean_ms(work)
            print(f"torch   {name:16} {ms:10.3f} ms {2 * muls / ms / 1e9:8.2f} TFLOP/s", flush=True)
    for work, batch in [("train:mlp", 2)] if args.small else [("train:gpt", 8), ("train:resnet50", 8)]:
        print(f"torch   {work:16} {step_ms(torch_run(torch, work, batch)):10.3f} ms a step", flush=True)


main()
