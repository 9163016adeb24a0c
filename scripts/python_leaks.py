#!/usr/bin/env python3
"""Makes many small training steps from Python and watches the memory of the process.

    VENV/bin/python scripts/python_leaks.py                    # a million steps
    VENV/bin/python scripts/python_leaks.py --steps 100000

A step makes tensors, an error that is caught, a hook, a cycle of a module, and an update. The interpreter's collector runs as it
does by itself. After a tenth of the steps, in which caches fill, the resident memory may grow by --allowed KiB; also the number of
Python objects and the bytes in use on the device must be what they were. Exits with 1 if something grew.
"""

import argparse
import gc
import sys
import time

import remat
from remat import nn, optim


def resident_kib():
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.itself = [self]

    def forward(self, x):
        return self.a(x).relu()


def make_step(device):
    net = Net()
    optimizer = optim.SGD(net, lr=1e-3)
    x = remat.rand(2, 4, device=device)

    def step(i):
        y = net(x)
        hook = net.a.weight.register_hook(lambda g: g * 1)
        loss = (y * y).sum()
        loss.backward()
        hook.remove()
        optimizer.step()
        if i % 10 == 0:
            loss.item()
            part = y[0:1, ..., None].tolist()
            y.detach()[0] = part[0][0][0]
        if i % 100 == 0:
            try:
                x @ x
            except remat.ShapeError:
                pass
            Net()(x)

    return step


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--steps", type=int, default=1_000_000)
    ap.add_argument("--allowed", type=int, default=1024, help="KiB")
    args = ap.parse_args()
    device = remat.Device(budget="64MiB", threads=1)
    remat.set_default_device(device)
    step = make_step(device)
    seen = []
    start = time.perf_counter()
    for i in range(args.steps + 1):
        if i % (args.steps // 10) == 0:
            gc.collect()
            seen.append((resident_kib(), len(gc.get_objects()), device.in_use_bytes))
            print(f"{i:>9} steps, {time.perf_counter() - start:6.1f} s: {seen[-1][0]} KiB resident, {seen[-1][1]} objects, {seen[-1][2]} bytes on the device", flush=True)
        step(i)
    first, last = seen[1], seen[-1]
    # one list entry an interval is this program's own
    grown = last[0] - first[0] > args.allowed or last[1] > first[1] + 2 * len(seen) or last[2] > first[2]
    print("something grew" if grown else "nothing grew")
    sys.exit(1 if grown else 0)


if __name__ == "__main__":
    main()
