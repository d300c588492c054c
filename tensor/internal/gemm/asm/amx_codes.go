package main

// The AMX microkernel for turned products of codes: while the vector units decode 16 rows to one panel, the tiles multiply the panel before,
// a step for every second row, so that reading, decoding and multiplying take place at the same time.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// Of a panel, 128 bytes of each row are the BF16 of 64 codes, two tiles side by side.
const (
	codesRow  = 2 * 64        // bytes from row to row, also of the sums
	codesPair = 16 * codesRow // from two tiles to the next two
)

type codesKernel struct {
	rowDecoding
	columns int        // tiles of columns, 1 or 2
	panel   asmgen.Reg // what is multiplied, from the next tile along k on; 0: nothing yet
	b       asmgen.Reg // and the column panel from there on
	left    asmgen.Reg // tiles along k that are left
	fetch   asmgen.Reg // what is fetched next
	stride  asmgen.Reg // codesRow
}

func amxCodes(f *asmgen.File, columns int, data decoderData, twice, config asmgen.Mem) {
	d := newDecoding(f, fmt.Sprintf("codesAMXTall%d", 16*columns), fmt.Sprintf(" multiplies t.count (> 0) rows of count (1 to 512) codes each, contiguous along k, with a column\n"+
		"panel of %d columns, t.steps tiles along k. Meanwhile it fetches as much from ahead bytes behind codes on, in the order of memory.\n"+
		"Sums are 128 bytes apart; their place moves. t.a is room for two panels, t.aStride apart, on a multiple of 128.", 16*columns),
		data, asmgen.Arg("t", "*tile"))
	fn := d.fn
	fn.Free(d.dst)
	k := codesKernel{newRowDecoding(d, twice), columns, fn.GP(), fn.GP(), fn.GP(), fn.GP(), fn.GP()}
	fn.I("LEAQ", config, k.n)
	fn.I("LDTILECFG", k.n.At(0))
	fn.I("MOVQ", asmgen.Imm(codesRow), k.stride)
	fn.I("MOVQ", k.args.At(decodeAhead), k.fetch)
	fn.I("ADDQ", k.codes, k.fetch)
	fn.I("XORQ", k.panel, k.panel)
	fn.I("XORQ", k.left, k.left)

	next, busy, begin, last := fn.Label("next"), fn.Label("busy"), fn.Label("begin"), fn.Label("last")
	fn.Place(next)
	t := k.tile()
	fn.I("MOVQ", t.At(fieldCount), k.rows)
	fn.I("TESTQ", k.rows, k.rows)
	fn.I("JZ", last)
	fn.I("MOVQ", asmgen.Imm(16), k.to)
	fn.I("CMPQ", k.rows, k.to)
	fn.I("CMOVQGT", k.to, k.rows)
	fn.I("MOVQ", t.At(fieldA), k.to)
	fn.I("SUBQ", k.rows, t.At(fieldCount))
	fn.CountDown(k.rows, func() {
		fn.I("MOVQ", k.to, k.args.At(decodeDst))
		k.row(codesPair, func() {
			fn.I("PREFETCHT1", k.fetch.At(0))
			fn.I("ADDQ", asmgen.Imm(64), k.fetch)
		})
		fn.I("MOVQ", k.args.At(decodeDst), k.to)
		fn.I("ADDQ", asmgen.Imm(codesRow), k.to)
		fn.I("TESTQ", asmgen.Imm(1), k.rows) // as 256 codes have steps for half of 16 rows, and sums are not ready at once
		fn.I("JZ", busy)
		fn.I("TESTQ", k.left, k.left)
		fn.I("JZ", busy)
		k.multiply()
		fn.Place(busy)
	})
	fn.I("TESTQ", k.panel, k.panel)
	fn.I("JZ", begin)
	k.complete()
	fn.Place(begin)
	k.begin()
	fn.I("JMP", next)
	fn.Place(last)
	k.complete()
	fn.I("TILERELEASE")
	k.finish()
}

// tile loads t into a register that rows only use in between.
func (k *codesKernel) tile() asmgen.Reg {
	k.fn.I("MOVQ", k.fn.Slot("t"), k.n)
	return k.n
}

// multiply multiplies the next tile along k and leaves the flags of left.
func (k *codesKernel) multiply() {
	fn, same := k.fn, k.fn.Label("same")
	rows, step := asmgen.TMM(4), k.stride
	if k.columns == 1 {
		step = k.n
		fn.I("MOVQ", asmgen.Imm(64), step)
	}
	fn.I("TILELOADD", k.panel.At(0).Index(k.stride, 1), rows)
	for i := range k.columns {
		column := asmgen.TMM(6 + i)
		fn.I("TILELOADD", k.b.At(64*i).Index(step, 1), column)
		fn.I("TDPBF16PS", column, rows, asmgen.TMM(i))
	}
	fn.I("ADDQ", asmgen.Imm(k.columns*tileBytes), k.b)
	fn.I("ADDQ", asmgen.Imm(64), k.panel)
	fn.I("TESTQ", asmgen.Imm(64), k.panel)
	fn.I("JNZ", same)
	fn.I("ADDQ", asmgen.Imm(codesPair-codesRow), k.panel)
	fn.Place(same)
	fn.I("DECQ", k.left)
}

// complete multiplies what is left and stores the sums.
func (k *codesKernel) complete() {
	fn, more, done := k.fn, k.fn.Label("more"), k.fn.Label("done")
	fn.I("TESTQ", k.left, k.left)
	fn.I("JZ", done)
	fn.Place(more)
	k.multiply()
	fn.I("JNZ", more)
	fn.Place(done)
	t, sum := k.tile(), k.to
	fn.I("MOVQ", t.At(fieldSum), sum)
	for i := range k.columns {
		fn.I("TILESTORED", asmgen.TMM(i), sum.At(64*i).Index(k.stride, 1))
	}
	fn.I("ADDQ", asmgen.Imm(16*codesRow), t.At(fieldSum))
}

// begin turns to the panel that was decoded, and to the other one for the next.
func (k *codesKernel) begin() {
	fn, t, sum := k.fn, k.tile(), k.to
	fn.I("MOVQ", t.At(fieldA), k.panel)
	fn.I("MOVQ", t.At(fieldAStride), k.b)
	fn.I("ADDQ", k.b, t.At(fieldA))
	fn.I("NEGQ", t.At(fieldAStride))
	fn.I("MOVQ", t.At(fieldB), k.b)
	fn.I("MOVQ", t.At(fieldSteps), k.left)
	beginSums(fn, t, k.columns, func() {
		fn.I("MOVQ", t.At(fieldSum), sum)
		for i := range k.columns {
			fn.I("TILELOADD", sum.At(64*i).Index(k.stride, 1), asmgen.TMM(i))
		}
	})
}
