"""Training steps of spmoe's flavors in PyTorch, on the CPU: what `launcher bench train` is held against.

The model is DeepSeek-V3's as the flavors have it: multi-head latent attention without query compression, dense layers
first, then routed experts chosen by sigmoid scores plus a selection bias, and shared ones; BF16 by autocast, AdamW.
Prints one JSON object a line, with name and value, as `bench train --json` does.

    python3 train.py --flavor small --threads 2
"""
import argparse
import json
import resource
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

FLAVORS = {
    "debug": dict(vocab=256, dim=256, layers=4, dense_layers=1, dense_inter=512, heads=4, kv_rank=64,
                  nope=32, rope=32, value=64, experts=16, top_k=4, inter=128, seq=128, batch=16),
    "small": dict(vocab=8192, dim=512, layers=8, dense_layers=1, dense_inter=1280, heads=8, kv_rank=128,
                  nope=32, rope=32, value=64, experts=32, top_k=4, inter=256, seq=512, batch=8),
}


def linear(n_in, n_out):
    layer = nn.Linear(n_in, n_out, bias=False)
    nn.init.normal_(layer.weight, std=0.02)
    return layer


class Norm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6) * self.weight).to(x.dtype)


def rotate(x, cos, sin):
    """Interleaved rotary pairs; x: [..., seq, rope]."""
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.q = linear(c.dim, c.heads * (c.nope + c.rope))
        self.kv_down = linear(c.dim, c.kv_rank + c.rope)
        self.kv_norm = Norm(c.kv_rank)
        self.kv_up = linear(c.kv_rank, c.heads * (c.nope + c.value))
        self.o = linear(c.heads * c.value, c.dim)

    def forward(self, x, cos, sin):
        c, (batch, seq, _) = self.c, x.shape
        q = self.q(x).view(batch, seq, c.heads, -1).transpose(1, 2)
        latent, k_rope = self.kv_down(x).split([c.kv_rank, c.rope], -1)
        k, v = self.kv_up(self.kv_norm(latent)).view(batch, seq, c.heads, -1).transpose(1, 2).split([c.nope, c.value], -1)
        k_rope = rotate(k_rope.unsqueeze(1), cos, sin).expand(-1, c.heads, -1, -1)
        q = torch.cat((q[..., :c.nope], rotate(q[..., c.nope:], cos, sin)), -1)
        k = torch.cat((k, k_rope.to(k.dtype)), -1)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
            future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
            y = scores.masked_fill(future, float("-inf")).float().softmax(-1).to(v.dtype) @ v
        return self.o(y.transpose(1, 2).reshape(batch, seq, -1))


class FeedForward(nn.Module):
    def __init__(self, dim, inter):
        super().__init__()
        self.gate, self.up, self.down = linear(dim, inter), linear(dim, inter), linear(inter, dim)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.router = linear(c.dim, c.experts)
        self.register_buffer("bias", torch.zeros(c.experts))
        self.experts = nn.ModuleList(FeedForward(c.dim, c.inter) for _ in range(c.experts))
        self.shared = FeedForward(c.dim, c.inter)

    def forward(self, x):
        flat = x.flatten(0, 1)
        with torch.autocast("cpu", enabled=False):
            scores = F.linear(flat.float(), self.router.weight).sigmoid()
        chosen = (scores + self.bias).topk(self.c.top_k, -1).indices
        weights = scores.gather(1, chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        order = chosen.flatten().argsort()
        tokens = order.div(self.c.top_k, rounding_mode="floor")
        self.load = chosen.flatten().bincount(minlength=self.c.experts)
        groups = flat[tokens].split(self.load.tolist())
        rows = torch.cat([expert(group) for expert, group in zip(self.experts, groups)])
        rows = rows * weights.flatten()[order].unsqueeze(-1)
        out = torch.zeros(flat.shape).index_add(0, tokens, rows.float())
        return (self.shared(flat) + out).view_as(x)

    def balance(self):
        load = self.load.float()
        self.bias += 1e-3 * (load.mean() - load).sign()


class Block(nn.Module):
    def __init__(self, c, dense):
        super().__init__()
        self.before, self.attention, self.between = Norm(c.dim), Attention(c), Norm(c.dim)
        self.network = FeedForward(c.dim, c.dense_inter) if dense else Experts(c)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.before(x), cos, sin)
        return x + self.network(self.between(x))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embedding = nn.Embedding(c.vocab, c.dim)
        self.blocks = nn.ModuleList(Block(c, i < c.dense_layers) for i in range(c.layers))
        self.norm, self.head = Norm(c.dim), linear(c.dim, c.vocab)
        angles = torch.outer(torch.arange(c.seq).float(), 10000.0 ** (-torch.arange(0, c.rope, 2).float() / c.rope))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, inputs, targets):
        x = self.embedding(inputs)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def flops(c):
    """Model FLOPs of a step, as spmoe counts them: 6 for each active weight in a product and token, causal attention."""
    attention = c.dim * c.heads * (c.nope + c.rope) + c.dim * (c.kv_rank + c.rope) + c.kv_rank * c.heads * (c.nope + c.value) + c.heads * c.value * c.dim
    routed = (c.top_k + 1) * 3 * c.dim * c.inter + c.dim * c.experts
    weights = c.layers * attention + c.dense_layers * 3 * c.dim * c.dense_inter + (c.layers - c.dense_layers) * routed + c.dim * c.vocab
    scores = c.layers * c.heads * (c.nope + c.rope + c.value) * (c.seq + 1) / 2
    return 6 * c.batch * c.seq * (weights + scores)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--flavor", choices=FLAVORS, default="small")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--warm", type=int, default=2)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--compile", action="store_true", help="torch.compile")
    a = p.parse_args()
    c = argparse.Namespace(**FLAVORS[a.flavor])
    torch.manual_seed(1)
    torch.set_num_threads(a.threads)
    model = Model(c)
    run = torch.compile(model) if a.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    took = []
    for _ in range(a.warm + a.steps):
        rows = torch.randint(c.vocab, (c.batch, c.seq + 1))
        begin = time.perf_counter()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = run(rows[:, :-1], rows[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for block in model.blocks[c.dense_layers:]:
            block.network.balance()
        took.append(time.perf_counter() - begin)
    step = statistics.median(took[a.warm:])
    for name, value in {
        "torch_bf16_tokens_per_s": c.batch * c.seq / step,
        "torch_bf16_tflops": flops(c) / step / 1e12,
        "torch_bf16_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }.items():
        print(json.dumps({"name": name, "value": value, "flavor": a.flavor, "threads": a.threads, "torch": torch.__version__}))


main()
