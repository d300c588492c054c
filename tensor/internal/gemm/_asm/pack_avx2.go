package main

// Packing for AVX2, into panels of FP32. Assembly handles whole vectors, and Go handles the tails.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

func packAVX2(f *asmgen.File) {
	rowsAVX2(f, "packRowsAVX2", false)
	rowsAVX2(f, "packRowsSplitAVX2", true)
	for lanes := 1; lanes <= 8; lanes++ {
		widenAVX2(f, fmt.Sprintf("widen%dAVX2", lanes), lanes)
	}
	copyAVX2(f)
	roundAVX2(f)
}

// rowsAVX2 packs 8 rows that are contiguous along k. It transposes 8 by 8 dwords.
func rowsAVX2(f *asmgen.File, name string, split bool) {
	doc := " packs 8 rows that are contiguous along k; row i begins at src + offsets[i].\n" +
		"It stores blocks (> 0) times 8 steps of 8 dwords, step bytes apart."
	if split {
		doc += "\nOf each pair of BF16 it stores two steps of FP32: the second element, then the first."
	}
	fn := f.Func(name, name+doc, asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("offsets", "*[16]int"),
		asmgen.Arg("blocks", "int"), asmgen.Arg("step", "int"))
	dst, src, offsets, blocks, step := fn.Load("dst"), fn.Load("src"), fn.Load("offsets"), fn.Load("blocks"), fn.Load("step")
	r := fn.GP()
	rows, other := fn.Ys(8), fn.Ys(8)
	fn.CountDown(blocks, func() {
		for i, v := range rows {
			fn.I("MOVQ", offsets.At(8*i), r)
			fn.I("VMOVUPS", src.At(0).Index(r, 1), v)
		}
		rows, other = transpose8(fn, rows, other)
		if split {
			fn.I("VPCMPEQD", other[0], other[0], other[0])
			fn.I("VPSLLD", asmgen.Imm(16), other[0], other[0])
		}
		for _, v := range rows {
			if split {
				fn.I("VPSLLD", asmgen.Imm(16), v, other[1])
				fn.I("VPAND", other[0], v, v)
			}
			fn.I("VMOVUPS", v, dst.At(0))
			fn.I("ADDQ", step, dst)
			if split {
				fn.I("VMOVUPS", other[1], dst.At(0))
				fn.I("ADDQ", step, dst)
			}
		}
		fn.I("ADDQ", asmgen.Imm(32), src)
	})
	fn.Return()
}

// transpose8 transposes an 8 by 8 matrix of dwords into the registers of other. It returns the
// result and the free registers.
func transpose8(fn *asmgen.Func, rows, other []asmgen.Vec) (result, free []asmgen.Vec) {
	for i := 0; i < 8; i += 2 {
		fn.I("VUNPCKLPS", rows[i+1], rows[i], other[i])
		fn.I("VUNPCKHPS", rows[i+1], rows[i], other[i+1])
	}
	// Afterwards lane l of rows[4g+c] is column 4l+c of rows 4g to 4g+3.
	for g := 0; g < 8; g += 4 {
		fn.I("VUNPCKLPD", other[g+2], other[g], rows[g])
		fn.I("VUNPCKHPD", other[g+2], other[g], rows[g+1])
		fn.I("VUNPCKLPD", other[g+3], other[g+1], rows[g+2])
		fn.I("VUNPCKHPD", other[g+3], other[g+1], rows[g+3])
	}
	for c := range 4 {
		fn.I("VPERM2F128", asmgen.Imm(0x20), rows[4+c], rows[c], other[c])
		fn.I("VPERM2F128", asmgen.Imm(0x31), rows[4+c], rows[c], other[4+c])
	}
	return other, rows
}

