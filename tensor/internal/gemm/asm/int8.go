package main

// Products of MXINT8 by VPDPBUSD: exact integer sums of the 32 products of a block, which are then scaled into FP32 sums.
//
// For every block, panels hold records of 10 steps. A row panel: 8 steps of 4 codes plus 128 for each row, their scales, nothing.
// A column panel: 8 steps of 4 codes for each column, -128 times the columns' sums, which makes good for the 128, their scales.

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
	for rows := 1; rows <= int8Rows; rows++ {
		int8Tiles(f, rows)
	}
	int8Sums(f)
	packBytesAlong(f)
	packBytesAcross(f)
}

func int8Tiles(f *asmgen.File, mr int) {
	name := fmt.Sprintf("int8AVX512Tiles%d", mr)
	k := family{width: 64}
	fn := f.Func(name, fmt.Sprintf("%s multiplies row panels of %d rows with one column panel.", name, mr), asmgen.Arg("t", "*tile"))
	t := fn.Load("t")
	field := func(at int) asmgen.Reg { r := fn.GP(); fn.I("MOVQ", t.At(at), r); return r }
	panel, sum, sumStride, count := field(fieldA), field(fieldSum), field(fieldSumStride), field(fieldCount)
	a, b, steps, row := fn.GP(), fn.GP(), fn.GP(), fn.GP()
	sums, parts := make([][]asmgen.Vec, mr), make([][]asmgen.Vec, mr)
	for i := range sums {
		sums[i], parts[i] = fn.Zs(2), fn.Zs(2)
	}
	fn.I("MOVQ", t.At(fieldColumns), row)
	fn.I("KMOVD", row, asmgen.K(1))
	fn.I("KSHIFTRD", asmgen.Imm(16), asmgen.K(1), asmgen.K(2))
	bs, spare := fn.Zs(2), fn.Zs(2)
	next := fn.Label("next")
	fn.Place(next)
	k.start(fn, t, sum, sumStride, row, sums)
	fn.I("MOVQ", panel, a)
	fn.I("MOVQ", t.At(fieldB), b)
	fn.I("MOVQ", t.At(fieldSteps), steps)
	block := fn.Label("block")
	fn.Align(64)
	fn.Place(block)
	load := func(step int) {
		for j, v := range bs {
			fn.I("VMOVUPS", b.At(128*step+64*j), v)
		}
	}
	load(recordSums)
	for _, p := range parts {
		fn.I("VMOVDQA64", bs[0], p[0])
		fn.I("VMOVDQA64", bs[1], p[1])
	}
	for step := range recordCodes {
		load(step)
		for i, p := range parts {
			x := spare[i%2]
			fn.I("VPBROADCASTD", a.At(4*(step*mr+i)), x)
			fn.I("VPDPBUSD", bs[0], x, p[0])
			fn.I("VPDPBUSD", bs[1], x, p[1])
		}
	}
	load(recordScales)
	for i, p := range parts {
		for j, v := range p {
			fn.I("VCVTDQ2PS", v, v)
			fn.I("VMULPS", bs[j], v, v)
			fn.I("VFMADD231PS.BCST", a.At(4*(recordScaleA*mr+i)), v, sums[i][j])
		}
	}
	fn.I("ADDQ", asmgen.Imm(4*recordSteps*int64(mr)), a)
	fn.I("ADDQ", asmgen.Imm(128*recordSteps), b)
	fn.I("SUBQ", asmgen.Imm(recordSteps), steps)
	fn.I("JNZ", block)
	fn.I("ADDQ", t.At(fieldAStride), panel)
	k.finish(fn, sum, sumStride, sum, sumStride, sums)
	fn.I("DECQ", count)
	fn.I("JNZ", next)
	fn.Return()
}

// int8Sums fills in the step of sums.
func int8Sums(f *asmgen.File) {
	fn := f.Func("int8SumsAVX512", "int8SumsAVX512 puts -128 times the sums of each column's codes into records (> 0) records of a column panel.",
		asmgen.Arg("panel", "unsafe.Pointer"), asmgen.Arg("records", "int"))
	panel, n := fn.Load("panel"), fn.Load("records")
	ones, zero := fn.Z(), fn.Z()
	sums := fn.Zs(2)
	fn.I("VPBROADCASTD", f.Data32("ones", 0x01010101), ones)
	fn.I("VPXORD", zero, zero, zero)
	fn.CountDown(n, func() {
		for j, v := range sums {
			fn.I("VPXORD", v, v, v)
			for step := range recordCodes {
				fn.I("VPDPBUSD", panel.At(128*step+64*j), ones, v)
			}
			fn.I("VPSLLD", asmgen.Imm(7), v, v)
			fn.I("VPSUBD", v, zero, v)
			fn.I("VMOVUPS", v, panel.At(128*recordSums+64*j))
		}
		fn.I("ADDQ", asmgen.Imm(128*recordSteps), panel)
	})
	fn.Return()
}

