"""Runs one training step of small MoE models with transformers on a GPU, clean and with planted bugs, and lets
`launcher check` judge the folders. See docs/check.md.

    python3 bench/referee/plant.py --launcher ./launcher --out results.jsonl [--only REGEX] [--keep DIR] [--trained DIR ...]

Each bug is planted in the run, in one layer, by patched modules or gradients. The reference knows nothing of it.
"""

import argparse
import concurrent.futures
import copy
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import types

import torch
import torch.nn.functional as F
import transformers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))
import step  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FAMILIES = {
    "v2": (transformers.DeepseekV2Config, transformers.DeepseekV2ForCausalLM),
    "v3": (transformers.DeepseekV3Config, transformers.DeepseekV3ForCausalLM),
    "v32": (transformers.DeepseekV32Config, transformers.DeepseekV32ForCausalLM),
    "glm5": (transformers.GlmMoeDsaConfig, transformers.GlmMoeDsaForCausalLM),
    "v4": (transformers.DeepseekV4Config, transformers.DeepseekV4ForCausalLM),
    "qwen3": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM),
    "glm4": (transformers.Glm4MoeConfig, transformers.Glm4MoeForCausalLM),
}


def config_of(family, hidden, layers=3, **others):
    """A model of the family whose other widths follow from its hidden size."""
    heads = max(4, hidden // 64)
    common = dict(
        vocab_size=512, hidden_size=hidden, intermediate_size=2 * hidden, moe_intermediate_size=hidden // 2, num_hidden_layers=layers,
        num_attention_heads=heads, num_experts_per_tok=4, rms_norm_eps=1e-6, tie_word_embeddings=False, pad_token_id=None,
        max_position_embeddings=512, hidden_act="silu", attention_dropout=0.0,
    )
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    if family in ("v2", "v3", "v32", "glm5"):
        common |= dict(
            n_routed_experts=16, n_shared_experts=1, first_k_dense_replace=1, q_lora_rank=hidden // 2, kv_lora_rank=hidden // 2,
            qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=24, num_key_value_heads=heads, n_group=4, topk_group=2, rope_parameters=rope,
        )
    if family == "v2":
        common |= dict(topk_method="group_limited_greedy", routed_scaling_factor=1.5, norm_topk_prob=False)
    if family in ("v3", "v32", "glm5"):
        common |= dict(routed_scaling_factor=2.5, norm_topk_prob=True)
    if family in ("v32", "glm5"):
        common |= dict(index_n_heads=4, index_head_dim=32, index_topk=12)
    if family == "glm5":
        common |= dict(n_group=1, topk_group=1, indexer_types=["full", "shared", "full"])
    if family == "v4":  # two layers choose experts by a table; 1 and 3 are sparse, 2 is heavily compressed
        del common["intermediate_size"]
        common |= dict(
            num_hidden_layers=4, layer_types=["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention"],
            mlp_layer_types=["hash_moe", "hash_moe", "moe", "moe"], compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
            num_key_value_heads=1, head_dim=32, partial_rotary_factor=0.25, q_lora_rank=hidden // 2, o_groups=2, o_lora_rank=hidden // 4, sliding_window=8,
            n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, index_n_heads=4, index_head_dim=16, index_topk=3, swiglu_limit=0.7, routed_scaling_factor=1.5,
            rope_parameters={"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 256, "beta_fast": 32, "beta_slow": 1},
        )
    if family == "qwen3":
        common |= dict(num_experts=16, num_key_value_heads=heads // 2, head_dim=32, norm_topk_prob=True, rope_parameters=rope | {"rope_theta": 1e6}, router_aux_loss_coef=0.0)
    if family == "glm4":
        common |= dict(
            n_routed_experts=16, n_shared_experts=1, first_k_dense_replace=1, num_key_value_heads=heads // 2, head_dim=32, n_group=1, topk_group=1,
            norm_topk_prob=True, routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True, rope_parameters=rope | {"partial_rotary_factor": 0.5},
        )
    return FAMILIES[family][0](**common | others)


def randomize(model, seed, outliers=False):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            draw = torch.randn(p.shape, generator=generator)
            if name.endswith(("sinks", "position_bias", "base", "scale")):
                p.copy_(1 + 0.2 * draw if name.endswith("scale") else 0.5 * draw)
            elif p.dim() > 1:
                p.copy_(draw / p.shape[-1] ** 0.5)
            else:
                p.copy_((1 if "norm" in name else 0) + 0.1 * draw)
            if outliers and ("layernorm" in name or "embed" in name) and p.shape[-1] >= 64:
                p[..., torch.randperm(p.shape[-1], generator=generator)[:3]] *= 40
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.copy_(0.1 * torch.randn(b.shape, generator=generator))
            if name.endswith("tid2eid"):  # with repeats
                b.copy_(torch.randint(0, model.config.n_routed_experts, b.shape, generator=generator))
    return model


# Attention with switches. o: the set of planted mistakes.


def rotate(x, cos, sin, pairs):
    half = x.shape[-1] // 2
    cos, sin = cos[..., :half].unsqueeze(1), sin[..., :half].unsqueeze(1)
    a, b = (x[..., 0::2], x[..., 1::2]) if pairs else (x[..., :half], x[..., half:])
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def softmax_attention(q, k, v, mask, scale, o):
    scores = q @ k.transpose(2, 3) * scale
    n = scores.shape[-1]
    keep = torch.ones(n, n, dtype=torch.bool, device=q.device).tril(1 if "mask_late" in o else -1 if "mask_early" in o else 0)
    keep[0, 0] = True
    if "window" in o:
        keep &= ~torch.ones_like(keep).tril(-n // 4)
    if "mask_missing" in o:
        keep[:] = True
    scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
    p = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return (p @ v).transpose(1, 2).contiguous()


def shifted(position_embeddings, o):
    cos, sin = position_embeddings
    if "rope_shift" in o:
        cos, sin = cos.roll(-1, 1), sin.roll(-1, 1)
    if "rope_none" in o:
        cos, sin = torch.ones_like(cos), torch.zeros_like(sin)
    if "rope_sign" in o:
        sin = -sin
    return cos, sin


def mla(self, o):
    def forward(hidden_states, position_embeddings, attention_mask=None, past_key_values=None, **kw):
        b, s = hidden_states.shape[:2]
        if self.q_lora_rank is None:
            q = self.q_proj(hidden_states)
        else:
            latent = self.q_a_proj(hidden_states)
            q = self.q_b_proj(latent if "q_norm_missing" in o else self.q_a_layernorm(latent))
        q = q.view(b, s, -1, self.qk_head_dim).transpose(1, 2)
        q_pass, q_rot = q.split([self.qk_nope_head_dim, self.qk_rope_head_dim], -1)
        c, k_rot = self.kv_a_proj_with_mqa(hidden_states).split([self.kv_lora_rank, self.qk_rope_head_dim], -1)
        c = self.kv_a_layernorm(c)
        if "latent_detached" in o:
            c = c.detach()
        cos, sin = shifted(position_embeddings, o)
        pairs = "rope_pairs" not in o
        q_rot, k_rot = rotate(q_rot, cos, sin, pairs), k_rot.view(b, 1, s, -1)
        k_rot = k_rot if "rope_keys_missing" in o else rotate(k_rot, cos, sin, pairs)
        kv = self.kv_b_proj(c).view(b, s, -1, self.qk_nope_head_dim + self.v_head_dim).transpose(1, 2)
        if "kv_split_swapped" in o:
            v, k_pass = kv.split([self.v_head_dim, self.qk_nope_head_dim], -1)
        else:
            k_pass, v = kv.split([self.qk_nope_head_dim, self.v_head_dim], -1)
        k = torch.cat([k_pass, k_rot.expand(-1, k_pass.shape[1], -1, -1)], -1)
        scale = self.scaling
        if "scale_nope" in o:
            scale = self.qk_nope_head_dim**-0.5
        if "scale_mscale" in o:
            scale *= (0.1 * math.log(40) + 1) ** 2
        y = softmax_attention(torch.cat([q_pass, q_rot], -1), k, v, attention_mask, scale, o)
        return self.o_proj(y.reshape(b, s, -1)), None

    return forward


def gqa(self, o):
    def forward(hidden_states, position_embeddings, attention_mask=None, past_key_values=None, **kw):
        b, s = hidden_states.shape[:2]
        q, k, v = (p(hidden_states).view(b, s, -1, self.head_dim) for p in (self.q_proj, self.k_proj, self.v_proj))
        if "q_norm_missing" not in o:
            q = self.q_norm(q)
        k = self.k_norm(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        cos, sin = shifted(position_embeddings, o)
        r = q.shape[-1] if "rope_whole" in o else cos.shape[-1]
        if "rope_whole" in o:
            cos, sin = cos.repeat(1, 1, r // cos.shape[-1]), sin.repeat(1, 1, r // sin.shape[-1])
        turn = lambda x: torch.cat([rotate(x[..., :r], cos, sin, "rope_pairs" in o), x[..., r:]], -1)
        q, k = turn(q), k if "rope_keys_missing" in o else turn(k)
        n = self.num_key_value_groups
        spread = (lambda x: x.repeat(1, n, 1, 1)) if "groups_interleaved" in o else (lambda x: x.repeat_interleave(n, 1))
        if "latent_detached" in o:
            k = k.detach()
        scale = {"scale_nope": 1.0, "scale_mscale": self.scaling * 1.3}
        scale = next((v for name, v in scale.items() if name in o), self.scaling)
        y = softmax_attention(q, spread(k), spread(v), attention_mask, scale, o)
        return self.o_proj(y.reshape(b, s, -1)), None

    return forward


def experts(self, o):
    def forward(x, indices, weights):
        out = torch.zeros_like(x)
        if "weights_detached" in o:
            weights = weights.detach()
        for e in range(self.num_experts):
            token, place = torch.where(indices == e)
            if len(token) == 0 or "expert_missing" in o and e == 3:
                continue
            if "tokens_dropped" in o:
                token, place = token[: max(1, len(token) * 3 // 4)], place[: max(1, len(token) * 3 // 4)]
            used = {3: 5, 5: 3}.get(e, e) if "experts_swapped" in o else e
            gate, up = F.linear(x[token], self.gate_up_proj[used]).chunk(2, -1)
            if "gate_up_swapped" in o:
                gate, up = up, gate
            act = F.gelu if "gelu" in o else F.relu if "relu" in o else F.silu
            w = weights[token, place, None]
            h = act(gate) * up
            if "weight_inside" in o:
                h = act(gate * w.to(gate.dtype)) * up
            y = F.linear(h.to(x.dtype), self.down_proj[used])
            if "weight_missing" not in o and "weight_inside" not in o:
                y = y * w
            if "weight_twice" in o:
                y = y * w
            out.index_add_(0, token, y.to(out.dtype))
        return out

    return forward


def router(self, o):
    bias = getattr(self, "e_score_correction_bias", None)
    soft = "softmax" in o or bias is None and "sigmoid" not in o

    def forward(hidden_states):
        x = hidden_states.reshape(-1, self.hidden_dim)
        wide = bias is not None or hasattr(self, "topk_method")
        logits = F.linear(x.float(), self.weight.float()) if wide and "router_bf16" not in o else F.linear(x, self.weight)
        scores = (logits.float().softmax(-1) if soft else logits.float().sigmoid())
        choice = scores if bias is None or "bias_missing" in o else scores + bias
        groups = getattr(self, "num_group", 1)
        if groups > 1 and "groups_ignored" not in o:
            parts = choice.view(len(x), groups, -1)
            if bias is None or "group_max" in o:
                group = parts.amax(-1)
            else:
                group = parts.topk(2, -1)[0].sum(-1)
            keep = torch.zeros_like(group).scatter_(1, group.topk(self.topk_group, -1)[1], 1).bool()
            choice = parts.masked_fill(~keep[..., None], float("-inf")).reshape(choice.shape)
        indices = choice.topk(self.top_k, -1)[1]
        if "choice_lowest" in o:
            indices = (-choice).topk(self.top_k, -1)[1]
        weights = (choice if "bias_in_weights" in o else scores).gather(1, indices)
        scale = getattr(self, "routed_scaling_factor", 1.0)
        norm = getattr(self, "norm_topk_prob", False)
        if norm != ("norm_flipped" in o):
            weights = weights / weights.sum(-1, keepdim=True)
        if "no_scale" not in o:
            weights = weights * (scale * scale if "scale_twice" in o else scale)
        if "router_detached" in o:
            weights = weights.detach()
        return logits, weights if wide else weights.to(logits.dtype), indices

    return forward


def hadamard(x):
    n = torch.arange(x.shape[-1], device=x.device)
    odd = sum((n[:, None] & n) >> i & 1 for i in range(10)) % 2
    return x @ ((1 - 2.0 * odd) / len(n) ** 0.5).to(x.dtype)


def indexer(self, o):
    def forward(x, latent, position_embeddings, *args, **kw):
        b, s, r = *x.shape[:2], self.qk_rope_head_dim
        at = self.head_dim - r if "index_end" in o else 0
        pairs = ("Glm" in type(self).__name__) != ("index_pairs" in o)
        turn = lambda y: torch.cat([y[..., :at], rotate(y[..., at : at + r], *position_embeddings, pairs), y[..., at + r :]], -1)
        with torch.no_grad():
            q = turn(self.wq_b(latent).view(b, s, self.n_heads, -1).transpose(1, 2))
            k = turn(self.k_norm(self.wk(x)).unsqueeze(1))
            if "index_hadamard" in o:
                q = hadamard(q)
            scores = q.float() @ k.float().transpose(2, 3) * self.softmax_scale
            scores = scores if "index_no_relu" in o else scores.relu()
            w = self.weights_proj(x.to(self.weights_proj.weight.dtype)).float() * self.n_heads**-0.5
            scores = (scores * w.transpose(1, 2)[..., None]).sum(1)
            keep = torch.ones(s, s, dtype=torch.bool, device=x.device).tril(1 if "index_late" in o else 0)
            return scores.masked_fill(~keep, float("-inf")).topk(min(self.index_topk, s), -1).indices.int()

    return forward


# Bugs: name -> (families, where it is, words of its cause, function that plants it). L is the layer.

L = 2
LAYER = f"model.layers.{L}"
BUGS = {}


def bug(name, families, where, cause):
    def add(function):
        BUGS[name] = (families.split(), where, cause, function)
        return function

    return add


ALL = "v2 v3 qwen3 glm4"
ATTENTION = {"v3": mla, "qwen3": gqa, "glm4": gqa}


def part(model, name):
    return model.get_submodule(f"{LAYER}.{name}")


def patch_attention(name, families, cause):
    def plant(model, run):
        module = part(model, "self_attn")
        module.forward = ATTENTION[run.family](module, {name})

    bug(name, families, r"self_attn", cause)(plant)


def patch(name, families, submodule, where, cause, maker):
    def plant(model, run):
        module = part(model, submodule)
        module.forward = maker(module, {name})

    bug(name, families, where, cause)(plant)


for name, families, cause in [
    ("rope_pairs", "v3 qwen3 glm4", "pairs|interleav|half"), ("rope_shift", "v3 qwen3 glm4", "position"), ("rope_none", "v3 qwen3 glm4", "rotary|rope"),
    ("rope_sign", "v3 qwen3", "rotary|rope|sign|direction"), ("rope_keys_missing", "v3 glm4", "rotary|rope|key"), ("rope_whole", "glm4", "slice|whole|partial|rotary"),
    ("q_norm_missing", "v3 qwen3 glm4", "norm"), ("latent_detached", "v3 qwen3", "detach|no gradient"), ("kv_split_swapped", "v3", "split|swap|value"),
    ("scale_nope", "v3 qwen3", "scale"), ("scale_mscale", "v3", "scale|mscale"), ("mask_late", "v3 qwen3", "mask|causal"), ("mask_early", "v3", "mask|causal"),
    ("mask_missing", "v3 glm4", "mask|causal"), ("window", "v3 qwen3", "window"), ("groups_interleaved", "qwen3 glm4", "heads|group"),
]:
    patch_attention(name, families, cause)

for name, families, cause in [
    ("expert_missing", ALL, "missing|expert"), ("experts_swapped", ALL, "swap|expert"), ("gate_up_swapped", ALL, "gate|swap"), ("gelu", ALL, "gelu|activation"), ("relu", "v3", "relu|activation"),
    ("tokens_dropped", "v3 qwen3", "drop|capacity"), ("weight_inside", "v3", "weight"), ("weight_missing", "v3 qwen3", "weight"), ("weight_twice", "v3 qwen3", "weight"), ("weights_detached", "v3 qwen3", "detach|no gradient"),
]:
    patch(name, families, "mlp.experts", r"mlp(\.experts)?", cause, experts)

for name, families, cause in [
    ("softmax", "v3 glm4", "softmax|score"), ("sigmoid", "v2 qwen3", "sigmoid|score"), ("bias_missing", "v3 glm4", "bias"), ("bias_in_weights", "v3 glm4", "bias"), ("groups_ignored", "v2 v3", "group"),
    ("group_max", "v3", "group"), ("choice_lowest", "v3", "choice|top"), ("norm_flipped", ALL, "normal"), ("no_scale", "v2 v3 glm4", "scal|factor"), ("scale_twice", "v3", "scal|factor"), ("router_detached", "v3 qwen3", "detach|no gradient"),
]:
    patch(name, families, "mlp.gate", r"mlp(\.gate|\.experts)?", cause, router)


for name, cause in [("index_pairs", "pairs|halves"), ("index_end", "end of"), ("index_no_relu", "relu"), ("index_hadamard", "hadamard"), ("index_late", "off by one|next")]:
    patch(name, "v32 glm5", "self_attn.indexer", r"self_attn\.indexer", cause, indexer)


@bug("index_raw", "v32 glm5", r"self_attn\.indexer", "before its norm")
def _(model, run):
    seen = {}
    part(model, "self_attn.q_a_proj").register_forward_hook(lambda m, a, out: seen.__setitem__("q", out))
    part(model, "self_attn.indexer").register_forward_pre_hook(lambda m, a: (a[0], seen["q"], *a[2:]), prepend=True)


@bug("index_rms", "v32 glm5", r"self_attn\.indexer", "RMSNorm")
def _(model, run):
    m = part(model, "self_attn.indexer.k_norm")
    m.forward = lambda x: F.rms_norm(x.float(), x.shape[-1:], m.weight.float(), 1e-6).to(x.dtype)


@bug("index_no_topk", "v32 glm5", r"self_attn", "all keys")
def _(model, run):  # this hook runs behind the recorder's
    everything = lambda m, a, out: torch.arange(a[0].shape[1], device=out.device, dtype=out.dtype).expand(*a[0].shape[:2], -1)
    part(model, "self_attn.indexer").register_forward_hook(everything)


@bug("index_not_shared", "glm5", r"layers\.1\.self_attn", "makes its own|own choice")
def _(model, run):
    own = copy.deepcopy(model.model.layers[0].self_attn.indexer)
    for m in own.modules():  # without the recorder's hooks
        m._forward_hooks.clear(), m._forward_pre_hooks.clear()
    model.model.layers[1].self_attn.indexer = own


# DeepSeek-V4. What runs ahead of the recorder's hooks changes what this module records, what runs behind them the next one.


at = lambda path, do: lambda layer, _: do(layer.get_submodule(path))
result = lambda path, change, ahead=True: at(path, lambda m: m.register_forward_hook(change, prepend=ahead))
argument = lambda path, change, ahead=False: at(path, lambda m: m.register_forward_pre_hook(change, prepend=ahead))
setting = lambda path, name, value: at(path, lambda m: setattr(m, name, value(m)))


def tables(change):  # of the queries and keys of a layer
    turn = lambda m, a, k: (a, k | {"position_embeddings": {n: change(k["position_embeddings"], c, s) for n, (c, s) in k["position_embeddings"].items()}})
    return at("self_attn", lambda m: m.register_forward_pre_hook(turn, with_kwargs=True))


def rotation(change):  # change(function, number of the call with all heads, its arguments)
    def plant(attention):
        module, calls = sys.modules[type(attention).__module__], []
        original = module.apply_rotary_pos_emb

        def other(x, cos, sin):
            if not calls or x.shape[-1] != attention.head_dim:
                return original(x, cos, sin)
            calls[0] += x.shape[1] == attention.num_heads
            return change(original, calls[0], x, cos, sin)

        module.apply_rotary_pos_emb = other
        attention.register_forward_pre_hook(lambda m, a: calls.append(0))
        attention.register_forward_hook(lambda m, a, out: calls.clear())

    return at("self_attn", plant)


def bias(late, everything=False):  # what sees the entries
    def hook(m, a, out):
        seen = torch.arange(out[0].shape[2], device=a[0].device) < ((a[2] + 1 - late) // m.compress_rate)[..., None]
        return out[0], torch.zeros_like(seen, dtype=out[0].dtype).masked_fill(~(seen | everything), float("-inf"))[:, None].expand(len(out[0]), -1, -1, -1)

    return hook


MSCALE = 0.1 * math.log(16) + 1
deal = lambda m, a: (a[0].unflatten(-1, (-1, 32)).flatten(2, 3).unflatten(2, (-1, 2)).transpose(2, 3).reshape(a[0].shape),)
for name, layer, where, cause, function in [
    ("comb_not_transposed", 2, r"2\.(attn_mix|mix)", "transposed", result("attn_hc", lambda m, a, out: (out[0], out[1].mT, out[2]), False)),
    ("post_not_doubled", 2, r"2\.ffn_hc", "2·sigmoid|post_not", result("ffn_hc", lambda m, a, out: (out[0] / 2 + 1e-6, *out[1:]))),
    ("sinkhorn_10", 2, r"2\.attn_hc", "10 iterations", setting("attn_hc", "hc_sinkhorn_iters", lambda m: 10)),
    ("mixer_detached", 2, r"2\.(attn_hc|attn)|layers\.2$", "no gradient|detach", at("attn_hc", lambda m: (m.fn.requires_grad_(False), m.input_norm.register_forward_hook(lambda m, a, out: out.detach())))),
    ("head_mean", 0, r"hc_head|head", "mean", lambda layer, model: setattr(model.hc_head, "forward", lambda x: x.mean(2))),
    ("q_head_norm", 0, r"0\.self_attn", "each head's queries|query_head", setting("self_attn.q_b_norm", "forward", lambda m: lambda x: x)),
    ("rope_leading", 0, r"0\.self_attn", "end of each head|other_end", rotation(lambda f, n, x, c, s: f(x.roll(-2 * c.shape[-1], -1), c, s).roll(2 * c.shape[-1], -1))),
    ("not_turned_back", 3, r"3\.self_attn", "taken back|turned_back", rotation(lambda f, n, x, c, s: x if n == 2 else f(x, c, s))),
    ("main_theta", 3, r"3\.self_attn", "other kind of layers|rope_of_other", tables(lambda e, c, s: e["main"])),
    ("amplitude", 2, r"2\.self_attn", "amplitude|0.1·ln", tables(lambda e, c, s: (c * MSCALE, s * MSCALE))),
    ("mscale", 2, r"2\.self_attn", "mscale|scale", setting("self_attn", "scaling", lambda m: m.scaling * MSCALE**2)),
    ("no_sink", 2, r"2\.self_attn", "sink", setting("self_attn", "sinks", lambda m: torch.nn.Parameter(torch.full_like(m.sinks, float("-inf"))))),
    ("groups_dealt", 2, r"2\.self_attn", "groups", argument("self_attn.o_a_proj", deal, True)),
    ("entries_late", 2, r"2\.self_attn", "late", result("self_attn.compressor", bias(1))),
    ("entries_all", 2, r"2\.self_attn", "future|causal", result("self_attn.compressor", bias(0, True))),
    ("no_topk", 3, r"3\.self_attn", "all keys|topk", result("self_attn.compressor", bias(0))),
    ("no_overlap", 3, r"3\.self_attn", "overlap", result("self_attn.compressor.gate_proj", lambda m, a, out: out.masked_fill(torch.arange(out.shape[-1], device=out.device) < out.shape[-1] // 2, float("-inf")), False)),
    ("entry_index", 2, r"2\.self_attn", "by their index|entry_index", at("self_attn.compressor.rotary_emb", lambda m: m.register_forward_pre_hook(lambda m, a, k: (a, k | {"position_ids": k["position_ids"] // 8}), with_kwargs=True))),
    ("no_relu", 3, r"3\.self_attn.*indexer", "relu", setting("self_attn.compressor.indexer.scorer", "forward", lambda m: lambda q, k, x: ((q.float() @ k.float().transpose(-1, -2)[:, None]) * m.softmax_scale * (m.weights_proj(x).float() * m.weights_scaling)[..., None]).sum(2))),
    ("hadamard", 3, r"3\.self_attn.*indexer", "hadamard", argument("self_attn.compressor.indexer.scorer", lambda m, a: (hadamard(a[0]), *a[1:]))),
    ("raw_q", 3, r"3\.self_attn.*indexer", "before its norm", at("self_attn", lambda m: (m.q_a_proj.register_forward_hook(lambda p, a, out: setattr(m, "raw", out)), m.compressor.indexer.q_b_proj.register_forward_pre_hook(lambda p, a: (m.raw,), prepend=True)))),
    ("no_clamp", 2, r"2\.mlp", "clamp", setting("mlp.experts", "limit", lambda m: float("inf"))),
    ("shared_no_clamp", 2, r"2\.mlp", "clamp", setting("mlp.shared_experts", "limit", lambda m: float("inf"))),
    ("clamp_after", 2, r"2\.mlp", "product", setting("mlp.experts", "_apply_gate", lambda m: lambda x: (F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]).clamp(-m.limit, m.limit))),
    ("hash_uniform", 0, r"0\.mlp", "same weight|uniform", result("mlp.gate", lambda m, a, out: (out[0], torch.full_like(out[1], m.routed_scaling_factor / 3), out[2]))),
    ("repeats", 1, r"1\.mlp", "twice|repeats", argument("mlp.experts", lambda m, a: (a[0], a[1], a[2] * ~(a[1][:, :, None] == a[1][:, None]).triu(1).any(-1)))),
    ("missing", 2, r"2\.mlp", "missing|nothing", argument("mlp.experts", lambda m, a: (a[0], a[1], a[2] * (a[1] != 2)))),
    ("softmax", 2, r"2\.mlp", "softmax", setting("mlp.gate.score_fn", "forward", lambda m: lambda x: x.softmax(-1))),
    ("sigmoid", 2, r"2\.mlp", "sigmoid", setting("mlp.gate.score_fn", "forward", lambda m: torch.sigmoid)),
    ("no_bias", 2, r"2\.mlp", "bias", setting("mlp.gate", "e_score_correction_bias", lambda m: torch.zeros_like(m.e_score_correction_bias))),
    ("no_norm", 2, r"2\.mlp", "normal|norm", result("mlp.gate", lambda m, a, out: (out[0], F.softplus(out[0]).sqrt().gather(1, out[2]) * m.routed_scaling_factor, out[2]))),
    ("no_scale", 2, r"2\.mlp", "scal|factor", setting("mlp.gate", "routed_scaling_factor", lambda m: 1.0)),
    ("router_detached", 2, r"2\.mlp", "detach|no gradient", result("mlp.gate", lambda m, a, out: (out[0], out[1].detach(), out[2]))),
]:
    bug("v4_" + name, "v4", where, cause)(lambda model, run, layer=layer, function=function: function(model.model.layers[layer], model.model))


@bug("shared_missing", "v3 glm4", r"mlp", "shared")
def _(model, run):
    part(model, "mlp.shared_experts").down_proj.forward = lambda x: torch.zeros(*x.shape[:-1], model.config.hidden_size, dtype=x.dtype, device=x.device)


@bug("eps_large", ALL, r"post_attention_layernorm", "eps")
def _(model, run):
    part(model, "post_attention_layernorm").variance_epsilon = 1e-2


@bug("eps_outside", "v3", r"post_attention_layernorm", "eps")
def _(model, run):
    m = part(model, "post_attention_layernorm")
    m.forward = lambda x: m.weight * (x.float() / (x.float().square().mean(-1, keepdim=True).sqrt() + 1e-2)).to(x.dtype)


@bug("norm_weight_plus_one", "v3 qwen3", r"input_layernorm", "weight")
def _(model, run):
    m = part(model, "input_layernorm")
    m.forward = lambda x: (1 + m.weight) * F.rms_norm(x.float(), x.shape[-1:], eps=1e-6).to(x.dtype)


@bug("layer_norm", "v3", r"input_layernorm", "mean|LayerNorm")
def _(model, run):
    m = part(model, "input_layernorm")
    m.forward = lambda x: m.weight * F.layer_norm(x.float(), x.shape[-1:], eps=1e-6).to(x.dtype)


@bug("residual_missing", "v3 qwen3", rf"layers\.{L}", "residual")
def _(model, run):
    model.model.layers[L].forward = types.MethodType(lambda self, x, **kw: self.mlp(self.post_attention_layernorm(x + self.self_attn(hidden_states=self.input_layernorm(x), **kw)[0])), model.model.layers[L])


@bug("other_input", "v3", rf"layers\.{L}", "input|layer")
def _(model, run):
    seen = {}
    model.model.layers[L - 1].register_forward_pre_hook(lambda m, a, k: seen.__setitem__("x", a[0]), with_kwargs=True)
    model.model.layers[L].register_forward_pre_hook(lambda m, a, k: ((seen["x"], *a[1:]), k), with_kwargs=True)


@bug("weight_other", "v3 qwen3", r"o_proj|self_attn", "weight")
def _(model, run):
    with torch.no_grad():
        w = part(model, "self_attn.o_proj").weight
        w.add_(0.1 * torch.randn_like(w) * w.std())


@bug("weight_transposed", "v3", r"experts|mlp", "transpos")
def _(model, run):
    with torch.no_grad():
        w = model.model.layers[L].mlp.experts.gate_up_proj
        w.copy_(w.transpose(1, 2).reshape(w.shape).clone())


@bug("labels_twice", "v3 qwen3", r"loss|lm_head|norm", "label|shift")
def _(model, run):
    run.shift = 1


@bug("labels_unshifted", "v3", r"loss|lm_head|norm", "label|shift")
def _(model, run):
    run.shift = -1


def on_gradients(name, families, where, cause):
    def add(function):
        bug(name, families, where, cause)(lambda model, run: run.afterwards.append(function))

    return add


def gradients(model, pattern):
    return [(n, p) for n, p in model.named_parameters() if re.search(pattern, n) and p.grad is not None]


def factor(name, families, pattern, where, value, cause=r"factor|twice|2\.0|0\.[0-9]|times"):
    @on_gradients(name, families, where, cause)
    def _(model, run):
        for _, p in gradients(model, pattern):
            p.grad *= value


factor("expert_gradients_doubled", ALL, r"layers\.[12]\.mlp\.experts", r"experts|mlp", 2)
factor("expert_gradients_over_ep", "v3 qwen3", r"mlp\.experts", r"experts|mlp", 1 / 8)
factor("router_gradient_doubled", "v3 qwen3", rf"layers\.{L}\.mlp\.gate", r"gate|mlp", 2)
factor("norm_gradients_over_tp", "v3", r"layernorm", r"norm", 1 / 4)
factor("attention_gradient_lost_scale", "glm4", rf"layers\.{L}\.self_attn", r"self_attn", 4)
factor("loss_scale_left", "v3 qwen3", r".", r".", 1024, "scale|factor|all")
factor("negative_gradient", "v3", rf"layers\.{L}\.self_attn\.o_proj", r"o_proj|self_attn", -1, "sign|-1")


@on_gradients("one_expert_doubled", "v3 qwen3", r"experts|mlp", r"factor|2\.0|twice|expert")
def _(model, run):
    model.model.layers[L].mlp.experts.down_proj.grad[5] *= 2


@on_gradients("up_half_zero", "v3", r"experts|mlp", r"zero|no gradient|frozen|detach")
def _(model, run):
    g = model.model.layers[L].mlp.experts.gate_up_proj.grad
    g[:, g.shape[1] // 2 :] = 0


@on_gradients("frozen_router", "v3 qwen3", r"gate|mlp", r"frozen|zero|no gradient|detach")
def _(model, run):
    part(model, "mlp.gate").weight.grad.zero_()


@on_gradients("weight_decay_added", "v3 qwen3", r".", r"decay")
def _(model, run):
    for _, p in gradients(model, rf"layers\.{L}\.self_attn"):
        p.grad += 0.1 * p.detach()


@on_gradients("clipped_before", "v3", r".", r"clip|common|factor|all")
def _(model, run):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)


@on_gradients("stale_gradient", "v3 qwen3", r".", r"stale|other|step|accum")
def _(model, run):
    kept = {n: p.grad.clone() for n, p in gradients(model, rf"layers\.{L}\.self_attn")}
    model.zero_grad()
    ids = run.ids.roll(7, 1)
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    for n, p in gradients(model, rf"layers\.{L}\.self_attn"):
        kept[n] += p.grad
    run.replaced = kept


@on_gradients("gradient_transposed", "v3", r"gate|mlp|proj", r"transpos|other|unknown|no known")
def _(model, run):
    w = part(model, "self_attn.q_a_proj").weight
    w.grad = w.grad.flip(0)


class Run:
    def __init__(self, family, hidden, dtype, attention="eager", seed=5, outliers=False, trained=None, recompute=False, micro=1, seq=48, batch=2, autocast=False, aux=0.0, others={}, facts={}):
        self.__dict__.update(locals())
        self.shift, self.afterwards, self.replaced = 0, [], {}

    def name(self):
        words = [self.family, "trained" if self.trained else str(self.hidden), str(self.dtype).split(".")[1], self.attention]
        words += [w for w, on in (("outliers", self.outliers), ("recompute", self.recompute), ("autocast", self.autocast), (f"micro{self.micro}", self.micro > 1), ("aux", self.aux > 0)) if on]
        return "-".join(words)

    def build(self):
        if self.trained:
            model = FAMILIES[self.family][1].from_pretrained(self.trained, attn_implementation=self.attention, dtype=self.dtype)
        else:
            config = config_of(self.family, self.hidden, **self.others)
            config._attn_implementation = self.attention
            if self.aux:
                config.output_router_logits, config.router_aux_loss_coef = True, self.aux
            model = randomize(FAMILIES[self.family][1](config).float(), self.seed, self.outliers).to(self.dtype)
            for n, b in model.named_buffers():
                if n.endswith("e_score_correction_bias"):
                    b.data = b.data.float()
        model.config._experts_implementation = "eager"
        model.train()
        if self.recompute:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return model.to(DEVICE)

    def draw(self, vocab, generator):
        """Random tokens; for a trained model the bytes of this file."""
        if not self.trained:
            return torch.randint(0, vocab, (self.batch, self.seq), generator=generator)
        with open(__file__, "rb") as file:
            text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
        starts = torch.randint(0, len(text) - self.seq, (self.batch,), generator=generator)
        return torch.stack([text[i : i + self.seq] for i in starts])

    def run(self, folder, plant=None):
        model = self.build()
        recorder = step.Recorder(model, folder, config=model.config)
        if plant:
            plant(model, self)
        g = torch.Generator().manual_seed(self.seed)
        vocab = model.config.vocab_size
        total = 0
        for _ in range(self.micro):
            self.ids = ids = self.draw(vocab, g).to(DEVICE)
            labels = ids
            used = ids.roll(-1, 1) if self.shift == 1 else ids.roll(1, 1) if self.shift == -1 else ids
            with torch.autocast("cuda", torch.bfloat16, enabled=self.autocast):
                loss = model(input_ids=ids, labels=used, use_cache=False).loss / self.micro
            loss.backward()
            total += loss.item()
        for hook in recorder.hooks:
            hook.remove()
        for function in self.afterwards:
            function(model, self)
        for n, p in model.named_parameters():
            if n in self.replaced:
                p.grad = self.replaced[n]
        for batch in recorder.batches:
            batch["labels"] = batch["input_ids"]
        aux = [{"kind": "load_balancing", "coefficient": self.aux, "padding": True}] if self.aux else []
        recorder.save(loss=total, framework=f"transformers {transformers.__version__}", auxiliary=aux, **self.facts)


def clean_runs(trained):
    bf, fp = torch.bfloat16, torch.float32
    runs = [Run(f, h, bf, a) for f in FAMILIES for h, a in ((64, "eager"), (256, "eager" if f == "v4" else "sdpa"))]
    runs += [Run("v3", 1024, bf, "sdpa", batch=4, seq=128), Run("qwen3", 512, bf, "eager", batch=4, seq=128), Run("glm4", 1024, bf, "eager")]
    runs += [Run(f, 64, fp) for f in FAMILIES] + [Run("v3", 256, fp, "sdpa"), Run("v4", 128, fp), Run("v4", 256, fp)]
    runs += [Run(f, 128, bf, outliers=True) for f in FAMILIES]
    runs += [Run("v3", 128, bf, recompute=True), Run("v3", 128, bf, micro=4), Run("qwen3", 128, bf, "sdpa", micro=2), Run("v3", 128, fp, autocast=True), Run("qwen3", 128, fp, autocast=True), Run("qwen3", 128, bf, aux=0.01)]
    runs += [Run(f, 0, bf, trained=path) for f, path in trained]
    return runs


# The trained v3 has no query compression, one group of experts, and a routing scale of 1.
WITHOUT_EFFECT = ("q_norm_missing", "groups_ignored", "group_max", "no_scale", "scale_twice", "gradient_transposed")


def judge(launcher, folder):
    start = time.time()
    done = subprocess.run([launcher, "check", "--json", folder], capture_output=True, text=True, timeout=300)
    row = {"exit": done.returncode, "seconds": round(time.time() - start, 2), "error": done.stderr[-2000:]}
    if done.stdout.startswith("{"):
        report = json.loads(done.stdout)
        row["report"] = {k: report.get(k) for k in ("verdict", "strains", "resolution", "compared", "doubts")}
        row["report"]["findings"] = [{k: f.get(k) for k in ("module", "part", "says", "causes", "factor")} for f in (report.get("findings") or [])[:5]]
    return row


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher")
    parser.add_argument("--out", default="results.jsonl")
    parser.add_argument("--only", default=".")
    parser.add_argument("--jobs", type=int, default=1, help="folders judged at a time")
    parser.add_argument("--keep", help="keep the folders here")
    return parser


def main():
    parser = arguments()
    parser.add_argument("--hidden", type=int, default=128, help="hidden size of the models with bugs")
    parser.add_argument("--trained", action="append", default=[], help="FAMILY=FOLDER")
    args = parser.parse_args()
    trained = [t.split("=") for t in args.trained]
    cases = [(run, None) for run in clean_runs(trained)]
    for name, (families, *_rest) in BUGS.items():
        for family in families:
            cases.append((Run(family, args.hidden, torch.bfloat16, "eager"), name))
            if family == families[0]:
                cases.append((Run(family, 64, torch.float32, "eager"), name))
            cases += [(Run(family, 0, torch.bfloat16, trained=path), name) for f, path in trained if f == family and not (f == "v3" and name in WITHOUT_EFFECT)]
            if name in ("expert_missing", "scale_nope", "rope_pairs", "no_scale", "eps_large", "expert_gradients_doubled", "gate_up_swapped", "mask_late", "weights_detached", "bias_missing", "q_norm_missing"):
                cases.append((Run(family, args.hidden, torch.bfloat16, "eager", outliers=True), name))
    judge_all(args, [(run.name(), run, name, *(BUGS[name][1:] if name else (None, None, None))) for run, name in cases])


def judge_all(args, cases):
    """Runs and judges cases: a label, a Run, the name of a bug, where it is, its cause, and what plants it."""
    with open(args.out, "w") as out, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for label, run, name, where, cause, plant in cases:
            label += "+" + name if name else ""
            if not re.search(args.only, label):
                continue
            folder = os.path.join(args.keep or tempfile.gettempdir(), label)
            shutil.rmtree(folder, ignore_errors=True)
            row = {"case": label, "bug": name, "where": where, "cause": cause}
            try:
                run.run(folder, plant)
            except Exception as e:  # a case that cannot run is a row, too
                row["failed"] = f"{type(e).__name__}: {e}"
            pool.submit(finish, args, row, folder, out)


def finish(args, row, folder, out):
    try:
        if args.launcher and "failed" not in row:
            row.update(judge(args.launcher, folder))
    except Exception as e:
        row["failed"] = f"{type(e).__name__}: {e}"
    print(row["case"], row.get("exit"), row.get("seconds"), row.get("failed", ""), flush=True)
    out.write(json.dumps(row) + "\n")
    if not args.keep:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
