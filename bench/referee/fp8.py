"""Steps in FP8 by torchao's training code, and by a linear layer written here, clean and with mistakes, for `launcher check`.

    python3 bench/referee/fp8.py --launcher ./launcher --ao FOLDER --out results.jsonl [--only REGEX] [--keep DIR]; score.py sums up

FOLDER holds torchao's Python source; it needs no compiled extension. On a CPU, torchao's products are emulated.
"""

import dataclasses
import sys

import plant
import torch
import torch.nn.functional as F

TARGET = "model.layers.1.self_attn.o_proj"
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
V3 = dict(n_routed_experts=8, n_group=1, topk_group=1, q_lora_rank=128, kv_lora_rank=128, qk_nope_head_dim=32, qk_rope_head_dim=32, v_head_dim=32)
SHAPES = {"v3": V3, "qwen3": dict(num_experts=8, head_dim=64)}
# Blocks of inputs and of weights as [rows, columns] (0: all), scales that are powers of two, and the type of output gradients.
RECIPES = {
    "tensorwise": ((0, 0), (0, 0), False, E5M2),
    "rowwise": ((1, 0), (1, 0), True, E4M3),
    "blockwise": ((1, 128), (128, 128), False, E4M3),
    "mxfp8_rceil": ((1, 32), (1, 32), True, E4M3),
}


def cast(x, block, powers, dtype=E4M3, part=1, codes=False):
    """x [rows, k] after a cast to 8 bits and back. The options are mistakes."""
    (rows, k), most = x.shape, torch.finfo(dtype).max
    r, c = block[0] or rows, block[1] or k
    blocks = F.pad(x.float(), (0, -k % c, 0, -rows % r)).unflatten(1, (-1, c)).unflatten(0, (-1, r))
    scale = part * blocks.abs().amax((1, 3), keepdim=True).clamp(min=1e-12) / most
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
        xs = xs[::-1] if mistake == "input_other_axis" else xs
        ws = (1, 128) if mistake == "weight_other_blocks" else ws
        y = cast(x.flatten(0, -2), xs, powers, part=0.61 if mistake == "stale_scale" else 1) @ cast(w, ws, powers).t()
        return y.to(x.dtype).unflatten(0, x.shape[:-1])

    @staticmethod
    def backward(ctx, dy):
        (x, w), (xs, ws, powers, low), g = ctx.saved_tensors, RECIPES[ctx.recipe], dy.flatten(0, -2)
        dx = cast(g, xs, powers, low) @ cast(w.t(), ws, powers, codes=ctx.mistake == "scale_missing_in_dgrad").t()
        dw = cast(g.t(), xs, powers, low) @ cast(x.flatten(0, -2).t(), xs, powers).t()
        return dx.to(x.dtype).unflatten(0, x.shape[:-1]), dw.to(w.dtype), None, None


def own(layer, recipe, mistake):
    layer.forward = lambda x: Product.apply(x, layer.weight, recipe, mistake)
    return layer


def by_ao(layer, recipe, mistake):
    """torchao's own module in place of a linear layer."""
    if recipe.startswith("mxfp8"):
        from torchao.prototype.moe_training import mxfp8_linear as m

        rceil = recipe == "mxfp8_rceil" and mistake != "scale_floor"
        mode = m.ScaleCalculationMode.RCEIL if rceil else m.ScaleCalculationMode.FLOOR
        new = m.MXFP8Linear(layer.in_features, layer.out_features, bias=False, device="meta", kernel_preference=m.KernelPreference.EMULATED, scale_calculation_mode=mode)
    elif recipe == "blockwise":
        from torchao.prototype.blockwise_fp8_training.linear import Float8BlockwiseLinear

        new = Float8BlockwiseLinear.from_float(layer)
    else:
        from torchao.float8.float8_linear import Float8Linear

        new = Float8Linear.from_float(layer, config=config_of(recipe, mistake))
    new.weight, new.bias = layer.weight, layer.bias
    return new


def config_of(recipe, mistake=None, **changes):
    from torchao.float8 import CastConfig, Float8LinearConfig

    if mistake == "gradient_in_e4m3":
        changes = dict(cast_config_grad_output=CastConfig(target_dtype=E4M3), cast_config_grad_output_for_grad_weight=None)
    elif mistake == "scale_no_power":
        changes = dict(round_scales_to_power_of_2=False)
    name = "rowwise_with_gw_hp" if mistake == "wgrad_in_bf16" else recipe
    return dataclasses.replace(Float8LinearConfig.from_recipe_name(name), emulate=plant.DEVICE == "cpu", **changes)


