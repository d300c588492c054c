package trainer

// What only observes the steps of a run: the bytes that move, the times of kinds of work, the
// trace, slow ranks, the record, the meter of routing.

import (
	"fmt"
	"time"

	"spmoe/collective"
)

// An observer watches steps without changing them. Every rank calls its observers at the same steps
// in the same order, so After may be collective.
type observer interface {
	Before(step int)
	After(s finishedStep) error
}

// finishedStep is what observers receive about a step.
type finishedStep struct {
	Step
	took  time.Duration // the time of the step, without spent
	spent time.Duration // the time that observers spent inside it
	rows  []int32       // [sequences of this rank, seq+1]: the input of the step
}

// observers are the observers of one rank.
type observers struct {
	usage      *usageMeter
	operands   *operandMeter
	profiler   *profiler
	tracer     *tracer
	stragglers *stragglers
	recorder   *recorder
	routing    *routingObserver // nil: none
	rates      *meter

	// list has the innermost observer first: Before is called from last to first, After from first
	// to last. So the trace of a step encloses the profiler's kinds of work.
	list []observer
}

// order builds the list.
func (o *observers) order() {
	o.list = []observer{o.usage, o.profiler, o.tracer, o.operands}
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

// after calls the observers after a step with its time and its input rows.
func (o *observers) after(s Step, took time.Duration, rows []int32) error {
	spent := o.operands.spent
	for _, each := range o.list {
		if err := each.After(finishedStep{s, took - spent, spent, rows}); err != nil {
			return err
		}
	}
	return nil
}

// report ends the observations of the whole run. show prints the profile; nil: it is not wanted. It
// is collective.
func (o *observers) report(show func(Profile), c *collective.Comm) error {
	if err := o.tracer.end(); err != nil {
		return err
	}
	p, err := o.profiler.gather(c)
	if err != nil {
		return fmt.Errorf("gathering the profile: %w", err)
	}
	used, err := o.usage.gather()
	if err != nil {
		return err
	}
	if c.Rank() == 0 {
		o.recorder.usage(used)
		o.recorder.times(p)
		if show != nil {
			show(p)
		}
	}
	return o.routing.report(c, p)
}
