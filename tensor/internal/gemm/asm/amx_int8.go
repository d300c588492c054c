package main

// The AMX microkernel for MXINT8. For every block it makes an exact integer tile of 16 rows by 16
// columns and scales it into FP32 sums. Vector instructions cannot read tiles, so the integers go
// through memory. They are made some blocks before they are scaled.
//
// For every block, a row panel holds the 32 codes of each of 16 rows and the rows' scales. They
// take the space of a record. A column panel is that of the AVX-512 kernels.

import "spmoe/tensor/asmgen"

// Sizes in bytes: a record of a row panel; a record of a column panel; a row of codes.
const (
	amxRecordA = 16 * 4 * recordSteps
	amxRecordB = columnStep * recordSteps
	amxRow     = 32
)

func amxInt8(f *asmgen.File) {
	f.Constant("tileRoom", 4*tileBytes)
	amxInt8Tiles(f)
	amxInt8Pack(f)
}

type amxInt8Kernel struct {
	*asmgen.Func
	a, b, scratch asmgen.Reg
	// Bytes between rows of a tile of a, of a tile of b and of the scratch.
	rowStep, columnStep, sumStep asmgen.Reg
	sums, parts                  []asmgen.Vec
	scale                        asmgen.Vec
}

func amxInt8Tiles(f *asmgen.File) {
	fn := f.Func("int8AMXTiles", "int8AMXTiles multiplies count rows, in panels of 16, with one column panel of 32 columns. out has room for four tiles.",
		asmgen.Arg("t", "*tile"))
	k := amxInt8Kernel{Func: fn, sums: fn.Zs(16), parts: fn.Zs(8), scale: fn.Z()}
	t := fn.Load("t")
	field := func(at asmgen.Field) asmgen.Reg { r := fn.GP(); fn.I("MOVQ", t.Field(at), r); return r }
	panel, rows, sum, sumStride := field("tile_a"), field("tile_count"), field("tile_sum"), field("tile_sumStride")
	k.scratch, k.a, k.b = field("tile_out"), fn.GP(), fn.GP()
	blocks, at := fn.GP(), fn.GP()
	k.rowStep, k.columnStep, k.sumStep = fn.GP(), fn.GP(), fn.GP()
	fn.I("MOVQ", asmgen.Imm(amxRow), k.rowStep)
	fn.I("MOVQ", asmgen.Imm(columnStep), k.columnStep)
	fn.I("MOVQ", asmgen.Imm(64), k.sumStep)
	fn.I("LDTILECFG", t.Field("tile_tiled+tiled_config"))

	next, done := fn.Label("next"), fn.Label("done")
	fn.Place(next)
	for j := range 2 {
		// each calls body for the panel's rows that exist.
		each := func(body func(i int)) {
			end := fn.Label("end")
			fn.I("LEAQ", sum.At(64*j), at)
			for i := range k.sums {
				body(i)
				fn.I("ADDQ", sumStride, at)
				fn.I("CMPQ", rows, asmgen.Imm(int64(i+1)))
				fn.I("JLE", end)
			}
			fn.Place(end)
		}
		for _, s := range k.sums {
			fn.I("VPXORD", s, s, s)
		}
		ready := fn.Label("ready")
		fn.I("CMPQ", t.Field("tile_startAtSum"), asmgen.Imm(0))
		fn.I("JEQ", ready)
		each(func(i int) { fn.I("VMOVUPS", at.At(0), k.sums[i]) })
		fn.Place(ready)
		fn.I("MOVQ", panel, k.a)
		fn.I("MOVQ", t.Field("tile_b"), k.b)
		if j > 0 {
			fn.I("ADDQ", asmgen.Imm(64), k.b)
		}
		fn.I("MOVQ", t.Field("tile_steps"), blocks)
		k.blocks(blocks, at)
		each(func(i int) { fn.I("VMOVUPS", k.sums[i], at.At(0)) })
	}
	fn.I("ADDQ", t.Field("tile_aStride"), panel)
	fn.I("MOVQ", sumStride, at)
	fn.I("SHLQ", asmgen.Imm(4), at)
	fn.I("ADDQ", at, sum)
	fn.I("SUBQ", asmgen.Imm(16), rows)
	fn.I("JLE", done)
	fn.I("CMPQ", rows, asmgen.Imm(16))
	fn.I("JGE", next)
	fn.I("LDTILECFG", t.Field("tile_tiled+tiled_config").Plus(64))
	fn.I("JMP", next)
	fn.Place(done)
	fn.I("TILERELEASE")
	fn.Return()
}

