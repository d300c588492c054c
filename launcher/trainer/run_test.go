package trainer

import (
	"fmt"
	"math"
	"os"
	"slices"
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
		"keep three":      {func(c *config.Config) { c.LogEvery, c.SaveEvery, c.Keep = 9, 1, 3 }, "start 0, eval 0, step 1, saved 1, saved 2, saved 3, step 4, saved 4, eval 4, done 4", "2 3 4"},
		"a single step":   {func(c *config.Config) { c.Steps = 1 }, "start 0, eval 0, step 1, saved 1, eval 1, done 1", "1"},
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

// A global batch gives the same steps however it is spread over ranks and passes.
func TestSameBatch(t *testing.T) {
	t.Parallel()
	cfg := tiny(t, func(c *config.Config) { c.Precision, c.Model.MTPLayers, c.Model.BalanceAlpha = "fp32", 1, 0.01 })
	want := train(t, cfg, 1, "")
	for _, c := range []struct{ ranks, micro int }{{1, 1}, {1, 3}, {1, 8}, {1, 100}, {2, 0}, {2, 3}, {4, 0}, {4, 1}} {
		t.Run(fmt.Sprintf("np%d/micro%d", c.ranks, c.micro), func(t *testing.T) {
			cfg := cfg
			cfg.MicroBatch, cfg.Out = c.micro, t.TempDir()
			got := train(t, cfg, c.ranks, "")
			for i, w := range want.steps {
				g := got.steps[i]
				if !close32(g.Loss, w.Loss) || !close32(g.MTPLoss, w.MTPLoss) || !close32(g.Balance, w.Balance) || !close32(g.GradNorm, w.GradNorm) {
					t.Errorf("step %d: %+v, want %+v", w.Step, g, w)
				}
				if g.Tokens != w.Tokens || g.LR != w.LR || g.Epoch != w.Epoch || g.Imbalance != w.Imbalance {
					t.Errorf("step %d: tokens %g, lr %g, epoch %g, imbalance %g; want %g, %g, %g, %g",
						w.Step, g.Tokens, g.LR, g.Epoch, g.Imbalance, w.Tokens, w.LR, w.Epoch, w.Imbalance)
				}
			}
			for i, w := range want.evals {
				if g := got.evals[i]; !close32(g.Loss, w.Loss) || g.Sequences != w.Sequences {
					t.Errorf("evaluation %d: %+v, want %+v", i, g, w)
				}
			}
		})
	}
}

// Ranks that have no window of the validation text still take part.
func TestFewWindows(t *testing.T) {
	t.Parallel()
	for _, windows := range []int{1, 3, 5} {
		cfg := tiny(t, func(c *config.Config) { c.Precision, c.EvalSequences, c.Steps = "fp32", windows, 1 })
		want := train(t, cfg, 1, "").evals
		cfg.Out, cfg.MicroBatch = t.TempDir(), 1
		for i, got := range train(t, cfg, 4, "").evals {
			if got.Sequences != windows || !close32(got.Loss, want[i].Loss) || got.BitsPerByte != got.Loss/math.Ln2 {
				t.Errorf("%d windows on 4 ranks: %+v, on 1 rank %+v", windows, got, want[i])
			}
		}
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

// A step whose gradient is not finite is reported and changes no weight; the run goes on and can be
// resumed.
func TestSkippedSteps(t *testing.T) {
	t.Parallel()
	// The first steps throw the weights so far that no later loss is finite.
	cfg := tiny(t, func(c *config.Config) { c.Steps, c.SaveEvery, c.Keep, c.LogEvery, c.Optimizer.LR = 6, 1, 9, 100, 1e30 })
	cfg.Guard.Skips = 6
	got := train(t, cfg, 2, "")
	skipped := 0
	for _, s := range got.steps {
		if s.Skipped != (math.IsNaN(float64(s.GradNorm)) || math.IsInf(float64(s.GradNorm), 0)) {
			t.Errorf("step %d: skipped %t, gradient norm %g", s.Step, s.Skipped, s.GradNorm)
		}
		if s.Skipped {
			skipped++
		}
		if s.SkippedTotal != skipped {
			t.Errorf("step %d: %d skipped in all, want %d", s.Step, s.SkippedTotal, skipped)
		}
	}
	if skipped < 2 || skipped > 5 || got.done[0].Step != 6 {
		t.Fatalf("%d of 6 steps skipped, %d made: %v", skipped, got.done[0].Step, got.events)
	}
	p, after := savedProgress(t, cfg, 6)
	if p.Skipped != skipped || len(p.SkippedSteps) != skipped || p.OptimizerSteps != 6-skipped || len(got.texts()) != skipped {
		t.Errorf("%d skipped, namely %d, and %d made of 6, %d alarms; want %d skipped", p.Skipped, p.SkippedSteps, p.OptimizerSteps, len(got.texts()), skipped)
	}
	_, before := savedProgress(t, cfg, 5)
	for name, x := range after {
		if !slices.Equal(x, before[name]) {
			t.Errorf("%s was changed by a step that was skipped", name)
		}
	}
	cfg.Steps = 7
	if again := train(t, cfg, 1, cfg.Out); len(again.steps) != 1 || again.steps[0].SkippedTotal != skipped+1 {
		t.Errorf("resumed: %+v, want one more skipped than %d", again.steps, skipped)
	}
}

// The selection biases move by at most twice their speed in a step, and their sum does not.
func TestBalance(t *testing.T) {
	t.Parallel()
	for _, speed := range []float64{0, 0.01} {
		cfg := tiny(t, func(c *config.Config) { c.Steps, c.Model.BiasSpeed = 1, speed })
		got := train(t, cfg, 2, "")
		_, tensors := savedProgress(t, cfg, 1)
		bias := tensors["router_bias/model.layers.1.mlp.gate.e_score_correction_bias"]
		var sum, most float64
		for _, b := range bias {
			sum += float64(b)
			most = max(most, math.Abs(float64(b)))
		}
		if len(bias) != 4 || math.Abs(sum) > 1e-6 || most > 2*speed || (most > 0) != (speed > 0) {
			t.Errorf("speed %g: biases %v after a step of imbalance %g", speed, bias, got.steps[0].Imbalance)
		}
	}
}

// The sample continues all of the prompt, not only its end.
func TestSampleContext(t *testing.T) {
	t.Parallel()
	samples := map[string]bool{}
	for _, prompt := range []string{"rank 1 sends 2", "ends 2", "2"} {
		cfg := tiny(t, func(c *config.Config) { c.Precision, c.Steps, c.SampleTokens, c.SamplePrompt = "fp32", 8, 100, prompt })
		samples[train(t, cfg, 2, "").done[0].Sample] = true
	}
	if len(samples) != 3 {
		t.Errorf("three prompts that end alike give %d samples", len(samples))
	}
}
