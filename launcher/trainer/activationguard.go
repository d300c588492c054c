package trainer

// The guard of activations and gradients: memory in which they wait for later parts of the step
// must not change. The model seals this memory with checksums (moe.Model.Guard). If any rank finds
// a change, all ranks compute the step again from the same rows.

import (
	"fmt"
	"strings"

	"spmoe/collective"
	"spmoe/moe"
	"spmoe/tensor"
)

// activationGuard watches the activations and gradients of one rank.
type activationGuard struct {
	comm     *collective.Comm
	ex       *tensor.Exec
	models   []*moe.Model // the stages of this rank, or the whole model
	progress *progress
	alarms   *alarms
	period   int // steps between those that are guarded; 0: none is

	found []string // what else has changed, in the current attempt
	tries int      // attempts of the current step that found changes
}

// maxDamaged bounds the attempts of a step that find changed memory.
const maxDamaged = 3

// begin turns the models' seals on or off for the next step.
func (g *activationGuard) begin() {
	g.tries = 0
	for _, m := range g.models {
		m.Guard = due(g.period, g.progress.Step+1)
	}
}

// on reports whether the current step is guarded.
func (g *activationGuard) on() bool { return g.models[0].Guard }

// meet waits until all ranks have computed their gradients. A rank that compared its gradients and
// then waited for slower ones would not notice what changes meanwhile. It is collective.
func (g *activationGuard) meet() error {
	if !g.on() {
		return nil
	}
	return g.comm.Barrier()
}

// check compares the gradients of weights that several ranks have with what the passes of this step
// have left. After they are summed, it compares what other ranks have read of them, and the
// gradients of weights that only this rank has.
func (g *activationGuard) check(summed bool) {
	if !g.on() {
		return
	}
	for _, m := range g.models {
		if summed {
			m.CheckLoads()
		}
		for i, group := range m.Groups {
			switch {
			case summed:
				m.CheckGrad(g.ex, i)
			case group.Ranks != nil:
				m.CheckGrad(g.ex, i)
				group.SealSums(g.ex)
			}
		}
	}
}

// damage names what has changed of this rank in the current attempt; empty if nothing has.
func (g *activationGuard) damage() string {
	what := g.found
	for _, m := range g.models {
		if d := m.Damage(); d != 0 {
			what = append(what[:len(what):len(what)], m.DescribeDamage(d))
			break
		}
	}
	return strings.Join(what, ", ")
}

// damaged returns 1 if memory of this rank has changed in the current attempt, and 0 otherwise.
func (g *activationGuard) damaged() float64 {
	if g.damage() != "" {
		return 1
	}
	return 0
}

// judge reports whether the attempt must be repeated, because memory of some rank has changed. It
// fails if that happens too often. It is collective.
func (g *activationGuard) judge(a attempt) (again bool, err error) {
	if a.totals.damaged == 0 {
		return false, nil
	}
	all, err := gatherTexts(g.comm, g.damage())
	if err != nil {
		return false, fmt.Errorf("comparing damage: %w", err)
	}
	g.found = g.found[:0]
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
	g.alarms.raise("step %d: %s changed in memory: the step is computed again", g.progress.Step+1, list)
	return true, nil
}
