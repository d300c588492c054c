"""Multiplies on a GPU with PyTorch's default settings, and by the rules of an H100 on the CPU, and compares every bit.

    PYTHONPATH=python python3 bench/peers/tensorcores/verify.py

The shapes are those of the three products of each weight of DeepSeek-V2-Lite, for --tokens tokens; an expert gets an eighth
of them. BF16 is torch.mm. FP8 is torch._scaled_mm with scales of one, promoted and in one chain. Blocks are
torch.nn.functional.scaled_mm, 1x128 by 128x128, in the forward product and dgrad. Results are FP32 and BF16. cuBLAS may cut K into
parts: their number is found on some rows and columns, and all results are compared with it.
"""
import argparse
import collections
import sys
import time

import spmoe
import torch
import torch.nn.functional as F

WEIGHTS = {  # [rows, columns]
    "q_proj": (3072, 2048), "kv_a_proj": (576, 2048), "kv_b_proj": (4096, 512), "o_proj": (2048, 2048), "mlp.gate_up_proj": (21888, 2048),
    "mlp.down_proj": (2048, 10944), "experts.gate_up_proj": (2816, 2048), "experts.down_proj": (2048, 1408), "lm_head": (102400, 2048),
}
MOST_PARTS = 32


class Plain:
    """A product without scales, or with scales of one."""

    def __init__(self, dtype, sum, fast=False):
        self.dtype, self.sum, self.fast = dtype, sum, fast

    def operands(self, a, b):
        return a.to(self.dtype), b.to(self.dtype)

    def gpu(self, a, b, out):
        if self.dtype == torch.bfloat16:
            return torch.mm(a.cuda(), b.cuda().t(), out_dtype=out)
        one = torch.ones((), device="cuda")
        return torch._scaled_mm(a.cuda(), b.cuda().t(), scale_a=one, scale_b=one, out_dtype=out, use_fast_accum=self.fast)

    def own(self, a, b, parts):
        return torch.from_numpy(spmoe.matmul(a, b.T, sum=self.sum, parts=parts))


class Blocks(Plain):
    def __init__(self):
        super().__init__(None, "h100")

    def operands(self, a, b):
        return spmoe.quantize(a, "fp8-1x128"), spmoe.quantize(b, "fp8-128x128")

    def gpu(self, a, b, out):
        (ca, sa), (cb, sb) = ((torch.from_numpy(q.codes).view(torch.float8_e4m3fn).cuda(), torch.from_numpy(q.scales).cuda()) for q in (a, b))
        sb = F.pad(sb, (0, -sb.shape[1] % 4)).contiguous()  # runs filled to 4, as cuBLAS wants them
        return F.scaled_mm(ca, cb.t(), sa.t().contiguous().t(), F.ScalingType.BlockWise1x128, sb.t(), F.ScalingType.BlockWise128x128, output_dtype=out)

    def own(self, a, b, parts):
        return super().own(a, b, None)


RECIPES = {"bf16": Plain(torch.bfloat16, "h100"), "fp8": Plain(torch.float8_e4m3fn, "h100"),
           "fp8 in one chain": Plain(torch.float8_e4m3fn, "h100-nopromotion", True), "fp8 in blocks": Blocks()}


def differing(x, y):
    integers = {torch.float32: torch.int32, torch.bfloat16: torch.int16}[x.dtype]
    return int((x.view(integers) != y.view(integers)).sum())


def parts_of(recipe, a, b, gpu):
    """The number of parts that some rows and columns show."""
    if not isinstance(a, torch.Tensor):
        return 1
    rows, columns = (torch.linspace(0, len(x) - 1, min(len(x), 64)).long() for x in (a, b))
    left, right, want = a[rows].contiguous(), b[columns].contiguous(), gpu[rows][:, columns].contiguous()
    return next((n for n in range(1, MOST_PARTS + 1) if not differing(recipe.own(left, right, n).to(want.dtype), want)), 1)


def data(rows, k, random):
    """Numbers of the normal distribution, with some columns that are larger, as activations have."""
    x = torch.randn(rows, k, generator=random, device="cuda")
    x[:, ::37] *= 32
    return x.bfloat16().cpu()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tokens", type=int, nargs="+", default=[16, 128, 1024])
    p.add_argument("--recipes", nargs="+", default=list(RECIPES))
    options = p.parse_args()
    print(f"{torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}")
    random, total, start = torch.Generator("cuda").manual_seed(1), collections.Counter(), time.time()
    for name in options.recipes:
        recipe, count = RECIPES[name], collections.Counter()
        for tokens in options.tokens:
            for weight, (rows, columns) in WEIGHTS.items():
                m = max(tokens // 8, 16) if "expert" in weight else tokens
                shapes = {"forward": (m, rows, columns), "dgrad": (m, columns, rows), "wgrad": (rows, columns, m)}
                for kind in ["forward", "dgrad"] if name == "fp8 in blocks" else shapes:
                    m1, n, k = shapes[kind]
                    k -= k % 128 if name == "fp8 in blocks" else 0
                    a, b = recipe.operands(*(data(r, k, random) for r in (m1, n)))
                    own, wrong, parts = {}, [], []
                    for out in torch.float32, torch.bfloat16:
                        try:
                            gpu = recipe.gpu(a, b, out).cpu()
                        except (RuntimeError, ValueError) as error:
                            print(f"{name:16} {weight:20} {kind:7} {m1}x{n}x{k}: PyTorch refuses {out}: {str(error)[:90]}", flush=True)
                            continue
                        count["products"] += 1
                        parts.append(parts_of(recipe, a, b, gpu))
                        if parts[-1] not in own:
                            own[parts[-1]] = recipe.own(a, b, parts[-1])
                        wrong.append(differing(own[parts[-1]].to(out), gpu))
                    count.update(results=len(parts) * m1 * n, differ=sum(wrong), split=sum(x > 1 for x in parts))
                    if sum(wrong) or max(parts, default=1) > 1:
                        print(f"{name:16} {weight:20} {kind:7} {m1}x{n}x{k}: parts {parts}, of {m1 * n} FP32 and BF16 results {wrong} differ", flush=True)
        print(f"{name}: {count['products']} products, {count['split']} in parts of K, {count['results']} results (half in FP32, half in BF16), {count['differ']} differ, "
              f"{time.time() - start:.0f} s", flush=True)
        total += count
    print(f"all: {total['results']} results, {total['differ']} differ")
    sys.exit(total["differ"] > 0)


main()
