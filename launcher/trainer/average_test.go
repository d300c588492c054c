package trainer

import (
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/trainer/config"
)

// A run that averages its weights is the run that does not, with one more vector and one more loss
// per evaluation. The record has both. TestOneResultForAllOptimizers compares layouts.
func TestAveragedWeights(t *testing.T) {
	t.Parallel()
	whole := optimizerRuns(t)["averaged"]()
	straight := train(t, whole, 1, "")
	plain := whole
	plain.EMA, plain.Out = 0, filepath.Join(t.TempDir(), "run")
	for i, e := range train(t, plain, 1, "").evals {
		got := straight.evals[i]
		if got.Loss != e.Loss || e.Averaged != 0 {
			t.Errorf("step %d: validation losses %v with an average, %v without", e.Step, got, e)
		}
		if none, first := got.Averaged == 0, got.Averaged == got.Loss; none != (e.Step == 0) || !none && first != (e.Step == 1) {
			t.Errorf("step %d: loss %g, of averaged weights %g", e.Step, got.Loss, got.Averaged)
		}
	}
	log := readRecord(t, whole)
	last := straight.evals[len(straight.evals)-1].Averaged
	if end := log.Evals[len(log.Evals)-1]; float64(log.Done.Averaged) != last || float64(end.Averaged) != last ||
		straight.done[0].Averaged != last {
		t.Errorf("the record has %v and %v, want %g", end, log.Done.Averaged, last)
	}
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
