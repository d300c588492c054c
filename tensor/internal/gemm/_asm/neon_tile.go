package main

// The microkernels of NEON. For every row count, one function multiplies a stack of row panels with
// one column panel, as the kernels of tile.go do.
//
// For each step of k, a row panel holds one float per row. A column panel holds three vectors. An
// instruction multiplies a vector of columns by one lane of the rows, so no row is broadcast.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

const (
	neonRows    = 8
	neonVectors = 3 // of columns
	neonUnroll  = 4 // steps in the body of the loop, a power of two
)

// tilesNEON generates the kernels for 1 to neonRows rows.
func tilesNEON(f *asmgen.File) {
	for rows := 1; rows <= neonRows; rows++ {
		tileNEON(f, rows)
	}
	peakNEON(f, "fp32NEON", func(fn *asmgen.Func, x, y, sum asmgen.Neon) { fn.I("VFMLA", x.S(0), y.S4(), sum.S4()) })
}

// neonTile is the frame of a microkernel.
type neonTile struct {
	fn                           *asmgen.Func
	t                            asmgen.Reg
	panel, sum, sumStride, count asmgen.Reg
	a, b, steps, row             asmgen.Reg
	sums                         [][]asmgen.Neon // rows, and vectors of columns in each
}

// newNeonTile begins a microkernel.
func newNeonTile(f *asmgen.File, prefix string, rows int) *neonTile {
	name := fmt.Sprintf("%sTiles%d", prefix, rows)
	fn := f.Func(name, fmt.Sprintf("%s multiplies row panels of %d rows with one column panel.", name, rows), asmgen.Arg("t", "*tile"))
	k := &neonTile{fn: fn, t: fn.Load("t")}
	k.panel, k.sum, k.sumStride, k.count = k.field("tile_a"), k.field("tile_sum"), k.field("tile_sumStride"), k.field("tile_count")
	k.a, k.b, k.steps, k.row = fn.GP(), fn.GP(), fn.GP(), fn.GP()
	return k
}

// field loads a field of the arguments.
func (k *neonTile) field(at asmgen.Field) asmgen.Reg {
	r := k.fn.GP()
	k.fn.I("MOVD", k.t.Field(at), r)
	return r
}

func tileNEON(f *asmgen.File, rows int) {
	k := newNeonTile(f, "fp32NEON", rows)
	k.sums = vectorsOf(k.fn, rows)
	k.eachPanel(func() {
		k.start()
		k.loop(1, 4*rows, 16*neonVectors, k.fp32Step())
		k.add()
		k.store()
	})
}

// eachPanel runs body for every row panel, and ends the function.
func (k *neonTile) eachPanel(body func()) {
	fn := k.fn
	next := fn.Label("next")
	fn.Place(next)
	fn.I("MOVD", k.panel, k.a)
	fn.I("MOVD", k.t.Field("tile_b"), k.b)
	body()
	fn.I("MOVD", k.t.Field("tile_aStride"), k.row)
	fn.I("ADD", k.row, k.panel)
	fn.I("SUBS", asmgen.Imm(1), k.count)
	fn.I("BNE", next)
	fn.Return()
}

// start loads the sums or clears them. It leaves sum alone.
func (k *neonTile) start() {
	fn := k.fn
	zero, ready := fn.Label("zero"), fn.Label("ready")
	fn.I("MOVD", k.t.Field("tile_startAtSum"), k.row)
	fn.I("CBZ", k.row, zero)
	fn.I("MOVD", k.sum, k.row)
	k.eachRow(k.row, func(_ int, s []asmgen.Neon) {
		fn.I("FLDPQ", k.row.At(0), asmgen.Pair{s[0], s[1]})
		fn.I("FMOVQ", k.row.At(32), s[2])
	})
	fn.I("JMP", ready)
	fn.Place(zero)
	clearRows(fn, k.sums)
	fn.Place(ready)
}

// vectorsOf takes registers for rows of columns.
func vectorsOf(fn *asmgen.Func, rows int) (all [][]asmgen.Neon) {
	for range rows {
		all = append(all, fn.Vs(neonVectors))
	}
	return all
}

// clearRows sets rows of sums to 0.
func clearRows(fn *asmgen.Func, sums [][]asmgen.Neon) {
	for _, s := range sums {
		for _, v := range s {
			fn.I("VMOVI", asmgen.Imm(0), v.B16())
		}
	}
}

