package gemm

//go:generate go run ./_asm

import (
	"fmt"

	"spmoe/tensor/cpu"
)

// BF16Times computes c = alpha·(a·b), or c += alpha·(a·b) if accumulate. The product is rounded to
// FP32 before it is multiplied by alpha, and again before it is added. With alpha = 0, it is not
// multiplied.
//
// Shapes: a is [M, K] and b is [K, N], both BF16 of any layout. c is [M, N], FP32, row-major. With
// K = 0, c becomes 0 unless accumulate.
//
// A span greater than 0 cuts the sum over k into spans of span elements; the last may be shorter.
// Each is summed and multiplied as if it were alone. The results are added as a balanced binary
// tree (see tree), and the total is stored in c or added to it.
func BF16Times(s *Scratch, c, a, b View, alpha float32, span int, accumulate bool) {
	if check(c, a, b) {
		s.kernels().bf16(s, c, a, b, mode{add: accumulate, span: span, alpha: alpha})
	}
}

// BF16Streamed computes c = a·b as BF16Times does. Use it if c is not read soon: c may be stored
// with stores that bypass the caches.
func BF16Streamed(s *Scratch, c, a, b View) {
	if check(c, a, b) {
		s.kernels().bf16(s, c, a, b, mode{stream: true})
	}
}

// BF16ToBF16Times computes c = alpha·(a·b) for a BF16 c. The product is rounded to FP32 first. With
// alpha = 0, it is not multiplied, and is rounded once, to nearest even. Shapes and layouts are
// those of BF16Times.
func BF16ToBF16Times(s *Scratch, c, a, b View, alpha float32) {
	if check(c, a, b) {
		s.kernels().bf16Rounded(s, c, a, b, mode{alpha: alpha})
	}
}

// FP32Times is BF16Times for FP32 operands.
func FP32Times(s *Scratch, c, a, b View, alpha float32, span int, accumulate bool) {
	if check(c, a, b) {
		s.kernels().fp32(s, c, a, b, mode{add: accumulate, span: span, alpha: alpha})
	}
}

// kernels holds the products of one tier.
type kernels struct {
	bf16        func(s *Scratch, c, a, b View, m mode)
	bf16Rounded func(s *Scratch, c, a, b View, m mode)
	fp32        func(s *Scratch, c, a, b View, m mode)

	recipe *recipe // nil: block-scaled operands are decoded in plain Go

	tiles bool // packed BF16 products are summed in the order of AMX
	quads bool // packed BF16 products are summed and rounded in the order of BFMMLA

	// A peak loop repeats its instructions rounds times and returns the FLOPs done.
	peakBF16, peakFP32 func(rounds int) float64
}

var active = cpu.Choose("matrix products", table)

// chained reports whether packed BF16 products have the order of FP32 products.
func (ks *kernels) chained() bool { return !ks.tiles && !ks.quads }

// check panics on shapes that do not match. It reports whether c has any elements.
func check(c, a, b View) bool {
	if a.Cols != b.Rows || c.Rows != a.Rows || c.Cols != b.Cols {
		panic(fmt.Sprintf("gemm: a [%d, %d] · b [%d, %d] = c [%d, %d]: shapes do not match; pass a [M, K], b [K, N] and c [M, N]",
			a.Rows, a.Cols, b.Rows, b.Cols, c.Rows, c.Cols))
	}
	if !c.rowMajor() || !a.rowMajor() && !a.transposed().rowMajor() || !b.rowMajor() && !b.transposed().rowMajor() {
		panic(fmt.Sprintf("gemm: strides of a [%d, %d], b [%d, %d], c [%d, %d]: one stride of a and of b must be 1, and the column stride of c; copy the operand",
			a.RowStride, a.ColStride, b.RowStride, b.ColStride, c.RowStride, c.ColStride))
	}
	return c.Rows > 0 && c.Cols > 0
}
