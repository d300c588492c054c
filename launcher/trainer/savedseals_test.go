package trainer

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/trainer/config"
)

// A rank that resumes compares the seals of what it has read with those that were saved, if it has
// the pieces that it would save.
func TestSealsAfterLoad(t *testing.T) {
	for _, change := range []func(*config.Config){
		func(c *config.Config) { c.EMA, c.Optimizer.Moments = 0.9, "bf16" },
		func(c *config.Config) { c.Optimizer.Name, c.Precision = "muon", "mxfp8" },
	} {
		cfg := guardedConfig(t, func(c *config.Config) {
			c.Steps, c.EvalSequences, c.SaveEvery = 2, 1, 0
			change(c)
		})
		train(t, cfg, 2, "")
		cfg.Steps = 3
		for _, ranks := range []int{1, 2, 4} {
			onRanks(t, cfg, ranks, cfg.Out, func(r *rank) error {
				from := r.job.resume
				if names, ok := from.Differing(r.comm.Rank(), r.Pieces()); ok != (ranks == 2) || names != nil || !from.Sealed() {
					return fmt.Errorf("of %d ranks: comparable %v, differing %q, sealed %v", ranks, ok, names, from.Sealed())
				}
				if ranks != 2 {
					return nil
				}
				name := vectorName(r, 4)
				flip(rand.New(rand.NewPCG(1, 2)), stateOf(r, 4)) // while it was read
				r.Optim.Unseal()
				r.stateGuard.Begin()
				if names, ok := from.Differing(r.comm.Rank(), r.Pieces()); !ok || !slices.Equal(names, []string{name}) {
					return fmt.Errorf("differing %q, want %s", names, name)
				}
				return nil
			})
		}
	}
}

// A run that resumes from a checkpoint without seals says so.
func TestResumeWithoutSeals(t *testing.T) {
	for period, want := range []int{1, 0} {
		cfg := guardedConfig(t, func(c *config.Config) { c.Steps, c.EvalSequences, c.SaveEvery, c.Guard.Memory = 1, 1, 0, period })
		train(t, cfg, 2, "")
		cfg.Steps = 2
		got := train(t, cfg, 2, cfg.Out)
		n := 0
		for _, note := range got.start.Notes {
			if strings.HasPrefix(note, "step-00000001 has no checksums of the state in training") {
				n++
			}
		}
		if n != want {
			t.Errorf("guard.memory %d: notes %q", period, got.start.Notes)
		}
	}
}

// The progress and the counters of the optimizer are restored from their copies before a save, or
// the copies from them. The position of the loader follows from the progress.
func TestProgressGuard(t *testing.T) {
	cfg := guardedConfig(t, func(c *config.Config) { c.Steps, c.EvalSequences, c.SaveEvery = 2, 1, 0 })
	train(t, cfg, 1, "")
	cfg.Out = filepath.Join(cfg.Out, "step-00000002")
	cfg.Steps = 3
	onRanks(t, cfg, 1, cfg.Out, func(r *rank) error {
		want := fmt.Sprint(r.Snapshot())
		for i, c := range []struct {
			change   func()
			restored bool
		}{
			{func() {}, false},
			{func() { r.Progress.Tokens ^= 1 << 30 }, true},
			{func() { r.Progress.Norms[1] *= 2 }, true},
			{func() { r.Progress.Skipped++ }, true},
			{func() { r.Optim.SetSteps(77) }, true},
			{func() { s := r.Data.Loader.State(); s.Pos++; r.Data.Loader.Restore(s) }, false},
			{func() { r.constants.Progress.Copies[0] ^= 1 }, false},
		} {
			c.change()
			restored, err := r.stateGuard.BeforeSave()
			if restored != c.restored || err != nil {
				t.Errorf("case %d: restored %v, %v", i, restored, err)
			}
			if got := fmt.Sprint(r.Snapshot()); got != want {
				t.Errorf("case %d: progress %s, want %s", i, got, want)
			}
		}
		r.Progress.Tokens++
		for i := range r.constants.Progress.Copies {
			r.constants.Progress.Copies[i] ^= 1
		}
		if _, err := r.stateGuard.BeforeSave(); err == nil {
			t.Error("the progress and its copy have changed, and no error says so")
		}
		return nil
	})
}
