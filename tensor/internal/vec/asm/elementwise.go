package main

// Sums and products of rows.

import "spmoe/tensor/asmgen"

func add(f *file) {
	for _, e := range variants {
		k := f.newKernel(kernelName("add", e), rows("dst", "x", "y"))
		k.splitIf(e)
		r := k.rows(e, "dst", "x", "y")
		k.rounding(e)
		k.each("dst_len", lanes, 1, func(int) {
			x, y := k.load(r[1]), k.load(r[2])
			k.pairwise("VADDPS", y, x, x)
			k.store(x, r[0])
		})
		k.Return()
	}
}

// addScaled has FP32 sums in both variants.
func addScaled(f *file) {
	for _, e := range variants {
		k := f.newKernel(kernelName("addScaled", e), rows("dst"), float32s("a"), rows("x"))
		dst, x, a := k.row("dst", fp32), k.row("x", e), k.float32("a")
		k.each("dst_len", lanes, 1, func(int) {
			ax, sum := k.load(x), k.load(dst)
			k.scaled(a, ax)
			k.pairwise("VADDPS", ax, sum, sum)
			k.store(sum, dst)
		})
		k.Return()
	}
}

// scale reads FP32 in both variants.
func scale(f *file) {
	for _, e := range variants {
		k := f.newKernel(kernelName("scale", e), rows("dst"), float32s("a"), rows("x"))
		dst, x, a := k.row("dst", e), k.row("x", fp32), k.float32("a")
		k.rounding(e)
		k.each("dst_len", lanes, 1, func(int) {
			ax := k.load(x)
			k.scaled(a, ax)
			k.store(ax, dst)
		})
		k.Return()
	}
}

func sumBlocks(f *file) {
	for _, e := range variants {
		k := f.newKernel(kernelName("sumBlocks", e), rows("dst", "x"), ints("blocks", "stride"))
		k.splitIf(e)
		dst, x := k.row("dst", e), k.row("x", e)
		k.rounding(e)
		stride, left, block := k.Load("stride"), k.GP(), k.GP()
		k.I("IMULQ", asmgen.Imm(e), stride)
		k.each("dst_len", lanes, 1, func(int) {
			sum := pair{k.temp(), k.temp()}
			k.pairwise("VXORPS", sum, sum, sum)
			k.I("LEAQ", k.at(x), block)
			k.I("MOVQ", k.Slot("blocks"), left)
			k.CountDown(left, func() {
				k.pairwise("VADDPS", k.loadAt(block.At(0), e), sum, sum)
				k.I("ADDQ", stride, block)
			})
			k.store(sum, dst)
		})
		k.Return()
	}
}

// splitIf selects split order for kernels that have only BF16 rows.
func (k *kernel) splitIf(e elem) {
	if e == bf16 {
		k.split()
	}
}

// scaled multiplies a pair by a scalar.
func (k *kernel) scaled(a asmgen.Operand, v pair) {
	for _, x := range v {
		k.I("VMULPS", a, x, x)
	}
}

// pairwise prints an instruction for both registers of pairs.
func (k *kernel) pairwise(mnemonic string, x, y, dst pair) {
	for h := range 2 {
		k.I(mnemonic, x[h], y[h], dst[h])
	}
}
