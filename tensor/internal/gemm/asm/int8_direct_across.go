package main

// The kernels for few rows of MXINT8 and adjacent rows of b.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// int8DirectAcross generates a kernel for rows of b that are adjacent in memory, as are their
// scales.
func int8DirectAcross(f *asmgen.File, rows int, flip, index asmgen.Mem) {
	name := fmt.Sprintf("directInt8Acrossx%dAVX512", rows)
	fn := f.Func(name, fmt.Sprintf("%s multiplies %d rows of a with t.count groups of 16 rows of b that are adjacent in memory; along k they are\n"+
		"t.aStride bytes apart, and their scales are scaleStride bytes apart. It records the smallest and the largest scale.", name, rows),
		asmgen.Arg("t", "*tile"), asmgen.Arg("scales", "unsafe.Pointer"), asmgen.Arg("scaleStride", "int"), asmgen.Arg("notes", "*notes"))
	k := newInt8Direct(fn, rows, 4, flip)
	b, scales, sum, stride, stride3, scaleStride := fn.GP(), fn.GP(), fn.GP(), fn.GP(), fn.GP(), fn.Load("scaleStride")
	fetch, r, sumStride := fn.GP(), fn.GP(), fn.GP()
	moved := fn.GP() // rows of b done: pointers in memory must not leave their matrix
	order, least, most := fn.Z(), fn.Z(), fn.Z()
	fn.I("VMOVUPS", index, order)
	fn.I("MOVQ", asmgen.Imm(127), r)
	fn.I("VPBROADCASTD", r, least)
	fn.I("VPBROADCASTD", r, most)
	fn.I("MOVQ", k.t.Field("tile_aStride"), stride)
	fn.I("LEAQ", stride.At(0).Index(stride, 2), stride3)
	next := fn.Label("next")
	fn.I("XORQ", moved, moved)
	fn.Place(next)
	fn.I("MOVQ", k.t.Field("tile_sum"), sum)
	fn.I("LEAQ", sum.At(0).Index(moved, 4), sum)
	fn.I("MOVQ", k.t.Field("tile_sumStride"), sumStride)
	microkernel{width: 64}.start(fn, k.t, sum, sumStride, sum, sumStride, r, k.sums)
	fn.I("MOVQ", k.t.Field("tile_a"), k.a)
	fn.I("MOVQ", k.t.Field("tile_b"), b)
	fn.I("ADDQ", moved, b)
	fn.I("MOVQ", fn.Slot("scales"), scales)
	fn.I("ADDQ", moved, scales)
	// Each group prefetches the next cache line of one in every four steps of k. Four groups share
	// a line.
	fn.I("MOVQ", k.t.Field("tile_count"), fetch)
	fn.I("ANDQ", asmgen.Imm(3), fetch)
	fn.I("IMULQ", stride, fetch)
	fn.I("LEAQ", b.At(64).Index(fetch, 1), fetch)
	fn.I("MOVQ", k.t.Field("tile_steps"), k.blocks)
	fn.CountDown(k.blocks, func() {
		for _, v := range k.codes {
			fn.I("VMOVDQU64", b.At(0), v.X())
			fn.I("VINSERTI32X4", asmgen.Imm(1), b.At(0).Index(stride, 1), v, v)
			fn.I("VINSERTI32X4", asmgen.Imm(2), b.At(0).Index(stride, 2), v, v)
			fn.I("VINSERTI32X4", asmgen.Imm(3), b.At(0).Index(stride3, 1), v, v)
			fn.I("PREFETCHT0", fetch.At(0))
			fn.I("LEAQ", b.At(0).Index(stride, 4), b)
			fn.I("LEAQ", fetch.At(0).Index(stride, 4), fetch)
			fn.I("VPERMB", v, order, v)
			fn.I("VPXORD", k.flip, v, v)
		}
		fn.I("VPMOVZXBD", scales.At(0), k.scale)
		fn.I("ADDQ", scaleStride, scales)
		fn.I("VPMINUD", k.scale, least, least)
		fn.I("VPMAXUD", k.scale, most, most)
		fn.I("VPSLLD", asmgen.Imm(23), k.scale, k.scale)
		k.multiply(0)
		k.advance(1)
	})
	k.store(sum, sumStride)
	fn.I("ADDQ", asmgen.Imm(16), moved)
	fn.I("DECQ", k.t.Field("tile_count"))
	fn.I("JNZ", next)
	fn.I("MOVQ", fn.Slot("notes"), r)
	fn.I("VPMOVDB", least, least.X())
	fn.I("VPMOVDB", most, most.X())
	fn.I("VPMINUB", r.Field("notes_min"), least.X(), least.X())
	fn.I("VPMAXUB", r.Field("notes_max"), most.X(), most.X())
	fn.I("VMOVDQU64", least.X(), r.Field("notes_min"))
	fn.I("VMOVDQU64", most.X(), r.Field("notes_max"))
	fn.Return()
}
