package trainer

import (
	"path/filepath"
	"strings"
	"testing"

	"spmoe/collective/mesh"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/config"
)

// averagedRun is a run that averages its weights and evaluates them after every step.
func averagedRun(t *testing.T) config.Config {
	cfg := layoutRun(t, "mxfp8")
	cfg.EMA, cfg.EvalEvery, cfg.SaveEvery, cfg.Keep = 0.9, 1, 1, 9
	return cfg
}

// A run that averages its weights is the run that does not, with one more vector and one more loss
// per evaluation. Layouts, stages of a pipeline and resumed runs have the same bits.
func TestAveragedWeights(t *testing.T) {
	t.Parallel()
	whole := averagedRun(t)
	straight := train(t, whole, 1, "")
	want := outcomeFrom(t, whole, straight)
	plain := averagedRun(t)
	plain.EMA = 0
	for i, e := range train(t, plain, 1, "").evals {
		got := straight.evals[i]
		if got.Loss != e.Loss || e.Averaged != 0 {
			t.Errorf("step %d: validation losses %v with an average, %v without", e.Step, got, e)
		}
		if none, first := got.Averaged == 0, got.Averaged == got.Loss; none != (e.Step == 0) || !none && first != (e.Step == 1) {
			t.Errorf("step %d: loss %g, of averaged weights %g", e.Step, got.Loss, got.Averaged)
		}
	}
	log, err := record.Read(whole.Out)
	if err != nil {
		t.Fatal(err)
	}
	last := straight.evals[len(straight.evals)-1].Averaged
	if end := log.Evals[len(log.Evals)-1]; float64(log.Done.Averaged) != last || float64(end.Averaged) != last ||
		straight.done[0].Averaged != last {
		t.Errorf("the record has %v and %v, want %g", end, log.Done.Averaged, last)
	}
	for _, l := range []mesh.Layout{
		{World: 4, PP: 1, DPReplicate: 2, DPShard: 2, EP: 2}, {World: 4, PP: 2, DPReplicate: 1, DPShard: 2, EP: 2},
	} {
		cfg := averagedRun(t)
		cfg.SetLayout(l)
		outcomeFrom(t, cfg, train(t, cfg, l.World, "")).equals(t, l.Name(), want)
		again := whole
		again.Out = filepath.Join(t.TempDir(), "run")
		resumed := train(t, again, 1, filepath.Join(cfg.Out, "step-00000001"))
		if end := resumed.done[0]; end.Averaged != last {
			t.Errorf("resumed from %s: averaged weights have loss %g, want %g", l.Name(), end.Averaged, last)
		}
		sameState(t, "resumed from "+l.Name(), again, whole, whole.Steps)
	}
}

// Hosts that hold parts of the dense weights gather averaged ones, too.
func TestAveragedWeightsOnHosts(t *testing.T) {
	t.Parallel()
	whole, parts := averagedRun(t), averagedRun(t)
	parts.FSDP = true
	want := outcomeFrom(t, whole, train(t, whole, 1, ""))
	outcomeFrom(t, parts, onHosts(t, parts, 2, 2, nil, run)).equals(t, "two hosts", want)
}

// A resumed run with another ema, or without one, is refused.
func TestAverageRefused(t *testing.T) {
	t.Parallel()
	for want, emas := range map[string][2]float64{
		"holds averaged weights (ema 0.9), which the run has to continue: leave ema out": {0.9, 0},
		"holds no averaged weights to continue: leave ema out":                           {0, 0.9},
	} {
		cfg := tiny(t, func(c *config.Config) { c.EMA = emas[0] })
		train(t, cfg, 1, "")
		cfg.EMA, cfg.Steps = emas[1], cfg.Steps+1
		if _, err := Prepare(cfg, 1, cfg.Out, &reports{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	cfg := tiny(t, func(c *config.Config) { c.EMA = 1 })
	if err := cfg.Validate(1); err == nil || !strings.Contains(err.Error(), "ema is 1: give 0") {
		t.Errorf("%v", err)
	}
}
