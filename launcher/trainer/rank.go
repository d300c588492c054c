package trainer

// One rank of a run and its parts.

import (
	"slices"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/collective/mesh"
	"spmoe/internal/fault"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// rank is one rank of a run: its part of the model, the optimizer and the data, and what guards,
// saves and observes them.
type rank struct {
	job   *Job
	comm  *collective.Comm // all ranks
	mesh  moe.Mesh
	links links
	ex    *tensor.Exec
	*trainState

	guards
	vault       *stateVault
	evaluator   *evaluator
	checkpoints *checkpointer
	alarms      *alarms
	watch       observers
	routes      *routeTable // nil: none are recorded or replayed
}

// newRank creates a rank in the state before its first step. It is collective.
func newRank(j *Job, c *collective.Comm, ex *tensor.Exec, peak float64) (*rank, error) {
	if _, kept := c.Kept(); j.late && !kept && j.resume == nil {
		if err := j.openStart(); err != nil {
			return nil, err
		}
	}
	if _, kept := c.Kept(); !kept {
		if err := j.agree(c); err != nil {
			return nil, err
		}
	}
	cfg := j.cfg
	r := &rank{job: j, comm: c, ex: ex, trainState: &trainState{progress: j.progress.clone()}}
	r.progress.Text = j.corpus.Builtin
	r.alarms = &alarms{lead: r.lead(), progress: &r.progress, report: j.report}
	r.alarms.events.Folder, r.alarms.events.Held = cfg.Out, j.Folder
	r.watch.rates = newMeter(cfg, peak)
	if r.lead() {
		j.meter.Store(r.watch.rates)
	}
	if err := r.build(); err != nil {
		return nil, err
	}
	r.first, r.links = r.mesh.World.Rank() == 0, newLinks(c, r.mesh, r.pipe)
	cfg.sizeArenas(r.models(), ex, cfg.LayoutOrDefault(c.Size()), len(c.Hosts()))
	r.watch.operands = newOperandMeter(cfg.RecordEvery, j.Disturb, ex, r.models(), r.first)
	ex.Progress = c.Progress()
	for _, c := range r.links {
		c.SetHelper(ex)
	}
	rule, err := cfg.Rule()
	if err != nil {
		return nil, err
	}
	if r.vault, err = newStateVault(c.Vault(), cfg.Model, optim.StateBytes(rule, r.groups())); err != nil {
		return nil, err
	}
	if cfg.Optimizer.QKClip > 0 {
		for _, m := range r.models() {
			m.RecordScores()
		}
	}
	r.optim = optim.New(ex, r.groups(), c, rule, r.vault.states...)
	r.optim.ClipNorm = cfg.Optimizer.ClipNorm
	r.balancer = newBalancer(c, ex, r.routers(), cfg.Model)
	text, err := j.loader(r.mesh.World.Rank())
	if err != nil {
		return nil, err
	}
	r.data = newDataLoader(cfg, text, j.separator, c.Size())
	if r.routes, err = newRouteTable(r); err != nil {
		return nil, err
	}
	r.data.routes = r.routes.pass
	r.guards = newGuards(r)
	if err := r.addObservers(); err != nil {
		return nil, err
	}
	if err := r.addTasks(); err != nil {
		return nil, err
	}
	fault.Point(fault.InStart)
	if err := r.begin(); err != nil {
		return nil, err
	}
	r.vault.begun = r.progress.Step
	r.guards.begin(r)
	return r, c.Barrier() // guards.begin says why
}

// newMesh divides the ranks. It is collective.
func newMesh(cfg Config, c *collective.Comm) (moe.Mesh, error) {
	l := cfg.LayoutOrDefault(c.Size())
	if cfg.routedExperts() == 0 {
		l = mesh.Default(c.Size())
	}
	m, err := moe.NewMesh(c, l)
	m.FSDP, m.Cut = cfg.FSDP, optim.Cut(cfg.rule())
	return m, err
}

// newModel creates this rank's part of a stage. It is collective.
func newModel(cfg Config, mesh moe.Mesh, stage moe.Stage) (*moe.Model, error) {
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
		if exchange, err = mesh.NewExchange(cfg.EPExchange, cfg.Model.Experts, options); err != nil {
			return nil, err
		}
	}
	model, err := moe.NewStage(mesh, cfg.Model, precision, cfg.Seq, exchange, stage)
	if err != nil {
		return nil, err
	}
	model.Recompute, err = moe.ParseRecompute(cfg.Recompute)
	return model, err
}

