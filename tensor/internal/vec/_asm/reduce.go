package main

// The parts of reductions, and kernels that each instruction set has in its own way. ../reduce.go
// describes the lanes.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// zeros takes registers with some number of lanes and sets them to zero.
func (k *kernel) zeros(lanes int) []asmgen.Vec {
	vs := k.sums(lanes / 16)
	for _, v := range vs {
		k.I(k.vexOr("VPXOR", "VPXORD"), v, v, v)
	}
	return vs
}

// sums takes n registers of AVX-512, or twice the number of AVX2.
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

func (k *kernel) returnSum(sums []asmgen.Vec) {
	k.I("VMOVSS", k.fold("VADDPS", sums), k.Slot("sum"))
	k.Return()
}

func (k *kernel) addElements(h int, x, sum asmgen.Vec) { k.merged(halves[h], "VADDPS", x, sum, sum) }

func (k *kernel) blockSum(x row, blocks, strideParam string) func() pair {
	stride, left, block := k.Load(strideParam), k.GP(), k.GP()
	k.I("IMULQ", asmgen.Imm(x.elem), stride)
	return func() pair {
		sum := pair{k.temp(), k.temp()}
		k.pairwise("VXORPS", sum, sum, sum)
		k.I("LEAQ", k.at(x), block)
		k.I("MOVQ", k.Slot(blocks), left)
		k.CountDown(left, func() {
			k.pairwise("VADDPS", k.loadAt(block.At(0), x.elem), sum, sum)
			k.I("ADDQ", stride, block)
		})
		return sum
	}
}

// pairwise prints an instruction for both registers of pairs.
func (k *kernel) pairwise(mnemonic string, x, y, dst pair) {
	for h := range 2 {
		k.I(mnemonic, x[h], y[h], dst[h])
	}
}

// split replaces NaNs by the NaN with zeros after the quiet bit. Rounding then needs no check for
// NaNs.
func (f *file) split() {
	k := f.start("split", vectors(fp32, "dst", "w"))
	k.split()
	dst, w := k.weights("dst", bf16), k.row("w", fp32)
	// The default NaN if the operand is a quiet or signaling NaN, and the destination otherwise.
	const defaultNaN = 0x33
	fix := k.word(defaultNaN)
	k.each("w_len", 32, func(int) {
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

// squares may fuse multiplication and addition: the square of a bfloat16 is exact in float32 unless
// it underflows.
func (f *file) squares() {
	k := f.start("squares16", vectors(bf16, "x"), result("float32"))
	k.split()
	row, sums := k.row("x", bf16), k.zeros(64)
	k.each("x_len", 64, func(j int) {
		x, sum := k.load(row), pair(sums[2*j:])
		// This copy has the first or second half of 32 elements, in split order.
		if k.avx2 {
			even := j/2*4 + j%2
			sum = pair{sums[even], sums[even+2]}
		}
		k.pairwise("VFMADD231PS", x, x, sum)
	})
	k.returnSum(sums)
}

// sumSquares may fuse multiplication and addition: the square of a float32 is exact in float64.
func (f *file) sumSquares() {
	k := f.start("sumSquares", vectors(fp32, "x"), result("float64"))
	x, sums := k.row("x", fp32), k.zeros(64)
	k.loop("x_len", 8, 4, func(j int) {
		wide := k.temp()
		if k.avx2 && k.masked {
			k.loadWideAVX2(k.at(x), 0, wide)
			k.I("VCVTPS2PD", wide.X(), wide)
		} else {
			k.zeroed(tail, "VCVTPS2PD", k.at(x), wide)
		}
		k.I("VFMADD231PD", wide, wide, sums[j])
	}, false, true)
	v, free := k.reduceTo128("VADDPD", sums)
	k.I("VPERMILPD", asmgen.Imm(1), v, free)
	k.I("VADDPD", free, v, v)
	k.I("VMOVSD", v, k.Slot("sum"))
	k.Return()
}

// maximum relies on VMAXPS: if the other source is NaN, it returns its second source, the running
// value.
func (f *file) maximum() {
	k := f.start("max", vectors(fp32, "x"), result("float32"))
	row, tops := k.row("x", fp32), k.sums(4)
	for _, v := range tops {
		k.I("VBROADCASTSS", k.file.word(math.Float32bits(float32(math.Inf(-1)))), v)
	}
	k.each("x_len", 64, func(j int) {
		x := k.load(row)
		for h := range 2 {
			top := tops[2*j+h]
			k.merged(halves[h], "VMAXPS", top, x[h], top)
		}
	})
	k.I("VMOVSS", k.fold("VMAXPS", tops), k.Slot("sum"))
	k.Return()
}
