package trainer

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/trainer/config"
	"spmoe/tensor"
)

// flipSaved flips a random bit of what the passes of a rank have saved.
func flipSaved(rng *rand.Rand, r *rank) {
	var saved [][]byte
	r.Model.Memory(r.ex, func(kind string, b []byte) bool {
		if kind == "saved activations" {
			saved = append(saved, b)
		}
		return true
	})
	b := saved[rng.IntN(len(saved))]
	b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
}

// flipGradient flips a random bit of the gradients that a rank has computed.
func flipGradient(rng *rand.Rand, r *rank) {
	g := r.Model.Groups[rng.IntN(len(r.Model.Groups))]
	flip(rng, g.Grad.Slice(0, g.ParamLen()))
}

// A bit that flips in activations or gradients while they wait is found in the same step, or it
// does no harm. The run is the undisturbed one, bit for bit.
func TestActivationGuard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*config.Config)
		gradient bool // flips are in gradients, else in activations
		least    int  // alarms in 40 steps
	}{
		"activations":                  {nil, false, 30},
		"activations, selective":       {func(c *config.Config) { c.Recompute = "selective" }, false, 30},
		"activations, several passes":  {func(c *config.Config) { c.MicroBatch = 1 }, false, 30},
		"activations, mxfp8, standard": {func(c *config.Config) { c.Precision, c.EPExchange = "mxfp8", "standard" }, false, 30},
		"activations, replicas":        {func(c *config.Config) { c.EP = 1 }, false, 30},
		"gradients":                    {nil, true, 40},
		"gradients, replicas":          {func(c *config.Config) { c.EP = 1 }, true, 40},
		"gradients, several passes":    {func(c *config.Config) { c.MicroBatch = 1 }, true, 40},
	} {
		t.Run(name, func(t *testing.T) {
			undisturbed := guardedConfig(t, func(cfg *config.Config) {
				cfg.Steps, cfg.SaveEvery, cfg.Guard.Activations = 40, 0, 1
				if c.change != nil {
					c.change(cfg)
				}
			})
			if got, err := guarded(t, undisturbed, 2, "", nil); err != nil || len(got.texts()) > 0 {
				t.Fatalf("%v, alarms %q", err, got.texts())
			}
			cfg := undisturbed
			cfg.Out = filepath.Join(t.TempDir(), "run")
			var attempts tries
			got, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
				rng := rand.New(rand.NewPCG(3, uint64(r.Progress.Step)))
				if rng.IntN(2) != r.comm.Rank() {
					return
				}
				switch {
				case !computed && attempts.next(r) == 1 && !c.gradient:
					r.Model.Observe(func(layer string, _ tensor.Tensor) {
						if layer == "layer1_mlp" { // what the last block has left is used at once
							flipSaved(rng, r)
							r.Model.Observe(nil)
						}
					})
				case computed && attempts[r.comm.Rank()].n == 1 && c.gradient:
					flipGradient(rng, r)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			alarms := got.texts()
			if len(alarms) < c.least || len(alarms) > 40 {
				t.Errorf("%d alarms: %q", len(alarms), alarms)
			}
			for _, alarm := range alarms {
				if !strings.HasSuffix(alarm, " changed in memory: the step is computed again") || strings.Contains(alarm, "gradients of rank") != c.gradient {
					t.Error(alarm)
				}
			}
			sameState(t, name, cfg, undisturbed, cfg.Steps)
		})
	}
}

// An alarm names the step, the memory and the rank.
func TestActivationAlarm(t *testing.T) {
	t.Parallel()
	cfg := guardedConfig(t, func(c *config.Config) { c.Guard.Activations = 1 })
	var attempts tries
	got, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
		if !computed || r.Progress.Step != 4 || attempts.next(r) > 1 {
			return
		}
		r.Model.Groups[1+r.comm.Rank()].Grad.Bytes()[100] ^= 1
	})
	want := []string{"step 5: dense gradients of rank 0; expert gradients of rank 1 changed in memory: the step is computed again"}
	if err != nil || !slices.Equal(got.texts(), want) {
		t.Errorf("%v, alarms %q, want %q", err, got.texts(), want)
	}
}

// Memory that changes in every attempt ends the run.
func TestActivationGuardEnds(t *testing.T) {
	t.Parallel()
	cfg := guardedConfig(t, func(c *config.Config) { c.Guard.Activations = 1 })
	got, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
		if computed && r.Progress.Step == 2 && r.comm.Rank() == 0 {
			r.Model.Groups[1].Grad.Bytes()[100] ^= 1 // which this rank has computed
		}
	})
	want := "dense gradients of rank 0 changed in memory, as in 3 attempts before: this machine's memory is not reliable"
	if err == nil || !strings.Contains(err.Error(), want) || len(got.texts()) != 3 {
		t.Errorf("error %v, want %s; alarms %q", err, want, got.texts())
	}
}

// The guard looks at every Nth step only, and at none if it is off.
func TestActivationPeriod(t *testing.T) {
	t.Parallel()
	for period, found := range map[int]int{0: 0, 1: 8, 3: 2} {
		cfg := guardedConfig(t, func(c *config.Config) { c.SaveEvery, c.Guard.Activations = 0, period })
		var attempts tries
		got, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
			if computed && attempts.next(r) == 1 && r.comm.Rank() == 0 {
				r.Model.Groups[1].Grad.Bytes()[100] ^= 1
			}
		})
		if err != nil || len(got.texts()) != found {
			t.Errorf("every %d steps: %v, %d alarms, want %d", period, err, len(got.texts()), found)
		}
	}
}

// By default every step is guarded.
func TestActivationGuardIsOn(t *testing.T) {
	if cfg, err := config.Default("debug"); err != nil || cfg.Guard.Activations != 1 {
		t.Error(fmt.Sprint(cfg.Guard, err))
	}
}
