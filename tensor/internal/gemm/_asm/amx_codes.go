package main

// The AMX microkernel for transposed products of codes. A block of 32 rows advances along k in
// chunks of 64 codes. The vector units decode one chunk while the tiles multiply the previous one.
// Reading, decoding and multiplying thus overlap. Each tile of the column panel serves all rows of
// the block. L1 must hold two chunks, their exponent increments and the column panel.

import (
	"encoding/binary"
	"fmt"

	"spmoe/tensor/asmgen"
)

const (
	octet     = 8 // rows decoded between two steps of the tiles
	codesTall = 2 // row panels per block
	// Bytes of the tiles of a chunk's first 32 codes. The tiles of the other 32 follow at this
	// distance.
	chunkTiles = codesTall * tileBytes
	chunkBytes = 2 * chunkTiles
	sumsRow    = 128 // bytes between rows of sums
	sumsPanel  = 16 * sumsRow
	powersRow  = 16 * 4 // bytes of a row's exponent increments
)

// State that the kernel stores in fields of the tile that it does not use otherwise.
const (
	fieldBegun  asmgen.Field = "tile_adds"    // 0: there is no previous block with sums
	fieldSingle asmgen.Field = "tile_columns" // 1: the previous chunk has one tile along k
)

type codesKernel struct {
	rowDecoding
	width   int        // columns of the column panel
	columns int        // tiles that they fill
	chunk   asmgen.Reg // destination of the current chunk
	b       asmgen.Reg // the column panel at the previous chunk
	left    asmgen.Reg // codes left per row
	octet   asmgen.Reg // the current one
	fetch   asmgen.Reg // address of the next prefetch
}

func amxCodes(f *asmgen.File, width int, data decoderData, twice asmgen.Mem) {
	d := newDecoding(f, fmt.Sprintf("codesAMXTall%d", width), fmt.Sprintf(" multiplies t.count (> 0) rows of count (1 to 512) codes each, contiguous along k, with a column\n"+
		"panel of %d columns, t.steps tiles along k. It prefetches the same number of bytes from ahead bytes past codes, in turn at four places t.aStride\n"+
		"bytes apart. Rows of sums are 128 bytes apart, for whole blocks of %d rows; t.sum advances. t.a has room for two chunks of a block and is aligned\n"+
		"to their size. t.out has room for 64 bytes per row of a block. t.adds and t.columns are overwritten.", width, 16*codesTall), data, asmgen.Arg("t", "*tile"))
	fn := d.fn
	fn.Free(d.dst)
	k := codesKernel{newRowDecoding(d, twice), width, (width + 15) / 16, fn.GP(), fn.GP(), fn.GP(), fn.GP(), fn.GP()}
	fn.I("LEAQ", f.Data(fmt.Sprintf("codesTiles%d", width), k.config()), k.n)
	fn.I("LDTILECFG", k.n.At(0))
	fn.I("MOVQ", k.args.Field("decoding_ahead"), k.fetch)
	fn.I("ADDQ", k.codes, k.fetch)
	t := k.tile(k.from)
	fn.I("MOVQ", t.Field("tile_a"), k.chunk)
	fn.I("MOVQ", t.Field("tile_b"), k.b)
	fn.I("MOVQ", asmgen.Imm(0), t.Field(fieldBegun))
	// Nothing is decoded yet, and the column panel may end after its first tile.
	fn.I("MOVQ", asmgen.Imm(1), t.Field(fieldSingle))

	block, chunk, within, next, last := fn.Label("block"), fn.Label("chunk"), fn.Label("within"), fn.Label("next"), fn.Label("last")
	fn.Place(block)
	k.beginBlock()
	fn.Place(chunk)
	k.decodeChunk()
	fn.I("CMPQ", k.left, k.args.Field("decoding_count"))
	fn.I("JLT", within)
	k.beginBlockSums(last)
	fn.I("JMP", next)
	fn.Place(within)
	fn.I("ADDQ", asmgen.Imm(int64(2*16*4*k.width)), k.b)
	fn.Place(next)
	fn.I("XORQ", asmgen.Imm(chunkBytes), k.chunk)
	fn.I("ADDQ", asmgen.Imm(64), k.codes)
	fn.I("SUBQ", asmgen.Imm(64), k.left)
	fn.I("JGT", chunk)
	k.endBlock()
	fn.I("JMP", block)
	fn.Place(last)
	fn.I("TILERELEASE")
	k.finish()
}

// config configures the tiles. Those of sums and of the column panel may have fewer columns.
func (k *codesKernel) config() []byte {
	c := wholeTiles()
	for i := range 6 {
		binary.LittleEndian.PutUint16(c[16+2*i:], uint16(min(64, 4*k.width)))
	}
	return c
}

// tile loads t into a register.
func (k *codesKernel) tile(t asmgen.Reg) asmgen.Reg {
	k.fn.I("MOVQ", k.fn.Slot("t"), t)
	return t
}

