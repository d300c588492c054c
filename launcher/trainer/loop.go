package trainer

// The training loop: a rank's steps, and the work before, between and after them.

import (
	"cmp"
	"context"
	"errors"
	"time"

	"spmoe/launcher/record"
)

// run is the life of a rank from its first step to its last.
func (r *rank) run(ctx context.Context) (err error) {
	begin := time.Now()
	defer r.data.loader.Close()
	if err := r.watch.recorder.open(r.vault.resumed); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, r.routes.close(), r.watch.recorder.close())
		r.alarms.close()
	}()
	r.checkpoints.prepare()
	defer func() { err = r.checkpoints.close(err) }()
	if err := r.prologue(); err != nil {
		return err
	}
	var interrupted bool
	var tooMany error // too many steps were skipped
	steps := r.job.cfg.Steps
	r.watch.rates.start(r.progress)
	for r.progress.Step < steps {
		r.watch.rates.begin(r.progress.Step + 1)
		step, stop, err := r.step(ctx)
		if err != nil {
			return err
		}
		interrupted, tooMany = stop, r.gradients.tooManySkips(step)
		last := r.progress.Step == steps || interrupted || tooMany != nil
		if r.lead() {
			r.watch.rates.show(r.job.report, step, last)
		}
		if last {
			break
		}
		if err := r.betweenSteps(); err != nil {
			return err
		}
	}
	if r.checkpoints.step != r.progress.Step {
		err = r.checkpoints.saveLast(ctx)
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
	e.step, r.checkpoints.step = r.progress.Step, r.progress.Step
	switch {
	case r.job.resume == nil && !r.vault.resumed:
		if e.loss, err = e.evaluate(); err != nil {
			return err
		}
		r.progress.FirstHeldOut = record.Number(e.loss)
	case e.due() || r.progress.Step == 0:
		// The run may have ended before this evaluation; then the record lacks it.
		if _, err := e.evaluate(); err != nil {
			return err
		}
	}
	r.constants.next()
	if err := r.sampleIfDue(); err != nil {
		return err
	}
	if !r.vault.resumed {
		return r.storeState()
	}
	return r.checkpoints.repeat()
}

// betweenSteps evaluates, samples and saves when these are due.
func (r *rank) betweenSteps() (err error) {
	begin, e := time.Now(), r.evaluator
	if e.due() {
		if e.loss, err = e.evaluate(); err != nil {
			return err
		}
		e.step = r.progress.Step
	}
	if err := r.sampleIfDue(); err != nil {
		return err
	}
	if err := r.checkpoints.poll(); err != nil {
		return err
	}
	if err := r.checkpoints.saveIfDue(); err != nil {
		return err
	}
	r.watch.rates.pause(time.Since(begin))
	return nil
}

// finish runs after the last step: the trace, the profile and, unless the run was interrupted, an
// evaluation and the sample. It is collective.
func (r *rank) finish(begin time.Time, interrupted bool) (err error) {
	var show func(Profile)
	if r.job.Profile {
		show = r.job.report.Profile
	}
	if err := r.watch.report(show, r.comm); err != nil {
		return err
	}
	cfg, p, e := &r.job.cfg, r.progress, r.evaluator
	done := Done{Step: p.Step, Steps: cfg.Steps, Ranks: r.comm.Size(), Interrupted: interrupted, Out: cfg.Out}
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
	done.Train = Progress{float64(p.FirstTrain), p.Recent.mean(), perToken}
	done.HeldOut = Progress{float64(p.FirstHeldOut), e.loss, e.measured.bytesPerToken}
	done.PassLosses, done.Averaged = e.measured.passLosses, e.averaged
	done.Elapsed = time.Since(begin)
	if r.lead() {
		r.job.interrupted = interrupted
		if !interrupted {
			r.job.lossOfEnd = [2]float64{p.Recent.last(), e.loss}
		}
		r.watch.recorder.done(done)
		r.job.report.Done(done)
	}
	return nil
}

// due reports whether an event that happens every n steps happens at this step.
func due(n, step int) bool { return n > 0 && step%n == 0 }
