package main

// The microkernels. For every row count, one function multiplies a stack of row panels with one
// column panel.
//
// For each step of k, a row panel holds one dword per row: a float or a pair of BF16. A column
// panel holds two vectors per step. All sums of a tile stay in registers for the whole run of
// steps.

import (
	"fmt"
	"math/bits"

	"spmoe/tensor/asmgen"
)

// A microkernel generates the code of one microkernel for 1..rows rows and two vectors of columns.
type microkernel struct {
	prefix         string
	rows           int
	width          int // bytes of a vector
	vecs           func(*asmgen.Func, int) []asmgen.Vec
	spares         int    // registers for elements of the row panel
	broadcast, mac string // load an element of the row panel into all lanes; sums += a·b
	rounds         bool   // stores rows as BF16 on request
	scales         bool   // scales sums on request; it must be masked
}

var (
	bf16AVX512 = microkernel{"bf16AVX512", 12, 64, (*asmgen.Func).Zs, 6, "VBROADCASTSS", "VDPBF16PS", true, true}
	fp32AVX512 = microkernel{"fp32AVX512", 12, 64, (*asmgen.Func).Zs, 6, "VBROADCASTSS", "VFMADD231PS", false, true}
	fp32AVX2   = microkernel{"fp32AVX2", 6, 32, (*asmgen.Func).Ys, 2, "VBROADCASTSS", "VFMADD231PS", false, false}
)

// unroll is the number of steps in the body of the loop, a power of two.
const unroll = 4

func (k microkernel) tiles(f *asmgen.File) {
	for mr := 1; mr <= k.rows; mr++ {
		k.tile(f, mr)
	}
	k.peak(f)
}

func (k microkernel) tile(f *asmgen.File, mr int) {
	name := fmt.Sprintf("%sTiles%d", k.prefix, mr)
	fn := f.Func(name, fmt.Sprintf("%s multiplies row panels of %d rows with one column panel.", name, mr), asmgen.Arg("t", "*tile"))
	t := fn.Load("t")
	field := func(at asmgen.Field) asmgen.Reg { r := fn.GP(); fn.I("MOVQ", t.Field(at), r); return r }
	panel, sum, sumStride, count := field("tile_a"), field("tile_sum"), field("tile_sumStride"), field("tile_count")
	out, outStride := sum, sumStride
	if k.rounds {
		out, outStride = field("tile_out"), field("tile_outStride")
	}
	a, b, steps, row := fn.GP(), fn.GP(), fn.GP(), fn.GP()
	sums := make([][]asmgen.Vec, mr)
	for i := range sums {
		sums[i] = k.vecs(fn, 2)
	}
	if k.masked() {
		fn.I("MOVQ", t.Field("tile_columns"), row)
		fn.I("KMOVD", row, asmgen.K(1))
		fn.I("KSHIFTRD", asmgen.Imm(16), asmgen.K(1), asmgen.K(2))
	}
	next := fn.Label("next")
	fn.Place(next)
	k.start(fn, t, sum, sumStride, out, outStride, row, sums)

	fn.I("MOVQ", panel, a)
	fn.I("MOVQ", t.Field("tile_b"), b)
	k.steps(fn, t, a, b, steps, sums)
	fn.I("ADDQ", t.Field("tile_aStride"), panel)

	k.finish(fn, t, sum, sumStride, out, outStride, [4]asmgen.Reg{a, b, steps, row}, sums)
	fn.I("DECQ", count)
	fn.I("JNZ", next)
	fn.Return()
}

