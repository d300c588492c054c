"""What PyTorch lacks, or does slowly on a CPU: causal attention without the whole matrix of scores, a loss without
logits in FP32, permutations of tokens whose backward is another permutation, and AdamW that stays in the cache.
"""
import torch
import torch.nn.functional as F

# Elements of one block of scores: 8 MiB in BF16, so that it stays in the L3 cache between its passes.
BLOCK = 1 << 22


def blocks(heads, seq, rows):
    """Ranges of heads and query rows whose scores against all earlier keys fit one block."""
    for lo in range(0, seq, rows):
        hi = min(lo + rows, seq)
        step = max(1, BLOCK // ((hi - lo) * hi))
        for first in range(0, heads, step):
            yield slice(first, min(first + step, heads)), lo, hi


def probabilities(q, k, lo, hi):
    """Softmax of the causal scores of query rows [lo, hi); q: [heads, hi-lo, dim], scaled; k: [heads, hi, dim]."""
    scores = torch.bmm(q, k.transpose(1, 2))
    future = torch.full((hi - lo, hi - lo), float("-inf"), dtype=scores.dtype).triu_(1)
    scores[:, :, lo:] += future
    return scores.softmax(-1)


class BlockedAttention(torch.autograd.Function):
    """Causal attention over blocks of query rows; q, k, v: [heads, seq, dim] in BF16. The backward pass computes the
    probabilities again. Gradients of keys and values are sums over blocks, in FP32."""

    @staticmethod
    def forward(ctx, q, k, v, scale, rows):
        q = q * scale
        y = torch.empty(v.shape, dtype=v.dtype)
        for heads, lo, hi in blocks(q.shape[0], q.shape[1], rows):
            p = probabilities(q[heads, lo:hi], k[heads, :hi], lo, hi)
            y[heads, lo:hi] = torch.bmm(p, v[heads, :hi])
        ctx.save_for_backward(q, k, v)
        ctx.scale, ctx.rows = scale, rows
        return y

    @staticmethod
    def backward(ctx, dy):
        q, k, v = ctx.saved_tensors
        dy = dy.contiguous()
        dq = torch.empty_like(q)
        dk, dv = torch.zeros(k.shape), torch.zeros(v.shape)
        for heads, lo, hi in blocks(q.shape[0], q.shape[1], ctx.rows):
            rows, keys = q[heads, lo:hi], k[heads, :hi]
            p = probabilities(rows, keys, lo, hi)
            dv[heads, :hi] += torch.bmm(p.transpose(1, 2), dy[heads, lo:hi])
            dp = torch.bmm(dy[heads, lo:hi], v[heads, :hi].transpose(1, 2))
            ds = torch._softmax_backward_data(dp, p, -1, p.dtype)
            dq[heads, lo:hi] = torch.bmm(ds, keys)
            dk[heads, :hi] += torch.bmm(ds.transpose(1, 2), rows)
        return dq.mul_(ctx.scale), dk.to(k.dtype), dv.to(v.dtype), None, None


class Loss(torch.autograd.Function):
    """Mean cross entropy of x @ weight.T, with logits in BF16. Their gradients take their place, some rows at a time in
    FP32, so that no logits in FP32 exist for all tokens."""

    @staticmethod
    def forward(ctx, x, weight, targets, rows):
        logits, total = F.linear(x, weight), 0.0
        for part, target in zip(logits.split(rows), targets.split(rows)):
            wide = F.log_softmax(part.float(), -1)
            chosen = target.unsqueeze(1)
            total = total - wide.gather(1, chosen).sum()
            wide.exp_().scatter_add_(1, chosen, torch.full(chosen.shape, -1.0))
            part.copy_(wide)
        ctx.save_for_backward(x, weight, logits)
        return total / len(targets)

    @staticmethod
    def backward(ctx, dloss):
        x, weight, gradient = ctx.saved_tensors
        scale = dloss / len(x)
        return (gradient @ weight) * scale, (gradient.t() @ x) * scale, None, None


class Dispatch(torch.autograd.Function):
    """Row order[i] // top_k of x for each i: the tokens, sorted by expert. inverse is the inverse of order."""

    @staticmethod
    def forward(ctx, x, order, inverse, top_k):
        ctx.save_for_backward(inverse)
        ctx.top_k = top_k
        return x.index_select(0, order.div(top_k, rounding_mode="floor"))

    @staticmethod
    def backward(ctx, dy):
        (inverse,) = ctx.saved_tensors
        return dy.index_select(0, inverse).unflatten(0, (-1, ctx.top_k)).float().sum(1).to(dy.dtype), None, None, None


class Permute(torch.autograd.Function):
    """Rows of x in an order; inverse is its inverse."""

    @staticmethod
    def forward(ctx, x, order, inverse):
        ctx.save_for_backward(order, inverse)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx, dy):
        return dy.index_select(0, ctx.saved_tensors[1]), None, None


class AdamW:
    """AdamW over FP32 weights, a piece that fits the L2 cache at a time, with the gradient's clipping in the same pass.
    A BF16 parameter has an FP32 master; others are their own."""

    PIECE = 1 << 17

    def __init__(self, parameters, lr, betas=(0.9, 0.95), eps=1e-8, decay=0.1, clip=1.0):
        self.lr, self.betas, self.eps, self.decay, self.clip, self.steps = lr, betas, eps, decay, clip, 0
        self.all = []
        for p in parameters:
            flat = p.detach().view(-1)
            master = flat if p.dtype == torch.float32 else flat.float()
            self.all.append((p, flat, master, torch.zeros_like(master), torch.zeros_like(master)))

    def pieces(self):
        for p, flat, *state in self.all:
            yield from zip(p.grad.reshape(-1).split(self.PIECE), flat.split(self.PIECE), *(s.split(self.PIECE) for s in state))

    @torch.no_grad()
    def step(self):
        self.steps += 1
        norm = sum(float(torch.linalg.vector_norm(g.float())) ** 2 for g, *_ in self.pieces()) ** 0.5
        scale = min(1.0, self.clip / (norm + 1e-6))
        one, two = (1 - b ** self.steps for b in self.betas)
        for g, flat, master, m, v in self.pieces():
            g = g.float() * scale
            m.lerp_(g, 1 - self.betas[0])
            v.mul_(self.betas[1]).addcmul_(g, g, value=1 - self.betas[1])
            master.mul_(1 - self.lr * self.decay)
            master.addcdiv_(m, v.sqrt().mul_(two ** -0.5).add_(self.eps), value=-self.lr / one)
            if flat.dtype != master.dtype:
                flat.copy_(master)
        for p, *_ in self.all:
            p.grad = None
