package trainer

import (
	"slices"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/datasets"
	"spmoe/internal/fault"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
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
	if r.model.Recompute, err = moe.ParseRecompute(cfg.Recompute); err != nil {
		return nil, err
	}
	r.watch(false)
	ex.Progress = c.Progress()
	c.SetHelper(ex)
	rule, err := cfg.Optimizer.Rule()
	if err != nil {
		return nil, err
	}
	if r.keeper, err = newKeeper(c.Vault(), cfg.Model, optim.StateBytes(rule, r.model.Groups, c)); err != nil {
		return nil, err
	}
	r.optim = optim.New(ex, r.model.Groups, c, rule, r.keeper.states...)
	r.optim.ClipNorm = cfg.Optimizer.ClipNorm
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
