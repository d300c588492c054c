package main

// The AMX microkernel: tiles of 16 rows by 16 columns, two by two of them at once.
//
// A row panel holds 16 rows; for every 32 elements of k, 64 bytes of each row, at any distance from each other. A column panel is that
// of the AVX-512 kernels: for each pair of k two vectors of 16 columns, so that 16 pairs are a tile of each.

import (
	"encoding/binary"

	"spmoe/tensor/asmgen"
)

// The bytes of a tile, of one step (a pair of k) of a column panel, and of the tiles' configuration.
const (
	tileBytes  = 16 * 64
	columnStep = 128
)

// fieldConfig is the field of Go's struct tile that configures the tiles of the last rows.
const fieldConfig = fieldTileStep + 8

var (
	amxSums = [2][2]asmgen.Tile{{asmgen.TMM(0), asmgen.TMM(1)}, {asmgen.TMM(2), asmgen.TMM(3)}}
	amxA    = [2]asmgen.Tile{asmgen.TMM(4), asmgen.TMM(5)}
	amxB    = [2]asmgen.Tile{asmgen.TMM(6), asmgen.TMM(7)}
)

func amx(f *asmgen.File) {
	config := f.Data("wholeTiles", wholeTiles())
	amxTiles(f, config)
	amxPeak(f, "bf16AMXPeak", "TDPBF16PS", config)
	amxPeak(f, "int8AMXPeak", "TDPBSSD", config)
	amxRows(f)
	amxRowsAcross(f)
}

// wholeTiles configures eight tiles of 16 rows of 64 bytes: palette 1, the bytes of a row at 16, the rows at 48.
func wholeTiles() []byte {
	c := make([]byte, 64)
	c[0] = 1
	for i := range 8 {
		binary.LittleEndian.PutUint16(c[16+2*i:], 64)
		c[48+i] = 16
	}
	return c
}

// amxTiles leaves no state in the tiles: they are configured and released within the call.
func amxTiles(f *asmgen.File, config asmgen.Mem) {
	fn := f.Func("bf16AMXTiles", "bf16AMXTiles multiplies count rows, in panels of 16, with one column panel of 32 columns.", asmgen.Arg("t", "*tile"))
	k := amxKernel{Func: fn, t: fn.Load("t")}
	field := func(at int) asmgen.Reg { r := fn.GP(); fn.I("MOVQ", k.t.At(at), r); return r }
	panel, rows := field(fieldA), k.t.At(fieldCount) // which is counted down: there is no register for it
	k.sum, k.sumStride, k.aStride = field(fieldSum), field(fieldSumStride), field(fieldAStride)
	for i := range k.a {
		k.a[i] = fn.GP()
	}
	k.b, k.steps, k.below = fn.GP(), fn.GP(), fn.GP()
	k.rowStep, k.tileStep, k.columnStep = field(fieldRowStep), field(fieldTileStep), fn.GP()
	fn.I("MOVQ", asmgen.Imm(columnStep), k.columnStep)

	next, rest, single, done := fn.Label("next"), fn.Label("rest"), fn.Label("single"), fn.Label("done")
	fn.I("LEAQ", config, k.b)
	fn.I("LDTILECFG", k.b.At(0))
	fn.Place(next)
	fn.I("CMPQ", rows, asmgen.Imm(32))
	fn.I("JLT", rest)
	k.multiply(panel, 2)
	fn.I("LEAQ", panel.At(0).Index(k.aStride, 2), panel)
	fn.I("LEAQ", k.below.At(0), k.sum)
	fn.I("SHLQ", asmgen.Imm(4), k.sumStride)
	fn.I("ADDQ", k.sumStride, k.sum)
	fn.I("SHRQ", asmgen.Imm(4), k.sumStride)
	fn.I("SUBQ", asmgen.Imm(32), rows)
	fn.I("JMP", next)

	fn.Place(rest)
	fn.I("CMPQ", rows, asmgen.Imm(0))
	fn.I("JEQ", done)
	fn.I("LDTILECFG", k.t.At(fieldConfig))
	fn.I("CMPQ", rows, asmgen.Imm(16))
	fn.I("JLE", single)
	k.multiply(panel, 2)
	fn.I("JMP", done)
	fn.Place(single)
	k.multiply(panel, 1)
	fn.Place(done)
	fn.I("TILERELEASE")
	fn.Return()
}

