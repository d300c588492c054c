"""Shapes, strides, types and errors, PyTorch tensors by duck typing, and a fuzz loop."""

import copy
import ctypes
import mmap
import os
import pickle
import random
import unittest

import numpy as np

import spmoe

RNG = np.random.default_rng(1)


def bf16(*shape):
    return spmoe.bfloat16(RNG.standard_normal(shape))


class Tensor:
    """What spmoe.py asks of a torch tensor. torch is not needed for these tests."""

    def __init__(self, x, dtype):
        self.x, self.dtype, self.shape, self.device, self.layout = x, "torch." + dtype, x.shape, "cpu", "torch.strided"

    def data_ptr(self):
        return self.x.ctypes.data

    def stride(self):
        return tuple(s // self.x.itemsize for s in self.x.strides)

    def element_size(self):
        return self.x.itemsize

    def is_neg(self):
        return False


class Products(unittest.TestCase):
    def test_against_numpy(self):
        """Every way to lay out operands gives the product, in every sum."""
        a, w = bf16(37, 64), bf16(29, 64)
        want = spmoe.float32(a).astype(np.float64) @ spmoe.float32(w).T
        wide = np.empty((37, 100), np.uint16)
        wide[:, 30:94] = a
        odd = np.empty(2 * w.size + 1, np.uint8)[1:].view(np.uint16).reshape(w.shape)
        odd[:] = w
        for sum in spmoe.info()["sums"]:
            first = spmoe.matmul(a, w.T, sum=sum)
            np.testing.assert_allclose(first, want, rtol=0, atol=1e-3)
            for left in (wide[:, 30:94], np.asfortranarray(a)):
                for right in (odd.T, np.ascontiguousarray(w.T)):
                    np.testing.assert_allclose(spmoe.matmul(left, right, sum=sum), want, rtol=0, atol=1e-3)
            for threads in (1, 2, 3):
                np.testing.assert_array_equal(spmoe.matmul(a, w.T, sum=sum, threads=threads), first)
        np.testing.assert_allclose(spmoe.matmul(spmoe.float32(a), spmoe.float32(w).T), want, rtol=0, atol=1e-3)
        half = spmoe.float32(a).astype(np.float16), spmoe.float32(w).astype(np.float16)
        want = half[0].astype(np.float64) @ half[1].T.astype(np.float64)
        np.testing.assert_allclose(spmoe.matmul(half[0], half[1].T, sum="h100"), want, rtol=0, atol=1e-3)

    def test_quantized(self):
        """Products of codes are those of the decoded matrices, in all three directions."""
        x, w, dy = bf16(64, 128), bf16(256, 128), bf16(64, 256)
        for fmt in ("mxfp8", "mxfp4", "nvfp4", "fp8-1x128", "mxint8", "fp8-tensor"):
            tile = {"nvfp4": "nvfp4-16x16", "fp8-1x128": "fp8-128x128"}.get(fmt, fmt)
            (qx, xt), (qdy, dyt) = ([spmoe.quantize(v, fmt, dim) for dim in (-1, -2)] for v in (x, dy))
            for a, b in ((qx, spmoe.quantize(w, tile).T), (qdy, spmoe.quantize(w, tile, -2)), (dyt.T, xt)):
                want = spmoe.dequantize(a).astype(np.float64) @ spmoe.dequantize(b)
                for sum in ("fp32", "exact"):
                    np.testing.assert_allclose(spmoe.matmul(a, b, sum=sum), want, rtol=0, atol=1e-4 * np.abs(want).max(), err_msg=fmt)

    def test_groups(self):
        """Groups are the products of their parts, with and without scales, and one may be empty."""
        offs = np.array([32, 32, 96], np.int32)
        x, w, dy = bf16(96, 64), bf16(3, 48, 64), bf16(96, 48)
        for sum in ("fp32", "exact", "h100", "b200"):
            y, dx = spmoe.grouped_mm(x, w.swapaxes(1, 2), offs, sum=sum), spmoe.grouped_mm(dy, w, offs, sum=sum)
            dw = spmoe.grouped_mm(dy.T, x, offs, sum=sum)
            self.assertTrue((dw[1] == 0).all())
            for g, lo, hi in ((0, 0, 32), (2, 32, 96)):
                for got, want in ((y[lo:hi], spmoe.matmul(x[lo:hi], w[g].T, sum=sum)), (dx[lo:hi], spmoe.matmul(dy[lo:hi], w[g], sum=sum)),
                                  (dw[g], spmoe.matmul(dy[lo:hi].T, x[lo:hi], sum=sum))):
                    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 if sum == "fp32" else 0)
        codes, fp8 = spmoe.quantize(x, "float8_e4m3fn"), spmoe.quantize(w, "float8_e5m2")
        got = spmoe.grouped_mm(codes, fp8.mT, offs, sum="h100")
        last = spmoe.matmul(spmoe.fp8(codes.codes[32:]), spmoe.fp8(fp8.codes[2], fp8.format).T, sum="h100")
        np.testing.assert_array_equal(got[32:], last)
        q = [spmoe.quantize(v, "mxfp8", dim, offs=offs if v.ndim == 2 else None)
             for v, dim in ((x, -1), (w, -1), (w, -2), (dy, -1), (dy, -2), (x, -2))]
        y, dx, dw = spmoe.linear(x, w, dy, "mxfp8", offs=offs)
        np.testing.assert_array_equal(spmoe.grouped_mm(q[0], q[1].mT, offs, out_dtype="bfloat16"), y)
        np.testing.assert_array_equal(spmoe.grouped_mm(q[3], q[2], offs, out_dtype="bfloat16"), dx)
        np.testing.assert_array_equal(spmoe.grouped_mm(q[4].T, q[5], offs), dw)

    def test_linear(self):
        """Every recipe, against products of FP64, with the same bits for any number of threads."""
        x, w, dy = bf16(128, 256), bf16(128, 256), bf16(128, 128)
        wide = [spmoe.float32(v).astype(np.float64) for v in (x, w, dy)]
        exact = [wide[0] @ wide[1].T, wide[2] @ wide[1], wide[2].T @ wide[0]]
        for recipe, casts in spmoe.info()["recipes"].items():
            if recipe == "fp32":
                continue
            results = spmoe.linear(x, w, dy, recipe, seed=3, threads=1)
            for got, want in zip(results, exact):
                got = spmoe.float32(got) if got.dtype == np.uint16 else got
                bits4 = "fp4" in recipe
                self.assertLess(np.linalg.norm(got - want), (0.3 if bits4 else 0.08) * np.linalg.norm(want), recipe)
            for got, want in zip(spmoe.linear(x, w, dy, recipe, seed=3, threads=2), results):
                np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(spmoe.linear(x, w, recipe=recipe), results[0])
            for got, want in zip(spmoe.linear_backward(x, w, dy, recipe, seed=3), results[1:]):
                np.testing.assert_array_equal(got, want)
            for name in casts:
                self.assertIsInstance(spmoe.quantize(x, f"{recipe}.{name}"), spmoe.Quantized)
        self.assertFalse(np.array_equal(spmoe.linear(x, w, dy, "nvfp4", seed=4)[1], spmoe.linear(x, w, dy, "nvfp4", seed=3)[1]))
        np.testing.assert_array_equal(spmoe.linear(x, w, sum="h100"), spmoe.matmul(x, w.T, sum="h100", out_dtype="bfloat16"))

    def test_torch(self):
        """Tensors are read and written where they are."""
        x, w = bf16(8, 64), bf16(16, 64)
        y = np.zeros((8, 16), np.float32)
        out = Tensor(y, "float32")
        self.assertIs(spmoe.matmul(Tensor(x, "bfloat16"), Tensor(w.T, "bfloat16"), sum="b200", out=out), out)
        np.testing.assert_array_equal(y, spmoe.matmul(x, w.T, sum="b200"))
        codes = spmoe.quantize(x, "float8_e4m3fn").codes
        want = spmoe.matmul(spmoe.fp8(codes), spmoe.fp8(codes).T, sum="h100")
        np.testing.assert_array_equal(spmoe.matmul(Tensor(codes, "float8_e4m3fn"), spmoe.fp8(codes).T, sum="h100"), want)
        gpu = Tensor(x, "bfloat16")
        gpu.device = "cuda:0"
        with self.assertRaisesRegex(TypeError, "cuda:0: give a dense tensor on the CPU"):
            spmoe.matmul(gpu, w.T)

    def test_out(self):
        """quantize fills the arrays of an earlier result."""
        x, y = bf16(32, 64), bf16(32, 64)
        q = spmoe.quantize(x, "nvfp4")
        want, codes = spmoe.quantize(y, "nvfp4"), q.codes
        self.assertIs(spmoe.quantize(y, "nvfp4", out=q), q)
        self.assertIs(q.codes, codes)
        for got, part in zip((*q, q.amax), (*want, want.amax)):
            np.testing.assert_array_equal(got, part)
        with self.assertRaisesRegex(ValueError, "give a Quantized of e4m3"):
            spmoe.quantize(y, "mxfp8", out=q)

    def test_unchangeable(self):
        """What was checked when a Quantized was made holds when it is used, and copies are whole."""
        offs = np.array([32, 64], np.int32)
        for q in (spmoe.quantize(bf16(64, 64), "mxfp8", offs=offs), spmoe.quantize(bf16(64, 64), "nvfp4").T,
                  spmoe.Quantized("mxfp8", np.zeros((64, 64), np.uint8), np.zeros((64, 2), np.uint8), offs=offs),
                  spmoe.quantize(bf16(2, 32, 64), "mxfp8"), spmoe.quantize(bf16(64, 64), "float8_e4m3fn")):
            want = spmoe.dequantize(q)
            for name, value in (("codes", np.zeros((1, 1), np.uint8)), ("scales", None), ("amax", None), ("dim", -2), ("format", "nvfp4"),
                                ("offs", [-5, 64]), ("transposed", True), ("_memory", (1 << 20, 64)), ("more", 1)):
                with self.assertRaisesRegex(AttributeError, name):
                    setattr(q, name, value)
                with self.assertRaisesRegex(AttributeError, name):
                    delattr(q, name)
            if q.offs is not None:
                with self.assertRaises(ValueError):
                    q.offs[0] = 2**31 - 1
                with self.assertRaises(ValueError):
                    q.offs.setflags(write=True)
            offs[0] = 2**31 - 1  # of the caller
            np.testing.assert_array_equal(spmoe.dequantize(q), want)
            offs[0] = 32
            for other in (copy.copy(q), copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
                self.assertEqual(repr(other), repr(q))
                np.testing.assert_array_equal(spmoe.dequantize(other), want)
        for fmt in ("mxfp8", "float8_e4m3fn"):
            for change in (lambda codes: codes.resize((1, 1), refcheck=False), lambda codes: setattr(codes, "shape", (1, 4096))):
                codes = np.zeros((64, 64), np.uint8)
                q = spmoe.Quantized(fmt, codes, None if fmt == "float8_e4m3fn" else np.zeros((64, 2), np.uint8))
                change(codes)
                for use in (spmoe.dequantize, lambda q: spmoe.matmul(q, q.T)):
                    with self.assertRaisesRegex(ValueError, "codes of a Quantized has another memory or shape"):
                        use(q)

    def test_schedule(self):
        lists = spmoe.schedule("1F1B", 2, 3)
        self.assertEqual(len(lists), 2)
        self.assertEqual([a for a in lists[1] if a], ["1F0", "1B0", "1F1", "1B1", "1F2", "1B2", "1REDUCE_GRAD"])
        with self.assertRaisesRegex(ValueError, "unknown schedule"):
            spmoe.schedule("2F1B", 2, 3)


class Errors(unittest.TestCase):
    def test_messages(self):
        x, w = bf16(8, 64), bf16(16, 64)
        q = spmoe.quantize(x, "mxfp8")
        overlapping = np.broadcast_to(np.zeros(16, np.float32), (8, 16))
        long = [np.broadcast_to(v[0], (1 << 36, 64)) for v in (x, w)]
        for error, message, call in (
            (TypeError, "x is a list: give a NumPy array", lambda: spmoe.quantize([1.0])),
            (TypeError, "type float64", lambda: spmoe.quantize(np.ones((4, 4)))),
            (TypeError, "type >f4", lambda: spmoe.quantize(np.ones((4, 4), ">f4"))),
            (TypeError, "type uint8", lambda: spmoe.matmul(q.codes, w.T)),
            (TypeError, "one operand has scales", lambda: spmoe.matmul(q, w.T)),
            (TypeError, "MaskedArray", lambda: spmoe.quantize(np.ma.masked_array(np.ones((4, 4), np.float32)))),
            (ValueError, "2 dimensions", lambda: spmoe.quantize(np.ones(4, np.float32))),
            (ValueError, "it is empty", lambda: spmoe.quantize(np.ones((0, 32), np.float32))),
            (ValueError, "negative", lambda: spmoe.matmul(x[::-1], w.T)),
            (ValueError, "must be contiguous", lambda: spmoe.matmul(x[:, ::2], w[:, ::2].T)),
            (ValueError, "must be contiguous", lambda: spmoe.quantize(x.T)),
            (ValueError, r"\[M, K\] and \[K, N\]", lambda: spmoe.matmul(x, w)),
            (ValueError, "not a way to add", lambda: spmoe.matmul(x, w.T, sum="fp64")),
            (ValueError, "BF16 by BF16", lambda: spmoe.matmul(spmoe.float32(x), spmoe.float32(w).T, sum="h100")),
            (ValueError, "an H100 has no block scales", lambda: spmoe.matmul(q, q.T, sum="h100")),
            (ValueError, "parts of K with sum fp32", lambda: spmoe.matmul(x, w.T, parts=2)),
            (ValueError, "parts is 0", lambda: spmoe.matmul(x, w.T, sum="h100", parts=0)),
            (TypeError, "have no parts", lambda: spmoe.matmul(q, q.T, parts=2)),
            (ValueError, "not a number format", lambda: spmoe.quantize(x, "fp7")),
            (ValueError, "wgrad.x", lambda: spmoe.quantize(x, "nvfp4.wgrad.z")),
            (ValueError, "must run", lambda: spmoe.matmul(q, spmoe.quantize(bf16(64, 16)))),
            (ValueError, "must fill whole bytes", lambda: spmoe.quantize(bf16(4, 33), "mxfp4")),
            (ValueError, "threads is 0", lambda: spmoe.matmul(x, w.T, threads=0)),
            (TypeError, "threads is nan", lambda: spmoe.matmul(x, w.T, threads=float("nan"))),
            (ValueError, "seed is -1", lambda: spmoe.quantize(x, seed=-1)),
            (ValueError, "out overlaps", lambda: spmoe.matmul(x, w.T, out=x.view(np.float32).ravel()[:128].reshape(8, 16))),
            (ValueError, "out has the shape", lambda: spmoe.matmul(x, w.T, out=np.empty((8, 8), np.float32))),
            (ValueError, "read-only or its rows overlap", lambda: spmoe.matmul(x, w.T, out=overlapping)),
            (ValueError, "ascending, the last one 8", lambda: spmoe.grouped_mm(x, bf16(2, 64, 4), [8, 4])),
            (ValueError, "precision is", lambda: spmoe.linear(x, w, recipe="bf8")),
            (ValueError, "b200 cannot multiply fp8-1x128", lambda: spmoe.linear(x, w, recipe="fp8-block", sum="b200")),
            (ValueError, "scales has the shape", lambda: spmoe.Quantized("mxfp8", q.codes, q.scales[:4])),
            (ValueError, "config.json", lambda: spmoe.check(os.path.dirname(__file__))),
            (MemoryError, "a result of the shape", lambda: spmoe.quantize(np.broadcast_to(np.ones(32, np.float32), (1 << 40, 32)))),
            (MemoryError, "of scratch memory", lambda: spmoe.matmul(long[0].T, long[1], sum="exact")),
        ):
            with self.subTest(message), self.assertRaisesRegex(error, message):
                call()

    def test_nan(self):
        """A NaN is data: its block becomes NaN, and no other."""
        x = np.ones((4, 64), np.float32)
        x[1, 3] = np.nan
        for fmt in ("mxfp8", "mxfp4", "nvfp4", "fp8-1x128", "float8_e4m3fn"):
            values = spmoe.dequantize(spmoe.quantize(x, fmt))
            self.assertTrue(np.isnan(values[1, 3]), fmt)
            self.assertFalse(np.isnan(values[[0, 2, 3]]).any(), fmt)

    def test_check(self):
        report = spmoe.check(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../launcher/golden/testdata/qwen3_moe_tiny"))
        self.assertEqual(report["verdict"], "right", report)
        self.assertGreater(report["compared"], 50)


class Guarded:
    """Arrays that end where unmapped memory begins, so that a read or write past their end is a fault."""

    def __init__(self, size=1 << 20):
        self.map = mmap.mmap(-1, size + mmap.PAGESIZE)
        self.memory, self.size = np.frombuffer(self.map, np.uint8, size), size
        libc = ctypes.CDLL(None, use_errno=True)
        end = ctypes.c_void_p(self.memory.ctypes.data + size)
        if libc.mprotect(end, ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")

    def like(self, x):
        at = self.memory[self.size - x.nbytes:].view(x.dtype).reshape(x.shape)
        at[...] = x
        return at


class Fuzz(unittest.TestCase):
    CALLS = 10_000

    def test_calls(self):
        """Random calls return or raise what the documentation says, and touch only their arrays."""
        rng, guards, kinds = random.Random(7), [Guarded() for _ in range(4)], {}
        info = spmoe.info()
        formats = info["formats"] * 3 + ["mxfp8", "nvfp4"] * 4 + [
            "nvfp4.wgrad.dy", "mxfp4.dgrad.w", "nvfp4+rht16", "nvfp4+h16", "float8_e5m2", "e4m3+rht3", "bf16", ""]

        def array(guard):
            shape = [rng.choice((1, 2, 3, 8, 16, 31, 32, 33, 64, 128, 130)) for _ in range(rng.choice([2] * 18 + [1, 3]))]
            if rng.random() < 0.02:
                shape[rng.randrange(len(shape))] = 0
            dtype = rng.choice([np.uint16] * 24 + [np.float32] * 4 + [np.float16, np.uint8, np.float64, np.int32])
            x = RNG.integers(0, 256, int(np.prod(shape)) * np.dtype(dtype).itemsize, np.uint8).view(dtype).reshape(shape)
            if rng.random() < 0.5 and x.nbytes <= guard.size:
                x = guard.like(x)
            kind = rng.random()
            if kind < 0.08:
                x = x.swapaxes(-1, -2) if x.ndim > 1 else x
            elif kind < 0.11:
                x = x[..., ::rng.choice((-1, 2))]
            elif kind < 0.15:
                x = x[::rng.choice((-1, 2, 3))]
            elif kind < 0.17:
                x = np.broadcast_to(x, (rng.choice((2, 1 << 8, 1 << 40)), *x.shape))
            return x

        def operand(guard):
            x = array(guard)
            if rng.random() < 0.5:
                dim, offs = rng.choice([-1] * 7 + [-2] * 2 + [0]), rng.choice((None, None, None, [x.shape[0]]))
                x = spmoe.quantize(x, rng.choice(formats), dim, offs=offs)
                x = x.mT if rng.random() < 0.4 else x
            return x

        def partner(a, guard):
            """Returns a second operand that often fits the first."""
            if rng.random() < 0.2 or len(a.shape) != 2 or max(a.shape) > 1 << 10:
                return operand(guard)
            w = guard.like(bf16(rng.choice((1, 7, 16, 33, 128)), a.shape[1]))
            if isinstance(a, np.ndarray):
                return w.T if rng.random() < 0.7 else np.ascontiguousarray(w.T)
            return spmoe.quantize(w.T.copy(), a.format, -2) if rng.random() < 0.3 else spmoe.quantize(w, a.format).T

        def call():
            sum, threads = rng.choice(info["sums"] * 4 + ["fp8"]), rng.choice([None, 1, 2, 3] * 8 + [-1, 1.5])
            choice = rng.randrange(5)
            if choice == 0:
                a = operand(guards[0])
                dtype = rng.choice(["float32", "bfloat16"] * 4 + ["int8"])
                spmoe.matmul(a, partner(a, guards[1]), sum=sum, threads=threads, out_dtype=dtype)
            elif choice == 1:
                q = spmoe.quantize(array(guards[0]), rng.choice(formats), rng.choice((-1, -2)), threads=threads)
                spmoe.dequantize(q, threads=threads)
            elif choice == 2:
                x = array(guards[0])
                w = guards[1].like(bf16(rng.choice((1, 16, 64, 130)), x.shape[-1])) if x.shape[-1] < 1 << 10 else array(guards[1])
                dy = guards[2].like(bf16(x.shape[0], w.shape[0])) if x.shape[0] < 1 << 10 and rng.random() < 0.7 else None
                spmoe.linear(x, w, dy, rng.choice(list(info["recipes"])), sum=sum, threads=threads)
            elif choice == 3:
                a = operand(guards[0])
                rows = a.shape[0]
                offs = rng.choice(([rows], [rows // 2, rows], [0, rows, rows], [rows, 1], [], None))
                spmoe.grouped_mm(a, partner(a, guards[1]), offs, sum=sum, threads=threads)
            else:
                a = operand(guards[0])
                out = array(guards[2])
                spmoe.matmul(a, partner(a, guards[1]), sum=sum, threads=threads, out=out)

        for _ in range(self.CALLS):
            try:
                call()
                kind = "returned"
            except (TypeError, ValueError, MemoryError) as e:
                kind = type(e).__name__
                self.assertNotIn("a defect of spmoe", str(e))
            kinds[kind] = kinds.get(kind, 0) + 1
        self.assertGreater(kinds.get("returned", 0), self.CALLS // 5, kinds)
        self.assertGreater(kinds.get("ValueError", 0), self.CALLS // 10, kinds)


if __name__ == "__main__":
    unittest.main()
