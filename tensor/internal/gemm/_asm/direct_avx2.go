package main

// Products with few rows of a on AVX2, which read b where it lies. Lanes are columns of the result,
// so a sum is one chain along k, as in panels. a is packed as a row panel of FP32.

import (
	"fmt"
	"slices"

	"spmoe/tensor/asmgen"
)

const (
	directAlongRows  = 5 // most rows of a for a b that is contiguous along k: 2 sums each, and 6 registers
	directAcrossRows = 3 // and for one that is contiguous across: 4 sums each, and 2 registers

	directAlongColumns  = 16
	directAcrossColumns = 32

	directUnit = 8 // elements along k that are transposed at once
	directRun  = 4 // units between two counts
)

// directKernel is the frame of such a kernel.
type directKernel struct {
	fn    *asmgen.Func
	t, a  asmgen.Reg
	count asmgen.Reg
	sums  [][]asmgen.Vec // by row
	x     asmgen.Vec     // an element of a in all lanes
	high  asmgen.Mem     // a mask of the second elements of pairs
}

func directAVX2(f *asmgen.File) {
	high := f.Data32("highHalves", slices.Repeat([]uint32{0xffff_0000}, 8)...)
	for rows := 1; rows <= directAlongRows; rows++ {
		directAlong(newDirect(f, "Along", rows, directAlongColumns, high))
	}
	for rows := 1; rows <= directAcrossRows; rows++ {
		directAcross(newDirect(f, "Across", rows, directAcrossColumns, high))
	}
	f.Constant("directAlongColumns", directAlongColumns)
	f.Constant("directAcrossColumns", directAcrossColumns)
	f.Constant("directUnit", directUnit)
	f.Constant("directRun", directRun)
}

func newDirect(f *asmgen.File, layout string, rows, columns int, high asmgen.Mem) *directKernel {
	name := fmt.Sprintf("direct%sx%dAVX2", layout, rows)
	fn := f.Func(name, fmt.Sprintf("%s multiplies %d rows of a with %d columns of b.", name, rows, columns), asmgen.Arg("d", "*direct"))
	k := &directKernel{fn: fn, t: fn.Load("d"), a: fn.GP(), count: fn.GP(), x: fn.Y(), high: high}
	fn.I("MOVQ", k.t.Field("direct_a"), k.a)
	for range rows {
		k.sums = append(k.sums, fn.Ys(columns/8))
	}
	zero, loaded := fn.Label("zero"), fn.Label("loaded")
	fn.I("CMPQ", k.t.Field("direct_load"), asmgen.Imm(0))
	fn.I("JEQ", zero)
	k.eachSum(func(at asmgen.Mem, v asmgen.Vec) { fn.I("VMOVUPS", at, v) })
	fn.I("JMP", loaded)
	fn.Place(zero)
	for _, row := range k.sums {
		for _, v := range row {
			fn.I("VXORPS", v, v, v)
		}
	}
	fn.Place(loaded)
	return k
}

// eachSum calls f with the sums and their places in the result.
func (k *directKernel) eachSum(f func(at asmgen.Mem, v asmgen.Vec)) {
	k.fn.I("MOVQ", k.t.Field("direct_sum"), k.count)
	for _, row := range k.sums {
		for i, v := range row {
			f(k.count.At(32*i), v)
		}
		k.fn.I("ADDQ", k.t.Field("direct_sumStride"), k.count)
	}
}

// finish stores the sums.
func (k *directKernel) finish() {
	k.eachSum(func(at asmgen.Mem, v asmgen.Vec) { k.fn.I("VMOVUPS", v, at) })
	k.fn.Return()
}

// multiply adds the products of step step of a, in its panel, with vectors of b: the columns from
// vector first on.
func (k *directKernel) multiply(step, first int, bs ...asmgen.Vec) {
	for i, row := range k.sums {
		k.fn.I("VBROADCASTSS", k.a.At(4*(step*len(k.sums)+i)), k.x)
		for j, b := range bs {
			k.fn.I("VFMADD231PS", k.x, b, row[first+j])
		}
	}
}

// repeat runs body a number of times, which a field holds. It may be 0.
func (k *directKernel) repeat(field asmgen.Field, body func()) {
	none := k.fn.Label("none")
	k.fn.I("MOVQ", k.t.Field(field), k.count)
	k.fn.I("TESTQ", k.count, k.count)
	k.fn.I("JZ", none)
	k.fn.CountDown(k.count, body)
	k.fn.Place(none)
}

