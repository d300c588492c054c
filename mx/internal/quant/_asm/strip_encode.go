package main

// The strip encoders.
//
// Rounding a magnitude does not depend on the scale, because a power of two only changes the
// exponent field. So a magnitude is rounded to the format's mantissa once, as an integer. Each
// direction then subtracts its scale. A code below the smallest normal one must be rounded again.
// Vectors with such codes take a slower path.

import "spmoe/tensor/asmgen"

// A stripEncoder prints one encoder.
type stripEncoder struct {
	*asmgen.Func
	*stripFile
	strip, format, x                     asmgen.Reg
	magnitude, tieMask, tie, round, sign asmgen.Vec
	largest                              asmgen.Vec
	row                                  asmgen.Vec    // bias of the current row
	cols                                 [2]asmgen.Vec // biases of the columns
}

// direction is the destination of the codes of blocks along rows or columns, and the bias
// subtracted from them.
type direction struct {
	bias  [2]asmgen.Vec
	codes asmgen.Reg
	step  asmgen.Mem // bytes between rows of codes
}

func (s *stripFile) encode(rows, cols bool) {
	name := "encodeStrip" + map[[2]bool]string{{true, false}: "Rows", {false, true}: "Cols", {true, true}: "Both"}[[2]bool{rows, cols}] + "AVX2"
	fn := s.Func(name, name+" writes a strip that has been scanned.", asmgen.Arg("s", "*Strip"))
	e := stripEncoder{Func: fn, stripFile: s, strip: fn.Load("s"), format: fn.GP(), x: fn.GP(), row: fn.Y(), cols: [2]asmgen.Vec{fn.Y(), fn.Y()}}
	tile, scales := fn.GP(), fn.GP()
	fn.I("MOVQ", e.strip.Field("Strip_Format"), e.format)
	e.loadConstants()
	fn.I("XORL", tile, tile)
	fn.I("LEAQ", e.strip.Field("Strip_scales"), scales)
	head := fn.Label("tile")
	fn.Place(head)
	var directions []direction
	if rows {
		directions = append(directions, e.alongRows(tile, scales))
	}
	if cols {
		directions = append(directions, e.alongCols(tile, scales))
	}
	fn.I("MOVQ", tile, e.x)
	fn.I("SHLQ", asmgen.Imm(6), e.x)
	fn.I("ADDQ", e.strip.Field("Strip_X"), e.x)
	count, at := fn.GP(), fn.GP()
	fn.I("XORL", at, at)
	fn.I("MOVQ", e.strip.Field("Strip_Rows"), count)
	fn.CountDown(count, func() {
		if rows {
			fn.I("VPBROADCASTW", e.strip.Field("Strip_bias").Index(at, 2), e.row)
			fn.I("INCQ", at)
		}
		e.encodeVector(directions)
		fn.I("ADDQ", e.strip.Field("Strip_Stride"), e.x)
		for _, d := range directions {
			fn.I("ADDQ", d.step, d.codes)
		}
	})
	fn.Free(count, at)
	for _, d := range directions {
		fn.Free(d.codes)
	}
	fn.I("ADDQ", asmgen.Imm(64), scales)
	fn.I("INCQ", tile)
	fn.I("CMPQ", tile, e.strip.Field("Strip_Tiles"))
	fn.I("JLT", head)
	fn.Return()
}

func (e *stripEncoder) loadConstants() {
	e.magnitude, e.largest = loadY(e.Func, e.stripFile.magnitude), loadY(e.Func, e.format.Field("Format_largest"))
	e.sign = loadY(e.Func, e.stripFile.sign)
	e.tieMask, e.tie, e.round = loadY(e.Func, e.format.Field("Format_tieMask")), loadY(e.Func, e.format.Field("Format_tie")), loadY(e.Func, e.format.Field("Format_round"))
}

