package moe

import (
	"fmt"
	"runtime"
	"testing"

	"spmoe/tensor"
)

// decodeModel is the small flavor on one rank with all threads.
func decodeModel(b *testing.B) (*member, *Decoder, []int32) {
	b.Helper()
	cfg, err := FlavorByName("small")
	if err != nil {
		b.Fatal(err)
	}
	m := alone(b, cfg, tensor.BF16, 1024)
	m.ex = tensor.NewParallelExec(runtime.GOMAXPROCS(0))
	b.Cleanup(m.ex.Close)
	tokens, _ := text(1, 1, 1024, cfg.Vocab)
	return m, m.decoder(b), tokens
}

// keeping returns a cache of some tokens with room for others.
func (m *member) keeping(b *testing.B, d *Decoder, tokens []int32, room int) *Cache {
	b.Helper()
	c := d.NewCache(len(tokens) + room)
	if len(tokens) > 0 {
		if _, err := d.Extend(m.ex, c, tokens); err != nil {
			b.Fatal(err)
		}
	}
	return c
}

// BenchmarkStep is one token for each of some sequences of 512. GB/s counts the weights that a
// token of each reads at least once, those of experts as if all tokens chose others, and the
// caches.
func BenchmarkStep(b *testing.B) {
	const kept, room = 512, 64
	m, d, tokens := decodeModel(b)
	cfg := m.model.Config
	n := cfg.Count()
	var all []*Cache
	for range 16 {
		all = append(all, m.keeping(b, d, tokens[:kept], room))
	}
	for _, sequences := range []int{1, 4, 16} {
		b.Run(fmt.Sprint(sequences), func(b *testing.B) {
			caches := all[:sequences]
			experts := min(int64(sequences*cfg.TopK), int64(cfg.Experts)) * int64(cfg.Layers-cfg.DenseLayers) * n.PerExpert
			bytes := 2*(n.Replicated-int64(cfg.Vocab*cfg.Dim)+experts) + int64(sequences*kept*cfg.CacheBytes(tensor.BF16))
			b.SetBytes(bytes)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				for _, c := range caches {
					c.tokens = kept + c.tokens%room
				}
				if _, err := d.Step(m.ex, caches, tokens[:sequences]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*sequences)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// BenchmarkExtend is a prompt of 256 tokens behind none and behind 768, and, to compare, a pass
// over 256 tokens that keeps nothing.
func BenchmarkExtend(b *testing.B) {
	const tokens = 256
	m, d, text := decodeModel(b)
	for _, kept := range []int{0, 768} {
		b.Run(fmt.Sprintf("behind %d", kept), func(b *testing.B) {
			c := m.keeping(b, d, text[:kept], tokens)
			b.ResetTimer()
			for range b.N {
				c.tokens = kept
				if _, err := d.Extend(m.ex, c, text[kept:kept+tokens]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*tokens)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
	b.Run("whole", func(b *testing.B) {
		mark := m.ex.Mark()
		b.ResetTimer()
		for range b.N {
			if _, err := m.model.Logits(m.ex, text[:tokens], tokens); err != nil {
				b.Fatal(err)
			}
			m.ex.Release(mark)
		}
		b.ReportMetric(float64(b.N*tokens)/b.Elapsed().Seconds(), "tokens/s")
	})
}
