package main

// Products with few rows of a and adjacent rows of b, on tiles. The vector units make a block of 32
// steps of k by interleaving pairs of k or by decoding. At the same time the tiles multiply the
// previous block. Four tiles hold the sums of one row panel by 64 columns, or of two by 32.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

func acrossAMX(f *asmgen.File) {
	data := decoderConstants(f)
	for panels := 1; panels <= 2; panels++ {
		acrossBF16Tiles(f, panels, data.order)
	}
	pairs := f.Data("pairs", pairOrder())
	for panels := 1; panels <= 2; panels++ {
		acrossCodesTiles(f, panels, pairs, data)
	}
}

// pairOrder returns a permutation of two steps of 32 codes each. After it, unpacking leaves pairs
// in order.
func pairOrder() (pairs []byte) {
	for _, quad := range []byte{0, 4, 1, 5, 2, 6, 3, 7} {
		for i := range byte(4) {
			pairs = append(pairs, 4*quad+i, 32+4*quad+i)
		}
	}
	return pairs
}

type acrossTiles struct {
	acrossPanel
	panels, columns int // tiles of sums
	// The next tile of a; the bytes between its rows; the bytes between rows of a tile of a block.
	a, rowStep, columnStep asmgen.Reg
	left, steps            asmgen.Reg // steps of k: unread, and in the current block
	near                   asmgen.Reg // address of the data needed soon
}

func newAcrossTiles(f *asmgen.File, of string, panels int) *acrossTiles {
	name := fmt.Sprintf("across%sTiles%d", of, panels)
	columns := 4 / panels
	fn := f.Func(name, fmt.Sprintf("%s multiplies %d row panels, with the rows in t.config, by %d rows of b that are adjacent in memory, over k (> 0)\n"+
		"steps. dst has room for two blocks of %d bytes and is aligned to the size of both.", name, panels, 16*columns, 1024*columns),
		asmgen.Arg("p", "*columnPanel"), asmgen.Arg("t", "*tile"))
	k := &acrossTiles{acrossPanel: newAcrossPanel(fn), panels: panels, columns: columns, a: fn.GP(), rowStep: fn.GP(), columnStep: fn.GP(), steps: fn.GP(), near: fn.GP()}
	t := k.tile()
	fn.I("LDTILECFG", t.Field("tile_tiled+tiled_config"))
	fn.I("MOVQ", t.Field("tile_a"), k.a)
	fn.I("MOVQ", t.Field("tile_tiled+tiled_rowStep"), k.rowStep)
	beginSums(fn, t, 4, func() {
		k.sums(func(sum asmgen.Mem, tile asmgen.Tile) { fn.I("TILELOADD", sum, tile) })
	})
	fn.I("MOVQ", asmgen.Imm(64*columns), k.columnStep)
	k.left = k.field("columnPanel_k")
	return k
}

// tile loads t into a register that blocks use only temporarily.
func (k *acrossTiles) tile() asmgen.Reg {
	k.fn.I("MOVQ", k.fn.Slot("t"), k.near)
	return k.near
}

// sums calls body for each tile of sums. It overwrites steps and columnStep. It expects t in its
// register.
func (k *acrossTiles) sums(body func(sum asmgen.Mem, tile asmgen.Tile)) {
	sum, stride, fn := k.steps, k.columnStep, k.fn
	fn.I("MOVQ", k.near.Field("tile_sum"), sum)
	fn.I("MOVQ", k.near.Field("tile_sumStride"), stride)
	for i := range k.panels {
		for j := range k.columns {
			body(sum.At(64*j).Index(stride, 1), asmgen.TMM(k.columns*i+j))
		}
		if i+1 < k.panels {
			fn.I("MOVQ", stride, k.near)
			fn.I("SHLQ", asmgen.Imm(4), k.near)
			fn.I("ADDQ", k.near, sum)
		}
	}
}