// eachRow runs body for every row of sums, and moves a pointer down by the rows.
func (k *neonTile) eachRow(at asmgen.Reg, body func(i int, s []asmgen.Neon)) {
	for i, s := range k.sums {
		body(i, s)
		k.fn.I("ADD", k.sumStride, at)
	}
}

// loop runs the steps: unrolled, then the rest one by one. An instruction takes unit steps (1 or
// 2), with bytesA of the row panel and bytesB of the column panel. step multiplies number u of
// those at a and b.
func (k *neonTile) loop(unit, bytesA, bytesB int, step func(u int)) {
	fn := k.fn
	rest, done := fn.Label("rest"), fn.Label("done")
	run := func(n int) {
		fn.CountDown(k.steps, func() {
			for u := range n {
				step(u)
			}
			fn.I("ADD", asmgen.Imm(int64(bytesA*n)), k.a)
			fn.I("ADD", asmgen.Imm(int64(bytesB*n)), k.b)
		})
	}
	fn.I("MOVD", k.t.Field("tile_steps"), k.row)
	if unit == 2 {
		fn.I("LSR", asmgen.Imm(1), k.row)
	}
	fn.I("LSR", asmgen.Imm(2), k.row, k.steps) // log2(neonUnroll)
	fn.I("CBZ", k.steps, rest)
	run(neonUnroll)
	fn.Place(rest)
	fn.I("AND", asmgen.Imm(neonUnroll-1), k.row, k.steps)
	fn.I("CBZ", k.steps, done)
	run(1)
	fn.Place(done)
}

// fp32Step returns a step for FP32. A load of rows may read past the panel's step, but never past
// the line that follows the last panel.
func (k *neonTile) fp32Step() func(u int) {
	fn, rows := k.fn, len(k.sums)
	as, bs := fn.Vs((rows+3)/4), fn.Vs(neonVectors)
	return func(u int) {
		fn.I("FLDPQ", k.b.At(48*u), asmgen.Pair{bs[0], bs[1]})
		fn.I("FMOVQ", k.b.At(48*u+32), bs[2])
		for i, v := range as {
			fn.I("FMOVQ", k.a.At(4*rows*u+16*i), v)
		}
		for i, s := range k.sums {
			for j, b := range bs {
				fn.I("VFMLA", as[i/4].S(i%4), b.S4(), s[j].S4())
			}
		}
	}
}

// add adds tile.adds pending sums to the sums. The last of them lies where the result will be
// stored.
func (k *neonTile) add() {
	fn := k.fn
	place, stride, count, row := k.a, k.b, k.steps, k.row
	none, x := fn.Label("none"), fn.V()
	fn.I("MOVD", k.t.Field("tile_adds"), count)
	fn.I("CBZ", count, none)
	fn.I("MOVD", k.t.Field("tile_addStride"), stride)
	fn.I("SUB", asmgen.Imm(1), count, place)
	fn.I("MUL", stride, place)
	fn.I("ADD", k.sum, place)
	fn.CountDown(count, func() {
		fn.I("MOVD", place, row)
		k.eachRow(row, func(_ int, s []asmgen.Neon) {
			for j, v := range s {
				fn.I("FMOVQ", row.At(16*j), x)
				fn.I("VFADD", x.S4(), v.S4(), v.S4())
			}
		})
		fn.I("SUB", stride, place)
	})
	fn.Place(none)
	fn.Free(x)
}

// store stores the sums, and moves sum to the next tile.
func (k *neonTile) store() {
	k.eachRow(k.sum, func(_ int, s []asmgen.Neon) {
		k.fn.I("FSTPQ", asmgen.Pair{s[0], s[1]}, k.sum.At(0))
		k.fn.I("FMOVQ", s[2], k.sum.At(32))
	})
}

// peakNEON runs an instruction on 24 sums in registers.
func peakNEON(f *asmgen.File, prefix string, multiply func(fn *asmgen.Func, x, y, sum asmgen.Neon)) {
	const sums = neonRows * neonVectors
	name := prefix + "Peak"
	fn := f.Func(name, fmt.Sprintf("%s runs rounds (> 0) times %d independent vector multiply-adds.", name, sums), asmgen.Arg("rounds", "int"))
	rounds := fn.Load("rounds")
	vs := fn.Vs(sums + 2)
	for _, v := range vs {
		fn.I("VMOVI", asmgen.Imm(0), v.B16())
	}
	fn.CountDown(rounds, func() {
		for _, sum := range vs[2:] {
			multiply(fn, vs[0], vs[1], sum)
		}
	})
	fn.Return()
}
