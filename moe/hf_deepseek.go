package moe

import (
	"fmt"
	"slices"
)

// hfDeepSeek is the configuration of a DeepSeek-V2 or V3 model.
type hfDeepSeek struct {
	hfCommon
	DenseLayers int `json:"first_k_dense_replace"`
	MoEFreq     int `json:"moe_layer_freq"`

	QRank    *int `json:"q_lora_rank"`
	KVRank   int  `json:"kv_lora_rank"`
	NopeDim  int  `json:"qk_nope_head_dim"`
	RopeDim  int  `json:"qk_rope_head_dim"`
	ValueDim int  `json:"v_head_dim"`

	Experts       int     `json:"n_routed_experts"`
	SharedExperts *int    `json:"n_shared_experts"`
	Groups        *int    `json:"n_group"`
	TopKGroups    *int    `json:"topk_group"`
	ScoreFunc     string  `json:"scoring_func,omitempty"`
	TopKMethod    string  `json:"topk_method,omitempty"`
	RouteScale    decimal `json:"routed_scaling_factor"`
	MTPLayers     int     `json:"num_nextn_predict_layers"`

	RopeInterleave *bool `json:"rope_interleave,omitempty"`
}

func newHFDeepSeek() *hfDeepSeek {
	return &hfDeepSeek{hfCommon: hfDefaults(), RouteScale: 1, MoEFreq: 1}
}

func (h *hfDeepSeek) config() (Config, error) {
	if err := h.supported(); err != nil {
		return Config{}, err
	}
	c := base()
	h.apply(&c)
	c.DenseLayers = h.DenseLayers
	c.QRank, c.KVRank, c.NopeDim, c.RopeDim, c.ValueDim = or(h.QRank, 0), h.KVRank, h.NopeDim, h.RopeDim, h.ValueDim
	c.Experts, c.SharedExperts = h.Experts, or(h.SharedExperts, 0)
	c.Groups, c.TopKGroups, c.RouteScale, c.MTPLayers = or(h.Groups, 1), or(h.TopKGroups, 1), float64(h.RouteScale), h.MTPLayers
	if h.TopKMethod == "greedy" {
		c.Groups, c.TopKGroups = 1, 1 // selects among all experts, regardless of n_group
	}
	if c.ScoreFunc = h.ScoreFunc; c.ScoreFunc == "" {
		c.ScoreFunc = Sigmoid
		if h.ModelType == "deepseek_v2" {
			c.ScoreFunc = Softmax
		}
	}
	return c, nil
}

func (h *hfDeepSeek) supported() error {
	switch {
	case h.AttentionBias:
		return fmt.Errorf("attention_bias is true: only latent attention without biases is supported")
	case h.MoEFreq != 1:
		return fmt.Errorf("moe_layer_freq is %d: only 1 is supported", h.MoEFreq)
	case h.TopKMethod == "group_limited_greedy" && or(h.Groups, 1) > 1:
		return fmt.Errorf("topk_method is group_limited_greedy with %d groups: only noaux_tc (groups ranked by their two best experts) is supported", *h.Groups)
	case !slices.Contains([]string{"", "greedy", "group_limited_greedy", "noaux_tc"}, h.TopKMethod):
		return fmt.Errorf("topk_method is %.100q: only noaux_tc and greedy are supported", h.TopKMethod)
	case !or(h.RopeInterleave, true):
		return fmt.Errorf("rope_interleave is false: only interleaved rotary pairs are supported")
	case or(h.KVHeads, h.Heads) != h.Heads:
		return fmt.Errorf("num_key_value_heads is %d with %d attention heads: only equal numbers are supported", *h.KVHeads, h.Heads)
	}
	return nil
}

func (c Config) hfDeepSeek() *hfDeepSeek {
	interleave := true
	h := &hfDeepSeek{
		hfCommon: c.hfCommon("DeepseekV3ForCausalLM"), MoEFreq: 1, DenseLayers: c.DenseLayers,
		KVRank: c.KVRank, NopeDim: c.NopeDim, RopeDim: c.RopeDim, ValueDim: c.ValueDim,
		Experts: c.Experts, SharedExperts: &c.SharedExperts, Groups: &c.Groups, TopKGroups: &c.TopKGroups,
		ScoreFunc: c.ScoreFunc, TopKMethod: "noaux_tc", RouteScale: decimal(c.RouteScale), MTPLayers: c.MTPLayers, RopeInterleave: &interleave,
	}
	if c.QRank > 0 {
		h.QRank = &c.QRank
	}
	return h
}
