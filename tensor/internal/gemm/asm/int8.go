package main

// Products of MXINT8 by VPDPBUSD: exact integer sums of the 32 products of a block, which are then
// scaled into FP32 sums.
//
// Panels hold records of 10 steps per block. In a row panel, 8 steps hold 4 codes plus 128 of each
// row, the ninth holds scales and the tenth is unused. In a column panel, 8 steps hold 4 codes of
// each column. The ninth holds -128 times the column sums, which corrects for the 128, and the
// tenth holds scales.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// The steps of a record.
const (
	recordCodes  = 8
	recordSums   = 8 // of a column panel
	recordScales = 9
	recordScaleA = 8 // of a row panel
	recordSteps  = 10
)

const int8Rows = 6

func int8AVX512(f *asmgen.File) {
	f.Constant("recordSteps", recordSteps)
	f.Constant("recordScale", recordScales)
	f.Constant("recordScaleOfRows", recordScaleA)
	constants := newRoundingData(f)
	exponents := newInt8Exponents(f)
	for rows := 1; rows <= int8Rows; rows++ {
		int8Tiles(f, rows, constants, int8Multiplied)
		int8Tiles(f, rows, constants, exponents)
	}
	int8Sums(f)
	packBytesAlong(f)
	packBytes8Along(f)
	packBytesAcross(f, 16)
	packBytesAcross(f, 32)
	scalesAlong(f)
	scalesAcross(f)
	peakLoop(f, "int8AVX512", (*asmgen.Func).Zs, 24, "VPDPBUSD")
}

func int8Tiles(f *asmgen.File, mr int, constants roundingData, by int8Scaling) {
	name := fmt.Sprintf("%sTiles%d", by.prefix, mr)
	k := microkernel{width: 64, rounds: true}
	fn := f.Func(name, fmt.Sprintf("%s multiplies row panels of %d rows with one column panel.%s", name, mr, by.doc), asmgen.Arg("t", "*tile"))
	t := fn.Load("t")
	field := func(at asmgen.Field) asmgen.Reg { r := fn.GP(); fn.I("MOVQ", t.Field(at), r); return r }
	panel, sum, sumStride, count := field("tile_a"), field("tile_sum"), field("tile_sumStride"), field("tile_count")
	out, outStride := field("tile_out"), field("tile_outStride")
	a, b, steps, row := fn.GP(), fn.GP(), fn.GP(), fn.GP()
	sums, parts := make([][]asmgen.Vec, mr), make([][]asmgen.Vec, mr)
	for i := range sums {
		sums[i], parts[i] = fn.Zs(2), fn.Zs(2)
	}
	fn.I("MOVQ", t.Field("tile_columns"), row)
	fn.I("KMOVD", row, asmgen.K(1))
	fn.I("KSHIFTRD", asmgen.Imm(16), asmgen.K(1), asmgen.K(2))
	bs, spare := fn.Zs(2), fn.Zs(2)
	scaled := by.frame(int8Block{fn: fn, a: a, b: b, sums: sums, parts: parts, bs: bs, spare: spare})
	next := fn.Label("next")
	fn.Place(next)
	k.start(fn, t, sum, sumStride, out, outStride, row, sums)
	fn.I("MOVQ", panel, a)
	fn.I("MOVQ", t.Field("tile_b"), b)
	fn.I("MOVQ", t.Field("tile_steps"), steps)
	block := fn.Label("block")
	fn.Align(64)
	fn.Place(block)
	load := func(step int) {
		for j, v := range bs {
			fn.I("VMOVUPS", b.At(128*step+64*j), v)
		}
	}
	scaled.start()
	for step := range recordCodes {
		load(step)
		for i, p := range parts {
			x := spare[i%2]
			fn.I("VPBROADCASTD", a.At(4*(step*mr+i)), x)
			fn.I("VPDPBUSD", bs[0], x, p[0])
			fn.I("VPDPBUSD", bs[1], x, p[1])
		}
	}
	scaled.finish()
	fn.I("ADDQ", asmgen.Imm(4*recordSteps*int64(mr)), a)
	fn.I("ADDQ", asmgen.Imm(128*recordSteps), b)
	fn.I("SUBQ", asmgen.Imm(recordSteps), steps)
	fn.I("JNZ", block)
	fn.I("ADDQ", t.Field("tile_aStride"), panel)
	plain, stored := fn.Label("plain"), fn.Label("stored")
	fn.I("TESTQ", out, out)
	fn.I("JZ", plain)
	// No sum is NaN: a block's product is finite before it is added, and a rounded result does not
	// start from another sum.
	r := newRounding(fn, constants, [3]asmgen.Vec{bs[0], bs[1], spare[0]})
	for _, s := range sums {
		for j, v := range s {
			r.store(v, asmgen.K(1+j), out.At(32*j))
		}
		fn.I("ADDQ", outStride, out)
		fn.I("ADDQ", sumStride, sum)
	}
	fn.I("JMP", stored)
	fn.Place(plain)
	microkernel{width: 64}.finish(fn, t, sum, sumStride, sum, sumStride, [4]asmgen.Reg{a, b, steps, row}, sums)
	fn.Place(stored)
	fn.I("DECQ", count)
	fn.I("JNZ", next)
	fn.Return()
}

// int8Sums fills in the step of sums.
func int8Sums(f *asmgen.File) {
	fn := f.Func("int8SumsAVX512", "int8SumsAVX512 stores -128 times the sums of the codes of up to 16 columns, masked by lanes, in records (> 0) records.\n"+
		"Steps are step bytes apart.",
		asmgen.Arg("panel", "unsafe.Pointer"), asmgen.Arg("records", "int"), asmgen.Arg("step", "int"), asmgen.Arg("lanes", "int"))
	panel, n, step, lanes := fn.Load("panel"), fn.Load("records"), fn.Load("step"), fn.Load("lanes")
	ones, zero, v := fn.Z(), fn.Z(), fn.Z()
	fn.I("KMOVW", lanes, asmgen.K(1))
	fn.I("VPBROADCASTD", f.Data32("ones", 0x01010101), ones)
	fn.I("VPXORD", zero, zero, zero)
	fn.CountDown(n, func() {
		fn.I("VPXORD", v, v, v)
		for range recordSums {
			fn.I("VPDPBUSD", panel.At(0), ones, v)
			fn.I("ADDQ", step, panel)
		}
		fn.I("VPSLLD", asmgen.Imm(7), v, v)
		fn.I("VPSUBD", v, zero, v)
		fn.I("VMOVUPS", v, asmgen.K(1), panel.At(0))
		fn.I("LEAQ", panel.At(0).Index(step, recordSteps-recordSums), panel)
	})
	fn.Return()
}
