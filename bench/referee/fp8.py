"""Steps in FP8 by torchao's training code, and by a linear layer written here, clean and with mistakes, for `launcher check`.

    python3 bench/referee/fp8.py --launcher ./launcher --ao FOLDER --out results [--only REGEX] [--keep]

FOLDER holds torchao's Python source; it needs no compiled extension. On a CPU, products of torchao are emulated.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import re
import shutil
import sys
import tarfile
import traceback

import plant
import torch
import torch.nn.functional as F
from plant import step

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TARGET = "model.layers.1.self_attn.o_proj"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
WIDTHS = dict(moe_intermediate_size=128, num_experts_per_tok=2)
V3 = dict(n_routed_experts=8, n_group=1, topk_group=1, q_lora_rank=128, kv_lora_rank=128, qk_nope_head_dim=32, qk_rope_head_dim=32, v_head_dim=32)
SHAPES = {"v3": WIDTHS | V3, "qwen3": WIDTHS | dict(num_experts=8, head_dim=64), "v3-wide": WIDTHS | V3 | dict(intermediate_size=8192)}
# Blocks of inputs and of weights as [rows, columns] (0: all), scales that are powers of two, and the type of output gradients.
RECIPES = {
    "tensorwise": ((0, 0), (0, 0), False, E5M2),
    "rowwise": ((1, 0), (1, 0), True, E4M3),
    "blockwise": ((1, 128), (128, 128), False, E4M3),
    "mxfp8_rceil": ((1, 32), (1, 32), True, E4M3),
}


def cast(x, block, powers, dtype=E4M3, amax_of=torch.abs, part=1, codes=False):
    """x [rows, k] after a cast to 8 bits and back. The options are mistakes."""
    (rows, k), most = x.shape, torch.finfo(dtype).max
    r, c = block[0] or rows, block[1] or k
    blocks = F.pad(x.float(), (0, -k % c, 0, -rows % r)).unflatten(1, (-1, c)).unflatten(0, (-1, r))
    scale = part * amax_of(blocks).amax((1, 3), keepdim=True).clamp(min=1e-12) / most
    scale = torch.exp2(torch.ceil(torch.log2(scale))) if powers else scale
    y = (blocks / scale).clamp(-most, most).to(dtype).float() * (1 if codes else scale)
    return y.flatten(2, 3).flatten(0, 1)[:rows, :k]


class Product(torch.autograd.Function):
    """A linear layer whose operands are cast to 8 bits, with the mistakes of such code."""

    @staticmethod
    def forward(ctx, x, w, recipe, mistake):
        ctx.save_for_backward(x, w)
        ctx.recipe, ctx.mistake = recipe, mistake
        xs, ws, powers, _ = RECIPES[recipe]
        options = {"stale_scale": dict(part=0.61), "amax_of_one_row": dict(amax_of=lambda b: b[:, -1:].abs())}.get(mistake, {})
        xs = xs[::-1] if mistake == "input_other_axis" else xs
        ws = (1, 128) if mistake == "weight_other_blocks" else ws
        y = cast(x.flatten(0, -2), xs, powers, **options) @ cast(w, ws, powers).t()
        return y.to(x.dtype).unflatten(0, x.shape[:-1])

    @staticmethod
    def backward(ctx, dy):
        (x, w), (xs, ws, powers, low) = ctx.saved_tensors, RECIPES[ctx.recipe]
        g, scaled = dy.flatten(0, -2), ctx.mistake != "scale_missing_in_dgrad"
        weight = cast(w, ws, powers).t() if ctx.mistake == "weight_cast_once" else cast(w.t(), ws, powers, codes=not scaled)
        dx = cast(g, xs, powers, low) @ weight.t()
        dw = cast(g.t(), xs, powers, low) @ cast(x.flatten(0, -2).t(), xs, powers).t()
        return dx.to(x.dtype).unflatten(0, x.shape[:-1]), dw.to(w.dtype), None, None


def product_by_ao(recipe, **changes):
    """torchao's function of a linear layer of a Float8Linear's recipe: x, w -> x·wᵀ."""
    from torchao.float8 import Float8LinearConfig, LinearMMConfig, ScaledMMConfig
    from torchao.float8.float8_linear import matmul_with_hp_or_float8_args as function

    config = dataclasses.replace(Float8LinearConfig.from_recipe_name(recipe), emulate=DEVICE == "cpu", pad_inner_dim=True, **changes)
    gemms = [ScaledMMConfig(config.emulate, g.use_fast_accum, False, True) for g in (config.gemm_config_output, config.gemm_config_grad_input, config.gemm_config_grad_weight)]
    return lambda x, w: function.apply(x, w.t(), LinearMMConfig(*gemms), config)


def linears(model, convert, only=None):
    """Replaces linear layers except the head; convert makes one of another."""
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and (name == only if only else name != "lm_head"):
            new = convert(module)
            if new is not None:
                setattr(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], new)


def by_ao(model, recipe, mistake, only=None):
    """torchao's own modules, as its users get them."""
    if recipe.startswith("mxfp8"):
        from torchao.prototype.moe_training import mxfp8_linear as m

        rceil = (recipe == "mxfp8_rceil") != (mistake == "scale_floor" and only is not None)
        mode = m.ScaleCalculationMode.RCEIL if rceil else m.ScaleCalculationMode.FLOOR
        make = lambda old: m.MXFP8Linear(old.in_features, old.out_features, bias=False, device="meta", kernel_preference=m.KernelPreference.EMULATED, scale_calculation_mode=mode)
    elif recipe == "blockwise":
        from torchao.prototype.blockwise_fp8_training.linear import Float8BlockwiseLinear

        make = Float8BlockwiseLinear.from_float
    else:
        from torchao.float8 import CastConfig, Float8LinearConfig
        from torchao.float8.float8_linear import Float8Linear

        name = "rowwise_with_gw_hp" if mistake == "wgrad_in_bf16" and only else recipe
        changes = {"gradient_in_e4m3": dict(cast_config_grad_output=CastConfig(target_dtype=E4M3), cast_config_grad_output_for_grad_weight=None), "scale_no_power": dict(round_scales_to_power_of_2=False)}
        config = dataclasses.replace(Float8LinearConfig.from_recipe_name(name), emulate=DEVICE == "cpu", **(changes.get(mistake, {}) if only else {}))
        make = lambda old: Float8Linear.from_float(old, config=config)

    def convert(old):
        new = make(old)
        new.weight, new.bias = old.weight, old.bias
        return new

    linears(model, convert, only)


