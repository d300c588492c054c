package main

// RMSNorm and the two passes of its gradient. The weights and their gradient are FP32 in both
// variants.

import "spmoe/tensor/asmgen"

func mulScaled[V asmgen.Operand](t target[V]) {
	for _, e := range variants {
		k := t.newKernel(kernelName("mulScaled", e), vectors(e, "dst"), float32s("a"), vectors(e, "x"), vectors(fp32, "y"))
		splitIf(k, e)
		dst, x, y, a := k.row("dst", e), k.row("x", e), k.weights("y", e), k.float32("a")
		k.rounding(e)
		prefetch := k.prefetchNext(x, "x_len")
		k.each("dst_len", 32, func(int) {
			prefetch()
			axy := k.load(x)
			scaled(k, a, axy)
			pairwise(k, mul, k.load(y), axy, axy)
			k.store(axy, dst)
		})
		k.Return()
	}
}

func normWeightGrad[V asmgen.Operand](t target[V]) {
	for _, e := range variants {
		k := t.newKernel(kernelName("normWeightGrad", e), vectors(fp32, "dw"), float32s("a"), vectors(e, "dy", "x"), vectors(fp32, "w"),
			result("float32"))
		dw, w, dy, x := k.row("dw", fp32), k.row("w", fp32), k.row("dy", e), k.row("x", e)
		a, sums := k.float32("a"), k.zeros(64)
		k.each("dw_len", 64, func(j int) {
			product, second := k.load(dy), k.load(x)
			pairwise(k, mul, second, product, product)
			k.release(second[:]...)
			weighted, sum := k.load(w), [2]V(sums[2*j:])
			pairwise(k, mul, product, weighted, weighted)
			pairwise(k, add, weighted, sum, sum)
			k.release(weighted[:]...)
			scaled(k, a, product)
			grad := k.load(dw)
			pairwise(k, add, product, grad, grad)
			k.store(grad, dw)
		})
		k.returnSum(sums)
	}
}

func normInputGrad[V asmgen.Operand](t target[V]) {
	for _, e := range variants {
		k := t.newKernel(kernelName("normInputGrad", e), vectors(e, "dx"), args("bool", []string{"add"}), float32s("a"), vectors(e, "dy"),
			vectors(fp32, "w"), float32s("b"), vectors(e, "x"))
		splitIf(k, e)
		dx, dy, x, w := k.row("dx", e), k.row("dy", e), k.row("x", e), k.weights("w", e)
		k.rounding(e)
		a, b := k.float32("a"), k.float32("b")
		ifAdding := k.ifSet("add")
		k.each("dx_len", 32, func(int) {
			grad, bx := k.load(dy), k.load(x)
			scaled(k, a, grad)
			pairwise(k, mul, k.load(w), grad, grad)
			scaled(k, b, bx)
			pairwise(k, add, bx, grad, grad)
			ifAdding(func() { pairwise(k, add, k.load(dx), grad, grad) })
			k.store(grad, dx)
		})
		k.Return()
	}
}
