package tensor

import (
	"fmt"

	"spmoe/tensor/internal/gemm"
)

// Packed is a weight that was packed once for many products, as long as it does not change. It refers to the weight's
// memory too. The zero value is ready for Pack; products may share it.
type Packed struct {
	panels gemm.Packed
	dtype  DType // BF16, or UINT8 for codes
	k, n   int
}

// Pack packs b: [K, N] BF16, which may be transposed. A linear layer y = x·Wᵀ packs w.T().
func (p *Packed) Pack(ex *Exec, b Matrix) {
	if b.dtype != BF16 {
		panic(fmt.Sprintf("tensor: Pack of %v, want bf16", b.dtype))
	}
	p.dtype, p.k, p.n = BF16, b.Rows, b.Cols
	p.panels.Pack(&ex.gemm, b.gemmView())
}

// PackScaled packs b: [N, K].
func (p *Packed) PackScaled(ex *Exec, b Scaled) {
	b.check()
	p.dtype, p.k, p.n = UINT8, b.Codes.Cols, b.Codes.Rows
	p.panels.PackMX(&ex.gemm, b.gemmView())
}

// MatMulPacked is MatMul with a packed b, and gives the same bits.
//
// a: [M, K] BF16; c: [M, N], FP32 or BF16.
func MatMulPacked(ex *Exec, c, a Matrix, p *Packed) {
	p.check(c, a, BF16)
	ex.byColumns(c.Cols, flops(c, a), operands{c: c, a: a, packed: p}, func(ex *Exec, o operands, lo, hi int) {
		part := columns(o.c, lo, hi)
		c, a, b := part.gemmView(), o.a.gemmView(), o.packed.panels.Columns(lo*tileCols, lo*tileCols+part.Cols)
		if o.c.dtype == BF16 {
			gemm.BF16ToBF16(&ex.gemm, c, a, b)
		} else {
			gemm.BF16(&ex.gemm, c, a, b, false)
		}
	})
}

// MatMulScaledPacked is MatMulScaled with a packed b, and gives the same bits.
//
// a: [M, K]; c: [M, N], FP32 or BF16.
func MatMulScaledPacked(ex *Exec, c Matrix, a Scaled, p *Packed) {
	a.check()
	p.check(c, a.Codes, UINT8)
	ex.byColumns(c.Cols, flops(c, a.Codes), operands{c: c, scaled: [2]Scaled{a}, packed: p}, func(ex *Exec, o operands, lo, hi int) {
		part := columns(o.c, lo, hi)
		multiplyScaled(ex, part, o.scaled[0].gemmView(), o.packed.panels.Rows(lo*tileCols, lo*tileCols+part.Cols), false)
	})
}

func (p *Packed) check(c, a Matrix, dtype DType) {
	if a.Cols != p.k || c.Rows != a.Rows || c.Cols != p.n {
		panic(fmt.Sprintf("tensor: product of [%d, %d] and packed [%d, %d] into [%d, %d]", a.Rows, a.Cols, p.k, p.n, c.Rows, c.Cols))
	}
	if a.dtype != dtype || p.dtype != dtype {
		panic(fmt.Sprintf("tensor: product of %v and packed %v, want %v", a.dtype, p.dtype, dtype))
	}
	c.checkRows()
}
