#!/usr/bin/env python3
"""What a step takes under budgets, for programs whose graphs share much: gates, cells in loops, one layer many times, chains.

    python3 scripts/bounded_steps.py [--steps 80] [--only NAME] [--json FILE]

needs the package `remat` (`pip install ./python`). Each program runs without a budget, and then at 100, 90, 75 and 50 % of the
peak of a run that keeps its recipes. The table has the median of the later half of the steps and the slowest of the first three as
multiples of those without a budget, operators that ran again in the last step, and the time until a budget was refused. It exits
with 1 if values differ, or a peak is above its budget.
"""
import argparse
import json
import statistics
import sys
import time

import remat
from remat import nn, optim

WIDTH, BATCH = 64, 64


def highway(device, n=40):
    fs = nn.ModuleList([nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(n)])

    def forward(x):
        for f in fs:
            g = x.sigmoid()
            x = g * f(x) + (1 - g) * x
        return x.square().mean()

    return fs, forward


def cells(kind, n=64):
    def make(device):
        net = nn.ModuleList([kind(WIDTH, WIDTH), kind(WIDTH, WIDTH)])

        def forward(x):
            states, total = [None, None], 0
            for _ in range(n):
                h = x
                for i, cell in enumerate(net):
                    states[i] = cell(h, states[i]) if states[i] is not None else cell(h)
                    h = states[i][0] if isinstance(states[i], tuple) else states[i]
                total = total + h.square().mean()
            return total

        return net, forward

    return make


def runge_kutta(device, n=12):
    f = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))

    def forward(x):
        for _ in range(n):
            a = f(x)
            b = f(x + 0.05 * a)
            c = f(x + 0.05 * b)
            e = f(x + 0.1 * c)
            x = x + 0.1 / 6 * (a + 2 * b + 2 * c + e)
        return x.square().mean()

    return f, forward


def shared_chain(device, n=200):
    net = nn.Linear(WIDTH, WIDTH)

    def forward(x):
        for _ in range(n):
            x = (x + 0.01 * net(x).tanh()) * 0.999
        return x.square().mean()

    return net, forward


def pointwise(device, n=2000):
    net = nn.Linear(WIDTH, WIDTH)
    kinds = [
        lambda h: h * 0.999 + 0.01,
        lambda h: (h - 0.1).tanh(),
        lambda h: h.maximum(-0.5),
        lambda h: h + h.sigmoid() * 0.1,
        lambda h: h * (h > -1).float(),
    ]

    def forward(x):
        x = net(x)
        for i in range(n):
            x = kinds[i % len(kinds)](x)
        return x.square().mean()

    return net, forward


PROGRAMS = {
    "highway 40": highway,
    "two LSTM cells, 64 steps": cells(nn.LSTMCell),
    "two GRU cells, 64 steps": cells(nn.GRUCell),
    "Runge-Kutta 12": runge_kutta,
    "one layer 200 times": shared_chain,
    "2,000 pointwise": pointwise,
}


def run(make, budget, steps, **options):
    """Losses, times of steps, operators that ran again in the last one, and the peak. Errors: BudgetError."""
    device = remat.Device(budget=budget, threads=1, **options)
    before_this = remat.get_default_device()
    remat.set_default_device(device)
    try:
        remat.manual_seed(7)
        net, forward = make(device)
        opt = optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
        losses, times, again = [], [], 0
        for step in range(steps):
            x = remat.ones(BATCH, WIDTH) * (0.5 + 0.01 * step)
            before = device.report().stats["recomputed_ops"]
            start = time.perf_counter()
            loss = forward(x)
            loss.backward()
            opt.step()
            losses.append(loss.item())
            device.sync()
            times.append(time.perf_counter() - start)
            again = device.report().stats["recomputed_ops"] - before
        return losses, times, again, device.peak_bytes
    finally:
        remat.set_default_device(before_this)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=80, help="steps of each run (80)")
    parser.add_argument("--only", choices=PROGRAMS, help="one program")
    parser.add_argument("--json", help="write the figures to a file as well")
    options = parser.parse_args()
    rows, is_good = [], True
    print("| program | budget | settled steps | first steps | ran again | refused after |")
    print("|---|--:|--:|--:|--:|--:|")
    for name, make in PROGRAMS.items():
        if options.only not in (None, name):
            continue
        want, free, _, _ = run(make, None, options.steps)
        peak = run(make, None, 2, always_record=True)[3]
        for percent in (100, 90, 75, 50):
            budget = peak * percent // 100
            row, start = {"program": name, "budget": percent}, time.perf_counter()
            try:
                losses, times, again, most = run(make, budget, options.steps)
            except remat.BudgetError as e:
                row.update(refused_s=time.perf_counter() - start, why=str(e))
                print(f"| {name} | {percent} % | | | | {row['refused_s']:.2f} s |", flush=True)
            else:
                is_good &= losses == want and most <= budget
                half = options.steps // 2
                settled = statistics.median(times[half:]) / statistics.median(free[half:])
                first = max(times[:3]) / max(free[:3])
                row.update(settled=settled, first=first, again=again, equal=losses == want, peak=most)
                print(f"| {name} | {percent} % | {settled:.2f} | {first:.2f} | {again} | |", flush=True)
            rows.append(row)
    if options.json:
        with open(options.json, "w") as f:
            json.dump(rows, f, indent=1)
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
