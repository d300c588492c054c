package main

// The code for AMX: the microkernel (amx_tiles.go), the peak loop and the packing of rows.

import (
	"encoding/binary"

	"spmoe/tensor/asmgen"
)

// Sizes in bytes: a tile; one step (a pair of k) of a column panel; the tile configuration.
const (
	tileBytes  = 16 * 64
	columnStep = 128
	log32Rows  = 12 // of the bytes of 32 rows of sums
)

var (
	amxSums = [2][2]asmgen.Tile{{asmgen.TMM(0), asmgen.TMM(1)}, {asmgen.TMM(2), asmgen.TMM(3)}}
	amxA    = [2]asmgen.Tile{asmgen.TMM(4), asmgen.TMM(5)}
	amxB    = [2]asmgen.Tile{asmgen.TMM(6), asmgen.TMM(7)}
)

func amx(f *asmgen.File) {
	config := f.Data("wholeTiles", wholeTiles())
	amxTiles(f, config, "bf16AMXTiles", ".", stored)
	amxTiles(f, config, "bf16AMXStreamedTiles", " and stores past the caches. out has room for the sums of 32 rows. With startAtSum, it has those of all rows, and there is one column panel.", streamed)
	amxTiles(f, config, "bf16AMXRoundedTiles", ". sum receives the sums, rounded to BF16; out is as in bf16AMXStreamedTiles.", rounded)
	amxPeak(f, "bf16AMXPeak", "TDPBF16PS", config)
	amxRows(f)
	amxRowsAcross(f)
}

// transposedAMX generates the functions of transposed products.
func transposedAMX(f *asmgen.File) {
	f.Constant("tallRows", 16*tallPanels)
	f.Constant("codesRows", 16*codesTall)
	f.Constant("codesChunk", chunkBytes)
	config := f.Data("wholeTiles", wholeTiles())
	amxTall(f, config)
	data, twice := decoderConstants(f), twiceData(f)
	for _, width := range []int{8, 16, 32} {
		amxCodes(f, width, data, twice)
	}
	amxTranspose(f, "turnSumsAVX512", "of FP32", false)
	amxTranspose(f, "turnRoundedSumsAVX512", "of BF16", true)
}

// wholeTiles configures eight tiles of 16 rows of 64 bytes. Byte 0 is the palette (1). The bytes
// per row start at 16 and the rows at 48.
func wholeTiles() []byte {
	c := make([]byte, 64)
	c[0] = 1
	for i := range 8 {
		binary.LittleEndian.PutUint16(c[16+2*i:], 64)
		c[48+i] = 16
	}
	return c
}

// beginSums loads the sums by load or zeroes that number of tiles, depending on t.
func beginSums(fn *asmgen.Func, t asmgen.Reg, tiles int, load func()) {
	clear, ready := fn.Label("clear"), fn.Label("ready")
	fn.I("CMPQ", t.Field("tile_startAtSum"), asmgen.Imm(0))
	fn.I("JEQ", clear)
	load()
	fn.I("JMP", ready)
	fn.Place(clear)
	for i := range tiles {
		fn.I("TILEZERO", asmgen.TMM(i))
	}
	fn.Place(ready)
}

// amxPeak generates a loop of arithmetic without memory accesses.
func amxPeak(f *asmgen.File, name, instruction string, config asmgen.Mem) {
	fn := f.Func(name, name+" runs rounds (> 0) times 4 independent tile multiply-adds.", asmgen.Arg("rounds", "int"))
	rounds, r := fn.Load("rounds"), fn.GP()
	fn.I("LEAQ", config, r)
	fn.I("LDTILECFG", r.At(0))
	for i := range 8 {
		fn.I("TILEZERO", asmgen.TMM(i))
	}
	fn.CountDown(rounds, func() {
		for i, a := range amxA {
			for j, b := range amxB {
				fn.I(instruction, b, a, amxSums[i][j])
			}
		}
	})
	fn.I("TILERELEASE")
	fn.Return()
}

// amxRows packs rows without rearranging them.
func amxRows(f *asmgen.File) {
	fn := f.Func("tileRowsAVX512", "tileRowsAVX512 packs 16 rows that are contiguous along k; row i begins at src + offsets[i].\n"+
		"For every 32 words it stores 16 times 64 bytes; tail masks the last words%32 words, and zeros follow.",
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("offsets", "*[16]int"), asmgen.Arg("words", "int"), asmgen.Arg("tail", "int"))
	dst, src, offsets, words := fn.Load("dst"), fn.Load("src"), fn.Load("offsets"), fn.Load("words")
	blocks, r, v := fn.GP(), fn.GP(), fn.Zs(4)
	move := func(load string, mask ...asmgen.Operand) {
		for i := range 16 {
			fn.I("MOVQ", offsets.At(8*i), r)
			fn.I(load, append(append([]asmgen.Operand{src.At(0).Index(r, 1)}, mask...), v[i%4])...)
			fn.I("VMOVDQU16", v[i%4], dst.At(64*i))
		}
	}
	last, done := fn.Label("last"), fn.Label("done")
	fn.I("MOVQ", words, blocks)
	fn.I("SHRQ", asmgen.Imm(5), blocks)
	fn.I("JZ", last)
	fn.CountDown(blocks, func() {
		move("VMOVDQU16")
		fn.I("ADDQ", asmgen.Imm(64), src)
		fn.I("ADDQ", asmgen.Imm(tileBytes), dst)
	})
	fn.Place(last)
	fn.I("ANDQ", asmgen.Imm(31), words)
	fn.I("JZ", done)
	fn.I("MOVQ", fn.Slot("tail"), r)
	fn.I("KMOVD", r, asmgen.K(1))
	move("VMOVDQU16.Z", asmgen.K(1))
	fn.Place(done)
	fn.Return()
}

// amxRowsAcross packs rows that are adjacent in memory. It interleaves every two rows of k and
// transposes 16 of these pairs, all in registers.
func amxRowsAcross(f *asmgen.File) {
	fn := f.Func("tilesAcrossAVX512", "tilesAcrossAVX512 packs 16 rows that are adjacent in memory into tiles (> 0) tiles; along k they are stride bytes apart.\n"+
		"Bit i of lanes says that row i exists; the others become zeros.",
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("stride", "int"), asmgen.Arg("tiles", "int"), asmgen.Arg("lanes", "int"))
	dst, src, stride, tiles, lanes := fn.Load("dst"), fn.Load("src"), fn.Load("stride"), fn.Load("tiles"), fn.Load("lanes")
	fn.I("KMOVD", lanes, asmgen.K(1))
	pairs, other := fn.Zs(16), fn.Zs(16)
	var words []uint32
	for i := range uint32(16) {
		words = append(words, (32+i)<<16|i)
	}
	index := f.Data32("tilesAcrossIndex", words...)
	fn.CountDown(tiles, func() {
		odd, order := other[0], other[1]
		fn.I("VMOVUPS", index, order)
		for _, v := range pairs {
			fn.I("VMOVDQU16.Z", src.At(0), asmgen.K(1), v.Y())
			fn.I("VMOVDQU16.Z", src.At(0).Index(stride, 1), asmgen.K(1), odd.Y())
			fn.I("LEAQ", src.At(0).Index(stride, 2), src)
			fn.I("VPERMT2W", odd, order, v)
		}
		transpose16(fn, pairs, other)
		for i, v := range pairs {
			fn.I("VMOVUPS", v, dst.At(64*i))
		}
		fn.I("ADDQ", asmgen.Imm(tileBytes), dst)
	})
	fn.Return()
}
