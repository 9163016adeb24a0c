"""Trains a convolutional variational autoencoder on handwritten digits."""
import argparse
import json
import time

import remat
from remat import nn, optim
from remat.nn import functional as F
from remat.data import DataLoader, TensorDataset

import example_data


class VAE(nn.Module):
    def __init__(self, latent=20):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 4, stride=2, padding=1)
        self.fc_mu = nn.Linear(64 * 7 * 7, latent)
        self.fc_logvar = nn.Linear(64 * 7 * 7, latent)
        self.fc = nn.Linear(latent, 64 * 7 * 7)
        self.deconv1 = nn.ConvTranspose2d(64, 32, 4, stride=2, padding=1)
        self.deconv2 = nn.ConvTranspose2d(32, 1, 4, stride=2, padding=1)

    def encode(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = x.view(-1, 64 * 7 * 7)
        return self.fc_mu(x), self.fc_logvar(x)

    def reparameterize(self, mu, logvar):
        std = remat.exp(0.5 * logvar)
        eps = remat.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        z = F.relu(self.fc(z)).view(-1, 64, 7, 7)
        z = F.relu(self.deconv1(z))
        return remat.sigmoid(self.deconv2(z))

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    """Reconstruction and Kullback-Leibler divergence, summed over elements and batch."""
    BCE = F.binary_cross_entropy(recon_x, x, reduction="sum")
    KLD = -0.5 * remat.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def train(epoch, model, loader, optimizer, device, args, log):
    model.train()
    train_loss = 0
    for (data,) in loader:
        begun = time.perf_counter()
        data = data.to(device)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        log["losses"].append(loss.item() / len(data))
        log["step_ms"].append(1e3 * (time.perf_counter() - begun))
        step = len(log["losses"])
        if step % 20 == 0:
            print(f"epoch {epoch} step {step:5} loss {loss.item() / len(data):.4f}")
        if step == args.steps:
            return False
    print(f"epoch {epoch}: average loss {train_loss / len(loader.dataset):.4f}")
    return True


def test(model, loader, device):
    model.eval()
    test_loss = 0
    with remat.no_grad():
        for (data,) in loader:
            data = data.to(device)
            recon_batch, mu, logvar = model(data)
            test_loss += loss_function(recon_batch, data, mu, logvar).item()
    test_loss /= len(loader.dataset)
    print(f"test loss {test_loss:.4f}")
    return test_loss


def show(images):
    """Rows of digits in characters."""
    for row in images.view(-1, 28, 28)[:, ::2].transpose(0, 1).reshape(14, -1):
        print("".join(" .:*#"[int(4.99 * v)] for v in row.tolist()))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--steps", type=int, help="end after so many")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--sample", type=int, default=4, help="digits to draw in the end")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-budget", help="64MiB, for example; no limit if not given")
    parser.add_argument("--json", help="write losses and times to this file")
    args = parser.parse_args()

    device = remat.Device(budget=args.memory_budget, threads=args.threads)
    remat.set_default_device(device)
    remat.manual_seed(args.seed)
    train_set = TensorDataset(example_data.digits(train=True)[0])
    test_set = TensorDataset(example_data.digits(train=False)[0])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(test_set, batch_size=args.batch_size)

    model = VAE().to(device)
    optimizer = optim.Adam(model.parameters(), lr=args.lr)
    log = {"losses": [], "step_ms": []}
    for epoch in range(1, args.epochs + 1):
        goes_on = train(epoch, model, train_loader, optimizer, device, args, log)
        log["test_loss"] = test(model, test_loader, device)
        if not goes_on:
            break
    if args.sample:
        with remat.no_grad():
            sample = remat.randn(args.sample, 20).to(device)
            show(model.decode(sample).cpu())
    log["peak_bytes"] = device.peak_bytes
    if args.json:
        with open(args.json, "w") as file:
            json.dump(log, file)


if __name__ == "__main__":
    main()
