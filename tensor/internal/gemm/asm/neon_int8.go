package main

// Products of MXINT8 on NEON: exact integer sums of the 32 products of a block, which are then
// scaled into FP32 sums.
//
// Panels hold records, one per block. A record consists of groups: each has a few adjacent codes of
// every row or column. The last group of a record has the scales as FP32 numbers.
//
// Integer sums start at the bits of 1.5·2^23. One more in the integer is then one more in the
// number, so subtracting 1.5·2^23 converts the sum exactly. Neoverse cores subtract on four pipes,
// but a conversion of integers takes two of them.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

const (
	int8NEONRows = 4
	// Steps of a record: dwords per row or column.
	smmlaSteps = 10
	sdotSteps  = 9
)

// int8Neon is the frame of a microkernel.
type int8Neon struct {
	*neonTile
	parts  [][]asmgen.Neon // integer sums
	origin asmgen.Neon     // 1.5·2^23
	from   asmgen.Reg      // where it lies in memory
}

func newInt8Neon(f *asmgen.File, prefix string, rows int, origin asmgen.Mem) *int8Neon {
	k := &int8Neon{neonTile: newNeonTile(f, prefix, rows)}
	k.from, k.origin = k.fn.GP(), k.fn.V()
	k.fn.I("MOVD", origin.Address(), k.from)
	k.fn.I("FMOVQ", k.from.At(0), k.origin)
	return k
}

// int8Origin adds the constant from which integer sums start.
func int8Origin(f *asmgen.File) asmgen.Mem {
	const bits = 0x4b40_0000
	return f.Data32("origin", bits, bits, bits, bits)
}

// blocks runs body for every record. The integer sums are at their origin then.
func (k *int8Neon) blocks(steps int, body func()) {
	fn, rows := k.fn, len(k.sums)
	next := fn.Label("block")
	fn.I("MOVD", k.t.Field("tile_steps"), k.steps)
	fn.Align(64)
	fn.Place(next)
	for _, row := range k.parts {
		for _, p := range row {
			fn.I("FMOVQ", k.from.At(0), p)
		}
	}
	body()
	fn.I("ADD", asmgen.Imm(int64(4*rows*steps)), k.a)
	fn.I("ADD", asmgen.Imm(int64(16*neonVectors*steps)), k.b)
	fn.I("SUBS", asmgen.Imm(int64(steps)), k.steps)
	fn.I("BNE", next)
}

// scale adds an integer sum, times the scales of its columns and rows, to an FP32 sum. Only the
// last operation rounds.
func (k *int8Neon) scale(part, columns, rows, sum asmgen.Neon) {
	k.fn.I("VFSUB", k.origin.S4(), part.S4(), part.S4())
	k.fn.I("VFMUL", columns.S4(), part.S4(), part.S4())
	k.fn.I("VFMLA", rows, part.S4(), sum.S4())
}

// zipBytesNEON packs rows that are adjacent in memory, unit codes (4 or 8) of each in a group.
func zipBytesNEON(f *asmgen.File, name string, unit int) {
	fn, dst, src, stride, k, step := acrossArgs(f, name, fmt.Sprintf("k (a multiple of 32, > 0) codes of 4 rows in groups of %d", unit),
		". After every 32 codes it leaves out a group, that of the scales")
	fn.I("LSR", asmgen.Imm(5), k)
	vs := fn.Vs(8)
	quad := func(vs []asmgen.Neon) { // four codes of each row end up in vs[0]
		for _, v := range vs {
			fn.I("FMOVS", src.At(0), v)
			fn.I("ADD", stride, src)
		}
		fn.I("VZIP1", vs[1].B16(), vs[0].B16(), vs[0].B16())
		fn.I("VZIP1", vs[3].B16(), vs[2].B16(), vs[2].B16())
		fn.I("VZIP1", vs[2].H8(), vs[0].H8(), vs[0].H8())
	}
	fn.CountDown(k, func() {
		for range 32 / unit {
			quad(vs[:4])
			if unit == 4 {
				fn.I("FMOVQ", vs[0], dst.At(0))
			} else {
				quad(vs[4:])
				fn.I("VZIP1", vs[4].S4(), vs[0].S4(), vs[1].S4())
				fn.I("VZIP2", vs[4].S4(), vs[0].S4(), vs[2].S4())
				fn.I("FSTPQ", asmgen.Pair{vs[1], vs[2]}, dst.At(0))
			}
			fn.I("ADD", step, dst)
		}
		fn.I("ADD", step, dst)
	})
	fn.Return()
}
