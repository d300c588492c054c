package main

// The parts of reductions on NEON, and kernels that each instruction set has in its own way.
// ../reduce.go describes the lanes.

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
	add := func(x, into asmgen.Neon) { k.lanes("VFADD", x, into, into) }
	sum := k.fold(sums, add)
	add(k.upper(sum, 8), sum)
	add(k.upper(sum, 4), sum)
	k.I("FMOVS", sum, k.Slot("sum"))
	k.Return()
}

// addElements ignores the elements that a part does not have.
func (k *neonKernel) addElements(h int, x, sum asmgen.Neon) {
	k.existing(h, x)
	k.lanes("VFADD", x, sum, sum)
}

// existing clears the elements of half h that a part does not have.
func (k *neonKernel) existing(h int, x asmgen.Neon) {
	if k.part {
		ones, size, mask := k.address(k.file.ones), k.partSize(int(fp32)), k.temp()
		k.loadPart(ones.At(0), []asmgen.Reg{size.first, size.second}[h], mask)
		k.Free(ones)
		k.bits("VAND", mask, x, x)
		k.release(mask)
	}
}

func (k *neonKernel) blockSum(x row, blocks, strideParam string) func() neonPair {
	stride, left, block := k.Load(strideParam), k.GP(), k.GP()
	k.I("LSL", asmgen.Imm(int(x.elem)/2), stride) // 1 for 2 bytes, 2 for 4
	return func() neonPair {
		sum := neonPair{k.temp(), k.temp()}
		k.clear(sum[0])
		k.clear(sum[1])
		if k.part {
			k.partSize(int(x.elem)) // before the loop
		}
		k.I("MOVD", x.base, block)
		k.I("MOVD", k.Slot(blocks), left)
		k.CountDown(left, func() {
			v := k.loadAt(block.At(0), x.elem)
			for h := range v {
				k.lanes("VFADD", v[h], sum[h], sum[h])
			}
			k.release(v[0], v[1])
			k.I("ADD", stride, block)
		})
		return sum
	}
}

// split replaces NaNs by the NaN with zeros after the quiet bit.
func (f *neonFile) split() {
	k := f.start("split", vectors(fp32, "dst", "w"))
	k.split()
	dst, w, nan := k.weights("dst", bf16), k.row("w", fp32), k.word(0xffc00000)
	k.each("w_len", 32, func(int) {
		v := k.load(w)
		for h, x := range v {
			isNumber := k.op("VFCMEQ", x, x)
			k.bits("VBIF", isNumber, nan, x)
			k.release(isNumber)
			k.I("FMOVQ", x, dst.base.At(2*k.step+64*h)) // a part ends in zeros
		}
	})
	k.Return()
}

// squares fuses multiplication and addition, as SquaresBF16 says.
func (f *neonFile) squares() {
	k := f.start("squares16", vectors(bf16, "x"), result("float32"))
	k.split()
	k.halvesApart = true
	row, sums := k.row("x", bf16), k.zeros(64)
	k.each("x_len", 64, func(j int) {
		x := k.load(row)
		sum := neonPair{sums[k.sumOf(j, 0, 2)], sums[k.sumOf(j, 1, 2)]}
		for h, v := range x {
			k.lanes("VFMLA", v, v, sum[h])
		}
	})
	k.returnSum(sums)
}

// sumSquares may fuse multiplication and addition: the square of a float32 is exact in float64.
func (f *neonFile) sumSquares() {
	k := f.start("sumSquares", vectors(fp32, "x"), result("float64"))
	x, sums := k.row("x", fp32), k.zeros(64)
	k.each("x_len", 32, func(j int) {
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
	k.I("FMOVD", sum, k.Slot("sum"))
	k.Return()
}

// maximum compares, because FMAX returns NaN if an element is NaN. Elements of a part are compared
// one by one in all lanes: which lane holds the largest does not matter.
func (f *neonFile) maximum() {
	k := f.start("max", vectors(fp32, "x"), result("float32"))
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
	k.each("x_len", noPeriod, func(int) {
		if !k.part {
			for h, x := range k.load(row) {
				raise(x, tops[h])
			}
			return
		}
		x := k.temp()
		k.CountDown(k.left, func() {
			k.I("VLD1R", row.after(0), written("["+x.S4().String()+"]"))
			raise(x, tops[0])
			k.I("ADD", asmgen.Imm(4), row.base)
		})
	})
	top := k.fold(tops, raise)
	raise(k.upper(top, 8), top)
	raise(k.upper(top, 4), top)
	k.I("FMOVS", top, k.Slot("sum"))
	k.Return()
}
