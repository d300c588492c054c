package guard

// The guard of activations and gradients: memory in which they wait for later parts of the step
// must not change. The model seals this memory with checksums (moe.Model.Guard). If any rank finds
// a change, all ranks compute the step again from the same rows.

import (
	"fmt"
	"strings"

	"spmoe/collective"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
	"spmoe/tensor"
)

// Activations watches the activations and gradients of one rank.
type Activations struct {
	Comm     *collective.Comm
	Ex       *tensor.Exec
	Models   []*moe.Model // the stages of this rank, or the whole model
	Progress *state.Progress
	Alarms   *state.Alarms
	Period   int // steps between those that are guarded; 0: none is

	Found []string // what else has changed, in the current attempt
	tries int      // attempts of the current step that found changes
}

// maxDamaged bounds the attempts of a step that find changed memory.
const maxDamaged = 3

// Begin turns the models' seals on or off for the next step.
func (g *Activations) Begin() {
	g.tries = 0
	for _, m := range g.Models {
		m.Guard = config.Due(g.Period, g.Progress.Step+1)
	}
}

// on reports whether the current step is guarded.
func (g *Activations) on() bool { return g.Models[0].Guard }

// Meet waits until all ranks have computed their gradients. A rank that compared its gradients and
// then waited for slower ones would not notice what changes meanwhile. It is collective.
func (g *Activations) Meet() error {
	if !g.on() {
		return nil
	}
	return g.Comm.Barrier()
}

// Check compares the gradients of weights that several ranks have with what the passes of this step
// have left. After they are summed, it compares what other ranks have read of them, and the
// gradients of weights that only this rank has.
func (g *Activations) Check(summed bool) {
	if !g.on() {
		return
	}
	for _, m := range g.Models {
		if summed {
			m.CheckLoads()
		}
		for i, group := range m.Groups {
			switch {
			case summed:
				m.CheckGrad(g.Ex, i)
			case group.Ranks != nil:
				m.CheckGrad(g.Ex, i)
				group.SealSums(g.Ex)
			}
		}
	}
}

// Damage names what has changed of this rank in the current attempt; empty if nothing has.
func (g *Activations) Damage() string {
	what := g.Found
	for _, m := range g.Models {
		if d := m.Damage(); d != 0 {
			what = append(what[:len(what):len(what)], m.DescribeDamage(d))
			break
		}
	}
	return strings.Join(what, ", ")
}

// Damaged returns 1 if memory of this rank has changed in the current attempt, and 0 otherwise.
func (g *Activations) Damaged() float64 {
	if g.Damage() != "" {
		return 1
	}
	return 0
}

// Judge reports whether the attempt must be repeated, because memory of some rank has changed. It
// fails if that happens too often. It is collective.
func (g *Activations) Judge(a Attempt) (again bool, err error) {
	if a.Totals.Damaged == 0 {
		return false, nil
	}
	all, err := state.GatherTexts(g.Comm, g.Damage())
	if err != nil {
		return false, fmt.Errorf("comparing damage: %w", err)
	}
	g.Found = g.Found[:0]
	var what []string
	for rank, d := range all {
		if d != "" {
			what = append(what, fmt.Sprintf("%s of rank %d", d, rank))
		}
	}
	list := strings.Join(what, "; ")
	if g.tries++; g.tries > maxDamaged {
		return false, fmt.Errorf("%s changed in memory, as in %d attempts before: this machine's memory is not reliable", list, maxDamaged)
	}
	g.Alarms.Raise("step %d: %s changed in memory: the step is computed again", g.Progress.Step+1, list)
	return true, nil
}
