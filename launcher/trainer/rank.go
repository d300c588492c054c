package trainer

// One rank of a run and its parts.

import (
	"time"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/collective/mesh"
	"spmoe/internal/fault"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/guard"
	"spmoe/launcher/trainer/observe"
	"spmoe/launcher/trainer/save"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/moe/pipe"
	"spmoe/tensor"
)

// sizeArenas makes the arenas of a rank as large as its passes need, so that each is in one piece,
// with room for experts that receive more rows than the mean. What is not used takes no memory, but
// the system refuses a piece larger than all memory.
func sizeArenas(c config.Config, models []*moe.Model, ex *tensor.Exec, l mesh.Layout, hosts int) {
	const mostRoom = 512 << 20
	withRoom := func(bytes float64) int { return int(min(bytes+min(bytes, mostRoom), events.MostBytes)) }
	d, err := estimate.NewDryRank(c, l.Stage(), hosts, 0)
	if err != nil {
		return
	}
	var most moe.PassMemory
	saved := 0.0
	for _, m := range models {
		n, err := d.KnownPasses(m.Stage())
		if err != nil {
			return
		}
		most, saved = most.Most(n.Pass), max(saved, n.Pass.AllSaved(), n.Split)
	}
	ex.First = withRoom(max(most.Scratch, estimate.UpdateScratch(c)))
	for _, m := range models {
		m.PassBytes = withRoom(saved)
	}
}

// rank is one rank of a run: its part of the model, the optimizer and the data, and what guards,
// saves and observes them.
type rank struct {
	job   *Job
	comm  *collective.Comm // all ranks
	mesh  moe.Mesh
	links observe.Links
	ex    *tensor.Exec
	*state.TrainState

	guards
	vault       *state.Vault
	evaluator   *evaluator
	checkpoints *save.Checkpointer
	alarms      *state.Alarms
	watch       observe.Observers
	stored      []uint32    // checksums of a state from the vaults; nil: it is not from there
	routes      *routeTable // nil: none are recorded or replayed
}

// newRank creates a rank in the state before its first step. It is collective.
func newRank(j *Job, c *collective.Comm, ex *tensor.Exec, peak float64) (*rank, error) {
	if _, kept := c.Kept(); !kept {
		if j.late && j.resume == nil || j.started.Swap(false) {
			if err := j.openStart(); err != nil {
				return nil, err
			}
		}
		if err := j.agree(c); err != nil {
			return nil, err
		}
	}
	cfg := j.cfg
	r := &rank{job: j, comm: c, ex: ex, TrainState: &state.TrainState{Progress: j.progress.Clone()}}
	r.Progress.Text = j.corpus.Builtin
	r.alarms = &state.Alarms{Lead: r.lead(), Progress: &r.Progress, Report: j.report}
	r.alarms.Events.Folder, r.alarms.Events.Held = cfg.Out, j.Folder
	r.watch.Rates = observe.NewMeter(cfg, peak)
	if r.lead() {
		j.meter.Store(r.watch.Rates)
	}
	if err := r.build(); err != nil {
		return nil, err
	}
	r.First, r.links = r.mesh.World.Rank() == 0, observe.NewLinks(c, r.mesh, r.Pipe)
	sizeArenas(cfg, r.Models(), ex, cfg.LayoutOrDefault(c.Size()), len(r.mesh.World.Hosts()))
	r.watch.Operands = observe.NewOperandMeter(cfg.RecordEvery, j.Disturb, ex, r.Models(), r.First)
	ex.Progress = c.Progress()
	for _, c := range r.links {
		c.SetHelper(ex)
	}
	rule, err := cfg.Optimizer.Rule()
	if err != nil {
		return nil, err
	}
	if r.vault, err = state.NewVault(c.Vault(), cfg.Model, optim.StateBytes(rule, r.Groups())); err != nil {
		return nil, err
	}
	if cfg.Optimizer.QKClip > 0 {
		for _, m := range r.Models() {
			m.RecordScores()
		}
	}
	r.Optim = optim.New(ex, r.Groups(), c, rule, r.vault.States...)
	r.Optim.ClipNorm = cfg.Optimizer.ClipNorm
	r.Balancer = state.NewBalancer(c, ex, r.Routers(), cfg.Model)
	text, err := j.loader(r.mesh.World.Rank() / r.mesh.Layout.Sharers())
	if err != nil {
		return nil, err
	}
	r.Data = state.NewDataLoader(cfg, text, j.separator, c.Size())
	if r.routes, err = newRouteTable(r); err != nil {
		return nil, err
	}
	r.Data.Routes = r.routes.pass
	r.guards = newGuards(r)
	r.addObservers()
	if err := r.addTasks(); err != nil {
		return nil, err
	}
	fault.Point(fault.InStart)
	if err := r.begin(); err != nil {
		return nil, err
	}
	r.vault.Begun = r.Progress.Step
	return r, r.guards.state.Begin(r.stored)
}

// newMesh divides the ranks. It is collective.
func newMesh(cfg config.Config, c *collective.Comm) (moe.Mesh, error) {
	l := cfg.LayoutOrDefault(c.Size())
	if cfg.RoutedExperts() == 0 {
		shared := l
		l = mesh.Default(c.Size())
		l.CP, l.TP, l.DPShard = shared.CP, shared.TP, l.World/shared.Sharers()
	}
	m, err := moe.NewMesh(c, l)
	m.FSDP, m.Cut = cfg.FSDP, optim.Cut(estimate.Rule(cfg))
	return m, err
}

