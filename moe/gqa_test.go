package moe

import (
	"testing"
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