// start loads the sums or clears them, and prefetches the destination of finish: stores that miss
// the caches would delay the next tile. It leaves sum and out alone.
func (k microkernel) start(fn *asmgen.Func, t, sum, sumStride, out, outStride, row asmgen.Reg, sums [][]asmgen.Vec) {
	clear, ready := fn.Label("clear"), fn.Label("ready")
	fetch := func(from, stride asmgen.Reg, bytes int) {
		fn.I("MOVQ", from, row)
		for range sums {
			for at := 0; at < bytes; at += 64 {
				fn.I("PREFETCHT0", row.At(at))
			}
			fn.I("ADDQ", stride, row)
		}
	}
	if k.rounds {
		toSums := fn.Label("toSums")
		fn.I("TESTQ", out, out)
		fn.I("JZ", toSums)
		fetch(out, outStride, k.width)
		fn.Place(toSums)
	}
	fn.I("CMPQ", t.Field("tile_startAtSum"), asmgen.Imm(0))
	fn.I("JEQ", clear)
	fn.I("MOVQ", sum, row)
	for _, s := range sums {
		for j, v := range s {
			if k.masked() {
				fn.I("VMOVUPS.Z", row.At(64*j), asmgen.K(1+j), v)
			} else {
				fn.I("VMOVUPS", row.At(k.width*j), v)
			}
		}
		fn.I("ADDQ", sumStride, row)
	}
	fn.I("JMP", ready)
	fn.Place(clear)
	for _, s := range sums {
		for _, v := range s {
			fn.I("VXORPS", v.Y(), v.Y(), v.Y())
		}
	}
	if k.rounds {
		fn.I("TESTQ", out, out)
		fn.I("JNZ", ready)
	}
	fetch(sum, sumStride, max(2, len(sums[0]))*k.width)
	fn.Place(ready)
}

// steps runs the multiply-adds: unrolled, then the rest one by one.
func (k microkernel) steps(fn *asmgen.Func, t, a, b, steps asmgen.Reg, sums [][]asmgen.Vec) {
	bs, spare := k.vecs(fn, 2), k.vecs(fn, k.spares)
	step := func(u int) {
		for j, v := range bs {
			fn.I("VMOVUPS", b.At((2*u+j)*k.width), v)
		}
		for i, s := range sums {
			x := spare[i%len(spare)]
			fn.I(k.broadcast, a.At((u*len(sums)+i)*4), x)
			fn.I(k.mac, bs[0], x, s[0])
			fn.I(k.mac, bs[1], x, s[1])
		}
	}
	advance := func(n int) {
		fn.I("ADDQ", asmgen.Imm(4*len(sums)*n), a)
		fn.I("ADDQ", asmgen.Imm(2*k.width*n), b)
	}
	rest, done := fn.Label("rest"), fn.Label("done")
	fn.I("MOVQ", t.Field("tile_steps"), steps)
	fn.I("SHRQ", asmgen.Imm(int64(bits.Len(unroll-1))), steps)
	fn.I("JZ", rest)
	fn.CountDown(steps, func() {
		for u := range unroll {
			step(u)
		}
		advance(unroll)
	})
	fn.Place(rest)
	fn.I("MOVQ", t.Field("tile_steps"), steps)
	fn.I("ANDQ", asmgen.Imm(unroll-1), steps)
	fn.I("JZ", done)
	fn.CountDown(steps, func() {
		step(0)
		advance(1)
	})
	fn.Place(done)
	for _, v := range append(bs, spare...) {
		fn.Free(v)
	}
}

// finish stores the sums: rounded, or as FP32, scaled and with pending sums added. Then it moves
// sum to the next tile. If it rounds, it also moves out.
func (k microkernel) finish(fn *asmgen.Func, t, sum, sumStride, out, outStride asmgen.Reg, free [4]asmgen.Reg, sums [][]asmgen.Vec) {
	plain, stored := fn.Label("plain"), fn.Label("stored")
	if k.rounds {
		fn.I("TESTQ", out, out)
		fn.I("JZ", plain)
		for _, s := range sums {
			for j, v := range s {
				fn.I("VCVTNEPS2BF16", v, v.Y())
				fn.I("VMOVDQU16", v.Y(), asmgen.K(1+j), out.At(32*j))
			}
			fn.I("ADDQ", outStride, out)
			fn.I("ADDQ", sumStride, sum)
		}
		fn.I("JMP", stored)
		fn.Place(plain)
	}
	if k.scales {
		k.scale(fn, t, free, sums)
	}
	k.add(fn, t, sum, sumStride, free, sums)
	for _, s := range sums {
		for j, v := range s {
			if k.masked() {
				fn.I("VMOVUPS", v, asmgen.K(1+j), sum.At(64*j))
			} else {
				fn.I("VMOVUPS", v, sum.At(k.width*j))
			}
		}
		fn.I("ADDQ", sumStride, sum)
	}
	if k.rounds {
		fn.Place(stored)
	}
}