// alongRows writes the scales of a tile's rows and stores their biases in memory.
func (e *stripEncoder) alongRows(tile, scales asmgen.Reg) direction {
	for i := range 2 {
		v := e.Y()
		e.computeBias(scales.At(16*i), v)
		e.I("VMOVDQU", v, e.strip.Field("Strip_bias").Plus(32*i))
		e.Free(v)
	}
	to, at, count, codes := e.GP(), e.GP(), e.GP(), e.GP()
	e.I("MOVQ", e.strip.Field("Strip_RowScales"), to)
	e.I("ADDQ", tile, to)
	e.I("XORL", at, at)
	e.I("MOVQ", e.strip.Field("Strip_Rows"), count)
	e.CountDown(count, func() {
		e.I("MOVBLZX", scales.At(0).Index(at, 1), codes)
		e.I("MOVB", codes, to.At(0))
		e.I("ADDQ", e.strip.Field("Strip_RowScaleStep"), to)
		e.I("INCQ", at)
	})
	e.Free(to, at, count)
	e.I("MOVQ", tile, codes)
	e.I("SHLQ", asmgen.Imm(5), codes)
	e.I("ADDQ", e.strip.Field("Strip_RowCodes"), codes)
	return direction{[2]asmgen.Vec{e.row, e.row}, codes, e.strip.Field("Strip_RowStride")}
}

// alongCols writes the scales of a tile's columns and holds their biases in registers.
func (e *stripEncoder) alongCols(tile, scales asmgen.Reg) direction {
	to, codes, v := e.GP(), e.GP(), loadY(e.Func, scales.At(32))
	e.I("MOVQ", tile, codes)
	e.I("SHLQ", asmgen.Imm(5), codes)
	e.I("MOVQ", e.strip.Field("Strip_ColScales"), to)
	e.I("VMOVDQU", v, to.At(0).Index(codes, 1))
	e.Free(to, v)
	for i, c := range e.cols {
		e.computeBias(scales.At(32+16*i), c)
	}
	e.I("ADDQ", e.strip.Field("Strip_ColCodes"), codes)
	return direction{e.cols, codes, e.strip.Field("Strip_ColStride")}
}

// computeBias sets v to the amounts that 16 scales subtract from magnitudes.
func (e *stripEncoder) computeBias(scales asmgen.Mem, v asmgen.Vec) {
	zero, t := e.Y(), e.Y()
	e.I("VPXOR", zero, zero, zero)
	e.I("VPMOVZXBW", scales, v)
	e.I("VPCMPEQW", zero, v, zero)
	e.I("VPSUBW", e.format.Field("Format_exponent"), v, v)
	e.I("VPSLLW", e.format.Field("Format_mantissa"), v, v)
	e.I("VPAND", e.none, zero, t)
	e.I("VPANDN", v, zero, v)
	e.I("VPOR", t, v, v)
	e.Free(zero, t)
}

// encodeVector writes the codes of 32 elements of a row.
func (e *stripEncoder) encodeVector(directions []direction) {
	x := [2]asmgen.Vec{loadY(e.Func, e.x.At(0)), loadY(e.Func, e.x.At(32))}
	for n, c := range e.encodeMinifloats(directions, x) {
		e.I("VPOR", x[0], c, c)
		e.I("VPERMQ", asmgen.Imm(middleSwapped), c, c)
		e.I("VMOVDQU", c, directions[n].codes.At(0))
		e.Free(c)
	}
	e.Free(x[0])
}