// directAlong is for a b that is contiguous along k. It transposes 8 by 8 elements in registers.
func directAlong(k *directKernel) {
	fn, rows := k.fn, len(k.sums)
	stride, three, fetch, line, lines := fn.GP(), fn.GP(), fn.GP(), fn.GP(), fn.GP()
	bases := []asmgen.Reg{fn.GP(), fn.GP(), fn.GP(), fn.GP()} // rows 0, 4, 8 and 12 of b
	fn.I("MOVQ", k.t.Field("direct_stride"), stride)
	fn.I("LEAQ", stride.At(0).Index(stride, 2), three)
	fn.I("MOVQ", k.t.Field("direct_b"), bases[0])
	for i := range bases[1:] {
		fn.I("LEAQ", bases[i].At(0).Index(stride, 4), bases[i+1])
	}
	fn.I("MOVQ", bases[0], fetch)
	fn.I("ADDQ", k.t.Field("direct_ahead"), fetch)
	fn.I("MOVQ", k.t.Field("direct_fetchLine"), line)
	fn.I("LEAQ", line.At(0).Index(line, 2), lines)
	row := func(base asmgen.Reg, i, at int) asmgen.Mem {
		switch m := base.At(at); i {
		case 0:
			return m
		case 3:
			return m.Index(three, 1)
		default:
			return m.Index(stride, i)
		}
	}
	vs := fn.Ys(5)
	unit := func(u int) {
		for g := range directAlongColumns / 8 {
			for i, v := range vs[:4] {
				fn.I("VMOVUPS", row(bases[2*g], i, 2*directUnit*u), v.X())
				fn.I("VINSERTF128", asmgen.Imm(1), row(bases[2*g+1], i, 2*directUnit*u), v, v)
			}
			free := vs[2]
			for pair, v := range transposeLanes(fn, vs) {
				fn.I("VPAND", k.high, v, free)
				k.multiply(directUnit*u+2*pair, g, free)
				fn.I("VPSLLD", asmgen.Imm(16), v, v)
				k.multiply(directUnit*u+2*pair+1, g, v)
			}
		}
	}
	forward := func(units int) {
		for _, b := range bases {
			fn.I("ADDQ", asmgen.Imm(int64(2*directUnit*units)), b)
		}
		fn.I("ADDQ", asmgen.Imm(int64(4*directUnit*units*rows)), k.a)
	}
	k.repeat("direct_runs", func() {
		for u := range directRun {
			fn.I("PREFETCHT1", fetch.At(0))
			fn.I("PREFETCHT1", fetch.At(0).Index(line, 1))
			fn.I("PREFETCHT1", fetch.At(0).Index(line, 2))
			fn.I("PREFETCHT1", fetch.At(0).Index(lines, 1))
			fn.I("LEAQ", fetch.At(0).Index(line, 4), fetch)
			unit(u)
		}
		fn.I("ADDQ", k.t.Field("direct_fetchBack"), fetch)
		forward(directRun)
	})
	k.repeat("direct_units", func() {
		unit(0)
		forward(1)
	})
	k.finish()
}

// transposeLanes transposes the 4 by 4 dwords in each half of four vectors, the first of vs. The
// third of vs is free afterwards.
func transposeLanes(fn *asmgen.Func, vs []asmgen.Vec) []asmgen.Vec {
	fn.I("VUNPCKLPS", vs[1], vs[0], vs[4])
	fn.I("VUNPCKHPS", vs[1], vs[0], vs[0])
	fn.I("VUNPCKLPS", vs[3], vs[2], vs[1])
	fn.I("VUNPCKHPS", vs[3], vs[2], vs[2])
	fn.I("VUNPCKLPD", vs[1], vs[4], vs[3])
	fn.I("VUNPCKHPD", vs[1], vs[4], vs[4])
	fn.I("VUNPCKLPD", vs[2], vs[0], vs[1])
	fn.I("VUNPCKHPD", vs[2], vs[0], vs[0])
	return []asmgen.Vec{vs[3], vs[4], vs[1], vs[0]}
}

// directAcross is for a b whose columns are adjacent in memory.
func directAcross(k *directKernel) {
	fn, rows := k.fn, len(k.sums)
	b, stride, v := fn.GP(), fn.GP(), fn.Y()
	fn.I("MOVQ", k.t.Field("direct_b"), b)
	fn.I("MOVQ", k.t.Field("direct_stride"), stride)
	step := func(at asmgen.Mem, step int) {
		for j := range directAcrossColumns / 8 {
			fn.I("VPMOVZXWD", at.Plus(16*j), v)
			fn.I("VPSLLD", asmgen.Imm(16), v, v)
			for i, row := range k.sums {
				fn.I("VBROADCASTSS", k.a.At(4*(step*rows+i)), k.x)
				fn.I("VFMADD231PS", k.x, v, row[j])
			}
		}
	}
	k.repeat("direct_runs", func() {
		step(b.At(0).Index(stride, 1), 0)
		step(b.At(0), 1)
		fn.I("LEAQ", b.At(0).Index(stride, 2), b)
		fn.I("ADDQ", asmgen.Imm(int64(8*rows)), k.a)
	})
	k.repeat("direct_units", func() { step(b.At(0), 1) }) // an odd last element
	k.finish()
}
