package main

// The kernels for few rows of a and adjacent rows of b, for E4M3 codes. They decode in registers as
// in direct_mx.go: 128 codes at a time by shifts. All 128 are decoded by tables if any is zero,
// subnormal or NaN.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// acrossData holds constants: vectors of byte indices, and words for every lane.
type acrossData struct {
	codedData
	// Copies the codes of 16 columns and two steps (32 columns apart) to both bytes of words.
	spread [2]asmgen.Mem
	join   [2]asmgen.Mem // the same, with low bytes from one vector and high bytes from the next
}

func acrossMX(f *asmgen.File) {
	var data acrossData
	data.field, data.least, data.bias = f.Data32("field", 0x87f0_87f0), f.Data32("least", 0xf0f0_f0f0), f.Data32("bias", 7<<23|7<<7)
	data.one = f.Data32("one", 0x7f7f_7f7f)
	for half := range 2 {
		var spread, join []byte
		for i := range byte(16) {
			c := i + 16*byte(half)
			spread = append(spread, c, c, c+32, c+32)
			join = append(join, c, c+64, c+32, c+96)
		}
		data.spread[half], data.join[half] = f.Data(fmt.Sprintf("spread%d", half), spread), f.Data(fmt.Sprintf("join%d", half), join)
	}
	for rows := 1; rows <= acrossMXRows; rows++ {
		c := &acrossCoded{acrossKernel: newAcross(f, fmt.Sprintf("acrossMXx%dAVX512", rows), "codes of E4M3", rows, 1, acrossAVX512), acrossData: data}
		c.kernel()
	}
}

// acrossCoded is an acrossKernel for codes.
type acrossCoded struct {
	*acrossKernel
	acrossData
	scales, tables asmgen.Reg
	// Exponent increments from the scales of 32 columns; the indices in spread; decoded pairs of
	// steps.
	scale, index, bs []asmgen.Vec
	xs               []asmgen.Vec // undecoded codes
	y, mask, low     asmgen.Vec   // mask and low hold field and least
	temps            []asmgen.Vec
}

func (c *acrossCoded) kernel() {
	fn := c.fn
	c.scales, c.tables = fn.GP(), fn.GP()
	c.scale, c.index, c.bs, c.xs, c.y, c.mask, c.low = fn.Zs(2), fn.Zs(2), fn.Zs(4), fn.Zs(2), fn.Z(), fn.Z(), fn.Z()
	c.temps = fn.Zs(3)
	fn.I("MOVQ", c.t.Field("across_codes"), c.tables)
	for j, v := range c.index {
		fn.I("VMOVUPS", c.spread[j], v)
	}
	fn.I("VPBROADCASTD", c.field, c.mask)
	fn.I("VPBROADCASTD", c.least, c.low)
	c.groups(c.group, func([]asmgen.Vec) {})
}

// group multiplies along k, in blocks of 32.
func (c *acrossCoded) group() {
	fn, t := c.fn, c.t
	fn.I("MOVQ", t.Field("across_scales"), c.scales)
	fn.I("ADDQ", t.Field("across_moved+moves_scales"), c.scales)
	fn.I("ADDQ", asmgen.Imm(32), t.Field("across_moved+moves_scales"))
	fn.I("MOVQ", t.Field("across_k"), c.steps)
	fn.I("MOVQ", c.steps, t.Field("across_left"))
	block, last, short, two, done := fn.Label("block"), fn.Label("last"), fn.Label("short"), fn.Label("two"), fn.Label("done")
	fn.Place(block)
	c.prepare()
	fn.I("ADDQ", t.Field("across_scaleStride"), c.scales)
	fn.I("MOVQ", t.Field("across_left"), c.steps)
	fn.I("CMPQ", c.steps, asmgen.Imm(32))
	fn.I("JLT", last)
	fn.I("MOVQ", asmgen.Imm(32), c.steps)
	fn.Place(last)
	fn.I("SUBQ", c.steps, t.Field("across_left"))
	fn.I("SHRQ", asmgen.Imm(2), c.steps)
	fn.I("JZ", short)
	fn.CountDown(c.steps, func() {
		c.pairs(4)
		c.advance(2)
	})
	fn.Place(short)
	fn.I("CMPQ", t.Field("across_left"), asmgen.Imm(0))
	fn.I("JNE", block)
	fn.I("TESTQ", asmgen.Imm(2), t.Field("across_k"))
	fn.I("JZ", two)
	c.pairs(2)
	c.advance(1)
	fn.Place(two)
	fn.I("TESTQ", asmgen.Imm(1), t.Field("across_k"))
	fn.I("JZ", done)
	c.pairs(1)
	fn.Place(done)
}