def grouped_by_ao(x, indices, weights, module):
    """Experts by torchao's grouped products, which want groups of a multiple of 16 rows."""
    from torchao.prototype.moe_training.fp8_grouped_mm import _to_fp8_rowwise_then_scaled_grouped_mm as product

    counts = torch.bincount(indices.flatten(), minlength=module.num_experts)
    ends = ((counts + 15) // 16 * 16).cumsum(0)
    order = indices.flatten().argsort(stable=True)
    place = torch.arange(len(order), device=x.device) + torch.repeat_interleave(ends - (counts + 15) // 16 * 16 - counts.cumsum(0) + counts, counts)
    rows = x.new_zeros(int(ends[-1]), x.shape[-1]).index_copy(0, place, x[order // indices.shape[1]])
    mm = lambda a, w: product(a.contiguous(), w.transpose(-2, -1), ends.to(torch.int32), pad_token_groups_for_grouped_mm=False)
    gate, up = mm(rows, module.gate_up_proj).chunk(2, -1)
    y = mm(F.silu(gate) * up, module.down_proj)[place] * weights.flatten()[order, None]
    return torch.zeros_like(x).index_add(0, order // indices.shape[1], y.to(x.dtype))


def experts(model, mm):
    for module in [m for n, m in model.named_modules() if n.endswith("mlp.experts")]:

        def loop(x, indices, weights, module=module):
            out = torch.zeros_like(x)
            for e in range(module.num_experts):
                token, place = torch.where(indices == e)
                if len(token) == 0:
                    continue
                gate, up = mm(x[token], module.gate_up_proj[e]).chunk(2, -1)
                y = mm(F.silu(gate) * up, module.down_proj[e]) * weights[token, place, None]
                out = out.index_add(0, token, y.to(out.dtype))
            return out

        module.forward = loop if mm else lambda x, i, w, module=module: grouped_by_ao(x, i, w, module)


def own(model, recipe, mistake, only=None):
    def convert(old):
        old.forward = lambda x, w=old.weight: Product.apply(x, w, recipe, mistake)

    linears(model, convert, only)


# The mistakes: who makes them, the recipe, and what `check` should say.
MISTAKES = {
    "stale_scale": (own, "tensorwise", "scale"), "amax_of_one_row": (own, "tensorwise", "scale"), "scale_missing_in_dgrad": (own, "tensorwise", "× the reference"),
    "input_other_axis": (own, "blockwise", "other axis for the input in forward"), "weight_other_blocks": (own, "blockwise", "1x128 elements for the weight in forward"),
    "weight_cast_once": (own, "mxfp8_rceil", "axis for the weight in dgrad"), "gradient_in_e4m3": (by_ao, "tensorwise", "E4M3, for the output gradient"),
    "scale_floor": (by_ao, "mxfp8_rceil", "fp8_mxfp8:"), "scale_no_power": (by_ao, "rowwise", "no powers of two"), "wgrad_in_bf16": (by_ao, "rowwise", "no cast .* wgrad"),
    "stays_bf16": (None, "tensorwise", "fp8_missing"), "head_quantized": (by_ao, "tensorwise", "fp8_tensorwise"),
}  # fmt: skip


def cases():
    """Name, family, fp8 of step.json, mistake or None, its cause, seed, and what is done to the model."""
    for family in ("qwen3", "v3"):
        for recipe in ("tensorwise", "rowwise", "mxfp8_rceil", "mxfp8"):
            for seed in (5, 6) if recipe in RECIPES else (5,):
                yield f"torchao-{family}-{recipe}-{seed}", family, recipe + " linears", None, None, seed, lambda m, r=recipe: by_ao(m, r, None)
        for recipe in RECIPES:
            yield f"own-{family}-{recipe}", family, recipe + " linears", None, None, 7, lambda m, r=recipe: own(m, r, None)
        for recipe in ("tensorwise", "rowwise"):
            yield f"torchao-{family}-{recipe}-experts", family, recipe, None, None, 8, lambda m, r=recipe: (by_ao(m, r, None), experts(m, product_by_ao(r)))
    for name, (maker, recipe, cause) in MISTAKES.items():
        for family in ("v3", "qwen3") if recipe != "blockwise" else ("qwen3",):
            only = "lm_head" if name == "head_quantized" else TARGET

            def change(model, name=name, maker=maker, recipe=recipe, only=only):
                target = model.get_submodule(only)
                (own if maker == own else by_ao)(model, recipe, None)
                setattr(model.get_submodule(only.rpartition(".")[0]), only.rpartition(".")[2], target)
                target.__dict__.pop("forward", None)
                if maker:
                    maker(model, recipe, name, only)

            yield f"{family}-{recipe}+{name}", family, recipe + " linears", only, cause, 5, change
    for recipe in ("tensorwise", "rowwise"):
        yield f"torchao-v3-wide-{recipe}", "v3-wide", recipe + " linears", None, None, 5, lambda m, r=recipe: by_ao(m, r, None)
    for family in ("qwen3", "v3"):  # by Triton, which compiles for a minute
        yield f"torchao-{family}-rowwise-grouped", family, "rowwise experts", None, None, 9, lambda m: experts(m, None)
    for seed in (5, 6):
        yield f"torchao-qwen3-blockwise-{seed}", "qwen3", "blockwise linears", None, None, seed, lambda m: by_ao(m, "blockwise", None)


def record(folder, family, words, seed, change):
    config = plant.config_of(family.split("-")[0], 128, 2, **SHAPES[family])
    config._attn_implementation, config._experts_implementation = "eager", "eager"
    model = plant.randomize(plant.FAMILIES[family.split("-")[0]][1](config).float(), seed).to(torch.bfloat16)
    for n, b in model.named_buffers():
        if n.endswith("e_score_correction_bias"):
            b.data = b.data.float()
    model = model.to(DEVICE).train()
    change(model)
    ids = torch.randint(0, 512, (2, 64), generator=torch.Generator().manual_seed(seed)).to(DEVICE)
    recorder = step.Recorder(model, folder, config=config)
    loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    recorder.save(loss=loss, fp8=words, framework="torchao")


def judged(launcher, folder, name, where, cause):
    """Prints a line about a folder. Returns whether it says what it should."""
    row = plant.judge(launcher, folder)
    report = row.get("report", {})
    first = (report.get("findings") or [{}])[0]
    strain = max((report.get("strains") or {"": 0}).values(), default=0)
    causes = " ".join(f"{c['name']}: {c['says']}" for c in first.get("causes") or [])
    said = causes or " ".join(first.get("says") or [])
    found = row["exit"] == 1 and where is not None and first.get("module", "").startswith(where)
    word = "" if where is None else "named" if found and re.search(cause, said) else "found" if found else "NOT SEEN" if row["exit"] != 1 else "ELSEWHERE"
    print(f"{name:44} exit {row['exit']} {word:9} largest {strain:6.2f} {row['seconds']:5.1f} s  {first.get('module', '')} {said[:200]} {(report.get('doubts') or [''])[0]}", flush=True)
    return row["exit"] == 0 if where is None else found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launcher", required=True)
    parser.add_argument("--ao", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--only", default=".")
    parser.add_argument("--jobs", type=int, default=8)
    args = parser.parse_args()
    sys.path.insert(0, args.ao)
    folders = {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, family, words, where, cause, seed, change in cases():
            folder = os.path.join("/tmp/fp8", name)
            if not re.search(args.only, name):
                continue
            shutil.rmtree(folder, ignore_errors=True)
            try:
                record(folder, family, words, seed, change)
                folders[folder] = pool.submit(judged, args.launcher, folder, name, where, cause)
            except Exception:  # a case that cannot run is a line, too
                print(f"{name:44} failed: " + traceback.format_exc(limit=-4), flush=True)
    part, room = None, 0
    for folder in sorted(folders, key=lambda f: folders[f].exception() is None and folders[f].result()):  # what surprises first
        size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
        if size > 12 << 20:
            continue
        if part is None or room < size:
            parts = len([f for f in os.listdir(args.out) if f.startswith("fp8-")])
            if parts == 4:
                break
            part, room = tarfile.open(os.path.join(args.out, f"fp8-{parts}.tar.xz"), "w:xz", preset=1), 22 << 20
        part.add(folder, os.path.basename(folder))
        room -= size
    if part:
        part.close()


if __name__ == "__main__":
    main()