// blocks makes and multiplies all blocks. pair makes two steps of k and last makes a single last
// step. before is called before each. If soon, one line of each step needed soon is prefetched to
// L1.
func (k *acrossTiles) blocks(lines int, soon bool, before, pair, last func()) {
	fn, next, rest, fill, full, end := k.fn, k.fn.Label("next"), k.fn.Label("rest"), k.fn.Label("fill"), k.fn.Label("full"), k.fn.Label("end")
	block, zero := 1024*k.columns, fn.Z()
	fn.I("VPXORD", zero, zero, zero)
	fn.Place(next)
	before()
	takeBlock(fn, k.left, k.steps)
	fn.I("MOVQ", k.steps, k.t.Field("columnPanel_linesLeft")) // which finish writes
	fn.I("MOVQ", k.stride, k.near)
	fn.I("SHLQ", asmgen.Imm(4), k.near) // 16 steps
	fn.I("ADDQ", k.src, k.near)
	fn.I("SHRQ", asmgen.Imm(1), k.steps)
	fn.I("JZ", rest)
	fn.CountDown(k.steps, func() {
		pair()
		for range lines {
			k.fetchLine()
		}
		if soon {
			fn.I("PREFETCHT0", k.near.At(0))
			fn.I("PREFETCHT0", k.near.At(0).Index(k.stride, 1))
			fn.I("LEAQ", k.near.At(0).Index(k.stride, 2), k.near)
		}
		fn.I("LEAQ", k.src.At(0).Index(k.stride, 2), k.src)
		fn.I("ADDQ", asmgen.Imm(64*k.columns), k.dst)
	})
	fn.Place(rest)
	fn.I("TESTQ", asmgen.Imm(1), k.t.Field("columnPanel_linesLeft"))
	fn.I("JZ", fill)
	last()
	fn.I("ADDQ", asmgen.Imm(64*k.columns), k.dst)
	fn.Place(fill)
	fn.I("TESTQ", asmgen.Imm(block-1), k.dst)
	fn.I("JZ", full)
	for i := range k.columns {
		fn.I("VMOVUPS", zero, k.dst.At(64*i))
	}
	fn.I("ADDQ", asmgen.Imm(64*k.columns), k.dst)
	fn.I("JMP", fill)
	fn.Place(full)
	k.multiply(block)
	fn.I("TESTQ", k.left, k.left)
	fn.I("JZ", end)
	fn.I("JMP", next)
	fn.Place(end)
	k.tile()
	k.sums(func(sum asmgen.Mem, tile asmgen.Tile) { fn.I("TILESTORED", tile, sum) })
	fn.I("TILERELEASE")
}

// multiply multiplies the block that ends at dst and switches to the other one.
func (k *acrossTiles) multiply(block int) {
	fn, made := k.fn, k.steps
	fn.I("LEAQ", k.dst.At(-block), made)
	fn.I("MOVQ", made, k.dst)
	fn.I("XORQ", asmgen.Imm(block), k.dst)
	t, free := k.tile(), 4+k.panels
	fn.I("TILELOADD", k.a.At(0).Index(k.rowStep, 1), asmgen.TMM(4))
	if k.panels == 2 {
		fn.I("MOVQ", t.Field("tile_aStride"), t)
		fn.I("ADDQ", k.a, t)
		fn.I("TILELOADD", t.At(0).Index(k.rowStep, 1), asmgen.TMM(5))
	}
	for j := range k.columns {
		column := asmgen.TMM(free + j%(8-free))
		fn.I("TILELOADD", made.At(64*j).Index(k.columnStep, 1), column)
		for i := range k.panels {
			fn.I("TDPBF16PS", column, asmgen.TMM(4+i), asmgen.TMM(k.columns*i+j))
		}
	}
	k.tile()
	fn.I("ADDQ", t.Field("tile_tiled+tiled_tileStep"), k.a)
}

// halves calls body for every 32 columns of a pair. It passes the addresses of the first step, the
// second step and the destination in the block.
func (k *acrossTiles) halves(elem int, body func(i int, first, second, dst asmgen.Mem)) {
	for i := range k.columns / 2 {
		src := k.src.At(32 * elem * i)
		body(i, src, src.Index(k.stride, 1), k.dst.At(128*i))
	}
}

