package trainer

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/guard"
	"spmoe/launcher/trainer/state"
	"spmoe/tensor"
)

// texts are those of all alarms, but for ranks that seem slow where others use the machine too.
func (r *reports) texts() (all []string) {
	for _, a := range r.alarms {
		if !strings.Contains(a.Text, " is slow: ") && !strings.Contains(a.Text, " keeps up again ") {
			all = append(all, a.Text)
		}
	}
	return all
}

// guardedConfig is a run whose every step is saved.
func guardedConfig(t *testing.T, change func(*config.Config)) config.Config {
	return tiny(t, func(c *config.Config) {
		c.Steps, c.Seq, c.Batch, c.EvalSequences, c.SaveEvery, c.Keep, c.SaveAsync, c.Model.BiasSpeed = 8, 16, 4, 2, 1, 99, false, 0.01
		c.Guard.Replay = 0
		if change != nil {
			change(c)
		}
	})
}

// tries counts the attempts of each step on each rank, one slot a rank.
type tries [4]struct{ step, n int }

// next returns the number of the attempt that begins, from 1.
func (all *tries) next(r *rank) int {
	t := &all[r.comm.Rank()]
	if t.step != r.Progress.Step+1 {
		t.step, t.n = r.Progress.Step+1, 0
	}
	t.n++
	return t.n
}

// faults are ways for a number that is not one to get into the gradients of a step.
var faults = map[string]func(r *rank, begin bool){
	"gradient of a matrix": func(r *rank, begin bool) {
		if !begin {
			g := r.Model.Groups[1]
			g.Grad.F32()[g.ParamLen()-1] = float32(math.NaN()) // of those that the last rank adds up
		}
	},
	"gradient of an expert, infinite": func(r *rank, begin bool) {
		if !begin {
			r.Model.Groups[2].Grad.F32()[5] = float32(math.Inf(-1))
		}
	},
	"activation": func(r *rank, begin bool) {
		if !begin {
			r.Model.Observe(nil)
			return
		}
		r.Model.Observe(func(name string, x tensor.Tensor) {
			if name == "layer0_mlp_in" {
				x.BF16()[3] = tensor.ToBFloat16(float32(math.NaN()))
			}
		})
	},
}

// A gradient that is wrong once only raises an alarm. One that is wrong again costs the step, which
// is remembered.
func TestGradientGuard(t *testing.T) {
	t.Parallel()
	undisturbed := guardedConfig(t, nil)
	if _, err := guarded(t, undisturbed, 2, "", nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fault      string
		step       int
		persistent bool
	}{
		{"gradient of a matrix", 1, true}, {"gradient of an expert, infinite", 8, false}, {"activation", 5, true},
	} {
		t.Run(fmt.Sprintf("%s/step %d/persistent %t", c.fault, c.step, c.persistent), func(t *testing.T) {
			cfg := undisturbed
			cfg.Out = filepath.Join(t.TempDir(), "run")
			var attempts tries
			corrupt := func(r *rank, computed bool) {
				if r.Progress.Step+1 != c.step || r.comm.Rank() != 1 {
					return
				}
				if !computed {
					attempts.next(r)
				}
				if attempts[1].n == 1 || c.persistent {
					faults[c.fault](r, !computed)
				} else {
					r.Model.Observe(nil)
				}
			}
			got, err := guarded(t, cfg, 2, "", corrupt)
			if err != nil {
				t.Fatal(err)
			}
			alarms := got.texts()
			if attempts[1].n != 2 || len(alarms) != 1 || !strings.Contains(alarms[0], fmt.Sprintf("step %d ", c.step)) {
				t.Fatalf("%d attempts, alarms %q", attempts[1].n, alarms)
			}
			if !c.persistent {
				if !strings.Contains(alarms[0], "transient") {
					t.Errorf("alarms %q", alarms)
				}
				sameState(t, "transient", cfg, undisturbed, cfg.Steps)
				return
			}
			if s := got.steps[c.step-1]; !s.Skipped || s.SkippedTotal != 1 || !strings.Contains(alarms[0], "skipped") {
				t.Errorf("step %+v, alarms %q", s, alarms)
			}
			unchanged(t, cfg, c.step)
			p, _ := savedProgress(t, cfg, cfg.Steps)
			if !slices.Equal(p.SkippedSteps, []int{c.step}) || p.Skipped != 1 || p.OptimizerSteps != cfg.Steps-1 || len(p.Norms) != cfg.Steps-1 {
				t.Errorf("progress %+v", p)
			}
		})
	}
}

