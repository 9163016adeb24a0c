"""Trains a small GPT on the characters of a novel, and writes a text of its own."""
import argparse
import json
import math
import time

import remat
import remat.nn as nn
from remat.nn import functional as F

import example_data


class CausalSelfAttention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.n_head = args.n_head
        self.c_attn = nn.Linear(args.n_embd, 3 * args.n_embd)
        self.c_proj = nn.Linear(args.n_embd, args.n_embd)
        self.attn_dropout = nn.Dropout(args.dropout)
        self.resid_dropout = nn.Dropout(args.dropout)
        mask = remat.tril(remat.ones(args.block_size, args.block_size))
        self.register_buffer("mask", mask.view(1, 1, args.block_size, args.block_size))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).chunk(3, dim=-1)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.shape[-1]))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        att = self.attn_dropout(att)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class MLP(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.c_fc = nn.Linear(args.n_embd, 4 * args.n_embd)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * args.n_embd, args.n_embd)
        self.dropout = nn.Dropout(args.dropout)

    def forward(self, x):
        x = self.c_fc(x)
        x = self.gelu(x)
        x = self.c_proj(x)
        return self.dropout(x)


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.ln_1 = nn.LayerNorm(args.n_embd)
        self.attn = CausalSelfAttention(args)
        self.ln_2 = nn.LayerNorm(args.n_embd)
        self.mlp = MLP(args)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, args, vocab_size):
        super().__init__()
        self.block_size = args.block_size
        self.wte = nn.Embedding(vocab_size, args.n_embd)
        self.wpe = nn.Embedding(args.block_size, args.n_embd)
        self.drop = nn.Dropout(args.dropout)
        self.h = nn.ModuleList([Block(args) for _ in range(args.n_layer)])
        self.ln_f = nn.LayerNorm(args.n_embd)
        self.lm_head = nn.Linear(args.n_embd, vocab_size, bias=False)
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None):
        B, T = idx.shape
        pos = remat.arange(0, T, dtype=remat.long, device=idx.device)
        x = self.drop(self.wte(idx) + self.wpe(pos))
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        logits = self.lm_head(x)
        if targets is None:
            return logits, None
        loss = F.cross_entropy(logits.view(B * T, -1), targets.view(B * T))
        return logits, loss

    @remat.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
        for _ in range(max_new_tokens):
            idx_cond = idx[:, -self.block_size:]
            logits, _ = self(idx_cond)
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = remat.topk(logits, top_k)
                logits = logits.masked_fill(logits < v[:, [-1]], float("-inf"))
            probs = F.softmax(logits, dim=-1)
            idx_next = remat.multinomial(probs, num_samples=1)
            idx = remat.cat((idx, idx_next), dim=1)
        return idx


def get_batch(data, args, device):
    ix = remat.randint(len(data) - args.block_size, (args.batch_size,))
    x = remat.stack([data[i : i + args.block_size] for i in ix])
    y = remat.stack([data[i + 1 : i + 1 + args.block_size] for i in ix])
    return x.to(device), y.to(device)


@remat.no_grad()
def estimate_loss(model, data, args, device):
    model.eval()
    losses = remat.zeros(args.eval_iters)
    for k in range(args.eval_iters):
        x, y = get_batch(data, args, device)
        _, loss = model(x, y)
        losses[k] = loss.item()
    model.train()
    return losses.mean().item()


def get_lr(step, args):
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    ratio = (step - args.warmup) / max(1, args.steps - args.warmup)
    return args.lr * (0.1 + 0.45 * (1.0 + math.cos(math.pi * ratio)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--block-size", type=int, default=128)
    parser.add_argument("--n-layer", type=int, default=4)
    parser.add_argument("--n-head", type=int, default=4)
    parser.add_argument("--n-embd", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--warmup", type=int, default=20)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--eval-iters", type=int, default=10)
    parser.add_argument("--sample", type=int, default=200, help="characters to write in the end")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--memory-budget", help="64MiB, for example; no limit if not given")
    parser.add_argument("--json", help="write losses and times to this file")
    args = parser.parse_args()

    device = remat.Device(budget=args.memory_budget, threads=args.threads)
    remat.set_default_device(device)
    remat.manual_seed(args.seed)
    text = example_data.text()
    chars = sorted(set(text))
    stoi = {ch: i for i, ch in enumerate(chars)}
    data = remat.tensor([stoi[c] for c in text], dtype=remat.long)
    n = int(0.9 * len(data))
    train_data, val_data = data[:n], data[n:]

    model = GPT(args, len(chars)).to(device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters")
    optimizer = remat.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.99), weight_decay=0.1)
    log = {"losses": [], "step_ms": []}
    for step in range(args.steps):
        begun = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = get_lr(step, args)
        x, y = get_batch(train_data, args, device)
        _, loss = model(x, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        log["losses"].append(loss.item())
        log["step_ms"].append(1e3 * (time.perf_counter() - begun))
        if (step + 1) % 20 == 0:
            print(f"step {step + 1:5} loss {loss.item():.4f}")
    log["test_loss"] = estimate_loss(model, val_data, args, device)
    print(f"validation loss {log['test_loss']:.4f}")
    if args.sample:
        model.eval()
        context = remat.zeros((1, 1), dtype=remat.long, device=device)
        out = model.generate(context, args.sample, temperature=0.8, top_k=20)[0].tolist()
        print("".join(chars[i] for i in out))
    log["peak_bytes"] = device.peak_bytes
    if args.json:
        with open(args.json, "w") as file:
            json.dump(log, file)


if __name__ == "__main__":
    main()
