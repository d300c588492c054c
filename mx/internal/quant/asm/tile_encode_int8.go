package main

// Encoding as INT8. Every code is a significand shifted right. The shift works on words with the
// 8-bit significand in the upper byte, so the bits shifted out move to the lower byte. The upper
// byte is then the code rounded down, and the lower byte decides the rounding.

import "spmoe/tensor/asmgen"

type integerEncoder struct {
	*encoder
	x                              asmgen.Reg // current row of the input
	odd, even, leading, half, zero asmgen.Vec
}

func newIntegerEncoder(e *encoder) *integerEncoder {
	i := &integerEncoder{encoder: e, x: e.field("Tile_X"), odd: loadZ(e.Func, e.file.odd), even: loadZ(e.Func, e.file.even),
		leading: broadcastZ(e.Func, "VPBROADCASTW", e.file.leading), half: e.file.broadcastByte(e.Func, 0x80), zero: e.Z()}
	i.I("VPXORD", i.zero, i.zero, i.zero)
	for _, o := range e.outputs {
		if o.cols {
			o.shifts = [2]asmgen.Vec{loadZ(e.Func, e.work.At(workColShifts)), loadZ(e.Func, e.work.At(workColShifts+64))}
		}
	}
	return i
}

// encodeRow encodes one row.
func (i *integerEncoder) encodeRow() {
	const negative, right = asmgen.Mask(1), asmgen.Mask(2)
	var significands, exponents [2]asmgen.Vec
	for half, sign := range []asmgen.Mask{negative, right} {
		significands[half], exponents[half] = loadZ(i.Func, i.x.At(64*half)), i.Z()
		s, e := significands[half], exponents[half]
		i.I("VPMOVW2M", s, sign)
		i.I("VPADDW", s, s, e)
		i.I("VPSRLW", asmgen.Imm(8), e, e)
		i.I("VPSLLW", asmgen.Imm(8), s, s)
		i.I("VPORD", i.leading, s, s)
	}
	i.I("KUNPCKDQ", negative, right, negative)
	for _, o := range i.outputs {
		shifted := [2]asmgen.Vec{i.Z(), i.Z()}
		for half, v := range shifted {
			i.I("VPSUBW", exponents[half], i.loadShifts(o, half, v), v)
			i.I("VPSRLVW", v, significands[half], v)
		}
		i.round(o, shifted)
		i.I("VPMINUB", i.largest, o.code, o.code)
		i.I("VPSUBB", o.code, i.zero, negative, o.code)
		i.store(o)
	}
	i.Free(significands[0], significands[1], exponents[0], exponents[1])
	i.I("ADDQ", i.tile.Field("Tile_Stride"), i.x)
	i.I("ADDQ", asmgen.Imm(2), i.work)
}

// loadShifts returns the shifts of half a row. It may use v to hold them.
func (i *integerEncoder) loadShifts(o *output, half int, v asmgen.Vec) asmgen.Vec {
	if o.cols {
		return o.shifts[half]
	}
	i.I("VPBROADCASTW", i.work.At(workRowShifts+64*half), v)
	return v
}

// round rounds to nearest, ties to even. It rounds up if the fraction exceeds one half after the
// last bit of the code is ORed into it.
func (i *integerEncoder) round(o *output, shifted [2]asmgen.Vec) {
	const below, or, up = 1, 0xf8, asmgen.Mask(3)
	fraction := i.Z()
	o.code = shifted[0]
	i.I("VMOVDQA64", shifted[0], fraction)
	i.I("VPERMT2B", shifted[1], i.even, fraction)
	i.I("VPERMT2B", shifted[1], i.odd, o.code)
	i.I("VPTERNLOGD", asmgen.Imm(or), i.one, o.code, fraction)
	i.I("VPCMPUB", asmgen.Imm(below), fraction, i.half, up)
	i.I("VPADDB", i.one, o.code, up, o.code)
	i.Free(shifted[1], fraction)
}
