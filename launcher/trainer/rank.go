package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/datasets"
	"spmoe/internal/fault"
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
	loader  *datasets.Ahead
	heldOut *datasets.Windows

	progress      progress
	meter         meter
	profiler      *profiler
	recording     *recording
	tracer        *tracer
	ratios        *ratioMeter // nil: none
	saver         *saver
	stragglers    stragglers
	keeper        *keeper
	integrity     integrity
	begun         int     // step that this rank began after
	evaluated     int     // step of the newest evaluation
	saved         int     // and of the newest checkpoint
	loss          float64 // of that evaluation
	bytesPerToken float64 // of its text
	peak          float64 // of the machine, FLOP/s
	continues     bool    // a run under way, from what the vaults kept
	routings      []moe.Routing
	loads         []int64 // of all routers, one after the other
	rows          []int32 // [batch of this rank, seq+1]
	inputs        []int32 // [micro-batch, seq]
	targets       []int32
	first         []int32 // position that each input's document begins at; nil: attention does not stop there
}

func newRank(j *Job, c *collective.Comm, ex *tensor.Exec, peak float64) (*rank, error) {
	if _, kept := c.Kept(); j.late && !kept && j.resume == nil {
		if err := j.begun(); err != nil {
			return nil, err
		}
	}
	cfg := j.cfg
	r := &rank{job: j, cfg: cfg, comm: c, ex: ex, progress: j.progress, peak: peak}
	r.progress.Recent, r.progress.Norms = slices.Clone(j.progress.Recent), slices.Clone(j.progress.Norms)
	r.progress.SkippedSteps = slices.Clone(j.progress.SkippedSteps)
	precision, err := cfg.Recipe()
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
	ex.Progress = c.Progress()
	if r.keeper, err = newKeeper(c.Vault(), cfg.Model, optim.StateLen(r.model.Groups, c)); err != nil {
		return nil, err
	}
	r.optim = optim.New(ex, r.model.Groups, c, cfg.Optimizer.AdamW, r.keeper.states...)
	if r.recording, err = j.recording(); err != nil {
		return nil, err
	}
	r.tracer = newTracer(j.Trace)
	r.profiler = newProfiler(r.tracer.now, c)
	ex.Profile = r.profiler.timer
	loader, err := j.loader(c.Rank())
	if err != nil {
		return nil, err
	}
	r.loader = datasets.NewAhead(loader)
	if r.heldOut, err = j.windows(c.Rank()); err != nil {
		return nil, err
	}
	r.stragglers = newStragglers(c)
	r.routings = r.model.Routings()
	r.loads = make([]int64, len(r.routings)*cfg.Model.Experts)
	if r.ratios, err = j.ratioMeter(r.routings); err != nil {
		return nil, err
	}
	micro := cfg.microBatch(c.Size())
	r.rows = make([]int32, cfg.Batch/c.Size()*(cfg.Seq+1))
	r.inputs, r.targets = make([]int32, micro*cfg.Seq), make([]int32, micro*cfg.Seq)
	if cfg.DocumentMask {
		r.first = make([]int32, micro*cfg.Seq)
	}
	if r.saver, err = newSaver(cfg, c, j.files, j.tokenizerFile); err != nil {
		return nil, err
	}
	fault.Point(fault.InStart)
	if err := r.begin(); err != nil {
		return nil, err
	}
	r.begun = r.progress.Step
	r.takeSums()
	r.meter = newMeter(cfg, r.peak)
	return r, nil
}

// begin sets this rank to the state that its first step starts from: what the vaults kept, or a checkpoint, or initial weights.
func (r *rank) begin() error {
	if step, ok := r.comm.Kept(); ok {
		r.continues = true
		return r.goBack(step)
	}
	r.optim.Use(r.progress.Step)
	if r.job.resume != nil {
		return r.restore()
	}
	return r.initial()
}

// goBack sets this rank to the state after a step that all ranks keep.
func (r *rank) goBack(step int64) error {
	fault.Point(fault.BeforeBack)
	defer fault.Point(fault.AfterBack)
	n, err := r.keeper.goBack(step)
	if err != nil {
		return err
	}
	fault.Point(fault.InBack)
	r.progress, r.peak = n.Progress, n.Peak
	r.optim.Use(r.progress.Step)
	r.optim.SetSteps(r.progress.OptimizerSteps)
	if err := r.checkKept(n.State); err != nil {
		return err
	}
	for i, route := range r.routings {
		copy(route.Bias.F32(), n.Biases[i])
	}
	if err := r.loader.Restore(r.progress.Loader); err != nil {
		return err
	}
	return r.optim.Publish()
}

// keep keeps the state after the step that was made last, which has been recorded.
func (r *rank) keep() error {
	if r.keeper.states == nil {
		return r.settle(r.recording.show())
	}
	if err := r.settle(r.recording.push()); err != nil {
		return err
	}
	n := notes{Progress: r.here(), Peak: r.peak, State: r.integrity.stateSums()}
	for _, route := range r.routings {
		n.Biases = append(n.Biases, route.Bias.F32())
	}
	return r.keeper.keep(n)
}

// lead reports whether this rank is the one that reports.
func (r *rank) lead() bool { return r.comm.Rank() == 0 }

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
