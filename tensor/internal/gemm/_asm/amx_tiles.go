package main

// The AMX microkernel: tiles of 16 rows by 16 columns, two by two of them at once.
//
// A row panel holds 16 rows. For every 32 elements of k it has 64 bytes of each row, at any
// distance from each other. A column panel is that of the AVX-512 kernels. It has two vectors of 16
// columns for each pair of k, so 16 pairs make one tile of each.

import "spmoe/tensor/asmgen"

// amxEnd says what happens to the sums at the end.
type amxEnd int

const (
	stored   amxEnd = iota // they may also be loaded first
	streamed               // past the caches
	rounded                // to BF16
)

// resultBytes is the size of a row of results of a column panel.
func (e amxEnd) resultBytes() int64 {
	if e == rounded {
		return columnStep / 2
	}
	return columnStep
}

// amxTiles leaves no state in the tiles: they are configured and released within the call. A
// configuration takes as long as four products, so a call multiplies several column panels if there
// are few rows.
func amxTiles(f *asmgen.File, config asmgen.Mem, name, doc string, end amxEnd) {
	fn := f.Func(name, name+" multiplies count rows, in panels of 16, with column panels of 32 columns"+doc, asmgen.Arg("t", "*tile"))
	k := amxKernel{Func: fn, t: fn.Load("t"), end: end}
	field := func(at asmgen.Field) asmgen.Reg { r := fn.GP(); fn.I("MOVQ", k.t.Field(at), r); return r }
	// The rows left are counted down in memory: there is no register for them.
	panel, rows := field("tile_a"), k.t.Field("tile_count")
	k.sum, k.sumStride, k.aStride = field("tile_sum"), field("tile_sumStride"), field("tile_aStride")
	for i := range k.a {
		k.a[i] = fn.GP()
	}
	k.b, k.steps, k.below = fn.GP(), fn.GP(), fn.GP()
	k.rowStep, k.tileStep, k.columnStep = field("tile_tiled+tiled_rowStep"), field("tile_tiled+tiled_tileStep"), fn.GP()
	fn.I("MOVQ", asmgen.Imm(columnStep), k.columnStep)

	column, next, rest, single, done, last := fn.Label("column"), fn.Label("next"), fn.Label("rest"), fn.Label("single"), fn.Label("done"), fn.Label("last")
	fn.Place(column)
	fn.I("CMPQ", rows, asmgen.Imm(32))
	fn.I("JLT", rest)
	fn.I("LEAQ", config, k.b)
	fn.I("LDTILECFG", k.b.At(0))
	fn.Place(next)
	fn.I("CMPQ", rows, asmgen.Imm(32))
	fn.I("JLT", rest)
	k.multiply(panel, 2, asmgen.Imm(32))
	fn.I("LEAQ", panel.At(0).Index(k.aStride, 2), panel)
	fn.I("SUBQ", asmgen.Imm(32), rows)
	fn.I("JMP", next)

	fn.Place(rest)
	fn.I("CMPQ", rows, asmgen.Imm(0))
	fn.I("JEQ", done)
	fn.I("LDTILECFG", k.t.Field("tile_tiled+tiled_config"))
	fn.I("CMPQ", rows, asmgen.Imm(16))
	fn.I("JLE", single)
	k.multiply(panel, 2, rows)
	fn.I("JMP", done)
	fn.Place(single)
	k.multiply(panel, 1, rows)
	fn.Place(done)
	fn.I("CMPQ", k.t.Field("tile_tiled+tiled_furtherPanels"), asmgen.Imm(0))
	fn.I("JEQ", last)
	fn.I("DECQ", k.t.Field("tile_tiled+tiled_furtherPanels"))
	fn.I("MOVQ", k.t.Field("tile_a"), panel)
	fn.I("MOVQ", k.t.Field("tile_tiled+tiled_bStride"), k.b)
	fn.I("ADDQ", k.b, k.t.Field("tile_b"))
	fn.I("MOVQ", k.t.Field("tile_sum"), k.sum)
	fn.I("ADDQ", asmgen.Imm(end.resultBytes()), k.sum)
	fn.I("MOVQ", k.sum, k.t.Field("tile_sum"))
	fn.I("MOVQ", k.t.Field("tile_tiled+tiled_rows"), k.b)
	fn.I("MOVQ", k.b, rows)
	fn.I("TESTQ", asmgen.Imm(31), k.b)
	fn.I("JZ", next) // no rows are left over, so the tiles are configured for 32 rows
	fn.I("JMP", column)
	fn.Place(last)
	fn.I("TILERELEASE")
	fn.Return()
}

type amxKernel struct {
	*asmgen.Func
	end                        amxEnd
	t, sum, sumStride, aStride asmgen.Reg // sum is the destination of the results, of either type
	a                          [2]asmgen.Reg
	b, steps                   asmgen.Reg
	below                      asmgen.Reg // the sums of the second row of tiles
	rowStep, columnStep        asmgen.Reg // bytes between rows of a tile of a, and of b
	tileStep                   asmgen.Reg // bytes from one tile of a to the next along k
}

