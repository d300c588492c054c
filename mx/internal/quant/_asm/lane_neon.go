package main

// The NEON kernels for any format, as on AVX2 (lane_encode.go, lane_decode.go). A vector has four
// FP32.

import "spmoe/tensor/asmgen"

func neonLanes() *asmgen.File {
	f := asmgen.NewFileARM64("quant", "go run ./_asm", "arm64 && !purego")
	neonAmaxRows(f)
	neonAmaxCols(f)
	neonEncode(f, "laneEncodeRows", false)
	neonEncode(f, "laneEncodeCols", true)
	neonDecode(f, "laneDecodeRows", false)
	neonDecode(f, "laneDecodeCols", true)
	return f
}

// neonFunc is a function under construction, with a register for constants.
type neonFunc struct {
	*asmgen.Func
	temp asmgen.Reg
}

func newNeonFunc(f *asmgen.File, name, doc string, args ...asmgen.Param) neonFunc {
	fn := f.Func(name, name+doc, args...)
	return neonFunc{fn, fn.GP()}
}

// constant fills the dwords of a new register.
func (fn neonFunc) constant(bits uint32) asmgen.Neon {
	v := fn.V()
	fn.I("MOVD", asmgen.Imm(int64(bits)), fn.temp)
	fn.I("VDUP", fn.temp, v.S4())
	return v
}

// field fills the dwords of a new register with a field, which load loads.
func (fn neonFunc) field(load string, from asmgen.Mem) asmgen.Neon {
	v := fn.V()
	fn.I(load, from, fn.temp)
	fn.I("VDUP", fn.temp, v.S4())
	return v
}

// shift returns the counts for VUSHL to shift by a field: to the left, or to the right.
func (fn neonFunc) shift(from asmgen.Mem, right bool) asmgen.Neon {
	v := fn.V()
	fn.I("MOVD", from, fn.temp)
	if right {
		fn.I("NEG", fn.temp, fn.temp)
	}
	fn.I("VDUP", fn.temp, v.S4())
	return v
}

func neonAmaxRows(f *asmgen.File) {
	fn := newNeonFunc(f, "laneAmaxRows", " takes n groups of 8 blocks.", append(pointer("out", "x"), asmgen.Arg("n", "int"))...)
	out, x, n := fn.Load("out"), fn.Load("x"), fn.Load("n")
	magnitude, most, t := fn.constant(1<<31-1), fn.Vs(4), fn.V()
	fn.CountDown(n, func() {
		for half := range 2 {
			for block, v := range most {
				fn.I("FMOVQ", x.At(128*block), v)
				fn.I("VAND", magnitude.B16(), v.B16(), v.B16())
				for i := 1; i < 8; i++ {
					fn.I("FMOVQ", x.At(128*block+16*i), t)
					fn.I("VAND", magnitude.B16(), t.B16(), t.B16())
					fn.I("VUMAX", t.S4(), v.S4(), v.S4())
				}
			}
			fn.I("VUMAXP", most[1].S4(), most[0].S4(), most[0].S4())
			fn.I("VUMAXP", most[3].S4(), most[2].S4(), most[2].S4())
			fn.I("VUMAXP", most[2].S4(), most[0].S4(), most[0].S4())
			fn.I("FMOVQ", most[0], out.At(16*half))
			fn.I("ADD", asmgen.Imm(4*128), x)
		}
		fn.I("ADD", asmgen.Imm(32), out)
	})
	fn.Return()
}

func neonAmaxCols(f *asmgen.File) {
	fn := newNeonFunc(f, "laneAmaxCols", " takes n blocks per row.", append(pointer("out", "x"), asmgen.Arg("rows", "int"), asmgen.Arg("n", "int"))...)
	out, x, n := fn.Load("out"), fn.Load("x"), fn.Load("n")
	stride, row, count := fn.GP(), fn.GP(), fn.GP()
	fn.I("LSL", asmgen.Imm(7), n, stride)
	magnitude, most, t := fn.constant(1<<31-1), fn.Vs(8), fn.V()
	fn.CountDown(n, func() {
		for _, v := range most {
			fn.I("VMOVI", asmgen.Imm(0), v.B16())
		}
		fn.I("MOVD", x, row)
		fn.I("MOVD", fn.Slot("rows"), count)
		fn.CountDown(count, func() {
			for i, v := range most {
				fn.I("FMOVQ", row.At(16*i), t)
				fn.I("VAND", magnitude.B16(), t.B16(), t.B16())
				fn.I("VUMAX", t.S4(), v.S4(), v.S4())
			}
			fn.I("ADD", stride, row)
		})
		for i, v := range most {
			fn.I("FMOVQ", v, out.At(16*i))
		}
		fn.I("ADD", asmgen.Imm(128), out)
		fn.I("ADD", asmgen.Imm(128), x)
	})
	fn.Return()
}

