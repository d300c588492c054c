package main

// MXINT8 by SDOT, for CPUs without SMMLA. It multiplies four codes of a row by four codes of each
// of four columns.
//
// A group has four codes of each row or column, and the scales take a group. A sum's register holds
// one row of four columns.

import "spmoe/tensor/asmgen"

func sdot(f *asmgen.File) {
	f.Constant("sdotSteps", sdotSteps)
	origin := int8Origin(f)
	for rows := 1; rows <= int8NEONRows; rows++ {
		tileSDOT(f, rows, origin)
	}
	zipBytesNEON(f, "zipBytes4NEON", 4)
	peakNEON(f, "sdot", func(fn *asmgen.Func, x, y, sum asmgen.Neon) { fn.I("VSDOT", x.B4(0), y.B16(), sum.S4()) })
}

func tileSDOT(f *asmgen.File, rows int, origin asmgen.Mem) {
	k := newInt8Neon(f, "sdot", rows, origin)
	fn := k.fn
	k.sums, k.parts = vectorsOf(fn, rows), vectorsOf(fn, rows)
	a, bs := fn.V(), fn.Vs(neonVectors)
	// group loads a group and runs do for every sum. A load of rows may read past the record, but
	// never past the line that follows the last panel.
	group := func(group int, do func(i, j int, b asmgen.Neon)) {
		fn.I("FMOVQ", k.a.At(4*rows*group), a)
		fn.I("FLDPQ", k.b.At(48*group), asmgen.Pair{bs[0], bs[1]})
		fn.I("FMOVQ", k.b.At(48*group+32), bs[2])
		for i := range rows {
			for j, b := range bs {
				do(i, j, b)
			}
		}
	}
	k.eachPanel(func() {
		k.start()
		k.blocks(sdotSteps, func() {
			for at := range sdotSteps - 1 {
				group(at, func(i, j int, b asmgen.Neon) { fn.I("VSDOT", a.B4(i), b.B16(), k.parts[i][j].S4()) })
			}
			group(sdotSteps-1, func(i, j int, b asmgen.Neon) { k.scale(k.parts[i][j], b, a.S(i), k.sums[i][j]) })
		})
		k.add()
		k.store()
	})
}
