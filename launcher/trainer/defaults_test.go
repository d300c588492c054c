package trainer

import (
	"cmp"
	"slices"
	"strings"
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

// A run evaluates as often as its configuration says, and evaluations do not change its weights.
func TestEvaluationsOfARun(t *testing.T) {
	t.Parallel()
	want, counts := "", []int{}
	for _, every := range []int{0, config.AutoEval, 1} {
		cfg := tiny(t, func(c *config.Config) { c.Steps, c.EvalSequences, c.EvalEvery = 20, 1, every })
		got := train(t, cfg, 2, "")
		n, _ := cfg.EvalCost()
		if counts = append(counts, n); len(got.evals) != n {
			t.Errorf("eval_every %d: %d evaluations, EvalCost says %d: %s", every, len(got.evals), n, strings.Join(got.events, ", "))
		}
		if first, last := got.evals[0].Step, got.evals[len(got.evals)-1].Step; first != 0 || last != 20 {
			t.Errorf("eval_every %d: evaluations from step %d to %d", every, first, last)
		}
		if sum := sumOf(t, cfg); want == "" {
			want = sum
		} else if sum != want {
			t.Errorf("eval_every %d changes the final state", every)
		}
	}
	if !slices.Equal(counts, []int{2, 8, 21}) {
		t.Errorf("%v evaluations in 20 steps, want 2, 8 and 21", counts)
	}
}
