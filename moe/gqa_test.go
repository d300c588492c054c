package moe

import (
	"fmt"
	"slices"
	"testing"

	"spmoe/tensor"
)

// sharedKeys makes the attention of a config grouped-query attention with everything that it has:
// two heads of keys for four of queries, partial rotation, norms of heads, and biases.
func sharedKeys(c *Config) {
	c.Heads, c.KVHeads, c.QRank, c.KVRank, c.ValueDim = 2*c.Heads, c.Heads, 0, 0, c.KeyDim()
	c.QKNorm, c.QKVBias, c.OutputBias = true, true, true
}

// sharingKeys are kinds of grouped-query attention.
var sharingKeys = map[string]func(c *Config){
	"everything":       sharedKeys,
	"full rotation":    func(c *Config) { sharedKeys(c); c.NopeDim, c.RopeDim = 0, c.KeyDim(); c.QKVBias = false },
	"no norms":         func(c *Config) { sharedKeys(c); c.QKNorm, c.OutputBias = false, false },
	"one head of keys": func(c *Config) { sharedKeys(c); c.KVHeads = 1; stretched(c) },
	"equal heads":      func(c *Config) { sharedKeys(c); c.KVHeads = c.Heads; c.MTPLayers = 1 },
}

// withSharedKeys adds models with grouped-query attention to a list.
func withSharedKeys(list map[string]Config) map[string]Config {
	for name, edit := range sharingKeys {
		list["grouped queries, "+name] = with(tiny(), edit)
	}
	return list
}

func TestGroupedQueryGradients(t *testing.T) {
	for name, edit := range sharingKeys {
		t.Run(name, func(t *testing.T) { checkGradients(t, with(tiny(), edit), batchOf(6, 4, 7, 32)) })
	}
}

// QK-clip brings scores down to the limit by scaling queries only.
func TestGroupedQueryClip(t *testing.T) {
	const seq = 8
	cfg := with(tiny(), func(c *Config) { sharedKeys(c); c.QKNorm, c.QKVBias = false, false })
	m := alone(t, cfg, tensor.FP32, seq)
	m.model.RecordScores()
	first := m.topScores(t, batchOf(5, 4, seq, cfg.Vocab))[:cfg.Heads]
	limit := (slices.Min(first) + slices.Max(first)) / 2
	if !(slices.Min(first) > 0) || slices.Min(first) == slices.Max(first) {
		t.Fatalf("scores %v are no test", first)
	}
	for _, p := range m.model.Params() {
		p.Heads.Clip(float64(limit), p.Work.F32())
		if p.Heads != nil && fmt.Sprint(p.Dims) != fmt.Sprint([]int{cfg.Heads * cfg.KeyDim(), cfg.Dim}) {
			t.Errorf("%s of %v is clipped", p.Name, p.Dims)
		}
	}
	for h, got := range m.topScores(t, batchOf(5, 4, seq, cfg.Vocab))[:cfg.Heads] {
		if want := min(first[h], limit); distance([]float32{got}, []float32{want}) > 1e-5 {
			t.Errorf("head %d has score %g after QK-clip at %g, had %g", h, got, limit, first[h])
		}
	}
}