// widenAVX2 converts lanes BF16 rows to FP32. Of every two elements of k the second comes first,
// the order in which VDPBF16PS adds.
func widenAVX2(f *asmgen.File, name string, lanes int) {
	fn, dst, src, stride, k, step := acrossArgs(f, name, fmt.Sprintf("2*ceil(k/2) steps of %d FP32, of every two the second first", lanes), "")
	v := fn.Y()
	widen := func(from, to asmgen.Mem) {
		switch {
		case lanes == 8:
			fn.I("VPMOVZXWD", from, v)
		default:
			from0 := 0
			if lanes >= 4 {
				fn.I("VMOVQ", from, v.X())
				from0 = 4
			} else {
				fn.I("VPXOR", v.X(), v.X(), v.X())
			}
			for i := from0; i < lanes; i++ {
				fn.I("VPINSRW", asmgen.Imm(int64(i)), from.Plus(2*i), v.X(), v.X())
			}
			fn.I("VPMOVZXWD", v.X(), v)
		}
		fn.I("VPSLLD", asmgen.Imm(16), v, v)
		fn.I("VMOVUPS", v, to)
	}
	pairs(fn, k, func(single bool) {
		if single {
			fn.I("VXORPS", v, v, v)
			fn.I("VMOVUPS", v, dst.At(0))
		} else {
			widen(src.At(0).Index(stride, 1), dst.At(0))
		}
		widen(src.At(0), dst.At(0).Index(step, 1))
		fn.I("LEAQ", src.At(0).Index(stride, 2), src)
		fn.I("LEAQ", dst.At(0).Index(step, 2), dst)
	})
	fn.Return()
}

// copyAVX2 copies up to 8 rows of FP32.
func copyAVX2(f *asmgen.File) {
	fn, dst, src, stride, k, step := acrossArgs(f, "copyAVX2", "k (> 0) steps of up to 8 FP32", "; mask has all ones for a row that exists", asmgen.Arg("mask", "*[8]int32"))
	r := fn.Load("mask")
	v, mask := fn.Y(), fn.Y()
	fn.I("VMOVUPS", r.At(0), mask)
	fn.CountDown(k, func() {
		fn.I("VMASKMOVPS", src.At(0), mask, v)
		fn.I("VMOVUPS", v, dst.At(0))
		fn.I("ADDQ", stride, src)
		fn.I("ADDQ", step, dst)
	})
	fn.Return()
}

// roundAVX2 rounds FP32 to BF16.
func roundAVX2(f *asmgen.File) {
	fn := f.Func("roundAVX2", "roundAVX2 rounds n (> 0) groups of 16 FP32 to BF16, to nearest even; a NaN becomes quiet.",
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("n", "int"))
	dst, src, n := fn.Load("dst"), fn.Load("src"), fn.Load("n")
	one, half, quiet := fn.Y(), fn.Y(), fn.Y()
	fn.I("VPBROADCASTD", f.Data32("one", 1), one)
	fn.I("VPBROADCASTD", f.Data32("half", 0x7fff), half)
	fn.I("VPBROADCASTD", f.Data32("quiet", 0x400000), quiet)
	x, rounded, nan := fn.Ys(2), fn.Ys(2), fn.Y()
	fn.CountDown(n, func() {
		for i, v := range x {
			fn.I("VMOVUPS", src.At(32*i), v)
			fn.I("VPSRLD", asmgen.Imm(16), v, rounded[i])
			fn.I("VPAND", one, rounded[i], rounded[i])
			fn.I("VPADDD", half, rounded[i], rounded[i])
			fn.I("VPADDD", v, rounded[i], rounded[i])
			fn.I("VCMPPS", asmgen.Imm(3), v, v, nan)
			fn.I("VPOR", quiet, v, v)
			fn.I("VPBLENDVB", nan, v, rounded[i], rounded[i])
			fn.I("VPSRLD", asmgen.Imm(16), rounded[i], rounded[i])
		}
		fn.I("VPACKUSDW", rounded[1], rounded[0], rounded[0])
		fn.I("VPERMQ", asmgen.Imm(0xd8), rounded[0], rounded[0])
		fn.I("VMOVUPS", rounded[0], dst.At(0))
		fn.I("ADDQ", asmgen.Imm(64), src)
		fn.I("ADDQ", asmgen.Imm(32), dst)
	})
	fn.Return()
}
