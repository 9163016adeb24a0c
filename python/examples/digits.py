"""Trains a residual network on handwritten digits within a memory budget, as `remat train digits` does: the same losses, bit for
bit, with the same seed, whatever the budget.

    python python/examples/digits.py --memory-budget 50%
"""
import argparse
import hashlib
import json
import sys
import time

import remat
from remat import nn, optim
from remat.data import DataLoader, Digits

# channels and stride of each residual block
BLOCKS = [(16, 1), (16, 1), (16, 1), (16, 1), (16, 1), (32, 2), (32, 1)]
TEST_BATCH = 250
WARMUP = 0.1


class BasicBlock(nn.Module):
    """`relu(norm(conv(relu(norm(conv(x))))) + skip(x))` (He et al., CVPR 2016)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.a = nn.ConvNorm(inputs, outputs, 3, stride)
        self.b = nn.ConvNorm(outputs, outputs, 3, 1)
        self.skip = nn.ConvNorm(inputs, outputs, 1, stride) if stride != 1 or inputs != outputs else None

    def forward(self, x):
        y = self.b(self.a(x).relu())
        return (y + (x if self.skip is None else self.skip(x))).relu()


class Net(nn.Module):
    """`[n, 1, 28, 28]` to logits `[n, 10]`."""

    def __init__(self):
        super().__init__()
        self.stem = nn.ConvNorm(1, 16, 3, 2)
        self.blocks = nn.ModuleList()
        channels = 16
        for outputs, stride in BLOCKS:
            self.blocks.append(BasicBlock(channels, outputs, stride))
            channels = outputs
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(channels, 10)

    def forward(self, x):
        y = self.stem(x).relu()
        for block in self.blocks:
            y = block(y)
        return self.head(self.pool(y).flatten(1))


class Training:
    """Network, optimiser and data on a device."""

    def __init__(self, device, options):
        remat.set_default_device(device)
        remat.manual_seed(options.seed)
        self.device, self.options = device, options
        self.net = Net()
        self.optimizer = optim.SGD(
            self.net, lr=options.learning_rate, momentum=0.9, weight_decay=5e-4, nesterov=True
        )
        self.loader = DataLoader(
            Digits(train=True, shift=True), options.batch_size, shuffle=options.seed, drop_last=True, device=device
        )
        steps = len(self.loader) * options.epochs
        warmup = int(steps * WARMUP)
        self.schedule = optim.cosine(options.learning_rate, steps - warmup).after_warmup(warmup)
        self.test_digits = Digits(train=False)
        self.steps = 0

    def step(self, x, labels):
        """One training step: the loss, and how many predictions are right, both still on the device."""
        self.optimizer.lr = self.schedule.at(self.steps)
        logits = self.net(x)
        loss = nn.cross_entropy(logits, labels)
        right = (logits.detach().argmax(1) == labels).sum()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return loss.detach(), right

    def test_batch(self, first):
        """How many test digits from `first` on are right."""
        last = min(first + min(TEST_BATCH, self.options.batch_size), len(self.test_digits))
        x, labels = self.test_digits.batch(range(first, last), self.device)
        self.net.eval()
        with remat.no_grad():
            right = (self.net(x).argmax(1) == labels).sum()
        self.net.train()
        return right

    def test(self):
        """The share of test digits that are right."""
        size = min(TEST_BATCH, self.options.batch_size)
        return sum(self.test_batch(i).item() for i in range(0, len(self.test_digits), size)) / len(self.test_digits)

    def rehearse(self):
        """Two steps and a test batch, without reading a value: what a dry device needs to tell the peak."""
        for _ in range(2):
            batch = self.loader.next_batch()
            # a step over facts may end before a batch is read, and that of a run begins with all of them
            self.loader.wait_for_prefetch()
            self.step(*batch)
        self.device.sync()
        self.test_batch(0)
        self.device.sync()

    def run(self, tell):
        """Trains; `tell` gets what each step gave. The losses."""
        losses = []
        while self.loader.position[0] < self.options.epochs:
            epoch, seen, hits = self.loader.position[0], 0, 0
            while not self.is_done() and (batch := self.loader.next_batch()) is not None:
                begun = time.perf_counter()
                loss, right = self.step(*batch)
                loss, hits, seen = loss.item(), hits + right.item(), seen + self.options.batch_size
                losses.append(loss)
                ms = 1e3 * (time.perf_counter() - begun)
                tell({"step": self.steps, "epoch": epoch, "loss": loss, "accuracy": hits / seen, "step_ms": ms})
            if self.is_done():
                break
        return losses

    def is_done(self):
        """True after the last step that was asked for."""
        return self.options.steps is not None and self.steps >= self.options.steps

    def weights_sha256(self):
        """A hash over names, shapes and bits of all parameters and buffers."""
        short = {"float32": "f32", "int64": "i64"}
        sha = hashlib.sha256()
        for name, t in sorted(self.net.state_dict().items()):
            sha.update(f"{name} {short[t.dtype.name]}{list(t.shape)}\n".encode())
            sha.update(t.tobytes())
        return sha.hexdigest()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory-budget", default="unlimited", help="64MiB, 0.5GB, 50%% of the peak without one, or unlimited")
    parser.add_argument("--threads", type=int, help="compute threads; the number of cores if not given")
    parser.add_argument("--seed", type=int, default=1, help="of the initial weights and the order of the examples")
    parser.add_argument("--epochs", type=int, default=14, help="passes over the training digits")
    parser.add_argument("--batch-size", type=int, default=320, help="examples of a step")
    parser.add_argument("--learning-rate", type=float, default=0.2, help="the highest")
    parser.add_argument("--steps", type=int, help="end after this many")
    parser.add_argument("--json", help="write a line for each step, and the results as the last line; - is standard output")
    return parser.parse_args()


def main():
    options = arguments()
    plain = remat.Device(threads=options.threads)
    rehearsal = Training(plain.dry(), options)
    rehearsal.rehearse()
    peak = rehearsal.device.peak_bytes
    budget = options.memory_budget
    if budget.endswith("%"):
        budget = max(int(peak * float(budget[:-1]) / 100), 1)
    device = remat.Device(budget=budget, threads=options.threads)
    print(f"memory budget {device.budget or 'unlimited'}; the peak without a budget is {peak}", file=sys.stderr)
    out = None if options.json is None else sys.stdout if options.json == "-" else open(options.json, "w")

    def tell(line):
        if out is not None:
            print(json.dumps(line), file=out, flush=True)
        if "step" in line:
            print(f"step {line['step']:4} loss {line['loss']:.4f} accuracy {line['accuracy']:.3f}", file=sys.stderr)

    training = Training(device, options)
    losses = training.run(tell)
    accuracy = training.test()
    report = device.report()
    print(report, file=sys.stderr)
    print(f"test accuracy {100 * accuracy:.2f} % after {training.steps} steps", file=sys.stderr)
    tell({
        "test_accuracy": accuracy, "losses": losses, "weights_sha256": training.weights_sha256(),
        "budget_bytes": device.budget, "peak_bytes": report.stats["peak_bytes"], "unbudgeted_peak_bytes": peak,
        "recomputed_ops": report.stats["recomputed_ops"], "evictions": report.stats["evictions"],
    })
    if out is not None and out is not sys.stdout:
        out.close()


if __name__ == "__main__":
    main()