// unchanged checks that a step has changed no tensor.
func unchanged(t *testing.T, cfg config.Config, step int) {
	t.Helper()
	if step == 1 {
		return // there is no checkpoint of the state before
	}
	_, before := savedProgress(t, cfg, step-1)
	_, after := savedProgress(t, cfg, step)
	for name, x := range after {
		if !slices.Equal(x, before[name]) {
			t.Errorf("%s was changed by step %d, which was skipped", name, step)
		}
	}
}

// A gradient that is finite, but far above those before, is treated alike; the norms before it are
// known after a resume too.
func TestSpikes(t *testing.T) {
	t.Parallel()
	undisturbed := guardedConfig(t, func(c *config.Config) { c.Steps, c.SaveEvery, c.LogEvery = 40, 35, 50 })
	if _, err := guarded(t, undisturbed, 2, "", nil); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		step, times int
		spike, clip float64
		want        string
	}{
		"transient":   {36, 1, 100, 1, "step 36 had a transient fault"},
		"persistent":  {38, 9, 100, 1, "step 38 is skipped"},
		"off":         {38, 9, 0, 1, ""},
		"not clipped": {38, 9, 100, 1e6, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := undisturbed
			cfg.Guard.Spike, cfg.Optimizer.ClipNorm, cfg.Out = c.spike, c.clip, filepath.Join(t.TempDir(), "run")
			var attempts tries
			corrupt := func(r *rank, computed bool) {
				if r.comm.Rank() > 0 { // it shares the gradients, and the first rank adds up this one
					return
				}
				if r.Progress.Step+1 == c.step && computed && attempts.next(r) <= c.times {
					r.Model.Groups[1].Grad.F32()[9] += 1e4
				}
			}
			got, err := guarded(t, cfg, 2, "", corrupt)
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if len(got.texts()) > 0 {
					t.Errorf("alarms %q", got.texts())
				}
				return
			}
			if alarms := got.texts(); len(alarms) != 1 || !strings.Contains(alarms[0], c.want) ||
				!strings.Contains(alarms[0], "more than 100 times the median of the last 3") {
				t.Errorf("alarms %q", alarms)
			}
			if name == "transient" {
				sameState(t, name, cfg, undisturbed, cfg.Steps)
			}
			again := cfg
			again.Out = filepath.Join(t.TempDir(), "run")
			attempts = tries{}
			if _, err := guarded(t, again, 2, filepath.Join(cfg.Out, "step-00000035"), corrupt); err != nil {
				t.Fatal(err)
			}
			sameState(t, "resumed", again, cfg, cfg.Steps)
		})
	}
}

// More skips than are allowed end the run, with the weights of the last good step saved.
func TestSkipLimit(t *testing.T) {
	t.Parallel()
	cfg := guardedConfig(t, func(c *config.Config) { c.SaveEvery, c.Guard.Skips, c.Steps = 2, 2, 50 })
	got, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
		if r.Progress.Step >= 2 && computed {
			r.Model.Groups[0].Grad.F32()[0] = float32(math.NaN())
		}
	})
	var skips *state.SkipError
	if !errors.As(err, &skips) || !slices.Equal(skips.Steps, []int{3, 4, 5}) ||
		!strings.Contains(err.Error(), "steps 3 4 5 were skipped, more than 2 of 100") {
		t.Fatalf("error %v", err)
	}
	if len(got.steps) != 5 {
		t.Errorf("%d steps", len(got.steps))
	}
	p, last := savedProgress(t, cfg, 5)
	_, good := savedProgress(t, cfg, 2)
	for name, x := range last {
		if !slices.Equal(x, good[name]) {
			t.Errorf("%s is not that of the last good step", name)
		}
	}
	if !slices.Equal(p.SkippedSteps, skips.Steps) {
		t.Errorf("progress %+v", p)
	}
	// When the cause is gone, the run goes on.
	cfg.Steps = 6
	if got, err := guarded(t, cfg, 2, cfg.Out, nil); err != nil || len(got.steps) != 1 || got.steps[0].SkippedTotal != 3 {
		t.Errorf("resumed: %v, steps %+v", err, got.steps)
	}
}

