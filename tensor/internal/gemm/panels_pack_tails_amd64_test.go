//go:build amd64 && !purego

package gemm

import (
	"math"
	"math/rand/v2"
	"testing"

	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
	"spmoe/tensor/internal/vec"
)

// Whole vectors and the tails of rows round alike, for any bits.
func TestRoundRows(t *testing.T) {
	cputest.Need(t, cpu.AVX2)
	const cols = 100
	r := rand.New(rand.NewPCG(11, 12))
	sums := newMatrix[float32](100, cols, false, guard).fill(func() float32 {
		bits := r.Uint32()
		if r.IntN(8) == 0 {
			bits = bits&0xffff8000 | 0x7f800000 // infinities, NaNs
		}
		if r.IntN(4) == 0 {
			bits &= 0xffff8000 // ties
		}
		return math.Float32frombits(bits)
	})
	out := newMatrix[uint16](100, cols, false, 1)
	roundRows(out.View, sums.View)
	for i, got := range out.elements(t) {
		if x := *at[float32](sums.View, i/cols, i%cols); got != vec.ToBF16(x) {
			t.Errorf("%#x becomes %#x, want %#x", math.Float32bits(x), got, vec.ToBF16(x))
		}
	}
}
