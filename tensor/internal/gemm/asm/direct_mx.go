package main

// Products with few rows of a, where b holds block-scaled codes. The codes are decoded in
// registers.
//
// A normal E4M3 code becomes BF16 by shifts and an addition to the exponent, which do not occupy
// the multipliers. Steps with any other code (zero, subnormal or NaN) use a table. So do all steps
// of other formats.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// directMX generates the kernels for codes: 64 of each row at a time, after the scales of 512.
func directMX(f *asmgen.File) {
	data := codedData{
		field: f.Data32("field", 0x87f0_87f0), least: f.Data32("least", 0xf0f0_f0f0), bias: f.Data32("bias", 7<<23|7<<7),
	}
	constants := decoderConstants(f)
	data.order, data.one = constants.order, constants.magnitude
	for rows := 1; rows <= directPanelRows; rows++ {
		columns := min(6, directWidth(rows, 4)) // general registers do not suffice for more
		k := newDirect(f, fmt.Sprintf("directMXx%dAVX512", rows), "codes", rows, columns)
		k.codes(data)
	}
}

// codedData holds constants. All except order are the same in every lane.
type codedData struct {
	// Words: the positions of the sign, exponent and mantissa of a code after a shift.
	field asmgen.Mem
	least asmgen.Mem // bytes: minus twice the smallest normal code
	one   asmgen.Mem // bytes: a scale of 1; mask of all bits but the sign of a code
	bias  asmgen.Mem // words: 7, at the position of the exponent
	order asmgen.Mem // order of quadwords for which unpacking leaves codes in order
}

// codedKernel is a directKernel for codes.
type codedKernel struct {
	*directKernel
	codedData
	scales, scaleStride, step, blocks, tables asmgen.Reg
	bs                                        []asmgen.Vec // 32 elements of each row of b
	x, y, mask, low                           asmgen.Vec   // mask and low hold field and least
}

func (k *directKernel) codes(data codedData) {
	fn := k.fn
	c := &codedKernel{directKernel: k, codedData: data, scales: fn.GP(), scaleStride: fn.GP(), step: fn.GP(), blocks: fn.GP(), tables: fn.GP()}
	fn.I("MOVQ", k.t.Field("direct_scaleStride"), c.scaleStride)
	fn.I("MOVQ", k.t.Field("direct_codes"), c.tables)
	for range k.rows {
		k.sums = append(k.sums, fn.Zs(k.columns))
	}
	k.groups(func() {
		c.bs, c.x, c.y, c.mask, c.low = fn.Zs(k.columns), fn.Z(), fn.Z(), fn.Z(), fn.Z()
		c.group()
		fn.Free(append(operands(c.bs), c.x, c.y, c.mask, c.low)...)
	})
	fn.Return()
}

// group multiplies along whole rows of b.
func (c *codedKernel) group() {
	fn, t := c.fn, c.t
	fn.I("MOVQ", t.Field("direct_scales"), c.scales)
	fn.I("ADDQ", t.Field("direct_moved+moves_scales"), c.scales)
	fn.I("IMUL3Q", asmgen.Imm(int64(c.columns)), c.scaleStride, c.step)
	fn.I("ADDQ", c.step, t.Field("direct_moved+moves_scales"))
	fn.I("MOVQ", t.Field("direct_steps"), c.steps)
	fn.I("MOVQ", c.steps, t.Field("direct_left"))
	fn.I("MOVQ", t.Field("direct_blocks"), c.blocks)
	fn.I("KMOVQ", t.Field("direct_wholeScales"), asmgen.K(1))
	c.constants()
	block, whole, full, next, done := fn.Label("block"), fn.Label("whole"), fn.Label("full"), fn.Label("nextBlock"), fn.Label("done")
	fn.Place(block)
	fn.I("CMPQ", c.blocks, asmgen.Imm(1))
	fn.I("JNE", whole)
	fn.I("KMOVQ", t.Field("direct_lastScales"), asmgen.K(1))
	fn.Place(whole)
	c.prepare()
	fn.I("MOVQ", t.Field("direct_left"), c.steps)
	fn.I("CMPQ", c.steps, asmgen.Imm(8))
	fn.I("JLE", full)
	fn.I("MOVQ", asmgen.Imm(8), c.steps)
	fn.Place(full)
	fn.I("SUBQ", c.steps, t.Field("direct_left"))
	fn.I("TESTQ", c.steps, c.steps)
	fn.I("JZ", next)
	fn.CountDown(c.steps, func() {
		c.codesOf(false)
		fn.I("ADDQ", asmgen.Imm(int64(128*c.rows)), c.a)
		fn.I("ADDQ", asmgen.Imm(8), c.step)
		c.advance(64)
	})
	fn.Place(next)
	fn.I("ADDQ", asmgen.Imm(16), c.scales)
	fn.I("DECQ", c.blocks)
	fn.I("JNZ", block)
	fn.I("CMPQ", t.Field("direct_tail"), asmgen.Imm(0))
	fn.I("JEQ", done)
	fn.I("KMOVQ", t.Field("direct_tail"), asmgen.K(2))
	fn.I("KSHIFTRQ", asmgen.Imm(32), asmgen.K(2), asmgen.K(4))
	c.codesOf(true)
	fn.Place(done)
}

func (c *codedKernel) constants() {
	c.fn.I("VPBROADCASTD", c.field, c.mask)
	c.fn.I("VPBROADCASTD", c.least, c.low)
}