def experts(model, recipe):
    """Experts one by one, by torchao's function of a linear layer."""
    from torchao.float8 import LinearMMConfig, ScaledMMConfig
    from torchao.float8.float8_linear import matmul_with_hp_or_float8_args as function

    c = config_of(recipe, pad_inner_dim=True)
    gemms = LinearMMConfig(*(ScaledMMConfig(c.emulate, g.use_fast_accum, False, True) for g in (c.gemm_config_output, c.gemm_config_grad_input, c.gemm_config_grad_weight)))
    mm = lambda x, w: function.apply(x, w.t(), gemms, c)
    for module in [m for n, m in model.named_modules() if n.endswith("mlp.experts")]:

        def loop(x, indices, weights, module=module):
            out = torch.zeros_like(x)
            for e in indices.unique().tolist():
                token, place = torch.where(indices == e)
                gate, up = mm(x[token], module.gate_up_proj[e]).chunk(2, -1)
                y = mm(F.silu(gate) * up, module.down_proj[e]) * weights[token, place, None]
                out = out.index_add(0, token, y.to(out.dtype))
            return out

        module.forward = loop


# The mistakes: who makes them, the recipe, and what `check` should say.
MISTAKES = {
    "stale_scale": (own, "tensorwise", "scale"), "scale_missing_in_dgrad": (own, "tensorwise", "× the reference"),
    "input_other_axis": (own, "blockwise", "other axis for the input in forward"), "weight_other_blocks": (own, "blockwise", "1x128 elements for the weight in forward"),
    "gradient_in_e4m3": (by_ao, "tensorwise", "E4M3, for the output gradient"), "scale_floor": (by_ao, "mxfp8_rceil", "fp8_mxfp8 "),
    "scale_no_power": (by_ao, "rowwise", "no powers of two"), "wgrad_in_bf16": (by_ao, "rowwise", "no cast .* wgrad"),
    "stays_bf16": (None, "tensorwise", "fp8_missing"), "head_quantized": (by_ao, "tensorwise", "fp8_tensorwise"),
}  # fmt: skip


class Step(plant.Run):
    """A model of a family whose linear layers except the head are made by `maker`, and one of them with a mistake."""

    def __init__(self, family, maker, recipe, seed, mistake=None, target=TARGET, covers=" linears", **others):
        shape = dict(moe_intermediate_size=128, num_experts_per_tok=2) | SHAPES[family] | others
        super().__init__(family, 128, torch.bfloat16, seed=seed, seq=64, others=shape, facts={"fp8": recipe + covers})
        self.maker, self.recipe, self.mistake, self.target = maker, recipe, mistake, target

    def build(self):
        model = super().build()
        for path, layer in list(model.named_modules()):
            if isinstance(layer, torch.nn.Linear) and (path != "lm_head" or self.mistake and path == self.target):
                mistake = self.mistake if path == self.target else None
                maker = MISTAKES[mistake][0] if mistake else self.maker
                parent, _, name = path.rpartition(".")
                setattr(model.get_submodule(parent), name, maker(layer, self.recipe, mistake) if maker else layer)
        if self.facts["fp8"] == self.recipe:
            experts(model, self.recipe)
        return model


def cases():
    for family in SHAPES:
        for recipe in ("tensorwise", "rowwise", "mxfp8_rceil", "mxfp8", *(["blockwise"] if family == "qwen3" else [])):
            for seed in (5, 6):
                yield f"torchao-{family}-{recipe}-{seed}", Step(family, by_ao, recipe, seed), None, None, None, None
        for recipe in RECIPES:
            yield f"own-{family}-{recipe}", Step(family, own, recipe, 7), None, None, None, None
        for recipe in ("tensorwise", "rowwise"):
            yield f"torchao-{family}-{recipe}-experts", Step(family, by_ao, recipe, 8, covers=""), None, None, None, None
        for name, (maker, recipe, cause) in MISTAKES.items():
            target = "lm_head" if name == "head_quantized" else TARGET
            run = Step(family, maker or by_ao, recipe, 5, name, target)
            yield f"{family}-{recipe}", run, name, target.replace(".", r"\."), cause, None
    for recipe in ("tensorwise", "rowwise"):
        yield f"torchao-v3-{recipe}-wide", Step("v3", by_ao, recipe, 5, intermediate_size=8192), None, None, None, None


if __name__ == "__main__":
    parser = plant.arguments()
    parser.add_argument("--ao", required=True)
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.ao)
    plant.judge_all(arguments, cases())
