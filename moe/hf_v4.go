package moe

// The config.json of DeepSeek-V4, with the keys of released files and of those that the library
// saves.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// hfAttention has the library's names of kinds of attention.
var hfAttention = map[string]string{
	slidingAttention: "sliding_attention", compressedSparse: "compressed_sparse_attention", heavyCompression: "heavily_compressed_attention",
}

// hfHash is the library's name of a hash layer, and hfMoE that of the others.
const (
	hfHash = "hash_moe"
	hfMoE  = "moe"
)

// releasedCSARate is the ratio of layers of kind csa in released files.
const releasedCSARate = 4

func (h *hfConfig) applyV4(c *Config) (notes []string, err error) {
	switch {
	case h.AttentionBias:
		return nil, fmt.Errorf("attention_bias is true: only projections without biases are supported")
	case or(h.KVHeads, 1) != 1:
		return nil, fmt.Errorf("num_key_value_heads is %d: all heads share one", *h.KVHeads)
	case !slices.Contains([]string{"", "noaux_tc"}, h.TopKMethod):
		return nil, fmt.Errorf("topk_method is %.100q: only noaux_tc is supported", h.TopKMethod)
	}
	if c.Attention, err = h.attentionList(c); err != nil {
		return nil, err
	}
	if c.HashLayers, err = h.hashLayers(); err != nil {
		return nil, err
	}
	c.DenseLayers = 0
	c.DenseInter = 0
	c.Groups = 1
	c.TopKGroups = 1
	c.QRank = or(h.QRank, 0)
	c.Window = h.Window
	c.OutputGroups = h.OutputGroups
	c.OutputRank = h.OutputRank
	c.IndexHeads = h.IndexHeads
	c.IndexDim = h.IndexDim
	c.IndexTopK = h.IndexTopK
	if !c.hasAttention(compressedSparse) {
		c.IndexHeads, c.IndexDim, c.IndexTopK = 0, 0, 0
	}
	c.ResidualStreams = h.Streams
	c.SinkhornIterations = h.Iterations
	c.StreamEps = float64(h.StreamEps)
	c.SwiGLULimit = float64(h.SwiGLULimit)
	c.ValueDim = or(h.HeadDim, 0)
	if c.RopeDim = h.RopeDim; h.RopeDim == 0 {
		c.RopeDim = int(float64(c.ValueDim) * float64(h.partial(1)))
	}
	c.NopeDim = c.ValueDim - c.RopeDim
	if c.MTPLayers > 0 {
		c.MTPLayers = 0
		notes = append(notes, "config.json has modules of multi-token prediction, which are not used: this program has none of DeepSeek-V4")
	}
	return notes, h.applyV4Rope(c)
}

// attentionList returns the kinds of layers, and sets the rates of their entries.
func (h *hfConfig) attentionList(c *Config) (string, error) {
	var kinds []string
	for _, name := range h.LayerTypes[:min(len(h.LayerTypes), h.Layers)] {
		known := ""
		for kind, other := range hfAttention {
			if other == name {
				known = kind
			}
		}
		if known == "" {
			return "", fmt.Errorf("layer_types has %.60q: only %s are supported", name, strings.Join(slices.Sorted(maps.Values(hfAttention)), ", "))
		}
		kinds = append(kinds, known)
	}
	c.CSARate = h.CompressRates[hfAttention[compressedSparse]]
	c.HCARate = h.CompressRates[hfAttention[heavyCompression]]
	for i, ratio := range h.Ratios[:min(len(h.Ratios), h.Layers)] {
		kind, rate := slidingAttention, new(int)
		switch {
		case ratio == releasedCSARate:
			kind, rate = compressedSparse, &c.CSARate
		case ratio > 1:
			kind, rate = heavyCompression, &c.HCARate
		}
		if *rate == 0 && kind != slidingAttention {
			*rate = ratio
		}
		if kind != slidingAttention && *rate != ratio {
			return "", fmt.Errorf("compress_ratios has %d for layer %d, of kind %s: another layer, or compress_rates, has %d: only one rate of each kind is supported", ratio, i, kind, *rate)
		}
		if i == len(kinds) {
			kinds = append(kinds, kind)
		}
		if kinds[i] != kind {
			return "", fmt.Errorf("compress_ratios has %d for layer %d and layer_types has %s: remove one of the two", ratio, i, h.LayerTypes[i])
		}
	}
	if h.Layers < 1 || len(kinds) < h.Layers {
		return "", fmt.Errorf("layer_types has %d layers and compress_ratios %d: give one of the two for all of num_hidden_layers, %d", len(h.LayerTypes), len(h.Ratios), h.Layers)
	}
	return shortestList(*c, kinds), nil
}

// shortestList returns the shortest value of Config.Attention for some layers.
func shortestList(c Config, kinds []string) string {
	for n := range kinds {
		c.Attention = strings.Join(kinds[:n+1], ", ")
		i := n
		for i < len(kinds) && c.attentionOf(i) == kinds[i] {
			i++
		}
		if i == len(kinds) {
			break
		}
	}
	return c.Attention
}

// hashLayers returns the number of hash layers.
func (h *hfConfig) hashLayers() (int, error) {
	n := or(h.HashLayers, 0)
	if h.FeedTypes == nil {
		return n, nil
	}
	saved, err := leadingLayers(h.FeedTypes[:min(len(h.FeedTypes), h.Layers)], hfHash, hfMoE)
	if err != nil {
		return 0, err
	}
	if h.HashLayers != nil && n != saved {
		return 0, fmt.Errorf("num_hash_layers is %d and mlp_layer_types has %d of %s: remove one of the two", n, saved, hfHash)
	}
	return saved, nil
}

