package main

// MXINT8 by SMMLA, which multiplies two rows by two columns over eight codes.
//
// A group has eight codes of each row or column. A sum's register holds two rows of two columns, as
// with BFMMLA (neon_bf16.go). The scales are stored twice. So a vector has those of both rows, in
// the order of the sums, and so has a vector of columns.

import "spmoe/tensor/asmgen"

// group8 is the number of bytes of a row or column in a group.
const group8 = 8

func smmla(f *asmgen.File) {
	f.Constant("smmlaSteps", smmlaSteps)
	origin := int8Origin(f)
	for rows := 1; rows <= int8NEONRows; rows++ {
		tileSMMLA(f, rows, origin)
	}
	zipBytesNEON(f, "zipBytes8NEON", group8)
	peakNEON(f, "smmla", func(fn *asmgen.Func, x, y, sum asmgen.Neon) { fn.I("VSMMLA", x.B16(), y.B16(), sum.S4()) })
}

func tileSMMLA(f *asmgen.File, rows int, origin asmgen.Mem) {
	k := newInt8Neon(f, "smmla", rows, origin)
	even := (rows + 1) / 2 * 2 // with a row that is not stored
	all := vectorsOf(k.fn, even)
	k.sums, k.parts = all[:rows], vectorsOf(k.fn, even)
	as, bs := k.fn.Vs(even/2), k.fn.Vs(2)
	k.eachPanel(func() {
		k.start()
		clearRows(k.fn, all[rows:])
		exchange(k.fn, all, bs[0])
		k.blocks(smmlaSteps, func() {
			for group := range 4 {
				k.group(group, as, bs, func(i, j int, a, b asmgen.Neon) { k.fn.I("VSMMLA", b.B16(), a.B16(), k.parts[i][j].S4()) })
			}
			k.group(4, as, bs, func(i, j int, a, b asmgen.Neon) { k.scale(k.parts[i][j], b, a.S4(), all[i][j]) })
		})
		exchange(k.fn, all, bs[0])
		k.add()
		k.store()
	})
}

// group loads a group and runs do for every register of sums: the one at [i][j], with two rows and
// two columns. A load of rows may read past the record, but never past the line that follows the
// last panel.
func (k *int8Neon) group(group int, as, bs []asmgen.Neon, do func(i, j int, a, b asmgen.Neon)) {
	for i, v := range as {
		k.fn.I("FMOVQ", k.a.At(group8*len(k.sums)*group+16*i), v)
	}
	for j := range neonVectors {
		k.fn.I("FLDPQ", k.b.At(group8*4*(neonVectors*group+j)), asmgen.Pair{bs[0], bs[1]})
		for half, b := range bs {
			for i, a := range as {
				do(2*i+half, j, a, b)
			}
		}
	}
}
