// Package observe has what only watches the steps of a run: the bytes that move, the times of kinds
// of work, the trace, the record, the meter of routing.
package observe

import (
	"fmt"
	"time"

	"spmoe/collective"
	"spmoe/launcher/trainer/events"
)

// An observer watches steps without changing them. Every rank calls its observers at the same steps
// in the same order, so After may be collective.
type observer interface {
	Before(step int)
	After(s FinishedStep) error
}

// Window is a range of steps, from the first to the last. The zero value is empty.
type Window struct{ First, Last int }

// FinishedStep is what observers receive about a step.
type FinishedStep struct {
	events.Step
	took  time.Duration // the time of the step, without spent
	Spent time.Duration // the time that observers spent inside it
	rows  []int32       // [sequences of this rank, seq+1]: the input of the step
}

// Observers are the observers of one rank.
type Observers struct {
	Usage    *UsageMeter
	Operands *OperandMeter
	Profiler *Profiler
	Tracer   *Tracer
	Recorder *Recorder
	Routing  *RoutingObserver // nil: none
	Rates    *Meter

	// list has the innermost observer first: Before is called from last to first, After from first
	// to last. So the trace of a step encloses the profiler's kinds of work.
	list []observer
}

// Order builds the list.
func (o *Observers) Order() {
	o.list = []observer{o.Usage, o.Profiler, o.Tracer, o.Operands}
	if o.Routing != nil {
		o.list = append(o.list, o.Routing)
	}
	o.list = append(o.list, o.Recorder)
}

// Before is called before each step.
func (o *Observers) Before(step int) {
	for i := len(o.list) - 1; i >= 0; i-- {
		o.list[i].Before(step)
	}
}

// After calls the observers after a step with its time and its input rows.
func (o *Observers) After(s events.Step, took time.Duration, rows []int32) error {
	spent := o.Operands.spent
	for _, each := range o.list {
		if err := each.After(FinishedStep{s, took - spent, spent, rows}); err != nil {
			return err
		}
	}
	return nil
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
	used, err := o.Usage.gather()
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		o.Recorder.usage(used)
		o.Recorder.times(p)
		if show != nil {
			show(p)
		}
	}
	return o.Routing.report(c, p)
}
