package ep

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// BenchmarkRoundTrip is one layer's exchange with experts that cost nothing: 1024 tokens a rank,
// hidden 256, top-4 of 32 experts. GB/s is payload, as DeepEP counts it: the rows that a rank
// receives, from itself too, over the time.
func BenchmarkRoundTrip(b *testing.B) {
	const tokens, hidden, slots, experts = 1024, 256, 4, 32
	for _, by := range ways[:2] {
		benchmarkRoundTrip(b, by, tokens, hidden, slots, experts)
	}
}

func benchmarkRoundTrip(b *testing.B, by way, tokens, hidden, slots, experts int) {
	for _, dtype := range []tensor.DType{tensor.BF16, tensor.FP32} {
		for _, np := range []int{1, 2, 8} {
			for _, pass := range []struct {
				name  string
				run   func(*layer) error
				moves int
			}{{"forward", (*layer).forward, 2}, {"step", (*layer).step, 4}} {
				b.Run(fmt.Sprintf("%s/%v/np%d/%s", by.name, dtype, np, pass.name), func(b *testing.B) {
					b.ReportAllocs()
					layers := make([]*layer, np)
					w := collective.NewWorld(np)
					for r := range layers {
						var err error
						if layers[r], err = newLayer(w.Comm(r), by, unmasked(tokens, hidden, slots, experts, r), dtype); err != nil {
							b.Fatal(err)
						}
					}
					repeat := func(n int) {
						if err := w.Run(func(c *collective.Comm) error {
							for range n {
								if err := pass.run(layers[c.Rank()]); err != nil {
									return err
								}
							}
							return nil
						}); err != nil {
							b.Fatal(err)
						}
					}
					repeat(2)
					b.ResetTimer()
					repeat(b.N)
					bytes := float64(pass.moves*tokens*slots*hidden*dtype.Size()) * float64(b.N)
					b.ReportMetric(bytes/1e9/b.Elapsed().Seconds(), "GB/s")
				})
			}
		}
	}
}

// unmasked is a batch of one rank with slots distinct experts for every token, as a router chooses
// them.
func unmasked(tokens, hidden, slots, experts, rank int) *batch {
	b := newBatch(tokens, hidden, slots, experts, normal)
	rng := rand.New(rand.NewPCG(uint64(rank), 1))
	for t := range tokens {
		for k, e := range rng.Perm(experts)[:slots] {
			b.topk[t*slots+k] = int32(e)
		}
	}
	return b
}
