package tensor

import (
	"math"
	"testing"
)

// TestSinkhorn compares more matrices than a block has with loops in float64, and the gradient with
// differences.
func TestSinkhorn(t *testing.T) {
	s := Sinkhorn{Size: 3, Iterations: 4, Eps: 0.01}
	const rows, step = 2*sinkhornBlock + 5, 1e-5
	n := s.Size * s.Size
	x, dy, y, dx := New(FP32, rows, n), New(FP32, rows, n), New(FP32, rows, n), New(FP32, rows, n)
	for i := range x.F32() {
		x.F32()[i] = float32(1.5 + math.Sin(float64(i)))
		dy.F32()[i] = float32(math.Cos(float64(3 * i)))
	}
	ex := NewExec()
	s.Rows(ex, y, x, Tensor{})
	s.Rows(ex, dx, x, dy)
	for r := range rows {
		at := func(element int, delta float64) (c []float64) {
			for i, v := range x.Index(r).F32() {
				c = append(c, float64(v))
				if i == element {
					c[i] += delta
				}
			}
			return plainSinkhorn(s, c)
		}
		for i := range n {
			if got, want := float64(y.Index(r).F32()[i]), at(0, 0)[i]; math.Abs(got-want) > 1e-6 {
				t.Fatalf("row %d, element %d: %g, want %g", r, i, got, want)
			}
			more, less, want := at(i, step), at(i, -step), 0.0
			for j, g := range dy.Index(r).F32() {
				want += float64(g) * (more[j] - less[j]) / (2 * step)
			}
			if got := float64(dx.Index(r).F32()[i]); math.Abs(got-want) > 1e-5 {
				t.Fatalf("row %d, element %d: gradient %g, want %g", r, i, got, want)
			}
		}
	}
}

// plainSinkhorn divides columns first and last.
func plainSinkhorn(s Sinkhorn, c []float64) []float64 {
	for i := range c {
		c[i] += float64(s.Eps)
	}
	for d := range 2*s.Iterations - 1 {
		for line := range s.Size {
			at := func(i int) *float64 {
				if d%2 == 0 {
					return &c[i*s.Size+line]
				}
				return &c[line*s.Size+i]
			}
			sum := float64(s.Eps)
			for i := range s.Size {
				sum += *at(i)
			}
			for i := range s.Size {
				*at(i) /= sum
			}
		}
	}
	return c
}
