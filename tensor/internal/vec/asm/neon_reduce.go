package main

// Kernels that reduce a row to one value, on NEON. ../reduce.go describes the lanes.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// fold combines vectors by halves until one is left.
func (k *neonKernel) fold(vs []asmgen.Neon, combine func(x, into asmgen.Neon)) asmgen.Neon {
	for n := len(vs) / 2; n > 0; n /= 2 {
		for i := range n {
			combine(vs[i+n], vs[i])
		}
	}
	return vs[0]
}

// upper returns a register that begins with the bytes of v from an offset.
func (k *neonKernel) upper(v asmgen.Neon, bytes int) asmgen.Neon {
	d := k.temp()
	k.I("VEXT", asmgen.Imm(bytes), v.B16(), v.B16(), d.B16())
	return d
}

// returnSum returns the sum of all lanes.
func (k *neonKernel) returnSum(sums []asmgen.Neon) {
	add := func(x, into asmgen.Neon) { k.do("VFADD", x, into, into) }
	sum := k.fold(sums, add)
	add(k.upper(sum, 8), sum)
	add(k.upper(sum, 4), sum)
	k.I("FMOVS", sum, k.Slot("ret"))
	k.Return()
}

func (f *neonFile) dot() {
	for _, e := range variants {
		k := f.newKernel(kernelName("dot", e), rows("x", "y"), result("float32"))
		r, sums := k.rows(e, "x", "y"), k.zeros(16)
		k.each("x_len", 8, 8, func(j int) {
			product, sum := k.load(r[0]), neonPair(sums[2*j:])
			k.pairwise("VFMUL", k.load(r[1]), product, product)
			k.pairwise("VFADD", product, sum, sum)
		})
		k.returnSum(sums)
	}
}

// squares fuses multiplication and addition, as SquaresBF16 says.
func (f *neonFile) squares() {
	k := f.newKernel("squares16", rows("x"), result("float32"))
	k.split()
	row, sums := k.row("x", bf16), k.zeros(16)
	k.each("x_len", 8, 8, func(j int) {
		x := k.load(row)
		even := j/4*8 + j%4 // of every 32 elements, the lanes of the odd ones come last
		sum := neonPair{sums[even], sums[even+4]}
		k.pairwise("VFMLA", x, x, sum)
	})
	k.returnSum(sums)
}

// sumSquares may fuse multiplication and addition: the square of a float32 is exact in float64.
func (f *neonFile) sumSquares() {
	k := f.newKernel("sumSquares", rows("x"), result("float64"))
	x, sums := k.row("x", fp32), k.zeros(16)
	k.each("x_len", 8, 4, func(j int) {
		for h, v := range k.load(x) {
			wide := k.temp()
			k.I("VFCVTL", v.S2(), wide.D2())
			k.I("VFCVTL2", v.S4(), v.D2())
			for i, w := range []asmgen.Neon{wide, v} {
				k.I("VFMLA", w.D2(), w.D2(), sums[4*j+2*h+i].D2())
			}
		}
	})
	add := func(x, into asmgen.Neon) { k.I("VFADD", x.D2(), into.D2(), into.D2()) }
	sum := k.fold(sums, add)
	add(k.upper(sum, 8), sum)
	k.I("FMOVD", sum, k.Slot("ret"))
	k.Return()
}

// maximum compares, because FMAX returns NaN if an element is NaN. Elements of a part are compared
// one by one in all lanes: which lane holds the largest does not matter.
func (f *neonFile) maximum() {
	k := f.newKernel("max", rows("x"), result("float32"))
	row, least := k.row("x", fp32), k.word(math.Float32bits(float32(math.Inf(-1))))
	tops := k.Vs(2)
	for _, top := range tops {
		k.bits("VMOV", least, top)
	}
	raise := func(x, top asmgen.Neon) {
		larger := k.op("VFCMGT", top, x)
		k.bits("VBIT", larger, x, top)
		k.release(larger)
	}
	k.each("x_len", 8, 1, func(int) {
		if !k.part {
			for h, x := range k.load(row) {
				raise(x, tops[h])
			}
			return
		}
		x := k.temp()
		k.CountDown(k.left, func() {
			k.I("VLD1R", row.at(0), written("["+x.S4().String()+"]"))
			raise(x, tops[0])
			k.I("ADD", asmgen.Imm(4), row.base)
		})
	})
	top := k.fold(tops, raise)
	raise(k.upper(top, 8), top)
	raise(k.upper(top, 4), top)
	k.I("FMOVS", top, k.Slot("ret"))
	k.Return()
}
