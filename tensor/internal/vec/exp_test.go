package vec

import (
	"math"
	"testing"
)

func TestExp(t *testing.T) {
	for i := 0; i <= 2_000_000; i++ {
		x := float32(-87.3 + float64(i)*(87.3+88.7)/2_000_000)
		want := math.Exp(float64(x))
		ulp := math.Abs(float64(math.Nextafter32(float32(want), math.MaxFloat32)) - float64(float32(want)))
		if d := math.Abs(float64(Exp(x)) - want); d > (1.2+math.Abs(float64(x))/20)*ulp {
			t.Fatalf("Exp(%v) = %v, want %v (%.2f ulp off)", x, Exp(x), want, d/ulp)
		}
	}
	inf := float32(math.Inf(1))
	for _, c := range []struct{ x, want float32 }{{-inf, 0}, {-1000, 0}, {inf, inf}, {1000, inf}, {0, 1}} {
		if got := Exp(c.x); got != c.want {
			t.Errorf("Exp(%v) = %v, want %v", c.x, got, c.want)
		}
	}
	if nan := Exp(float32(math.NaN())); nan == nan {
		t.Errorf("Exp(NaN) = %v", nan)
	}
}

// TestExpTiers compares the exponential of each tier with Exp, through ExpSum. It takes numbers
// over all bit patterns, and then in order up to where powers are not normal numbers.
func TestExpTiers(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		x, e := make([]float32, 1<<12), make([]float32, 1<<12)
		check := func() {
			ExpSum(e, 1, x, 0)
			for j, got := range e {
				if want := Exp(x[j]); !same(got, want) {
					t.Fatalf("exp(%v) = %v, want %v", x[j], got, want)
				}
			}
		}
		for i := range uint32(1 << 9) {
			for j := range x {
				x[j] = math.Float32frombits((uint32(j)<<9|i)<<11 | uint32(j)&0x7ff)
			}
			check()
		}
		for j := range x {
			x[j] = float32(j-len(x)/2) * (110.0 / (1 << 11))
		}
		check()
	})
}
