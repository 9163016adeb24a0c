"""Trains a U-Net to find discs in noisy images."""
import argparse
import json
import time

import remat
import remat.nn as nn
import remat.nn.functional as F
from remat.data import DataLoader, Dataset

import example_data


class Masks(Dataset):
    def __init__(self, n, size, seed, transform=None):
        self.images, self.masks = example_data.masks(n, size, seed)
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image, mask = self.images[i], self.masks[i]
        if self.transform is not None:
            image = self.transform(image)
        return {"image": image, "mask": mask}


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(in_channels, out_channels))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels, bilinear):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(in_channels + out_channels, out_channels)
        else:
            self.up = nn.ConvTranspose2d(in_channels, out_channels, kernel_size=2, stride=2)
            self.conv = DoubleConv(2 * out_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        dy, dx = x2.shape[2] - x1.shape[2], x2.shape[3] - x1.shape[3]
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(remat.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, channels, n_classes, width=16, depth=3, bilinear=False):
        super().__init__()
        widths = [width * 2**i for i in range(depth + 1)]
        self.inc = DoubleConv(channels, widths[0])
        self.down = nn.ModuleList(Down(a, b) for a, b in zip(widths, widths[1:]))
        self.up = nn.ModuleList(Up(b, a, bilinear) for a, b in zip(widths[-2::-1], widths[:0:-1]))
        self.outc = nn.Conv2d(widths[0], n_classes, kernel_size=1)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.down:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in self.up:
            x = up(x, skips.pop())
        return self.outc(x)


def dice_loss(logits, target, eps=1e-6):
    probs = remat.sigmoid(logits)
    inter = 2 * (probs * target).sum(dim=(1, 2, 3))
    total = probs.sum(dim=(1, 2, 3)) + target.sum(dim=(1, 2, 3))
    return 1 - ((inter + eps) / (total + eps)).mean()


@remat.inference_mode()
def evaluate(net, loader, device):
    net.eval()
    total = 0.0
    for batch in loader:
        image, mask = batch["image"].to(device), batch["mask"].to(device)
        pred = (remat.sigmoid(net(image)) > 0.5).float()
        inter = 2 * (pred * mask).sum(dim=(1, 2, 3))
        sets = pred.sum(dim=(1, 2, 3)) + mask.sum(dim=(1, 2, 3))
        total += (inter / sets).sum().item()
    net.train()
    return total / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--bilinear", action="store_true")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, help="end after so many")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-budget", help="64MiB, for example; no limit if not given")
    parser.add_argument("--json", help="write losses and times to this file")
    args = parser.parse_args()

    device = remat.Device(budget=args.memory_budget, threads=args.threads)
    remat.set_default_device(device)
    remat.manual_seed(args.seed)
    transform = lambda image: (image - image.mean()) / image.std()
    train_set = Masks(800, args.size, seed=1, transform=transform)
    val_set = Masks(100, args.size, seed=2, transform=transform)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)

    net = UNet(1, 1, args.width, bilinear=args.bilinear).to(device)
    optimizer = remat.optim.RMSprop(net.parameters(), lr=args.lr, weight_decay=1e-8, momentum=0.9)
    scheduler = remat.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=2)
    criterion = nn.BCEWithLogitsLoss()
    log = {"losses": [], "step_ms": []}
    for epoch in range(args.epochs):
        for batch in train_loader:
            begun = time.perf_counter()
            image, mask = batch["image"].to(device), batch["mask"].to(device)
            logits = net(image)
            loss = criterion(logits, mask) + dice_loss(logits, mask)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            log["losses"].append(loss.item())
            log["step_ms"].append(1e3 * (time.perf_counter() - begun))
            step = len(log["losses"])
            if step % 10 == 0:
                print(f"step {step:5} loss {loss.item():.4f}")
            if step == args.steps:
                break
        log["test_dice"] = evaluate(net, val_loader, device)
        scheduler.step(log["test_dice"])
        print(f"epoch {epoch + 1}: dice {log['test_dice']:.4f}")
        if step == args.steps:
            break
    log["peak_bytes"] = device.peak_bytes
    if args.json:
        with open(args.json, "w") as file:
            json.dump(log, file)


if __name__ == "__main__":
    main()