const flipDoc = " flip is added to every code, byte by byte (exclusive or).\nIt stores records of 10 steps, of which it fills the first 8."

// packBytesAlong packs 16 rows whose codes along k are neighbours.
func packBytesAlong(f *asmgen.File) {
	fn := f.Func("packBytesAVX512", "packBytesAVX512 packs 16 rows that are contiguous along k; row i begins at src + offsets[i].\n"+
		"A record has 32 codes of each row; steps are step bytes apart."+flipDoc,
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("offsets", "*[16]int"),
		asmgen.Arg("records", "int"), asmgen.Arg("step", "int"), asmgen.Arg("flip", "*uint32"))
	dst, src, offsets, records, step := fn.Load("dst"), fn.Load("src"), fn.Load("offsets"), fn.Load("records"), fn.Load("step")
	flip, r := fn.Load("flip"), fn.GP()
	rows, other := fn.Zs(16), fn.Zs(16)
	store := func(vs []asmgen.Vec) {
		for _, v := range vs {
			fn.I("VPXORD.BCST", flip.At(0), v, v)
			fn.I("VMOVUPS", v, dst.At(0))
			fn.I("ADDQ", step, dst)
		}
		fn.I("LEAQ", dst.At(0).Index(step, recordSteps-recordCodes), dst)
	}
	pairs(fn, records, func(single bool) {
		for i, v := range rows {
			fn.I("MOVQ", offsets.At(8*i), r)
			if single {
				fn.I("VMOVDQU64", src.At(0).Index(r, 1), v.Y())
			} else {
				fn.I("VMOVDQU64", src.At(0).Index(r, 1), v)
			}
		}
		transpose16(fn, rows, other)
		store(rows[:recordCodes])
		if !single {
			store(rows[recordCodes:])
			fn.I("ADDQ", asmgen.Imm(64), src)
		}
	})
	fn.Return()
}

// packBytesAcross packs up to 16 rows whose codes are neighbours across k.
func packBytesAcross(f *asmgen.File) {
	fn := f.Func("interleaveBytesAVX512", "interleaveBytesAVX512 packs up to 16 rows that are neighbours in memory, those in lanes; along k they are stride bytes apart.\n"+
		"A record has 32 codes of each row; steps are step bytes apart."+flipDoc,
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("stride", "int"),
		asmgen.Arg("records", "int"), asmgen.Arg("step", "int"), asmgen.Arg("lanes", "int"), asmgen.Arg("flip", "*uint32"))
	dst, src, stride, records, step, lanes := fn.Load("dst"), fn.Load("src"), fn.Load("stride"), fn.Load("records"), fn.Load("step"), fn.Load("lanes")
	fn.I("KMOVD", lanes, asmgen.K(1))
	flip := fn.Z()
	fn.I("VPBROADCASTD", fn.Load("flip").At(0), flip)
	vs := fn.Zs(4)
	fn.CountDown(records, func() {
		for range recordCodes {
			for i, v := range vs {
				fn.I("VPMOVZXBD.Z", src.At(0), asmgen.K(1), v)
				fn.I("ADDQ", stride, src)
				if i > 0 {
					fn.I("VPSLLD", asmgen.Imm(int64(8*i)), v, v)
				}
			}
			fn.I("VPTERNLOGD", asmgen.Imm(0xfe), vs[2], vs[1], vs[0])
			fn.I("VPTERNLOGD", asmgen.Imm(0x56), flip, vs[3], vs[0]) // (first or second) exclusive or flip
			fn.I("VMOVUPS", vs[0], dst.At(0))
			fn.I("ADDQ", step, dst)
		}
		fn.I("LEAQ", dst.At(0).Index(step, recordSteps-recordCodes), dst)
	})
	fn.Return()
}