// prepare notes the scales of a block and converts them to increments for the exponents of its
// codes.
func (c *acrossCoded) prepare() {
	fn, t, x := c.fn, c.t, c.xs[0]
	fn.I("VMOVDQU64", c.scales.At(0), x.Y())
	for j, v := range c.scale {
		fn.I("VPMOVZXBD", c.scales.At(16*j), v)
	}
	for _, note := range []struct {
		op string
		at asmgen.Field
	}{{"VPMINUB", "across_notes+notes_min"}, {"VPMAXUB", "across_notes+notes_max"}} {
		fn.I(note.op, t.Field(note.at), x.Y(), c.y.Y())
		fn.I("VMOVDQU64", c.y.Y(), t.Field(note.at))
	}
	fn.I("VPBROADCASTD", c.bias, c.y)
	for _, v := range c.scale {
		exponents(fn, v, x)
		fn.I("VPSUBW", c.y, v, v)
	}
}

// pairs decodes the codes of steps steps (4, 2 or 1) and multiplies.
func (c *acrossCoded) pairs(steps int) {
	fn := c.fn
	xs := c.xs[:(steps+1)/2]
	for i, x := range xs {
		fn.I("VMOVDQU64", c.step(2*i), x.Y())
		if 2*i+1 < steps {
			fn.I("VINSERTI64X4", asmgen.Imm(1), c.step(2*i+1), x, x)
		}
		// Twice the code minus twice the smallest normal code. It drops the sign and is large for
		// zero, subnormals and NaN.
		twice := []asmgen.Vec{c.y, c.temps[0]}[i]
		fn.I("VPADDB", x, x, twice)
		fn.I("VPADDB", c.low, twice, twice)
		if i > 0 {
			fn.I("VPMAXUB", twice, c.y, c.y)
		}
	}
	rare, decoded := fn.Label("rare"), fn.Label("decoded")
	fn.I("VPCMPUB", asmgen.Imm(5), c.tables.Field("directCodes_rare"), c.y, asmgen.K(3)) // not less
	fn.I("KORTESTQ", asmgen.K(3), asmgen.K(3))
	fn.I("JNZ", rare)
	for i, x := range xs {
		for j, v := range c.bs[2*i : 2*i+2] {
			fn.I("VPERMB", x, c.index[j], v)
			fn.I("VPSRAW", asmgen.Imm(4), v, v)
			fn.I("VPANDD", c.mask, v, v)
			fn.I("VPADDW", c.scale[j], v, v)
		}
	}
	fn.Place(decoded)
	for i := range xs {
		c.multiply(c.bs[2*i:2*i+2], i)
	}
	fn.Aside(rare, decoded, func() {
		for i, x := range xs {
			c.lookUp(x, c.bs[2*i:2*i+2])
		}
	})
}

// lookUp decodes by tables, as in direct_mx.go.
func (c *acrossCoded) lookUp(codes asmgen.Vec, to []asmgen.Vec) {
	fn := c.fn
	low, high, temp := c.temps[0], c.temps[1], c.temps[2]
	lookUpBytes(fn, c.tables, "directCodes_codeTables", codes, low, high, temp)
	fn.I("VPORD.BCST", c.one, codes, codes)
	fn.I("VPANDD", codes, high, high) // all entries except that of 0 have the sign bit set
	fn.I("VPORD", c.t.Field("across_notes+notes_bad"), low, temp)
	fn.I("VMOVUPS", temp, c.t.Field("across_notes+notes_bad"))
	for j, v := range to {
		fn.I("VMOVUPS", c.join[j], v)
		fn.I("VPERMI2B", high, low, v)
		fn.I("VPBROADCASTD", c.tables.Field("directCodes_top"), temp)
		fn.I("VPSUBW", c.scale[j], temp, temp)
		fn.I("VPSUBUSW", temp, v, v)
	}
}
