package trainer

// Pipelines: the ranks of a run are divided into stages, and each rank runs its part of a schedule.

import (
	"spmoe/collective"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/estimate"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/moe/pipe"
)

// buildPipeline creates this rank's stages and the executor of its list. It is collective.
func buildPipeline(cfg config.Config, c *collective.Comm) (*pipe.Rank, error) {
	plan, err := cfg.PipelinePlan(c.Size())
	if err != nil {
		return nil, err
	}
	return plan.Build(
		c,
		cfg.LayoutOrDefault(c.Size()),
		estimate.MessageBytes(cfg, c.Size()),
		func(on moe.Mesh, stage moe.Stage) (*moe.Model, error) {
			on.FSDP, on.Cut = cfg.FSDP, optim.Cut(estimate.Rule(cfg))
			return newModel(cfg, on, stage)
		},
	)
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
	return r.Model.ActivationPeak(r.ex)
}
