package trainer

// The guards of a rank, and what a step calls of them, in this order.

import (
	"spmoe/launcher/trainer/guard"
)

// newConstantGuard lists the memory of a rank.
func newConstantGuard(r *rank) *guard.ConstantGuard {
	cfg := &r.job.cfg
	g := &guard.ConstantGuard{Ex: r.ex, Data: r.Data, On: cfg.Guard.Memory > 0 || cfg.Guard.Activations > 0 || cfg.Guard.Replay > 0}
	for _, m := range r.Models() {
		m.Constants(g.Settings.List)
	}
	r.Data.Constants(g.Settings.List)
	g.Settings.List("the division of the ranks", &r.mesh.Layout, &r.First, &r.memory.Layout)
	g.Settings.List("the settings of the guards", &r.gradients.Guard, &r.activations.Period, &r.memory.Period, &r.stateGuard.On)
	g.Update.List("the configuration", cfg)
	g.Update.List("the settings of the balancer", &r.Balancer.Experts, r.Balancer.Layers)
	r.Optim.Constants(g.Update.List)
	r.Optim.Counters(g.Counters.List)
	g.Progress.List("the progress", &r.Progress)
	return g
}

// guards holds the guards of a rank.
type guards struct {
	activations *guard.Activations
	gradients   *guard.Gradients
	memory      *guard.Weights
	stateGuard  *guard.OptimizerState
	constants   *guard.ConstantGuard
}

// newGuards creates the guards of a rank that has a model, an optimizer and data.
func newGuards(r *rank) guards {
	cfg, p := &r.job.cfg.Guard, &r.Progress
	return guards{
		activations: &guard.Activations{Comm: r.comm, Ex: r.ex, Models: r.Models(), Progress: p, Alarms: r.alarms, Period: cfg.Activations},
		gradients:   &guard.Gradients{Guard: *cfg, Comm: r.comm, Ex: r.ex, Optim: r.Optim, Progress: p, Alarms: r.alarms},
		memory:      &guard.Weights{Comm: r.comm, Peers: r.mesh.World, Layout: r.mesh.Layout, Ex: r.ex, State: r.TrainState, Alarms: r.alarms, Period: cfg.Memory},
		stateGuard:  &guard.OptimizerState{On: cfg.Memory > 0, Comm: r.comm, Optim: r.Optim, Progress: p, Vault: r.vault, Alarms: r.alarms},
	}
}

// begin begins to guard the state that a rank has before its first step. The ranks must meet before
// that step: see MemoryGuard.take.
func (g *guards) begin(r *rank) {
	g.stateGuard.Begin()
	g.memory.Take(r.Progress.Step)
	g.constants = newConstantGuard(r)
	g.stateGuard.Constants = g.constants
	g.constants.Begin()
}

// beforePasses turns the model's seals on or off for the step.
func (g *guards) beforePasses() { g.activations.Begin() }

// beforeReduce compares this rank's gradients before those of other ranks overwrite them. It is
// collective.
func (g *guards) beforeReduce() error {
	if err := g.activations.Meet(); err != nil {
		return err
	}
	g.activations.Check(false)
	return nil
}

// afterReduce returns 1 if memory of this rank has changed in this attempt, and 0 otherwise.
func (g *guards) afterReduce() (damaged float64, err error) {
	g.activations.Check(true)
	changed, err := g.constants.Check()
	g.activations.Found = append(g.activations.Found, changed...)
	return g.activations.Damaged(), err
}

// judge decides what to do with the gradients of an attempt. It is collective.
func (g *guards) judge(a guard.Attempt) (guard.Verdict, error) {
	again, err := g.activations.Judge(a)
	if err == nil && !again {
		again, err = g.memory.Check()
	}
	if err != nil || again {
		return guard.ComputeAgain, err
	}
	verdict, err := g.gradients.Judge(a)
	if err == nil && g.gradients.Disagree() {
		err = g.memory.Republish()
	}
	return verdict, err
}

// afterUpdate takes the checksums of the weights after a step, and reports what the update has
// found in the state that it read. It is collective.
func (g *guards) afterUpdate(step int) error {
	g.memory.Take(step)
	return g.stateGuard.AfterUpdate()
}

// beforeCount restores what has changed of the progress, which the step is added to.
func (g *guards) beforeCount() error {
	_, err := g.constants.Progress.Check()
	return err
}

// afterCount takes copies of what the end of a step has changed: counters, and selection biases.
func (g *guards) afterCount() {
	g.constants.Next()
	g.memory.TakeBiases()
}
