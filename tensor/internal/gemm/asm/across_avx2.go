package main

// The kernels for few rows of a and adjacent rows of b, for BF16 on AVX2. AVX2 multiplies FP32, and
// a BF16 becomes FP32 with 16 zero bits appended. Sums are those of fp32AVX2's packed products. Of
// every two steps along k, the second comes first.

import (
	"fmt"

	"spmoe/tensor/asmgen"
)

// acrossAVX2Rows is the largest number of rows of a that fit in the registers.
const acrossAVX2Rows = 6

// acrossSplit is an acrossKernel for 16 columns. With few enough rows it is for 32 columns, which
// are whole cache lines.
type acrossSplit struct {
	*acrossKernel
	bs, as []asmgen.Vec // columns of b, two vectors per 16 columns; elements of a
	zero   asmgen.Vec
}

func acrossAVX2(f *asmgen.File) {
	for rows := 1; rows <= acrossAVX2Rows; rows++ {
		by := acrossVectors{width: 32, perRow: 2, pair: 2, take: (*asmgen.Func).Ys}
		if rows <= 3 {
			by.perRow = 4
		}
		k := &acrossSplit{acrossKernel: newAcross(f, fmt.Sprintf("acrossBF16x%dAVX2", rows), "BF16", rows, 2, by)}
		k.shared = true
		k.kernel()
	}
}

func (k *acrossSplit) kernel() {
	fn := k.fn
	k.zero, k.bs = fn.Y(), fn.Ys(2)
	if k.rows <= 2 {
		k.bs = append(k.bs, fn.Ys(2)...)
	}
	k.as = fn.Ys(min(2, 15-len(k.bs)-k.rows*len(k.sums[0])))
	fn.I("VXORPS", k.zero, k.zero, k.zero)
	if k.columns < 32 {
		fn.I("SHLQ", asmgen.Imm(1), k.t.Field("across_groups"))
	}
	// Of every 16 columns, one vector has the first four and the third four.
	k.groups(k.run, func(sums []asmgen.Vec) {
		for h := 0; h < len(sums); h += 2 {
			fn.I("VPERM2F128", asmgen.Imm(0x20), sums[h+1], sums[h], k.bs[0])
			fn.I("VPERM2F128", asmgen.Imm(0x31), sums[h+1], sums[h], sums[h+1])
			fn.I("VMOVAPS", k.bs[0], sums[h])
		}
	})
}

// run multiplies all steps, first four and then two at a time. An odd last step is paired with a
// step of zeros before it.
func (k *acrossSplit) run() {
	fn := k.fn
	rest, odd, done := fn.Label("rest"), fn.Label("odd"), fn.Label("done")
	pairs := func(n int) {
		for i := range n {
			k.add(2*i+1, 2*i)
			k.add(2*i, 2*i+1)
		}
		k.advance(n)
	}
	fn.I("MOVQ", k.t.Field("across_k"), k.steps)
	fn.I("SHRQ", asmgen.Imm(2), k.steps)
	fn.I("JZ", rest)
	fn.CountDown(k.steps, func() { pairs(2) })
	fn.Place(rest)
	fn.I("TESTQ", asmgen.Imm(2), k.t.Field("across_k"))
	fn.I("JZ", odd)
	pairs(1)
	fn.Place(odd)
	fn.I("TESTQ", asmgen.Imm(1), k.t.Field("across_k"))
	fn.I("JZ", done)
	for first := range len(k.sums[0]) {
		k.products([]asmgen.Vec{k.zero}, first, 0)
	}
	k.add(0, 1)
	fn.Place(done)
}

// add adds the products of the nth step of b from here and the ath of a.
func (k *acrossSplit) add(n, a int) {
	for first := 0; first < len(k.sums[0]); first += len(k.bs) {
		for i := 0; i < len(k.bs); i += 2 {
			low, high := k.bs[i], k.bs[i+1]
			k.fn.I("VMOVUPS", k.step(n).Plus(16*(first+i)), high)
			k.fn.I("VPUNPCKLWD", high, k.zero, low)
			k.fn.I("VPUNPCKHWD", high, k.zero, high)
		}
		k.products(k.bs, first, a)
	}
}

// products adds the products of the ath step of a and a step of b. The vectors of the latter start
// at bs[first].
func (k *acrossSplit) products(bs []asmgen.Vec, first, a int) {
	for i, sums := range k.sums {
		x := k.as[i%len(k.as)]
		k.fn.I("VBROADCASTSS", k.a.At(4*(a*k.rows+i)), x)
		for j, b := range bs {
			k.fn.I("VFMADD231PS", b, x, sums[first+j])
		}
	}
}
