package trainer

// The training loop: a rank's steps, and the work before, between and after them.

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"spmoe/launcher/record"
	"spmoe/launcher/spmd"
	"spmoe/launcher/trainer/events"
)

// run is the life of a rank from its first step to its last.
func (r *rank) run(ctx context.Context) (err error) {
	begin := time.Now()
	defer r.Data.Loader.Close()
	if err := r.watch.Recorder.Open(r.vault.Resumed); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, r.routes.close(), r.watch.Recorder.Close())
		r.alarms.Close()
	}()
	r.checkpoints.Prepare()
	defer func() { err = r.checkpoints.Close(err) }()
	if err := r.prologue(); err != nil {
		return err
	}
	var interrupted bool
	var tooMany error // too many steps were skipped
	steps := r.job.cfg.Steps
	r.watch.Rates.Start(r.Progress)
	for r.Progress.Step < steps {
		r.watch.Rates.Underway.Store(int64(r.Progress.Step + 1))
		step, stop, err := r.step(ctx)
		if err != nil {
			return err
		}
		interrupted, tooMany = stop, r.Progress.TooManySkips(r.job.cfg.Guard.Skips)
		last := r.Progress.Step == steps || interrupted || tooMany != nil
		if r.lead() {
			r.watch.Rates.Show(r.job.report, step, last)
		}
		if last {
			break
		}
		if err := r.betweenSteps(); err != nil {
			return err
		}
	}
	if r.checkpoints.Step != r.Progress.Step {
		err = r.checkpoints.SaveLast(ctx)
	}
	if err = cmp.Or(err, tooMany); err != nil {
		return err
	}
	return r.finish(begin, interrupted)
}

// prologue runs before the first step: an evaluation, or the work that a failed rank may have left
// undone, such as a sample.
func (r *rank) prologue() (err error) {
	e := r.evaluator
	e.step, r.checkpoints.Step = r.Progress.Step, r.Progress.Step
	switch {
	case r.job.resume == nil && !r.vault.Resumed, r.Progress.DataChange() != "":
		if e.loss, err = e.evaluate(); err != nil {
			return err
		}
		r.Progress.FirstHeldOut = record.Number(e.loss)
	case e.due() || r.Progress.Step == 0:
		// The run may have ended before this evaluation; then the record lacks it.
		if _, err := e.evaluate(); err != nil {
			return err
		}
	}
	if err := r.sampleIfDue(); err != nil {
		return err
	}
	if !r.vault.Resumed {
		return r.storeState()
	}
	return r.checkpoints.Repeat()
}

// betweenSteps evaluates, samples and saves when these are due.
func (r *rank) betweenSteps() (err error) {
	begin, e := time.Now(), r.evaluator
	if e.due() {
		if e.loss, err = e.evaluate(); err != nil {
			return err
		}
		e.step = r.Progress.Step
	}
	if err := r.sampleIfDue(); err != nil {
		return err
	}
	if err := r.checkpoints.Poll(); err != nil {
		return err
	}
	if err := r.checkpoints.SaveIfDue(); err != nil {
		return err
	}
	r.watch.Rates.Pause(time.Since(begin))
	return nil
}

// finish runs after the last step: the profile and, unless the run was interrupted, an
// evaluation and the sample. It is collective.
func (r *rank) finish(begin time.Time, interrupted bool) (err error) {
	var show func(events.Profile)
	if r.job.Profile {
		show = r.job.report.Profile
	}
	if err := r.watch.Report(show, r.comm); err != nil {
		return err
	}
	cfg, p, e := &r.job.cfg, r.Progress, r.evaluator
	done := events.Done{Step: p.Step, Steps: cfg.Steps, Ranks: r.comm.Size(), Interrupted: interrupted, Out: cfg.Out}
	if !interrupted && (e.step != p.Step || e.loss == 0) {
		if e.loss, err = e.evaluate(); err != nil {
			return err
		}
	}
	if !interrupted && cfg.SampleTokens > 0 {
		done.Prompt = cfg.SamplePrompt
		if done.Sample, err = r.sample(); err != nil {
			return err
		}
	}
	perToken, err := r.job.bytesPerToken()
	if err != nil {
		return err
	}
	done.Mean = len(p.Recent)
	done.Train = events.LossChange{First: float64(p.FirstTrain), Last: p.Recent.Mean(), BytesPerToken: perToken}
	done.HeldOut = events.LossChange{First: float64(p.FirstHeldOut), Last: e.loss, BytesPerToken: e.measured.bytesPerToken}
	done.PassLosses = e.measured.passLosses
	done.Elapsed = time.Since(begin)
	if r.lead() {
		r.job.interrupted = interrupted
		if !interrupted {
			r.job.lossOfEnd = [2]float64{p.Recent.Last(), e.loss}
		}
		r.watch.Recorder.Done(done)
		r.job.report.Done(done)
	}
	return nil
}

// How a run that is asked to stop says when it will: the request comes while a step is computed.

// serialReporter passes on events one at a time. The steps of a run and a request to stop it are
// reported by different goroutines.
type serialReporter struct {
	to events.Reporter
	mu sync.Mutex
}

// newSerialReporter wraps a reporter. Benchmarks have none.
func newSerialReporter(to events.Reporter) events.Reporter {
	if to == nil {
		return nil
	}
	return &serialReporter{to: to}
}

// Start implements [events.Reporter], as the other methods do.
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
func (r *serialReporter) Saved(e events.Saved) { r.mu.Lock(); defer r.mu.Unlock(); r.to.Saved(e) }

// Stopping passes on the end.
func (r *serialReporter) Stopping(e events.Stopping) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to.Stopping(e)
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
			s.Step = max(s.Step, int(m.Underway.Load()))
		}
		s.Step, s.Done = min(s.Step, j.cfg.Steps), s.Step > j.cfg.Steps
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