// encodeMinifloats returns codes without signs. It leaves the signs in x[0].
func (e *stripEncoder) encodeMinifloats(directions []direction, x [2]asmgen.Vec) (codes []asmgen.Vec) {
	var m [2]asmgen.Vec
	for i := range m {
		m[i] = e.Y()
		e.I("VPAND", e.magnitude, x[i], m[i])
		e.roundMagnitudes(m[i])
	}
	e.I("VPACKSSWB", x[1], x[0], x[0]) // preserves signs, and never makes +0 negative
	e.I("VPAND", e.sign, x[0], x[0])
	e.Free(x[1])
	for n, d := range directions {
		var c [2]asmgen.Vec
		for i := range c {
			if c[i] = m[i]; n+1 < len(directions) {
				c[i] = e.Y()
			}
			e.I("VPSUBW", d.bias[i], m[i], c[i])
		}
		codes = append(codes, e.packBytes(c))
	}
	t, normal := e.Y(), e.GP()
	e.I("VPMINUB", codes[len(codes)-1], codes[0], t)
	e.I("VPCMPGTB", e.format.Field("Format_subnormal"), t, t)
	e.I("VPMOVMSKB", t, normal)
	e.I("CMPL", normal, asmgen.Imm(-1))
	e.Free(t, normal)
	done := e.Label("normal")
	e.I("JEQ", done)
	e.encodeSubnormals(directions, codes)
	e.Place(done)
	return codes
}

// packBytes packs words to bytes in c[0], clamped to the largest code. The bytes are in the order
// of the packing instruction.
func (e *stripEncoder) packBytes(c [2]asmgen.Vec) asmgen.Vec {
	e.I("VPACKUSWB", c[1], c[0], c[0])
	e.I("VPMINUB", e.largest, c[0], c[0])
	e.Free(c[1])
	return c[0]
}

// roundMagnitudes rounds magnitudes to the format's mantissa, to nearest even. It rounds half up
// and subtracts one where that made a tie odd.
func (e *stripEncoder) roundMagnitudes(m asmgen.Vec) {
	t := e.Y()
	e.I("VPAND", e.tieMask, m, t)
	e.I("VPCMPEQW", e.tie, t, t)
	e.I("VPMULHRSW", e.round, m, m)
	e.I("VPADDW", t, m, m)
	e.Free(t)
}

// encodeSubnormals computes the codes of 32 elements that may include subnormal codes.
func (e *stripEncoder) encodeSubnormals(directions []direction, codes []asmgen.Vec) {
	for n, d := range directions {
		c := [2]asmgen.Vec{codes[n], e.Y()}
		for i := range c {
			e.fixedPoint(i, d.bias[i], c[i])
		}
		e.packBytes(c)
	}
}

// fixedPoint sets c to the codes of half i of a row. The significand is multiplied by a factor that
// depends on the exponent. The product is a fixed-point number, and rounding it gives the code.
// Numbers with a normal code are rounded by roundMagnitudes instead.
func (e *stripEncoder) fixedPoint(i int, bias, c asmgen.Vec) {
	x, p, m := e.Y(), e.Y(), e.Y()
	e.I("VPAND", e.x.At(32*i), e.magnitude, x)
	e.I("VPSLLW", e.format.Field("Format_dropped"), bias, c)
	e.I("VPSUBW", c, x, m) // magnitudes with the exponents of the codes
	e.I("VPSRAW", asmgen.Imm(7), m, c)
	e.I("VPMAXSW", e.least, c, c)
	e.I("VPADDW", e.format.Field("Format_places"), c, c)
	e.I("VMOVDQU", e.format.Field("Format_factors"), p)
	e.I("VPSHUFB", c, p, p)
	e.I("VPAND", e.stripFile.mantissa, x, c)
	e.I("VPOR", e.implicit, c, c)
	e.I("VPMULLW", c, p, p)
	e.I("VPSRLW", e.format.Field("Format_point"), p, c)
	e.I("VPAND", e.one, c, c)
	e.I("VPADDW", c, p, p)
	e.I("VPADDW", e.format.Field("Format_half"), p, p)
	e.I("VPSRLW", e.format.Field("Format_point"), p, c)
	e.I("VPCMPGTW", e.normal, m, m)
	e.Free(p)
	e.roundMagnitudes(x)
	e.I("VPSUBW", bias, x, x)
	e.I("VPBLENDVB", m, x, c, c)
	e.Free(m, x)
}
