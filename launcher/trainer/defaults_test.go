package trainer

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/moe"
	"spmoe/moe/optim"
)

// The settings of the debug flavor, on which the published losses depend.
func TestDebugDefaults(t *testing.T) {
	cfg, err := config.Default("debug")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Steps != 360 || cfg.Seq != 128 || cfg.Batch != 16 || cfg.MicroBatch != 0 || cfg.EvalSequences != 32 || cfg.SampleTokens != 160 {
		t.Errorf("%+v", cfg)
	}
	want := config.Optimizer{
		Schedule: optim.Schedule{LR: 3e-3, Warmup: 20, DecayFrac: 0.5, Decay: "linear", MinFactor: 0.1},
		Config: optim.Config{
			Beta1:        0.9,
			Beta2:        0.95,
			Eps:          1e-8,
			WeightDecay:  0.1,
			Moments:      "fp32",
			ClipNorm:     1,
			Momentum:     0.95,
			Scale:        "match_rms_adamw",
			NewtonSchulz: "bf16",
			MatrixRate:   1,
		},
	}
	if cfg.Optimizer != want {
		t.Errorf("%+v, want %+v", cfg.Optimizer, want)
	}
}

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

// The flavors that are made for a size of memory leave a fifth of it free, with the copy for
// asynchronous saves.
func TestMemoryOfFlavors(t *testing.T) {
	for _, c := range []struct {
		flavor     string
		ranks, gib int64
	}{{"500M", 2, 24}, {"3B", 8, 128}} {
		cfg, err := config.Default(c.flavor)
		if err != nil {
			t.Fatal(err)
		}
		cfg.SaveEvery, cfg.SaveAsync = 100, true
		need, room := c.ranks*estimate.Memory(cfg, int(c.ranks)).Total(), c.gib<<30
		if need > room*8/10 || need < room/2 {
			t.Errorf("%s on %d ranks needs %.1f GiB, want 50 to 80 %% of %d", c.flavor, c.ranks, float64(need)/(1<<30), c.gib)
		}
	}
}

// Every flavor evaluates ten times, in a small share of its run.
func TestEvaluationsOfFlavors(t *testing.T) {
	for _, f := range moe.Flavors() {
		cfg, err := config.Default(f.Name)
		if err != nil {
			t.Fatal(err)
		}
		const most = 0.02
		n, share := cfg.EvalCost()
		if n < 10 || n > 12 || share > most {
			t.Errorf("%s: %d evaluations take %.2f %% of the FLOPs, want ten and at most %g %%", f.Name, n, 100*share, 100*most)
		}
	}
}

// The cost bounds how often a short run, or one of small batches, evaluates.
func TestEvalInterval(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   int
	}{
		"a ninth of the steps":     {func(c *config.Config) {}, 40},
		"rounded up":               {func(c *config.Config) { c.Steps = 361 }, 41},
		"few steps":                {func(c *config.Config) { c.Steps = 50 }, 13},
		"small batches":            {func(c *config.Config) { c.Batch = 2 }, 90},
		"short evaluations":        {func(c *config.Config) { c.Steps, c.EvalSequences = 9, 1 }, 2},
		"only at start and end":    {func(c *config.Config) { c.EvalEvery = 0 }, 0},
		"a number":                 {func(c *config.Config) { c.EvalEvery = 7 }, 7},
		"a batch that is not one":  {func(c *config.Config) { c.Batch = -5 }, 107},
		"more sequences than fit":  {func(c *config.Config) { c.EvalSequences, c.Batch = config.MaxCount, 1 }, config.MaxCount + 1},
		"of a run without a batch": {func(c *config.Config) { c.Batch, c.EvalSequences = 0, 3 }, 51},
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
