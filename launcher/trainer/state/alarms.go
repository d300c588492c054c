package state

// Alarms: problems that the run survives. The leading rank reports them and writes them to
// OUT/events.jsonl.

import (
	"fmt"
	"time"

	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/events"
)

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
	a.Events.Add(spmd.Event{Time: time.Now(), Kind: spmd.Alarm, Rank: -1, Step: int64(alarm.Step), Reason: alarm.Text})
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
