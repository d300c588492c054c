package trainer

// One step: rows, gradients, update, balance.

import (
	"context"
	"fmt"
	"time"

	"spmoe/collective"
	"spmoe/datasets"
	"spmoe/internal/fault"
	"spmoe/launcher/record"
	"spmoe/moe"
	"spmoe/tensor/profile"
)

// measuredStep is step, and what is measured of it.
func (r *rank) measuredStep(ctx context.Context) (s Step, stop bool, err error) {
	r.watch(r.recording.measures(r.progress.Step + 1))
	r.ratios.watch(r.model, true)
	defer r.ratios.watch(r.model, false)
	r.startTrace()
	r.profiler.begin()
	r.stragglers.begin()
	begin := time.Now()
	if s, stop, err = r.step(ctx); err != nil {
		return s, stop, fmt.Errorf("step %d: %w", r.progress.Step+1, err)
	}
	fault.Point(fault.AfterStep)
	apart := r.recording.spent
	took := time.Since(begin) - apart
	r.profiler.end(apart)
	if err := r.pauseTrace(); err != nil {
		return s, stop, err
	}
	r.watch(false)
	if err := r.nameStragglers(took); err != nil {
		return s, stop, err
	}
	if err := r.recordStep(s, took); err != nil {
		return s, stop, err
	}
	return s, stop, r.keep()
}

// step makes one optimizer step. stop says that all ranks agreed to end the run after it.
func (r *rank) step(ctx context.Context) (s Step, stop bool, err error) {
	r.comm.SetStep(r.progress.Step + 1)
	fault.Point(fault.BeforeStep)
	if err := r.read(); err != nil {
		return s, false, err
	}
	a, good, err := r.compute(ctx)
	if err != nil {
		return s, false, err
	}
	fault.Point(fault.BetweenPasses)
	lr := r.cfg.Optimizer.At(r.progress.Step, r.cfg.Steps)
	if !good {
		r.optim.Skip()
	} else if err := r.optim.Apply(lr, a.norm); err != nil {
		return s, false, err
	}
	imbalance, err := r.balance(!good)
	if err != nil {
		return s, false, err
	}
	s = r.count(a, good)
	s.LR, s.Imbalance = lr, imbalance
	s.Loads, s.Layers = r.loads, len(r.routings)
	r.takeSums()
	return s, a.totals.stop > 0, nil
}

// count adds a step to the progress, and describes it. good says whether it has changed the weights.
func (r *rank) count(a attempt, good bool) Step {
	p := &r.progress
	p.Step++
	p.Tokens += int64(r.cfg.Batch * r.cfg.Seq)
	if good {
		p.Norms.add(a.norm)
	} else {
		p.skipped(p.Step)
	}
	loss, mtp := a.totals.means()
	p.Recent.add(loss)
	if p.Step == 1 {
		p.FirstTrain = record.Number(loss)
	}
	return Step{
		Step: p.Step, Steps: r.cfg.Steps, Loss: loss, MTPLoss: mtp, Balance: a.totals.balance, GradNorm: a.norm,
		Epoch: r.loader.Epoch(), Tokens: p.Tokens, Skipped: !good, SkippedTotal: p.Skipped, Dropped: int(a.totals.dropped),
	}
}

// read takes this rank's part of the next global batch.
func (r *rank) read() error {
	defer r.ex.Enter(r.ex.Enter(profile.Data))
	return r.loader.Next(r.rows)
}

// gradients runs forward and backward over the rows that were read last.
func (r *rank) gradients() (totals, error) {
	var sum totals
	seq := r.cfg.Seq
	for rows := r.rows; len(rows) > 0; {
		n := min(len(rows)/(seq+1), len(r.inputs)/seq)
		b := r.batch(rows[:n*(seq+1)], r.cfg.Batch)
		rows = rows[n*(seq+1):]
		b.More = len(rows) > 0
		loss, err := r.model.Train(r.ex, b)
		if err != nil {
			return sum, err
		}
		sum.add(loss)
	}
	return sum, nil
}

// batch splits rows: [n, seq+1] into inputs and targets.
func (r *rank) batch(rows []int32, globalSequences int) moe.Batch {
	seq := r.cfg.Seq
	n := len(rows) / (seq + 1)
	for i := range n {
		row := rows[i*(seq+1):]
		copy(r.inputs[i*seq:], row[:seq])
		copy(r.targets[i*seq:], row[1:seq+1])
	}
	b := moe.Batch{Inputs: r.inputs[:n*seq], Targets: r.targets[:n*seq], Seq: seq, GlobalSequences: globalSequences}
	if r.first != nil {
		b.First = r.first[:n*seq]
		datasets.DocumentStarts(b.First, b.Inputs, seq, r.job.separator)
	}
	return b
}

// balance sums the experts' loads over all ranks and moves the selection biases. It returns
// the largest load over the mean, averaged over the layers.
func (r *rank) balance(skipped bool) (imbalance float64, err error) {
	if len(r.routings) == 0 {
		return 1, nil
	}
	defer r.ex.Enter(r.ex.Enter(profile.Collectives))
	n := r.cfg.Model.Experts
	for i, route := range r.routings {
		copy(r.loads[i*n:], route.Load)
	}
	if err := collective.AllReduce(r.comm, r.loads, collective.Sum); err != nil {
		return 0, fmt.Errorf("summing expert loads: %w", err)
	}
	r.ratios.step(r.loads, r.rows)
	for i, route := range r.routings {
		load := r.loads[i*n : (i+1)*n]
		var most, total int64
		for _, tokens := range load {
			most, total = max(most, tokens), total+tokens
		}
		imbalance += float64(most) * float64(n) / float64(max(total, 1)) / float64(len(r.routings))
		if skipped {
			clear(route.Load)
		} else {
			route.Balance(load)
		}
	}
	return imbalance, nil
}
