package trainer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/datasets"
	"spmoe/launcher/record"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// rank is one rank of a run: its part of the model, of the optimizer and of the data.
type rank struct {
	job     *Job
	cfg     Config
	comm    *collective.Comm
	ex      *tensor.Exec
	model   *moe.Model
	optim   *optim.Optimizer
	loader  *datasets.Loader
	heldOut *datasets.Windows

	progress  progress
	meter     meter
	profiler  *profiler  // nil: off
	recording *recording // nil: none
	routings  []moe.Routing
	loads     []int64 // of all routers, one after the other
	rows      []int32 // [batch of this rank, seq+1]
	inputs    []int32 // [micro-batch, seq]
	targets   []int32
}

func newRank(j *Job, c *collective.Comm, ex *tensor.Exec, peak float64) (*rank, error) {
	cfg := j.cfg
	r := &rank{job: j, cfg: cfg, comm: c, ex: ex, progress: j.progress}
	r.progress.Recent = slices.Clone(j.progress.Recent)
	precision, err := cfg.precision()
	if err != nil {
		return nil, err
	}
	var exchange ep.Exchange
	if cfg.Model.MoELayers() > 0 {
		options, err := cfg.exchange()
		if err != nil {
			return nil, err
		}
		if exchange, err = ep.New(cfg.EP, c, cfg.Model.Experts, options); err != nil {
			return nil, err
		}
	}
	if r.model, err = moe.New(cfg.Model, precision, cfg.Seq, c, exchange); err != nil {
		return nil, err
	}
	r.watch(false)
	r.optim = optim.New(ex, r.model.Groups, c, cfg.Optimizer.AdamW)
	if r.recording, err = j.recording(); err != nil {
		return nil, err
	}
	if j.Profile || r.recording != nil {
		r.profiler = newProfiler(clock(), c)
		ex.Profile = r.profiler.timer
	}
	if r.loader, err = j.loader(c.Rank()); err != nil {
		return nil, err
	}
	if r.heldOut, err = j.windows(c.Rank()); err != nil {
		return nil, err
	}
	r.routings = r.model.Routings()
	r.loads = make([]int64, len(r.routings)*cfg.Model.Experts)
	micro := cfg.microBatch(c.Size())
	r.rows = make([]int32, cfg.Batch/c.Size()*(cfg.Seq+1))
	r.inputs, r.targets = make([]int32, micro*cfg.Seq), make([]int32, micro*cfg.Seq)
	r.meter = newMeter(cfg, peak)
	if j.resume != nil {
		return r, r.restore()
	}
	return r, r.optim.Init(cfg.Seed)
}

// lead reports whether this rank is the one that reports.
func (r *rank) lead() bool { return r.comm.Rank() == 0 }

// run is the training loop.
func (r *rank) run(ctx context.Context) (err error) {
	begin := time.Now()
	if err := r.openRecord(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.recording.close()) }()
	var heldOut float64
	switch {
	case r.job.resume == nil:
		if heldOut, err = r.evaluate(); err != nil {
			return err
		}
		r.progress.FirstHeldOut = record.Number(heldOut)
	case r.recording != nil && r.evaluates():
		// The run may have been interrupted before it did so; the record has lost it if not.
		if _, err = r.evaluate(); err != nil {
			return err
		}
	}
	r.meter.start(r.progress)
	evaluated, saved, interrupted := r.progress.Step, r.progress.Step, false
	for r.progress.Step < r.cfg.Steps && !interrupted {
		step, stop, err := r.measuredStep(ctx)
		if err != nil {
			return err
		}
		interrupted = stop
		last := r.progress.Step == r.cfg.Steps || interrupted
		if r.lead() && (r.progress.Step%r.cfg.LogEvery == 0 || r.progress.Step == 1 || last || step.Skipped) {
			r.job.report.Step(r.meter.lap(step))
		}
		if r.evaluates() && !last {
			pause := time.Now()
			if heldOut, err = r.evaluate(); err != nil {
				return err
			}
			evaluated = r.progress.Step
			r.meter.pause(time.Since(pause))
		}
		if every(r.cfg.SaveEvery, r.progress.Step) && !last {
			pause := time.Now()
			if err := r.save(); err != nil {
				return err
			}
			saved = r.progress.Step
			r.meter.pause(time.Since(pause))
		}
	}
	if saved != r.progress.Step {
		if err := r.save(); err != nil {
			return err
		}
	}
	if r.profiler != nil {
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
	}
	return r.finish(begin, heldOut, evaluated, interrupted)
}

