package main

// Products with few rows of a on AVX2. BF16 is converted to FP32 when it is read; for a, this is
// done beforehand. The registers hold eight of the sixteen chains of a sum. So the rows of a group
// are read once for the first eight chains and again for the others. L1 holds these rows.

import (
	"fmt"
	"slices"

	"spmoe/tensor/asmgen"
)

// directAVX2Columns is the number of rows of b that the kernels for 1 to 4 rows of a take at once.
// It gives enough chains to hide the latency of additions.
var directAVX2Columns = [...]int{1: 8, 2: 6, 3: 4, 4: 3}

func directAVX2(f *asmgen.File) {
	high := f.Data32("highHalves", slices.Repeat([]uint32{0xffff_0000}, 8)...)
	for rows := 1; rows < len(directAVX2Columns); rows++ {
		k := newDirect(f, fmt.Sprintf("directBF16x%dAVX2", rows), "BF16, in whole vectors; a holds FP32", rows, directAVX2Columns[rows])
		for range rows {
			k.sums = append(k.sums, k.fn.Ys(k.columns))
		}
		k.halves(func(half int) { k.half(half, high) })
	}
	pairsAVX2(f, high)
}

// halves generates the kernel. body multiplies half of every vector along k.
func (k *directKernel) halves(body func(half int)) {
	k.eachGroup(func() {
		for half := range 2 {
			if half > 0 {
				k.begin()
			}
			k.summed(32*half, func() { body(half) }, func() { k.finishHalf(half) })
		}
	})
	k.fn.Return()
}

// pass moves on along k by bytes bytes of each row. The first half prefetches the next data.
func (k *directKernel) pass(half, bytes int) {
	if half == 0 {
		k.advance(bytes)
	} else {
		k.forward(bytes)
	}
}

// half multiplies half of every vector along k: of each pair the second element, then the first.
func (k *directKernel) half(half int, high asmgen.Mem) {
	fn := k.fn
	ofA := func(i, part int, v asmgen.Vec) { fn.I("VMOVUPS", k.a.At(128*i+64*half+32*part), v) }
	ofB := func(j, part int, v asmgen.Vec) {
		fn.I("VMOVUPS", k.row(j).Plus(32*half), v)
		widenPairs(fn, v, part, high)
	}
	// The operand with fewer vectors stays in registers. The vectors of the other are loaded one
	// after the other.
	hold, stream, sum := ofA, ofB, func(held, one int) asmgen.Vec { return k.sums[held][one] }
	if k.rows > k.columns {
		hold, stream, sum = ofB, ofA, func(held, one int) asmgen.Vec { return k.sums[one][held] }
	}
	held, one := fn.Ys(min(k.rows, k.columns)), fn.Y()
	fn.I("MOVQ", k.t.Field("direct_steps"), k.steps)
	fn.CountDown(k.steps, func() {
		for part := range 2 {
			for i, v := range held {
				hold(i, part, v)
			}
			for j := range max(k.rows, k.columns) {
				stream(j, part, one)
				for i, v := range held {
					fn.I("VFMADD231PS", v, one, sum(i, j))
				}
			}
		}
		fn.I("ADDQ", asmgen.Imm(int64(128*k.rows)), k.a)
		k.pass(half, 64)
	})
	fn.Free(append(operands(held), one)...)
}

// widenPairs converts the second elements of v's pairs to FP32 (part 0), or the first.
func widenPairs(fn *asmgen.Func, v asmgen.Vec, part int, high asmgen.Mem) {
	if part == 0 {
		fn.I("VPAND", high, v, v)
	} else {
		fn.I("VPSLLD", asmgen.Imm(16), v, v)
	}
}

// finishHalf adds up the lanes of each sum. It stores the totals four at a time or adds those of
// the other half to them. Totals past the columns are not used.
func (k *directKernel) finishHalf(half int) {
	fn, sum := k.fn, k.steps
	temp := fn.Y()
	defer fn.Free(temp)
	fn.I("MOVQ", k.t.Field("direct_sum"), sum)
	fn.I("ADDQ", k.t.Field("direct_moved+moves_sum"), sum)
	if k.columns == 1 {
		k.finishColumn(half, temp)
		return
	}
	for _, s := range k.sums {
		for j := 0; j < len(s); j += 4 {
			v := total4(fn, s[j:min(j+4, len(s))], temp)
			if half > 0 {
				fn.I("VADDPS", sum.At(4*j), v.X(), v.X())
			}
			fn.I("VMOVUPS", v.X(), sum.At(4*j))
		}
		fn.I("ADDQ", k.t.Field("direct_sumStride"), sum)
	}
}

// finishColumn is finishHalf for one column: four rows at a time. The totals of the first half are
// held in the call's arguments.
func (k *directKernel) finishColumn(half int, temp asmgen.Vec) {
	fn, sum := k.fn, k.steps
	var column []asmgen.Vec
	for _, s := range k.sums {
		column = append(column, s[0])
	}
	for i := 0; i < len(column); i += 4 {
		rows := min(4, len(column)-i)
		v, kept := total4(fn, column[i:i+rows], temp), k.t.Field("direct_rowSteps").Plus(4*i)
		if half == 0 {
			fn.I("VMOVUPS", v.X(), kept)
			continue
		}
		fn.I("VADDPS", kept, v.X(), v.X())
		for r := range rows {
			fn.I("VEXTRACTPS", asmgen.Imm(int64(r)), v.X(), sum.At(0))
			fn.I("ADDQ", k.t.Field("direct_sumStride"), sum)
		}
	}
}

// total4 returns a vector whose lanes 0 to 3 are the sums of the lanes of up to four vectors, in
// the order of directKernel.total. It overwrites the vectors.
func total4(fn *asmgen.Func, vs []asmgen.Vec, temp asmgen.Vec) asmgen.Vec {
	merge := func(x, y asmgen.Vec, low, high string) {
		fn.I(low, y, x, temp)
		fn.I(high, y, x, x)
		fn.I("VADDPS", temp, x, x)
	}
	last := vs[len(vs)-1]
	merge(vs[0], vs[min(1, len(vs)-1)], "VUNPCKLPS", "VUNPCKHPS")
	if len(vs) > 2 {
		merge(vs[2], last, "VUNPCKLPS", "VUNPCKHPS")
	}
	merge(vs[0], vs[min(2, len(vs)-1)], "VUNPCKLPD", "VUNPCKHPD")
	fn.I("VEXTRACTF128", asmgen.Imm(1), vs[0], temp.X())
	fn.I("VADDPS", temp.X(), vs[0].X(), vs[0].X())
	return vs[0]
}

// pairsAVX2 converts rows of BF16 to the form of a that these kernels take: four vectors of FP32
// for each 32 elements.
func pairsAVX2(f *asmgen.File, high asmgen.Mem) {
	fn := f.Func("pairsAVX2", "pairsAVX2 converts steps (> 0) times 32 BF16 to FP32, step bytes apart. Each half has the second elements of its pairs and then the first.",
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("steps", "int"), asmgen.Arg("step", "int"))
	dst, src, steps, step, v := fn.Load("dst"), fn.Load("src"), fn.Load("steps"), fn.Load("step"), fn.Y()
	fn.CountDown(steps, func() {
		for half := range 2 {
			for part := range 2 {
				fn.I("VMOVUPS", src.At(32*half), v)
				widenPairs(fn, v, part, high)
				fn.I("VMOVUPS", v, dst.At(64*half+32*part))
			}
		}
		fn.I("ADDQ", asmgen.Imm(64), src)
		fn.I("ADDQ", step, dst)
	})
	fn.Return()
}
