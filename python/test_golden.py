"""Reference files, bit for bit: torchao, Transformer Engine, TileKernels, and products of real GPUs.

SPMOE_GOLDEN names a folder of more references than the repository has.
"""

import unittest

import numpy as np

import golden
import spmoe

FILES = [(path, golden.File(path)) for path in golden.paths()]


def bits(x):
    return x.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[x.itemsize])


def unpacked(codes):
    """Returns one code per byte."""
    return np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1)


class Golden(unittest.TestCase):
    def files(self, *names):
        found = [(path, f) for path, f in FILES if all(n in f for n in names)]
        self.assertTrue(found, f"no reference has {names}")
        return found

    def same(self, got, want, what):
        self.assertEqual(got.shape, want.shape, what)
        self.assertEqual(np.count_nonzero(bits(np.ascontiguousarray(got)) != bits(np.ascontiguousarray(want))), 0, what)

    def test_casts(self):
        """Every BF16 number as FP8, and every FP8 number. NaNs have several codes."""
        every = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
        nan = np.isnan(spmoe.float32(every)).ravel()
        for _, f in self.files("bf16_to_e4m3_saturating"):
            for short, name in (("e4m3", "float8_e4m3fn"), ("e5m2", "float8_e5m2")):
                got, want = spmoe.quantize(every, name).codes.ravel(), f[f"bf16_to_{short}_saturating"]
                self.same(got[~nan], want[~nan], name)
                values = spmoe.dequantize(spmoe.fp8(np.arange(256, dtype=np.uint8).reshape(16, 16), name)).ravel()
                np.testing.assert_array_equal(values, f[short + "_decoded"])
                self.assertTrue(np.isnan(f[short + "_decoded"][got[nan]]).all())

    def test_mx(self):
        count = 0
        for path, f in FILES:
            for x, prefix in (("x", ""), ("xb", "bf16_")):
                for element in ("e4m3", "e5m2"):
                    for mode in ("rceil", "floor", "ceil", "even"):
                        name = f"{prefix}{element}_{mode}"
                        if name + "_data" in f:
                            codes, scales = spmoe.quantize(f[x], element, scaling_mode=mode)
                            self.same(codes, f[name + "_data"], name)
                            self.same(scales, f[name + "_scale"], name)
                            count += 1
        self.assertGreaterEqual(count, 9)

    def test_small_formats(self):
        for _, f in self.files("e2m1_rceil_codes"):
            for mode in ("rceil", "floor", "ceil", "even"):
                codes, scales = spmoe.quantize(f["x"], "mxfp4", scaling_mode=mode)
                self.same(scales, f[f"e2m1_{mode}_scales"], mode)
                self.same(codes, f[f"e2m1_{mode}_codes"], mode)
            theirs = {"mxfp4": "fp4_e2m1", "mxfp6-e2m3": "fp6_e2m3", "mxfp6-e3m2": "fp6_e3m2", "mxfp8": "fp8_e4m3", "mxint8": "int8"}
            for ours, theirs in theirs.items():
                if "microxcaling_" + theirs in f:
                    got = spmoe.dequantize(spmoe.quantize(f["x"], ours, scaling_mode="floor"))
                    np.testing.assert_array_equal(got, f["microxcaling_" + theirs], ours)

    def test_nvfp4(self):
        for _, f in self.files("rows_codes", "weight_codes", "rht_codes"):
            rows, weight = spmoe.quantize(f["x"], "nvfp4"), spmoe.quantize(f["x"], "nvfp4-16x16")
            rht = spmoe.quantize(f["x"], "nvfp4+rht16", dim=-2)
            self.same(rows.amax, f["amax"].reshape(1), "amax")
            self.same(rows.codes, f["rows_codes"], "rows")
            self.same(rows.scales, f["rows_scales"], "rows")
            self.same(weight.codes, f["weight_codes"], "weight")
            want = f["weight_scales"]
            self.same(np.repeat(weight.scales, 16, 0) if len(want) > len(weight.scales) else weight.scales, want, "weight")
            self.same(unpacked(rht.codes).T, unpacked(f["rht_codes"]), "rht")
            self.same(rht.scales.T, f["rht_scales"], "rht")
            self.same(rht.amax, f["rht_amax"].reshape(1), "rht")

    def test_fp8_blocks(self):
        for _, f in self.files("x_free_codes"):
            for kind, suffix in (("free", ""), ("pow2", "-pow2")):
                for x in [name for name in ("x", "dy") if name in f]:
                    q, t = spmoe.quantize(f[x], "fp8-1x128" + suffix), spmoe.quantize(f[x], "fp8-1x128" + suffix, dim=-2)
                    self.same(q.codes, f[f"{x}_{kind}_codes"], x)
                    self.same(q.scales, f[f"{x}_{kind}_scales"], x)
                    self.same(t.codes.T, f[f"{x}T_{kind}_codes"], x)
                    self.same(t.scales.T, f[f"{x}T_{kind}_scales"], x)
                w = spmoe.quantize(f["w"], "fp8-128x128" + suffix)
                self.same(w.codes, f[f"w_{kind}_codes"], "w")
                self.same(w.scales, f[f"w_{kind}_scales"], "w")
                if f"y_{kind}_f64" in f:
                    self.products(f, f"_{kind}_f64", "fp8-1x128" + suffix, "fp8-128x128" + suffix, "fp8-1x128" + suffix, None)

    def operand(self, f, name):
        """Returns an operand of a product on tensor cores."""
        x, dtype = f[name], f.types[name]
        return spmoe.fp8(x, {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}[dtype]) if dtype.startswith("F8") else x

    def test_tensor_cores(self):
        """Whole products of cuBLAS."""
        count = 0
        for path, f in FILES:
            if "splitk" in path:
                count += self.split_products(f)
                continue
            gpu = "b200" if "B200" in f.metadata.get("device", "") else "h100"
            for prefix in [n[:-2] for n in f if n.endswith(".a") and n[:-2] + ".d" not in f]:
                a, b = self.operand(f, prefix + ".a"), self.operand(f, prefix + ".b")
                scale_b = f.get(prefix + ".scale_b")
                if scale_b is not None and a.codes.shape[1] == scale_b.shape[1] * 128 == 128 and len(scale_b) == len(b.codes):
                    continue  # scales of rows: see docs/gpu-sums.md
                if scale_b is not None:
                    square = len(scale_b) < len(f[prefix + ".b"])
                    a = spmoe.Quantized("fp8-1x128", a.codes, f[prefix + ".scale_a"])
                    b = spmoe.Quantized("fp8-128x128" if square else "fp8-1x128", b.codes, scale_b)
                for out, sum in (("out", gpu), ("out_chained", gpu + "-nopromotion"), ("out_promoted", gpu)):
                    if f"{prefix}.{out}" in f:
                        self.same(spmoe.matmul(a, b.T, sum=sum), f[f"{prefix}.{out}"], f"{path}: {prefix}.{out}")
                        count += 1
        self.assertGreaterEqual(count, 70)

    def split_products(self, f):
        """Products in parts of K, and of rows of an odd number of elements: one number of parts gives each."""
        names = [n[:-2] for n in f if n.endswith(".a") and not n.startswith(("tf32", "rows"))]
        for prefix in names:
            a, b, want = self.operand(f, prefix + ".a"), self.operand(f, prefix + ".b"), f[prefix + ".out"]
            dtype = "bfloat16" if want.dtype == np.uint16 else "float32"
            products = (spmoe.matmul(a, b.T, sum="h100-nopromotion", parts=n, out_dtype=dtype) for n in range(1, 33))
            self.assertTrue(any((bits(y) == bits(want)).all() for y in products), prefix)
        return len(names)

    def test_blocks_of_tensor_cores(self):
        """Single blocks: d = a·b + c."""
        for path, f in FILES:
            gpu = "b200" if "B200" in f.metadata.get("device", "") else "h100-nopromotion"
            for prefix in [n[:-2] for n in f if n.endswith(".d")]:
                a, b, c = self.operand(f, prefix + ".a"), self.operand(f, prefix + ".b"), f[prefix + ".c"]
                got = np.empty_like(c)
                for i in range(len(c)):
                    row = [spmoe.fp8(x.codes[i:i + 1], x.format) if isinstance(x, spmoe.Quantized) else x[i:i + 1] for x in (a, b)]
                    spmoe.addmm(c[i].reshape(1, 1), row[0], row[1].T, sum=gpu, out=got[i:i + 1].reshape(1, 1), threads=1)
                self.same(got, f[prefix + ".d"], f"{path}: {prefix}")

    def test_linear(self):
        """Products of a layer, BF16 outputs: another order of FP32 sums may, rarely, change the last bit."""
        for path, f in self.files("dw_wgrad_hp") + self.files("group_end"):
            grouped = "group_end" in f
            x, w, dy, names = (f["a"], f["w"], f["do"], ("o", "da", "dw")) if grouped else (f["x"], f["w"], f["dy"], ("y", "dx", "dw"))
            results = spmoe.linear(x, w, dy, "mxfp8", offs=f.get("group_end"))
            for name, got in zip(names, results):
                got = got if got.dtype == np.uint16 else spmoe.bfloat16(got)
                got, want = (spmoe.float32(v).astype(np.float64) for v in (got, f[name]))
                error = np.sqrt(((got - want) ** 2).sum() / (want ** 2).sum())
                self.assertLess(error, 1 / 128, f"{path}: {name}")

    def test_exact_products(self):
        """NVFP4 against exact products of the decoded operands, rounded to nearest as in the reference."""
        for _, f in self.files("y_f64"):
            offs = np.cumsum(f["sizes"]).astype(np.int32) if "sizes" in f else None
            self.products(f, "_f64", "nvfp4", "nvfp4-16x16", "nvfp4+rht16", offs)

    def products(self, f, suffix, row, tile, column, offs):
        x, w, dy = f["x"], f["w"], f["dy"]
        weight = spmoe.quantize(w, tile)
        for sum in ("fp32", "exact"):
            if offs is None:
                y = spmoe.matmul(spmoe.quantize(x, row), weight.T, sum=sum)
                dx = spmoe.matmul(spmoe.quantize(dy, row), weight, sum=sum)
                dw = spmoe.matmul(spmoe.quantize(dy, column, -2).T, spmoe.quantize(x, column, -2), sum=sum)
            else:
                y = spmoe.grouped_mm(spmoe.quantize(x, row, offs=offs), weight.mT, offs, sum=sum)
                dx = spmoe.grouped_mm(spmoe.quantize(dy, row, offs=offs), weight, offs, sum=sum)
                dw = None  # the reference pads groups to runs of the transform
            for got, name in ((y, "y"), (dx, "dx"), (dw, "dw")):
                if got is not None and name + suffix in f:
                    want = f[name + suffix]
                    self.assertLess(np.linalg.norm(got - want), 1e-6 * np.linalg.norm(want), name + suffix)


if __name__ == "__main__":
    unittest.main()
