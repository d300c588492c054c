"""DeepSeek-V3's model under Hugging Face's names of its settings: multi-head latent attention, dense layers first, then
routed experts, chosen by scores plus a selection bias, and shared ones.
"""
import math

import torch
import torch.nn.functional as F
from torch import nn

from kernels import BlockedAttention, Dispatch, Loss, Permute


class Linear(nn.Module):
    """A product without bias. Its weight is in the options' type; autocast converts what is not BF16."""

    def __init__(self, o, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter((torch.randn(n_out, n_in) * 0.02).to(o.dtype))

    def forward(self, x):
        return F.linear(x, self.weight)


class Norm(nn.Module):
    def __init__(self, o, n, eps):
        super().__init__()
        self.o, self.eps, self.weight = o, eps, nn.Parameter(torch.ones(n))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps) * self.weight).to(self.o.activations)


def yarn(c):
    """Frequencies, factor on cosines and sines, factor on attention scores."""
    n, y = c["qk_rope_head_dim"], c.get("rope_scaling") or {}
    frequencies = 1.0 / c["rope_theta"] ** (torch.arange(0, n, 2).float() / n)
    if not y:
        return frequencies, 1.0, 1.0

    def pair(rotations):
        return n * math.log(y["original_max_position_embeddings"] / (rotations * 2 * math.pi)) / (2 * math.log(c["rope_theta"]))

    def scale(m):
        return 0.1 * m * math.log(y["factor"]) + 1

    low, high = max(math.floor(pair(y["beta_fast"])), 0), min(math.ceil(pair(y["beta_slow"])), n - 1)
    ramp = ((torch.arange(n // 2).float() - low) / max(high - low, 0.001)).clamp(0, 1)
    every = y["mscale_all_dim"]
    table = scale(y["mscale"]) / scale(every) if y["mscale"] and every else scale(1)
    return frequencies / y["factor"] * ramp + frequencies * (1 - ramp), table, scale(every) ** 2 if every else 1.0


def rotate(x, cos, sin):
    """Interleaved rotary pairs; x: [batch, seq, heads, rope]; cos, sin: [seq, 1, rope/2]."""
    even, odd = x[..., 0::2].float(), x[..., 1::2].float()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, c, o):
        super().__init__()
        self.heads, self.nope, self.rope = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"]
        self.value, self.kv_rank, self.o = c["v_head_dim"], c["kv_lora_rank"], o
        dim, q_rank, eps, key = c["hidden_size"], c["q_lora_rank"], c["rms_norm_eps"], self.nope + self.rope
        if q_rank:
            self.q_a_proj, self.q_a_layernorm, self.q_b_proj = Linear(o, dim, q_rank), Norm(o, q_rank, eps), Linear(o, q_rank, self.heads * key)
        else:
            self.q_proj = Linear(o, dim, self.heads * key)
        self.kv_a_proj_with_mqa, self.kv_a_layernorm = Linear(o, dim, self.kv_rank + self.rope), Norm(o, self.kv_rank, eps)
        self.kv_b_proj = Linear(o, self.kv_rank, self.heads * (self.nope + self.value))
        self.o_proj = Linear(o, self.heads * self.value, dim)
        self.scale = yarn(c)[2] * key ** -0.5

    def forward(self, x, cos, sin):
        batch, seq, _ = x.shape
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))) if hasattr(self, "q_a_proj") else self.q_proj(x)
        q = q.view(batch, seq, self.heads, -1)
        latent, shared = self.kv_a_proj_with_mqa(x).split([self.kv_rank, self.rope], -1)
        k, v = self.kv_b_proj(self.kv_a_layernorm(latent)).view(batch, seq, self.heads, -1).split([self.nope, self.value], -1)
        shared = rotate(shared.unsqueeze(2), cos, sin).expand(-1, -1, self.heads, -1)
        q = torch.cat((q[..., : self.nope], rotate(q[..., self.nope :], cos, sin)), -1)
        q, k, v = (t.transpose(1, 2) for t in (q, torch.cat((k, shared), -1), v))
        y = self.attend(q, k, v).transpose(1, 2).reshape(batch, seq, -1)
        return self.o_proj(y)

    def attend(self, q, k, v):
        if self.o.attention == "sdpa":
            # the flash kernel wants heads of one size
            v = F.pad(v, (0, q.shape[-1] - self.value))
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)[..., : self.value]
        flat = [t.flatten(0, 1).contiguous() for t in (q, k, v)]
        return BlockedAttention.apply(*flat, self.scale, int(self.o.attention)).unflatten(0, q.shape[:2])


