// Package observe has what only watches the steps of a run: the bytes that move, the times of kinds
// of work, the trace and the record.
package observe

import (
	"fmt"
	"time"

	"spmoe/collective"
	"spmoe/launcher/trainer/events"
)

// Window is a range of steps, from the first to the last. The zero value is empty.
type Window struct{ First, Last int }

// Observers are the observers of one rank.
type Observers struct {
	Operands *OperandMeter
	Profiler *Profiler
	Tracer   *Tracer
	Recorder *Recorder
	Rates    *Meter
}

// Before is called before each step. So the trace of a step encloses the profiler's kinds of work.
func (o *Observers) Before(step int) {
	o.Operands.before(step)
	o.Tracer.before(step)
	o.Profiler.Timer.Start()
}

// After is called after a step with its time and its input rows. It is collective.
func (o *Observers) After(s events.Step, took time.Duration, rows []int32) error {
	spent := o.Operands.spent
	o.Profiler.After(spent)
	if err := o.Tracer.after(s.Step, rows); err != nil {
		return err
	}
	o.Operands.observe(false)
	return o.Recorder.after(s, took-spent, spent)
}

// Report ends the observations of the whole run. show prints the profile; nil: it is not wanted. It
// is collective.
func (o *Observers) Report(show func(events.Profile), c *collective.Comm) error {
	if err := o.Tracer.end(); err != nil {
		return err
	}
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
