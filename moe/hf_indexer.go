package moe

// Sparse attention in a Hugging Face config.json.

import (
	"fmt"
	"maps"
	"strings"
)

// The kinds of layers.
const (
	hfSparseAttention = "deepseek_sparse_attention"
	hfDenseFeed       = "dense"
	hfSparseFeed      = "sparse"
	hfFullIndexer     = "full"
	hfSharedIndexer   = "shared"
)

// applyIndexer sets the indexer, and the numbers of dense layers.
func (h *hfConfig) applyIndexer(c *Config) error {
	interleaved := h.ModelType == hfGLM5
	if or(h.IndexInterleave, interleaved) != interleaved {
		return fmt.Errorf("indexer_rope_interleave is %t: a %s model has %t, give the model_type of the other family", *h.IndexInterleave, h.ModelType, interleaved)
	}
	c.IndexHeads = h.IndexHeads
	c.IndexDim = h.IndexDim
	c.IndexTopK = h.IndexTopK
	c.IndexWeight = 1
	if c.IndexRope = halfPairs; interleaved {
		c.IndexRope = interleavedPairs
	}
	for i, kind := range h.LayerTypes {
		if kind != hfSparseAttention {
			return fmt.Errorf("layer_types: layer %d is %.100q: only %s is supported", i, kind, hfSparseAttention)
		}
	}
	if h.FeedTypes != nil {
		if len(h.FeedTypes) != h.Layers {
			return fmt.Errorf("mlp_layer_types has %d layers of %d: give all", len(h.FeedTypes), h.Layers)
		}
		var err error
		if c.DenseLayers, err = leadingLayers(h.FeedTypes, hfDenseFeed, hfSparseFeed); err != nil {
			return err
		}
	}
	return h.applyIndexerTypes(c)
}

// leadingLayers returns the number of layers of the first kind. Those of the other one follow.
func leadingLayers(kinds []string, first, other string) (n int, err error) {
	for i, kind := range kinds {
		switch {
		case kind == first && n == i:
			n++
		case kind != other:
			return 0, fmt.Errorf("mlp_layer_types has %.100q for layer %d: only %s layers before all %s ones are supported", kind, i, first, other)
		}
	}
	return n, nil
}

// applyIndexerTypes sets the layers that share choices.
func (h *hfConfig) applyIndexerTypes(c *Config) error {
	var types strings.Builder
	freq, offset := max(or(h.IndexFreq, 1), 1), or(h.IndexOffset, 2)
	switch {
	case h.IndexerTypes != nil:
		for i, kind := range h.IndexerTypes {
			if kind != hfFullIndexer && kind != hfSharedIndexer {
				return fmt.Errorf("indexer_types: layer %d is %.100q: give %s or %s", i, kind, hfFullIndexer, hfSharedIndexer)
			}
			types.WriteString(strings.ToUpper(kind[:1]))
		}
	case h.IndexPattern != nil:
		types.WriteString(*h.IndexPattern)
	default:
		for i := range min(h.Layers, 1<<10) { // Validate refuses more
			types.WriteByte("FS"[min(max(i-offset+1, 0)%freq, 1)])
		}
	}
	if c.IndexerTypes = types.String(); strings.Trim(c.IndexerTypes, "F") == "" && len(c.IndexerTypes) == c.Layers {
		c.IndexerTypes = ""
	}
	return nil
}

// addIndexer writes the keys of the families with an indexer.
func (c Config) addIndexer(h map[string]any, kind string) error {
	if c.IndexHeads == 0 {
		return nil
	}
	layers := make([]string, c.Layers)
	feeds := make([]string, c.Layers)
	types := make([]string, c.Layers)
	for i := range layers {
		layers[i] = hfSparseAttention
		feeds[i] = hfSparseFeed
		types[i] = hfFullIndexer
		if c.IsDense(i) {
			feeds[i] = hfDenseFeed
		}
		if c.sharesChoice(i) {
			types[i] = hfSharedIndexer
		}
	}
	maps.Copy(h, map[string]any{
		"index_n_heads": c.IndexHeads, "index_head_dim": c.IndexDim, "index_topk": c.IndexTopK, "layer_types": layers, "mlp_layer_types": feeds,
	})
	switch {
	case kind == hfGLM5:
		h["architectures"] = []string{"GlmMoeDsaForCausalLM"}
		h["indexer_types"] = types
	case strings.Contains(c.IndexerTypes, "S"):
		return fmt.Errorf("model.indexer_types is %s with model.index_rope %s: of the library's families, only GLM-5's shares choices, and its rotary pairs are %s", c.IndexerTypes, c.IndexRope, interleavedPairs)
	default:
		h["architectures"] = []string{"DeepseekV32ForCausalLM"}
	}
	return nil
}
