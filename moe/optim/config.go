package optim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spmoe/moe"
	"spmoe/tensor"
)

// Config selects an optimizer and holds the settings of all optimizers. The toml names are those of
// config files and flags.
type Config struct {
	Name        string  `toml:"name,omitempty" resume:"verified" help:"optimizer: adamw, or muon for the matrices of layers and adamw for the rest; empty: adamw"`
	Beta1       float64 `toml:"beta1" help:"decay of the first moment"`
	Beta2       float64 `toml:"beta2" help:"decay of the second moment"`
	Eps         float64 `toml:"eps" help:"term added to the root of the second moment"`
	WeightDecay float64 `toml:"weight_decay" help:"decoupled weight decay of all parameters"`
	Moments     string  `toml:"moments,omitempty" help:"type of the moments in memory and checkpoints: fp32 or bf16"`
	ClipNorm    float64 `toml:"clip_norm" help:"maximum global gradient norm; 0: no clipping"`

	Momentum     float64 `toml:"momentum,omitempty" help:"muon: decay of the momentum"`
	Scale        string  `toml:"scale,omitempty" help:"muon: factor of a step of a matrix: match_rms_adamw, for the learning rate of adamw, original, or deepseek_v4, which has other Newton-Schulz iterations, too"`
	NewtonSchulz string  `toml:"newton_schulz,omitempty" help:"muon: type of the operands of Newton-Schulz iterations: bf16 or fp32"`
	MatrixRate   float64 `toml:"matrix_rate,omitempty" help:"muon: learning rate of matrices, as a multiple of optimizer.lr"`
	QKClip       float64 `toml:"qk_clip,omitempty" help:"muon: scale queries and keys of a head down after a step in which one of its attention scores exceeded this, 100 in Kimi K2; 0: no QK-clip"`
}

// DefaultConfig returns the default optimizer of a run.
func DefaultConfig() Config {
	return Config{
		Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, Moments: moe.MomentsFP32, ClipNorm: 1,
		Momentum: 0.95, Scale: MuonScales()[0], NewtonSchulz: moe.MomentsBF16, MatrixRate: 1,
	}
}

// rules constructs the rule of each optimizer from its settings.
var rules = map[string]func(Config) Rule{
	"adamw": func(c Config) Rule { return c.adamW() },
	"muon": func(c Config) Rule {
		operands, _ := parseType("newton_schulz", c.NewtonSchulz, moe.MomentsBF16) // see Validate
		return Muon{c.Momentum, cmp.Or(c.Scale, MuonScales()[0]), operands, c.MatrixRate, c.QKClip, c.adamW()}
	},
}

func (c Config) adamW() AdamW {
	moments, _ := parseType("moments", c.Moments, moe.MomentsFP32) // see Validate
	return AdamW{c.Beta1, c.Beta2, c.Eps, c.WeightDecay, moments}
}

// Names lists the optimizers.
func Names() []string { return slices.Sorted(maps.Keys(rules)) }

// RuleName returns the name of the selected optimizer. A configuration without one, such as one
// from an older version, has adamw.
func (c Config) RuleName() string { return cmp.Or(c.Name, "adamw") }

// parseType returns a type by its name. A configuration without one, such as one from an older
// version, has the standard type.
func parseType(key, name, standard string) (tensor.DType, error) {
	switch cmp.Or(name, standard) {
	case moe.MomentsFP32:
		return tensor.FP32, nil
	case moe.MomentsBF16:
		return tensor.BF16, nil
	}
	return tensor.FP32, fmt.Errorf("optimizer.%s is %q: use %s or %s", key, name, moe.MomentsFP32, moe.MomentsBF16)
}

// Rule returns the rule of the selected optimizer.
func (c Config) Rule() (Rule, error) {
	rule := rules[c.RuleName()]
	if rule == nil {
		return nil, fmt.Errorf("optimizer.name is %q: use %s", c.Name, strings.Join(Names(), " or "))
	}
	return rule(c), nil
}

// Validate returns an error for invalid settings.
func (c Config) Validate() error {
	rule, err := c.Rule()
	if err == nil {
		err = rule.Validate()
	}
	_, moments := parseType("moments", c.Moments, moe.MomentsFP32)
	_, newtonSchulz := parseType("newton_schulz", c.NewtonSchulz, moe.MomentsBF16)
	err = errors.Join(err, moments, newtonSchulz)
	if c.Scale != "" && !slices.Contains(MuonScales(), c.Scale) {
		err = errors.Join(err, fmt.Errorf("optimizer.scale is %q: use %s", c.Scale, strings.Join(MuonScales(), " or ")))
	}
	if c.QKClip != 0 && c.RuleName() != "muon" {
		err = errors.Join(err, fmt.Errorf("optimizer.qk_clip is %g: it needs optimizer.name muon", c.QKClip))
	}
	if !(c.ClipNorm >= 0) {
		err = errors.Join(err, fmt.Errorf("optimizer.clip_norm is %g: give 0 (off) or more", c.ClipNorm))
	}
	return err
}
