package main

// The microkernels of NEON with BFMMLA, which multiplies two rows by two columns over four elements
// of k.
//
// For every four elements of k, panels hold these four of each row or column, as BF16. A sum's
// register holds two rows of two columns. Before and after the steps, pairs of registers are
// exchanged with rows of four columns.

import "spmoe/tensor/asmgen"

// quadBytes holds four elements of k.
const quadBytes = 8

func tilesBF16NEON(f *asmgen.File) {
	for rows := 1; rows <= neonRows; rows++ {
		tileBF16NEON(f, rows)
	}
	packQuadsNEON(f)
	zipQuadsNEON(f)
	peakNEON(f, "bf16NEON", func(fn *asmgen.Func, x, y, sum asmgen.Neon) { fn.I("VBFMMLA", x.H8(), y.H8(), sum.S4()) })
}

func tileBF16NEON(f *asmgen.File, rows int) {
	k := newNeonTile(f, "bf16NEON", rows)
	all := vectorsOf(k.fn, (rows+1)/2*2) // with a row that makes their number even
	k.sums = all[:rows]
	k.eachPanel(func() {
		k.start()
		clearRows(k.fn, all[rows:])
		as, bs := k.fn.Vs(len(all)/2), k.fn.Vs(2)
		exchange(k.fn, all, bs[0])
		k.loop(2, quadBytes*rows, quadBytes*4*neonVectors, func(u int) { k.bf16Step(u, all, as, bs) })
		exchange(k.fn, all, bs[0])
		k.add()
		k.store()
	})
}

// exchange turns two rows of four columns into two registers of two rows and two columns, or back.
func exchange(fn *asmgen.Func, all [][]asmgen.Neon, temp asmgen.Neon) {
	for i := 0; i < len(all); i += 2 {
		for j, x := range all[i] {
			y := all[i+1][j]
			fn.I("VZIP2", y.D2(), x.D2(), temp.D2())
			fn.I("VZIP1", y.D2(), x.D2(), x.D2())
			fn.I("VMOV", temp.B16(), y.B16())
		}
	}
}

// bf16Step multiplies four elements of k. A load of rows may read past the panel's step, but never
// past the line that follows the last panel.
func (k *neonTile) bf16Step(u int, all [][]asmgen.Neon, as, bs []asmgen.Neon) {
	fn := k.fn
	for i, v := range as {
		fn.I("FMOVQ", k.a.At(quadBytes*len(k.sums)*u+16*i), v)
	}
	for j := range neonVectors {
		fn.I("FLDPQ", k.b.At(quadBytes*4*(neonVectors*u+j)), asmgen.Pair{bs[0], bs[1]})
		for half, b := range bs {
			for i, a := range as {
				fn.I("VBFMMLA", b.H8(), a.H8(), all[2*i+half][j].S4())
			}
		}
	}
}

// packQuadsNEON packs four rows that are contiguous along k.
func packQuadsNEON(f *asmgen.File) {
	fn := f.Func("packQuadsNEON", "packQuadsNEON packs 4 rows that are contiguous along k; row i begins at src + offsets[i]. "+
		"It stores blocks (> 0) times 2 steps of 4 elements of each row, step bytes apart.",
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("offsets", "*[4]int"),
		asmgen.Arg("blocks", "int"), asmgen.Arg("step", "int"))
	dst, src, offsets, blocks, step := fn.Load("dst"), fn.Load("src"), fn.Load("offsets"), fn.Load("blocks"), fn.Load("step")
	var from [4]asmgen.Reg
	for i := range from {
		from[i] = fn.GP()
		fn.I("MOVD", offsets.At(8*i), from[i])
		fn.I("ADD", src, from[i])
	}
	rows, pairs := fn.Vs(4), fn.Vs(2)
	fn.CountDown(blocks, func() {
		for i, v := range rows {
			fn.I("FMOVQ", from[i].At(0), v)
			fn.I("ADD", asmgen.Imm(16), from[i])
		}
		for _, zip := range []string{"VZIP1", "VZIP2"} {
			for i, v := range pairs {
				fn.I(zip, rows[2*i+1].D2(), rows[2*i].D2(), v.D2())
			}
			fn.I("FSTPQ", asmgen.Pair{pairs[0], pairs[1]}, dst.At(0))
			fn.I("ADD", step, dst)
		}
	})
	fn.Return()
}

// zipQuadsNEON packs four rows that are adjacent in memory.
func zipQuadsNEON(f *asmgen.File) {
	fn, dst, src, stride, k, step := acrossArgs(f, "zipQuadsNEON", "k (a multiple of 4, > 0) elements of 4 BF16 rows in steps of 4", "")
	vs, pairs := fn.Vs(4), fn.Vs(2)
	fn.I("LSR", asmgen.Imm(2), k)
	fn.CountDown(k, func() {
		for _, v := range vs {
			fn.I("FMOVD", src.At(0), v)
			fn.I("ADD", stride, src)
		}
		for i, v := range pairs {
			fn.I("VZIP1", vs[2*i+1].H8(), vs[2*i].H8(), v.H8())
		}
		fn.I("VZIP1", pairs[1].S4(), pairs[0].S4(), vs[0].S4())
		fn.I("VZIP2", pairs[1].S4(), pairs[0].S4(), vs[1].S4())
		fn.I("FSTPQ", asmgen.Pair{vs[0], vs[1]}, dst.At(0))
		fn.I("ADD", step, dst)
	})
	fn.Return()
}
