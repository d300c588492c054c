package trainer

// What only watches the steps of a run: the times of families of work, the trace, slow ranks, the
// record, the meter of routing.

import (
	"fmt"
	"time"

	"spmoe/collective"
)

// An observer watches steps and changes nothing in them. Every rank calls its observers at the same
// steps in the same order: After may be collective.
type observer interface {
	Before(step int)
	After(s finishedStep) error
}

// finishedStep is what observers learn of a step.
type finishedStep struct {
	Step
	took  time.Duration // the step, without spent
	spent time.Duration // what an observer has spent inside it
	rows  []int32       // [sequences of this rank, seq+1] that it was computed from
}

// observers are those of one rank.
type observers struct {
	operands   *operandMeter
	profiler   *profiler
	tracer     *tracer
	stragglers *stragglers
	recorder   *recorder
	routing    *routingObserver // nil: there is none
	rates      *meter

	// list has the innermost first: Before is called from the last to the first, After from the
	// first to the last. So the trace of a step encloses the profiler's families.
	list []observer
}

// order makes the list.
func (o *observers) order() {
	o.list = []observer{o.profiler, o.tracer, o.operands}
	if o.routing != nil {
		o.list = append(o.list, o.routing)
	}
	o.list = append(o.list, o.stragglers, o.recorder)
}

func (o *observers) before(step int) {
	for i := len(o.list) - 1; i >= 0; i-- {
		o.list[i].Before(step)
	}
}

// after shows a step, what it took, and the rows that it was computed from.
func (o *observers) after(s Step, took time.Duration, rows []int32) error {
	spent := o.operands.spent
	for _, each := range o.list {
		if err := each.After(finishedStep{s, took - spent, spent, rows}); err != nil {
			return err
		}
	}
	return nil
}

// report ends what is watched over the whole run, and reports it. It is collective.
func (o *observers) report(j *Job, c *collective.Comm) error {
	if err := o.tracer.end(); err != nil {
		return err
	}
	p, err := o.profiler.gather(c)
	if err != nil {
		return fmt.Errorf("gathering the profile: %w", err)
	}
	if c.Rank() == 0 {
		o.recorder.times(p)
		if j.Profile {
			j.report.Profile(p)
		}
	}
	return o.routing.report(c, p)
}