// neonEncode prints the encoder of blocks along rows or columns. format.Element.EncodeScaled
// explains why this rounds.
func neonEncode(f *asmgen.File, name string, cols bool) {
	fn := newNeonFunc(f, name, " takes n blocks.", append(pointer("codes", "x", "factors"), asmgen.Arg("n", "int"), asmgen.Arg("grid", "*Grid"))...)
	codes, x, factors, n, g := fn.Load("codes"), fn.Load("x"), fn.Load("factors"), fn.Load("n"), fn.Load("grid")
	largest, smallest, step := fn.field("MOVWU", g.Field("Grid_largest")), fn.field("MOVWU", g.Field("Grid_smallest")), fn.field("MOVWU", g.Field("Grid_step"))
	shift, bias := fn.shift(g.Field("Grid_shift"), true), fn.field("MOVHU", g.Field("Grid_bias"))
	magnitude, exponent := fn.constant(1<<31-1), fn.constant(0xff<<23)
	sign, subtract := fn.V(), fn.V()
	fn.I("FMOVQ", g.Field("Grid_sign"), sign)
	fn.I("FMOVQ", g.Field("Grid_subtract"), subtract)
	factor, e, power, bits, code := fn.V(), fn.V(), fn.V(), fn.Vs(4), fn.Vs(4)
	fn.CountDown(n, func() {
		if !cols {
			fn.I("MOVWU", factors.At(0), fn.temp)
			fn.I("VDUP", fn.temp, factor.S4())
		}
		for half := range 2 {
			for i := range 4 {
				at := 64*half + 16*i
				if cols {
					fn.I("FMOVQ", factors.At(at), factor)
				}
				b, c := bits[i], code[i]
				fn.I("FMOVQ", x.At(at), b)
				fn.I("VFMUL", factor.S4(), b.S4(), b.S4())
				fn.I("VAND", magnitude.B16(), b.B16(), c.B16())
				fn.I("VUMIN", largest.S4(), c.S4(), c.S4())
				fn.I("VAND", exponent.B16(), c.B16(), e.B16())
				fn.I("VUMAX", smallest.S4(), e.S4(), e.S4())
				fn.I("VADD", step.S4(), e.S4(), power.S4())
				fn.I("VFADD", power.S4(), c.S4(), c.S4())
				fn.I("VSUB", power.S4(), c.S4(), c.S4())
				fn.I("VUSHL", shift.S4(), e.S4(), e.S4())
				fn.I("VADD", e.S4(), c.S4(), c.S4())
				fn.I("VSUB", bias.S4(), c.S4(), c.S4())
			}
			// The lowest byte of each code, and the highest of each product, which has its sign.
			for i := 0; i < 4; i += 2 {
				fn.I("VUZP1", code[i+1].H8(), code[i].H8(), code[i].H8())
				fn.I("VUZP2", bits[i+1].H8(), bits[i].H8(), bits[i].H8())
			}
			fn.I("VUZP1", code[2].B16(), code[0].B16(), code[0].B16())
			fn.I("VUZP2", bits[2].B16(), bits[0].B16(), bits[0].B16())
			negative := bits[0]
			fn.I("VSSHR", asmgen.Imm(7), negative.B16(), negative.B16())
			fn.I("VAND", sign.B16(), negative.B16(), e.B16())
			fn.I("VEOR", e.B16(), code[0].B16(), code[0].B16())
			fn.I("VAND", subtract.B16(), negative.B16(), e.B16())
			fn.I("VSUB", e.B16(), code[0].B16(), code[0].B16())
			fn.I("FMOVQ", code[0], codes.At(16*half))
		}
		fn.I("ADD", asmgen.Imm(32), codes)
		fn.I("ADD", asmgen.Imm(128), x)
		fn.I("ADD", asmgen.Imm(map[bool]int64{false: 4, true: 128}[cols]), factors)
	})
	fn.Return()
}

