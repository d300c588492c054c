package trainer

// One optimizer step, from the rows of the batch to the record of the result.

import (
	"context"
	"fmt"
	"time"

	"spmoe/internal/fault"
	"spmoe/launcher/record"
)

// step makes one optimizer step. stop says that all ranks agreed to end the run after it. It is
// collective.
func (r *rank) step(ctx context.Context) (s Step, stop bool, err error) {
	number := r.progress.Step + 1
	fail := func(err error) (Step, bool, error) { return s, false, fmt.Errorf("step %d: %w", number, err) }
	r.watch.before(number)
	begin := time.Now()
	r.comm.SetStep(number)
	fault.Point(fault.BeforeStep)

	// Load: this rank's share of the global batch.
	if err := r.data.load(r.ex, r.progress.Tokens, false); err != nil {
		return fail(err)
	}

	if err := r.data.routes.begin(number); err != nil {
		return fail(err)
	}

	// Compute the gradients until the guards accept them or skip the step.
	var a attempt
	verdict := computeAgain
	r.activations.begin()
	for verdict == computeAgain {
		passWeights(r)
		sum, err := r.passes() // forward and backward
		if err != nil {
			return fail(err)
		}
		passGradients(r)

		// Reduce: sum gradients and losses over the ranks.
		if a, err = r.reduce(ctx, sum); err != nil {
			return fail(err)
		}

		// Guard: was memory intact, and are the gradients usable?
		if verdict, err = r.judge(a); err != nil {
			return fail(err)
		}
		if verdict == computeAgain {
			if err := r.discard(); err != nil {
				return fail(err)
			}
		}
	}
	used := verdict == useGradients
	fault.Point(fault.BetweenPasses)

	// Update the master weights and publish the working weights, or leave both unchanged.
	lr := r.job.cfg.Optimizer.At(r.progress.Step, r.job.cfg.Steps)
	if !used {
		r.optim.Skip()
	} else if err := r.optim.Apply(lr, a.norm); err != nil {
		return fail(err)
	}

	r.memory.take(number)
	if err := r.stateGuard.afterUpdate(); err != nil { // the ranks meet here
		return fail(err)
	}

	// Balance the load of the experts.
	imbalance, err := r.balancer.balance(used)
	if err != nil {
		return fail(err)
	}
	if _, err := r.constants.progress.check(); err != nil {
		return fail(err)
	}
	s = r.count(a, used, lr, imbalance)
	r.constants.next()
	r.checkpoints.timeIsUp = a.totals.save > 0
	r.memory.takeBiases()

	if err := r.data.routes.end(number); err != nil {
		return fail(err)
	}

	// Record the step and store the state after it.
	fault.Point(fault.AfterStep)
	if err := r.watch.after(s, time.Since(begin), r.data.rows); err != nil {
		return s, false, err
	}
	return s, a.totals.stop > 0, r.storeState()
}

// reduce sums gradients, losses and stop requests over the ranks. It is collective.
func (r *rank) reduce(ctx context.Context, local totals) (a attempt, err error) {
	if err := r.activations.meet(); err != nil {
		return a, err
	}
	r.activations.check(false) // Reduce overwrites this rank's slices
	if a.norm, err = r.optim.Reduce(); err != nil {
		return a, err
	}
	r.activations.check(true)
	if err := r.checkConstants(); err != nil {
		return a, err
	}
	local.damaged = r.activations.damaged()
	if ctx.Err() != nil {
		local.stop = 1
	}
	if r.lead() {
		local.save = r.checkpoints.clock.due(r.job.cfg.SaveEvery.Time())
	}
	if a.totals, err = local.sum(r.ex, r.comm); a.totals.stop == 0 {
		r.watch.rates.begin(r.progress.Step + 2) // a request now ends the run after the next step
	}
	return a, err
}

// judge asks the guards what to do with an attempt. It is collective.
func (r *rank) judge(a attempt) (gradientVerdict, error) {
	again, err := r.activations.judge(a)
	if err == nil && !again {
		again, err = r.memory.check()
	}
	if err != nil || again {
		return computeAgain, err
	}
	verdict, err := r.gradients.judge(a)
	if err == nil && r.gradients.disagree() {
		err = r.memory.republish()
	}
	return verdict, err
}

// discard drops what an attempt has left behind, and loads the rows again.
func (r *rank) discard() error {
	r.optim.Discard()
	r.balancer.discard()
	r.watch.operands.discard()
	return r.data.load(r.ex, r.progress.Tokens, true)
}

// count adds a step to the progress and describes it. used says whether it has changed the weights.
func (r *rank) count(a attempt, used bool, lr, imbalance float64) Step {
	cfg, p := &r.job.cfg, &r.progress
	p.Step++
	p.Tokens += int64(cfg.Batch * cfg.Seq)
	if used {
		p.Norms.add(a.norm)
	} else {
		p.skipped(p.Step)
	}
	s := a.totals.step()
	p.Recent.add(float64(s.Loss))
	if p.Step == 1 {
		p.FirstTrain = s.Loss
	}
	s.Step, s.Steps, s.Epoch, s.Tokens = p.Step, cfg.Steps, r.data.loader.Epoch(), float64(p.Tokens)
	s.GradNorm, s.LR, s.Skipped, s.SkippedTotal = record.Number(a.norm), lr, !used, p.Skipped
	s.Imbalance, s.Loads, s.Layers = imbalance, r.balancer.loads, len(r.balancer.layers)
	return s
}
