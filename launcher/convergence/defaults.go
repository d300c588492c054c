package convergence

// What a comparison trains unless it is told otherwise.

import (
	"math"

	"spmoe/launcher/trainer"
)

// DefaultSteps are those of each run.
const DefaultSteps = 1500

// Default returns the configuration that runs of a flavor start from: a whole schedule of warm-up,
// stable and decay phase, whatever the number of steps; 0 stands for [DefaultSteps].
func Default(flavor string, steps int) (trainer.Config, error) {
	cfg, err := trainer.Default(flavor)
	if err != nil {
		return cfg, err
	}
	if cfg.Steps = DefaultSteps; steps > 0 {
		cfg.Steps = steps
	}
	cfg.Precision = "bf16,mxfp8"
	cfg.Optimizer.Warmup, cfg.Optimizer.DecayFrac = share(cfg.Steps, 0.05), 0.3
	cfg.EvalEvery, cfg.RecordEvery, cfg.SaveEvery = share(cfg.Steps, 0.05), share(cfg.Steps, 0.02), share(cfg.Steps, 0.1)
	cfg.Keep, cfg.LogEvery, cfg.SampleTokens = 1, 1, 0
	cfg.Guard.Spike, cfg.Guard.Skips = 0, cfg.Steps // a recipe that diverges is to be seen doing so
	return cfg, nil
}

// Quick is Default for a comparison of a minute or two on two cores: a model of 0.7 M parameters on
// short sequences. Learning is so slow that it ends before the model begins to look beyond its last
// few tokens: the step at which that sets in depends on every rounding, and losses around it differ
// by more than the margin between runs that are equally good. So it finds recipes that are broken,
// and says nothing of what small errors come to in a long run.
func Quick(flavor string, steps int) (trainer.Config, error) {
	if steps == 0 {
		steps = 200
	}
	cfg, err := Default(flavor, steps)
	m := &cfg.Model
	m.Dim, m.Layers, m.DenseLayers, m.DenseInter = 128, 3, 1, 256
	m.Heads, m.QRank, m.KVRank, m.NopeDim, m.RopeDim, m.ValueDim = 4, 0, 32, 16, 16, 32
	m.Experts, m.TopK, m.ExpertInter = 8, 2, 64
	cfg.Seq, cfg.Batch, cfg.EvalSequences, cfg.EvalEvery = 64, 32, 128, share(steps, 0.1)
	o := &cfg.Optimizer
	o.LR, o.Warmup, o.DecayFrac = 5e-4, share(steps, 0.1), 0.4
	return cfg, err
}

// share returns a part of the steps, at least one.
func share(steps int, of float64) int { return max(1, int(math.Round(of*float64(steps)))) }
