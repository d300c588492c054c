package gemm

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Products with parts of a retained operand have the bits of those that pack it themselves, whether
// the panels serve for the part or not. The operand is packed once.
func TestRetained(t *testing.T) {
	var s Scratch
	r := rand.New(rand.NewPCG(31, 32))
	const m, n, k = 40, 150, 2000 // two blocks of columns
	for _, bT := range []bool{false, true} {
		a, b := operands[uint16](r, m, n, k, false, bT)
		room := make([]byte, RetainedBytes(k, n, 2))
		eachTier(t, func(t *testing.T, ks *kernels) {
			retained := NewRetained(room)
			retained.Set(b.View)
			for _, part := range []struct {
				k0, n0, k, n int
				serves       bool
			}{
				{0, 0, k, n, true}, {0, 0, 64, n, true}, {0, 0, 192, 33, true}, {0, 0, k, 1, true},
				{0, 0, 65, n, false}, {64, 0, 64, n, false}, {0, 32, k, 32, false},
			} {
				left, right := a.View.slice(2, 0, 0, m, part.k), b.View.slice(2, part.k0, part.n0, part.k, part.n)
				serving := retained.serving(right)
				if (serving != nil) != part.serves {
					t.Fatalf("%+v: the panels serve: %t", part, serving != nil)
				}
				want := results(r, m, part.n)
				got := want.clone()
				for _, add := range []bool{false, true} {
					ks.bf16(&s, want.View, left, right, mode{add: add})
					ks.bf16(&s, got.View, left, right, mode{add: add, retained: serving})
					if !slices.Equal(got.elements(t), want.elements(t)) {
						t.Errorf("transposed %t, %+v, add %t: other bits", bT, part, add)
					}
				}
			}
			if ks.recipe != nil { // the size that estimates of memory count on
				var fresh Scratch
				ks.bf16(&fresh, results(r, m, n).View, a.View, b.View, mode{})
				size, elem := Room{}, 2
				if ks.recipe.bf16.packing.split {
					elem = 4
				}
				size.add(m, n, k, elem, 1, ks.tiles)
				if got := 4 * float64(len(fresh.b.words)); math.Abs(got/size.columns-1) > 0.05 {
					t.Errorf("a packed block of columns takes %.0f bytes, %.0f are counted", got, size.columns)
				}
			}
			before := bytes.Clone(room)
			left := a.View.slice(2, 0, 0, m, 64)
			ks.bf16(&s, results(r, m, n).View, left, b.View.slice(2, 0, 0, 64, n), mode{retained: &retained})
			if !bytes.Equal(room, before) {
				t.Error("the operand is packed twice")
			}
		})
	}
}
