package trainer

// What a run reports of its steps, and the state that it ends with.

import (
	"fmt"
	"slices"
	"testing"

	"spmoe/launcher/trainer/config"
)

// outcome is what does not depend on the time of day.
type outcome struct {
	steps  []string
	evals  []float64
	state  string // checksum of all tensors of the last checkpoint
	sample string
}

func outcomeOf(t *testing.T, cfg config.Config, ranks int) outcome {
	t.Helper()
	cfg.Out = t.TempDir()
	return outcomeFrom(t, cfg, train(t, cfg, ranks, ""))
}

// outcomeFrom is the outcome of a run that has ended.
func outcomeFrom(t *testing.T, cfg config.Config, got *reports) (o outcome) {
	t.Helper()
	for _, s := range got.steps {
		o.steps = append(o.steps, fmt.Sprintf("step %d: loss %x, MTP %x, balance %x, norm %x, imbalance %x, lr %x", s.Step, s.Loss, s.MTPLoss, s.Balance, s.GradNorm, s.Imbalance, s.LR))
	}
	for _, e := range got.evals {
		o.evals = append(o.evals, e.Loss)
	}
	o.state = sumOf(t, cfg)
	if len(got.done) > 0 {
		o.sample = got.done[0].Sample
	}
	return o
}

func (o outcome) equals(t *testing.T, what string, want outcome) {
	t.Helper()
	for i, s := range o.steps {
		if s != want.steps[i] {
			t.Errorf("%s: %s, want %s", what, s, want.steps[i])
		}
	}
	if !slices.Equal(o.evals, want.evals) {
		t.Errorf("%s: validation losses %v, want %v", what, o.evals, want.evals)
	}
	if o.sample != want.sample {
		t.Errorf("%s: sample %q, want %q", what, o.sample, want.sample)
	}
	if len(o.steps) != len(want.steps) || o.state != want.state {
		t.Errorf("%s: %d steps end in weights and moments of checksum %s; want %d and %s", what, len(o.steps), o.state, len(want.steps), want.state)
	}
}
