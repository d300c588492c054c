package tensor

import (
	"math"
	"testing"
)

const swiGLULimit = 1.5

func clampedSwiGLUOf(x ...float64) float64 {
	return swiGLU(min(x[0], swiGLULimit), min(max(x[1], -swiGLULimit), swiGLULimit))
}

func TestClampedSwiGLU(t *testing.T) {
	ex := NewExec()
	const h = 1e-5
	eachLayout(t, func(t *testing.T, g *generator) {
		for _, inPlace := range []bool{false, true} {
			gate, up, dh, out := gates(g), gates(g), g.matrix(evenRows, oddCols), g.matrix(evenRows, oddCols)
			in := []dense{values(dh.Matrix), values(gate.Matrix), values(up.Matrix)}
			ClampedSwiGLU(ex, out.Matrix, gate.Matrix, up.Matrix, swiGLULimit)
			near(t, "h", out.Matrix, mapped(clampedSwiGLUOf, in[1:]...), absolute(tiny))
			out.intact(t)

			dgate, dup := g.matrix(evenRows, oddCols), g.matrix(evenRows, oddCols)
			if inPlace {
				dgate, dup = gate, up
			}
			ClampedSwiGLUBackward(ex, dgate.Matrix, dup.Matrix, dh.Matrix, gate.Matrix, up.Matrix, swiGLULimit)
			near(t, "dgate", dgate.Matrix, mapped(func(x ...float64) float64 {
				return x[0] * (clampedSwiGLUOf(x[1]+h, x[2]) - clampedSwiGLUOf(x[1]-h, x[2])) / (2 * h)
			}, in...), absolute(2e-6))
			near(t, "dup", dup.Matrix, mapped(func(x ...float64) float64 {
				if math.Abs(x[2]) > swiGLULimit {
					return 0
				}
				return x[0] * clampedSwiGLUOf(x[1], 1)
			}, in...), absolute(tiny))
			dgate.intact(t)
			dup.intact(t)
		}
	})
}

func TestSqrtSoftplus(t *testing.T) {
	softplus := func(x float64) float64 { return math.Log1p(math.Exp(x)) }
	x := New(FP32, 1, 7)
	in := []float64{-150, -90, -20, -1, 0, 3, 80}
	for i, v := range in {
		x.F32()[i] = float32(v)
	}
	SqrtSoftplus(NewExec(), x.Mat())
	for i, v := range in {
		s := math.Sqrt(softplus(v))
		slope := sigmoid(v) / (2 * max(s, 1e-300))
		if got := float64(x.F32()[i]); math.Abs(got-s) > 1e-7*s {
			t.Errorf("√softplus(%g) is %g, want %g", v, got, s)
		}
		if got := float64(SqrtSoftplusSlope(float32(s))); math.Abs(got-slope) > 1e-6*slope && slope > 1e-30 {
			t.Errorf("the slope at %g is %g, want %g", v, got, slope)
		}
	}
}