// beginBlock takes the rows of the next block from the rows left. After the last block it takes
// none, but that block's last chunk is still to be multiplied. It notes the rows' scales and
// converts them to exponent increments.
func (k *codesKernel) beginBlock() {
	fn, t, none := k.fn, k.tile(k.from), k.fn.Label("noRows")
	fn.I("MOVQ", t.Field("tile_count"), k.rows)
	fn.I("MOVQ", asmgen.Imm(16*codesTall), k.n)
	fn.I("CMPQ", k.rows, k.n)
	fn.I("CMOVQGT", k.n, k.rows)
	fn.I("SUBQ", k.rows, t.Field("tile_count"))
	fn.I("MOVQ", k.rows, k.args.Field("decoding_rows"))
	fn.I("MOVQ", k.args.Field("decoding_count"), k.left)
	fn.I("MOVQ", t.Field("tile_out"), k.to)
	fn.I("TESTQ", k.rows, k.rows)
	fn.I("JZ", none)
	// Visible to the garbage collector: must not point past the last row.
	fn.I("MOVQ", k.codes, k.args.Field("decoding_dst"))
	fn.CountDown(k.rows, func() {
		fn.I("PREFETCHT0", k.scales.At(64*16)) // of the next block, if rows have 512 codes
		k.power(k.to.At(0))
		fn.I("ADDQ", asmgen.Imm(powersRow), k.to)
		fn.I("ADDQ", k.args.Field("decoding_scaleStride"), k.scales)
	})
	fn.Place(none)
}

// decodeChunk decodes the next codes of all rows of the block and multiplies the previous chunk. It
// works octet by octet.
func (k *codesKernel) decodeChunk() {
	fn := k.fn
	next, tail, decoded := fn.Label("octet"), fn.Label("tail"), fn.Label("decoded")
	fn.I("MOVQ", k.args.Field("decoding_rows"), k.rows)
	fn.I("MOVQ", k.codes, k.from)
	fn.I("MOVQ", k.args.Field("decoding_count"), k.step)
	fn.I("SUBQ", k.left, k.step)
	fn.I("SHRQ", asmgen.Imm(3), k.step) // 4 bytes per 32 codes
	fn.I("ADDQ", k.tile(k.to).Field("tile_out"), k.step)
	fn.I("XORQ", k.octet, k.octet)
	fn.Place(next)
	fn.I("MOVQ", asmgen.Imm(octet), k.n)
	fn.I("CMPQ", k.rows, k.n)
	fn.I("CMOVQLT", k.rows, k.n)
	fn.I("TESTQ", k.n, k.n)
	fn.I("JZ", decoded)
	fn.I("SUBQ", k.n, k.rows)
	fn.I("MOVQ", k.octet, k.to)
	fn.I("SHLQ", asmgen.Imm(9), k.to) // 64 bytes per row
	fn.I("CMPQ", k.left, asmgen.Imm(64))
	fn.I("JLT", tail)
	fn.I("ADDQ", k.chunk, k.to)
	fn.CountDown(k.n, func() { k.decodeRow(k.from.At(0)) })
	fn.I("JMP", decoded)
	fn.Place(tail)
	fn.I("ADDQ", k.chunk, k.to)
	fn.CountDown(k.n, func() {
		fn.I("VMOVDQU8.Z", k.from.At(0), asmgen.K(2), k.other)
		k.decodeRow(k.other)
	})
	fn.Place(decoded)
	// Each of the four octets prefetches its lines from another of four places. This keeps four
	// streams in flight: the hardware prefetcher follows a stream only to the end of a page.
	fn.I("ADDQ", k.tile(k.to).Field("tile_aStride"), k.fetch)
	fn.I("SUBQ", asmgen.Imm(64*octet), k.fetch)
	k.multiply()
	fn.I("INCQ", k.octet)
	fn.I("CMPQ", k.octet, asmgen.Imm(2*codesTall))
	fn.I("JLT", next)
	fn.I("MOVQ", k.tile(k.to).Field("tile_aStride"), k.n)
	fn.I("SHLQ", asmgen.Imm(2), k.n)
	fn.I("SUBQ", k.n, k.fetch)
	fn.I("ADDQ", asmgen.Imm(64*octet), k.fetch)
}

// decodeRow decodes 64 codes of a row and moves to the next row.
func (k *codesKernel) decodeRow(codes asmgen.Operand) {
	fn, powers := k.fn, [2]asmgen.Operand{k.step.At(0), k.step.At(4)}
	fn.I("PREFETCHT1", k.fetch.At(0))
	fn.I("ADDQ", asmgen.Imm(64), k.fetch)
	fn.I("PREFETCHT0", k.from.At(64)) // for the next chunk
	k.normal(codes, true, k.first, k.second)
	fn.I("VPADDD.BCST", powers[0], k.first, k.first)
	fn.I("VPADDD.BCST", powers[1], k.second, k.second)
	k.otherwise(func() {
		k.withLookup(func(lookup asmgen.Reg) { k.lookUp(lookup, codes, powers, k.first, k.second) })
	})
	fn.I("VMOVUPS", k.first, k.to.At(0))
	fn.I("VMOVUPS", k.second, k.to.At(chunkTiles))
	fn.I("ADDQ", k.args.Field("decoding_codeStride"), k.from)
	fn.I("ADDQ", asmgen.Imm(64), k.to)
	fn.I("ADDQ", asmgen.Imm(powersRow), k.step)
}

