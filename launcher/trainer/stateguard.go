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
	on        bool
	comm      *collective.Comm
	optim     *optim.Optimizer
	constants *constantGuard
	progress  *progress
	vault     *stateVault
	alarms    *alarms
	read      []string // vectors that had changed when they were read, and were read again
}

// begin starts to guard the state as it is, unless it is guarded.
func (g *stateGuard) begin() {
	if g.on && !g.optim.Sealed() {
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
	if lost := g.optim.Differing(digests); len(lost) > 0 {
		return fmt.Errorf("%w: resume from the last checkpoint (--resume)", g.damage(g.comm.Rank(), strings.Join(lost, ", ")))
	}
	return nil
}

// afterUpdate reports what an update has found in the state that it read. It is collective.
func (g *stateGuard) afterUpdate() error {
	_, err := g.agree(true)
	return err
}

// beforeSave checks the newest state: a damaged one must not be saved. progress says that the
// progress of a rank was restored. It is collective.
func (g *stateGuard) beforeSave() (progress bool, err error) {
	g.optim.Verify()
	return g.agree(false)
}

// agree shares what the ranks have found, raises alarms, and ends the run if a state is lost.
// updated says that an update has read it since, and has written over the state before it. progress
// says that the progress of a rank was restored.
func (g *stateGuard) agree(updated bool) (progress bool, err error) {
	if !g.on {
		return false, nil
	}
	repaired, lost := g.optim.Changes()
	repaired, g.read = append(g.read, repaired...), nil
	check := g.constants.between
	if updated {
		check = g.constants.update.check
	}
	switch changed, err := check(); {
	case err != nil:
		return false, err
	case updated:
		lost = append(lost, changed...)
	case len(changed) > 0:
		repaired = append(repaired, progressName)
	}
	all, err := gatherTexts(g.comm, stateFinding(repaired, lost))
	if err != nil {
		return false, fmt.Errorf("comparing checksums: %w", err)
	}
	var mistakes []*DamageError
	for rank, finding := range all {
		repaired, lost, _ := strings.Cut(finding, "\n")
		repaired, counts := strings.CutSuffix(repaired, progressName)
		if progress = progress || counts; counts {
			g.alarms.raise("%s of rank %d after step %d had changed in memory: it was restored", progressName, rank, g.progress.Step)
		}
		if repaired = strings.TrimSuffix(repaired, ", "); repaired != "" {
			g.alarms.raise("a byte of the optimizer's state of rank %d after step %d had changed in memory: %s: it was restored from its checksum",
				rank, g.progress.Step, repaired)
		}
		if lost != "" {
			mistakes = append(mistakes, g.damage(rank, lost))
			g.alarms.raise("%v", mistakes[len(mistakes)-1])
		}
	}
	return progress, g.end(mistakes, updated)
}

// progressName is what alarms call the trainer's own state.
const progressName = "the trainer's progress"

// stateFinding is what a rank has found, as a text for other ranks.
func stateFinding(repaired, lost []string) string {
	if len(repaired)+len(lost) == 0 {
		return ""
	}
	return strings.Join(repaired, ", ") + "\n" + strings.Join(lost, ", ")
}

// end ends the run, or this process, if the state of any rank is lost.
func (g *stateGuard) end(mistakes []*DamageError, updated bool) error {
	for _, mistake := range mistakes {
		switch {
		case mistake.Rank != g.comm.Rank():
		case g.vault.heals() && g.vault.forget(g.progress.Step, updated):
			panic(mistake)
		default:
			return fmt.Errorf("%w: resume from the last checkpoint (--resume)", mistake)
		}
	}
	if len(mistakes) > 0 {
		return g.comm.Barrier() // the damaged rank never arrives: its failure ends the wait
	}
	return nil
}

// DamageError says that the optimizer's state has changed without an update.
type DamageError struct {
	Rank, Step int    // the owner of the state, and the last step after which it was intact
	What       string // its lost vectors
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("the optimizer's state of rank %d after step %d has changed in memory: %s", e.Rank, e.Step, e.What)
}

// damage returns the error for lost vectors of a rank's newest state.
func (g *stateGuard) damage(rank int, what string) *DamageError {
	return &DamageError{Rank: rank, Step: g.progress.Step, What: what}
}