// newModel creates this rank's part of a stage. It is collective.
func newModel(cfg config.Config, mesh moe.Mesh, stage moe.Stage) (*moe.Model, error) {
	precision, err := cfg.Recipe()
	if err != nil {
		return nil, err
	}
	var exchange ep.Exchange
	if cfg.Model.MoELayers() > 0 {
		options, err := cfg.Exchange()
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
	model.ChainPasses = cfg.ChainPasses
	model.Recompute, err = moe.ParseRecompute(cfg.Recompute)
	return model, err
}

// addObservers creates the observers of steps.
func (r *rank) addObservers() {
	w, j := &r.watch, r.job
	begin := time.Now()
	w.Profiler = observe.NewProfiler(func() time.Duration { return time.Since(begin) }, r.links.Met)
	r.ex.Profile = w.Profiler.Timer
	w.Recorder = &observe.Recorder{
		Cfg: &j.cfg, Folder: j.Folder, Cores: j.cores, BytesPerToken: j.bytesPerToken,
		Comm: r.comm, Peers: r.mesh.World, Ex: r.ex, State: r.TrainState, Alarms: r.alarms,
		Operands: w.Operands, Profiler: w.Profiler, Rates: w.Rates,
	}
}

// addTasks creates the work between steps. It is collective.
func (r *rank) addTasks() error {
	j, w := r.job, &r.watch
	windows, err := j.windows()
	if err != nil {
		return err
	}
	r.evaluator = &evaluator{
		job: j, comm: r.comm, readers: r.mesh.World, ex: r.ex, state: r.TrainState,
		recorder: w.Recorder, windows: windows,
	}
	config, err := config.TOML(j.cfg)
	if err != nil {
		return err
	}
	saver, err := save.NewSaver(j.cfg, j.tokenizerFile, j.files, j.Folder, r.comm)
	r.checkpoints = &save.Checkpointer{
		Cfg: j.cfg, Report: j.report, Lead: r.lead(), State: r.TrainState, Guard: r.guards.state,
		Recorder: w.Recorder, Alarms: r.alarms, Saver: saver, Clock: j.clock,
		Config: config,
	}
	return err
}

// storeState stores the state after the last step in the vault, where it survives this process. It
// stores the record of the step first.
func (r *rank) storeState() error {
	if !r.vault.Heals() {
		return r.watch.Recorder.Show()
	}
	if err := r.watch.Recorder.Push(); err != nil {
		return err
	}
	n := state.Notes{Run: r.Progress.Run, Progress: r.Snapshot(), Peak: r.watch.Rates.Peak, Sums: r.guards.state.Sums()}
	for _, route := range r.Balancer.Routings {
		n.Biases = append(n.Biases, route.Bias.F32())
	}
	return r.vault.Store(n)
}

// lead reports whether this rank reports for all.
func (r *rank) lead() bool { return r.comm.Rank() == 0 }

// Pipelines: the ranks of a run are divided into stages, and each rank runs its part of a schedule.

// buildPipeline creates this rank's stages and the executor of its list. It is collective.
func buildPipeline(cfg config.Config, c *collective.Comm) (*pipe.Rank, error) {
	plan, err := cfg.PipelinePlan(c.Size())
	if err != nil {
		return nil, err
	}
	return plan.Build(c, cfg.LayoutOrDefault(c.Size()), estimate.MessageBytes(cfg, c.Size()), func(on moe.Mesh, stage moe.Stage) (*moe.Model, error) {
		on.FSDP, on.Cut = cfg.FSDP, optim.Cut(estimate.Rule(cfg))
		return newModel(cfg, on, stage)
	})
}

// build creates this rank's part of the model. It is collective.
func (r *rank) build() (err error) {
	cfg := r.job.cfg
	if cfg.Pipelined() {
		if r.Pipe, err = buildPipeline(cfg, r.comm); err == nil {
			r.mesh, r.Model = r.Pipe.Mesh, r.Pipe.Models[0]
		}
		return err
	}
	if r.mesh, err = newMesh(cfg, r.comm); err != nil {
		return err
	}
	if r.Model, err = newModel(cfg, r.mesh, cfg.Model.Whole()); err == nil {
		r.mesh = r.Model.Mesh()
	}
	return err
}

// activationPeak returns the maximum bytes that passes have held.
func (r *rank) activationPeak() int {
	if r.Pipe != nil {
		return r.Pipe.ActivationPeak(r.ex)
	}
	return moe.ActivationPeak(r.ex, r.Model)
}

// guards holds the guards of a rank.
type guards struct {
	state     *guard.State
	gradients *guard.Gradients
}

// newGuards creates the guards of a rank that has a model, an optimizer and data.
func newGuards(r *rank) guards {
	cfg := &r.job.cfg.Guard
	lost := state.Lost{Comm: r.comm, Progress: &r.Progress, Vault: r.vault, Alarms: r.alarms}
	return guards{
		state:     &guard.State{Lost: lost, Every: cfg.Every, Ex: r.ex, State: r.TrainState},
		gradients: &guard.Gradients{Lost: lost, Guard: *cfg, Ex: r.ex, Optim: r.Optim},
	}
}

// judge decides what to do with the gradients of an attempt. It is collective.
func (g *guards) judge(a guard.Attempt) (guard.Verdict, error) {
	if a.Totals.Damaged > 0 {
		if again, err := g.state.Judge(); again || err != nil {
			return guard.ComputeAgain, err
		}
	}
	return g.gradients.Judge(a)
}
