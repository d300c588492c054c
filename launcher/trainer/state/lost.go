package state

// What happens to a rank whose memory or results are wrong: another process replaces it and all
// ranks go back to a state that is intact, or the run ends.

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"spmoe/collective"
	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/events"
	"spmoe/tensor/alloc"
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

// GatherTexts returns the text of each rank; nil if all are empty. It is collective.
func GatherTexts(c *collective.Comm, mine string) ([]string, error) {
	lengths := make([]int64, c.Size())
	own := lengths[c.Rank():][:1]
	own[0] = int64(len(mine))
	if err := collective.AllGather(c, lengths, own); err != nil || slices.Max(lengths) == 0 {
		return nil, err
	}
	var counts []int
	total := 0
	for _, n := range lengths {
		counts, total = append(counts, int(n)), total+int(n)
	}
	flat := alloc.Make[byte](total)
	if err := collective.AllGatherV(c, flat, []byte(mine), counts); err != nil {
		return nil, err
	}
	var texts []string
	for _, n := range counts {
		texts = append(texts, string(flat[:n]))
		flat = flat[n:]
	}
	return texts, nil
}

// Alarms reports the alarms of one rank.
type Alarms struct {
	Lead     bool
	Progress *Progress
	Report   events.Reporter // nil in benchmarks
	Events   record.EventLog
}

// Raise reports an alarm that all ranks raise. Only the leading rank prints it.
func (a *Alarms) Raise(format string, args ...any) {
	if a.Lead {
		a.Add(events.Alarm{Step: a.Progress.Step, Text: fmt.Sprintf(format, args...)})
	}
}

// Add reports an alarm that only this rank raises.
func (a *Alarms) Add(alarm events.Alarm) {
	a.Events.Add(spmd.Event{
		Time:   time.Now(),
		Kind:   spmd.Alarm,
		Rank:   -1,
		Step:   int64(alarm.Step),
		Reason: alarm.Text,
	})
	if a.Report != nil {
		a.Report.Alarm(alarm)
	}
}

// Close completes the file. A failure to write it is an alarm, too.
func (a *Alarms) Close() {
	if err := a.Events.Close(); err != nil {
		a.Report.Alarm(events.Alarm{Step: a.Progress.Step, Text: err.Error()})
	}
}
