package optim

import (
	"math"
	"strings"
	"testing"

	"spmoe/tensor"
)

// Each wrong setting is refused by its name.
func TestRefuses(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for want, edit := range map[string]func(c *Config){
		"":                          func(c *Config) {},
		"optimizer.beta1 is NaN":    func(c *Config) { c.Beta1 = nan },
		"optimizer.beta2 is -0.1":   func(c *Config) { c.Beta2 = -0.1 },
		"optimizer.eps is 0":        func(c *Config) { c.Eps = 0 },
		"optimizer.weight_decay":    func(c *Config) { c.WeightDecay = inf },
		"optimizer.clip_norm":       func(c *Config) { c.ClipNorm = nan },
		"optimizer.name":            func(c *Config) { c.Name = "adam" },
		"optimizer.moments":         func(c *Config) { c.Moments = "fp16" },
		"at most 0.99609375":        func(c *Config) { c.Beta2, c.Moments = 0.999, "bf16" },
		"optimizer.momentum is 1":   func(c *Config) { c.Name, c.Momentum = "muon", 1 },
		"with moments in bf16":      func(c *Config) { c.Name, c.Momentum, c.Moments = "muon", 0.999, "bf16" },
		"optimizer.scale is \"x\"":  func(c *Config) { c.Scale = "x" }, // with AdamW too
		"optimizer.newton_schulz":   func(c *Config) { c.Name, c.NewtonSchulz = "muon", "fp16" },
		"optimizer.matrix_rate":     func(c *Config) { c.Name, c.MatrixRate = "muon", 0 },
		"optimizer.qk_clip is -1":   func(c *Config) { c.Name, c.QKClip = "muon", -1 },
		"optimizer.beta1 is 2":      func(c *Config) { c.Name, c.Beta1 = "muon", 2 },
		"needs optimizer.name muon": func(c *Config) { c.QKClip = 100 },
	} {
		c := DefaultConfig()
		edit(&c)
		checkRefusal(t, c.Validate(), want)
	}
	for want, edit := range map[string]func(s *Schedule){
		"":                     func(s *Schedule) {},
		"optimizer.lr is NaN":  func(s *Schedule) { s.LR = nan },
		"optimizer.warmup":     func(s *Schedule) { s.Warmup = -1 },
		"optimizer.decay_frac": func(s *Schedule) { s.DecayFrac = nan },
		"optimizer.min_factor": func(s *Schedule) { s.MinFactor = -0.1 },
		"cosine, linear, sqrt": func(s *Schedule) { s.Decay = "step" },
	} {
		s := Schedule{LR: 1, Warmup: 2, DecayFrac: 0.5, Decay: "sqrt", MinFactor: 0.1}
		edit(&s)
		checkRefusal(t, s.Validate(), want)
	}
}

// checkRefusal checks that an error has these words; empty: that there is none.
func checkRefusal(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%v, want %q", err, want)
	}
}

// The settings reach the rule.
func TestConfigRule(t *testing.T) {
	for moments, dtype := range map[string]tensor.DType{"": tensor.FP32, "fp32": tensor.FP32, "bf16": tensor.BF16} {
		c := Config{Beta1: 0.1, Beta2: 0.2, Eps: 0.3, WeightDecay: 0.4, Moments: moments, ClipNorm: 0.5}
		if got, err := c.Rule(); err != nil || got != (AdamW{0.1, 0.2, 0.3, 0.4, dtype}) {
			t.Errorf("moments %q: rule %+v (%v)", moments, got, err)
		}
		c.Name, c.Momentum, c.Scale, c.NewtonSchulz, c.MatrixRate, c.QKClip = "muon", 0.6, "original", "fp32", 0.7, 0.8
		if got, err := c.Rule(); err != nil || got != (Muon{0.6, "original", tensor.FP32, 0.7, 0.8, AdamW{0.1, 0.2, 0.3, 0.4, dtype}}) {
			t.Errorf("moments %q: rule %+v (%v)", moments, got, err)
		}
	}
}
