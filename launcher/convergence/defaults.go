package convergence

// The default configuration of a comparison.

import (
	"math"

	"spmoe/launcher/trainer/config"
)

// defaultSteps is the number of steps of flavors whose own runs see less than enoughTokens.
const defaultSteps = 1500

// enoughTokens is the number of tokens per parameter of a run that is not short for its model
// (Hoffmann et al., arXiv:2203.15556), less what rounding takes.
const enoughTokens = 19.5

// calmRate is the largest default learning rate of flavors whose own runs are short. At their own
// rate, near the edge of stability, runs of a pair drift apart as far as those of two seeds. Pairs
// of debug scatter 2.7 times less at 1e-3 than at 3e-3 (bench/results/convergence).
const calmRate = 1e-3

// evalSequences is the least number of validation sequences.
const evalSequences = 256

// Default returns the default configuration for a flavor. Its schedule has a warm-up, a stable and
// a decay phase for any number of steps; 0 steps stand for the default.
func Default(flavor string, steps int) (config.Config, error) {
	cfg, err := config.Default(flavor)
	if err != nil {
		return cfg, err
	}
	tokens := float64(cfg.Steps) * float64(cfg.Batch) * float64(cfg.Seq)
	short := tokens/float64(cfg.Model.Count().Total) < enoughTokens
	if short {
		cfg.Optimizer.LR = min(cfg.Optimizer.LR, calmRate)
	}
	switch {
	case steps > 0:
		cfg.Steps = steps
	case short:
		cfg.Steps = defaultSteps
	}
	cfg.Precision, cfg.EvalSequences = "bf16,mxfp8", max(cfg.EvalSequences, evalSequences)
	cfg.Optimizer.Warmup, cfg.Optimizer.DecayFrac = share(cfg.Steps, 0.05), 0.3
	cfg.EvalEvery, cfg.SaveEvery = share(cfg.Steps, 0.05), config.Interval(share(cfg.Steps, 0.1))
	cfg.Keep, cfg.LogEvery, cfg.SampleTokens = 1, 1, 0
	cfg.Guard.Spike, cfg.Guard.Skips = 0, cfg.Steps // show a recipe that diverges
	return cfg, nil
}

// Quick is Default for a comparison of two minutes on two cores: 0.7 M parameters, short sequences.
// At its low learning rate a run ends before the model attends beyond its last few tokens. The step
// at which that begins depends on every rounding, and around it the losses of equally good runs
// differ by more than the margin. So Quick finds broken recipes, but no small errors of long runs.
func Quick(flavor string, steps int) (config.Config, error) {
	if steps == 0 {
		steps = 200
	}
	cfg, err := Default(flavor, steps)
	m := &cfg.Model
	m.Dim, m.Layers, m.DenseLayers, m.DenseInter = 128, 3, 1, 256
	m.Heads, m.QRank, m.KVRank, m.NopeDim, m.RopeDim, m.ValueDim = 4, 0, 32, 16, 16, 32
	if m.KVHeads > 0 {
		m.KVHeads, m.KVRank = 2, 0
	}
	m.Experts, m.TopK, m.ExpertInter = 8, 2, 64
	cfg.Seq, cfg.Batch, cfg.MicroBatch = 64, 32, 0
	cfg.EvalSequences, cfg.EvalEvery = 128, share(steps, 0.1)
	o := &cfg.Optimizer
	o.LR, o.Warmup, o.DecayFrac = 5e-4, share(steps, 0.1), 0.4
	return cfg, err
}

// share returns a fraction of the steps, at least one.
func share(steps int, of float64) int { return max(1, int(math.Round(of*float64(steps)))) }
