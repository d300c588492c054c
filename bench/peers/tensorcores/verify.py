"""Multiplies on a GPU and with `sum="h100"` of the library for Python, and compares every bit of the results.

    PYTHONPATH=python python3 bench/peers/tensorcores/verify.py

The shapes are those of the three products of each weight of 16B-slice, for --tokens tokens; an expert gets an eighth of
them. BF16 is torch.mm with split-K off. FP8 is torch._scaled_mm with scales of one, promoted and in one chain. Blocks are
torch.nn.functional.scaled_mm, 1x128 by 128x128, as in a forward product. K is a multiple of 128.
"""
import argparse
import sys

import numpy as np
import spmoe
import torch
import torch.nn.functional as F

WEIGHTS = {  # [rows, columns]
    "q_proj": (3072, 2048), "kv_a_proj": (576, 2048), "kv_b_proj": (4096, 512), "o_proj": (2048, 2048),
    "mlp.gate_up_proj": (21888, 2048), "mlp.down_proj": (2048, 10944), "experts.gate_up_proj": (2816, 2048), "experts.down_proj": (2048, 1408),
}


def bf16(a, b):
    return spmoe.matmul(a, b.T, sum="h100"), torch.mm(a.cuda(), b.cuda().t(), out_dtype=torch.float32)


def fp8(promote):
    def product(a, b):
        a, b, one = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn), torch.ones((), device="cuda")
        gpu = torch._scaled_mm(a.cuda(), b.cuda().t(), scale_a=one, scale_b=one, out_dtype=torch.float32, use_fast_accum=not promote)
        return spmoe.matmul(a, b.T, sum="h100" if promote else "h100-nopromotion"), gpu
    return product


def blocks(a, b):
    qa, qb = spmoe.quantize(a, "fp8-1x128"), spmoe.quantize(b, "fp8-128x128")
    (ca, sa), (cb, sb) = ((torch.from_numpy(q.codes).view(torch.float8_e4m3fn).cuda(), torch.from_numpy(q.scales).cuda()) for q in (qa, qb))
    sb = F.pad(sb, (0, -sb.shape[1] % 4)).contiguous()  # runs filled to 4, as cuBLAS wants them
    gpu = F.scaled_mm(ca, cb.t(), sa.t().contiguous().t(), F.ScalingType.BlockWise1x128, sb.t(), F.ScalingType.BlockWise128x128,
                      output_dtype=torch.float32)
    return spmoe.matmul(qa, qb.T, sum="h100"), gpu


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tokens", type=int, default=1024)
    tokens = p.parse_args().tokens
    torch.backends.cuda.preferred_blas_library("cublaslt")  # which alone can leave split-K out
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = (False, False)
    print(f"{torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}")
    random, wrong, total = torch.Generator().manual_seed(1), 0, 0
    for name, product in ("bf16", bf16), ("fp8", fp8(True)), ("fp8 in one chain", fp8(False)), ("fp8 in blocks", blocks):
        for weight, (rows, columns) in WEIGHTS.items():
            m = tokens // 8 if "expert" in weight else tokens
            shapes = {"forward": (m, rows, columns), "dgrad": (m, columns, rows), "wgrad": (rows, columns, m)}
            for kind in ["forward"] if product is blocks else shapes:
                m, n, k = shapes[kind]
                k -= k % 128
                a, b = (torch.randn(r, k, generator=random).bfloat16() for r in (m, n))
                own, gpu = product(a, b)
                different = int((np.ascontiguousarray(own).view(np.int32) != gpu.cpu().numpy().view(np.int32)).sum())
                total, wrong = total + m * n, wrong + different
                print(f"{name:16} {weight:20} {kind:7} {m}x{n}x{k}: {m * n} elements, {different} differ", flush=True)
    print(f"all: {total} elements, {wrong} differ")
    sys.exit(wrong > 0)


main()
