package gemm

// Products of block-scaled operands: 8-bit codes with one power-of-two scale per MXBlock codes
// along k.
//
// A code has at most 8 significant bits, so with its scale it is a BF16 number as long as the
// exponent fits. The product then equals that of two BF16 matrices, bit for bit. Other values are
// multiplied in FP32, in the order of BF16, or in float64 (scaled_decoded.go).

import (
	"fmt"

	"spmoe/tensor/format"
)

// Scaled is a matrix [rows, K] of codes with scales [rows, ceil(K/32)], both bytes. Element (i, k)
// is decode(Codes[i, k]) · 2^(Scales[i, k/32]-127), or NaN where the scale is 255.
type Scaled struct {
	Codes, Scales View
	Element       *format.Element
}

// rows returns n rows from row i on.
func (m Scaled) rows(i, n int) Scaled {
	m.Codes = m.Codes.slice(1, i, 0, n, m.Codes.Cols)
	m.Scales = m.Scales.slice(1, i, 0, n, m.Scales.Cols)
	return m
}

// along returns n elements along k from k on. k is a multiple of the block length.
func (m Scaled) along(k, n int) Scaled {
	m.Codes = m.Codes.slice(1, 0, k, m.Codes.Rows, n)
	m.Scales = m.Scales.slice(1, 0, k/format.MXBlock, m.Scales.Rows, (n+format.MXBlock-1)/format.MXBlock)
	return m
}

// MX computes c = a·bᵀ, or c += a·bᵀ if accumulate.
//
// Shapes: a is [M, K], b is [N, K]. c is [M, N], FP32, row-major. With K = 0, c becomes 0 unless
// accumulate.
func MX(s *Scratch, c View, a, b Scaled, accumulate bool) {
	if checkScaled(c, a, b) {
		s.kernels().mx(s, c, View{}, a, b, mode{add: accumulate})
	}
}

// MXStreamed computes c = a·bᵀ as MX does. Use it if c is not read soon: c may be stored with
// stores that bypass the caches.
func MXStreamed(s *Scratch, c View, a, b Scaled) {
	if checkScaled(c, a, b) {
		s.kernels().mx(s, c, View{}, a, b, mode{stream: true})
	}
}

// MXSpans is MX with spans as in BF16Times. span is a multiple of 32.
func MXSpans(s *Scratch, c View, a, b Scaled, span int, accumulate bool) {
	if checkScaled(c, a, b) {
		s.kernels().mx(s, c, View{}, a, b, mode{add: accumulate, span: span})
	}
}

// MXToBF16 computes c = a·bᵀ for a BF16 c. It rounds once, to nearest even. Shapes and layouts are
// those of MX.
func MXToBF16(s *Scratch, c View, a, b Scaled) {
	if checkScaled(c, a, b) {
		s.kernels().mx(s, View{}, c, a, b, mode{})
	}
}

// checkScaled panics on shapes that do not match. It reports whether c has any elements.
func checkScaled(c View, a, b Scaled) bool {
	for _, m := range []Scaled{a, b} {
		if blocks := (m.Codes.Cols + format.MXBlock - 1) / format.MXBlock; m.Scales.Rows != m.Codes.Rows || m.Scales.Cols != blocks {
			panic(fmt.Sprintf("gemm: codes [%d, %d] with scales [%d, %d]: pass scales [%d, %d], one per 32 codes along k",
				m.Codes.Rows, m.Codes.Cols, m.Scales.Rows, m.Scales.Cols, m.Codes.Rows, blocks))
		}
		if m.Element == nil {
			panic("gemm: Scaled.Element is nil: pass the element format of the codes")
		}
	}
	return check(c, a.Codes, b.Codes.transposed())
}
