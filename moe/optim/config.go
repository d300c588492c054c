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
	Name        string  `toml:"name,omitempty" help:"optimizer: adamw; empty: adamw"`
	Beta1       float64 `toml:"beta1" help:"decay of the first moment"`
	Beta2       float64 `toml:"beta2" help:"decay of the second moment"`
	Eps         float64 `toml:"eps" help:"term added to the root of the second moment"`
	WeightDecay float64 `toml:"weight_decay" help:"decoupled weight decay of all parameters"`
	Moments     string  `toml:"moments,omitempty" help:"type of AdamW's moments in memory and checkpoints: fp32 or bf16"`
	ClipNorm    float64 `toml:"clip_norm" help:"maximum global gradient norm; 0: no clipping"`
}

// defaultName is the optimizer of a configuration without a name, such as one from an older
// version.
const defaultName = "adamw"

// DefaultConfig returns the default optimizer of a run.
func DefaultConfig() Config {
	return Config{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, WeightDecay: 0.1, Moments: moe.MomentsFP32, ClipNorm: 1}
}

// rules constructs the rule of each optimizer from its settings.
var rules = map[string]func(Config) Rule{}

// Register makes an optimizer available under a name. It is called by the init function of the
// rule's file, before any run begins.
func Register(name string, rule func(Config) Rule) {
	if rules[name] != nil {
		panic("optim: two optimizers have the name " + name)
	}
	rules[name] = rule
}

// Names lists the registered optimizers.
func Names() []string { return slices.Sorted(maps.Keys(rules)) }

// RuleName returns the name of the selected optimizer.
func (c Config) RuleName() string { return cmp.Or(c.Name, defaultName) }

// MomentsTypes lists the types that AdamW's moments may have.
func MomentsTypes() []string { return []string{moe.MomentsFP32, moe.MomentsBF16} }

// momentsType returns the type of the moments. A configuration without one has FP32, such as one
// from an older version.
func (c Config) momentsType() (tensor.DType, error) {
	switch c.Moments {
	case "", moe.MomentsFP32:
		return tensor.FP32, nil
	case moe.MomentsBF16:
		return tensor.BF16, nil
	}
	return tensor.FP32, fmt.Errorf("optimizer.moments is %q: use %s", c.Moments, strings.Join(MomentsTypes(), " or "))
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
	if _, moments := c.momentsType(); moments != nil {
		err = errors.Join(err, moments)
	}
	if !(c.ClipNorm >= 0) {
		err = errors.Join(err, fmt.Errorf("optimizer.clip_norm is %g: give 0 (off) or more", c.ClipNorm))
	}
	return err
}
