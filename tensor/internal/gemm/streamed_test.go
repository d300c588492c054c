package gemm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"spmoe/tensor/internal/vec"
)

// The destination does not change a result's bits: past the caches, as a single span, or rounded.
// Some results are aligned so that they can be stored past the caches, and some are not. Nothing
// next to them is written.
func TestStreamed(t *testing.T) {
	var s Scratch
	r := rand.New(rand.NewPCG(21, 22))
	for _, sh := range []struct{ m, n, k, room int }{
		{33, 64, 40, 0}, {200, 96, 70, 16}, {16, 32, 33, 32}, {48, 64, 4200, 0}, {17, 40, 64, 8}, {64, 64, 96, 3}, {9, 2080, 31, 0}, {1, 32, 32, 0},
	} {
		t.Run(fmt.Sprint(sh), func(t *testing.T) {
			a, b := operands[uint16](r, sh.m, sh.n, sh.k, true, true)
			stride := sh.n + sh.room
			result := func() ([]float32, View) {
				memory := make([]float32, (sh.m+1)*stride+line)
				for i := range memory {
					memory[i] = 5
				}
				first := unsafe.Pointer(&memory[0])
				at := -int(uintptr(first)) & (line - 1)
				return memory[at/4:][:sh.m*stride+line/4], strided(unsafe.Add(first, at), sh.m, sh.n, stride, 1)
			}
			eachTier(t, func(t *testing.T, ks *kernels) {
				want, sums := result()
				ks.bf16(&s, sums, a.View, b.View, mode{})
				for _, how := range []mode{{stream: true}, {span: sh.k}, {span: sh.k, stream: true}} {
					got, c := result()
					ks.bf16(&s, c, a.View, b.View, how)
					if !slices.Equal(got, want) {
						t.Errorf("%+v gives other bits", how)
					}
				}
				out := newMatrix[uint16](sh.m, sh.n, false, 7)
				ks.bf16Rounded(&s, out.View, a.View, b.View, mode{})
				var rounded []uint16
				for i := range sh.m {
					for _, x := range row[float32](sums, i) {
						rounded = append(rounded, vec.ToBF16(x))
					}
				}
				checkSame(t, out.elements(t), rounded)
			})
		})
	}
}
