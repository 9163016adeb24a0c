#!/usr/bin/env python3
"""What a budget that never binds costs, and what a read costs on one core.

    python3 scripts/idle_budget.py [--pairs 400]

needs the package `remat`. Six linear layers of 128 with tanh, batch 64, Adam: steps without a budget and steps under one that holds
twice the peak take turns in one process, and the medians of their times are compared. Then a number is computed and read, many times,
and a tiny step is trained, on all cores and on one (Linux), beside PyTorch where that is installed.
"""
import argparse
import os
import statistics
import subprocess
import sys
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


def tiny(package, optimizer):
    """Microseconds of a training step of a linear layer of 8."""
    net = package.nn.Linear(8, 8)
    opt = optimizer(net.parameters(), lr=1e-3)
    x = package.ones(4, 8)

    def step():
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    for _ in range(50):
        step()
    return 1e6 * statistics.median(timed(step) for _ in range(1000))


def waits(where):
    """What a read and a tiny step cost where this process runs."""
    remat.set_default_device(remat.Device(threads=1))
    mine = reads(remat.tensor), tiny(remat, optim.SGD)
    try:
        import torch
    except ImportError:
        beside = ("", "")
    else:
        torch.set_num_threads(1)
        beside = tuple(f", PyTorch {t:.1f} us" for t in (reads(torch.tensor), tiny(torch, torch.optim.SGD)))
    print(f"x + 1, read, on {where}: {mine[0]:.1f} us{beside[0]}; a tiny step: {mine[1]:.0f} us{beside[1]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=400, help="steps of each kind (400)")
    parser.add_argument("--waits", metavar="WHERE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.waits:
        waits(options.waits)
        return
    idle(options.pairs)
    waits("all cores")
    if hasattr(os, "sched_setaffinity"):
        # a process of its own: a package looks at its cores once
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
        subprocess.run([sys.executable, __file__, "--waits", "one core"], check=True)


if __name__ == "__main__":
    main()
