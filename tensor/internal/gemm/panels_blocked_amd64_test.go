//go:build amd64 && !purego

package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"spmoe/tensor/format"
)

// Blocks of a that are held for several blocks of b give the same result as for one block. This
// holds also after columns that do not decode exactly, whose products use the same scratch memory.
func TestRetainedBlocks(t *testing.T) {
	const k, n = 16512, 98 // columns come in blocks of 32 to 96
	r := rand.New(rand.NewPCG(11, 12))
	for runs, m := range []int{64*retainedBlocks + 20, 80} {
		a := newScaled(format.E4M3, m, k, false, false, finite(r, format.E4M3), near(r))
		b := newScaled(format.E4M3, n, k, true, true, finite(r, format.E4M3), near(r))
		if m < 64*retainedBlocks { // else nothing is held
			for _, j := range []int{3, 33} {
				*at[uint8](b.Scales, j, 0) = 1
			}
		}
		t.Run(fmt.Sprint(m), func(t *testing.T) {
			eachTier(t, func(t *testing.T, ks *kernels) {
				if ks.recipe == nil {
					t.Skip("this tier decodes first")
				}
				var whole Scratch
				got, want := newMatrix[float32](m, n, false, guard), newMatrix[float32](m, n, false, guard)
				for range 1 + runs { // with memory that has grown, exceptions overwrite held blocks
					ks.mx(&whole, got.View, View{}, a.Scaled, b.Scaled, mode{})
				}
				for i := 0; i < m; i += 256 { // so few rows that all are held
					for j := 0; j < n; j += 32 {
						var s Scratch
						rows, part := min(256, m-i), min(32, n-j)
						ks.mx(&s, want.slice(4, i, j, rows, part), View{}, a.rows(i, rows), b.rows(j, part), mode{})
					}
				}
				checkSame(t, got.elements(t), want.elements(t))
			})
		})
	}
}
