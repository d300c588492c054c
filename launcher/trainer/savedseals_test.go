package trainer

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A rank that resumes compares the seals of what it has read with those that were saved, if it has
// the pieces that it would save.
func TestSealsAfterLoad(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.EMA, c.Optimizer.Moments = 0.9, "bf16" },
		func(c *Config) { c.Optimizer.Name, c.Precision = "muon", "mxfp8" },
	} {
		cfg := guardedConfig(t, func(c *Config) {
			c.Steps, c.EvalSequences, c.SaveEvery = 2, 1, 0
			change(c)
		})
		train(t, cfg, 2, "")
		cfg.Steps = 3
		for _, ranks := range []int{1, 2, 4} {
			onRanks(t, cfg, ranks, cfg.Out, func(r *rank) error {
				from := r.job.resume
				if names, ok := from.Differing(r.comm.Rank(), r.pieces()); ok != (ranks == 2) || names != nil || !from.Sealed() {
					return fmt.Errorf("of %d ranks: comparable %v, differing %q, sealed %v", ranks, ok, names, from.Sealed())
				}
				if ranks != 2 {
					return nil
				}
				name := vectorName(r, 4)
				flip(rand.New(rand.NewPCG(1, 2)), stateOf(r, 4)) // while it was read
				r.optim.Unseal()
				r.stateGuard.begin()
				if names, ok := from.Differing(r.comm.Rank(), r.pieces()); !ok || !slices.Equal(names, []string{name}) {
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
		cfg := guardedConfig(t, func(c *Config) { c.Steps, c.EvalSequences, c.SaveEvery, c.Guard.Memory = 1, 1, 0, period })
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

// The progress, and the positions of optimizer and loader, are restored from their copies, or the
// copies from them.
func TestProgressGuard(t *testing.T) {
	cfg := guardedConfig(t, func(c *Config) { c.Steps, c.EvalSequences, c.SaveEvery = 2, 1, 0 })
	train(t, cfg, 1, "")
	cfg.Out = filepath.Join(cfg.Out, "step-00000002")
	cfg.Steps = 3
	onRanks(t, cfg, 1, cfg.Out, func(r *rank) error {
		want := fmt.Sprint(r.snapshot())
		for i, c := range []struct {
			change         func()
			between        bool
			restored, lost bool
		}{
			{func() {}, true, false, false},
			{func() { r.progress.Tokens ^= 1 << 30 }, true, true, false},
			{func() { r.progress.Norms[1] *= 2 }, false, true, false},
			{func() { r.progress.Skipped++ }, false, true, false},
			{func() { r.optim.SetSteps(77) }, true, true, false},
			{func() { s := r.data.loader.State(); s.Pos++; r.data.loader.Restore(s) }, true, true, false},
			{func() { r.sealed.progress.text[9] ^= 1 }, true, false, false},
			{func() { r.sealed.positions.seal ^= 1; r.optim.SetSteps(5) }, true, true, false},
			{func() { r.sealed.positions.text[3]++; r.sealed.positions.text[4]++; r.optim.SetSteps(5) }, true, false, true},
		} {
			c.change()
			restored, lost := r.checkProgress(c.between)
			if restored != c.restored || lost != c.lost {
				t.Errorf("case %d: restored %v, lost %v", i, restored, lost)
			}
			if got := fmt.Sprint(r.snapshot()); !lost && got != want {
				t.Errorf("case %d: progress %s, want %s", i, got, want)
			}
		}
		return nil
	})
}
