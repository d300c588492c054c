package trainer

// Alarms: what went wrong and the run survives. The rank that leads reports them and writes them to
// OUT/events.jsonl.

import (
	"fmt"
	"time"

	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
)

// alarms passes on the alarms of one rank.
type alarms struct {
	lead     bool
	progress *progress
	report   Reporter // nil in benchmarks
	events   record.EventLog
}

// raise reports, from the rank that leads, an alarm that all ranks raise.
func (a *alarms) raise(format string, args ...any) {
	if a.lead {
		a.add(Alarm{a.progress.Step, fmt.Sprintf(format, args...)})
	}
}

// add reports an alarm that this rank alone raises.
func (a *alarms) add(alarm Alarm) {
	a.events.Add(spmd.Event{Time: time.Now(), Kind: spmd.Alarm, Rank: -1, Step: int64(alarm.Step), Reason: alarm.Text})
	if a.report != nil {
		a.report.Alarm(alarm)
	}
}

// close completes the file. That it could not be written is an alarm too.
func (a *alarms) close() {
	if err := a.events.Close(); err != nil {
		a.report.Alarm(Alarm{a.progress.Step, err.Error()})
	}
}
