package moe

// The families with grouped-query attention: Qwen3-MoE and GLM-4.5. Newer versions of the library
// write num_local_experts and rope_parameters, older ones num_experts and rope_theta. Files that
// are written here have both.

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// hfQwen3 is the configuration of a Qwen3-MoE model. Its router has no selection bias.
type hfQwen3 struct {
	hfCommon
	HeadDim       *int  `json:"head_dim,omitempty"`
	Experts       *int  `json:"num_local_experts,omitempty"`
	OldExperts    *int  `json:"num_experts,omitempty"`
	SparseStep    *int  `json:"decoder_sparse_step"`
	DenseLayers   []int `json:"mlp_only_layers"`
	SlidingWindow bool  `json:"use_sliding_window"`
}

func (h *hfQwen3) config() (Config, error) {
	c := base()
	h.apply(&c)
	switch r := h.ropeParameters(); {
	case h.SlidingWindow:
		return c, fmt.Errorf("use_sliding_window is true: only attention over all tokens is supported")
	case or(r.Partial, or(h.Partial, 1)) != 1:
		return c, fmt.Errorf("partial_rotary_factor is %g: a Qwen3-MoE model rotates whole heads", or(r.Partial, or(h.Partial, 1)))
	}
	if err := h.applyHeads(&c, h.HeadDim, 1); err != nil {
		return c, err
	}
	c.Experts = or(h.Experts, 0)
	c.QKNorm, c.QKVBias, c.OutputBias = true, h.AttentionBias, h.AttentionBias
	c.ScoreFunc, c.BiasSpeed = Softmax, 0
	step := or(h.SparseStep, 1)
	if step < 1 {
		return c, fmt.Errorf("decoder_sparse_step is %d: give 1 or more", step)
	}
	dense := func(i int) bool { return slices.Contains(h.DenseLayers, i) || (i+1)%step != 0 }
	layers := min(h.Layers, 1<<10) // Validate refuses more
	for c.DenseLayers < layers && dense(c.DenseLayers) {
		c.DenseLayers++
	}
	for i := c.DenseLayers; i < layers; i++ {
		if dense(i) {
			return c, fmt.Errorf("layer %d is dense and layer %d is not (mlp_only_layers, decoder_sparse_step %d): only dense layers before all others are supported", i, c.DenseLayers, step)
		}
	}
	return c, nil
}

// isQwen3 reports whether the family has all that the model has.
func (c Config) isQwen3() bool {
	plain := c.ScoreFunc == Softmax && c.RouteScale == 1 && c.Groups == 1 && c.SharedExperts == 0 && c.BiasSpeed == 0
	return c.QKNorm && c.QKVBias == c.OutputBias && c.NopeDim == 0 && c.MTPLayers == 0 && (plain || c.MoELayers() == 0)
}

func (c Config) hfQwen3() *hfQwen3 {
	step, dense := 1, make([]int, c.DenseLayers)
	for i := range dense {
		dense[i] = i
	}
	h := &hfQwen3{hfCommon: c.hfCommon("qwen3_moe", "Qwen3MoeForCausalLM"), Experts: &c.Experts, OldExperts: &c.Experts, SparseStep: &step, DenseLayers: dense}
	h.AttentionBias = c.QKVBias
	h.HeadDim = h.newRope(c)
	return h
}

// hfGLM4 is the configuration of a GLM-4.5 model.
type hfGLM4 struct {
	hfCommon
	HeadDim *int `json:"head_dim,omitempty"`
	QKNorm  bool `json:"use_qk_norm"`

	DenseLayers   int     `json:"first_k_dense_replace"`
	Experts       int     `json:"n_routed_experts"`
	SharedExperts int     `json:"n_shared_experts"`
	Groups        int     `json:"n_group"`
	TopKGroups    int     `json:"topk_group"`
	ScoreFunc     string  `json:"scoring_func,omitempty"` // the library has sigmoid only
	RouteScale    decimal `json:"routed_scaling_factor"`
	MTPLayers     int     `json:"num_nextn_predict_layers"`
}

func (h *hfGLM4) config() (Config, error) {
	c := base()
	h.apply(&c)
	if err := h.applyHeads(&c, h.HeadDim, float64(or(h.ropeParameters().Partial, or(h.Partial, 0.5)))); err != nil {
		return c, err
	}
	c.QKNorm, c.QKVBias = h.QKNorm, h.AttentionBias
	c.DenseLayers, c.Experts, c.SharedExperts, c.MTPLayers = h.DenseLayers, h.Experts, h.SharedExperts, h.MTPLayers
	c.Groups, c.TopKGroups, c.ScoreFunc, c.RouteScale = h.Groups, h.TopKGroups, cmp.Or(h.ScoreFunc, Sigmoid), float64(h.RouteScale)
	return c, nil
}

func (c Config) hfGLM4() *hfGLM4 {
	h := &hfGLM4{
		hfCommon: c.hfCommon("glm4_moe", "Glm4MoeForCausalLM"), QKNorm: c.QKNorm,
		DenseLayers: c.DenseLayers, Experts: c.Experts, SharedExperts: c.SharedExperts, MTPLayers: c.MTPLayers,
		Groups: c.Groups, TopKGroups: c.TopKGroups, RouteScale: decimal(c.RouteScale),
	}
	if c.ScoreFunc != Sigmoid {
		h.ScoreFunc = c.ScoreFunc
	}
	h.AttentionBias = c.QKVBias
	h.HeadDim = h.newRope(c)
	share := float64(c.RopeDim) / float64(*h.HeadDim)
	if int(float64(*h.HeadDim)*share) < c.RopeDim {
		share = math.Nextafter(share, 1)
	}
	h.Partial = (*decimal)(&share)
	h.RopeParameters.Partial = h.Partial
	return h
}

// applyHeads sets the sizes of grouped-query attention. A share of each head is rotated.
func (h *hfCommon) applyHeads(c *Config, dim *int, share float64) error {
	kv, width := or(h.KVHeads, h.Heads), or(dim, h.Dim/max(h.Heads, 1))
	rotated := float64(width) * share
	switch {
	case kv < 1:
		return fmt.Errorf("num_key_value_heads is %d: give 1 or more", kv)
	case !(share > 0 && share <= 1) || !(rotated >= 1):
		return fmt.Errorf("partial_rotary_factor is %g of a head_dim of %d: give up to 1, and at least two elements", share, width)
	}
	c.KVHeads, c.RopeDim = kv, int(rotated) // the library truncates it, too
	c.NopeDim, c.ValueDim = width-c.RopeDim, width
	return nil
}

// newRope sets rope_parameters, as newer versions of the library need them, and returns the width
// of a head.
func (h *hfCommon) newRope(c Config) (width *int) {
	r := ropeParameters{Type: "default"}
	if h.RopeScaling != nil {
		r = *h.RopeScaling
	}
	n := c.KeyDim()
	r.Theta, h.RopeParameters = h.RopeTheta, &r
	return &n
}