def gated(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


class FeedForward(nn.Module):
    def __init__(self, o, dim, inter):
        super().__init__()
        self.gate_up_proj, self.down_proj = Linear(o, dim, 2 * inter), Linear(o, inter, dim)

    def forward(self, x):
        return self.down_proj(gated(self.gate_up_proj(x)))


class GroupedExperts(nn.Module):
    """All experts' weights in two tensors, multiplied by one grouped product each."""

    def __init__(self, o, experts, dim, inter):
        super().__init__()
        self.gate_up = nn.Parameter((torch.randn(experts, dim, 2 * inter) * 0.02).to(o.dtype))
        self.down = nn.Parameter((torch.randn(experts, inter, dim) * 0.02).to(o.dtype))

    def forward(self, x, load):
        product = getattr(F, "grouped_mm", None) or torch._grouped_mm
        ends = load.cumsum(0).to(torch.int32)
        h = product(x, self.gate_up.to(x.dtype), offs=ends)
        return product(gated(h), self.down.to(x.dtype), offs=ends)


class LoopedExperts(nn.ModuleList):
    """One product after the other."""

    def forward(self, x, load):
        h = torch.cat([F.linear(rows, e.gate_up_proj.weight) for e, rows in zip(self, x.split(load.tolist()))])
        return torch.cat([F.linear(rows, e.down_proj.weight) for e, rows in zip(self, gated(h).split(load.tolist()))])


if hasattr(torch, "compiler") and hasattr(torch.compiler, "disable"):
    # the numbers of rows differ in every step, and compiled code would be made again for each of them
    LoopedExperts.forward = torch.compiler.disable(LoopedExperts.forward)


class Gate(nn.Module):
    """Chooses experts in FP32, as few groups as the model allows."""

    def __init__(self, c):
        super().__init__()
        self.c, experts = c, c["n_routed_experts"]
        self.weight = nn.Parameter(torch.randn(experts, c["hidden_size"]) * 0.02)
        self.register_buffer("e_score_correction_bias", torch.zeros(experts))

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            scores = F.linear(x.float(), self.weight)
        scores = scores.sigmoid() if self.c["scoring_func"] == "sigmoid" else scores.softmax(-1)
        chosen = self.allowed(scores.detach() + self.e_score_correction_bias).topk(self.c["num_experts_per_tok"], -1).indices
        weights = scores.gather(1, chosen)
        if self.c["norm_topk_prob"]:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return chosen, weights * self.c["routed_scaling_factor"]

    def allowed(self, scores):
        groups, most = self.c["n_group"], self.c["topk_group"]
        if most >= groups:
            return scores
        each = scores.unflatten(1, (groups, -1))
        best = each.topk(min(2, each.shape[-1]), -1).values.sum(-1).topk(most, -1).indices
        closed = torch.ones(len(scores), groups, dtype=torch.bool).scatter_(1, best, False)
        return each.masked_fill(closed.unsqueeze(-1), float("-inf")).flatten(1)


class Experts(nn.Module):
    def __init__(self, c, o):
        super().__init__()
        dim, inter, n = c["hidden_size"], c["moe_intermediate_size"], c["n_routed_experts"]
        self.gate = Gate(c)
        self.experts = GroupedExperts(o, n, dim, inter) if o.experts == "grouped" else LoopedExperts(FeedForward(o, dim, inter) for _ in range(n))
        self.shared_experts = FeedForward(o, dim, c["n_shared_experts"] * inter) if c["n_shared_experts"] else None

    def forward(self, x):
        flat = x.flatten(0, 1)
        chosen, weights = self.gate(flat)
        top_k, order = chosen.shape[1], chosen.flatten().argsort()
        inverse = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        self.load = chosen.flatten().bincount(minlength=len(self.gate.weight))
        rows = self.experts(Dispatch.apply(flat, order, inverse, top_k), self.load)
        rows = Permute.apply(rows, inverse, order).unflatten(0, (-1, top_k))
        out = torch.bmm(weights.to(rows.dtype).unsqueeze(1), rows).squeeze(1)
        if self.shared_experts is not None:
            out = out + self.shared_experts(flat)
        return out.view_as(x)

    @torch.no_grad()
    def balance(self, speed=1e-3):
        load = self.load.float()
        self.gate.e_score_correction_bias += speed * (load.mean() - load).sign()


class Layer(nn.Module):
    def __init__(self, c, o, dense):
        super().__init__()
        dim, eps = c["hidden_size"], c["rms_norm_eps"]
        self.input_layernorm, self.self_attn, self.post_attention_layernorm = Norm(o, dim, eps), Attention(c, o), Norm(o, dim, eps)
        self.mlp = FeedForward(o, dim, c["intermediate_size"]) if dense else Experts(c, o)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, c, o, seq):
        super().__init__()
        vocab, dim, self.o = c["vocab_size"], c["hidden_size"], o
        self.embed_tokens = nn.Embedding(vocab, dim, _weight=(torch.randn(vocab, dim) * 0.02).to(o.dtype))
        self.layers = nn.ModuleList(Layer(c, o, i < c["first_k_dense_replace"]) for i in range(c["num_hidden_layers"]))
        self.norm, self.lm_head = Norm(o, dim, c["rms_norm_eps"]), Linear(o, dim, vocab)
        frequencies, factor, _ = yarn(c)
        angles = torch.outer(torch.arange(seq).float(), frequencies).unsqueeze(1)
        self.register_buffer("cos", angles.cos() * factor)
        self.register_buffer("sin", angles.sin() * factor)

    def forward(self, inputs):
        x = self.embed_tokens(inputs).to(self.o.activations)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.norm(x)

    def loss(self, hidden, targets):
        return Loss.apply(hidden.flatten(0, 1), self.lm_head.weight.to(hidden.dtype), targets.flatten(), self.o.loss)
