package vec

import (
	"math"
	"testing"
)

// TestRound goes through every upper half of a float32 with the lower halves next to a tie or to an
// exact value.
func TestRound(t *testing.T) {
	lower := []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff}
	src := make([]float32, 0, len(lower)<<16)
	for upper := range uint32(1 << 16) {
		for _, l := range lower {
			src = append(src, math.Float32frombits(upper<<16|l))
		}
	}
	eachTier(t, func(t *testing.T) {
		got := make([]uint16, len(src))
		Round(got, src)
		for i, f := range src {
			if want := nearest(f); got[i] != want {
				t.Fatalf("Round(%v, bits %#08x) = %#04x, want %#04x", f, math.Float32bits(f), got[i], want)
			}
		}
	})
}

// nearest rounds by distance: to the closer neighbor, or the even one halfway. A NaN keeps its
// upper bits and is quiet.
func nearest(f float32) uint16 {
	down := uint16(math.Float32bits(f) >> 16)
	if f != f {
		return down | 0x40
	}
	value := func(b uint16) float64 {
		if b&0x7fff == 0x7f80 {
			// Rounding treats infinity as the next power of two.
			return math.Copysign(0x1p128, float64(f))
		}
		return float64(math.Float32frombits(uint32(b) << 16))
	}
	if math.IsInf(float64(f), 0) {
		return down
	}
	below, above := math.Abs(float64(f)-value(down)), math.Abs(value(down+1)-float64(f))
	if above < below || above == below && down&1 == 1 {
		return down + 1
	}
	return down
}

func TestWiden(t *testing.T) {
	src := make([]uint16, 1<<16)
	for i := range src {
		src[i] = uint16(i)
	}
	eachTier(t, func(t *testing.T) {
		got := make([]float32, len(src))
		Widen(got, src)
		for i, g := range got {
			if bits := math.Float32bits(g); bits != uint32(i)<<16 {
				t.Fatalf("Widen(%#04x) has bits %#08x", i, bits)
			}
		}
	})
}