// addObservers creates the observers of steps.
func (r *rank) addObservers() (err error) {
	w, j := &r.watch, r.job
	w.usage = &usageMeter{comm: r.comm, links: r.links, state: r.trainState}
	w.tracer = newTracer(j.Trace, j.cfg, r.links, r.pipe, r.alarms)
	w.profiler = newProfiler(w.tracer.now, r.links.met)
	w.tracer.timer, r.ex.Profile = w.profiler.timer, w.profiler.timer
	w.stragglers = newStragglers(r.links, r.mesh, r.balancer, r.alarms, j.here, j.threads)
	w.recorder = &recorder{
		cfg: &j.cfg, folder: j.Folder, cores: j.cores, bytesPerToken: j.bytesPerToken,
		comm: r.comm, peers: r.mesh.World, ex: r.ex, state: r.trainState, alarms: r.alarms,
		operands: w.operands, profiler: w.profiler, rates: w.rates,
	}
	if w.recorder.probe, err = newProbe(&j.cfg, j.heldOut, j.separator); err != nil {
		return err
	}
	of := Routing{Layers: r.balancer.layers, Ranks: r.mesh.World.Size(), Cores: j.cores, Separator: -1}
	if end := j.tokenizer.Encode([]byte{0}); len(end) == 1 {
		of.Separator = end[0]
	}
	w.routing, err = newRoutingObserver(j.Routing, of, r.trainState)
	w.order()
	return err
}

// addTasks creates the work between steps. It is collective.
func (r *rank) addTasks() error {
	j, w := r.job, &r.watch
	windows, err := j.windows()
	if err != nil {
		return err
	}
	r.evaluator = &evaluator{
		job: j, comm: r.comm, readers: r.mesh.World, ex: r.ex, state: r.trainState,
		recorder: w.recorder, tracer: w.tracer, windows: windows,
	}
	config, err := ConfigTOML(j.cfg)
	if err != nil {
		return err
	}
	saver, err := newSaver(j.cfg, j.tokenizerFile, j.files, j.Folder, r.comm)
	r.checkpoints = &checkpointer{
		cfg: j.cfg, report: j.report, lead: r.lead(), state: r.trainState, memory: r.memory, stateGuard: r.stateGuard,
		recorder: w.recorder, tracer: w.tracer, alarms: r.alarms, saver: saver, clock: j.clock,
		config: sealed(config),
	}
	return err
}

// storeState stores the state after the last step in the vault, where it survives this process. It
// stores the record of the step first.
func (r *rank) storeState() error {
	if !r.vault.heals() {
		return r.watch.recorder.show()
	}
	if err := r.watch.recorder.push(); err != nil {
		return err
	}
	n := notes{Run: r.progress.Run, Progress: r.snapshot(), Peak: r.watch.rates.peak, State: r.stateGuard.digests()}
	for _, route := range r.balancer.routings {
		n.Biases = append(n.Biases, route.Bias.F32())
	}
	return r.vault.store(n)
}

// lead reports whether this rank reports for all.
func (r *rank) lead() bool { return r.comm.Rank() == 0 }

// clone returns a deep copy of the progress.
func (p progress) clone() progress {
	p.Recent, p.Norms, p.SkippedSteps = slices.Clone(p.Recent), slices.Clone(p.Norms), slices.Clone(p.SkippedSteps)
	return p
}
