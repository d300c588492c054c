package trainer

import (
	"cmp"
	"testing"

	"spmoe/launcher/trainer/config"
	"spmoe/moe"
)

// A run of a flavor takes its steps, sizes and rate from the flavor.
func TestDefaultsOfFlavors(t *testing.T) {
	for _, f := range moe.Flavors() {
		cfg, err := config.Default(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		s := cfg.Optimizer.Schedule
		got := moe.Training{
			Steps: cfg.Steps, Seq: cfg.Seq, Batch: cfg.Batch, MicroBatch: cfg.MicroBatch, EvalSequences: cfg.EvalSequences,
			LR: s.LR, Warmup: s.Warmup, DecayFrac: s.DecayFrac, Decay: s.Decay, MinFactor: s.MinFactor,
			Moments: cfg.Optimizer.Moments, ChainPasses: cfg.ChainPasses,
		}
		f.Training.Moments = cmp.Or(f.Training.Moments, moe.MomentsFP32)
		if got != f.Training {
			t.Errorf("%s: %+v, want %+v", f.Name, got, f.Training)
		}
	}
}

// The cost bounds how often a short run, or one of small batches, evaluates.
func TestEvalInterval(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   int
	}{
		"a ninth of the steps":  {func(c *config.Config) {}, 40},
		"few steps":             {func(c *config.Config) { c.Steps = 50 }, 13},
		"small batches":         {func(c *config.Config) { c.Batch = 2 }, 90},
		"only at start and end": {func(c *config.Config) { c.EvalEvery = 0 }, 0},
		"a number":              {func(c *config.Config) { c.EvalEvery = 7 }, 7},
	} {
		cfg, err := config.Default("debug")
		if err != nil {
			t.Fatal(err)
		}
		c.change(&cfg)
		if got := cfg.EvalInterval(); got != c.want {
			t.Errorf("%s: every %d steps, want %d", name, got, c.want)
		}
	}
}
