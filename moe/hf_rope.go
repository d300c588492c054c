package moe

// Numbers and rotary embeddings in a Hugging Face config.json.

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
)

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

	Main     *ropeParameters `json:"main,omitempty" hf:"deepseek_v4"`
	Compress *ropeParameters `json:"compress,omitempty" hf:"deepseek_v4"`
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
