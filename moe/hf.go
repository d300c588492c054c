package moe

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Families of models of the library transformers, by model_type.
const (
	hfDeepSeek2  = "deepseek_v2"
	hfDeepSeek3  = "deepseek_v3"
	hfDeepSeek32 = "deepseek_v32"
	hfDeepSeek4  = "deepseek_v4"
	hfQwen3      = "qwen3_moe" // without selection biases
	hfGLM4       = "glm4_moe"
	hfGLM5       = "glm_moe_dsa"
)

// hfConfig has the keys of Hugging Face's config.json. The tag hf names the families that have a
// key; without it, all have.
type hfConfig struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`
	DType         string   `json:"torch_dtype"`
	HiddenAct     string   `json:"hidden_act"`

	Vocab      int  `json:"vocab_size"`
	Dim        int  `json:"hidden_size"`
	Layers     int  `json:"num_hidden_layers"`
	DenseInter int  `json:"intermediate_size"`
	Heads      int  `json:"num_attention_heads"`
	KVHeads    *int `json:"num_key_value_heads"`
	HeadDim    *int `json:"head_dim"` // in DeepSeek's, the library writes qk_rope_head_dim

	TopK        int  `json:"num_experts_per_tok"`
	ExpertInter int  `json:"moe_intermediate_size"`
	NormTopK    bool `json:"norm_topk_prob"`

	NormEps        decimal         `json:"rms_norm_eps"`
	MaxPositions   int             `json:"max_position_embeddings"`
	RopeTheta      *decimal        `json:"rope_theta"`
	RopeScaling    *ropeParameters `json:"rope_scaling"`
	RopeParameters *ropeParameters `json:"rope_parameters"`
	Partial        *decimal        `json:"partial_rotary_factor"`
	TieEmbeddings  bool            `json:"tie_word_embeddings"`
	AttentionBias  bool            `json:"attention_bias"`

	DenseLayers   int     `json:"first_k_dense_replace" hf:"deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe glm_moe_dsa"`
	Experts       int     `json:"n_routed_experts" hf:"deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 glm4_moe glm_moe_dsa"`
	SharedExperts *int    `json:"n_shared_experts" hf:"deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 glm4_moe glm_moe_dsa"`
	Groups        *int    `json:"n_group" hf:"deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe glm_moe_dsa"`
	TopKGroups    *int    `json:"topk_group" hf:"deepseek_v2 deepseek_v3 deepseek_v32 glm4_moe glm_moe_dsa"`
	ScoreFunc     string  `json:"scoring_func" hf:"deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 glm4_moe glm_moe_dsa"`
	RouteScale    decimal `json:"routed_scaling_factor" hf:"deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 glm4_moe glm_moe_dsa"`
	MTPLayers     int     `json:"num_nextn_predict_layers" hf:"deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 glm4_moe glm_moe_dsa"`

	MoEFreq        *int    `json:"moe_layer_freq" hf:"deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa"`
	QRank          *int    `json:"q_lora_rank" hf:"deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 glm_moe_dsa"`
	KVRank         int     `json:"kv_lora_rank" hf:"deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa"`
	NopeDim        int     `json:"qk_nope_head_dim" hf:"deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa"`
	RopeDim        int     `json:"qk_rope_head_dim" hf:"deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 glm_moe_dsa"`
	ValueDim       int     `json:"v_head_dim" hf:"deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa"`
	TopKMethod     string  `json:"topk_method" hf:"deepseek_v2 deepseek_v3 deepseek_v32 deepseek_v4 glm_moe_dsa"`
	BalanceAlpha   decimal `json:"aux_loss_alpha" hf:"deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa"` // DeepSeek's own code has it, the library has not
	BySequence     *bool   `json:"seq_aux" hf:"deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa"`
	RopeInterleave *bool   `json:"rope_interleave" hf:"deepseek_v2 deepseek_v3 deepseek_v32 glm_moe_dsa"`

	hfIndexer

	QKNorm bool `json:"use_qk_norm" hf:"glm4_moe"`

	// Newer versions of the library write num_local_experts, older ones num_experts.
	LocalExperts  *int  `json:"num_local_experts" hf:"qwen3_moe"`
	SparseStep    *int  `json:"decoder_sparse_step" hf:"qwen3_moe"`
	DenseNumbers  []int `json:"mlp_only_layers" hf:"qwen3_moe"`
	SlidingWindow bool  `json:"use_sliding_window" hf:"qwen3_moe"`

	hfV4
}

// hfV4 has the keys that only DeepSeek-V4 has. Released files have ratios and a number of hash
// layers, saved ones rates, and layer_types and mlp_layer_types. A file may have both.
type hfV4 struct {
	CompressRates map[string]int `json:"compress_rates" hf:"deepseek_v4"`  // saved
	Ratios        []int          `json:"compress_ratios" hf:"deepseek_v4"` // released: one for each layer, and perhaps more
	HashLayers    *int           `json:"num_hash_layers" hf:"deepseek_v4"` // released
	CompressTheta *decimal       `json:"compress_rope_theta" hf:"deepseek_v4"`

	Window       int `json:"sliding_window" hf:"deepseek_v4"`
	OutputGroups int `json:"o_groups" hf:"deepseek_v4"`
	OutputRank   int `json:"o_lora_rank" hf:"deepseek_v4"`

	Streams     int     `json:"hc_mult" hf:"deepseek_v4"`
	Iterations  int     `json:"hc_sinkhorn_iters" hf:"deepseek_v4"`
	StreamEps   decimal `json:"hc_eps" hf:"deepseek_v4"`
	SwiGLULimit decimal `json:"swiglu_limit" hf:"deepseek_v4"`
}

// hfIndexer has the keys of the families with an indexer.
type hfIndexer struct {
	IndexHeads int `json:"index_n_heads" hf:"deepseek_v32 deepseek_v4 glm_moe_dsa"`
	IndexDim   int `json:"index_head_dim" hf:"deepseek_v32 deepseek_v4 glm_moe_dsa"`
	IndexTopK  int `json:"index_topk" hf:"deepseek_v32 deepseek_v4 glm_moe_dsa"`
	// Code of other libraries reads it. transformers has one value per family.
	IndexInterleave *bool `json:"indexer_rope_interleave" hf:"deepseek_v32 glm_moe_dsa"`

	LayerTypes []string `json:"layer_types" hf:"deepseek_v32 deepseek_v4 glm_moe_dsa"`
	FeedTypes  []string `json:"mlp_layer_types" hf:"deepseek_v32 deepseek_v4 glm_moe_dsa"`

	// Which layers share choices: a list, a pattern of letters, or every IndexFreq-th layer.
	IndexerTypes []string `json:"indexer_types" hf:"glm_moe_dsa"`
	IndexPattern *string  `json:"index_topk_pattern" hf:"glm_moe_dsa"`
	IndexFreq    *int     `json:"index_topk_freq" hf:"glm_moe_dsa"`
	IndexOffset  *int     `json:"index_skip_topk_offset" hf:"glm_moe_dsa"`
}

// apply sets what all families have, and what all except Qwen3-MoE have.
func (h *hfConfig) apply(c *Config) {
	c.Vocab = h.Vocab
	c.Dim = h.Dim
	c.Layers = h.Layers
	c.DenseInter = h.DenseInter
	c.Heads = h.Heads
	c.TopK, c.ExpertInter, c.NormTopK = h.TopK, h.ExpertInter, h.NormTopK
	c.NormEps, c.MaxPositions = float64(h.NormEps), h.MaxPositions
	r := h.ropeParameters()
	c.RopeTheta = float64(or(r.Theta, or(h.RopeTheta, decimal(c.RopeTheta))))
	if r.kind() == "yarn" {
		c.YaRN = r.yarn(c.MaxPositions)
	}
	if h.ModelType == hfQwen3 {
		return
	}
	c.DenseLayers = h.DenseLayers
	c.Experts = h.Experts
	c.SharedExperts = or(h.SharedExperts, 0)
	c.MTPLayers = h.MTPLayers
	c.Groups = or(h.Groups, 1)
	c.TopKGroups = or(h.TopKGroups, 1)
	c.RouteScale = float64(h.RouteScale)
	c.ScoreFunc = cmp.Or(h.ScoreFunc, Sigmoid)
}

func (h *hfConfig) applyDeepSeek(c *Config) error {
	share := h.partial(1)
	groups := or(h.Groups, 1)
	v2 := h.ModelType == hfDeepSeek2
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
	c.QRank = or(h.QRank, 0)
	c.KVRank = h.KVRank
	c.NopeDim = h.NopeDim
	c.RopeDim = h.RopeDim
	c.ValueDim = h.ValueDim
	if h.TopKMethod == "greedy" {
		c.Groups, c.TopKGroups = 1, 1 // selects among all experts, regardless of n_group
	}
	if c.BalanceAlpha = float64(h.BalanceAlpha); v2 {
		c.ScoreFunc = Softmax
	}
	return nil
}

func (h *hfConfig) applyQwen3(c *Config) error {
	switch share := h.partial(1); {
	case h.SlidingWindow:
		return fmt.Errorf("use_sliding_window is true: only attention over all tokens is supported")
	case share != 1:
		return fmt.Errorf("partial_rotary_factor is %g: a Qwen3-MoE model rotates whole heads", share)
	}
	c.Experts = or(h.LocalExperts, 0)
	c.QKNorm, c.QKVBias, c.OutputBias = true, h.AttentionBias, h.AttentionBias
	c.ScoreFunc, c.BiasSpeed = Softmax, 0
	step := or(h.SparseStep, 1)
	if step < 1 {
		return fmt.Errorf("decoder_sparse_step is %d: give 1 or more", step)
	}
	dense := func(i int) bool { return slices.Contains(h.DenseNumbers, i) || (i+1)%step != 0 }
	layers := min(h.Layers, 1<<10) // Validate refuses more
	for c.DenseLayers < layers && dense(c.DenseLayers) {
		c.DenseLayers++
	}
	for i := c.DenseLayers; i < layers; i++ {
		if dense(i) {
			return fmt.Errorf("layer %d is dense and layer %d is not (mlp_only_layers, decoder_sparse_step %d): only dense layers before all others are supported", i, c.DenseLayers, step)
		}
	}
	return h.applyHeads(c, 1)
}

// applyHeads sets the sizes of grouped-query attention. A share of each head is rotated.
func (h *hfConfig) applyHeads(c *Config, share float64) error {
	kv, width := or(h.KVHeads, h.Heads), or(h.HeadDim, h.Dim/max(h.Heads, 1))
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

// partial returns the share of a head that is rotated.
func (h *hfConfig) partial(fallback decimal) decimal {
	return or(h.ropeParameters().Partial, or(h.Partial, fallback))
}

func (h *hfConfig) supported() error {
	switch {
	case h.HiddenAct != "silu":
		return fmt.Errorf("hidden_act is %.100q: only silu is supported", h.HiddenAct)
	case h.TieEmbeddings:
		return fmt.Errorf("tie_word_embeddings is true: only untied heads are supported")
	case h.ModelType == hfDeepSeek4: // which has two rotary embeddings
		return nil
	}
	if a, b := h.RopeScaling, h.RopeParameters; !a.empty() && !b.empty() && (a.kind() != b.kind() || a.yarn(0) != b.yarn(0)) {
		return fmt.Errorf("rope_scaling and rope_parameters differ: remove one of the two")
	}
	return h.ropeParameters().supported()
}

// ropeParameters returns the settings that count, as the library chooses them. It is not nil.
func (h *hfConfig) ropeParameters() *ropeParameters {
	for _, r := range []*ropeParameters{h.RopeScaling, h.RopeParameters} {
		if !r.empty() {
			return r
		}
	}
	return &ropeParameters{}
}
