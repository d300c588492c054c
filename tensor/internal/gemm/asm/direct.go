package main

// Products with few rows of a. b is read in place once, row by row along k. Each sum has one
// accumulator of 16 chains, which are added up at the end.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// directRows is the largest number of rows of a per kernel. directPanelRows is that of kernels that
// sum along vectors.
const (
	directRows      = 12
	directPanelRows = 8
)

// directWidth returns the number of rows of b that the kernel for rows rows of a takes at once.
// Both the registers and the number of streams that the prefetcher follows bound it.
func directWidth(rows, reserved int) int { return min(8, (32-reserved)/(rows+1)) }

// directKernel is the frame of such a kernel.
type directKernel struct {
	f              *asmgen.File
	fn             *asmgen.Func
	rows, columns  int
	t, a, stride   asmgen.Reg
	bases          []asmgen.Reg // rows 0, 3 and 6 of b
	fetched, steps asmgen.Reg
	near           asmgen.Reg // the next group; 0 if it has too many bytes for L1
	// strided: the lines that a step fetches to L2 are fetchStride bytes apart, not adjacent.
	// fetchBack leads from the last of them to the first of the next step.
	strided                bool
	fetchStride, fetchBack asmgen.Reg
	sums                   [][]asmgen.Vec
}

func newDirect(f *asmgen.File, name, what string, rows, columns int) *directKernel {
	fn := f.Func(name, fmt.Sprintf("%s multiplies %d rows of a with groups of %d rows of b, %s.", name, rows, columns, what), asmgen.Arg("d", "*direct"))
	k := &directKernel{f: f, fn: fn, rows: rows, columns: columns, t: fn.Load("d"), a: fn.GP(), stride: fn.GP(), fetched: fn.GP(), steps: fn.GP(), near: fn.GP()}
	for range (columns + 2) / 3 {
		k.bases = append(k.bases, fn.GP())
	}
	fn.I("MOVQ", k.t.Field("direct_stride"), k.stride)
	fn.I("MOVQ", k.t.Field("direct_b"), k.fetched)
	fn.I("ADDQ", k.t.Field("direct_ahead"), k.fetched)
	return k
}

// row returns the address of row i of b.
func (k *directKernel) row(i int) asmgen.Mem {
	m := k.bases[i/3].At(0)
	if i%3 > 0 {
		m = m.Index(k.stride, i%3)
	}
	return m
}

// groups runs body for every group of rows of b, between loading the sums and storing them.
func (k *directKernel) groups(body func()) { k.eachGroup(func() { k.summed(0, body, k.finish) }) }

// eachGroup runs body for every group of rows of b.
func (k *directKernel) eachGroup(body func()) {
	fn := k.fn
	next, far := fn.Label("next"), fn.Label("far")
	fn.Place(next)
	k.begin()
	fn.I("IMUL3Q", asmgen.Imm(int64(k.columns)), k.stride, k.steps)
	fn.I("MOVQ", k.t.Field("direct_near"), k.near)
	fn.I("TESTQ", k.near, k.near)
	fn.I("JZ", far)
	fn.I("LEAQ", k.bases[0].At(0).Index(k.steps, 1), k.near)
	fn.Place(far)
	body()
	if k.strided {
		fn.I("ADDQ", k.t.Field("direct_fetchJump"), k.fetched)
	}
	fn.I("IMUL3Q", asmgen.Imm(int64(k.columns)), k.stride, k.steps)
	fn.I("ADDQ", k.steps, k.t.Field("direct_moved+moves_b"))
	fn.I("ADDQ", asmgen.Imm(int64(64*k.rows*k.columns)), k.t.Field("direct_moved+moves_partial"))
	fn.I("ADDQ", asmgen.Imm(int64(4*k.columns)), k.t.Field("direct_moved+moves_sum"))
	fn.I("DECQ", k.t.Field("direct_groups"))
	fn.I("JNZ", next)
}

// begin sets the pointers to the start of a and of the group's rows.
func (k *directKernel) begin() {
	fn := k.fn
	fn.I("MOVQ", k.t.Field("direct_a"), k.a)
	fn.I("MOVQ", k.t.Field("direct_b"), k.bases[0])
	fn.I("ADDQ", k.t.Field("direct_moved+moves_b"), k.bases[0])
	for i := 1; i < len(k.bases); i++ {
		fn.I("LEAQ", k.bases[i-1].At(0).Index(k.stride, 2), k.bases[i])
		fn.I("ADDQ", k.stride, k.bases[i])
	}
}

// summed loads the sums that lie offset bytes into the buffer of partial sums. It runs body. Then
// it runs finish if the sums are complete.
func (k *directKernel) summed(offset int, body, finish func()) {
	fn := k.fn
	raw, stored := fn.Label("raw"), fn.Label("stored")
	k.load(offset)
	body()
	fn.I("CMPQ", k.t.Field("direct_finish"), asmgen.Imm(0))
	fn.I("JEQ", raw)
	finish()
	fn.I("JMP", stored)
	fn.Place(raw)
	fn.I("MOVQ", k.t.Field("direct_partial"), k.steps)
	fn.I("ADDQ", k.t.Field("direct_moved+moves_partial"), k.steps)
	k.eachSum(func(at int, v asmgen.Vec) { fn.I("VMOVUPS", v, k.steps.At(at+offset)) })
	fn.Place(stored)
}

