package trainer

// Alarms: problems that the run survives. The leading rank reports them and writes them to
// OUT/events.jsonl.

import (
	"fmt"
	"time"

	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
)

// alarms reports the alarms of one rank.
type alarms struct {
	lead     bool
	progress *progress
	report   Reporter // nil in benchmarks
	events   record.EventLog
}

// raise reports an alarm that all ranks raise. Only the leading rank prints it.
func (a *alarms) raise(format string, args ...any) {
	if a.lead {
		a.add(Alarm{Step: a.progress.Step, Text: fmt.Sprintf(format, args...)})
	}
}

// add reports an alarm that only this rank raises.
func (a *alarms) add(alarm Alarm) {
	a.events.Add(spmd.Event{Time: time.Now(), Kind: spmd.Alarm, Rank: -1, Step: int64(alarm.Step), Reason: alarm.Text})
	if a.report != nil {
		a.report.Alarm(alarm)
	}
}

// close completes the file. A failure to write it is an alarm, too.
func (a *alarms) close() {
	if err := a.events.Close(); err != nil {
		a.report.Alarm(Alarm{Step: a.progress.Step, Text: err.Error()})
	}
}
