// Package observe has what only watches the steps of a run: the times of kinds of work, the errors
// of quantization and the record.
package observe

import (
	"fmt"
	"time"

	"spmoe/collective"
	"spmoe/launcher/trainer/events"
	"spmoe/moe"
	"spmoe/moe/pipe"
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

// Links are the communicators of a rank, each once. The first one has all ranks.
type Links []*collective.Comm

// NewLinks lists the communicators of a rank: all ranks, its mesh and its pipeline, which may be
// nil.
func NewLinks(all *collective.Comm, m moe.Mesh, p *pipe.Rank) Links {
	list, meshes := Links{all}, []moe.Mesh{m}
	if p != nil {
		meshes = p.Meshes
	}
	for _, m := range meshes {
		for c := range m.Comms {
			if c != all {
				list = append(list, c)
			}
		}
	}
	if p != nil {
		list = append(list, p.Line)
	}
	return list
}

// Met returns how long this rank has waited for others, without messages.
func (l Links) Met() (sum time.Duration) {
	for _, c := range l {
		for kind, s := range c.Stats() {
			if collective.Kind(kind) != collective.KindMessage {
				sum += s.Wait
			}
		}
	}
	return sum
}
