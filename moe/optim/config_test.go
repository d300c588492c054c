package optim

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"spmoe/tensor"
)

func TestConfigValidate(t *testing.T) {
	with := func(edit func(c *Config)) error {
		c := DefaultConfig()
		edit(&c)
		return c.Validate()
	}
	for _, name := range []string{"", "adamw"} {
		if err := with(func(c *Config) { c.Name = name }); err != nil {
			t.Errorf("name %q: %v", name, err)
		}
	}
	nan, inf := math.NaN(), math.Inf(1)
	for _, r := range []refusal{
		{"beta1", with(func(c *Config) { c.Beta1 = 1 }), []string{"optimizer.beta1 is 1", "below 1"}},
		{"beta1 NaN", with(func(c *Config) { c.Beta1 = nan }), []string{"optimizer.beta1 is NaN"}},
		{"beta2", with(func(c *Config) { c.Beta2 = -0.1 }), []string{"optimizer.beta2 is -0.1"}},
		{"eps", with(func(c *Config) { c.Eps = 0 }), []string{"optimizer.eps is 0", "positive"}},
		{"eps Inf", with(func(c *Config) { c.Eps = inf }), []string{"optimizer.eps is +Inf"}},
		{"weight_decay", with(func(c *Config) { c.WeightDecay = -1 }), []string{"optimizer.weight_decay is -1"}},
		{"weight_decay Inf", with(func(c *Config) { c.WeightDecay = inf }), []string{"optimizer.weight_decay is +Inf"}},
		{"clip_norm", with(func(c *Config) { c.ClipNorm = -1 }), []string{"optimizer.clip_norm is -1", "0 (off)"}},
		{"clip_norm NaN", with(func(c *Config) { c.ClipNorm = nan }), []string{"optimizer.clip_norm is NaN"}},
		{"name", with(func(c *Config) { c.Name = "adam" }), []string{`optimizer.name is "adam": use adamw`}},
		{"moments", with(func(c *Config) { c.Moments = "fp16" }), []string{`optimizer.moments is "fp16": use fp32 or bf16`}},
		{"beta1 in BF16", with(func(c *Config) { c.Beta1, c.Moments = 0.997, "bf16" }), []string{"optimizer.beta1 is 0.997", "bf16"}},
		{"beta2 in BF16", with(func(c *Config) { c.Beta2, c.Moments = 0.999, "bf16" }), []string{"optimizer.beta2 is 0.999", "at most 0.99609375"}},
		{"both", with(func(c *Config) { c.Eps, c.ClipNorm = 0, nan }), []string{"optimizer.eps is 0", "optimizer.clip_norm is NaN"}},
	} {
		r.check(t)
	}
}

// The settings reach the rule, and the help of the name lists every optimizer.
func TestConfigRule(t *testing.T) {
	for moments, dtype := range map[string]tensor.DType{"": tensor.FP32, "fp32": tensor.FP32, "bf16": tensor.BF16} {
		c := Config{Beta1: 0.1, Beta2: 0.2, Eps: 0.3, WeightDecay: 0.4, Moments: moments, ClipNorm: 0.5}
		if got, err := c.Rule(); err != nil || got != (AdamW{0.1, 0.2, 0.3, 0.4, dtype}) {
			t.Errorf("moments %q: rule %+v (%v)", moments, got, err)
		}
	}
	field, _ := reflect.TypeFor[Config]().FieldByName("Name")
	for _, name := range Names() {
		if help := field.Tag.Get("help"); !strings.Contains(help, name) {
			t.Errorf("the help %q lacks optimizer %s", help, name)
		}
	}
}

// With the largest valid beta, every BF16 moment decays. With the next usual one, none does.
func TestBF16MomentsDecay(t *testing.T) {
	const significands = 128
	for beta, decays := range map[float64]bool{maxBF16Beta: true, 0.999: false} {
		m := tensor.New(tensor.BF16, significands)
		for i := range m.BF16() {
			m.BF16()[i] = tensor.ToBFloat16(1 + float32(i)/significands)
		}
		zero := func() tensor.Tensor { return tensor.New(tensor.FP32, significands) }
		before, second := slices.Clone(m.BF16()), tensor.New(tensor.BF16, significands)
		copy(second.Bytes(), m.Bytes())
		state := tensor.AdamWState{Master: zero(), ExpAvg: m, ExpAvgSq: second}
		tensor.AdamW(tensor.NewExec(), state, state, zero(), zero(), tensor.NewAdamWStep(0, beta, beta, 1e-8, 0, 1, 1), new(tensor.UpdateSums))
		for i, old := range before {
			for _, now := range []tensor.BFloat16{m.BF16()[i], second.BF16()[i]} {
				if (now.Float32() < old.Float32()) != decays {
					t.Errorf("beta %g: a moment of %g becomes %g", beta, old.Float32(), now.Float32())
				}
			}
		}
	}
}

func TestRegisterTwice(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a name was given twice")
		}
	}()
	Register(defaultName, func(Config) Rule { return AdamW{} })
}