// multiply does one step of the tiles for the previous chunk. The octet's number selects the step:
// first the steps of the first 32 codes for all panels, then those of the others.
func (k *codesKernel) multiply() {
	fn, done := k.fn, k.fn.Label("multiplied")
	for i := range 2 * codesTall {
		other := fn.Label("other")
		fn.I("CMPQ", k.octet, asmgen.Imm(int64(i)))
		fn.I("JNE", other)
		k.multiplyPanel(i%codesTall, i/codesTall, done)
		fn.I("JMP", done)
		fn.Place(other)
	}
	fn.Place(done)
}

// multiplyPanel multiplies 16 rows of a tile along k. The first of them loads the tile of the
// column panel.
func (k *codesKernel) multiplyPanel(panel, along int, done asmgen.Label) {
	fn, stride := k.fn, k.to
	if along == 1 {
		fn.I("CMPQ", k.tile(k.n).Field(fieldSingle), asmgen.Imm(0))
		fn.I("JNE", done)
	}
	column := func(j int) asmgen.Tile { return asmgen.TMM(4 + (along+j)%2) }
	if panel == 0 {
		fn.I("MOVQ", asmgen.Imm(int64(4*k.width)), stride)
		for j := range k.columns {
			fn.I("TILELOADD", k.b.At(along*16*4*k.width+64*j).Index(stride, 1), column(j))
		}
	}
	rows := asmgen.TMM(6 + panel%2)
	fn.I("MOVQ", asmgen.Imm(64), stride)
	fn.I("MOVQ", k.chunk, k.n)
	fn.I("XORQ", asmgen.Imm(chunkBytes), k.n)
	fn.I("TILELOADD", k.n.At(along*chunkTiles+panel*tileBytes).Index(stride, 1), rows)
	for j := range k.columns {
		fn.I("TDPBF16PS", column(j), rows, asmgen.TMM(panel*k.columns+j))
	}
}

// beginBlockSums runs at the first chunk of a block, when the previous block is complete. It stores
// the previous block's sums and starts new ones. If the block has no rows, it jumps to last.
func (k *codesKernel) beginBlockSums(last asmgen.Label) {
	fn, t, first := k.fn, k.tile(k.from), k.fn.Label("first")
	fn.I("CMPQ", t.Field(fieldBegun), asmgen.Imm(0))
	fn.I("JEQ", first)
	k.sums(t, func(sum asmgen.Mem, tile asmgen.Tile) { fn.I("TILESTORED", tile, sum) })
	fn.I("CMPQ", k.args.Field("decoding_rows"), asmgen.Imm(0))
	fn.I("JEQ", last)
	fn.I("ADDQ", asmgen.Imm(codesTall*sumsPanel), t.Field("tile_sum"))
	fn.Place(first)
	fn.I("MOVQ", asmgen.Imm(1), t.Field(fieldBegun))
	fn.I("MOVQ", asmgen.Imm(0), t.Field(fieldSingle))
	fn.I("MOVQ", t.Field("tile_b"), k.b)
	beginSums(fn, t, codesTall*k.columns, func() {
		k.sums(t, func(sum asmgen.Mem, tile asmgen.Tile) { fn.I("TILELOADD", sum, tile) })
	})
}

// endBlock moves to the rows after the block.
func (k *codesKernel) endBlock() {
	fn, t := k.fn, k.tile(k.from)
	fn.I("MOVQ", t.Field("tile_steps"), k.n)
	fn.I("ANDQ", asmgen.Imm(1), k.n)
	fn.I("MOVQ", k.n, t.Field(fieldSingle))
	fn.I("MOVQ", k.args.Field("decoding_codeStride"), k.codes)
	fn.I("IMULQ", k.args.Field("decoding_rows"), k.codes)
	fn.I("ADDQ", k.args.Field("decoding_dst"), k.codes)
}

// sums calls body for each tile of sums of a block.
func (k *codesKernel) sums(t asmgen.Reg, body func(sum asmgen.Mem, tile asmgen.Tile)) {
	k.fn.I("MOVQ", t.Field("tile_sum"), k.to)
	k.fn.I("MOVQ", asmgen.Imm(sumsRow), k.n)
	for i := range codesTall {
		for j := range k.columns {
			body(k.to.At(i*sumsPanel+64*j).Index(k.n, 1), asmgen.TMM(i*k.columns+j))
		}
	}
}
