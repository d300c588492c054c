package trainer

// How a run that is asked to stop says when it will: the request comes while a step is computed.

import (
	"context"
	"sync"
	"syscall"
	"time"

	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/events"
)

// serialReporter passes on events one at a time. The steps of a run and a request to stop it are
// reported by different goroutines.
type serialReporter struct {
	to    events.Reporter
	mu    sync.Mutex
	saved time.Duration // how long the last save took
}

// newSerialReporter wraps a reporter. Benchmarks have none.
func newSerialReporter(to events.Reporter) events.Reporter {
	if to == nil {
		return nil
	}
	return &serialReporter{to: to}
}

// Start implements [Watcher], as the other methods do.
func (r *serialReporter) Start(e events.Start) { r.mu.Lock(); defer r.mu.Unlock(); r.to.Start(e) }

// Step passes on a step.
func (r *serialReporter) Step(e events.Step) { r.mu.Lock(); defer r.mu.Unlock(); r.to.Step(e) }

// Eval passes on an evaluation.
func (r *serialReporter) Eval(e events.Eval) { r.mu.Lock(); defer r.mu.Unlock(); r.to.Eval(e) }

// Alarm passes on an alarm.
func (r *serialReporter) Sample(e events.Sample) { r.mu.Lock(); defer r.mu.Unlock(); r.to.Sample(e) }

func (r *serialReporter) Alarm(e events.Alarm) { r.mu.Lock(); defer r.mu.Unlock(); r.to.Alarm(e) }

// Profile passes on a profile.
func (r *serialReporter) Profile(e events.Profile) { r.mu.Lock(); defer r.mu.Unlock(); r.to.Profile(e) }

// Done passes on the end.
func (r *serialReporter) Done(e events.Done) { r.mu.Lock(); defer r.mu.Unlock(); r.to.Done(e) }

// Saved passes on a checkpoint.
func (r *serialReporter) Saved(e events.Saved) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.saved = e.Lag
	r.to.Saved(e)
}

// Stopping adds the time of the last save, and passes on the end.
func (r *serialReporter) Stopping(e events.Stopping) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.About > 0 {
		e.About += r.saved
	}
	r.to.Stopping(e)
}

// Wants reports whether the wrapped reporter looks at steps between the log lines now.
func (r *serialReporter) Wants() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok := r.to.(events.Watcher)
	return ok && w.Wants()
}

// Between passes on a step between the log lines.
func (r *serialReporter) Between(e events.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to.(events.Watcher).Between(e)
}

// announceStop reports at once that the run was asked to stop, on the process of rank 0. The caller
// must call end when the run ends.
func (j *Job) announceStop(ctx context.Context, world spmd.World) (end func()) {
	reported := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(reported)
		if !world.Leads() || j.report == nil {
			return
		}
		s := events.Stopping{Step: j.progress.Step + 1}
		if m := j.meter.Load(); m != nil {
			s = m.Stopping(j.progress.Step, j.cfg.Steps)
		}
		if spmd.SignalOf(ctx) == syscall.SIGINT {
			s.Again = "Ctrl-C"
		}
		j.report.Stopping(s)
	})
	return func() {
		if !stop() {
			<-reported
		}
	}
}
