package inspecting

// inspect and train --dry-run: the training settings of a configuration and what follows from them.

import (
	"cmp"
	"fmt"

	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/trainer/config"
	"spmoe/moe"
	"spmoe/moe/optim"
)

// trainingSizes is the part of inspect's JSON output that describes the whole run.
type trainingSizes struct {
	Steps        int     `json:"steps"`
	MicroBatch   int     `json:"micro_batch"` // sequences per rank in one pass; 0: all
	Tokens       int64   `json:"tokens"`      // of all steps
	LearningRate float64 `json:"learning_rate"`
	Warmup       int     `json:"warmup"` // steps
	Moments      string  `json:"moments"`
	Evaluations  int     `json:"evaluations"`
	// FLOPs of the evaluations, as a share of those of all steps
	EvaluationShare float64 `json:"evaluation_share"`
}

func newTrainingSizes(cfg config.Config) trainingSizes {
	s := trainingSizes{
		Steps: cfg.Steps, MicroBatch: cfg.MicroBatch, Tokens: int64(cfg.Steps) * int64(cfg.Batch) * int64(cfg.Seq),
		LearningRate: cfg.Optimizer.LR, Warmup: cfg.Optimizer.Warmup, Moments: cmp.Or(cfg.Optimizer.Moments, moe.MomentsFP32),
	}
	s.Evaluations, s.EvaluationShare = cfg.EvalCost()
	return s
}

// lines describes the run.
func (s trainingSizes) lines(cfg config.Config) []string {
	o, passes, share := cfg.Optimizer, "in one pass", cli.Percent(s.EvaluationShare, 1)
	if s.MicroBatch > 0 {
		passes = "in passes of " + report.Plural(s.MicroBatch, "sequence") + " per rank"
	}
	if s.EvaluationShare < 0.001 {
		share = "under 0.1%"
	}
	optimizer := o.RuleName()
	rule, _ := o.Rule()
	switch rule := rule.(type) {
	case optim.AdamW:
		optimizer += " with " + s.Moments + " moments"
	case optim.Muon:
		optimizer = fmt.Sprintf("muon (momentum %g, %s, Newton-Schulz in %v) for matrices and adamw with %s moments for the rest", rule.Momentum, rule.Scale, rule.NewtonSchulz, s.Moments)
	}
	return []string{
		fmt.Sprintf("training: %s of %s of %d tokens, %s; %s tokens", report.Plural(s.Steps, "step"), report.Plural(cfg.Batch, "sequence"), cfg.Seq, passes, report.Count(s.Tokens)),
		fmt.Sprintf("optimizer: %s, learning rate %g, warm-up of %s, %s decay to %g of the rate over the last %.0f%% of steps, betas %g and %g, weight decay %g, clip norm %g",
			optimizer, o.LR, report.Plural(o.Warmup, "step"), o.Decay, o.MinFactor, 100*o.DecayFrac, o.Beta1, o.Beta2, o.WeightDecay, o.ClipNorm),
		fmt.Sprintf("evaluation: %d times %s, %s of the FLOPs of all steps", s.Evaluations, report.Plural(cfg.EvalSequences, "sequence"), share),
	}
}
