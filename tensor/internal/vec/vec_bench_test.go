package vec

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"spmoe/tensor/cpu"
)

// BenchmarkRows gives the GB/s, read and written, of every operation and tier on rows in the first-level cache and on one far larger.
func BenchmarkRows(b *testing.B) {
	rng := rand.New(rand.NewPCG(11, 12))
	half := make([]uint16, 1<<20)
	conversions := []operation{
		{name: "Widen", out: 1, run: func(out, _ [][]float32) float64 {
			Widen(out[0], half[:len(out[0])])
			return 0
		}},
		{name: "Round", in: 1, run: func(_, in [][]float32) float64 {
			Round(half[:len(in[0])], in[0])
			return 0
		}},
	}
	readsOut := map[string]int{"AddScaled": 1, "AddMulScaled": 1, "AdamW": 3}
	for i, op := range append(conversions, operations...) {
		bytes := 4 * (op.out + op.in + readsOut[op.name])
		if i < len(conversions) {
			bytes = 6
		}
		for _, n := range []int{128, 2048, 1 << 20} {
			var rows [5][]float32
			for i := range rows {
				rows[i] = make([]float32, n)
				fill(rng, rows[i], 0)
			}
			for _, tier := range cpu.Tiers() {
				if tier != cpu.Generic && tier < cpu.AVX512 || tier > cpu.AVX512 {
					continue // the same kernels as the tier below
				}
				b.Run(fmt.Sprintf("%s/%d/%v", op.name, n, tier), func(b *testing.B) {
					before := active
					defer func() { active = before }()
					active = kernelsFor(tier)
					b.SetBytes(int64(bytes * n))
					for b.Loop() {
						op.run(rows[:op.out], rows[op.out:op.out+op.in])
					}
				})
			}
		}
	}
}
