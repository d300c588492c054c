package main

// Products with few rows of a where the rows of b are adjacent in memory. Gradients of data have
// this layout. b is read in place, 32 rows at a time. Two steps along k make one step of the
// microkernel. Each sum is one chain, as in packed products.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// The largest number of rows of a per kernel. Their sums fit in the registers that decoding leaves.
const (
	acrossRows   = 12
	acrossMXRows = 8
)

// acrossVectors describes how a tier holds operands and sums.
type acrossVectors struct {
	width, perRow int // bytes per vector; vectors of sums per row of a
	pair          int // dwords per row of a for two steps of k
	take          func(fn *asmgen.Func, n int) []asmgen.Vec
}

var acrossAVX512 = acrossVectors{64, 2, 1, (*asmgen.Func).Zs}

// acrossKernel is the frame of such a kernel.
type acrossKernel struct {
	fn *asmgen.Func
	acrossVectors
	rows, elem, columns int
	// Each row panel prefetches its share of the next run.
	shared                                       bool
	t, a, b, stride, stride3, fetch, left, steps asmgen.Reg
	sums                                         [][]asmgen.Vec
}

func newAcross(f *asmgen.File, name, what string, rows, elem int, by acrossVectors) *acrossKernel {
	fn := f.Func(name, fmt.Sprintf("%s multiplies %d rows of a with groups of 32 rows of b that are adjacent in memory, %s.", name, rows, what), asmgen.Arg("d", "*across"))
	k := &acrossKernel{fn: fn, acrossVectors: by, rows: rows, elem: elem, columns: by.perRow * by.width / 4, t: fn.Load("d"), a: fn.GP(), b: fn.GP(),
		stride: fn.GP(), stride3: fn.GP(), fetch: fn.GP(), left: fn.GP(), steps: fn.GP()}
	for range rows {
		k.sums = append(k.sums, by.take(fn, by.perRow))
	}
	fn.I("MOVQ", k.t.Field("across_stride"), k.stride)
	fn.I("LEAQ", k.stride.At(0).Index(k.stride, 2), k.stride3)
	return k
}

// groups runs body for every group of rows of b. order permutes the sums of a row of a into column
// order.
func (k *acrossKernel) groups(body func(), order func(sums []asmgen.Vec)) {
	fn, t := k.fn, k.t
	next, raw, stored := fn.Label("next"), fn.Label("raw"), fn.Label("stored")
	fn.Place(next)
	fn.I("MOVQ", t.Field("across_a"), k.a)
	fn.I("MOVQ", t.Field("across_b"), k.b)
	fn.I("MOVQ", t.Field("across_ahead"), k.fetch)
	fn.I("ADDQ", k.b, k.fetch)
	fn.I("ADDQ", t.Field("across_moved+moves_b"), k.b)
	fn.I("ADDQ", asmgen.Imm(int64(k.columns*k.elem)), t.Field("across_moved+moves_b"))
	fn.I("MOVQ", t.Field("across_linesLeft"), k.left)
	k.load()
	body()
	fn.I("MOVQ", k.left, t.Field("across_linesLeft"))
	fn.I("SUBQ", t.Field("across_b"), k.fetch)
	fn.I("MOVQ", k.fetch, t.Field("across_ahead"))
	fn.I("CMPQ", t.Field("across_finish"), asmgen.Imm(0))
	fn.I("JEQ", raw)
	fn.I("MOVQ", t.Field("across_sum"), k.steps)
	fn.I("ADDQ", t.Field("across_moved+moves_sum"), k.steps)
	for _, sums := range k.sums {
		order(sums)
		for j, v := range sums {
			fn.I("VMOVUPS", v, k.steps.At(k.width*j))
		}
		fn.I("ADDQ", t.Field("across_sumStride"), k.steps)
	}
	fn.I("JMP", stored)
	fn.Place(raw)
	k.partial(func(at asmgen.Mem, v asmgen.Vec) { fn.I("VMOVUPS", v, at) })
	fn.Place(stored)
	fn.I("ADDQ", asmgen.Imm(int64(4*k.columns*k.rows)), t.Field("across_moved+moves_partial"))
	fn.I("ADDQ", asmgen.Imm(int64(4*k.columns)), t.Field("across_moved+moves_sum"))
	fn.I("DECQ", t.Field("across_groups"))
	fn.I("JNZ", next)
	fn.Return()
}