// amxAhead is the number of blocks between making integers and reading them. It covers the latency
// of their way through memory.
const amxAhead = 3

// blocks sums all blocks. steps counts recordSteps per block, and left is free.
func (k amxInt8Kernel) blocks(steps, left asmgen.Reg) {
	loop, ready, done := k.Label("loop"), k.Label("ready"), k.Label("done")
	k.I("MOVQ", steps, left)
	for turn := range amxAhead {
		k.multiply(turn, turn)
		k.I("SUBQ", asmgen.Imm(recordSteps), left)
		k.I("JE", ready)
	}
	k.Place(ready)
	k.Place(loop)
	for turn := range amxAhead + 1 {
		made := k.Label("made")
		k.I("TESTQ", left, left)
		k.I("JE", made)
		k.multiply((turn+amxAhead)%(amxAhead+1), amxAhead)
		k.I("SUBQ", asmgen.Imm(recordSteps), left)
		k.Place(made)
		k.scaled(turn)
		k.I("ADDQ", asmgen.Imm(amxRecordA), k.a)
		k.I("ADDQ", asmgen.Imm(amxRecordB), k.b)
		k.I("SUBQ", asmgen.Imm(recordSteps), steps)
		k.I("JE", done)
	}
	k.I("JMP", loop)
	k.Place(done)
}

// multiply makes the integers of the block that follows the present one at a distance of ahead
// blocks.
func (k amxInt8Kernel) multiply(turn, ahead int) {
	c, a, b := asmgen.TMM(turn%2), asmgen.TMM(2+turn%2), asmgen.TMM(4+turn%2)
	k.I("TILEZERO", c)
	k.I("TILELOADD", k.a.At(amxRecordA*ahead).Index(k.rowStep, 1), a)
	k.I("TILELOADD", k.b.At(amxRecordB*ahead).Index(k.columnStep, 1), b)
	k.I("TDPBSSD", b, a, c)
	k.I("TILESTORED", c, k.scratch.At(tileBytes*turn).Index(k.sumStep, 1))
}

// scaled adds the integers of the present block to the sums. It multiplies by the column's scale
// first, as the AVX-512 kernels do.
func (k amxInt8Kernel) scaled(turn int) {
	k.I("VMOVUPS", k.b.At(columnStep*recordScales), k.scale)
	for i, sum := range k.sums {
		x := k.parts[i%len(k.parts)]
		k.I("VCVTDQ2PS", k.scratch.At(tileBytes*turn+64*i), x)
		k.I("VMULPS", k.scale, x, x)
		k.I("VFMADD231PS.BCST", k.a.At(64*recordScaleA+4*i), x, sum)
	}
}

// amxInt8Pack transposes records of a row panel from steps of 16 rows to rows of 8 steps.
func amxInt8Pack(f *asmgen.File) {
	fn := f.Func("tileRecordsAVX512", "tileRecordsAVX512 transposes the codes of blocks (> 0) records of 16 rows from 8 steps of 16 dwords to 16 rows of 8, in place.",
		asmgen.Arg("panel", "unsafe.Pointer"), asmgen.Arg("blocks", "int"))
	panel, blocks := fn.Load("panel"), fn.Load("blocks")
	rows, other := fn.Zs(16), fn.Zs(16)
	fn.CountDown(blocks, func() {
		for i, v := range rows {
			if i < recordCodes {
				fn.I("VMOVUPS", panel.At(64*i), v)
			} else {
				fn.I("VPXORD", v, v, v)
			}
		}
		transpose16(fn, rows, other)
		for i, v := range rows {
			fn.I("VMOVUPS", v.Y(), panel.At(amxRow*i))
		}
		fn.I("ADDQ", asmgen.Imm(amxRecordA), panel)
	})
	fn.Return()
}
