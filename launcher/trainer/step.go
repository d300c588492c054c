package trainer

// One optimizer step, from the rows of the batch to the record of the result.

import (
	"context"
	"fmt"
	"time"

	"spmoe/internal/fault"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/guard"
	"spmoe/launcher/trainer/state"
)

// step makes one optimizer step. stop says that all ranks agreed to end the run after it. It is
// collective.
func (r *rank) step(ctx context.Context) (s events.Step, stop bool, err error) {
	number := r.Progress.Step + 1
	fail := func(err error) (events.Step, bool, error) { return s, false, fmt.Errorf("step %d: %w", number, err) }
	r.watch.Before(number)
	begin := time.Now()
	r.comm.SetStep(number)
	fault.Point(fault.BeforeStep)

	// Load: this rank's share of the global batch.
	if err := r.Data.Load(r.ex, r.Progress.Tokens, false); err != nil {
		return fail(err)
	}
	if err := r.routes.begin(number); err != nil {
		return fail(err)
	}

	// Compute the gradients until the guards accept them or skip the step.
	var a guard.Attempt
	verdict := guard.ComputeAgain
	for verdict == guard.ComputeAgain {
		sum, err := r.passes() // forward and backward
		if err != nil {
			return fail(err)
		}

		// Reduce: sum gradients and losses over the ranks.
		if a, err = r.reduce(ctx, sum); err != nil {
			return fail(err)
		}

		// Guard: are the weights those that were published, and are the gradients usable?
		if verdict, err = r.guards.judge(a); err != nil {
			return fail(err)
		}
		if verdict == guard.ComputeAgain {
			if err := r.discard(); err != nil {
				return fail(err)
			}
		}
	}
	used := verdict == guard.UseGradients
	fault.Point(fault.BetweenPasses)

	// Update the master weights and publish the working weights, or leave both unchanged.
	lr := r.job.cfg.LearningRate(r.Progress.Step)
	if !used {
		r.Optim.Skip()
	} else if err := r.Optim.Apply(lr, a.Norm); err != nil {
		return fail(err)
	}
	if err := r.guards.state.AfterUpdate(); err != nil { // the ranks meet here
		return fail(err)
	}

	// Balance the load of the experts.
	imbalance, err := r.Balancer.Balance(used)
	if err != nil {
		return fail(err)
	}
	r.guards.state.Balanced()
	s = r.count(a, used, lr, imbalance)
	r.checkpoints.TimeIsUp = a.Totals.Save > 0
	if err := r.routes.end(number); err != nil {
		return fail(err)
	}

	// Record the step and store the state after it.
	fault.Point(fault.AfterStep)
	if err := r.watch.After(s, time.Since(begin)); err != nil {
		return s, false, err
	}
	return s, a.Totals.Stop > 0, r.storeState()
}

// passes computes the gradients of a step. It is collective.
func (r *rank) passes() (sum state.Totals, err error) {
	r.passFaults(false)
	switch {
	case r.Pipe == nil:
		for i := range r.Data.Passes() {
			loss, err := r.Model.Train(r.ex, r.Data.MicroBatch(i, r.draws())) // forward and backward
			if err != nil {
				return sum, err
			}
			sum.Add(loss)
		}
	default:
		loss, err := r.Pipe.Run(r.ex, r.Data.MicroBatches(r.draws()))
		if err != nil {
			return sum, err
		}
		sum.Add(loss)
	}
	r.passFaults(true)
	return sum, nil
}

// draws names the random numbers of the current step.
func (r *rank) draws() state.StepDraws {
	return state.StepDraws{Seed: uint32(r.job.cfg.Seed), Step: uint32(r.Progress.Step + 1)}
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
	for _, g := range r.Groups() {
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
	for _, route := range r.Balancer.Routings {
		fault.Touch(fault.InWeights, route.Bias.Bytes())
	}
	for s := range r.Optim.Summed {
		fault.Touch(fault.InState, s.Data.Bytes())
	}
}

// reduce sums gradients, losses and stop requests over the ranks. It is collective.
func (r *rank) reduce(ctx context.Context, local state.Totals) (a guard.Attempt, err error) {
	if a.Norm, err = r.Optim.Reduce(); err != nil {
		return a, err
	}
	if r.guards.state.Compare() { // memory of this rank has changed since the last step
		local.Damaged = 1
	}
	if ctx.Err() != nil {
		local.Stop = 1
	}
	if r.lead() {
		local.Save = r.checkpoints.Clock.Due(r.job.cfg.SaveEvery.Time())
	}
	if a.Totals, err = local.Sum(r.ex, r.comm); a.Totals.Stop == 0 {
		r.watch.Rates.Underway.Store(int64(r.Progress.Step + 2)) // a request now ends the run after the next step
	}
	return a, err
}

// discard drops what an attempt has left behind, and loads the rows again.
func (r *rank) discard() error {
	r.Optim.Discard()
	r.Balancer.Discard()
	r.watch.Operands.Discard()
	return r.Data.Load(r.ex, r.Progress.Tokens, true)
}

// count adds a step to the progress and describes it. used says whether it has changed the weights.
func (r *rank) count(a guard.Attempt, used bool, lr, imbalance float64) (s events.Step) {
	cfg, p := &r.job.cfg, &r.Progress
	p.Step++
	p.Tokens += int64(cfg.Batch * cfg.Seq)
	if used {
		p.Norms.Add(a.Norm)
	} else {
		p.Skip(p.Step)
	}
	s = a.Totals.Step()
	p.Recent.Add(float64(s.Loss))
	if p.Step == 1 {
		p.FirstTrain = s.Loss
	}
	s.Step, s.Steps, s.Epoch, s.Tokens = p.Step, cfg.Steps, r.Data.Loader.Epoch(), float64(p.Tokens)
	s.GradNorm, s.LR, s.Skipped, s.SkippedTotal = record.Number(a.Norm), lr, !used, p.Skipped
	s.Imbalance = imbalance
	return s
}
