package gemm

// Block-scaled products from decoded copies. They take any format, layout and scale on any tier.

import (
	"math"
	"unsafe"

	"spmoe/tensor/format"
	"spmoe/tensor/internal/vec"
)

// decodedRows bounds the rows of an operand that are decoded at a time.
const decodedRows = 128

// fallback returns multiplyBlocks, applied to each span separately if there are spans.
func (ks *kernels) fallback(s *Scratch) fallback {
	return bySpan(s, func(sum, out View, a, b Scaled, m mode) { ks.multiplyBlocks(s, sum, out, a, b, m.add, decodedRows) })
}

// fallback multiplies operands (or parts of them) that do not decode exactly. Its arguments are
// those of kernels.mx.
type fallback func(sum, out View, a, b Scaled, m mode)

// bySpan adds spans to a fallback that does not know them.
func bySpan(s *Scratch, slow fallback) fallback {
	return func(sum, out View, a, b Scaled, m mode) {
		if m.span == 0 {
			slow(sum, out, a, b, m)
			return
		}
		s.scaledSpans(sum, a, b, m, func(dst View, a, b Scaled) { slow(dst, View{}, a, b, mode{}) })
	}
}

// multiplyBlocks multiplies blocks of at most limit rows.
func (ks *kernels) multiplyBlocks(s *Scratch, sum, out View, a, b Scaled, accumulate bool, limit int) {
	for j := 0; j < b.Codes.Rows; j += limit {
		y := b.rows(j, min(limit, b.Codes.Rows-j))
		for i := 0; i < a.Codes.Rows; i += limit {
			x := a.rows(i, min(limit, a.Codes.Rows-i))
			if out.Ptr != nil {
				ks.blockRounded(s, out.slice(2, i, j, x.Codes.Rows, y.Codes.Rows), x, y, limit)
			} else {
				ks.block(s, sum.slice(4, i, j, x.Codes.Rows, y.Codes.Rows), x, y, accumulate, limit)
			}
		}
	}
}

// block uses the narrowest type that holds the elements of both blocks. float64 always does, and is
// used row by row.
func (ks *kernels) block(s *Scratch, sum View, a, b Scaled, accumulate bool, limit int) {
	x, y, ok := s.toBF16(a, b)
	if ok {
		ks.bf16(s, sum, x, y.transposed(), mode{add: accumulate})
		return
	}
	x, y, ok = s.toFP32(a, b)
	switch {
	// If packed products sum in another order, only the elements that need it may take this path.
	case limit > 1 && (!ok || !ks.chained()):
		ks.multiplyBlocks(s, sum, View{}, a, b, accumulate, 1)
	case ok:
		ks.fp32(s, sum, x, y.transposed(), mode{add: accumulate})
	default:
		c := at[float32](sum, 0, 0)
		*c = float32(float64(initial(*c, accumulate)) + dotScaled(a, b))
	}
}

func (ks *kernels) blockRounded(s *Scratch, out View, a, b Scaled, limit int) {
	if x, y, ok := s.toBF16(a, b); ok {
		ks.bf16Rounded(s, out, x, y.transposed(), mode{})
		return
	}
	sum := strided(s.unrounded.atLeast(4*out.Rows*out.Cols), out.Rows, out.Cols, out.Cols, 1)
	ks.block(s, sum, a, b, false, limit)
	for i := range out.Rows {
		for j, x := range row[float32](sum, i) {
			*at[uint16](out, i, j) = vec.ToBF16(x)
		}
	}
}

// toBF16 decodes two operands to BF16. ok is false if an element is subnormal or
// out of range in BF16.
func (s *Scratch) toBF16(a, b Scaled) (x, y View, ok bool) {
	if x, ok = decode[uint16](&s.decoded[0], a); ok {
		y, ok = decode[uint16](&s.decoded[1], b)
	}
	return
}

// toFP32 decodes two operands to FP32, including subnormals. It swaps the elements of every pair
// along k: FP32 products add in the order of k, and BF16 products add the second of each pair
// first.
func (s *Scratch) toFP32(a, b Scaled) (x, y View, ok bool) {
	if x, ok = decode[float32](&s.decoded[0], a); ok {
		y, ok = decode[float32](&s.decoded[1], b)
	}
	return
}

// decode writes the elements of m to memory, row by row.
func decode[T uint16 | float32](b *buffer, m Scaled) (v View, ok bool) {
	var t T
	rows, k := m.Codes.Rows, m.Codes.Cols
	v = strided(b.atLeast(int(unsafe.Sizeof(t))*rows*k), rows, k, k, 1)
	values := m.Element.Values()
	ok = true
	for i := range rows {
		var factor float64
		for j := range k {
			if j%format.MXBlock == 0 {
				factor = scale(*at[uint8](m.Scales, i, j/format.MXBlock))
			}
			exact := float64(values[*at[uint8](m.Codes, i, j)]) * factor
			x := float32(exact)
			switch dst := any(at[T](v, i, j)).(type) {
			case *uint16:
				*dst = uint16(math.Float32bits(x) >> 16)
				ok = ok && (x == 0 || math.Abs(exact) >= 0x1p-126)
			case *float32:
				if j^1 < k {
					dst = at[float32](v, i, j^1)
				}
				*dst = x
			}
			ok = ok && (float64(x) == exact || x != x)
		}
	}
	return v, ok
}

// dotScaled returns the product of single rows, in float64.
func dotScaled(a, b Scaled) float64 {
	x, y := a.Element.Values(), b.Element.Values()
	sum := 0.0
	for k := range a.Codes.Cols {
		p := float64(x[*at[uint8](a.Codes, 0, k)]) * float64(y[*at[uint8](b.Codes, 0, k)])
		sum += p * scale(*at[uint8](a.Scales, 0, k/format.MXBlock)) * scale(*at[uint8](b.Scales, 0, k/format.MXBlock))
	}
	return sum
}

// scale returns the value of an E8M0 byte: a power of two, or NaN for 255.
func scale(code uint8) float64 {
	if code == 255 {
		return math.NaN()
	}
	return math.Ldexp(1, int(code)-127)
}
