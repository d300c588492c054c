package inspecting

import (
	"cmp"
	"fmt"

	"spmoe/launcher/cli"
	"spmoe/launcher/report"
	"spmoe/launcher/trainer/config"
	"spmoe/moe"
	"spmoe/moe/optim"
)

// describeTraining returns the training settings of a configuration and what follows from them, for
// inspect and train --dry-run.
func describeTraining(cfg config.Config) []string {
	passes := "in one pass"
	if cfg.MicroBatch > 0 {
		passes = "in passes of " + report.Plural(cfg.MicroBatch, "sequence") + " per rank"
	}
	o, moments := cfg.Optimizer, cmp.Or(cfg.Optimizer.Moments, moe.MomentsFP32)
	optimizer := o.RuleName()
	rule, _ := o.Rule()
	switch rule := rule.(type) {
	case optim.AdamW:
		optimizer += " with " + moments + " moments"
	case optim.Muon:
		optimizer = fmt.Sprintf("muon (momentum %g, %s, Newton-Schulz in %v) for matrices and adamw with %s moments for the rest", rule.Momentum, rule.Scale, rule.NewtonSchulz, moments)
	}
	evaluations, share := cfg.EvalCost()
	return []string{
		fmt.Sprintf("training: %s of %s of %d tokens, %s; %s tokens", report.Plural(cfg.Steps, "step"), report.Plural(cfg.Batch, "sequence"), cfg.Seq, passes,
			report.Count(int64(cfg.Steps)*int64(cfg.Batch)*int64(cfg.Seq))),
		fmt.Sprintf("optimizer: %s, learning rate %g, warm-up of %s, %s decay to %g of the rate over the last %.0f%% of steps, betas %g and %g, weight decay %g, clip norm %g",
			optimizer, o.LR, report.Plural(o.Warmup, "step"), o.Decay, o.MinFactor, 100*o.DecayFrac, o.Beta1, o.Beta2, o.WeightDecay, o.ClipNorm),
		fmt.Sprintf("evaluation: %d times %s, %s of the FLOPs of all steps", evaluations, report.Plural(cfg.EvalSequences, "sequence"), cli.Percent(share, 1)),
	}
}
