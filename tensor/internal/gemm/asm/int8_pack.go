package main

// Packing MXINT8 into records: codes by transposing dwords or permuting bytes, scales as FP32
// numbers.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

const flipDoc = " Every code is XORed with flip, byte by byte.\nIt stores records of 10 steps and fills the first 8 of them."

// packBytesAlong packs 16 rows that are contiguous along k.
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

// packBytes8Along packs up to 8 rows that are contiguous along k, for row panels. It transposes two
// blocks of 8 by 8 dwords at a time, one in each half of the vectors.
func packBytes8Along(f *asmgen.File) {
	fn := f.Func("packBytes8AVX512", "packBytes8AVX512 packs 8 rows that are contiguous along k; row i begins at src + offsets[i].\n"+
		"A record has 32 codes of each row; steps are step bytes apart."+flipDoc,
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("offsets", "*[16]int"),
		asmgen.Arg("records", "int"), asmgen.Arg("step", "int"), asmgen.Arg("flip", "*uint32"))
	dst, src, offsets, records, step := fn.Load("dst"), fn.Load("src"), fn.Load("offsets"), fn.Load("records"), fn.Load("step")
	r, flip := fn.GP(), fn.Z()
	fn.I("VPBROADCASTD", fn.Load("flip").At(0), flip)
	// Lane 0 of the upper four rows and of the lower four, then lane 2 of both; and lanes 1 and 3.
	index := fn.Zs(2)
	for h, v := range index {
		var lanes []uint32
		for _, q := range []uint32{0, 8, 4, 12} {
			for i := range uint32(2) {
				lanes = append(lanes, q+2*uint32(h)+i, 0)
			}
		}
		fn.I("VMOVUPS", f.Data32(fmt.Sprintf("halves%d", h), lanes...), v)
	}
	rows, other := fn.Zs(8), fn.Zs(8)
	pairs(fn, records, func(single bool) {
		for i, v := range rows {
			fn.I("MOVQ", offsets.At(8*i), r)
			if single {
				fn.I("VPXORD", src.At(0).Index(r, 1), flip.Y(), v.Y())
			} else {
				fn.I("VPXORD", src.At(0).Index(r, 1), flip, v)
			}
		}
		for i := 0; i < 8; i += 2 {
			fn.I("VPUNPCKLDQ", rows[i+1], rows[i], other[i])
			fn.I("VPUNPCKHDQ", rows[i+1], rows[i], other[i+1])
		}
		for i := 0; i < 8; i += 4 {
			for h := range 2 {
				fn.I("VPUNPCKLQDQ", other[i+2+h], other[i+h], rows[i+2*h])
				fn.I("VPUNPCKHQDQ", other[i+2+h], other[i+h], rows[i+2*h+1])
			}
		}
		for k := range recordCodes {
			v := other[k]
			fn.I("VMOVDQA64", index[k/4], v)
			fn.I("VPERMI2Q", rows[4+k%4], rows[k%4], v)
		}
		// One block after the other: a store's surplus lanes may reach into the next block.
		put := func(store func(v asmgen.Vec)) {
			for _, v := range other {
				store(v)
				fn.I("ADDQ", step, dst)
			}
			fn.I("LEAQ", dst.At(0).Index(step, recordSteps-recordCodes), dst)
		}
		put(func(v asmgen.Vec) { fn.I("VMOVDQU64", v.Y(), dst.At(0)) })
		if !single {
			put(func(v asmgen.Vec) { fn.I("VEXTRACTI64X4", asmgen.Imm(1), v, dst.At(0)) })
			fn.I("ADDQ", asmgen.Imm(64), src)
		}
	})
	fn.Return()
}

// packBytesAcross packs up to lanes (16 or 32) rows whose codes are adjacent across k. Masked loads
// put the rows' codes of several steps of k side by side in one vector. Permuting bytes then makes
// a dword of every four.
func packBytesAcross(f *asmgen.File, lanes int) {
	name := fmt.Sprintf("interleaveBytes%dAVX512", lanes)
	fn := f.Func(name, fmt.Sprintf("%s packs up to %d rows that are adjacent in memory, masked by lanes; along k they are stride bytes apart.\n"+
		"A record has 32 codes of each row; steps are step bytes apart.", name, lanes)+flipDoc,
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("stride", "int"),
		asmgen.Arg("records", "int"), asmgen.Arg("step", "int"), asmgen.Arg("lanes", "int"), asmgen.Arg("flip", "*uint32"))
	dst, src, stride, records, step, mask := fn.Load("dst"), fn.Load("src"), fn.Load("stride"), fn.Load("records"), fn.Load("step"), fn.Load("lanes")
	flip := fn.Z()
	fn.I("VPBROADCASTD", fn.Load("flip").At(0), flip)
	vectors := lanes / 16
	held := 4 / vectors // steps of k per vector
	for i := range held {
		fn.I("KMOVQ", mask, asmgen.K(1+i))
		fn.I("SHLQ", asmgen.Imm(int64(lanes)), mask)
	}
	vs, index := fn.Zs(vectors), fn.Zs(vectors)
	for h, v := range index {
		bytes := make([]byte, 64)
		for i := range bytes {
			bytes[i] = byte(lanes*(i%4) + 16*h + i/4)
		}
		fn.I("VMOVUPS", f.Data(fmt.Sprintf("%sIndex%d", name, h), bytes), v)
	}
	low := fn.Z()
	fn.CountDown(records, func() {
		for range recordCodes {
			for i := range 4 {
				load := "VMOVDQU8"
				if i%held == 0 {
					load = "VMOVDQU8.Z"
				}
				fn.I(load, src.At(-lanes*(i%held)), asmgen.K(1+i%held), vs[i/held])
				fn.I("ADDQ", stride, src)
			}
			if vectors == 1 {
				fn.I("VPERMB", vs[0], index[0], vs[0])
			} else {
				fn.I("VMOVDQA64", vs[0], low)
				fn.I("VPERMT2B", vs[1], index[0], low)
				fn.I("VPERMT2B", vs[1], index[1], vs[0])
				fn.I("VPXORD", flip, low, low)
				fn.I("VMOVUPS", low, dst.At(0))
			}
			fn.I("VPXORD", flip, vs[0], vs[0])
			fn.I("VMOVUPS", vs[0], dst.At(64*(vectors-1)))
			fn.I("ADDQ", step, dst)
		}
		fn.I("LEAQ", dst.At(0).Index(step, recordSteps-recordCodes), dst)
	})
	fn.Return()
}
