package main

// Kernels that reduce a row to one value. ../reduce.go describes the lanes.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// zeros takes n registers and sets them to zero. AVX2 needs twice the number.
func (k *kernel) zeros(n int) []asmgen.Vec {
	vs := k.sums(n)
	for _, v := range vs {
		k.I(k.vexOr("VPXOR", "VPXORD"), v, v, v)
	}
	return vs
}

func (k *kernel) sums(n int) []asmgen.Vec {
	if k.avx2 {
		return k.Ys(2 * n)
	}
	return k.Zs(n)
}

// reduceTo128 combines vectors by halves until one is left. It then combines the upper half of that
// vector with its lower half until 128 bits are left.
func (k *kernel) reduceTo128(combine string, vs []asmgen.Vec) (v, free asmgen.Vec) {
	for n := len(vs) / 2; n > 0; n /= 2 {
		for i := range n {
			k.I(combine, vs[i+n], vs[i], vs[i])
		}
	}
	v, free = vs[0], k.vec()
	if !k.avx2 {
		k.I("VEXTRACTF64X4", asmgen.Imm(1), v, free.Y())
		k.I(combine, free.Y(), v.Y(), v.Y())
	}
	k.I(k.vexOr("VEXTRACTF128", "VEXTRACTF32X4"), asmgen.Imm(1), v.Y(), free.X())
	k.I(combine, free.X(), v.X(), v.X())
	return v.X(), free.X()
}

// fold combines all float32 lanes into the lowest lane of the register it returns.
func (k *kernel) fold(combine string, vs []asmgen.Vec) asmgen.Vec {
	v, free := k.reduceTo128(combine, vs)
	k.I("VPERMILPD", asmgen.Imm(1), v, free)
	k.I(combine, free, v, v)
	k.I("VMOVSHDUP", v, free)
	k.I(combine, free, v, v)
	return v
}

func dot(f *file) {
	for _, e := range variants {
		k := f.newKernel(kernelName("dot", e), rows("x", "y"), result("float32"))
		r, sums := k.rows(e, "x", "y"), k.zeros(4)
		k.each("x_len", lanes, 2, func(j int) {
			product, sum := k.load(r[0]), pair(sums[2*j:])
			k.pairwise("VMULPS", k.load(r[1]), product, product)
			k.pairwise("VADDPS", product, sum, sum)
		})
		k.I("VMOVSS", k.fold("VADDPS", sums), k.Slot("ret"))
		k.Return()
	}
}

// squares may fuse multiplication and addition: the square of a bfloat16 is exact in float32 unless
// it underflows.
func squares(f *file) {
	k := f.newKernel("squares16", rows("x"), result("float32"))
	k.split()
	row, sums := k.row("x", bf16), k.zeros(4)
	k.each("x_len", lanes, 2, func(j int) {
		x, sum := k.load(row), pair(sums[2*j:])
		// This copy has the first or second half of 32 elements, in split order.
		if k.avx2 {
			even := j/2*4 + j%2
			sum = pair{sums[even], sums[even+2]}
		}
		k.pairwise("VFMADD231PS", x, x, sum)
	})
	k.I("VMOVSS", k.fold("VADDPS", sums), k.Slot("ret"))
	k.Return()
}

// sumSquares may fuse multiplication and addition: the square of a float32 is exact in float64.
func sumSquares(f *file) {
	k := f.newKernel("sumSquares", rows("x"), result("float64"))
	x, sums := k.row("x", fp32), k.zeros(4)
	k.each("x_len", 8, 4, func(j int) {
		wide := k.temp()
		if k.avx2 && k.masked {
			k.loadWideAVX2(k.at(x), 0, wide)
			k.I("VCVTPS2PD", wide.X(), wide)
		} else {
			k.zeroed(tail, "VCVTPS2PD", k.at(x), wide)
		}
		k.I("VFMADD231PD", wide, wide, sums[j])
	})
	v, free := k.reduceTo128("VADDPD", sums)
	k.I("VPERMILPD", asmgen.Imm(1), v, free)
	k.I("VADDPD", free, v, v)
	k.I("VMOVSD", v, k.Slot("ret"))
	k.Return()
}

// maximum relies on VMAXPS: if the other source is NaN, it returns its second source, the running
// value.
func maximum(f *file) {
	k := f.newKernel("max", rows("x"), result("float32"))
	row, tops := k.row("x", fp32), k.sums(4)
	for _, v := range tops {
		k.I("VBROADCASTSS", k.file.word(math.Float32bits(float32(math.Inf(-1)))), v)
	}
	k.each("x_len", lanes, 2, func(j int) {
		x := k.load(row)
		for h := range 2 {
			top := tops[2*j+h]
			k.merged(halves[h], "VMAXPS", top, x[h], top)
		}
	})
	k.I("VMOVSS", k.fold("VMAXPS", tops), k.Slot("ret"))
	k.Return()
}
