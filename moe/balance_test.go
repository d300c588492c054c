package moe

import (
	"math"
	"slices"
	"testing"

	"spmoe/tensor"
)

func TestBalanceMovesBias(t *testing.T) {
	const speed = 0.01
	for _, c := range []struct {
		name string
		load []int64
		want []float64 // change of the bias over speed
	}{
		{"even", []int64{5, 5, 5, 5}, []float64{0, 0, 0, 0}},
		{"no tokens", []int64{0, 0, 0, 0}, []float64{0, 0, 0, 0}},
		{"two above, two below", []int64{9, 1, 6, 4}, []float64{-1, 1, -1, 1}},
		{"one takes all: steps sum to 2, mean 0.5", []int64{20, 0, 0, 0}, []float64{-1.5, 0.5, 0.5, 0.5}},
		{"one at the mean", []int64{5, 9, 3, 3}, []float64{-0.25, -1.25, 0.75, 0.75}},
		{"mean is no whole number", []int64{2, 2, 2, 1}, []float64{-0.5, -0.5, -0.5, 1.5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := with(tiny(), func(c *Config) { c.Experts, c.BiasSpeed = 4, speed })
			r := alone(t, cfg, tensor.FP32, 8).model.Routings()[0]
			before := slices.Clone(r.Bias.F32())
			copy(r.Load, []int64{7, 7, 7, 7}) // this rank's own: only the sum over ranks may matter
			r.Balance(c.load)
			for e, b := range r.Bias.F32() {
				if moved := float64(b-before[e]) / speed; math.Abs(moved-c.want[e]) > 1e-4 {
					t.Errorf("bias of expert %d moved by %.4f steps, want %g", e, moved, c.want[e])
				}
			}
			if d := sum(r.Bias.F32()) - sum(before); math.Abs(float64(d)) > 1e-6 {
				t.Errorf("the sum of the biases moved by %g", d)
			}
			if slices.Max(r.Load) != 0 {
				t.Errorf("the load is %v after balancing", r.Load)
			}
		})
	}
}

// Forced, all experts of all layers have the same load, to a token.
func TestForceBalance(t *testing.T) {
	cfg := with(tiny(), func(c *Config) { c.ForceBalance = true })
	m := alone(t, cfg, tensor.FP32, 8)
	b := batchOf(3, 5, 8, cfg.Vocab)
	if _, err := m.model.Train(m.ex, b); err != nil {
		t.Fatal(err)
	}
	for _, r := range m.model.Routings() {
		if least, most := slices.Min(r.Load), slices.Max(r.Load); most > least+1 || most*int64(cfg.Experts) < int64(len(b.Inputs)*cfg.TopK) {
			t.Errorf("layer %d: loads %v", r.Layer, r.Load)
		}
	}
}

func TestBalanceOff(t *testing.T) {
	r := alone(t, with(tiny(), func(c *Config) { c.BiasSpeed = 0 }), tensor.FP32, 8).model.Routings()[0]
	before := slices.Clone(r.Bias.F32())
	r.Load[0] = 3
	r.Balance([]int64{9, 0, 0, 0, 0, 0, 0, 0})
	if !slices.Equal(r.Bias.F32(), before) || r.Load[0] != 0 {
		t.Errorf("bias %v, was %v; load %v, want zeros", r.Bias.F32(), before, r.Load)
	}
}
