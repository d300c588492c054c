package main

// Products of few rows of MXINT8. b is read in place once, 16 rows at a time. Its codes are
// transposed in registers.
//
// Here the codes of b are the unsigned ones, so that those of a can be broadcast from memory. a is
// packed as a column panel.

import "spmoe/tensor/asmgen"

// directRows is the largest number of rows of a.
const directRows = 12

func directInt8(f *asmgen.File) {
	f.Constant("directHeight", directRows)
	flip := f.Data32("flip", 0x80808080)
	for rows := 1; rows <= directRows; rows++ {
		int8DirectAlong(f, rows, flip)
	}
}

// int8Direct is the common part of the kernels.
type int8Direct struct {
	fn           *asmgen.Func
	t, a, blocks asmgen.Reg
	codes, parts []asmgen.Vec // of b: each of 8 vectors has 4 codes of each row
	scale, flip  asmgen.Vec
	sums         [][]asmgen.Vec
}

func newInt8Direct(fn *asmgen.Func, rows, parts int, flip asmgen.Mem) int8Direct {
	k := int8Direct{fn: fn, t: fn.Load("t"), a: fn.GP(), blocks: fn.GP(), codes: fn.Zs(recordCodes), parts: fn.Zs(parts), scale: fn.Z(), flip: fn.Z()}
	for range rows {
		k.sums = append(k.sums, fn.Zs(1))
	}
	fn.I("MOVQ", k.t.Field("tile_columns"), k.a)
	fn.I("KMOVW", k.a, asmgen.K(1))
	fn.I("VPBROADCASTD", flip, k.flip)
	return k
}

// multiply adds the products of the nth block from here.
func (k int8Direct) multiply(nth int) {
	fn, rows := k.fn, len(k.sums)
	a := func(step, i int) asmgen.Mem { return k.a.At(4 * (rows*(recordSteps*nth+step) + i)) }
	for i, sum := range k.sums {
		part := k.parts[i%len(k.parts)]
		fn.I("VPBROADCASTD", a(recordSums, i), part)
		for step, v := range k.codes {
			fn.I("VPDPBUSD.BCST", a(step, i), v, part)
		}
		fn.I("VCVTDQ2PS", part, part)
		fn.I("VMULPS", k.scale, part, part)
		fn.I("VFMADD231PS.BCST", a(recordScales, i), part, sum[0])
	}
}

// advance moves on by n blocks of a.
func (k int8Direct) advance(n int) {
	k.fn.I("ADDQ", asmgen.Imm(int64(4*recordSteps*n*len(k.sums))), k.a)
}

// store stores the sums.
func (k int8Direct) store(sum, stride asmgen.Reg) {
	for _, v := range k.sums {
		k.fn.I("VMOVUPS", v[0], asmgen.K(1), sum.At(0))
		k.fn.I("ADDQ", stride, sum)
	}
}
