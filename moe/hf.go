package moe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"spmoe/internal/strictjson"
)

// hfConfig is a model configuration under the names of Hugging Face's config.json.
type hfConfig struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`
	DType         string   `json:"torch_dtype,omitempty"`
	HiddenAct     string   `json:"hidden_act"`

	Vocab       int `json:"vocab_size"`
	Dim         int `json:"hidden_size"`
	Layers      int `json:"num_hidden_layers"`
	DenseLayers int `json:"first_k_dense_replace"`
	DenseInter  int `json:"intermediate_size"`
	MoEFreq     int `json:"moe_layer_freq"`

	Heads    int  `json:"num_attention_heads"`
	KVHeads  *int `json:"num_key_value_heads"`
	QRank    *int `json:"q_lora_rank"`
	KVRank   int  `json:"kv_lora_rank"`
	NopeDim  int  `json:"qk_nope_head_dim"`
	RopeDim  int  `json:"qk_rope_head_dim"`
	ValueDim int  `json:"v_head_dim"`

	Experts       int     `json:"n_routed_experts"`
	TopK          int     `json:"num_experts_per_tok"`
	ExpertInter   int     `json:"moe_intermediate_size"`
	SharedExperts *int    `json:"n_shared_experts"`
	Groups        *int    `json:"n_group"`
	TopKGroups    *int    `json:"topk_group"`
	ScoreFunc     string  `json:"scoring_func,omitempty"`
	TopKMethod    string  `json:"topk_method,omitempty"`
	NormTopK      bool    `json:"norm_topk_prob"`
	RouteScale    decimal `json:"routed_scaling_factor"`
	MTPLayers     int     `json:"num_nextn_predict_layers"`

	NormEps        decimal         `json:"rms_norm_eps"`
	MaxPositions   int             `json:"max_position_embeddings"`
	RopeInterleave *bool           `json:"rope_interleave,omitempty"`
	RopeTheta      *decimal        `json:"rope_theta,omitempty"`
	RopeScaling    *ropeParameters `json:"rope_scaling"`
	RopeParameters *ropeParameters `json:"rope_parameters,omitempty"`
	TieEmbeddings  bool            `json:"tie_word_embeddings"`
	AttentionBias  bool            `json:"attention_bias"`
}

// decimal is a number that is written with a decimal point, because transformers refuses an integer
// where it expects a float.
type decimal float64

// MarshalJSON implements [json.Marshaler].
func (d decimal) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(float64(d))
	if err == nil && !bytes.ContainsAny(text, ".e") {
		text = append(text, ".0"...)
	}
	return text, err
}

// ropeParameters is rope_scaling in older files and rope_parameters in newer ones.
type ropeParameters struct {
	Type              string   `json:"rope_type,omitempty"`
	OldType           string   `json:"type,omitempty"`
	Theta             *decimal `json:"rope_theta,omitempty"`
	Factor            decimal  `json:"factor,omitempty"`
	OriginalPositions *int     `json:"original_max_position_embeddings,omitempty"`
	BetaFast          *decimal `json:"beta_fast,omitempty"`
	BetaSlow          *decimal `json:"beta_slow,omitempty"`
	MScale            *decimal `json:"mscale,omitempty"`
	MScaleAllDim      *decimal `json:"mscale_all_dim,omitempty"`
	AttentionFactor   *decimal `json:"attention_factor,omitempty"`
	Truncate          *bool    `json:"truncate,omitempty"`
}

// ParseHF reads a Hugging Face config.json of a DeepSeek-V2 or V3 model. Settings that the format
// lacks (bias speed, loss weights) get this package's defaults.
func ParseHF(data []byte) (Config, error) {
	h := hfConfig{NormEps: 1e-6, RouteScale: 1, MaxPositions: 4096, HiddenAct: "silu", MoEFreq: 1}
	if err := strictjson.Unmarshal(data, &h); err != nil {
		return Config{}, fmt.Errorf("config.json: %w", err)
	}
	if err := h.supported(); err != nil {
		return Config{}, fmt.Errorf("config.json: %w", err)
	}
	c := base()
	c.Vocab, c.Dim, c.Layers, c.DenseLayers, c.DenseInter = h.Vocab, h.Dim, h.Layers, h.DenseLayers, h.DenseInter
	c.Heads, c.QRank, c.KVRank, c.NopeDim, c.RopeDim, c.ValueDim = h.Heads, or(h.QRank, 0), h.KVRank, h.NopeDim, h.RopeDim, h.ValueDim
	c.Experts, c.TopK, c.ExpertInter, c.SharedExperts = h.Experts, h.TopK, h.ExpertInter, or(h.SharedExperts, 0)
	c.Groups, c.TopKGroups, c.NormTopK, c.RouteScale = or(h.Groups, 1), or(h.TopKGroups, 1), h.NormTopK, float64(h.RouteScale)
	if h.TopKMethod == "greedy" {
		c.Groups, c.TopKGroups = 1, 1 // selects among all experts, regardless of n_group
	}
	c.MTPLayers, c.NormEps, c.MaxPositions = h.MTPLayers, float64(h.NormEps), h.MaxPositions
	if c.ScoreFunc = h.ScoreFunc; c.ScoreFunc == "" {
		c.ScoreFunc = Sigmoid
		if h.ModelType == "deepseek_v2" {
			c.ScoreFunc = Softmax
		}
	}
	h.rope(&c)
	return c, c.Validate()
}

func (h hfConfig) supported() error {
	switch {
	case h.ModelType != "deepseek_v3" && h.ModelType != "deepseek_v2":
		return fmt.Errorf("model_type is %.100q: only deepseek_v3 and deepseek_v2 are supported", h.ModelType)
	case h.HiddenAct != "silu":
		return fmt.Errorf("hidden_act is %.100q: only silu is supported", h.HiddenAct)
	case h.TieEmbeddings:
		return fmt.Errorf("tie_word_embeddings is true: only untied heads are supported")
	case h.AttentionBias:
		return fmt.Errorf("attention_bias is true: only attention without biases is supported")
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
	if r := h.ropeParameters(); r != nil {
		return r.supported()
	}
	return nil
}

func (r *ropeParameters) supported() error {
	switch kind := r.kind(); {
	case kind != "yarn" && kind != "default":
		return fmt.Errorf("rope type is %.100q: only default and yarn are supported", kind)
	case kind == "yarn" && r.Factor == 0:
		return fmt.Errorf("the rope type is yarn but factor is missing: give the context extension factor")
	case kind == "yarn" && r.AttentionFactor != nil:
		return fmt.Errorf("yarn's attention_factor is %g: only mscale and mscale_all_dim are supported", *r.AttentionFactor)
	case kind == "yarn" && !or(r.Truncate, true):
		return fmt.Errorf("yarn's truncate is false: only whole-numbered blend ranges are supported")
	}
	return nil
}

func (h hfConfig) ropeParameters() *ropeParameters {
	if h.RopeParameters != nil {
		return h.RopeParameters
	}
	return h.RopeScaling
}

func (r *ropeParameters) kind() string {
	for _, s := range []string{r.Type, r.OldType} {
		if s != "" {
			return s
		}
	}
	return "default"
}

func (h hfConfig) rope(c *Config) {
	theta := or(h.RopeTheta, decimal(c.RopeTheta))
	r := h.ropeParameters()
	if r != nil {
		theta = or(r.Theta, theta)
	}
	if c.RopeTheta = float64(theta); r == nil {
		return
	}
	if r.kind() == "yarn" {
		c.YaRN = YaRN{
			Factor: float64(r.Factor), OriginalPositions: or(r.OriginalPositions, c.MaxPositions),
			BetaFast: float64(or(r.BetaFast, 32)), BetaSlow: float64(or(r.BetaSlow, 1)),
			MScale: float64(or(r.MScale, 0)), MScaleAllDim: float64(or(r.MScaleAllDim, 0)),
		}
	}
}

// MarshalHF writes the configuration as a Hugging Face config.json of a DeepSeek-V3 model.
func (c Config) MarshalHF() ([]byte, error) {
	interleave, theta := true, decimal(c.RopeTheta)
	h := hfConfig{
		Architectures: []string{"DeepseekV3ForCausalLM"}, ModelType: "deepseek_v3", HiddenAct: "silu", MoEFreq: 1,
		Vocab: c.Vocab, Dim: c.Dim, Layers: c.Layers, DenseLayers: c.DenseLayers, DenseInter: c.DenseInter,
		Heads: c.Heads, KVHeads: &c.Heads, KVRank: c.KVRank, NopeDim: c.NopeDim, RopeDim: c.RopeDim, ValueDim: c.ValueDim,
		Experts: c.Experts, TopK: c.TopK, ExpertInter: c.ExpertInter, SharedExperts: &c.SharedExperts,
		Groups: &c.Groups, TopKGroups: &c.TopKGroups, ScoreFunc: c.ScoreFunc, TopKMethod: "noaux_tc",
		NormTopK: c.NormTopK, RouteScale: decimal(c.RouteScale), MTPLayers: c.MTPLayers,
		NormEps: decimal(c.NormEps), MaxPositions: c.MaxPositions, RopeInterleave: &interleave, RopeTheta: &theta,
	}
	if c.QRank > 0 {
		h.QRank = &c.QRank
	}
	if y := c.YaRN; y.Enabled() {
		h.RopeScaling = &ropeParameters{
			Type: "yarn", OldType: "yarn", Factor: decimal(y.Factor), OriginalPositions: &y.OriginalPositions,
			BetaFast: (*decimal)(&y.BetaFast), BetaSlow: (*decimal)(&y.BetaSlow), MScale: (*decimal)(&y.MScale), MScaleAllDim: (*decimal)(&y.MScaleAllDim),
		}
	}
	return json.MarshalIndent(h, "", "  ")
}

func or[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}
