"""Multiplies on a GPU what tensorcores writes, and compares every bit of the results.

    tensorcores --precision bf16 | python3 verify.py

Prints a line per weight, product and kernel: products, shapes, elements, elements that differ, and elements of the
mutants' corners that differ. Exits with 1 if an element of a product differs.

BF16 is torch.mm with split-K off. FP8 is torch._scaled_mm, with scales of one and without fast accumulation if sums are
promoted; the real scale is compared apart. Blocks are torch.nn.functional.scaled_mm. Rows and K are filled with zeros as
far as PyTorch asks for it: K to 16 (BF16), 32 (FP8) or 128 (blocks). Experts are multiplied one by one.
"""
import collections
import json
import re
import sys

import torch
import torch.nn.functional as F


def numbers(stream, dtype, *shape):
    size = torch.empty(0, dtype=dtype).element_size()
    for n in shape:
        size *= n
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        n = stream.readinto(view[at:])
        if not n:
            raise EOFError("the products end early")
        at += n
    return torch.frombuffer(data, dtype=dtype).view(shape) if size else torch.empty(shape, dtype=dtype)


def filled(t, rows, cols):
    """t with zeros up to multiples of rows and cols."""
    return F.pad(t, (0, -t.shape[1] % cols, 0, -t.shape[0] % rows))


def scale_of(t, rows, leaf, k):
    """Scales of a leaf as cuBLAS wants them: 1x128 with rows adjacent, 128x128 as [runs filled to 4, rows]."""
    t = t[:, leaf // 128 : (leaf + k + 127) // 128].cuda()
    if rows == 1:
        return t.t().contiguous().t(), F.ScalingType.BlockWise1x128
    return filled(t, 1, 4).contiguous().t(), F.ScalingType.BlockWise128x128


def product(h, a, b, sa, sb, leaf, k):
    """The FP32 product of k elements from leaf on, and what was multiplied, which is profiled."""
    a, b = a[:, leaf : leaf + k], b[:, leaf : leaf + k]
    if h["element"] == "bf16":
        a, b = filled(a, 1, 16).contiguous(), filled(b, 1, 16).contiguous()
        return lambda: torch.mm(a, b.t(), out_dtype=torch.float32)
    blocks = h["rows"] != [0, 0]
    a, b = (filled(t, 128 if blocks else 16, 128 if blocks else 32).to(torch.float8_e4m3fn).contiguous() for t in (a, b))
    if not blocks:
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.float32, use_fast_accum=not h["promote"])
    rows = [filled(t, 128 // r, 1) for t, r in ((sa, h["rows"][0]), (sb, h["rows"][1]))]
    (sa, ra), (sb, rb) = (scale_of(t, r, leaf, k) for t, r in zip(rows, h["rows"]))
    return lambda: F.scaled_mm(a, b.t(), sa, ra, sb, rb, output_dtype=torch.float32)


def kernels(run, known={}, key=None):
    """Names of the GPU's kernels that run calls."""
    if key not in known:
        run()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as p:
            run()
            torch.cuda.synchronize()
        known[key] = "+".join(sorted({e.key[:100] for e in p.key_averages() if re.search("gemm|nvjet|cutlass", e.key)}))
    return known[key]


def differing(x, y):
    return int((x.contiguous().view(torch.int32) != y.contiguous().view(torch.int32)).sum())


def main():
    torch.backends.cuda.preferred_blas_library("cublaslt")  # which alone can leave split-K out
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = (False, False)
    stream, total, wrong = sys.stdin.buffer, 0, 0
    table = collections.defaultdict(lambda: [0, set(), 0, 0, collections.Counter(), 0, set()])
    later = collections.Counter()
    while line := stream.readline():
        h = json.loads(line)
        m, n, k = h["m"], h["n"], h["k"]
        a, b = (numbers(stream, torch.bfloat16, r, k).cuda() for r in (m, n))
        sa, sb = (numbers(stream, torch.float32, -(-r // of), -(-k // 128)) if of else None for r, of in zip((m, n), h["rows"]))
        wants = numbers(stream, torch.float32, len(h["spans"]), m, n)
        mutants = {name: numbers(stream, torch.float32, h["corner"], h["corner"]).cuda() for name in h["mutants"]}
        more = numbers(stream, torch.float32, m, n).cuda() if h["more"] else None
        leaf, first = 0, None
        for span, want in zip(h["spans"], wants):
            run = product(h, a, b, sa, sb, leaf, span)
            got, want = run()[:m, :n], want.cuda()
            name = kernels(run, key=(h["element"], h["promote"], m, n, span, *h["rows"]))
            row = table[h["weight"], h["kind"], name]
            different = differing(got, want)
            row[0] += 1
            row[1].add((m, n, span))
            row[2] += m * n
            row[3] += different
            if different:
                row[6].add((m, n, span))
            total, wrong = total + m * n, wrong + different
            if leaf == 0:
                for mutant, corner in mutants.items():
                    row[4][mutant] += differing(got[: h["corner"], : h["corner"]], corner)
                row[5] += h["corner"] ** 2
                first = got
            elif more is not None and leaf == h["spans"][0]:
                x, y = (filled(t[:, leaf : leaf + span], 1, 16).contiguous() for t in (a, b))
                beta = torch.addmm(first.contiguous(), x, y.t(), out_dtype=torch.float32)
                later["elements"] += m * n
                later["unlike the chain that goes on from c"] += differing(beta, more)
                later["unlike the sum added to c in FP32"] += differing(beta, first + got)
                later["elements in which these two differ"] += differing(more, first + got)
            leaf += span
    print(f"{torch.__version__}, CUDA {torch.version.cuda}, {torch.cuda.get_device_name()}")
    for (weight, kind, name), (count, shapes, elements, different, mutated, of, differ) in sorted(table.items()):
        low, high = min(shapes), max(shapes)
        shape = "x".join(map(str, low)) + ("" if low == high else " to " + "x".join(map(str, high)))
        print(f"{weight:24} {kind:16} {count:5} products {shape:36} {elements:12} elements {different:9} differ; mutants {', '.join(str(v) for v in mutated.values())} of {of}; {name}"
              + "".join("\n    differs: " + "x".join(map(str, s)) for s in sorted(differ)))
    if later:
        print("a later pass, torch.addmm(c, ...):", ", ".join(f"{v} {name}" for name, v in later.items()))
    print(f"all: {total} elements, {wrong} differ")
    sys.exit(wrong > 0)


main()
