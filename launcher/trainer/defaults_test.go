package trainer

import (
	"testing"

	"spmoe/launcher/trainer/config"
)

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
