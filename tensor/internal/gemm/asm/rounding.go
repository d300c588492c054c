package main

// Rounding sums to BF16 before they are stored.

import "spmoe/tensor/asmgen"

// rounding rounds FP32 to BF16, to nearest even. Unlike VCVTNEPS2BF16 it keeps subnormals. It does
// not handle NaN.
type rounding struct {
	fn              *asmgen.Func
	one, half, temp asmgen.Vec
}

type roundingData struct{ one, half asmgen.Mem }

func newRoundingData(f *asmgen.File) roundingData {
	return roundingData{f.Data32("one", 1), f.Data32("half", 0x7fff)}
}

func newRounding(fn *asmgen.Func, d roundingData, vs [3]asmgen.Vec) rounding {
	fn.I("VPBROADCASTD", d.one, vs[0])
	fn.I("VPBROADCASTD", d.half, vs[1])
	return rounding{fn, vs[0], vs[1], vs[2]}
}

// store stores the lanes in mask.
func (r rounding) store(v asmgen.Vec, mask asmgen.Mask, to asmgen.Mem) {
	r.fn.I("VPSRLD", asmgen.Imm(16), v, r.temp)
	r.fn.I("VPANDD", r.one, r.temp, r.temp)
	r.fn.I("VPADDD", r.half, r.temp, r.temp)
	r.fn.I("VPADDD", v, r.temp, r.temp)
	r.fn.I("VPSRLD", asmgen.Imm(16), r.temp, r.temp)
	r.fn.I("VPMOVDW", r.temp, r.temp.Y())
	r.fn.I("VMOVDQU16", r.temp.Y(), mask, to)
}
