package trainer

// The guard of the optimizer's state. Master weights and moments have checksums, which the
// optimizer makes when it writes them and compares when it reads them again, a step later (see
// optim.Seal). A changed byte is restored from its checksum. What cannot be restored ends the run,
// or takes rank processes back to a state that is intact.

import (
	"fmt"
	"strings"

	"spmoe/collective"
	"spmoe/moe/optim"
)

// stateGuard reports what the optimizers of all ranks have found.
type stateGuard struct {
	on       bool
	comm     *collective.Comm
	optim    *optim.Optimizer
	progress *progress
	vault    *stateVault
	alarms   *alarms
}

// begin starts to guard the state as it is.
func (g *stateGuard) begin() {
	if g.on {
		g.optim.Seal()
	}
}

// digests returns the checksums of the newest state; nil if it is not guarded.
func (g *stateGuard) digests() []uint64 { return g.optim.Digests(nil) }

// compare is begin for a state that is stored with its digests.
func (g *stateGuard) compare(digests []uint64) error {
	g.begin()
	if !g.on || len(digests) == 0 {
		return nil
	}
	if e := g.damageOf(g.comm.Rank(), differing(g.digests(), digests)); e != nil {
		return fmt.Errorf("%w: resume from the last checkpoint (--resume)", e)
	}
	return nil
}

// afterUpdate reports what an update has found in the state that it read. It is collective.
func (g *stateGuard) afterUpdate() error { return g.agree(true) }

// beforeSave checks the newest state: a damaged one must not be saved. It is collective.
func (g *stateGuard) beforeSave() error {
	g.optim.Verify()
	return g.agree(false)
}

// agree shares what the ranks have found, raises alarms, and ends the run if a state is lost.
// updated says that an update has read it since, and has written over the state before it.
func (g *stateGuard) agree(updated bool) error {
	if !g.on {
		return nil
	}
	var mine [2]uint64
	mine[0], mine[1] = g.optim.Changes()
	all := make([]uint64, 2*g.comm.Size())
	if err := collective.AllGather(g.comm, all, mine[:]); err != nil {
		return fmt.Errorf("comparing checksums: %w", err)
	}
	lost := false
	for rank := range g.comm.Size() {
		if names := g.optim.Names(all[2*rank]); len(names) > 0 {
			g.alarms.raise("a byte of the optimizer's state of rank %d after step %d had changed in memory: %s: it was restored from its checksum",
				rank, g.progress.Step, strings.Join(names, ", "))
		}
		if e := g.damageOf(rank, all[2*rank+1]); e != nil {
			lost = true
			g.alarms.raise("%v", e)
		}
	}
	mistake := g.damageOf(g.comm.Rank(), mine[1])
	switch {
	case mistake != nil && g.vault.heals() && g.vault.forget(g.progress.Step, updated):
		panic(mistake)
	case mistake != nil:
		return fmt.Errorf("%w: resume from the last checkpoint (--resume)", mistake)
	case lost:
		return g.comm.Barrier() // the damaged rank never arrives: its failure ends the wait
	}
	return nil
}

// DamageError says that the optimizer's state has changed without an update.
type DamageError struct {
	Rank, Step int // the owner of the state, and the last step after which it was intact
	What       []string
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("the optimizer's state of rank %d after step %d has changed in memory: %s", e.Rank, e.Step, strings.Join(e.What, ", "))
}

// damageOf returns the lost vectors of a rank's state, given as a set, as an error; nil if there
// are none.
func (g *stateGuard) damageOf(rank int, set uint64) *DamageError {
	if set == 0 {
		return nil
	}
	return &DamageError{Rank: rank, Step: g.progress.Step, What: g.optim.Names(set)}
}