// Steps that are computed twice are compared bit by bit. A difference ends the run, with the rank
// and the parameter.
func TestReplay(t *testing.T) {
	t.Parallel()
	undisturbed := guardedConfig(t, nil)
	if _, err := guarded(t, undisturbed, 2, "", nil); err != nil {
		t.Fatal(err)
	}
	add := func(y float32) func(float32) float32 { return func(x float32) float32 { return x + y } }
	none, one, nan := add(0), add(1), add(float32(math.NaN()))
	negated := func(x float32) float32 { return -x } // which neither loss nor norm tells
	for name, c := range map[string]struct {
		change [2]func(float32) float32 // of a gradient in each attempt of step 6
		wrong  string
	}{
		"nothing wrong":     {[2]func(float32) float32{none, none}, ""},
		"first wrong":       {[2]func(float32) float32{one, none}, "error"},
		"first negated":     {[2]func(float32) float32{negated, none}, "error"},
		"second not finite": {[2]func(float32) float32{none, nan}, "error"},
		"not finite twice":  {[2]func(float32) float32{nan, nan}, "step 6 is skipped"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := undisturbed
			cfg.Guard.Replay, cfg.Out = 3, filepath.Join(t.TempDir(), "run")
			var attempts, all tries
			got, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
				if !computed {
					return
				}
				step, n := r.Progress.Step+1, attempts.next(r)
				all[r.comm.Rank()].n++
				if step == 6 && r.comm.Rank() == 1 {
					grad := r.Model.Groups[2].Grad.F32()
					i := slices.IndexFunc(grad, func(x float32) bool { return x != 0 })
					grad[i] = c.change[n-1](grad[i])
				}
			})
			if c.wrong == "error" {
				if want := "rank 1 after step 5: step 6, computed twice, has two gradients of model.layers.1.mlp.experts"; err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %s", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := all[0].n; n != cfg.Steps+2 { // twice in steps 3 and 6
				t.Errorf("%d attempts in all", n)
			}
			if alarms := got.texts(); len(alarms) != min(len(c.wrong), 1) || len(alarms) > 0 && !strings.Contains(alarms[0], c.wrong) {
				t.Errorf("alarms %q", alarms)
			}
			if c.wrong == "" {
				sameState(t, name, cfg, undisturbed, cfg.Steps)
			} else {
				unchanged(t, cfg, 6)
			}
		})
	}
}

func TestNorms(t *testing.T) {
	var n state.Norms
	g := config.Guard{Spike: 10}
	for i := range 100 {
		if _, ok := n.Median(); ok != (i >= 32) {
			t.Errorf("%d norms: median known: %t", i, ok)
		}
		n.Add(float64(i))
	}
	if m, _ := n.Median(); len(n) != 64 || m != 67 {
		t.Errorf("the median of the last %d of 100 is %g", len(n), m)
	}
	for norm, want := range map[float64]bool{669: false, 670: false, 671: true, 0: false, math.Inf(1): true, math.NaN(): true} {
		if fault := guard.Fault(g, norm, 1, n); (fault != "") != want {
			t.Errorf("norm %g: %q", norm, fault)
		}
	}
	converged := slices.Repeat(state.Norms{1e-7}, 64)
	for _, c := range []struct {
		norm, clipNorm float64
		want           bool
	}{
		{1e-3, 1, false}, {1, 1, false}, {1.001, 1, true}, {1e-3, 1e-4, true}, {1.5, 2, false}, {2.5, 2, true},
		{1, 0, false}, {1.001, 0, true}, {math.Inf(1), 1, true}, // clipping is off
	} {
		if fault := guard.Fault(g, c.norm, c.clipNorm, converged); (fault != "") != c.want {
			t.Errorf("a converged run, norm %g, clipped at %g: %q", c.norm, c.clipNorm, fault)
		}
	}
}