// load loads the sums that an earlier call left, or starts at 0.
func (k *acrossKernel) load() {
	fn := k.fn
	zero, loaded := fn.Label("zero"), fn.Label("loaded")
	fn.I("CMPQ", k.t.Field("across_load"), asmgen.Imm(0))
	fn.I("JEQ", zero)
	k.partial(func(at asmgen.Mem, v asmgen.Vec) { fn.I("VMOVUPS", at, v) })
	fn.I("JMP", loaded)
	fn.Place(zero)
	for _, s := range k.sums {
		for _, v := range s {
			fn.I("VXORPS", v.Y(), v.Y(), v.Y())
		}
	}
	fn.Place(loaded)
}

// partial calls f with the addresses where sums are kept between two calls.
func (k *acrossKernel) partial(f func(at asmgen.Mem, v asmgen.Vec)) {
	k.fn.I("MOVQ", k.t.Field("across_partial"), k.steps)
	k.fn.I("ADDQ", k.t.Field("across_moved+moves_partial"), k.steps)
	for i, s := range k.sums {
		for j, v := range s {
			f(k.steps.At(4*k.columns*i+k.width*j), v)
		}
	}
}

// step returns the address of the nth step of k from here, n < 4.
func (k *acrossKernel) step(n int) asmgen.Mem {
	switch n {
	case 0:
		return k.b.At(0)
	case 3:
		return k.b.At(0).Index(k.stride3, 1)
	}
	return k.b.At(0).Index(k.stride, n)
}

// multiply adds the products of two steps of k, the nth pair of steps from here. bs holds them as
// pairs. Broadcasts that are part of the multiply-adds leave the vector pipes to the instructions
// that prepare bs.
func (k *acrossKernel) multiply(bs []asmgen.Vec, nth int) {
	for i, s := range k.sums {
		for j, b := range bs {
			k.fn.I("VDPBF16PS.BCST", k.a.At(4*(nth*k.rows+i)), b, s[j])
		}
	}
}

// advance moves on by n times two steps. It prefetches the same number of steps (or its share of
// them) for a later call. Prefetches go row by row in memory order.
func (k *acrossKernel) advance(n int) {
	fn := k.fn
	for range n * k.elem * k.columns / 32 {
		same := fn.Label("sameRow")
		fn.I("PREFETCHT1", k.fetch.At(0))
		if k.shared {
			fn.I("ADDQ", k.t.Field("across_fetchStep"), k.fetch)
		} else {
			fn.I("ADDQ", asmgen.Imm(64), k.fetch)
		}
		fn.I("DECQ", k.left)
		fn.I("JNZ", same)
		fn.I("ADDQ", k.t.Field("across_jump"), k.fetch)
		fn.I("MOVQ", k.t.Field("across_lines"), k.left)
		fn.Place(same)
	}
	fn.I("ADDQ", asmgen.Imm(int64(4*k.rows*k.pair*n)), k.a)
	fn.I("LEAQ", k.b.At(0).Index(k.stride, 2*n), k.b)
}

// acrossBF16 generates the kernels for BF16.
func acrossBF16(f *asmgen.File) {
	for rows := 1; rows <= acrossRows; rows++ {
		k := newAcross(f, fmt.Sprintf("acrossBF16x%dAVX512", rows), "BF16", rows, 2, acrossAVX512)
		fn := k.fn
		of, pairs := fn.Zs(2), fn.Zs(2)
		pair := func() {
			fn.I("VPUNPCKLWD", of[1], of[0], pairs[0])
			fn.I("VPUNPCKHWD", of[1], of[0], pairs[1])
			k.multiply(pairs, 0)
		}
		k.groups(func() {
			odd, done := fn.Label("odd"), fn.Label("done")
			fn.I("MOVQ", k.t.Field("across_k"), k.steps)
			fn.I("SHRQ", asmgen.Imm(1), k.steps)
			fn.I("JZ", odd)
			fn.CountDown(k.steps, func() {
				fn.I("VMOVUPS", k.step(0), of[0])
				fn.I("VMOVUPS", k.step(1), of[1])
				pair()
				k.advance(1)
			})
			fn.Place(odd)
			fn.I("TESTQ", asmgen.Imm(1), k.t.Field("across_k"))
			fn.I("JZ", done)
			fn.I("VMOVUPS", k.step(0), of[0])
			fn.I("VXORPS", of[1].Y(), of[1].Y(), of[1].Y())
			pair()
			fn.Place(done)
			// Of every 8 columns, one vector has the first four and the other the last four.
		}, func(sums []asmgen.Vec) {
			first, x, y := sums[0], of[0], of[1]
			fn.I("VSHUFF32X4", asmgen.Imm(0x44), sums[1], first, x)
			fn.I("VSHUFF32X4", asmgen.Imm(0xee), sums[1], first, y)
			fn.I("VSHUFF32X4", asmgen.Imm(0xd8), x, x, sums[0])
			fn.I("VSHUFF32X4", asmgen.Imm(0xd8), y, y, sums[1])
		})
	}
}
