"""Trains a convolutional network on handwritten digits."""
import argparse
import json
import time

import remat
import remat.nn as nn
import remat.nn.functional as F
import remat.optim as optim
from remat.optim.lr_scheduler import StepLR
from remat.data import DataLoader, TensorDataset

import example_data


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = x.flatten(1)
        x = F.relu(self.fc1(x))
        x = self.dropout2(x)
        return F.log_softmax(self.fc2(x), dim=1)


def train(model, device, loader, optimizer, args, log):
    model.train()
    for data, target in loader:
        begun = time.perf_counter()
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        output = model(data)
        loss = F.nll_loss(output, target)
        loss.backward()
        optimizer.step()
        log["losses"].append(loss.item())
        log["step_ms"].append(1e3 * (time.perf_counter() - begun))
        step = len(log["losses"])
        if step % args.log_interval == 0:
            print(f"step {step:5} loss {loss.item():.4f}")
        if step == args.steps:
            return False
    return True


def test(model, device, loader):
    model.eval()
    test_loss = 0
    correct = 0
    with remat.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    n = len(loader.dataset)
    print(f"test loss {test_loss / n:.4f}, accuracy {100 * correct / n:.2f} %")
    return test_loss / n, correct / n


def dataset(train):
    images, labels = example_data.digits(train)
    images = (images - 0.1307) / 0.3081
    return TensorDataset(images, labels)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, help="end after so many")
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-budget", help="64MiB, for example; no limit if not given")
    parser.add_argument("--log-interval", type=int, default=20)
    parser.add_argument("--json", help="write losses and times to this file")
    args = parser.parse_args()

    device = remat.Device(budget=args.memory_budget, threads=args.threads)
    remat.set_default_device(device)
    remat.manual_seed(args.seed)
    train_loader = DataLoader(dataset(True), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(dataset(False), batch_size=100)

    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    log = {"losses": [], "step_ms": []}
    for _ in range(args.epochs):
        goes_on = train(model, device, train_loader, optimizer, args, log)
        log["test_loss"], log["test_accuracy"] = test(model, device, test_loader)
        scheduler.step()
        if not goes_on:
            break
    log["peak_bytes"] = device.peak_bytes
    if args.json:
        with open(args.json, "w") as file:
            json.dump(log, file)


if __name__ == "__main__":
    main()