// scale multiplies the sums by tile.rowScales and tile.columnScales, if there are any, and moves
// tile.rowScale to the next tile. Each product is rounded.
func (k microkernel) scale(fn *asmgen.Func, t asmgen.Reg, free [4]asmgen.Reg, sums [][]asmgen.Vec) {
	at, stride, columns := free[0], free[1], free[2]
	none, perColumn, scaled := fn.Label("unscaled"), fn.Label("perColumn"), fn.Label("scaled")
	fn.I("MOVQ", t.Field("tile_rowScales"), at)
	fn.I("TESTQ", at, at)
	fn.I("JZ", none)
	fn.I("ADDQ", t.Field("tile_rowScale"), at)
	fn.I("MOVQ", t.Field("tile_rowScaleStride"), stride)
	fn.I("MOVQ", t.Field("tile_columnScales"), columns)
	x, of := fn.Z(), fn.Zs(2)
	fn.I("CMPQ", t.Field("tile_perColumn"), asmgen.Imm(0))
	fn.I("JNE", perColumn)
	fn.I("VBROADCASTSS", columns.At(0), of[0])
	for _, s := range sums {
		fn.I("VMULPS.BCST", at.At(0), of[0], x)
		for _, v := range s {
			fn.I("VMULPS", x, v, v)
		}
		fn.I("ADDQ", stride, at)
	}
	fn.I("JMP", scaled)
	fn.Place(perColumn)
	for j, v := range of {
		fn.I("VMOVUPS.Z", columns.At(64*j), asmgen.K(1+j), v)
	}
	for _, s := range sums {
		fn.I("VBROADCASTSS", at.At(0), x)
		for j, v := range s {
			fn.I("VMULPS", x, v, v)
			fn.I("VMULPS", of[j], v, v)
		}
		fn.I("ADDQ", stride, at)
	}
	fn.Place(scaled)
	fn.I("SUBQ", t.Field("tile_rowScales"), at)
	fn.I("MOVQ", at, t.Field("tile_rowScale"))
	fn.Place(none)
	fn.Free(x, of[0], of[1])
}

// add adds tile.adds pending sums to the sums. The last of them lies where the result will be
// stored.
func (k microkernel) add(fn *asmgen.Func, t, sum, sumStride asmgen.Reg, free [4]asmgen.Reg, sums [][]asmgen.Vec) {
	place, stride, count, row := free[0], free[1], free[2], free[3]
	none := fn.Label("none")
	fn.I("MOVQ", t.Field("tile_adds"), count)
	fn.I("TESTQ", count, count)
	fn.I("JZ", none)
	fn.I("MOVQ", t.Field("tile_addStride"), stride)
	fn.I("LEAQ", count.At(-1), place)
	fn.I("IMULQ", stride, place)
	fn.I("ADDQ", sum, place)
	fn.CountDown(count, func() {
		fn.I("MOVQ", place, row)
		for _, s := range sums {
			for j, v := range s {
				if k.masked() {
					fn.I("VADDPS", row.At(64*j), v, asmgen.K(1+j), v)
				} else {
					fn.I("VADDPS", row.At(k.width*j), v, v)
				}
			}
			fn.I("ADDQ", sumStride, row)
		}
		fn.I("SUBQ", stride, place)
	})
	fn.Place(none)
}

// masked reports whether the kernel writes only the columns in tile.columns. The others write whole
// vectors.
func (k microkernel) masked() bool { return k.width == 64 }

// peak generates the same arithmetic without memory accesses: rounds times a full tile's
// multiply-adds.
func (k microkernel) peak(f *asmgen.File) { peakLoop(f, k.prefix, k.vecs, 2*k.rows, k.mac) }

// peakLoop runs an instruction on many sums in registers.
func peakLoop(f *asmgen.File, prefix string, vecs func(*asmgen.Func, int) []asmgen.Vec, sums int, mac string) {
	name := prefix + "Peak"
	fn := f.Func(name, fmt.Sprintf("%s runs rounds (> 0) times %d independent vector multiply-adds.", name, sums), asmgen.Arg("rounds", "int"))
	rounds := fn.Load("rounds")
	vs := vecs(fn, sums+2)
	for _, v := range vs {
		fn.I("VXORPS", v.Y(), v.Y(), v.Y())
	}
	fn.CountDown(rounds, func() {
		for _, sum := range vs[2:] {
			fn.I(mac, vs[0], vs[1], sum)
		}
	})
	fn.Return()
}
