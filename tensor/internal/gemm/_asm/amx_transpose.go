package main

// Transposing the sums of transposed products.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// transposedRows is the number of rows of a result that are made at once.
const transposedRows = 8

func amxTranspose(f *asmgen.File, name, result string, round bool) {
	fn := f.Func(name, fmt.Sprintf("%s transposes groups (> 0) times 16 rows of sums, %d bytes apart: column i of rows (1 to %d) becomes row i of dst, %s, stride bytes apart.\n"+
		"It reads %d columns.", name, sumsRow, transposedRows, result, transposedRows),
		asmgen.Arg("dst", "unsafe.Pointer"), asmgen.Arg("src", "unsafe.Pointer"), asmgen.Arg("stride", "int"), asmgen.Arg("groups", "int"), asmgen.Arg("rows", "int"))
	step := 64
	if round {
		step = 32
	}
	dst, src, stride, groups, rows, to := fn.Load("dst"), fn.Load("src"), fn.Load("stride"), fn.Load("groups"), fn.Load("rows"), fn.GP()
	quads, other := fn.Zs(8), fn.Zs(8)
	fn.CountDown(groups, func() {
		done := fn.Label("done")
		for i, v := range quads {
			row := i/4*8 + i%4
			fn.I("VMOVUPS", src.At(sumsRow*row), v.Y())
			fn.I("VINSERTF64X4", asmgen.Imm(1), src.At(sumsRow*(row+4)), v, v)
		}
		transposeQuads(fn, quads, other)
		// Lanes 0 and 2 hold column c of four rows each, lanes 1 and 3 column 4+c.
		for c := range 4 {
			fn.I("VSHUFF32X4", asmgen.Imm(0x88), quads[4+c], quads[c], other[c])
			fn.I("VSHUFF32X4", asmgen.Imm(0xdd), quads[4+c], quads[c], other[4+c])
		}
		fn.I("MOVQ", dst, to)
		for i, v := range other {
			if round {
				fn.I("VCVTNEPS2BF16", v, v.Y())
				v = v.Y()
			}
			fn.I("VMOVUPS", v, to.At(0))
			fn.I("CMPQ", rows, asmgen.Imm(i+1))
			fn.I("JEQ", done)
			fn.I("ADDQ", stride, to)
		}
		fn.Place(done)
		fn.I("ADDQ", asmgen.Imm(16*sumsRow), src)
		fn.I("ADDQ", asmgen.Imm(step), dst)
	})
	fn.Return()
}
