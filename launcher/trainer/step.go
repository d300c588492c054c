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
	if err := r.routes.begin(number); err != nil {
		return fail(err)
	}

	// Compute the gradients until the guards accept them or skip the step.
	var a attempt
	verdict := computeAgain
	r.guards.beforePasses()
	for verdict == computeAgain {
		sum, err := r.passes() // forward and backward
		if err != nil {
			return fail(err)
		}

		// Reduce: sum gradients and losses over the ranks.
		if a, err = r.reduce(ctx, sum); err != nil {
			return fail(err)
		}

		// Guard: was memory intact, and are the gradients usable?
		if verdict, err = r.guards.judge(a); err != nil {
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
	if err := r.guards.afterUpdate(number); err != nil { // the ranks meet here
		return fail(err)
	}

	// Balance the load of the experts.
	imbalance, err := r.balancer.balance(used)
	if err != nil {
		return fail(err)
	}
	if s, err = r.count(a, used, lr, imbalance); err != nil {
		return fail(err)
	}
	r.checkpoints.timeIsUp = a.totals.save > 0
	if err := r.routes.end(number); err != nil {
		return fail(err)
	}

	// Record the step and store the state after it.
	fault.Point(fault.AfterStep)
	if err := r.watch.after(s, time.Since(begin), r.data.rows); err != nil {
		return s, false, err
	}
	return s, a.totals.stop > 0, r.storeState()
}

// passes computes the gradients of a step. It is collective.
func (r *rank) passes() (sum totals, err error) {
	r.passFaults(false)
	switch {
	case r.pipe == nil:
		for i := range r.data.passes() {
			loss, err := r.model.Train(r.ex, r.data.microBatch(i, r.draws())) // forward and backward
			if err != nil {
				return sum, err
			}
			sum.add(loss)
		}
	default:
		loss, err := r.pipe.Run(r.ex, r.data.microBatches(r.draws()))
		if err != nil {
			return sum, err
		}
		sum.add(loss)
	}
	r.passFaults(true)
	return sum, nil
}

// draws names the random numbers of the current step.
func (r *rank) draws() stepDraws {
	return stepDraws{seed: uint32(r.job.cfg.Seed), step: uint32(r.progress.Step + 1)}
}

// passFaults passes the places where tests damage the data of a step, before its gradients are
// computed and after: [fault] in rank processes, corrupt in this package's own tests.
func (r *rank) passFaults(computed bool) {
	if r.job.corrupt != nil {
		r.job.corrupt(r, computed)
	}
	if !fault.Armed() {
		return
	}
	for _, g := range r.groups() {
		if computed {
			fault.Touch(fault.InGradient, g.Grad.Slice(0, min(g.ParamLen(), g.Len())).Bytes()) // without padding, which nothing reads
			continue
		}
		for t := range g.Weights {
			fault.Touch(fault.InWeights, t.Bytes())
		}
	}
	if computed {
		return
	}
	for _, route := range r.balancer.routings {
		fault.Touch(fault.InWeights, route.Bias.Bytes())
	}
	for _, t := range r.optim.State {
		fault.Touch(fault.InState, t.Bytes())
	}
}

// reduce sums gradients, losses and stop requests over the ranks. It is collective.
func (r *rank) reduce(ctx context.Context, local totals) (a attempt, err error) {
	if err := r.guards.beforeReduce(); err != nil {
		return a, err
	}
	if a.norm, err = r.optim.Reduce(); err != nil {
		return a, err
	}
	if local.damaged, err = r.guards.afterReduce(); err != nil {
		return a, err
	}
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

// discard drops what an attempt has left behind, and loads the rows again.
func (r *rank) discard() error {
	r.optim.Discard()
	r.balancer.discard()
	r.watch.operands.discard()
	return r.data.load(r.ex, r.progress.Tokens, true)
}

// count adds a step to the progress and describes it. used says whether it has changed the weights.
func (r *rank) count(a attempt, used bool, lr, imbalance float64) (s Step, err error) {
	if err := r.guards.beforeCount(); err != nil {
		return s, err
	}
	defer r.guards.afterCount()
	cfg, p := &r.job.cfg, &r.progress
	p.Step++
	p.Tokens += int64(cfg.Batch * cfg.Seq)
	if used {
		p.Norms.add(a.norm)
	} else {
		p.skip(p.Step)
	}
	s = a.totals.step()
	p.Recent.add(float64(s.Loss))
	if p.Step == 1 {
		p.FirstTrain = s.Loss
	}
	s.Step, s.Steps, s.Epoch, s.Tokens = p.Step, cfg.Steps, r.data.loader.Epoch(), float64(p.Tokens)
	s.GradNorm, s.LR, s.Skipped, s.SkippedTotal = record.Number(a.norm), lr, !used, p.Skipped
	s.Imbalance = imbalance
	return s, nil
}
