package main

// Packing for NEON, into panels of FP32. Assembly handles whole vectors, and Go handles the tails.

import "spmoe/tensor/asmgen"

func packNEON(f *asmgen.File) {
	rowsNEON(f, "packRowsNEON", false)
	rowsNEON(f, "packRowsSplitNEON", true)
	widenNEON(f)
	copyNEON(f)
	roundNEON(f)
}

// rowsNEON packs 4 rows that are contiguous along k. It transposes 4 by 4 dwords.
func rowsNEON(f *asmgen.File, name string, split bool) {
	doc := " packs 4 rows that are contiguous along k; row i begins at src + offsets[i].\n" +
		"It stores blocks (> 0) times 4 steps of 4 dwords, step bytes apart."
	if split {
		doc += "\nOf each pair of BF16 it stores two steps of FP32: the second element, then the first."
	}
	fn := f.Func(name, name+doc, asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("offsets", "*[4]int"),
		asmgen.Arg("blocks", "int"), asmgen.Arg("step", "int"))
	dst, src, offsets, blocks, step := fn.Load("dst"), fn.Load("src"), fn.Load("offsets"), fn.Load("blocks"), fn.Load("step")
	var from [4]asmgen.Reg
	for i := range from {
		from[i] = fn.GP()
		fn.I("MOVD", offsets.At(8*i), from[i])
		fn.I("ADD", src, from[i])
	}
	rows, other, high := fn.Vs(4), fn.Vs(4), fn.V()
	if split {
		highHalves(fn, high, offsets)
	}
	put := func(v asmgen.Neon) {
		fn.I("FMOVQ", v, dst.At(0))
		fn.I("ADD", step, dst)
	}
	fn.CountDown(blocks, func() {
		for i, v := range rows {
			fn.I("FMOVQ", from[i].At(0), v)
			fn.I("ADD", asmgen.Imm(16), from[i])
		}
		transpose4(fn, rows, other)
		for i, v := range rows {
			if !split {
				put(v)
				continue
			}
			fn.I("VAND", high.B16(), v.B16(), other[i].B16())
			put(other[i])
			fn.I("VSHL", asmgen.Imm(16), v.S4(), v.S4())
			put(v)
		}
	})
	fn.Return()
}

// highHalves sets all lanes of v to a mask of the upper 16 bits. It overwrites r.
func highHalves(fn *asmgen.Func, v asmgen.Neon, r asmgen.Reg) {
	fn.I("MOVD", asmgen.Imm(0xffff_0000), r)
	fn.I("VDUP", r, v.S4())
}

// transpose4 transposes a 4 by 4 matrix of dwords in place.
func transpose4(fn *asmgen.Func, rows, temp []asmgen.Neon) {
	for i := 0; i < 4; i += 2 {
		fn.I("VTRN1", rows[i+1].S4(), rows[i].S4(), temp[i].S4())
		fn.I("VTRN2", rows[i+1].S4(), rows[i].S4(), temp[i+1].S4())
	}
	for i := range 2 {
		fn.I("VZIP1", temp[2+i].D2(), temp[i].D2(), rows[i].D2())
		fn.I("VZIP2", temp[2+i].D2(), temp[i].D2(), rows[2+i].D2())
	}
}

// widenNEON converts 4 BF16 rows to FP32. Of every two elements of k the second comes first, the
// order in which VDPBF16PS adds.
func widenNEON(f *asmgen.File) {
	fn, dst, src, stride, k, step := acrossArgs(f, "widenNEON", "2*ceil(k/2) steps of 4 FP32, of every two the second first", "")
	second, n, v := fn.GP(), fn.GP(), fn.V()
	widen := func(from asmgen.Reg) {
		fn.I("FMOVD", from.At(0), v)
		fn.I("VSHLL", asmgen.Imm(16), v.H4(), v.S4())
		fn.I("FMOVQ", v, dst.At(0))
		fn.I("ADD", step, dst)
	}
	last, done := fn.Label("last"), fn.Label("done")
	fn.I("ADD", src, stride, second)
	fn.I("LSL", asmgen.Imm(1), stride)
	fn.I("LSR", asmgen.Imm(1), k, n)
	fn.I("CBZ", n, last)
	fn.CountDown(n, func() {
		widen(second)
		widen(src)
		fn.I("ADD", stride, second)
		fn.I("ADD", stride, src)
	})
	fn.Place(last)
	fn.I("TBZ", asmgen.Imm(0), k, done)
	fn.I("VMOVI", asmgen.Imm(0), v.B16())
	fn.I("FMOVQ", v, dst.At(0))
	fn.I("ADD", step, dst)
	widen(src)
	fn.Place(done)
	fn.Return()
}

// copyNEON copies 4 rows of FP32.
func copyNEON(f *asmgen.File) {
	fn, dst, src, stride, k, step := acrossArgs(f, "copyNEON", "k (> 0) steps of 4 FP32", "")
	v := fn.V()
	fn.CountDown(k, func() {
		fn.I("FMOVQ", src.At(0), v)
		fn.I("FMOVQ", v, dst.At(0))
		fn.I("ADD", stride, src)
		fn.I("ADD", step, dst)
	})
	fn.Return()
}

// roundNEON rounds FP32 to BF16.
func roundNEON(f *asmgen.File) {
	fn := f.Func("roundNEON", "roundNEON rounds n (> 0) groups of 16 FP32 to BF16, to nearest even; a NaN becomes quiet.",
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("n", "int"))
	dst, src, n, r := fn.Load("dst"), fn.Load("src"), fn.Load("n"), fn.GP()
	constant := func(x int64) asmgen.Neon {
		v := fn.V()
		fn.I("MOVD", asmgen.Imm(x), r)
		fn.I("VDUP", r, v.S4())
		return v
	}
	one, half, quiet := constant(1), constant(0x7fff), constant(0x400000)
	x, rounded, number := fn.Vs(4), fn.Vs(4), fn.Vs(4)
	fn.CountDown(n, func() {
		for i := 0; i < 4; i += 2 {
			fn.I("FLDPQ", src.At(16*i), asmgen.Pair{x[i], x[i+1]})
		}
		for i, v := range x {
			t, is := rounded[i], number[i]
			fn.I("VUSHR", asmgen.Imm(16), v.S4(), t.S4())
			fn.I("VAND", one.B16(), t.B16(), t.B16())
			fn.I("VADD", half.S4(), t.S4(), t.S4())
			fn.I("VADD", v.S4(), t.S4(), t.S4())
			fn.I("VFCMEQ", v.S4(), v.S4(), is.S4())
			fn.I("VORR", quiet.B16(), v.B16(), v.B16())
			fn.I("VBSL", v.B16(), t.B16(), is.B16())
		}
		fn.I("VUZP2", number[1].H8(), number[0].H8(), x[0].H8())
		fn.I("VUZP2", number[3].H8(), number[2].H8(), x[1].H8())
		fn.I("FSTPQ", asmgen.Pair{x[0], x[1]}, dst.At(0))
		fn.I("ADD", asmgen.Imm(64), src)
		fn.I("ADD", asmgen.Imm(32), dst)
	})
	fn.Return()
}
