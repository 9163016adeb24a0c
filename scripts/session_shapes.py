#!/usr/bin/env python3
"""What sessions of other shapes take: memory and time of a network for twelve batch sizes.

    python3 scripts/session_shapes.py [--memory-budget 96MiB]

needs the package `remat`. A network of eight convolutions and two products, of about 25 MB, is exported with an open batch size;
sessions of one process for batch sizes from 1 to 12 are made and run, and the growth of the resident set is told after each.
"""
import argparse
import os
import tempfile
import time

import remat
from remat import nn

WIDTHS = (64, 64, 128, 128, 256, 256, 512, 512)


def network():
    parts, before = [], 3
    for i, width in enumerate(WIDTHS):
        stride = 2 if i and width != before else 1
        parts += [nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        before = width
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 256)]
    return nn.Sequential(*parts).eval()


def resident_mb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024 / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--memory-budget", metavar="SIZE", help="of each session; none unless given")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "network.onnx")
        net = network()
        remat.onnx.export(net, [remat.ones(2, 3, 32, 32)], path, dynamic={0: {0: "batch"}}, sizes={"batch": (1, 64)})
        print(f"a network of {os.path.getsize(path) / 1e6:.1f} MB")
        del net
        of = remat.lite.Network(path, threads=1, memory_budget=options.memory_budget)
        first_mb = first_s = None
        for batch in range(1, 13):
            start = time.perf_counter()
            session = of.session(batch=batch)
            seconds = time.perf_counter() - start
            session.run(remat.ones(batch, 3, 32, 32))
            del session
            if first_s is None:
                first_mb, first_s = resident_mb(), seconds
                print(f"batch size 1: {1e3 * seconds:.0f} ms")
            else:
                growth = resident_mb() - first_mb
                print(f"batch size {batch}: {1e3 * seconds:.0f} ms, {seconds / first_s:.2f} of the first; {growth:+.1f} MB in all")


if __name__ == "__main__":
    main()
