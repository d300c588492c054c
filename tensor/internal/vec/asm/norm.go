package main

// RMSNorm and the two passes of its gradient. The weights and their gradient are FP32 in both
// variants.

import "spmoe/tensor/asmgen"

// split replaces NaNs by the NaN with zeros after the quiet bit. Rounding then needs no check for
// NaNs.
func split(f *file) {
	k := f.newKernel("split", rows("dst", "w"))
	k.split()
	dst, w := k.weights("dst", bf16), k.row("w", fp32)
	// The default NaN if the operand is a quiet or signaling NaN, and the destination otherwise.
	const defaultNaN = 0x33
	fix := k.word(defaultNaN)
	k.each("w_len", lanes, 1, func(int) {
		v := k.load(w)
		for _, x := range v {
			if k.avx2 {
				k.whereNaN(x, k.copyOf(k.word(0xffc00000)), x)
			} else {
				k.I("VFIXUPIMMPS", asmgen.Imm(0), fix, x, x)
			}
		}
		k.store(v, dst)
	})
	k.Return()
}

func mulScaled(f *file) {
	for _, e := range variants {
		k := f.newKernel(kernelName("mulScaled", e), rows("dst"), float32s("a"), rows("x", "y"))
		k.splitIf(e)
		dst, x, y, a := k.row("dst", e), k.row("x", e), k.weights("y", e), k.float32("a")
		k.rounding(e)
		next := k.nextRow(x, "x_len")
		k.each("dst_len", lanes, 1, func(int) {
			k.prefetch(next)
			axy := k.load(x)
			k.scaled(a, axy)
			k.pairwise("VMULPS", k.load(y), axy, axy)
			k.store(axy, dst)
		})
		k.Return()
	}
}

func normWeightGrad(f *file) {
	for _, e := range variants {
		k := f.newKernel(kernelName("normWeightGrad", e), rows("dw"), float32s("a"), rows("dy", "x", "w"), result("float32"))
		dw, w, dy, x := k.row("dw", fp32), k.row("w", fp32), k.row("dy", e), k.row("x", e)
		a, sums := k.float32("a"), k.zeros(4)
		k.each("dw_len", lanes, 2, func(j int) {
			product, second := k.load(dy), k.load(x)
			k.pairwise("VMULPS", second, product, product)
			k.release(second[:]...)
			weighted, sum := k.load(w), pair(sums[2*j:])
			k.pairwise("VMULPS", product, weighted, weighted)
			k.pairwise("VADDPS", weighted, sum, sum)
			k.release(weighted[:]...)
			k.scaled(a, product)
			grad := k.load(dw)
			k.pairwise("VADDPS", product, grad, grad)
			k.store(grad, dw)
		})
		k.I("VMOVSS", k.fold("VADDPS", sums), k.Slot("ret"))
		k.Return()
	}
}

func normInputGrad(f *file) {
	for _, e := range variants {
		k := f.newKernel(kernelName("normInputGrad", e), rows("dx"), []asmgen.Param{asmgen.Arg("add", "bool")}, float32s("a"), rows("dy", "w"),
			float32s("b"), rows("x"))
		k.splitIf(e)
		dx, dy, x, w := k.row("dx", e), k.row("dy", e), k.row("x", e), k.weights("w", e)
		k.rounding(e)
		a, b := k.float32("a"), k.float32("b")
		adding := k.GP()
		k.I("MOVBQZX", k.Slot("add"), adding)
		k.each("dx_len", lanes, 1, func(int) {
			grad, bx := k.load(dy), k.load(x)
			k.scaled(a, grad)
			k.pairwise("VMULPS", k.load(w), grad, grad)
			k.scaled(b, bx)
			k.pairwise("VADDPS", bx, grad, grad)
			notAdding := k.Label("set")
			k.I("TESTQ", adding, adding)
			k.I("JEQ", notAdding)
			k.pairwise("VADDPS", k.load(dx), grad, grad)
			k.Place(notAdding)
			k.store(grad, dx)
		})
		k.Return()
	}
}
