// Package observe has what only watches the steps of a run: the times of kinds of work, the errors
// of quantization and the record.
package observe

import (
	"fmt"
	"time"

	"spmoe/collective"
	"spmoe/launcher/trainer/events"
)

// Observers are the observers of one rank.
type Observers struct {
	Operands *OperandMeter
	Profiler *Profiler
	Recorder *Recorder
	Rates    *Meter
}

// Before is called before each step.
func (o *Observers) Before(step int) {
	o.Operands.before(step)
	o.Profiler.Timer.Start()
}

// After is called after a step with its time. It is collective.
func (o *Observers) After(s events.Step, took time.Duration) error {
	spent := o.Operands.spent
	o.Profiler.After(spent)
	o.Operands.observe(false)
	return o.Recorder.after(s, took-spent, spent)
}

// Report ends the observations of the whole run. show prints the profile; nil: it is not wanted. It
// is collective.
func (o *Observers) Report(show func(events.Profile), c *collective.Comm) error {
	p, err := o.Profiler.Gather(c)
	if err != nil {
		return fmt.Errorf("gathering the profile: %w", err)
	}
	if c.Rank() == 0 {
		o.Recorder.times(p)
		if show != nil {
			show(p)
		}
	}
	return nil
}