// applyV4Rope sets the two rotary embeddings.
func (h *hfConfig) applyV4Rope(c *Config) error {
	main, compress := &ropeParameters{}, h.RopeScaling
	if r := h.RopeParameters; r != nil {
		if r.Main == nil || r.Compress == nil {
			return fmt.Errorf("rope_parameters lacks main or compress: give both, or rope_scaling, rope_theta and compress_rope_theta")
		}
		main, compress = r.Main, r.Compress
	}
	if compress == nil {
		compress = &ropeParameters{}
	}
	c.RopeTheta = float64(or(main.Theta, or(h.RopeTheta, decimal(c.RopeTheta))))
	c.CompressTheta = float64(or(compress.Theta, or(h.CompressTheta, 0)))
	if given := or(h.CompressTheta, decimal(c.CompressTheta)); float64(given) != c.CompressTheta {
		return fmt.Errorf("compress_rope_theta is %g and rope_parameters has %g: remove one of the two", given, c.CompressTheta)
	}
	if or(compress.AttentionFactor, 1) == 1 {
		plain := *compress
		plain.AttentionFactor = nil // the factor that the model has
		compress = &plain
	}
	if err := compress.supported(); err != nil {
		return err
	}
	if main.kind() != "default" {
		return fmt.Errorf("rope_parameters.main has the type %.60q: only default is supported", main.kind())
	}
	if c.YaRN = (YaRN{}); compress.kind() == "yarn" {
		c.YaRN = compress.yarn(c.MaxPositions)
		c.YaRN.MScale, c.YaRN.MScaleAllDim = 0, 0 // attention has no factor
	}
	return nil
}

// addV4 adds the keys of released files and those of the library.
func (c Config) addV4(h map[string]any) {
	var kinds, feeds []string
	var ratios []int
	for i := range c.Layers {
		kind := compressedKind{c, c.attentionOf(i)}
		kinds = append(kinds, hfAttention[kind.kind])
		ratios = append(ratios, kind.rate())
		feed := hfMoE
		if c.isHash(i) {
			feed = hfHash
		}
		feeds = append(feeds, feed)
	}
	partial, one := decimal(float64(c.RopeDim)/float64(c.KeyDim())), decimal(1)
	main := ropeParameters{Type: "default", Theta: (*decimal)(&c.RopeTheta), Partial: &partial}
	compress := main
	compress.Theta = (*decimal)(&c.CompressTheta)
	if y := c.YaRN; y.Enabled() {
		compress.Type = "yarn"
		compress.Factor = decimal(y.Factor)
		compress.OriginalPositions = &y.OriginalPositions
		compress.BetaFast, compress.BetaSlow, compress.AttentionFactor = (*decimal)(&y.BetaFast), (*decimal)(&y.BetaSlow), &one
	}
	rates := map[string]int{}
	for kind, rate := range map[string]int{compressedSparse: c.CSARate, heavyCompression: c.HCARate} {
		if rate > 0 {
			rates[hfAttention[kind]] = rate
		}
	}
	if c.CSARate == releasedCSARate || !c.hasAttention(compressedSparse) { // released files know no other
		h["compress_ratios"] = ratios
	}
	for _, key := range []string{"rope_scaling", "intermediate_size"} {
		delete(h, key)
	}
	maps.Copy(h, map[string]any{
		"architectures": []string{"DeepseekV4ForCausalLM"}, "num_key_value_heads": 1, "head_dim": c.KeyDim(), "q_lora_rank": c.QRank,
		"layer_types": kinds, "compress_rates": rates, "mlp_layer_types": feeds, "num_hash_layers": c.HashLayers,
		"sliding_window": c.Window, "o_groups": c.OutputGroups, "o_lora_rank": c.OutputRank,
		"index_n_heads": c.IndexHeads, "index_head_dim": c.IndexDim, "index_topk": c.IndexTopK,
		"hc_mult": c.ResidualStreams, "hc_sinkhorn_iters": c.SinkhornIterations, "hc_eps": decimal(c.StreamEps),
		"swiglu_limit": decimal(c.SwiGLULimit), "scoring_func": c.ScoreFunc, "topk_method": "noaux_tc",
		"qk_rope_head_dim": c.RopeDim, "partial_rotary_factor": partial, "compress_rope_theta": decimal(c.CompressTheta),
		"n_routed_experts": c.Experts, "n_shared_experts": c.SharedExperts, "routed_scaling_factor": decimal(c.RouteScale),
		"num_nextn_predict_layers": 0, "rope_parameters": map[string]any{"main": main, "compress": compress},
	})
}

// checkV4 returns an error if a model without the attention of DeepSeek-V4 has other parts of it,
// or the other way round.
func (c Config) checkV4() error {
	if parts := c.ResidualStreams > 0 || c.HashLayers > 0 || c.SwiGLULimit > 0; c.Attention == "" && parts {
		return fmt.Errorf("model.streams, model.hash_layers and model.swiglu_limit: of the library's families, only DeepSeek-V4 has them, whose attention this model has not: give model.attention, too")
	}
	if c.Attention != "" && (c.ResidualStreams == 0 || c.DenseLayers > 0 || c.Groups > 1) {
		return fmt.Errorf("model.attention: of the library's families, only DeepSeek-V4 has it, with model.streams, and without model.dense_layers and model.groups")
	}
	return nil
}