// neonDecode prints the decoder of blocks along rows or columns, by the formula of lane_decode.go.
func neonDecode(f *asmgen.File, name string, cols bool) {
	fn := newNeonFunc(f, name, " takes n blocks.", append(pointer("dst", "codes", "scales"), asmgen.Arg("n", "int"), asmgen.Arg("d", "*Decoder"))...)
	dst, codes, scales, n, d := fn.Load("dst"), fn.Load("codes"), fn.Load("scales"), fn.Load("n"), fn.Load("d")
	magnitude, sign := fn.field("MOVWU", d.Field("Decoder_magnitude")), fn.field("MOVWU", d.Field("Decoder_sign"))
	infinity, numbers, bias := fn.field("MOVWU", d.Field("Decoder_infinity")), fn.field("MOVWU", d.Field("Decoder_numbers")), fn.field("MOVWU", d.Field("Decoder_bias"))
	left, right, signShift := fn.shift(d.Field("Decoder_mantissa"), false), fn.shift(d.Field("Decoder_mantissa"), true), fn.shift(d.Field("Decoder_signShift"), false)
	zero, less, exponent, quiet := fn.constant(0), fn.constant(1<<32-1), fn.constant(0xff<<23), fn.constant(0x1ff<<22)
	scale, m, e, value := fn.V(), fn.V(), fn.V(), fn.V()
	halves, words := fn.Vs(2), fn.Vs(4)
	one := func(negative asmgen.Neon, at int) {
		fn.I("VSSHR", asmgen.Imm(24), negative.S4(), negative.S4())
		fn.I("VAND", magnitude.B16(), negative.B16(), m.B16())
		fn.I("VUSHL", signShift.S4(), negative.S4(), negative.S4())
		fn.I("VAND", sign.B16(), negative.B16(), negative.B16())

		fn.I("VUSHL", right.S4(), m.S4(), e.S4())
		fn.I("VADD", less.S4(), e.S4(), e.S4())
		fn.I("VSMAX", zero.S4(), e.S4(), e.S4())
		fn.I("VUSHL", left.S4(), e.S4(), value.S4())
		fn.I("VSUB", value.S4(), m.S4(), value.S4())
		fn.I("VSCVTF", value.S4(), value.S4())
		fn.I("VADD", bias.S4(), e.S4(), e.S4())
		fn.I("VSHL", asmgen.Imm(23), e.S4(), e.S4())
		fn.I("VFMUL", e.S4(), value.S4(), value.S4())
		fn.I("VEOR", negative.B16(), value.B16(), value.B16())

		fn.I("VCMEQ", infinity.S4(), m.S4(), e.S4())
		fn.I("VAND", exponent.B16(), e.B16(), e.B16())
		fn.I("VORR", e.B16(), value.B16(), value.B16())
		fn.I("VCMGT", numbers.S4(), m.S4(), e.S4())
		fn.I("VBIT", e.B16(), quiet.B16(), value.B16())
		if cols {
			fn.I("FMOVQ", scales.At(at), scale)
		}
		fn.I("VFMUL", scale.S4(), value.S4(), value.S4())
		fn.I("FMOVQ", value, dst.At(at))
	}
	fn.CountDown(n, func() {
		if !cols {
			fn.I("MOVWU", scales.At(0), fn.temp)
			fn.I("VDUP", fn.temp, scale.S4())
		}
		for part := range 2 {
			fn.I("FMOVQ", codes.At(16*part), m)
			fn.I("VZIP1", m.B16(), zero.B16(), halves[0].B16())
			fn.I("VZIP2", m.B16(), zero.B16(), halves[1].B16())
			for i, half := range halves {
				fn.I("VZIP1", half.H8(), zero.H8(), words[2*i].H8())
				fn.I("VZIP2", half.H8(), zero.H8(), words[2*i+1].H8())
			}
			for i, v := range words {
				one(v, 64*part+16*i)
			}
		}
		fn.I("ADD", asmgen.Imm(128), dst)
		fn.I("ADD", asmgen.Imm(32), codes)
		fn.I("ADD", asmgen.Imm(map[bool]int64{false: 4, true: 128}[cols]), scales)
	})
	fn.Return()
}
