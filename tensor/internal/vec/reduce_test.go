package vec

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestReductions(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(3, 4))
		for _, n := range lengths {
			x, y, e := make([]float32, n), make([]float32, n), make([]float32, n)
			dot, size, sum, squares, top := 0.0, 0.0, 0.0, 0.0, math.Inf(-1)
			for i := range x {
				x[i], y[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
				dot += float64(x[i]) * float64(y[i])
				size += math.Abs(float64(x[i]) * float64(y[i]))
				sum += math.Exp(0.5*float64(x[i]) - 1)
				squares += float64(x[i]) * float64(x[i])
				top = max(top, float64(x[i]))
			}
			if got := Dot(x, y); math.Abs(float64(got)-dot) > 1e-6*size {
				t.Errorf("length %d: Dot = %v, want %v", n, got, dot)
			}
			if got := ExpSum(e, 0.5, x, 1); math.Abs(float64(got)-sum) > 2e-6*sum {
				t.Errorf("length %d: ExpSum = %v, want %v", n, got, sum)
			}
			if got := SumSquares(x); math.Abs(got-squares) > 1e-13*squares {
				t.Errorf("length %d: SumSquares = %v, want %v", n, got, squares)
			}
			if got, last := Max(x), Max(append(x, 9)); float64(got) != top || last != 9 {
				t.Errorf("length %d: Max = %v, want %v; %v with 9 behind all", n, got, top, last)
			}
		}
	})
}

// TestOneElement puts one odd value at every position of rows of all lengths.
func TestOneElement(t *testing.T) {
	inf, nan := float32(math.Inf(1)), math.Float32frombits(0x7f800001)
	eachTier(t, func(t *testing.T) {
		for n := range 150 {
			x := make([]float32, n)
			for i := range x {
				x[i] = -math.MaxFloat32
			}
			for i := range x {
				before := x[i]
				x[i] = nan
				if got := Max(x); n > 1 && got != -math.MaxFloat32 || n == 1 && got != -inf {
					t.Fatalf("length %d: Max with NaN at %d = %v", n, i, got)
				}
				if x[i] = -1; Max(x) != -1 {
					t.Fatalf("length %d: Max misses element %d", n, i)
				}
				x[i] = before
			}
		}
		zero := math.Copysign(0, -1)
		if got := Max([]float32{float32(zero)}); math.Signbit(float64(got)) {
			t.Error("Max of -0 is -0")
		}
	})
}
