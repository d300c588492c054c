package moe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// hfDeepSeek is the configuration of a DeepSeek-V2 or V3 model.
type hfDeepSeek struct {
	hfCommon
	DenseLayers int  `json:"first_k_dense_replace"`
	MoEFreq     *int `json:"moe_layer_freq"`

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
	BalanceAlpha  decimal `json:"aux_loss_alpha,omitempty"` // DeepSeek's own code has it, the library has not
	BySequence    *bool   `json:"seq_aux,omitempty"`

	RopeInterleave *bool `json:"rope_interleave,omitempty"`
	HeadDim        *int  `json:"head_dim,omitempty"` // the library writes qk_rope_head_dim
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
	c.BalanceAlpha = float64(h.BalanceAlpha)
	if c.ScoreFunc = cmp.Or(h.ScoreFunc, Sigmoid); h.ModelType == "deepseek_v2" {
		c.ScoreFunc = Softmax
	}
	return c, nil
}

func (h *hfDeepSeek) supported() error {
	share, groups, v2 := or(h.ropeParameters().Partial, or(h.Partial, 1)), or(h.Groups, 1), h.ModelType == "deepseek_v2"
	switch {
	case h.AttentionBias:
		return fmt.Errorf("attention_bias is true: only latent attention without biases is supported")
	case or(h.MoEFreq, 1) != 1:
		return fmt.Errorf("moe_layer_freq is %d: only 1 is supported", *h.MoEFreq)
	case !or(h.RopeInterleave, true):
		return fmt.Errorf("rope_interleave is false: only interleaved rotary pairs are supported")
	case share != 1:
		return fmt.Errorf("partial_rotary_factor is %g: latent attention rotates all of qk_rope_head_dim", share)
	case or(h.KVHeads, h.Heads) != h.Heads:
		return fmt.Errorf("num_key_value_heads is %d with %d attention heads: only equal numbers are supported", *h.KVHeads, h.Heads)
	case or(h.HeadDim, h.RopeDim) != h.RopeDim:
		return fmt.Errorf("head_dim is %d with a qk_rope_head_dim of %d: latent attention has no head_dim of its own, remove it", *h.HeadDim, h.RopeDim)
	case h.BalanceAlpha != 0 && !or(h.BySequence, true):
		return fmt.Errorf("aux_loss_alpha is %g with seq_aux false: only the balance loss of each sequence is supported, set aux_loss_alpha to 0 to train without", h.BalanceAlpha)
	// Routers that the library and DeepSeek's own code compute differently are refused, too.
	case !slices.Contains([]string{"", "greedy", "group_limited_greedy", "noaux_tc"}, h.TopKMethod):
		return fmt.Errorf("topk_method is %.100q: only noaux_tc and greedy are supported", h.TopKMethod)
	case strings.Contains(h.TopKMethod, "greedy") && groups > 1 && !(v2 && h.TopKMethod == "greedy"):
		return fmt.Errorf("topk_method is %s with %d groups: only noaux_tc (groups ranked by their two best experts) is supported", h.TopKMethod, groups)
	case v2 && (h.TopKMethod == "noaux_tc" || h.NormTopK || cmp.Or(h.ScoreFunc, Softmax) != Softmax):
		return fmt.Errorf("topk_method is %s, norm_topk_prob is %t and scoring_func is %.100q: a deepseek_v2 model is supported with greedy, false and softmax only",
			h.TopKMethod, h.NormTopK, cmp.Or(h.ScoreFunc, Softmax))
	}
	return nil
}

func (c Config) hfDeepSeek() *hfDeepSeek {
	interleave, every := true, 1
	h := &hfDeepSeek{
		hfCommon: c.hfCommon("deepseek_v3", "DeepseekV3ForCausalLM"), MoEFreq: &every, DenseLayers: c.DenseLayers,
		KVRank: c.KVRank, NopeDim: c.NopeDim, RopeDim: c.RopeDim, ValueDim: c.ValueDim,
		Experts: c.Experts, SharedExperts: &c.SharedExperts, Groups: &c.Groups, TopKGroups: &c.TopKGroups,
		ScoreFunc: c.ScoreFunc, TopKMethod: "noaux_tc", RouteScale: decimal(c.RouteScale), MTPLayers: c.MTPLayers, RopeInterleave: &interleave,
	}
	if c.QRank > 0 {
		h.QRank = &c.QRank
	}
	if c.BalanceAlpha > 0 {
		h.BalanceAlpha, h.BySequence = decimal(c.BalanceAlpha), &interleave
	}
	return h
}
