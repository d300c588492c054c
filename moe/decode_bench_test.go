package moe

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"

	"spmoe/collective"
	"spmoe/tensor"
)

// decodeModel is a flavor on one rank with all threads.
func decodeModel(b *testing.B, flavor string, fast bool) (*member, *Decoder, []int32) {
	b.Helper()
	cfg, err := FlavorByName(flavor)
	if err != nil {
		b.Fatal(err)
	}
	cfg.MTPLayers = 0
	c := collective.NewWorld(1).Comm(0)
	model, err := NewInference(cfg, Unquantized(tensor.BF16), 1, c, nil)
	if err != nil {
		b.Fatal(err)
	}
	spread(model)
	m := &member{c, tensor.NewParallelExec(runtime.GOMAXPROCS(0)), model}
	b.Cleanup(m.ex.Close)
	d, err := m.model.NewDecoder(m.ex, 2048+256, fast)
	if err != nil {
		b.Fatal(err)
	}
	tokens, _ := text(1, 1, 2048, cfg.Vocab)
	return m, d, tokens
}

// eachDecoder runs f for the flavors that train on a CPU, with and without compressed caches.
func eachDecoder(b *testing.B, f func(b *testing.B, m *member, d *Decoder, tokens []int32)) {
	for _, flavor := range []string{"small", "16B-slice"} {
		for _, fast := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/fast=%t", flavor, fast), func(b *testing.B) {
				m, d, tokens := decodeModel(b, flavor, fast)
				f(b, m, d, tokens)
			})
		}
	}
}

// filled returns a cache of some tokens, the same again and again, with room for others.
func (m *member) filled(b *testing.B, d *Decoder, tokens []int32, kept, room int) *Cache {
	b.Helper()
	c := d.NewCache(kept + room)
	if _, err := d.Extend(m.ex, c, tokens[:min(kept, 64)]); err != nil {
		b.Fatal(err)
	}
	for _, l := range c.layers {
		for _, t := range []tensor.Tensor{l.keys, l.values, l.rows} {
			if !t.Valid() {
				continue
			}
			all := t.Mat()
			for at := c.tokens; at < all.Rows; at += c.tokens {
				n := min(c.tokens, all.Rows-at)
				tensor.Convert(m.ex, all.RowSlice(at, at+n), all.RowSlice(0, n))
			}
		}
	}
	c.tokens = kept
	return c
}

// BenchmarkStep generates one token per sequence. GB/s counts each weight once, the caches, and the
// weights of experts as if all tokens chose different ones.
func BenchmarkStep(b *testing.B) {
	const room = 64
	eachDecoder(b, func(b *testing.B, m *member, d *Decoder, tokens []int32) {
		cfg := m.model.Config
		n, fast := cfg.Count(), d.absorbed[0] != nil
		for _, context := range []int{256, 2048} {
			var all []*Cache
			for _, sequences := range []int{1, 8, 64} {
				b.Run(fmt.Sprintf("context=%d/sequences=%d", context, sequences), func(b *testing.B) {
					for len(all) < sequences {
						all = append(all, m.filled(b, d, tokens, context, room))
					}
					experts := min(int64(sequences*cfg.TopK), int64(cfg.Experts)) * int64(cfg.Layers-cfg.DenseLayers) * n.PerExpert
					b.SetBytes(2*(n.Replicated-int64(cfg.Vocab*cfg.Dim)+experts) + int64(sequences*context*cfg.CacheBytes(tensor.BF16, fast)))
					b.ResetTimer()
					busy := cpuTime()
					for range b.N {
						for _, c := range all[:sequences] {
							c.tokens = context + c.tokens%room
						}
						if _, err := d.Step(m.ex, all[:sequences], tokens[:sequences]); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.N*sequences)/b.Elapsed().Seconds(), "tokens/s")
					b.ReportMetric(1e3*(cpuTime()-busy)/float64(b.N*sequences), "cpu-ms/token")
				})
			}
		}
	})
}

// BenchmarkExtend is a prompt of 2,048 tokens in parts of 256.
func BenchmarkExtend(b *testing.B) {
	eachDecoder(b, func(b *testing.B, m *member, d *Decoder, text []int32) {
		c := d.NewCache(len(text))
		b.ResetTimer()
		busy := cpuTime()
		for range b.N {
			c.Reset()
			for at := 0; at < len(text); at += 256 {
				if _, err := d.Extend(m.ex, c, text[at:at+256]); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.N*len(text))/b.Elapsed().Seconds(), "tokens/s")
		b.ReportMetric(1e3*(cpuTime()-busy)/float64(b.N*len(text)), "cpu-ms/token")
	})
}

// cpuTime returns the seconds of processor that this process has used, which other processes on a
// busy machine disturb less than the clock.
func cpuTime() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + 1e-6*float64(u.Utime.Usec+u.Stime.Usec)
}
