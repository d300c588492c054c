package trainer

import (
	"path/filepath"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/trainer/config"
	"spmoe/tensor"
)

// stateOf returns vector number i of the optimizer's state.
func stateOf(r *rank, i int) (x tensor.Tensor) {
	for s := range r.Optim.Summed {
		t := s.Data
		if i == 0 {
			x = t
		}
		i--
	}
	return x
}

// A bit that flips in working weights, quantized or not, before or after a pass has used them, is
// found in the same step. They are published again, and the run is the undisturbed one, bit for
// bit.
func TestFlippedWeights(t *testing.T) {
	t.Parallel()
	for _, precision := range []string{"bf16", "mxfp8"} {
		undisturbed := guardedConfig(t, func(c *config.Config) { c.Precision, c.SaveEvery = precision, 0 })
		if _, err := guarded(t, undisturbed, 2, "", nil); err != nil {
			t.Fatal(err)
		}
		for group, name := range []string{"norm", "dense", "expert"} {
			for _, computed := range []bool{false, true} {
				cfg := undisturbed
				cfg.Out = filepath.Join(t.TempDir(), "run")
				var attempts tries
				got, err := guarded(t, cfg, 2, "", func(r *rank, after bool) {
					if r.Progress.Step+1 == 5 && r.comm.Rank() == 1 && after == computed && attempts.next(r) == 1 {
						for w := range r.Model.Groups[group].OwnWeights { // this rank's part
							w.Bytes()[2] ^= 4
							return
						}
					}
				})
				want := "step 5: " + name + " weights of rank 1 changed in memory: they are published again"
				if alarms := got.texts(); err != nil || len(alarms) != 1 || alarms[0] != want {
					t.Errorf("%s: %v, alarms %q, want %q", precision, err, alarms, want)
					continue
				}
				sameState(t, name, cfg, undisturbed, cfg.Steps)
			}
		}
	}
}

// A bit that flips in other memory that lasts ends a run of goroutines, in the step that reads it
// or before it is saved. The error names memory and rank, and the newest checkpoint is the one
// before.
func TestFlippedState(t *testing.T) {
	t.Parallel()
	for what, flip := range map[string]func(r *rank) tensor.Tensor{
		"master of the dense group":      func(r *rank) tensor.Tensor { return stateOf(r, 3) },
		"exp_avg_sq of the expert group": func(r *rank) tensor.Tensor { return stateOf(r, 8) },
		"the selection biases":           func(r *rank) tensor.Tensor { return r.Balancer.Routings[0].Bias },
		"a rotary table":                 func(r *rank) tensor.Tensor { return r.Model.Tables()[1] },
	} {
		cfg := guardedConfig(t, nil)
		_, err := guarded(t, cfg, 2, "", func(r *rank, computed bool) {
			if r.Progress.Step+1 == 5 && r.comm.Rank() == 1 && computed {
				flip(r).Bytes()[5] ^= 1
			}
		})
		if err == nil || !strings.Contains(err.Error(), "rank 1 after step ") || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "--resume") {
			t.Errorf("%s: error %v", what, err)
		}
		if last, err := checkpoint.Latest(cfg.Out); err != nil || filepath.Base(last) != "step-00000004" {
			t.Errorf("%s: the newest checkpoint is %s, %v", what, last, err)
		}
	}
}
