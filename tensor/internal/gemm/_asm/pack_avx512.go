package main

// Packing for AVX-512. For each step of k, a panel stores one dword for each of its rows. "along"
// is the direction of k.
//
// Every store is a whole vector. What it writes past the panel's rows is overwritten by the next
// step's store. After the last step it falls into the next panel or the buffer's slack. Reads are
// masked to the source.

import (
	"spmoe/tensor/asmgen"
)

func packAVX512(f *asmgen.File) {
	rowsAVX512(f, "packRowsAVX512", false)
	rowsAVX512(f, "packRowsSplitAVX512", true)
	interleaveAVX512(f, "interleave16AVX512", 16)
	interleaveAVX512(f, "interleave32AVX512", 32)
	widenAVX512(f, "widen16AVX512", 16)
	widenAVX512(f, "widen32AVX512", 32)
	copyAVX512(f, "copy16AVX512", 16)
	copyAVX512(f, "copy32AVX512", 32)
}

// rowsAVX512 packs 16 rows that are contiguous along k. It transposes 16 by 16 dwords.
func rowsAVX512(f *asmgen.File, name string, split bool) {
	doc := " packs 16 rows that are contiguous along k; row i begins at src + offsets[i].\n" +
		"It stores ceil(words/2) steps of 16 dwords, step bytes apart; tail masks the last words%32 words. It prefetches the same number of bytes from ahead bytes past src."
	if split {
		doc += "\nOf each pair of BF16 it stores two steps of FP32: the second element, then the first."
	}
	fn := f.Func(name, name+doc, asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("offsets", "*[16]int"),
		asmgen.Arg("words", "int"), asmgen.Arg("tail", "int"), asmgen.Arg("step", "int"), asmgen.Arg("ahead", "int"))
	dst, src, offsets, words, step := fn.Load("dst"), fn.Load("src"), fn.Load("offsets"), fn.Load("words"), fn.Load("step")
	ahead := fn.Load("ahead")
	fn.I("ADDQ", src, ahead)
	blocks, r := fn.GP(), fn.GP()
	rows, other := fn.Zs(16), fn.Zs(16)

	load := func(masked bool) {
		for i, v := range rows {
			fn.I("MOVQ", offsets.At(8*i), r)
			if masked {
				fn.I("VMOVDQU16.Z", src.At(0).Index(r, 1), asmgen.K(1), v)
			} else {
				fn.I("VMOVDQU16", src.At(0).Index(r, 1), v)
			}
		}
	}
	store := func(v asmgen.Vec) {
		if split {
			high, even := other[0], other[1]
			fn.I("VPSLLD", asmgen.Imm(16), v, even)
			fn.I("VPANDD", high, v, v)
			fn.I("VMOVUPS", v, dst.At(0))
			fn.I("VMOVUPS", even, dst.At(0).Index(step, 1))
			fn.I("LEAQ", dst.At(0).Index(step, 2), dst)
		} else {
			fn.I("VMOVUPS", v, dst.At(0))
			fn.I("ADDQ", step, dst)
		}
	}
	transpose := func() {
		transpose16(fn, rows, other)
		if split {
			fn.I("VPTERNLOGD", asmgen.Imm(0xff), other[0], other[0], other[0])
			fn.I("VPSLLD", asmgen.Imm(16), other[0], other[0])
		}
	}

	last, done := fn.Label("last"), fn.Label("done")
	fn.I("MOVQ", words, blocks)
	fn.I("SHRQ", asmgen.Imm(5), blocks)
	fn.I("JZ", last)
	fn.CountDown(blocks, func() {
		load(false)
		// In one piece: 16 rows read in parallel are more streams than the hardware follows.
		for i := range 16 {
			fn.I("PREFETCHT1", ahead.At(64*i))
		}
		fn.I("ADDQ", asmgen.Imm(1024), ahead)
		transpose()
		for _, v := range rows {
			store(v)
		}
		fn.I("ADDQ", asmgen.Imm(64), src)
	})
	fn.Place(last)
	fn.I("ANDQ", asmgen.Imm(31), words)
	fn.I("JZ", done)
	fn.I("MOVQ", fn.Slot("tail"), r)
	fn.I("KMOVD", r, asmgen.K(1))
	load(true)
	transpose()
	for _, v := range rows {
		store(v)
		fn.I("SUBQ", asmgen.Imm(2), words)
		fn.I("JLE", done)
	}
	fn.Place(done)
	fn.Return()
}

// transpose16 transposes a 16 by 16 matrix of dwords in place. other is overwritten.
func transpose16(fn *asmgen.Func, rows, other []asmgen.Vec) {
	transposeQuads(fn, rows, other) // lane l of rows[4g+c] is column 4l+c of rows 4g to 4g+3
	for c := range 4 {
		fn.I("VSHUFF32X4", asmgen.Imm(0x88), rows[4+c], rows[c], other[c])
		fn.I("VSHUFF32X4", asmgen.Imm(0xdd), rows[4+c], rows[c], other[4+c])
		fn.I("VSHUFF32X4", asmgen.Imm(0x88), rows[12+c], rows[8+c], other[8+c])
		fn.I("VSHUFF32X4", asmgen.Imm(0xdd), rows[12+c], rows[8+c], other[12+c])
	}
	for c := range 4 {
		fn.I("VSHUFF32X4", asmgen.Imm(0x88), other[8+c], other[c], rows[c])
		fn.I("VSHUFF32X4", asmgen.Imm(0x88), other[12+c], other[4+c], rows[4+c])
		fn.I("VSHUFF32X4", asmgen.Imm(0xdd), other[8+c], other[c], rows[8+c])
		fn.I("VSHUFF32X4", asmgen.Imm(0xdd), other[12+c], other[4+c], rows[12+c])
	}
}

