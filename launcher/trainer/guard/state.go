// Package guard keeps damage and faults out of the weights. What lasts, such as weights and
// moments, has checksums. What passes is computed twice in some steps.
package guard

// The guard of memory that lasts. The update compares master weights and moments as it reads them:
// see optim.Summed. Before that, working weights are compared, and every few steps constants.

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/state"
	"spmoe/moe/optim"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// State compares the memory of one rank with its checksums.
type State struct {
	state.Lost
	Every  int // steps between comparisons of constants; 0: nothing is compared
	Ex     *tensor.Exec
	State  *state.TrainState
	Memory state.Memory

	repairs int        // of working weights, in the current step
	words   tensor.Sum // of the memory that sum reads
}

// maxRepairs bounds the repairs of working weights within a step.
const maxRepairs = 3

func (g *State) sum(x tensor.Tensor) uint32 {
	defer g.Ex.Enter(g.Ex.Enter(profile.Guards))
	g.words.Store(0)
	tensor.Words(g.Ex, &g.words, x)
	return g.words.Load()
}

// take takes the checksums of memory as it is.
func (g *State) take(all iter.Seq[optim.Summed]) {
	for s := range all {
		*s.Sum = g.sum(s.Data)
	}
}

// changed names the memory that differs from its checksums.
func (g *State) changed(all iter.Seq[optim.Summed]) (names []string) {
	for s := range all {
		if g.sum(s.Data) != *s.Sum {
			names = append(names, s.Name)
		}
	}
	return names
}

func (g *State) changedConstants() []string { return g.changed(slices.Values(g.Memory.Constants)) }

func (g *State) changedWeights() []string {
	return append(g.changed(g.State.Optim.Published), g.changed(slices.Values(g.Memory.Quantized))...)
}

// Begin takes the checksums of a rank's memory. known are those of the state in its vault; nil: it
// is not from there. It is collective.
func (g *State) Begin(known []uint32) (err error) {
	if g.Every == 0 {
		return g.Comm.Barrier()
	}
	g.Memory = state.NewMemory(g.State)
	g.take(slices.Values(g.Memory.Constants))
	g.take(g.State.Optim.Summed)
	g.take(slices.Values(g.Memory.Quantized)) // before any pass of any rank: End meets
	var changed []string
	if known != nil && !slices.Equal(g.Sums(), known) {
		changed = []string{"the state in the vault"}
	}
	return g.End(changed, state.NewestCheckpoint)
}

// Sums returns the checksums of the state and of the selection biases.
func (g *State) Sums() (all []uint32) {
	if g.Every == 0 {
		return nil
	}
	for s := range g.State.Optim.Summed {
		all = append(all, *s.Sum)
	}
	for _, s := range g.Memory.Biases {
		all = append(all, *s.Sum)
	}
	return all
}

// Compare reports whether working weights of this rank, or constants if they are due, have changed.
// All ranks must have computed their gradients.
func (g *State) Compare() bool {
	if g.Every == 0 {
		return false
	}
	due := config.Due(g.Every, g.Progress.Step+1)
	return len(g.changedWeights()) > 0 || due && len(g.changedConstants()) > 0
}

// Judge acts on what Compare has found on some rank. Constants that have changed end the run or a
// process: the state of the last step is intact if that step compared them. Working weights are
// published again, and again says that the step must be computed again. It is collective.
func (g *State) Judge() (again bool, err error) {
	intact := state.NewestCheckpoint
	if g.Every == 1 {
		intact = g.Progress.Step
	}
	if err := g.End(g.changedConstants(), intact); err != nil {
		return false, err
	}
	found, err := state.GatherTexts(g.Comm, strings.Join(g.changedWeights(), ", "))
	if err != nil || found == nil {
		return false, err
	}
	for rank, names := range found {
		if names != "" {
			g.Alarms.Raise("step %d: %s of rank %d changed in memory: they are published again", g.Progress.Step+1, names, rank)
		}
	}
	if g.repairs++; g.repairs > maxRepairs {
		return false, fmt.Errorf("working weights changed in memory %d times in one step: this machine's memory is not reliable", g.repairs)
	}
	if err := g.State.Optim.Publish(); err != nil {
		return false, err
	}
	g.take(slices.Values(g.Memory.Quantized))
	return true, g.Comm.Barrier()
}

// AfterUpdate ends the run, or a process, if the update has read state that had changed: it has
// overwritten the state before that one. Otherwise it takes the checksums of quantized weights. It
// is collective.
func (g *State) AfterUpdate() error {
	if g.repairs = 0; g.Every == 0 {
		return nil
	}
	g.take(slices.Values(g.Memory.Quantized))
	return g.End(g.State.Optim.Changed(), state.NewestCheckpoint)
}

// Balanced takes the checksums of the selection biases, which a step has moved.
func (g *State) Balanced() { g.take(slices.Values(g.Memory.Biases)) }

// BeforeSave compares everything: what has changed must not be saved. It is collective.
func (g *State) BeforeSave() error {
	if g.Every == 0 {
		return nil
	}
	if err := g.End(g.changed(g.State.Optim.Summed), g.Progress.Step-1); err != nil {
		return err
	}
	_, err := g.Judge()
	return err
}
