package trainer

// The guards of a rank, and what a step calls of them, in this order.

import (
	"spmoe/launcher/trainer/guard"
	"spmoe/launcher/trainer/state"
)

// guards holds the guards of a rank.
type guards struct {
	state     *guard.State
	gradients *guard.Gradients
}

// newGuards creates the guards of a rank that has a model, an optimizer and data.
func newGuards(r *rank) guards {
	cfg := &r.job.cfg.Guard
	lost := state.Lost{Comm: r.comm, Progress: &r.Progress, Vault: r.vault, Alarms: r.alarms}
	return guards{
		state:     &guard.State{Lost: lost, Every: cfg.Every, Ex: r.ex, State: r.TrainState},
		gradients: &guard.Gradients{Lost: lost, Guard: *cfg, Ex: r.ex, Optim: r.Optim},
	}
}

// judge decides what to do with the gradients of an attempt. It is collective.
func (g *guards) judge(a guard.Attempt) (guard.Verdict, error) {
	if a.Totals.Damaged > 0 {
		if again, err := g.state.Judge(); again || err != nil {
			return guard.ComputeAgain, err
		}
	}
	return g.gradients.Judge(a)
}
