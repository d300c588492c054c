package gemm

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Panels give the bits of a product that packs b itself, on all columns and on a part of them.
func TestPacked(t *testing.T) {
	var s Scratch
	var p Packed
	for i, f := range append(formats, formats...) {
		fa := formats[(i+i/3)%3] // also another one, for which panels of integers are of no use
		for _, sh := range []struct{ m, n, k int }{{3, 70, 65}, {30, 100, 192}, {20, 1100, 64}, {13, 33, 33}} {
			for _, l := range layouts {
				t.Run(fmt.Sprintf("%v,%v,%v,%v", fa, f, sh, l), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(sh.k), 1))
					a, b := newScaled(fa, sh.m, sh.k, l.aT, l.aT, finite(r, fa), near(r)), newScaled(f, sh.n, sh.k, l.bT, l.bT, finite(r, f), near(r))
					x, y := operands[uint16](r, sh.m, sh.n, sh.k, l.aT, l.bT)
					start := results(r, sh.m, sh.n)
					eachTier(t, func(t *testing.T, ks *kernels) {
						compare := func(multiply func(c View, lo, hi int, packed bool)) {
							want, got := start.clone(), start.clone()
							multiply(want.View, 0, sh.n, false)
							multiply(got.slice(4, 0, 0, sh.m, 32), 0, 32, true)
							multiply(got.slice(4, 0, 32, sh.m, sh.n-32), 32, sh.n, true)
							checkSame(t, got.elements(t), want.elements(t))
						}
						p.pack(ks, &s, y.View)
						compare(func(c View, lo, hi int, packed bool) {
							if packed {
								ks.bf16(&s, c, x.View, p.Columns(lo, hi), into{add: true})
							} else {
								ks.bf16(&s, c, x.View, y.View, into{add: true})
							}
						})
						p.packMX(ks, &s, b.Scaled)
						compare(func(c View, lo, hi int, packed bool) {
							if packed {
								ks.mx(&s, c, View{}, a.Scaled, p.Rows(lo, hi), into{add: true})
							} else {
								ks.mx(&s, c, View{}, a.Scaled, b.Scaled, into{add: true})
							}
						})
					})
				})
			}
		}
	}
}

// A product takes b from the panels, unless it is one with few rows or they do not hold b exactly.
func TestPanelsAreUsed(t *testing.T) {
	eachTier(t, func(t *testing.T, ks *kernels) {
		const m, n, k = 20, 40, 64
		r := rand.New(rand.NewPCG(1, 2))
		var s Scratch
		for _, f := range formats {
			for _, nan := range []bool{false, true} {
				a, b := newScaled(f, m, k, false, false, finite(r, f), near(r)), newScaled(f, n, k, false, false, finite(r, f), near(r))
				if nan {
					*at[uint8](b.Scales, 7, 0) = 255
				}
				var p Packed
				p.packMX(ks, &s, b.Scaled)
				if want := ks.scaledPanels != nil && !nan && (f != INT8 || ks.peakInt8 != nil); (p.bytes > 0) != want {
					t.Fatalf("%v: panels of %d bytes a column; there should be some: %v", f, p.bytes, want)
				}
				clear(p.panels.words)
				want, got := newMatrix[float32](m, n, false, guard), newMatrix[float32](m, n, false, guard)
				if p.bytes == 0 {
					ks.mx(&s, want.View, View{}, a.Scaled, b.Scaled, into{})
				} else {
					zeroRows[float32](want.View)
				}
				ks.mx(&s, got.View, View{}, a.Scaled, p.Rows(0, n), into{})
				checkSame(t, got.elements(t), want.elements(t))
			}
		}
	})
}
