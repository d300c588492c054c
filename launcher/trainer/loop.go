package trainer

// The training loop: what a rank does between its first step and its last, and around them.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"spmoe/launcher/record"
)

// run is what a rank does, from its first step to its last.
func (r *rank) run(ctx context.Context) (err error) {
	begin := time.Now()
	defer r.loader.Close()
	if err := r.openRecord(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.closeRecord()) }()
	if r.cfg.copies() {
		r.saver.makeRoom(r.pieces())
	}
	defer func() { err = r.endSaving(err) }()
	if err := r.prologue(); err != nil {
		return err
	}
	interrupted, tooMany, err := r.train(ctx)
	if err == nil && r.saved != r.progress.Step {
		err = r.save(true)
	}
	if err = cmp.Or(err, tooMany); err != nil {
		return err
	}
	if err := r.endTrace(); err != nil {
		return err
	}
	if err := r.reportProfile(); err != nil {
		return err
	}
	return r.finish(begin, interrupted)
}

// prologue is what comes before the first step: an evaluation, or what a rank that failed may have left undone.
func (r *rank) prologue() (err error) {
	r.evaluated, r.saved = r.progress.Step, r.progress.Step
	switch {
	case r.job.resume == nil && !r.continues:
		if r.loss, err = r.evaluate(); err != nil {
			return err
		}
		r.progress.FirstHeldOut = record.Number(r.loss)
	case r.evaluates() || r.progress.Step == 0:
		// The run may have ended before it did so; the record has lost it if not.
		if _, err := r.evaluate(); err != nil {
			return err
		}
	}
	if !r.continues {
		return r.keep()
	}
	r.saved, err = r.saveAgain()
	return err
}

// train is the training loop. tooMany says that it ended because of the steps that it had to skip.
func (r *rank) train(ctx context.Context) (interrupted bool, tooMany, err error) {
	r.meter.start(r.progress)
	for r.progress.Step < r.cfg.Steps {
		step, stop, err := r.measuredStep(ctx)
		if err != nil {
			return false, nil, err
		}
		interrupted, tooMany = stop, r.tooManySkips(step)
		last := r.progress.Step == r.cfg.Steps || interrupted || tooMany != nil
		if r.lead() && (r.progress.Step%r.cfg.LogEvery == 0 || r.progress.Step == 1 || last || step.Skipped) {
			r.job.report.Step(r.meter.lap(step))
		} else if w, ok := r.job.report.(Watcher); ok && r.lead() && w.Wants() {
			w.Between(r.meter.rates(step, time.Now()))
		}
		if last {
			break
		}
		pause := time.Now()
		if err := r.betweenSteps(); err != nil {
			return false, nil, err
		}
		r.meter.pause(time.Since(pause))
	}
	return interrupted, tooMany, nil
}

// betweenSteps evaluates and saves, if it is time to.
func (r *rank) betweenSteps() (err error) {
	if r.evaluates() {
		if r.loss, err = r.evaluate(); err != nil {
			return err
		}
		r.evaluated = r.progress.Step
	}
	if err := r.pollSave(); err != nil || !every(r.cfg.SaveEvery, r.progress.Step) {
		return err
	}
	r.saved = r.progress.Step
	return r.save(false)
}

// reportProfile gathers where the time went. It is collective.
func (r *rank) reportProfile() error {
	profile, err := r.profiler.gather(r.comm)
	if err != nil {
		return fmt.Errorf("gathering the profile: %w", err)
	}
	if r.lead() {
		r.recordTimes(profile)
		if r.job.Profile {
			r.job.report.Profile(profile)
		}
	}
	return r.reportRatios(profile)
}

// finish evaluates once more, generates the sample and reports the end. An interrupted run does neither.
func (r *rank) finish(begin time.Time, interrupted bool) (err error) {
	p := r.progress
	done := Done{Step: p.Step, Steps: r.cfg.Steps, Ranks: r.comm.Size(), Interrupted: interrupted, Out: r.cfg.Out}
	if !interrupted {
		if r.evaluated != p.Step || r.loss == 0 {
			if r.loss, err = r.evaluate(); err != nil {
				return err
			}
		}
		if r.cfg.SampleTokens > 0 {
			done.Prompt = r.cfg.SamplePrompt
			if done.Sample, err = r.sample(r.cfg.SamplePrompt, r.cfg.SampleTokens); err != nil {
				return err
			}
		}
	}
	perToken, err := r.job.bytesPerToken()
	if err != nil {
		return err
	}
	done.Train = Progress{float64(p.FirstTrain), p.Recent.mean(), perToken}
	done.HeldOut = Progress{float64(p.FirstHeldOut), r.loss, r.bytesPerToken}
	done.Elapsed = time.Since(begin)
	if r.lead() {
		r.job.interrupted = interrupted
		r.recordDone(done)
		r.job.report.Done(done)
	}
	return nil
}

// every reports whether step is one at which something that happens every n steps is due.
func every(n, step int) bool { return n > 0 && step%n == 0 }
