package moe

// What a block computes again in the backward pass.

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"spmoe/tensor"
)

// Tokens stay with the experts that they chose in the forward pass, even where they would choose
// others by now, and activations are observed once.
func TestRecomputeDoesNotChooseAnew(t *testing.T) {
	cfg := spreadModel()
	run := func(mode Recompute) (loads []int64, grads map[string][]float32, names []string) {
		m := alone(t, cfg, tensor.BF16, 8)
		m.model.Recompute = mode
		route := m.model.Routings()[0]
		m.model.Observe(func(name string, _ tensor.Tensor) {
			names = append(names, name)
			if name == fmt.Sprintf("layer%d_mlp", route.Layer) {
				route.Bias.F32()[0] += 10
			}
		})
		if _, err := m.model.Train(m.ex, batchOf(22, 4, 8, cfg.Vocab)); err != nil {
			t.Fatal(err)
		}
		return slices.Clone(route.Load), m.gradients(), names
	}
	loads, want, observed := run(RecomputeNone)
	if loads[0] == 4*8 {
		t.Error("all tokens had chosen expert 0 in the first place")
	}
	for _, mode := range []Recompute{RecomputeSelective, RecomputeFull} {
		got, grads, names := run(mode)
		if !slices.Equal(names, observed) {
			t.Errorf("%v: observed are %v, want %v", mode, names, observed)
		}
		if !slices.Equal(got, loads) || !maps.EqualFunc(grads, want, slices.Equal) {
			t.Errorf("%v: loads are %v, want %v; gradients differ: %v", mode, got, loads, !maps.EqualFunc(grads, want, slices.Equal))
		}
	}
}

// Every way needs less memory than the one before.
func TestRecomputeMemory(t *testing.T) {
	cfg, peaks := with(quantizable(128, 128), func(c *Config) { c.Layers, c.TopK = 8, 2 }), [3]int{}
	for mode := range peaks {
		m := alone(t, cfg, tensor.BF16, 32)
		m.model.Recompute = Recompute(mode)
		if _, err := m.model.Train(m.ex, batchOf(21, 2, 32, cfg.Vocab)); err != nil {
			t.Fatal(err)
		}
		peaks[mode] = ActivationPeak(m.ex, m.model)
	}
	if none, selective, full := peaks[0], peaks[1], peaks[2]; 10*selective > 8*none || 10*full > 4*none || full >= selective {
		t.Errorf("%d bytes without, %d selective, %d full", none, selective, full)
	}
}
