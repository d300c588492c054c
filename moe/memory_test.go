package moe

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"spmoe/collective"
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
		"tiny, batch 1": {spreadModel(), tensor.BF16, 1, RecomputeNone, 1},
		"gathered":      {large, tensor.BF16, 1, RecomputeNone, 6},
		"shared keys":   {with(large, sharedKeys), tensor.BF16, 8, RecomputeSelective, 1},
		"chosen keys":   {with(large, choosing), tensor.BF16, 8, RecomputeNone, 2},
		"full":          {large, tensor.BF16, 8, RecomputeFull, 1},
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

// No tensor is read after its arena was reset: if the arena writes NaNs over it, no bit of any
// result changes.
func TestNothingOutlivesItsMemory(t *testing.T) {
	shallow := with(quantizable(64, 64), func(c *Config) { c.TopK, c.QRank, c.MaxPositions = 3, 32, 64 })
	b := batchOf(51, 2, 32, shallow.Vocab)
	for _, precision := range []string{"fp32", "bf16", "mxfp8", "mxfp8-wgrad-bf16", "nvfp4", "bf16, chosen keys", "mxfp8, chosen keys", "mxfp8 of V4", "bf16 of V4"} {
		cfg := shallow
		precision, sparse := strings.CutSuffix(precision, ", chosen keys")
		precision, v4 := strings.CutSuffix(precision, " of V4")
		if v4 {
			cfg.KVRank = 0
			likeV4(&cfg)
		}
		if precision == "nvfp4" {
			cfg.Layers, cfg.MTPLayers = 3, 0 // the last one is in BF16
		}
		if sparse {
			choosing(&cfg)
		}
		for _, mode := range []Recompute{RecomputeNone, RecomputeSelective, RecomputeFull} {
			t.Run(fmt.Sprintf("%s/%v, chosen keys %t, V4 %t", precision, mode, sparse, v4), func(t *testing.T) {
				var want map[string][]float32
				for _, poison := range []bool{false, true} {
					m, err := quantizedMember(collective.NewWorld(1).Comm(0), cfg, precision, 32)
					if err != nil {
						t.Fatal(err)
					}
					m.model.Recompute, m.ex.Poison = mode, poison
					got, err := m.everything(b)
					if err != nil {
						t.Fatal(err)
					}
					for name, values := range want {
						if !slices.Equal(got[name], values) {
							t.Errorf("%s has other bits where released memory is overwritten", name)
						}
					}
					want = got
				}
			})
		}
	}
}

// everything returns what all passes over b give: training, evaluation, logits and those of a
// decoder.
func (m *member) everything(b Batch) (map[string][]float32, error) {
	trained, err := m.model.Train(m.ex, b)
	if err != nil {
		return nil, err
	}
	all := m.gradients()
	evaluated, err := m.model.Eval(m.ex, b)
	if err != nil {
		return nil, err
	}
	all["losses"] = []float32{float32(trained.Sum), float32(trained.Ahead), float32(trained.Index), float32(evaluated.Sum), float32(evaluated.Ahead)}
	logits, err := m.logits(b.Inputs, b.Seq)
	if err != nil {
		return nil, err
	}
	all["logits"] = slices.Concat(logits...)
	d, err := m.model.NewDecoder(m.ex, b.Seq)
	if err != nil {
		return nil, err
	}
	cache := d.NewCache(b.Seq)
	scores, err := d.Extend(m.ex, cache, b.Inputs[:b.Seq-1])
	if err != nil {
		return nil, err
	}
	all["extended"] = slices.Clone(scores)
	stepped, err := d.Step(m.ex, []*Cache{cache}, b.Inputs[b.Seq-1:b.Seq])
	if err != nil {
		return nil, err
	}
	all["stepped"] = slices.Clone(stepped.F32())
	return all, nil
}
