package vec

import (
	"math"
	"math/big"
	"math/rand/v2"
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

// TestFMA compares fma with exact arithmetic, on sums that are close to ties too.
func TestFMA(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	number := func() float32 {
		mantissa := rng.Uint32() & (1<<23 - 1)
		if rng.IntN(2) == 0 {
			mantissa &= 0x700fff // few bits: ties and exact sums
		}
		return math.Float32frombits(rng.Uint32()&(1<<31) | uint32(127-rng.IntN(40))<<23 | mantissa)
	}
	for range 500_000 {
		a, b, c := number(), number(), number()
		exact := new(big.Float).SetPrec(200).Mul(big.NewFloat(float64(a)), big.NewFloat(float64(b)))
		exact.Add(exact, big.NewFloat(float64(c)))
		if want, _ := exact.Float32(); FMA(a, b, c) != want {
			t.Fatalf("FMA(%v, %v, %v) = %v, want %v", a, b, c, FMA(a, b, c), want)
		}
	}
}

// TestFMAOffTie has sums that are not ties but become ties in float64.
func TestFMAOffTie(t *testing.T) {
	for _, c := range []struct{ a, b, c, want float32 }{
		{1 + 0x1p-23, 1 + 0x1p-23, 0x1p23, 0x1p23 + 1},
		{0x1p-60, 0x1p-60, 1 + 0x1p-23, 1 + 0x1p-23},
		{0x1p-30, 0x1p-30, 1, 1},
		{0x1.000002p-24, 1, 1, 1 + 0x1p-23},
		{0x1.fffffep-25, 1, 1, 1},
		{-0x1p-24, 1 - 0x1p-24, 1 + 0x1p-23, 1 + 0x1p-23},
		{4097, 4097, 0x1p49, 0x1p49 + 0x1p26},
	} {
		exact := new(big.Float).SetPrec(200).Mul(big.NewFloat(float64(c.a)), big.NewFloat(float64(c.b)))
		exact.Add(exact, big.NewFloat(float64(c.c)))
		if want, _ := exact.Float32(); FMA(c.a, c.b, c.c) != want {
			t.Errorf("FMA(%v, %v, %v) = %v, want %v", c.a, c.b, c.c, FMA(c.a, c.b, c.c), want)
		}
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