// load loads the sums that an earlier call left, or starts at 0.
func (k *directKernel) load(offset int) {
	fn := k.fn
	zero, loaded := fn.Label("zero"), fn.Label("loaded")
	fn.I("CMPQ", k.t.Field("direct_load"), asmgen.Imm(0))
	fn.I("JEQ", zero)
	fn.I("MOVQ", k.t.Field("direct_partial"), k.steps)
	fn.I("ADDQ", k.t.Field("direct_moved+moves_partial"), k.steps)
	k.eachSum(func(at int, v asmgen.Vec) { fn.I("VMOVUPS", k.steps.At(at+offset), v) })
	fn.I("JMP", loaded)
	fn.Place(zero)
	k.eachSum(func(_ int, v asmgen.Vec) { fn.I("VXORPS", v.Y(), v.Y(), v.Y()) })
	fn.Place(loaded)
}

// eachSum calls f with the sums and their offsets in the buffer of partial sums.
func (k *directKernel) eachSum(f func(at int, v asmgen.Vec)) {
	for i, s := range k.sums {
		for j, v := range s {
			f(64*(i*k.columns+j), v)
		}
	}
}

// advance moves on along k after bytes bytes of each row were read. It prefetches the same number
// of bytes to L2 for a later call, in memory order. The processor drops prefetches while too many
// are in flight. So data needed soon (in the next group or in this one) is prefetched a second
// time. With few multiply-adds this is unnecessary: out-of-order execution looks far enough ahead.
func (k *directKernel) advance(bytes int) {
	fn := k.fn
	const soon = 512
	lines := (k.columns*bytes + 63) / 64
	if !k.strided {
		for i := range lines {
			fn.I("PREFETCHT1", k.fetched.At(64*i))
		}
		fn.I("ADDQ", asmgen.Imm(int64(k.columns*bytes)), k.fetched)
	} else {
		for range lines {
			fn.I("PREFETCHT1", k.fetched.At(0))
			fn.I("ADDQ", k.fetchStride, k.fetched)
		}
		fn.I("ADDQ", k.fetchBack, k.fetched)
	}
	if k.rows > 2 {
		far, done := fn.Label("far"), fn.Label("fetched")
		fn.I("TESTQ", k.near, k.near)
		fn.I("JZ", far)
		for i := range lines {
			fn.I("PREFETCHT0", k.near.At(64*i))
		}
		fn.I("ADDQ", asmgen.Imm(int64(k.columns*bytes)), k.near)
		fn.I("JMP", done)
		fn.Place(far)
		for i := range k.columns {
			fn.I("PREFETCHT0", k.row(i).Plus(soon))
		}
		fn.Place(done)
	}
	k.forward(bytes)
}

// forward is advance without prefetching.
func (k *directKernel) forward(bytes int) {
	for _, b := range k.bases {
		k.fn.I("ADDQ", asmgen.Imm(int64(bytes)), b)
	}
}

// multiply adds the products of this step of a with the rows bs.
func (k *directKernel) multiply(bs []asmgen.Vec, at int, x asmgen.Vec) {
	for i, s := range k.sums {
		k.fn.I("VMOVUPS", k.a.At(at+64*i), x)
		for j, b := range bs {
			k.fn.I("VDPBF16PS", b, x, s[j])
		}
	}
}

// directBF16 generates the kernels for BF16: one vector of each row at a time.
func directBF16(f *asmgen.File) {
	for rows := 1; rows <= directPanelRows; rows++ {
		columns := directWidth(rows, 1)
		k := newDirect(f, fmt.Sprintf("directBF16x%dAVX512", rows), "BF16", rows, columns)
		fn := k.fn
		k.strided, k.fetchStride, k.fetchBack = true, fn.GP(), fn.GP()
		fn.I("MOVQ", k.t.Field("direct_fetchStride"), k.fetchStride)
		fn.I("MOVQ", k.t.Field("direct_fetchBack"), k.fetchBack)
		for range rows {
			k.sums = append(k.sums, fn.Zs(columns))
		}
		tail, done := fn.Label("tail"), fn.Label("done")
		k.groups(func() {
			bs, x := fn.Zs(columns), fn.Z()
			fn.I("MOVQ", k.t.Field("direct_steps"), k.steps)
			fn.I("TESTQ", k.steps, k.steps)
			fn.I("JZ", tail)
			fn.CountDown(k.steps, func() {
				for i, v := range bs {
					fn.I("VMOVUPS", k.row(i), v)
				}
				k.multiply(bs, 0, x)
				fn.I("ADDQ", asmgen.Imm(int64(64*rows)), k.a)
				k.advance(64)
			})
			fn.Place(tail)
			fn.I("CMPQ", k.t.Field("direct_tail"), asmgen.Imm(0))
			fn.I("JEQ", done)
			fn.I("KMOVQ", k.t.Field("direct_tail"), asmgen.K(1))
			for i, v := range bs {
				fn.I("VMOVDQU16.Z", k.row(i), asmgen.K(1), v)
			}
			k.multiply(bs, 0, x)
			fn.Place(done)
			fn.Free(append(operands(bs), x)...)
		})
		fn.Return()
	}
}

func operands(vs []asmgen.Vec) []asmgen.Operand {
	var ops []asmgen.Operand
	for _, v := range vs {
		ops = append(ops, v)
	}
	return ops
}
