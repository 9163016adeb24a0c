#!/usr/bin/env python3
"""What a budget that never binds costs, and what a read costs on one core.

    python3 scripts/idle_budget.py [--pairs 400]

needs the package `remat`. Six linear layers of 128 with tanh, batch 64, Adam: steps without a budget and steps under one that holds
twice the peak take turns in one process, and the medians of their times are compared. Then a number is computed and read, many times,
on all cores and on one (Linux), beside PyTorch where that is installed.
"""
import argparse
import os
import statistics
import time

import remat
from remat import nn, optim


def stepper(device):
    remat.set_default_device(device)
    layers = [part for _ in range(6) for part in (nn.Linear(128, 128), nn.Tanh())]
    net = nn.Sequential(*layers)
    opt = optim.Adam(net.parameters(), lr=1e-3)
    x = remat.ones(64, 128)

    def step():
        net(x).square().mean().backward()
        opt.step()
        device.sync()

    return step


def timed(f):
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def idle(pairs):
    free = remat.Device(threads=1)
    plain = stepper(free)
    for _ in range(5):
        plain()
    budgeted = stepper(remat.Device(budget=2 * free.peak_bytes, threads=1))
    for _ in range(20):
        plain(), budgeted()
    times = [(timed(plain), timed(budgeted)) if i % 2 else (timed(budgeted), timed(plain))[::-1] for i in range(pairs)]
    without, within = (statistics.median(t) for t in zip(*times))
    ratio = statistics.median(b / a for a, b in times)
    print(f"a step: {1e6 * without:.0f} us without a budget, {1e6 * within:.0f} us under one that does not bind: {ratio:.3f}")


def reads(tensor, count=3000):
    x = tensor([1.0])
    for _ in range(100):
        (x + 1).item()
    return 1e6 * timed(lambda: [(x + 1).item() for _ in range(count)]) / count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=400, help="steps of each kind (400)")
    options = parser.parse_args()
    idle(options.pairs)
    remat.set_default_device(remat.Device(threads=1))
    try:
        import torch

        torch.set_num_threads(1)
    except ImportError:
        torch = None
    for cores in (None, 1):
        if cores is not None:
            if not hasattr(os, "sched_setaffinity"):
                break
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
            # threads that are there already keep their cores
            remat.set_default_device(remat.Device(threads=1))
        beside = f", PyTorch {reads(torch.tensor):.1f} us" if torch else ""
        print(f"x + 1, read, on {'all cores' if cores is None else 'one core'}: {reads(remat.tensor):.1f} us{beside}")


if __name__ == "__main__":
    main()
