package exact

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// TestFMA compares FMA with exact arithmetic, on sums that are close to ties
// and subnormal ones too.
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
		if rng.IntN(8) == 0 {
			a, b, c = a*0x1p-50, b*0x1p-50, c*0x1p-110
		}
		want := new(big.Float).SetPrec(200).Mul(big.NewFloat(float64(a)), big.NewFloat(float64(b)))
		want.Add(want, big.NewFloat(float64(c)))
		if want, _ := want.Float32(); FMA(a, b, c) != want {
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
		want := new(big.Float).SetPrec(200).Mul(big.NewFloat(float64(c.a)), big.NewFloat(float64(c.b)))
		want.Add(want, big.NewFloat(float64(c.c)))
		if want, _ := want.Float32(); FMA(c.a, c.b, c.c) != want {
			t.Errorf("FMA(%v, %v, %v) = %v, want %v", c.a, c.b, c.c, FMA(c.a, c.b, c.c), want)
		}
	}
}
