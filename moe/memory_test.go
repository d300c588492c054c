package moe

import (
	"runtime"
	"testing"

	"spmoe/tensor"
)

// A warm step takes its memory from the arena: what it asks of the Go heap is little, and the
// same for any batch and any model.
func TestWarmTrainHardlyAllocates(t *testing.T) {
	const bound = 4 << 10 // bytes a step
	large := with(tiny(), func(c *Config) {
		c.Vocab, c.Dim, c.DenseInter, c.ExpertInter, c.KVRank, c.Layers = 256, 64, 128, 32, 32, 4
	})
	for name, c := range map[string]struct {
		cfg       Config
		dtype     tensor.DType
		sequences int
		recompute Recompute
		passes    int // of a step
	}{
		"tiny, batch 1":  {spreadModel(), tensor.BF16, 1, RecomputeNone, 1},
		"tiny, batch 16": {spreadModel(), tensor.BF16, 16, RecomputeNone, 1},
		"fp32":           {spreadModel(), tensor.FP32, 4, RecomputeNone, 1},
		"large, batch 8": {large, tensor.BF16, 8, RecomputeNone, 1},
		"gathered":       {large, tensor.BF16, 1, RecomputeNone, 6},
		"selective":      {large, tensor.BF16, 8, RecomputeSelective, 1},
		"full":           {large, tensor.BF16, 8, RecomputeFull, 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := alone(t, c.cfg, c.dtype, 32)
			m.model.Recompute = c.recompute
			b := batchOf(1, c.sequences, 32, c.cfg.Vocab)
			step := func() {
				m.model.ZeroGrad()
				for pass := range c.passes {
					b.More = pass+1 < c.passes
					if _, err := m.model.Train(m.ex, b); err != nil {
						t.Fatal(err)
					}
				}
			}
			step() // grows the arena and the scratch memory
			const steps = 2
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			for range steps {
				step()
			}
			runtime.ReadMemStats(&after)
			bytes, count := (after.TotalAlloc-before.TotalAlloc)/steps, (after.Mallocs-before.Mallocs)/steps
			if bytes > bound {
				t.Errorf("a step allocates %d bytes in %d pieces, at most %d bytes are expected", bytes, count, bound)
			}
			t.Logf("%d bytes in %d pieces a step", bytes, count)
		})
	}
}
