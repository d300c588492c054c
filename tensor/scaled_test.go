package tensor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"spmoe/tensor/format"
)

// scaledElements has the elements with kernels, which are written out by hand, and one that is only
// decoded.
var scaledElements = []*format.Element{format.E4M3, format.E5M2, format.INT8, format.E3M2}

// quantized is a Scaled and what its elements are worth.
type quantized struct {
	Scaled
	values dense
}

// newQuantized draws codes and scales; a transposed one is stored [K, rows].
func newQuantized(r *rand.Rand, f *format.Element, rows, k int, transposed bool) quantized {
	blocks := (k + format.MXBlock - 1) / format.MXBlock
	view := func(rows, cols int) Matrix {
		if transposed {
			return New(UINT8, cols, rows).Mat().T()
		}
		return New(UINT8, rows, cols).Mat()
	}
	q := quantized{Scaled{view(rows, k), view(rows, blocks), f}, zeros(rows, k)}
	for i := range rows {
		for b := range blocks {
			*q.Scales.byteAt(i, b) = uint8(122 + r.IntN(10))
		}
		for j := range k {
			code := uint8(r.IntN(0x70)) | uint8(r.IntN(2))<<7
			*q.Codes.byteAt(i, j) = code
			*q.values.at(i, j) = decodeCode(f, code) * math.Ldexp(1, int(*q.Scales.byteAt(i, j/format.MXBlock))-127)
		}
	}
	return q
}

func (m Matrix) byteAt(i, j int) *uint8 {
	return (*uint8)(unsafe.Add(m.data, i*m.rowStride+j*m.colStride))
}

// decodeCode is the value of a finite code by OCP MX v1.0, 5.3.
func decodeCode(f *format.Element, code uint8) float64 {
	exponent, mantissa, bias := 4, 3, 7
	switch f {
	case format.INT8:
		return float64(int8(code)) / 64
	case format.E5M2:
		exponent, mantissa, bias = 5, 2, 15
	case format.E3M2:
		exponent, mantissa, bias = 3, 2, 3
	}
	e, m := int(code)>>mantissa&(1<<exponent-1), float64(code&(1<<mantissa-1))/float64(int(1)<<mantissa)
	x := math.Ldexp(1+m, e-bias)
	if e == 0 {
		x = math.Ldexp(m, 1-bias)
	}
	if code>>(exponent+mantissa)&1 == 1 {
		x = -x
	}
	return x
}

func TestMatMulScaled(t *testing.T) {
	for _, s := range []struct{ m, n, k int }{{1, 1, 1}, {3, 70, 64}, {20, 33, 100}, {40, 65, 300}, {2, 130, 2080}, {5, 6, 0}} {
		for l := range 4 {
			for x, fa := range scaledElements {
				for y, fb := range scaledElements {
					if (x+y+l)%2 == 1 { // each element in each layout, with half of the others
						continue
					}
					t.Run(fmt.Sprintf("%v,%d,%v,%v", s, l, fa, fb), func(t *testing.T) {
						r := rand.New(rand.NewPCG(uint64(s.k), uint64(l)))
						a, b := newQuantized(r, fa, s.m, s.k, l&1 == 1), newQuantized(r, fb, s.n, s.k, l&2 == 2)
						want, size := zeros(s.m, s.n), zeros(s.m, s.n)
						start := random(1, FP32, s.m, s.n)
						for i := range want.v {
							size.v[i] = math.Abs(float64(start.F32()[i]))
							other := b.values.row(i % s.n)
							for k, x := range a.values.row(i / s.n) {
								p := x * other[k]
								want.v[i] += p
								size.v[i] += math.Abs(p)
							}
						}
						ex := NewExec()
						fp32, bf16 := New(FP32, s.m, s.n).Mat(), New(BF16, s.m, s.n).Mat()
						MatMulScaled(ex, fp32, a.Scaled, b.Scaled)
						near(t, "FP32", fp32, want, scaled(size, float64(s.k+2)*0x1p-24))
						MatMulScaled(ex, bf16, a.Scaled, b.Scaled)
						near(t, "BF16", bf16, want, scaled(size, 0x1p-8+float64(s.k+2)*0x1p-24))
						for i := range want.v {
							want.v[i] += float64(start.F32()[i])
						}
						MatMulScaledAdd(ex, start.Mat(), a.Scaled, b.Scaled)
						near(t, "sum", start.Mat(), want, scaled(size, float64(s.k+2)*0x1p-24))
					})
				}
			}
		}
	}
}