// prepare notes the next 16 scales of each row and converts them to exponent increments of 32 codes
// each.
func (c *codedKernel) prepare() {
	fn, t := c.fn, c.t
	steps, least, most := c.bs[0], c.bs[1], c.bs[2]
	fn.I("MOVQ", t.Field("direct_scalesAhead"), c.step)
	fn.I("MOVQ", c.scales, c.steps)
	fn.I("VPBROADCASTD", c.bias, c.y)
	fn.I("VMOVUPS", t.Field("direct_notes+notes_min"), least)
	fn.I("VMOVUPS", t.Field("direct_notes+notes_max"), most)
	for i := range c.columns {
		fn.I("PREFETCHT0", c.steps.At(0).Index(c.step, 1))
		fn.I("VPBROADCASTD", c.one, c.x)
		fn.I("VMOVDQU8", c.steps.At(0), asmgen.K(1), c.x)
		fn.I("VPMINUB", c.x, least, least)
		fn.I("VPMAXUB", c.x, most, most)
		fn.I("VPMOVZXBD", c.x.X(), steps)
		fn.I("VPSLLD", asmgen.Imm(7), steps, steps)
		fn.I("VPSLLD", asmgen.Imm(16), steps, c.x)
		fn.I("VPORD", c.x, steps, steps)
		fn.I("VPSUBW", c.y, steps, steps)
		fn.I("VMOVUPS", steps, t.Field("direct_rowSteps").Plus(64*i))
		fn.I("ADDQ", c.scaleStride, c.steps)
	}
	fn.I("VMOVUPS", least, t.Field("direct_notes+notes_min"))
	fn.I("VMOVUPS", most, t.Field("direct_notes+notes_max"))
	fn.I("LEAQ", t.Field("direct_rowSteps"), c.step)
}

// codesOf decodes and multiplies 64 codes of each row in two halves. In the tail it decodes those
// in K2.
func (c *codedKernel) codesOf(tail bool) {
	fn := c.fn
	for i := range c.columns {
		from, most := asmgen.Operand(c.row(i)), c.x
		if i == 0 {
			most = c.y
		}
		if tail {
			fn.I("VMOVDQU8.Z", from, asmgen.K(2), c.x)
		} else {
			fn.I("VMOVUPS", from, c.x)
		}
		// Twice the code minus twice the smallest normal code. It drops the sign and is large for
		// zero, subnormals and NaN.
		fn.I("VPADDB", c.x, c.x, c.x)
		fn.I("VPADDB", c.low, c.x, most)
		if i > 0 {
			fn.I("VPMAXUB", c.x, c.y, c.y)
		}
	}
	fn.I("VPCMPUB", asmgen.Imm(5), c.tables.Field("directCodes_rare"), c.y, asmgen.K(3)) // not less
	for half := range 2 {
		rare, decoded := fn.Label("rare"), fn.Label("decoded")
		fn.I("KORTESTQ", asmgen.K(3), asmgen.K(3))
		fn.I("JNZ", rare)
		for i, v := range c.bs {
			c.normal(i, half, tail, v)
		}
		fn.Place(decoded)
		c.multiply(c.bs, 64*c.rows*half, c.x)
		fn.Aside(rare, decoded, func() {
			if half == 0 {
				c.lookUp(tail)
			} else {
				for i, v := range c.bs {
					fn.I("VMOVUPS", c.t.Field("direct_second").Plus(64*i), v)
				}
			}
		})
	}
}

// normal decodes 32 codes of row i that are normal numbers.
func (c *codedKernel) normal(i, half int, tail bool, v asmgen.Vec) {
	from := c.row(i).Plus(32 * half)
	if tail {
		c.fn.I("VPMOVSXBW.Z", from, asmgen.K(2+2*half), v)
	} else {
		c.fn.I("VPMOVSXBW", from, v)
	}
	c.fn.I("VPBROADCASTD", c.step.At(64*i+4*half), c.x)
	c.fn.I("VPSLLW", asmgen.Imm(4), v, v)
	c.fn.I("VPANDD", c.mask, v, v)
	c.fn.I("VPADDW", c.x, v, v)
}

// lookUp decodes with two tables, which give the halves of a value times 2^t. A saturating
// subtraction from the exponent applies the scale and leaves zeros unchanged. The second 32 of each
// row go to memory.
func (c *codedKernel) lookUp(tail bool) {
	fn := c.fn
	low, high, temp, bad := c.x, c.mask, c.y, c.low
	fn.I("VMOVUPS", c.t.Field("direct_notes+notes_bad"), bad)
	for i, v := range c.bs {
		codes := asmgen.Operand(c.row(i))
		if tail {
			fn.I("VMOVDQU8.Z", codes, asmgen.K(2), v)
			codes = v
		}
		fn.I("VMOVUPS", c.order, temp)
		fn.I("VPERMQ", codes, temp, v)
		lookUpBytes(fn, c.tables, "directCodes_codeTables", v, low, high, temp)
		fn.I("VPORD.BCST", c.one, v, v)
		fn.I("VPANDD", v, high, high) // all entries except that of 0 have the sign bit set
		fn.I("VPORD", low, bad, bad)
		fn.I("VPUNPCKLBW", high, low, v)
		fn.I("VPUNPCKHBW", high, low, low)
		for half, words := range []asmgen.Vec{v, low} {
			fn.I("VPBROADCASTD", c.tables.Field("directCodes_top"), temp)
			fn.I("VPBROADCASTD", c.step.At(64*i+4*half), high)
			fn.I("VPSUBW", high, temp, temp)
			fn.I("VPSUBUSW", temp, words, words)
		}
		fn.I("VMOVUPS", low, c.t.Field("direct_second").Plus(64*i))
	}
	fn.I("VMOVUPS", bad, c.t.Field("direct_notes+notes_bad"))
	c.constants()
}
