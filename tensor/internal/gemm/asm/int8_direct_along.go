package main

// The kernels for few rows of MXINT8 and rows of b that are contiguous along k.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// int8Along is one kernel. The rows of a group of b begin at first, and the ninth row begins at
// ninth. Both pointers move along k. So do those of a later group, which is prefetched.
type int8Along struct {
	int8Direct
	scales                 asmgen.Reg
	first, ninth           asmgen.Reg
	fetchFirst, fetchNinth asmgen.Reg
	stride                 rowStrides
}

// rowStrides holds 1, 3, 5 and 7 times the distance of rows.
type rowStrides map[int]asmgen.Reg

func newRowStrides(fn *asmgen.Func, stride asmgen.Reg) rowStrides {
	s := rowStrides{1: stride}
	for _, n := range []int{3, 5, 7} {
		s[n] = fn.GP()
	}
	fn.I("LEAQ", stride.At(0).Index(stride, 2), s[3])
	fn.I("LEAQ", stride.At(0).Index(stride, 4), s[5])
	fn.I("LEAQ", s[3].At(0).Index(stride, 4), s[7])
	return s
}

// row returns the address at bytes past the start of row i of 8. The first row begins at base.
func (s rowStrides) row(base asmgen.Reg, i, at int) asmgen.Mem {
	for _, scale := range []int{1, 2, 4} {
		if r, ok := s[i/scale]; ok && i%scale == 0 {
			return base.At(at).Index(r, scale)
		}
	}
	return base.At(at)
}

func int8DirectAlong(f *asmgen.File, rows int, flip asmgen.Mem) {
	name := fmt.Sprintf("directInt8Alongx%dAVX512", rows)
	fn := f.Func(name, fmt.Sprintf("%s multiplies %d rows of a with 16 rows of b, contiguous along k and t.aStride bytes apart. scales holds\n"+
		"16 FP32 numbers per block. It prefetches the rows ahead bytes further on.", name, rows),
		asmgen.Arg("t", "*tile"), asmgen.Arg("scales", "unsafe.Pointer"), asmgen.Arg("ahead", "int"))
	k := &int8Along{int8Direct: newInt8Direct(fn, rows, 8, flip), scales: fn.GP(), first: fn.GP(), ninth: fn.GP(),
		fetchFirst: fn.GP(), fetchNinth: fn.GP()}
	sum, sumStride := k.first, k.ninth // used before and after the loop only
	fn.I("MOVQ", k.t.Field("tile_sum"), sum)
	fn.I("MOVQ", k.t.Field("tile_sumStride"), sumStride)
	microkernel{width: 64}.start(fn, k.t, sum, sumStride, sum, sumStride, k.a, k.sums)
	k.begin()
	last, done := fn.Label("last"), fn.Label("done")
	fn.I("SHRQ", asmgen.Imm(1), k.blocks)
	fn.I("JZ", last)
	fn.CountDown(k.blocks, func() { // two blocks share a cache line
		for i := range 16 {
			fn.I("PREFETCHT1", k.row(k.fetchFirst, k.fetchNinth, i, 0))
		}
		k.block(0)
		k.block(1)
		k.advance(2)
		fn.I("ADDQ", asmgen.Imm(2*64), k.scales)
		for _, r := range []asmgen.Reg{k.first, k.ninth, k.fetchFirst, k.fetchNinth} {
			fn.I("ADDQ", asmgen.Imm(64), r)
		}
	})
	fn.Place(last)
	fn.I("TESTQ", asmgen.Imm(1), k.t.Field("tile_steps"))
	fn.I("JZ", done)
	k.block(0)
	fn.Place(done)
	fn.I("MOVQ", k.t.Field("tile_sum"), sum)
	fn.I("MOVQ", k.t.Field("tile_sumStride"), sumStride)
	k.store(sum, sumStride)
	fn.Return()
}

// begin loads the addresses.
func (k *int8Along) begin() {
	fn, stride := k.fn, k.fn.GP()
	fn.I("MOVQ", k.t.Field("tile_aStride"), stride)
	k.stride = newRowStrides(fn, stride)
	fn.I("MOVQ", k.t.Field("tile_b"), k.first)
	fn.I("LEAQ", k.first.At(0).Index(stride, 8), k.ninth)
	fn.I("MOVQ", fn.Slot("ahead"), k.a)
	fn.I("LEAQ", k.first.At(0).Index(k.a, 1), k.fetchFirst)
	fn.I("LEAQ", k.ninth.At(0).Index(k.a, 1), k.fetchNinth)
	fn.I("MOVQ", fn.Slot("scales"), k.scales)
	fn.I("MOVQ", k.t.Field("tile_a"), k.a)
	fn.I("MOVQ", k.t.Field("tile_steps"), k.blocks)
}

// row returns the address at bytes past the current position in row i of 16.
func (k *int8Along) row(first, ninth asmgen.Reg, i, at int) asmgen.Mem {
	if i >= 8 {
		return k.stride.row(ninth, i-8, at)
	}
	return k.stride.row(first, i, at)
}

// block multiplies the nth block from here. Two rows of b share a vector. After the first two
// rounds of its transpose, a lane has codes of rows i to i+3. The third round combines all 16 rows.
func (k *int8Along) block(nth int) {
	fn, rows, other := k.fn, k.parts, k.codes
	for i, v := range rows {
		from := i%4 + i/4*8
		fn.I("VMOVDQU64", k.row(k.first, k.ninth, from, 32*nth), v.Y())
		fn.I("VINSERTI64X4", asmgen.Imm(1), k.row(k.first, k.ninth, from+4, 32*nth), v, v)
		fn.I("VPXORD", k.flip, v, v)
	}
	for i := 0; i < 8; i += 2 {
		fn.I("VPUNPCKLDQ", rows[i+1], rows[i], other[i])
		fn.I("VPUNPCKHDQ", rows[i+1], rows[i], other[i+1])
	}
	for g := 0; g < 8; g += 4 {
		fn.I("VPUNPCKLQDQ", other[g+2], other[g], rows[g])
		fn.I("VPUNPCKHQDQ", other[g+2], other[g], rows[g+1])
		fn.I("VPUNPCKLQDQ", other[g+3], other[g+1], rows[g+2])
		fn.I("VPUNPCKHQDQ", other[g+3], other[g+1], rows[g+3])
	}
	for c := range 4 {
		fn.I("VSHUFI32X4", asmgen.Imm(0x88), rows[4+c], rows[c], other[c])
		fn.I("VSHUFI32X4", asmgen.Imm(0xdd), rows[4+c], rows[c], other[4+c])
	}
	fn.I("VMOVUPS", k.scales.At(64*nth), k.scale)
	k.multiply(nth)
}
