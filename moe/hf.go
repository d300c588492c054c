package moe

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
)

// hfCommon is what all families have under the names of Hugging Face's config.json.
type hfCommon struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`
	DType         string   `json:"torch_dtype,omitempty"`
	HiddenAct     string   `json:"hidden_act"`

	Vocab      int  `json:"vocab_size"`
	Dim        int  `json:"hidden_size"`
	Layers     int  `json:"num_hidden_layers"`
	DenseInter int  `json:"intermediate_size"`
	Heads      int  `json:"num_attention_heads"`
	KVHeads    *int `json:"num_key_value_heads"`

	TopK        int  `json:"num_experts_per_tok"`
	ExpertInter int  `json:"moe_intermediate_size"`
	NormTopK    bool `json:"norm_topk_prob"`

	NormEps        decimal         `json:"rms_norm_eps"`
	MaxPositions   int             `json:"max_position_embeddings"`
	RopeTheta      *decimal        `json:"rope_theta,omitempty"`
	RopeScaling    *ropeParameters `json:"rope_scaling"`
	RopeParameters *ropeParameters `json:"rope_parameters,omitempty"`
	Partial        *decimal        `json:"partial_rotary_factor,omitempty"`
	TieEmbeddings  bool            `json:"tie_word_embeddings"`
	AttentionBias  bool            `json:"attention_bias"`
}

func (h *hfCommon) common() *hfCommon { return h }

// hfCommon returns what all families write.
func (c Config) hfCommon(kind, architecture string) hfCommon {
	theta := decimal(c.RopeTheta)
	h := hfCommon{
		Architectures: []string{architecture}, ModelType: kind, HiddenAct: "silu",
		Vocab: c.Vocab, Dim: c.Dim, Layers: c.Layers, DenseInter: c.DenseInter, Heads: c.Heads,
		TopK: c.TopK, ExpertInter: c.ExpertInter, NormTopK: c.NormTopK,
		NormEps: decimal(c.NormEps), MaxPositions: c.MaxPositions, RopeTheta: &theta,
	}
	kv := cmp.Or(c.KVHeads, c.Heads)
	h.KVHeads = &kv
	if y := c.YaRN; y.Enabled() {
		h.RopeScaling = &ropeParameters{
			Type: "yarn", OldType: "yarn", Factor: decimal(y.Factor), OriginalPositions: &y.OriginalPositions,
			BetaFast: (*decimal)(&y.BetaFast), BetaSlow: (*decimal)(&y.BetaSlow), MScale: (*decimal)(&y.MScale), MScaleAllDim: (*decimal)(&y.MScaleAllDim),
		}
	}
	return h
}

// apply sets what all families have.
func (h *hfCommon) apply(c *Config) {
	c.Vocab, c.Dim, c.Layers, c.DenseInter, c.Heads = h.Vocab, h.Dim, h.Layers, h.DenseInter, h.Heads
	c.TopK, c.ExpertInter, c.NormTopK = h.TopK, h.ExpertInter, h.NormTopK
	c.NormEps, c.MaxPositions = float64(h.NormEps), h.MaxPositions
	r := h.ropeParameters()
	c.RopeTheta = float64(or(r.Theta, or(h.RopeTheta, decimal(c.RopeTheta))))
	if r.kind() == "yarn" {
		c.YaRN = r.yarn(c.MaxPositions)
	}
}

func (h *hfCommon) supported() error {
	switch {
	case h.HiddenAct != "silu":
		return fmt.Errorf("hidden_act is %.100q: only silu is supported", h.HiddenAct)
	case h.TieEmbeddings:
		return fmt.Errorf("tie_word_embeddings is true: only untied heads are supported")
	}
	if a, b := h.RopeScaling, h.RopeParameters; !a.empty() && !b.empty() && (a.kind() != b.kind() || a.yarn(0) != b.yarn(0)) {
		return fmt.Errorf("rope_scaling and rope_parameters differ: remove one of the two")
	}
	return h.ropeParameters().supported()
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
	Partial           *decimal `json:"partial_rotary_factor,omitempty"`
	Factor            decimal  `json:"factor,omitempty"`
	OriginalPositions *int     `json:"original_max_position_embeddings,omitempty"`
	BetaFast          *decimal `json:"beta_fast,omitempty"`
	BetaSlow          *decimal `json:"beta_slow,omitempty"`
	MScale            *decimal `json:"mscale,omitempty"`
	MScaleAllDim      *decimal `json:"mscale_all_dim,omitempty"`
	AttentionFactor   *decimal `json:"attention_factor,omitempty"`
	Truncate          *bool    `json:"truncate,omitempty"`
}

func (r *ropeParameters) empty() bool { return r == nil || *r == ropeParameters{} }

func (r *ropeParameters) supported() error {
	switch kind := r.kind(); {
	case kind != "yarn" && kind != "default":
		return fmt.Errorf("rope type is %.100q: only default and yarn are supported", kind)
	case kind == "default" && r.Factor != 0 && r.Factor != 1:
		return fmt.Errorf("rope_scaling has a factor, %g, and its type is default: give the type yarn, or no factor", r.Factor)
	case kind == "yarn" && r.Factor == 0:
		return fmt.Errorf("the rope type is yarn but factor is missing: give the context extension factor")
	case kind == "yarn" && r.AttentionFactor != nil:
		return fmt.Errorf("yarn's attention_factor is %g: only mscale and mscale_all_dim are supported", *r.AttentionFactor)
	case kind == "yarn" && !or(r.Truncate, true):
		return fmt.Errorf("yarn's truncate is false: only whole-numbered blend ranges are supported")
	}
	return nil
}

// ropeParameters returns the settings that count, as the library chooses them. It is not nil.
func (h *hfCommon) ropeParameters() *ropeParameters {
	for _, r := range []*ropeParameters{h.RopeScaling, h.RopeParameters} {
		if !r.empty() {
			return r
		}
	}
	return &ropeParameters{}
}

func (r *ropeParameters) kind() string { return cmp.Or(r.Type, r.OldType, "default") }

// yarn returns the extension of a model for a number of positions.
func (r *ropeParameters) yarn(positions int) YaRN {
	return YaRN{
		Factor: float64(r.Factor), OriginalPositions: or(r.OriginalPositions, positions),
		BetaFast: float64(or(r.BetaFast, 32)), BetaSlow: float64(or(r.BetaSlow, 1)),
		MScale: float64(or(r.MScale, 0)), MScaleAllDim: float64(or(r.MScaleAllDim, 0)),
	}
}

func or[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}

// hfFamily is a family of models of the library transformers.
type hfFamily interface {
	// config returns the configuration of this package, or why there is none.
	config() (Config, error)
	common() *hfCommon
}
