package guard

// The guard of the optimizer's state. Master weights and moments have checksums, which the
// optimizer makes when it writes them and compares when it reads them again, a step later (see
// optim.Seal). A changed byte is restored from its checksum. What cannot be restored ends the run,
// or takes rank processes back to a state that is intact.

import (
	"fmt"
	"strings"

	"spmoe/collective"
	"spmoe/launcher/trainer/state"
	"spmoe/moe/optim"
)

// OptimizerState reports what the optimizers of all ranks have found.
type OptimizerState struct {
	On        bool
	Comm      *collective.Comm
	Optim     *optim.Optimizer
	Constants *ConstantGuard
	Progress  *state.Progress
	Vault     *state.Vault
	Alarms    *state.Alarms
	Read      []string // vectors that had changed when they were read, and were read again
}

// Begin starts to guard the state as it is, unless it is guarded.
func (g *OptimizerState) Begin() {
	if g.On && !g.Optim.Sealed() {
		g.Optim.Seal()
	}
}

// Digests returns the checksums of the newest state; nil if it is not guarded.
func (g *OptimizerState) Digests() []uint64 { return g.Optim.Digests(nil) }

// Compare is begin for a state that is stored with its digests.
func (g *OptimizerState) Compare(digests []uint64) error {
	g.Begin()
	if !g.On || len(digests) == 0 {
		return nil
	}
	if lost := g.Optim.Differing(digests); len(lost) > 0 {
		return fmt.Errorf("%w: resume from the last checkpoint (--resume)", g.damage(g.Comm.Rank(), strings.Join(lost, ", ")))
	}
	return nil
}

// AfterUpdate reports what an update has found in the state that it read. It is collective.
func (g *OptimizerState) AfterUpdate() error {
	_, err := g.agree(true)
	return err
}

// BeforeSave checks the newest state: a damaged one must not be saved. progress says that the
// progress of a rank was restored. It is collective.
func (g *OptimizerState) BeforeSave() (progress bool, err error) {
	g.Optim.Verify()
	return g.agree(false)
}

// agree shares what the ranks have found, raises alarms, and ends the run if a state is lost.
// updated says that an update has read it since, and has written over the state before it. progress
// says that the progress of a rank was restored.
func (g *OptimizerState) agree(updated bool) (progress bool, err error) {
	if !g.On {
		return false, nil
	}
	repaired, lost := g.Optim.Changes()
	repaired, g.Read = append(g.Read, repaired...), nil
	check := g.Constants.between
	if updated {
		check = g.Constants.Update.Check
	}
	switch changed, err := check(); {
	case err != nil:
		return false, err
	case updated:
		lost = append(lost, changed...)
	case len(changed) > 0:
		repaired = append(repaired, progressName)
	}
	all, err := state.GatherTexts(g.Comm, stateFinding(repaired, lost))
	if err != nil {
		return false, fmt.Errorf("comparing checksums: %w", err)
	}
	var mistakes []*DamageError
	for rank, finding := range all {
		repaired, lost, _ := strings.Cut(finding, "\n")
		repaired, counts := strings.CutSuffix(repaired, progressName)
		if progress = progress || counts; counts {
			g.Alarms.Raise("%s of rank %d after step %d had changed in memory: it was restored", progressName, rank, g.Progress.Step)
		}
		if repaired = strings.TrimSuffix(repaired, ", "); repaired != "" {
			g.Alarms.Raise("a byte of the optimizer's state of rank %d after step %d had changed in memory: %s: it was restored from its checksum",
				rank, g.Progress.Step, repaired)
		}
		if lost != "" {
			mistakes = append(mistakes, g.damage(rank, lost))
			g.Alarms.Raise("%v", mistakes[len(mistakes)-1])
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
func (g *OptimizerState) end(mistakes []*DamageError, updated bool) error {
	for _, mistake := range mistakes {
		switch {
		case mistake.Rank != g.Comm.Rank():
		case g.Vault.Heals() && g.Vault.Forget(g.Progress.Step, updated):
			panic(mistake)
		default:
			return fmt.Errorf("%w: resume from the last checkpoint (--resume)", mistake)
		}
	}
	if len(mistakes) > 0 {
		return g.Comm.Barrier() // the damaged rank never arrives: its failure ends the wait
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
func (g *OptimizerState) damage(rank int, what string) *DamageError {
	return &DamageError{Rank: rank, Step: g.Progress.Step, What: what}
}
