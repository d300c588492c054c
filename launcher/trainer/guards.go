package trainer

// The guards of a rank, and what a step calls of them, in this order.

// guards holds the guards of a rank.
type guards struct {
	activations *activationGuard
	gradients   *gradientGuard
	memory      *memoryGuard
	stateGuard  *stateGuard
	constants   *constantGuard
}

// newGuards creates the guards of a rank that has a model, an optimizer and data.
func newGuards(r *rank) guards {
	cfg, p := &r.job.cfg.Guard, &r.progress
	return guards{
		activations: &activationGuard{comm: r.comm, ex: r.ex, models: r.models(), progress: p, alarms: r.alarms, period: cfg.Activations},
		gradients:   &gradientGuard{Guard: *cfg, comm: r.comm, ex: r.ex, optim: r.optim, progress: p, alarms: r.alarms},
		memory:      &memoryGuard{comm: r.comm, peers: r.mesh.World, layout: r.mesh.Layout, ex: r.ex, state: r.trainState, alarms: r.alarms, period: cfg.Memory},
		stateGuard:  &stateGuard{on: cfg.Memory > 0, comm: r.comm, optim: r.optim, progress: p, vault: r.vault, alarms: r.alarms},
	}
}

// begin begins to guard the state that a rank has before its first step. The ranks must meet before
// that step: see memoryGuard.take.
func (g *guards) begin(r *rank) {
	g.stateGuard.begin()
	g.memory.take(r.progress.Step)
	g.constants = newConstantGuard(r)
	g.stateGuard.constants = g.constants
	g.constants.begin()
}

// beforePasses turns the model's seals on or off for the step.
func (g *guards) beforePasses() { g.activations.begin() }

// beforeReduce compares this rank's gradients before those of other ranks overwrite them. It is
// collective.
func (g *guards) beforeReduce() error {
	if err := g.activations.meet(); err != nil {
		return err
	}
	g.activations.check(false)
	return nil
}

// afterReduce returns 1 if memory of this rank has changed in this attempt, and 0 otherwise.
func (g *guards) afterReduce() (damaged float64, err error) {
	g.activations.check(true)
	changed, err := g.constants.check()
	g.activations.found = append(g.activations.found, changed...)
	return g.activations.damaged(), err
}

// judge decides what to do with the gradients of an attempt. It is collective.
func (g *guards) judge(a attempt) (gradientVerdict, error) {
	again, err := g.activations.judge(a)
	if err == nil && !again {
		again, err = g.memory.check()
	}
	if err != nil || again {
		return computeAgain, err
	}
	verdict, err := g.gradients.judge(a)
	if err == nil && g.gradients.disagree() {
		err = g.memory.republish()
	}
	return verdict, err
}

// afterUpdate takes the checksums of the weights after a step, and reports what the update has
// found in the state that it read. It is collective.
func (g *guards) afterUpdate(step int) error {
	g.memory.take(step)
	return g.stateGuard.afterUpdate()
}

// beforeCount restores what has changed of the progress, which the step is added to.
func (g *guards) beforeCount() error {
	_, err := g.constants.progress.check()
	return err
}

// afterCount takes copies of what the end of a step has changed: counters, and selection biases.
func (g *guards) afterCount() {
	g.constants.next()
	g.memory.takeBiases()
}
