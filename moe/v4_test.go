package moe

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"spmoe/tensor"
)

// likeV4 gives a model what DeepSeek-V4 has.
func likeV4(c *Config) {
	c.ResidualStreams, c.SinkhornIterations, c.StreamEps = 3, 4, 1e-6
	c.DenseLayers, c.HashLayers, c.ScoreFunc, c.SwiGLULimit = 0, 1, SqrtSoftplus, 0.4
	c.MTPLayers, c.Groups, c.TopKGroups = 0, 1, 1
	c.Attention, c.Window, c.CSARate, c.HCARate, c.CompressTheta = "csa, hca, sliding", 5, 2, 3, 300
	c.QRank, c.KVHeads, c.KVRank, c.ValueDim = max(c.QRank, 8), 0, 0, c.KeyDim()
	c.OutputGroups, c.OutputRank = 2, c.KeyDim()
	c.IndexHeads, c.IndexDim, c.IndexTopK = 3, c.RopeDim+c.NopeDim, 2
}

func TestV4Gradients(t *testing.T) {
	for name, c := range map[string]struct {
		seq  int
		edit func(c *Config)
		docs bool
	}{
		"all kinds":         {13, func(c *Config) { c.Layers, c.HashLayers = 4, 2 }, false},
		"documents":         {13, func(c *Config) { c.Layers = 3 }, true},
		"YaRN, long window": {13, func(c *Config) { stretched(c); c.YaRN.MScale, c.YaRN.MScaleAllDim, c.Window = 0, 0, 40 }, true},
		"below one rate":    {3, func(c *Config) { c.CSARate, c.HCARate = 2, 4 }, true},
		"no hash layer":     {9, func(c *Config) { c.HashLayers, c.SwiGLULimit, c.Attention, c.StreamEps = 0, 10, "hca", 0.05 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := with(tiny(), likeV4, c.edit)
			b := batchOf(6, 3, c.seq, cfg.Vocab)
			if c.docs {
				b.First = packedAt(3, c.seq, 7)
			}
			checkGradients(t, cfg, b)
		})
	}
}

// TestBelowRates: layers without a whole window have no entries. With the positions of other layers
// they are layers with a window only, and their compressors have no gradients.
func TestBelowRates(t *testing.T) {
	below := with(tiny(), likeV4, func(c *Config) { c.CSARate, c.HCARate, c.CompressTheta = 4, 5, c.RopeTheta })
	for _, seq := range []int{1, 3} {
		b := batchOf(6, 3, seq, below.Vocab)
		got := way{}.train(t, below, defaultOutputSizes(), "fp32", b)
		want := way{}.train(t, with(below, func(c *Config) { c.Attention = slidingAttention }), defaultOutputSizes(), "fp32", b)
		for name, grad := range got.grads {
			if strings.Contains(name, ".compressor.") {
				want.grads[name] = make([]float32, len(grad))
			}
		}
		got.equals(t, fmt.Sprintf("%d tokens", seq), want)
	}
}

// TestHashTable: the experts of a token are distinct, all experts have tokens, and layers differ.
func TestHashTable(t *testing.T) {
	cfg := with(tiny(), likeV4)
	var b builder
	table := b.hashTable(cfg, 0)
	seen := map[float32]bool{}
	for token := range cfg.Vocab {
		row := slices.Clone(table.Index(token).F32())
		for _, e := range row {
			seen[e] = true
		}
		if slices.Sort(row); len(slices.Compact(row)) != cfg.TopK {
			t.Errorf("token %d has the experts %v", token, table.Index(token).F32())
		}
	}
	if len(seen) != cfg.Experts || slices.Equal(table.Bytes(), b.hashTable(cfg, 1).Bytes()) {
		t.Errorf("%d of %d experts have tokens, or two layers have one table", len(seen), cfg.Experts)
	}
}

// The optimizer updates the output of each group of heads as a matrix.
func TestMatricesOfGroups(t *testing.T) {
	for _, p := range alone(t, with(tiny(), likeV4), tensor.FP32, 8).model.Params() {
		if grouped := strings.HasSuffix(p.Name, ".o_a_proj.weight"); grouped && p.Matrices != 2 || !grouped && p.Matrices != 0 {
			t.Errorf("%s has %d matrices", p.Name, p.Matrices)
		}
	}
}

// packedAt is packed for documents of length tokens.
func packedAt(sequences, seq, length int) (first []int32) {
	for s := range sequences {
		from := 0
		for i := range seq {
			if (i+s)%length == length-1 {
				from = i
			}
			first = append(first, int32(from))
		}
	}
	return first
}
