package main

// The AMX microkernel for transposed products: four row panels by 16 columns at once, for few
// columns. Panels are those of amx_tiles.go.

import "spmoe/tensor/asmgen"

// tallPanels is the number of row panels that are multiplied at once.
const tallPanels = 4

func amxTall(f *asmgen.File, config asmgen.Mem) {
	fn := f.Func("bf16AMXTall", "bf16AMXTall multiplies count rows, a multiple of 64 in panels of 16, with 16 columns of a column panel. If ahead is not 0, it prefetches the\n"+
		"same number of rows, ahead bytes past those that it multiplies.", asmgen.Arg("t", "*tile"))
	t := fn.Load("t")
	field := func(at asmgen.Field) asmgen.Reg { r := fn.GP(); fn.I("MOVQ", t.Field(at), r); return r }
	a := [tallPanels]asmgen.Reg{fn.GP(), fn.GP(), fn.GP(), fn.GP()}
	b, steps, ahead, columns := fn.GP(), fn.GP(), fn.GP(), fn.GP()
	sum, sumStride, rowStep := field("tile_sum"), field("tile_sumStride"), field("tile_tiled+tiled_rowStep")
	rows, column := [3]asmgen.Tile{asmgen.TMM(4), asmgen.TMM(5), asmgen.TMM(6)}, asmgen.TMM(7)
	fn.I("LEAQ", config, b)
	fn.I("LDTILECFG", b.At(0))
	fn.I("MOVQ", asmgen.Imm(columnStep), columns)

	next, fetched, loop, done := fn.Label("next"), fn.Label("fetched"), fn.Label("loop"), fn.Label("done")
	fn.Place(next)
	fn.I("MOVQ", t.Field("tile_a"), a[0])
	for i := 1; i < tallPanels; i++ {
		fn.I("MOVQ", a[i-1], a[i])
		fn.I("ADDQ", t.Field("tile_aStride"), a[i])
	}
	// each calls body for the sums of each panel and leaves sum after the last.
	each := func(body func(tile asmgen.Tile)) {
		fn.I("MOVQ", sumStride, steps)
		fn.I("SHLQ", asmgen.Imm(4), steps)
		for i := range tallPanels {
			body(asmgen.TMM(i))
			fn.I("ADDQ", steps, sum)
		}
	}
	beginSums(fn, t, tallPanels, func() {
		each(func(tile asmgen.Tile) { fn.I("TILELOADD", sum.At(0).Index(sumStride, 1), tile) })
		fn.I("SHLQ", asmgen.Imm(2), steps)
		fn.I("SUBQ", steps, sum)
	})
	fn.I("MOVQ", t.Field("tile_b"), b)
	fn.I("MOVQ", t.Field("tile_steps"), steps)
	fn.Place(loop)
	fn.I("TILELOADD", b.At(0).Index(columns, 1), column)
	for i := range tallPanels {
		fn.I("TILELOADD", a[i].At(0).Index(rowStep, 1), rows[i%len(rows)])
		fn.I("TDPBF16PS", column, rows[i%len(rows)], asmgen.TMM(i))
	}
	fn.I("MOVQ", t.Field("tile_tiled+tiled_ahead"), ahead)
	fn.I("TESTQ", ahead, ahead)
	fn.I("JZ", fetched)
	fn.I("ADDQ", a[0], ahead)
	for range tallPanels * 16 / 2 {
		fn.I("PREFETCHT1", ahead.At(0))
		fn.I("PREFETCHT1", ahead.At(0).Index(rowStep, 1))
		fn.I("LEAQ", ahead.At(0).Index(rowStep, 2), ahead)
	}
	fn.Place(fetched)
	for i := range tallPanels {
		fn.I("ADDQ", t.Field("tile_tiled+tiled_tileStep"), a[i])
	}
	fn.I("ADDQ", asmgen.Imm(16*columnStep), b)
	fn.I("SUBQ", asmgen.Imm(16), steps)
	fn.I("JNZ", loop)
	each(func(tile asmgen.Tile) { fn.I("TILESTORED", tile, sum.At(0).Index(sumStride, 1)) })
	fn.I("SUBQ", asmgen.Imm(16*tallPanels), t.Field("tile_count"))
	fn.I("JZ", done)
	fn.I("MOVQ", t.Field("tile_aStride"), steps)
	fn.I("SHLQ", asmgen.Imm(2), steps)
	// Only now: the garbage collector may read this pointer. It must not point past the rows.
	fn.I("ADDQ", steps, t.Field("tile_a"))
	fn.I("JMP", next)
	fn.Place(done)
	fn.I("TILERELEASE")
	fn.Return()
}