// multiply multiplies one or two row panels with the column panel over all steps. The row panels
// have rows rows in total. It leaves sum after the last row if there are 32.
func (k amxKernel) multiply(panel asmgen.Reg, panels int, rows asmgen.Operand) {
	k.fetch(rows)
	k.I("MOVQ", panel, k.a[0])
	k.I("LEAQ", panel.At(0).Index(k.aStride, 1), k.a[1])
	k.I("MOVQ", k.t.Field("tile_b"), k.b)
	k.begin(panels)
	k.accumulate(panels)
	sum, stride := k.sum, k.sumStride
	if k.end != stored {
		k.I("MOVQ", k.t.Field("tile_out"), k.a[0])
		k.I("LEAQ", k.a[0].At(16*columnStep), k.below)
		sum, stride = k.a[0], k.columnStep
		k.I("MOVQ", k.t.Field("tile_startAtSum"), k.b) // 0 or 1
		k.I("SHLQ", asmgen.Imm(log32Rows), k.b)
		k.I("ADDQ", k.b, k.t.Field("tile_out"))
	}
	at := [2]asmgen.Reg{sum, k.below}
	for i := range panels {
		for j, tile := range amxSums[i] {
			k.I("TILESTORED", tile, at[i].At(64*j).Index(stride, 1))
		}
	}
	if k.end == stored {
		k.I("SHLQ", asmgen.Imm(4), k.sumStride)
		k.I("LEAQ", k.below.At(0).Index(k.sumStride, 1), k.sum)
		k.I("SHRQ", asmgen.Imm(4), k.sumStride)
		return
	}
	low, high := asmgen.Z(0), asmgen.Z(1)
	k.eachRow(rows, k.sum, func() {
		k.I("VMOVUPS", k.a[0].At(0), low)
		if k.end == rounded {
			k.I("VMOVUPS", k.a[0].At(64), high)
			k.I("VCVTNE2PS2BF16", low, high, low)
			k.I("VMOVUPS", low, k.sum.At(0))
		} else {
			k.I("VMOVUPS", k.a[0].At(64), high)
			k.I("VMOVNTPS", low, k.sum.At(0))
			k.I("VMOVNTPS", high, k.sum.At(64))
		}
		k.I("ADDQ", k.columnStep, k.a[0])
	})
}

// fetch prefetches the lines of the result, which are not in the caches. A store waits for its line
// and delays the stores after it, and no hardware prefetcher predicts lines of different rows. Sums
// that are stored as FP32 have been in the caches before.
func (k amxKernel) fetch(rows asmgen.Operand) {
	if k.end == rounded {
		k.I("MOVQ", k.sum, k.b)
		k.eachRow(rows, k.b, func() { k.I("PREFETCHW", k.b.At(0)) })
	}
}

// eachRow calls body rows times and advances at from row to row.
func (k amxKernel) eachRow(rows asmgen.Operand, at asmgen.Reg, body func()) {
	k.I("MOVQ", rows, k.steps)
	k.CountDown(k.steps, func() {
		body()
		k.I("ADDQ", k.sumStride, at)
	})
}

// begin sets the sums to zero or to their previous values, which are where the kernel that ends as
// stored puts them, and in out for the others. If stored, below becomes the 16th row.
func (k amxKernel) begin(panels int) {
	clear, ready := k.Label("clear"), k.Label("ready")
	at := [2]asmgen.Mem{k.sum.At(0), k.below.At(0)}
	stride := k.sumStride
	if k.end == stored {
		k.I("MOVQ", k.sumStride, k.below)
		k.I("SHLQ", asmgen.Imm(4), k.below)
		k.I("ADDQ", k.sum, k.below)
	} else {
		k.I("MOVQ", k.t.Field("tile_out"), k.below)
		at, stride = [2]asmgen.Mem{k.below.At(0), k.below.At(16 * columnStep)}, k.columnStep
	}
	k.I("CMPQ", k.t.Field("tile_startAtSum"), asmgen.Imm(0))
	k.I("JEQ", clear)
	for i := range panels {
		for j, sum := range amxSums[i] {
			k.I("TILELOADD", at[i].Plus(64*j).Index(stride, 1), sum)
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
}

// accumulate does all steps. Each tile of an operand is loaded as soon as no product needs the
// previous one. So products and loads overlap even where the other hyperthread of the core leaves
// no room for out-of-order execution.
//
// The hint of TILELOADDT1 keeps the rows of a, which are read once per column panel, from evicting
// the column panel from L1.
func (k amxKernel) accumulate(panels int) {
	loadA := func(i int) { k.I("TILELOADDT1", k.a[i].At(0).Index(k.rowStep, 1), amxA[i]) }
	nextA := func(i int) { k.I("ADDQ", k.tileStep, k.a[i]); loadA(i) }
	loadB := func(j, step int) { k.I("TILELOADD", k.b.At(64*j+step*16*columnStep).Index(k.columnStep, 1), amxB[j]) }
	product := func(i, j int) { k.I("TDPBF16PS", amxB[j], amxA[i], amxSums[i][j]) }
	last := k.Label("last")
	loadA(0)
	loadB(0, 0)
	loadB(1, 0)
	if panels == 2 {
		loadA(1)
	}
	k.I("MOVQ", k.t.Field("tile_steps"), k.steps)
	k.I("SHRQ", asmgen.Imm(4), k.steps)
	k.I("DECQ", k.steps)
	k.I("JZ", last)
	k.CountDown(k.steps, func() {
		if panels == 2 {
			product(0, 0)
			product(0, 1)
			nextA(0)
			product(1, 0)
			loadB(0, 1)
			product(1, 1)
			loadB(1, 1)
			nextA(1)
		} else {
			product(0, 0)
			loadB(0, 1)
			product(0, 1)
			loadB(1, 1)
			nextA(0)
		}
		k.I("ADDQ", asmgen.Imm(16*columnStep), k.b)
	})
	k.Place(last)
	for i := range panels {
		for j := range amxB {
			product(i, j)
		}
	}
}
