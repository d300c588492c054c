package main

// Products with few rows of a whose b holds block-scaled codes, which are decoded in registers.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// directMX prints the kernels for codes: 64 of each row at a time, after the scales of 512.
func directMX(f *asmgen.File) {
	order, magnitude := decoderData(f)
	for rows := 1; rows <= directRows; rows++ {
		columns := min(6, directWidth(rows, 9, 2)) // general registers do not do for more
		k := newDirect(f, fmt.Sprintf("directMXx%dAVX512", rows), "codes", rows, columns)
		k.codes(order, magnitude)
	}
}

// codedKernel is a directKernel for codes.
type codedKernel struct {
	*directKernel
	*decoder
	scales, scaleStride, step, blocks asmgen.Reg
	first, second                     []asmgen.Vec // 32 elements of each row of b, and the next 32
	x                                 asmgen.Vec
}

func (k *directKernel) codes(order, magnitude asmgen.Mem) {
	fn := k.fn
	c := &codedKernel{directKernel: k, scales: fn.GP(), scaleStride: fn.GP(), step: fn.GP(), blocks: fn.GP()}
	fn.I("MOVQ", k.t.At(directScaleStride), c.scaleStride)
	fn.I("MOVQ", k.t.At(directLookup), c.step)
	c.decoder = newDecoder(fn, c.step, order, magnitude)
	fn.I("VMOVUPS", k.t.At(directBad), c.bad)
	for range k.rows {
		k.sums = append(k.sums, fn.Zs(k.columns))
	}
	k.groups(func() {
		c.first, c.second, c.x = fn.Zs(k.columns), fn.Zs(k.columns), fn.Z()
		c.group()
		fn.Free(append(append(operands(c.first), operands(c.second)...), c.x)...)
	})
	fn.I("VMOVUPS", c.bad, k.t.At(directBad))
	fn.Return()
}

// group runs along whole rows of b.
func (c *codedKernel) group() {
	fn, t := c.directKernel.fn, c.t
	fn.I("MOVQ", t.At(directScales), c.scales)
	fn.I("ADDQ", t.At(directScalesMoved), c.scales)
	fn.I("IMUL3Q", asmgen.Imm(int64(c.columns)), c.scaleStride, c.step)
	fn.I("ADDQ", c.step, t.At(directScalesMoved))
	fn.I("MOVQ", t.At(directSteps), c.steps)
	fn.I("MOVQ", c.steps, t.At(directLeft))
	fn.I("MOVQ", t.At(directBlocks), c.blocks)
	fn.I("KMOVQ", t.At(directScaleMask), asmgen.K(1))
	block, whole, full, next, done := fn.Label("block"), fn.Label("whole"), fn.Label("full"), fn.Label("nextBlock"), fn.Label("done")
	fn.Place(block)
	fn.I("CMPQ", c.blocks, asmgen.Imm(1))
	fn.I("JNE", whole)
	fn.I("KMOVQ", t.At(directLastScaleMask), asmgen.K(1))
	fn.Place(whole)
	c.prepare()
	fn.I("MOVQ", t.At(directLeft), c.steps)
	fn.I("CMPQ", c.steps, asmgen.Imm(8))
	fn.I("JLE", full)
	fn.I("MOVQ", asmgen.Imm(8), c.steps)
	fn.Place(full)
	fn.I("SUBQ", c.steps, t.At(directLeft))
	fn.I("TESTQ", c.steps, c.steps)
	fn.I("JZ", next)
	fn.CountDown(c.steps, func() {
		c.codesOf(false)
		fn.I("ADDQ", asmgen.Imm(int64(128*c.rows)), c.a)
		fn.I("ADDQ", asmgen.Imm(8), c.step)
		c.advance()
	})
	fn.Place(next)
	fn.I("ADDQ", asmgen.Imm(16), c.scales)
	fn.I("DECQ", c.blocks)
	fn.I("JNZ", block)
	fn.I("CMPQ", t.At(directTail), asmgen.Imm(0))
	fn.I("JEQ", done)
	fn.I("KMOVQ", t.At(directTail), asmgen.K(2))
	c.codesOf(true)
	fn.Place(done)
}

// prepare turns the next 16 scales of each row into what is to be subtracted from exponents.
func (c *codedKernel) prepare() {
	fn, t, top, steps := c.directKernel.fn, c.t, c.x, c.first[0]
	fn.I("MOVQ", t.At(directLookup), c.steps)
	fn.I("VPBROADCASTD", c.steps.At(lookupTop), top)
	fn.I("MOVQ", c.scales, c.steps)
	fn.I("MOVQ", t.At(directScalesAhead), c.step)
	for i := range c.columns {
		fn.I("PREFETCHT0", c.steps.At(0).Index(c.step, 1))
		c.stepsOfRow(c.steps.At(0), asmgen.K(1), top, t.At(directMin), t.At(directMax), steps)
		fn.I("VMOVUPS", steps, t.At(directRowSteps+64*i))
		fn.I("ADDQ", c.scaleStride, c.steps)
	}
	fn.I("LEAQ", t.At(directRowSteps), c.step)
}

// codesOf decodes 64 codes of each row (of the tail: those in K2) and multiplies.
func (c *codedKernel) codesOf(tail bool) {
	fn := c.directKernel.fn
	for i, v := range c.first {
		from := asmgen.Operand(c.row(c.bases, i))
		if tail {
			fn.I("VMOVDQU8.Z", from, asmgen.K(2), v)
			from = v
		}
		c.unscaled(from, v, c.second[i])
		fn.I("VPBROADCASTD", c.step.At(64*i), c.x)
		fn.I("VPBROADCASTD", c.step.At(64*i+4), c.temp)
		fn.I("VPSUBUSW", c.x, v, v)
		fn.I("VPSUBUSW", c.temp, c.second[i], c.second[i])
	}
	c.multiply(c.first, 0, c.x)
	c.multiply(c.second, 64*c.rows, c.x)
}