func acrossBF16Tiles(f *asmgen.File, panels int, order asmgen.Mem) {
	k := newAcrossTiles(f, "BF16", panels)
	fn := k.fn
	rows, low, by := fn.Zs(2), fn.Z(), fn.Z()
	fn.I("VMOVUPS", order, by)
	interleave := func(dst asmgen.Mem) {
		fn.I("VPUNPCKLWD", rows[1], rows[0], low)
		fn.I("VPUNPCKHWD", rows[1], rows[0], rows[0])
		fn.I("VMOVUPS", low, dst)
		fn.I("VMOVUPS", rows[0], dst.Plus(64))
	}
	k.blocks(k.columns, false, func() {}, func() {
		k.halves(2, func(_ int, first, second, dst asmgen.Mem) {
			fn.I("VPERMQ", first, by, rows[0])
			fn.I("VPERMQ", second, by, rows[1])
			interleave(dst)
		})
	}, func() {
		k.halves(2, func(_ int, first, _, dst asmgen.Mem) {
			fn.I("VPERMQ", first, by, rows[0])
			fn.I("VPXORD", rows[1], rows[1], rows[1])
			interleave(dst)
		})
	})
	k.finish()
}

// acrossCodesTiles decodes as decode.go does.
func acrossCodesTiles(f *asmgen.File, panels int, pairs asmgen.Mem, data decoderData) {
	k := newAcrossTiles(f, "Codes", panels)
	fn, t := k.fn, k.t
	scales := k.field("columnPanel_scales")
	fn.I("MOVQ", t.Field("columnPanel_lookup"), k.steps)
	d := newDecoder(fn, k.steps, data, "VPERMB", pairs, t.Field("columnPanel_notes+notes_bad"))
	codes, first, second := fn.Z(), fn.Z(), fn.Z()
	add, least, most, spare := fn.Zs(k.columns), fn.Z(), fn.Z(), fn.Z()
	fn.I("VMOVDQU64", t.Field("columnPanel_notes+notes_min"), least)
	fn.I("VMOVDQU64", t.Field("columnPanel_notes+notes_max"), most)
	store := func(dst asmgen.Mem) {
		fn.I("VMOVUPS", first, dst)
		fn.I("VMOVUPS", second, dst.Plus(64))
	}
	load := func(src, next asmgen.Mem) {
		fn.I("VMOVDQU64", src, codes.Y())
		fn.I("VINSERTI64X4", asmgen.Imm(1), next, codes, codes)
	}
	lookUp := func(i int, dst asmgen.Mem) {
		d.lookUp(k.columnStep, codes, [2]asmgen.Operand{add[2*i], add[2*i+1]}, first, second)
		store(dst)
	}
	withLookup := func(body func()) { // runs body with the tables in place of a constant
		fn.I("MOVQ", t.Field("columnPanel_lookup"), k.columnStep)
		body()
		fn.I("MOVQ", asmgen.Imm(64*k.columns), k.columnStep)
	}
	k.blocks(k.columns/2, true, func() {
		for i := range k.columns / 2 {
			fn.I("VMOVDQU64", scales.At(32*i), spare.Y())
			fn.I("VPMINUB", spare.Y(), least.Y(), least.Y())
			fn.I("VPMAXUB", spare.Y(), most.Y(), most.Y())
		}
		for i, v := range add {
			fn.I("VPMOVZXBD", scales.At(16*i), v)
			exponents(fn, v, spare)
			fn.I("VPSUBW", d.bias, v, v)
		}
		fn.I("ADDQ", t.Field("columnPanel_scaleStride"), scales)
	}, func() {
		k.halves(1, func(i int, src, next, dst asmgen.Mem) {
			load(src, next)
			d.normal(codes, i == 0, first, second)
			fn.I("VPADDW", add[2*i], first, first)
			fn.I("VPADDW", add[2*i+1], second, second)
			store(dst)
		})
		d.otherwise(func() {
			withLookup(func() {
				k.halves(1, func(i int, src, next, dst asmgen.Mem) {
					load(src, next)
					lookUp(i, dst)
				})
			})
		})
	}, func() {
		withLookup(func() {
			k.halves(1, func(i int, src, _, dst asmgen.Mem) {
				fn.I("VMOVDQU64", src, codes.Y())
				lookUp(i, dst)
			})
		})
	})
	fn.I("VMOVDQU64", least.Y(), t.Field("columnPanel_notes+notes_min"))
	fn.I("VMOVDQU64", most.Y(), t.Field("columnPanel_notes+notes_max"))
	k.finish()
}
