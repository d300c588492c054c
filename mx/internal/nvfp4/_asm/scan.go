package main

// Largest magnitudes, and the scales of blocks.

import (
	"math"

	"spmoe/tensor/asmgen"
)

// amaxBlocks prints the largest magnitude of each 16 FP32.
func amaxBlocks(f *asmgen.File) {
	fn := f.Func("amaxBlocksAVX512", "amaxBlocksAVX512 takes n blocks.", append(pointers("out", "x"), asmgen.Arg("n", "int"))...)
	out, x, n := fn.Load("out"), fn.Load("x"), fn.Load("n")
	mask := constants{f, fn}.broadcast("blockMagnitude", magnitude)
	v := fn.Z()
	t := fn.Z()
	fn.CountDown(n, func() {
		fn.I("VPANDD", x.At(0), mask, v)
		fn.I("VEXTRACTI64X4", asmgen.Imm(1), v, t.Y())
		fn.I("VPMAXUD", t.Y(), v.Y(), v.Y())
		fn.I("VEXTRACTI128", asmgen.Imm(1), v.Y(), t.X())
		fn.I("VPMAXUD", t.X(), v.X(), v.X())
		for _, order := range []int64{0x4e, 0xb1} {
			fn.I("VPSHUFD", asmgen.Imm(order), v.X(), t.X())
			fn.I("VPMAXUD", t.X(), v.X(), v.X())
		}
		fn.I("VMOVD", v.X(), out.At(0))
		fn.I("ADDQ", asmgen.Imm(64), x)
		fn.I("ADDQ", asmgen.Imm(4), out)
	})
	fn.Return()
}

// amaxWords prints the largest magnitudes of BF16 in each of 32 lanes.
func amaxWords(f *asmgen.File) {
	fn := f.Func("amaxWordsAVX512", "amaxWordsAVX512 takes n vectors of 32 BF16 and updates the 32 words at most.", append(pointers("most", "x"), asmgen.Arg("n", "int"))...)
	most, x, n := fn.Load("most"), fn.Load("x"), fn.Load("n")
	mask := constants{f, fn}.broadcast("wordMagnitude", 0x7fff7fff)
	m := fn.Z()
	v := fn.Z()
	fn.I("VMOVDQU64", most.At(0), m)
	fn.CountDown(n, func() {
		fn.I("VPANDD", x.At(0), mask, v)
		fn.I("VPMAXUW", v, m, m)
		fn.I("ADDQ", asmgen.Imm(64), x)
	})
	fn.I("VMOVDQU64", m, most.At(0))
	fn.Return()
}

// scales prints the E4M3 scales of 16 blocks at a time. Adding a power of two rounds to E4M3's
// grid, as format.Element.EncodeScaled explains. Subtracting it again gives the rounded number.
func scales(f *asmgen.File) {
	fn := f.Func("scalesAVX512", "scalesAVX512 takes n groups of 16 blocks.",
		append(pointers("codes", "factors", "amax"), asmgen.Arg("n", "int"), asmgen.Arg("encode", "float32"), asmgen.Arg("decode", "float32"), asmgen.Result("odd", "bool"))...)
	codes := fn.Load("codes")
	factors := fn.Load("factors")
	amax := fn.Load("amax")
	n := fn.Load("n")
	c := constants{f, fn}
	encode, decode := fn.Z(), fn.Z()
	fn.I("VBROADCASTSS", fn.Slot("encode"), encode)
	fn.I("VBROADCASTSS", fn.Slot("decode"), decode)
	largest := c.broadcast("e4m3Largest", math.Float32bits(448))
	expo := c.broadcast("scaleExponent", exponent)
	smallest := c.broadcast("e4m3Smallest", (127-6)*one)
	step := c.broadcast("e4m3Step", 20*one)
	unit := c.broadcast("floatOne", math.Float32bits(1))
	most := c.broadcast("floatMost", math.Float32bits(math.MaxFloat32))
	inf := c.broadcast("scaleInfinity", exponent)
	nan := c.broadcast("e4m3NaN", 0x7f)
	a, s, own, grid, value := fn.Z(), fn.Z(), fn.Z(), fn.Z(), fn.Z()
	odd, any := asmgen.K(1), asmgen.K(2)
	fn.I("KXORW", any, any, any)
	fn.CountDown(n, func() {
		fn.I("VMOVUPS", amax.At(0), a)
		fn.I("VPCMPUD", asmgen.Imm(5), inf, a, odd) // at least infinity
		fn.I("KORW", odd, any, any)
		fn.I("VMULPS", encode, a, s)
		fn.I("VMINPS", largest, s, s)
		fn.I("VPANDD", expo, s, own)
		fn.I("VPMAXUD", smallest, own, own)
		fn.I("VPADDD", step, own, grid)
		fn.I("VADDPS", grid, s, s)
		fn.I("VSUBPS", grid, s, value)
		fn.I("VPSUBD", grid, s, s)
		fn.I("VPSUBD", smallest, own, own)
		fn.I("VPSRLD", asmgen.Imm(20), own, own)
		fn.I("VPADDD", own, s, s)
		fn.I("VMOVDQA32", nan, odd, s)
		fn.I("VPMOVDB", s, codes.At(0))
		fn.I("VMULPS", decode, value, value)
		fn.I("VDIVPS", value, unit, value)
		fn.I("VMINPS", most, value, value)
		fn.I("VMOVUPS", value, factors.At(0))
		fn.I("ADDQ", asmgen.Imm(64), amax)
		fn.I("ADDQ", asmgen.Imm(64), factors)
		fn.I("ADDQ", asmgen.Imm(16), codes)
	})
	fn.I("KTESTW", any, any)
	fn.I("SETNE", fn.Slot("odd"))
	fn.Return()
}