// finish evaluates once more, generates the sample and reports the end. An interrupted run does neither.
func (r *rank) finish(begin time.Time, heldOut float64, evaluated int, interrupted bool) error {
	p := r.progress
	done := Done{Step: p.Step, Steps: r.cfg.Steps, Ranks: r.comm.Size(), Interrupted: interrupted, Out: r.cfg.Out}
	if !interrupted {
		var err error
		if evaluated != p.Step || heldOut == 0 {
			if heldOut, err = r.evaluate(); err != nil {
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
	done.Train, done.HeldOut = Progress{float64(p.FirstTrain), p.Recent.mean()}, Progress{float64(p.FirstHeldOut), heldOut}
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

// measuredStep is step, and what is measured of it.
func (r *rank) measuredStep(ctx context.Context) (s Step, stop bool, err error) {
	r.watch(r.recording.due(r.progress.Step + 1))
	r.profiler.begin()
	begin := time.Now()
	if s, stop, err = r.step(ctx); err != nil {
		return s, stop, fmt.Errorf("step %d: %w", r.progress.Step+1, err)
	}
	apart := r.recording.cost()
	took := time.Since(begin) - apart
	r.profiler.end(apart)
	r.watch(false)
	return s, stop, r.recordStep(s, took)
}

// step makes one optimizer step. stop says that all ranks agreed to end the run after it.
func (r *rank) step(ctx context.Context) (s Step, stop bool, err error) {
	r.comm.SetStep(r.progress.Step + 1)
	local, err := r.gradients()
	if err != nil {
		return s, false, err
	}
	lr := r.cfg.Optimizer.At(r.progress.Step, r.cfg.Steps)
	result, err := r.optim.Step(lr)
	if err != nil {
		return s, false, err
	}
	if ctx.Err() != nil {
		local.stop = 1
	}
	global, err := r.sumTotals(local)
	if err != nil {
		return s, false, err
	}
	imbalance, err := r.balance(result.Skipped)
	if err != nil {
		return s, false, err
	}

	p := &r.progress
	p.Step++
	p.Tokens += int64(r.cfg.Batch * r.cfg.Seq)
	if result.Skipped {
		p.Skipped++
	}
	loss, mtp := global.means()
	p.Recent.add(loss)
	if p.Step == 1 {
		p.FirstTrain = record.Number(loss)
	}
	return Step{
		Step: p.Step, Steps: r.cfg.Steps, Loss: loss, MTPLoss: mtp, Balance: global.balance,
		GradNorm: result.GradNorm, LR: lr, Imbalance: imbalance, Epoch: r.loader.Epoch(), Tokens: p.Tokens,
		Skipped: result.Skipped, SkippedTotal: p.Skipped, Dropped: int(global.dropped),
	}, global.stop > 0, nil
}

// gradients runs forward and backward over this rank's part of the next global batch.
func (r *rank) gradients() (totals, error) {
	before := r.ex.Enter(profile.Data)
	r.loader.Next(r.rows)
	r.ex.Enter(before)
	var sum totals
	seq := r.cfg.Seq
	for rows := r.rows; len(rows) > 0; {
		n := min(len(rows)/(seq+1), len(r.inputs)/seq)
		loss, err := r.model.Train(r.ex, r.batch(rows[:n*(seq+1)], r.cfg.Batch))
		if err != nil {
			return sum, err
		}
		sum.add(loss)
		rows = rows[n*(seq+1):]
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
	return moe.Batch{Inputs: r.inputs[:n*seq], Targets: r.targets[:n*seq], Seq: seq, GlobalSequences: globalSequences}
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
