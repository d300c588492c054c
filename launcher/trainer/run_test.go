package trainer

import (
	"math"
	"os"
	"strings"
	"testing"

	"spmoe/launcher/trainer/config"
)

// What is logged, evaluated and saved when.
func TestCadence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*config.Config)
		want   string
		kept   string
	}{
		"defaults": {func(*config.Config) {}, "start 0, eval 0, step 1, step 2, step 3, step 4, saved 4, eval 4, done 4", "4"},
		"all periods": {func(c *config.Config) { c.Steps, c.LogEvery, c.EvalEvery, c.SaveEvery = 9, 2, 3, 4 },
			"start 0, eval 0, step 1, step 2, eval 3, step 4, saved 4, step 6, eval 6, step 8, saved 8, step 9, saved 9, eval 9, done 9", "8 9"},
		"the last step is due anyway": {func(c *config.Config) { c.LogEvery, c.EvalEvery, c.SaveEvery = 2, 2, 2 },
			"start 0, eval 0, step 1, step 2, eval 2, saved 2, step 4, saved 4, eval 4, done 4", "2 4"},
		"keep one":        {func(c *config.Config) { c.LogEvery, c.SaveEvery, c.Keep = 9, 1, 1 }, "start 0, eval 0, step 1, saved 1, saved 2, saved 3, step 4, saved 4, eval 4, done 4", "3 4"},
		"longer than all": {func(c *config.Config) { c.LogEvery, c.EvalEvery, c.SaveEvery = 50, 50, 50 }, "start 0, eval 0, step 1, step 4, saved 4, eval 4, done 4", "4"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := tiny(t, c.change)
			cfg.SaveAsync = false // when an asynchronous save is reported depends on the disk
			got := train(t, cfg, 2, "")
			if events := strings.Join(got.events, ", "); events != c.want {
				t.Errorf("events\n%s, want\n%s", events, c.want)
			}
			entries, err := os.ReadDir(cfg.Out)
			if err != nil {
				t.Fatal(err)
			}
			var kept []string
			for _, e := range entries {
				if step, ok := strings.CutPrefix(e.Name(), "step-"); ok {
					kept = append(kept, strings.TrimLeft(step, "0"))
				}
			}
			if strings.Join(kept, " ") != c.kept {
				t.Errorf("kept are %q, want %s", kept, c.kept)
			}
		})
	}
}

// What is reported is consistent with itself and with the configuration.
func TestReport(t *testing.T) {
	t.Parallel()
	cfg := tiny(t, func(c *config.Config) { c.Steps, c.SampleTokens, c.EvalEvery = 14, 12, 7 })
	got := train(t, cfg, 2, "")
	var losses []float64
	for i, s := range got.steps {
		losses = append(losses, float64(s.Loss))
		if s.Step != i+1 || s.Steps != 14 || s.Tokens != float64(s.Step*cfg.Batch*cfg.Seq) || s.LR != cfg.Optimizer.At(i, 14) {
			t.Errorf("step %d: %+v", i+1, s)
		}
		if !(s.TokensPerSec > 0) || s.MFU != s.FLOPS/got.start.Peak || math.Abs(s.FLOPS/s.TokensPerSec/got.start.FLOPs-1) > 1e-12 {
			t.Errorf("step %d: %g tokens/s, %g FLOP/s, MFU %g; %g FLOPs per token, peak %g", s.Step, s.TokensPerSec, s.FLOPS, s.MFU, got.start.FLOPs, got.start.Peak)
		}
		if s.ETA < 0 || s.Elapsed <= 0 || (s.ETA == 0) != (s.Step == 14) || s.Memory <= 0 || !(s.MemoryShare > 0 && s.MemoryShare < 1) ||
			s.Imbalance < 1 {
			t.Errorf("step %d: %+v", s.Step, s)
		}
	}
	if last := losses[13]; !(last < losses[0]-0.3) {
		t.Errorf("the loss goes from %g to %g: it does not learn", losses[0], last)
	}
	d := got.done[0]
	var mean float64
	for _, l := range losses[4:] {
		mean += l / 10
	}
	if math.Abs(d.Train.Last-mean) > 1e-12 || d.Train.First != losses[0] || d.HeldOut.First != got.evals[0].Loss ||
		d.HeldOut.Last != got.evals[2].Loss {
		t.Errorf("the end says %+v and %+v; losses %v, evaluations %+v", d.Train, d.HeldOut, losses, got.evals)
	}
	if d.Ranks != 2 || d.Out != cfg.Out || d.Prompt != cfg.SamplePrompt || len(d.Sample) != 12 || d.Interrupted {
		t.Errorf("the end says %+v", d)
	}
	cfg.Out = t.TempDir()
	if again := train(t, cfg, 2, ""); again.done[0].Sample != d.Sample || again.done[0].Train != d.Train {
		t.Errorf("the same run again says %+v, before %+v", again.done[0], d)
	}
}
