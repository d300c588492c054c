package main

// Conversions, sums and products of rows.

import "spmoe/tensor/asmgen"

func widen[V asmgen.Operand](t target[V]) {
	k := t.newKernel("widen", vectors(fp32, "dst"), vectors(bf16, "src"))
	dst, src := k.row("dst", fp32), k.row("src", bf16)
	k.each("dst_len", noPeriod, func(int) { k.store(k.load(src), dst) })
	k.Return()
}

func round[V asmgen.Operand](t target[V]) {
	k := t.newKernel("round", vectors(bf16, "dst"), vectors(fp32, "src"))
	dst, src := k.row("dst", bf16), k.row("src", fp32)
	k.rounding(bf16)
	k.each("dst_len", noPeriod, func(int) { k.store(k.load(src), dst) })
	k.Return()
}

func addRows[V asmgen.Operand](t target[V]) {
	for _, e := range variants {
		k := t.newKernel(kernelName("add", e), vectors(e, "dst", "x", "y"))
		splitIf(k, e)
		r := rows(k, e, "dst", "x", "y")
		k.rounding(e)
		k.each("dst_len", noPeriod, func(int) {
			x, y := k.load(r[1]), k.load(r[2])
			pairwise(k, add, y, x, x)
			k.store(x, r[0])
		})
		k.Return()
	}
}

func divideRows[V asmgen.Operand](t target[V]) {
	k := t.newKernel("divide", vectors(fp32, "dst", "x", "y"))
	r := rows(k, fp32, "dst", "x", "y")
	k.each("dst_len", noPeriod, func(int) {
		x, y := k.load(r[1]), k.load(r[2])
		pairwise(k, divide, y, x, x)
		k.store(x, r[0])
	})
	k.Return()
}

// addScaled has FP32 sums in both variants.
func addScaled[V asmgen.Operand](t target[V]) {
	for _, e := range variants {
		k := t.newKernel(kernelName("addScaled", e), vectors(fp32, "dst"), float32s("a"), vectors(e, "x"))
		dst, x, a := k.row("dst", fp32), k.row("x", e), k.float32("a")
		k.each("dst_len", noPeriod, func(int) {
			ax, sum := k.load(x), k.load(dst)
			scaled(k, a, ax)
			pairwise(k, add, ax, sum, sum)
			k.store(sum, dst)
		})
		k.Return()
	}
}

// scale reads FP32 in both variants.
func scale[V asmgen.Operand](t target[V]) {
	for _, e := range variants {
		k := t.newKernel(kernelName("scale", e), vectors(e, "dst"), float32s("a"), vectors(fp32, "x"))
		dst, x, a := k.row("dst", e), k.row("x", fp32), k.float32("a")
		k.rounding(e)
		k.each("dst_len", noPeriod, func(int) {
			ax := k.load(x)
			scaled(k, a, ax)
			k.store(ax, dst)
		})
		k.Return()
	}
}

func sumBlocks[V asmgen.Operand](t target[V]) {
	for _, e := range variants {
		k := t.newKernel(kernelName("sumBlocks", e), vectors(e, "dst", "x"), ints("blocks", "stride"))
		splitIf(k, e)
		dst, x := k.row("dst", e), k.row("x", e)
		k.rounding(e)
		sum := k.blockSum(x, "blocks", "stride")
		k.each("dst_len", noPeriod, func(int) { k.store(sum(), dst) })
		k.Return()
	}
}

func dot[V asmgen.Operand](t target[V]) {
	for _, e := range variants {
		k := t.newKernel(kernelName("dot", e), vectors(e, "x", "y"), result("float32"))
		r, sums := rows(k, e, "x", "y"), k.zeros(64)
		k.each("x_len", 64, func(j int) {
			product, sum := k.load(r[0]), [2]V(sums[2*j:])
			pairwise(k, mul, k.load(r[1]), product, product)
			pairwise(k, add, product, sum, sum)
		})
		k.returnSum(sums)
	}
}
