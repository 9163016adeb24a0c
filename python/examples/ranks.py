"""Data parallel training of a small network on the digits, with optimiser state that is divided among the ranks.

    mpirun -n 2 python python/examples/ranks.py        # processes; takes a build with the feature mpi
    python python/examples/ranks.py --threads 2        # ranks as threads of one process: the same bits

Every rank takes its part of each batch, so the batch and the losses are the same on any number of ranks that divides it; a hash of the
weights tells that all ranks end with the same bits.
"""
import argparse
import hashlib

import remat
from remat import distributed, nn, optim


def main(ranks, o):
    remat.set_default_device(remat.Device(budget=o.memory_budget, threads=1, ranks=ranks))
    remat.manual_seed(1)
    net = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    parallel = distributed.DataParallel(net, ranks)
    optimizer = distributed.sharded(optim.AdamW, net, ranks, lr=2e-3)
    digits, own = remat.data.Digits(), o.batch // ranks.size
    for step in range(o.steps):
        first = step * o.batch % (len(digits) - o.batch + 1) + ranks.rank * own
        images, labels = digits.batch(list(range(first, first + own)))
        loss = nn.cross_entropy(net(images), labels)
        parallel.backward(loss)
        optimizer.step()
        if step % 20 == 19:
            mean = distributed.all_reduce(loss.detach(), ranks, "mean").item()
            if ranks.rank == 0:
                print(f"step {step + 1}: loss {mean:.4f}", flush=True)
    bits = hashlib.sha256(b"".join(t.tobytes() for t in net.state_dict().values())).hexdigest()
    same = distributed.all_gather(remat.tensor([int(bits[:15], 16)]), ranks).tolist()
    assert len(set(same)) == 1, "the ranks' weights differ"
    with remat.no_grad():
        images, labels = remat.data.Digits(train=False).batch(list(range(1000)))
        right = (net(images).argmax(axis=1) == labels).sum().item()
    if ranks.rank == 0:
        print(f"{ranks.size} ranks: {right} of 1000 digits, weights {bits[:16]}", flush=True)
    return bits


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Data parallel training on the digits.")
    parser.add_argument("--threads", type=int, default=0, help="ranks as so many threads of this process")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=120)
    parser.add_argument("--memory-budget", default="32MiB")
    options = parser.parse_args()
    if options.threads:
        distributed.run_threads(main, options, ranks=options.threads)
    else:
        distributed.run(main, options)
