package vec

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"spmoe/internal/testing/speed"
	"spmoe/tensor/cpu/cputest"
)

// TestAdamWElsewhere: in every tier, an update to other memory gives the bits of an update in
// place, with normal and with non-temporal stores. It writes nothing else and does not change its
// source.
func TestAdamWElsewhere(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		for _, n := range lengths {
			grad := make([]float32, n)
			fill(rng, grad, 0.05)
			var src, want, before [][]float32
			for range 3 {
				x := make([]float32, n)
				fill(rng, x, 0.05)
				src, want, before = append(src, x), append(want, slices.Clone(x)), append(before, slices.Clone(x))
			}
			AdamW(stateOf(want), stateOf(want), grad, thirdStep, &anySums)
			for name, update := range map[string]func(dst, src AdamWState, grad []float32, c AdamWStep, sums *AdamWSums){
				"AdamW": AdamW, "AdamWStreaming": AdamWStreaming,
			} {
				for _, offset := range []int{0, 3} {
					var got [][]float32
					var checks []func()
					for range 3 {
						x, check := guarded(t, name, n, offset)
						got, checks = append(got, x), append(checks, check)
					}
					if n > 0 && offset == 0 && !stateOf(got).aligned() {
						t.Fatal("the memory does not begin on a cache line boundary, so non-temporal stores are not used")
					}
					update(stateOf(got), stateOf(src), grad, thirdStep, &anySums)
					for i := range want {
						checks[i]()
						if !slices.EqualFunc(got[i], want[i], same) {
							t.Fatalf("%s, length %d, offset %d: array %d differs from an update in place", name, n, offset, i)
						}
						if !slices.EqualFunc(src[i], before[i], same) {
							t.Fatalf("%s, length %d, offset %d: array %d of the source was changed", name, n, offset, i)
						}
					}
				}
			}
		}
	})
}

// BenchmarkAdamW updates a large state in place and to another one alternately. It counts the bytes
// that must be moved.
func BenchmarkAdamW(b *testing.B) {
	const n = 8 << 20
	rng := rand.New(rand.NewPCG(1, 2))
	var rows [7][]float32
	for i := range rows {
		rows[i] = make([]float32, n)
		fill(rng, rows[i], 0)
	}
	here, there := stateOf(rows[:]), stateOf(rows[3:])
	for _, tier := range table.Tiers() {
		for name, update := range map[string]func(){
			"in place":  func() { AdamW(here, here, rows[6], thirdStep, &anySums) },
			"elsewhere": func() { AdamW(there, here, rows[6], thirdStep, &anySums) },
			"streaming": func() { AdamWStreaming(there, here, rows[6], thirdStep, &anySums) },
		} {
			b.Run(fmt.Sprintf("%v/%s", tier, name), func(b *testing.B) {
				cputest.Need(b, tier)
				before := active
				defer func() { active = before }()
				active = table[tier]
				speed.Bytes(b, 7*4*n, update)
			})
		}
	}
}