// transposeQuads transposes 4 by 4 dwords in every lane of each four rows. other is overwritten.
func transposeQuads(fn *asmgen.Func, rows, other []asmgen.Vec) {
	for i := 0; i < len(rows); i += 2 {
		fn.I("VUNPCKLPS", rows[i+1], rows[i], other[i])
		fn.I("VUNPCKHPS", rows[i+1], rows[i], other[i+1])
	}
	for g := 0; g < len(rows); g += 4 {
		fn.I("VUNPCKLPD", other[g+2], other[g], rows[g])
		fn.I("VUNPCKHPD", other[g+2], other[g], rows[g+1])
		fn.I("VUNPCKLPD", other[g+3], other[g+1], rows[g+2])
		fn.I("VUNPCKHPD", other[g+3], other[g+1], rows[g+3])
	}
}

// lanesArgs is acrossArgs with lane masks K1 (rows 0 to 15) and K2 (16 to 31).
func lanesArgs(f *asmgen.File, name, what string) (fn *asmgen.Func, dst, src, stride, k, step asmgen.Reg) {
	fn, dst, src, stride, k, step = acrossArgs(f, name, what, "; bit i of lanes says that row i exists", asmgen.Arg("lanes", "int"))
	lanes := fn.Load("lanes")
	fn.I("KMOVD", lanes, asmgen.K(1))
	fn.I("KSHIFTRD", asmgen.Imm(16), asmgen.K(1), asmgen.K(2))
	return
}

// interleaveAVX512 puts the BF16 of two rows of k side by side.
func interleaveAVX512(f *asmgen.File, name string, lanes int) {
	fn, dst, src, stride, k, step := lanesArgs(f, name, "ceil(k/2) steps of pairs of BF16")
	even, odd, low := fn.Z(), fn.Z(), fn.Z()
	index := make([]asmgen.Vec, lanes/16)
	for h := range index {
		index[h] = fn.Z()
		var words []uint32
		for i := 16 * h; i < 16*h+16; i++ {
			words = append(words, uint32(32+i)<<16|uint32(i))
		}
		fn.I("VMOVUPS", f.Data32(name+"Index"+string(rune('0'+h)), words...), index[h])
	}
	load := func(from asmgen.Mem, v asmgen.Vec) {
		if lanes == 16 {
			fn.I("VMOVDQU16.Z", from, asmgen.K(1), v.Y())
		} else {
			fn.I("VMOVDQU16.Z", from, asmgen.K(1), v)
		}
	}
	pairs(fn, k, func(single bool) {
		load(src.At(0), even)
		if single {
			fn.I("VPXORD", odd, odd, odd)
		} else {
			load(src.At(0).Index(stride, 1), odd)
			fn.I("LEAQ", src.At(0).Index(stride, 2), src)
		}
		if lanes == 32 {
			fn.I("VMOVDQA64", even, low)
			fn.I("VPERMT2W", odd, index[0], low)
			fn.I("VPERMT2W", odd, index[1], even)
			fn.I("VMOVUPS", low, dst.At(0))
			fn.I("VMOVUPS", even, dst.At(64))
		} else {
			fn.I("VPERMT2W", odd, index[0], even)
			fn.I("VMOVUPS", even, dst.At(0))
		}
		fn.I("ADDQ", step, dst)
	})
	fn.Return()
}

// widenAVX512 converts BF16 to FP32. Of every two rows of k the second comes first, the order in
// which VDPBF16PS adds.
func widenAVX512(f *asmgen.File, name string, lanes int) {
	fn, dst, src, stride, k, step := lanesArgs(f, name, "2*ceil(k/2) steps of FP32, of every two the second first")
	v := fn.Z()
	row := func(from, to asmgen.Mem) {
		for h := range lanes / 16 {
			fn.I("VPMOVZXWD.Z", from.Plus(32*h), asmgen.K(1+h), v)
			fn.I("VPSLLD", asmgen.Imm(16), v, v)
			fn.I("VMOVUPS", v, to.Plus(64*h))
		}
	}
	pairs(fn, k, func(single bool) {
		if single {
			fn.I("VPXORD", v, v, v)
			for h := range lanes / 16 {
				fn.I("VMOVUPS", v, dst.At(64*h))
			}
		} else {
			row(src.At(0).Index(stride, 1), dst.At(0))
		}
		row(src.At(0), dst.At(0).Index(step, 1))
		fn.I("LEAQ", src.At(0).Index(stride, 2), src)
		fn.I("LEAQ", dst.At(0).Index(step, 2), dst)
	})
	fn.Return()
}

// copyAVX512 copies FP32.
func copyAVX512(f *asmgen.File, name string, lanes int) {
	fn, dst, src, stride, k, step := lanesArgs(f, name, "k (> 0) steps of FP32")
	v := fn.Z()
	fn.CountDown(k, func() {
		for h := range lanes / 16 {
			fn.I("VMOVUPS.Z", src.At(64*h), asmgen.K(1+h), v)
			fn.I("VMOVUPS", v, dst.At(64*h))
		}
		fn.I("ADDQ", stride, src)
		fn.I("ADDQ", step, dst)
	})
	fn.Return()
}
