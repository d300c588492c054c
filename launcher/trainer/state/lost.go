package state

// What happens to a rank whose memory or results are wrong: another process replaces it and all
// ranks go back to a state that is intact, or the run ends.

import (
	"fmt"
	"strings"

	"spmoe/collective"
)

// Lost ends ranks.
type Lost struct {
	Comm     *collective.Comm
	Progress *Progress
	Vault    *Vault
	Alarms   *Alarms
}

// NewestCheckpoint is where ranks go back to if no state in the vaults is intact.
const NewestCheckpoint = -1

// End ends the run, or this rank's process, if memory of any rank has changed. back is the newest
// step after which the state in the vaults is intact. It is collective.
func (l *Lost) End(changed []string, back int) error {
	what := ""
	if len(changed) > 0 {
		what = strings.Join(changed, ", ") + " changed in memory"
	}
	found, err := GatherTexts(l.Comm, what)
	if err != nil || found == nil {
		return err
	}
	return l.EndRanks(found, back)
}

// EndRanks is End for what all ranks have found.
func (l *Lost) EndRanks(found []string, back int) error {
	for rank, what := range found {
		if what == "" {
			continue
		}
		err := fmt.Errorf("rank %d after step %d: %s", rank, l.Progress.Step, what)
		l.Alarms.Raise("%v", err)
		if rank == l.Comm.Rank() && l.Vault.Heals() {
			l.Vault.Return(back)
			panic(err)
		} else if rank == l.Comm.Rank() {
			return fmt.Errorf("%w: its machine is not reliable: resume from the last checkpoint (--resume)", err)
		}
	}
	return l.Comm.Barrier() // which the ranks that have found something never reach
}