type amxKernel struct {
	*asmgen.Func
	t, sum, sumStride, aStride asmgen.Reg
	a                          [2]asmgen.Reg
	b, steps                   asmgen.Reg
	below                      asmgen.Reg // the sums of the second row of tiles
	rowStep, columnStep        asmgen.Reg // bytes from row to row of a tile of a, of b
	tileStep                   asmgen.Reg // bytes from a tile of a to the next along k
}

// multiply multiplies one or two row panels with the column panel, all steps of it. It leaves below at the last rows of sums.
func (k amxKernel) multiply(panel asmgen.Reg, panels int) {
	k.I("MOVQ", panel, k.a[0])
	k.I("LEAQ", panel.At(0).Index(k.aStride, 1), k.a[1])
	k.I("MOVQ", k.t.At(fieldB), k.b)
	k.I("MOVQ", k.sumStride, k.below)
	k.I("SHLQ", asmgen.Imm(4), k.below)
	k.I("ADDQ", k.sum, k.below)
	at := [2]asmgen.Reg{k.sum, k.below}

	clear, ready := k.Label("clear"), k.Label("ready")
	k.I("CMPQ", k.t.At(fieldLoad), asmgen.Imm(0))
	k.I("JEQ", clear)
	for i := range panels {
		for j, sum := range amxSums[i] {
			k.I("TILELOADD", at[i].At(64*j).Index(k.sumStride, 1), sum)
		}
	}
	k.I("JMP", ready)
	k.Place(clear)
	for i := range panels {
		for _, sum := range amxSums[i] {
			k.I("TILEZERO", sum)
		}
	}
	k.Place(ready)

	k.I("MOVQ", k.t.At(fieldSteps), k.steps)
	k.I("SHRQ", asmgen.Imm(4), k.steps)
	k.CountDown(k.steps, func() {
		for i := range panels {
			k.I("TILELOADD", k.a[i].At(0).Index(k.rowStep, 1), amxA[i])
			for j, b := range amxB {
				if i == 0 {
					k.I("TILELOADD", k.b.At(64*j).Index(k.columnStep, 1), b)
				}
				k.I("TDPBF16PS", b, amxA[i], amxSums[i][j])
			}
			k.I("ADDQ", k.tileStep, k.a[i])
		}
		k.I("ADDQ", asmgen.Imm(16*columnStep), k.b)
	})
	for i := range panels {
		for j, sum := range amxSums[i] {
			k.I("TILESTORED", sum, at[i].At(64*j).Index(k.sumStride, 1))
		}
	}
}

// amxPeak is arithmetic without memory.
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

// amxRows packs rows as they are.
func amxRows(f *asmgen.File) {
	fn := f.Func("tileRowsAVX512", "tileRowsAVX512 packs 16 rows that are contiguous along k; row i begins at src + offsets[i].\n"+
		"For every 32 words it stores 16 times 64 bytes; tail masks the last words%32 words, after which come zeros.",
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

// amxRowsAcross packs rows that are neighbours in memory: it interleaves each two rows of k and turns 16 of these pairs, all in registers.
func amxRowsAcross(f *asmgen.File) {
	fn := f.Func("tilesAcrossAVX512", "tilesAcrossAVX512 packs 16 rows that are neighbours in memory into tiles (> 0) tiles; along k they are stride bytes apart.\n"+
		"Bit i of lanes says that row i exists: others become zeros.",
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
