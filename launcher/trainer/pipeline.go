package trainer

// Pipelines: the ranks of a run are divided into stages, and each rank runs its part of a schedule.

import (
	"errors"
	"fmt"

	"spmoe/collective"
	"spmoe/collective/pipeline"
	"spmoe/moe"
	"spmoe/moe/pipe"
)

// pipelined reports whether the model is cut into stages.
func (c Config) pipelined() bool { return c.PP > 1 }

// Pipeline returns the schedule of a step of some ranks, and the stages of the model.
func (c Config) Pipeline(ranks int) (*pipeline.Schedule, []moe.Stage, error) {
	l, err := c.Layout(ranks)
	if err != nil {
		return nil, nil, err
	}
	microbatches := c.PPMicrobatches
	if microbatches < 1 {
		microbatches = c.passes(ranks)
	}
	if n := max(l.Batch()*microbatches, 1); c.Batch < 1 || c.Batch%n != 0 {
		return nil, nil, fmt.Errorf("batch is %d: give a multiple of the micro-batches of all ranks with the same stage, %d", c.Batch, n)
	}
	s, err := pipeline.New(c.PPSchedule, c.PP, 0, microbatches)
	if err != nil {
		return nil, nil, fmt.Errorf("pp_schedule: %w", err)
	}
	stages, err := c.Model.Stages(s.Stages, c.Seq)
	if err != nil {
		return nil, nil, fmt.Errorf("pp is %d: %w", c.PP, err)
	}
	return s, stages, nil
}

// checkPipeline returns an error if the model cannot be trained in stages.
func (c Config) checkPipeline(ranks int) error {
	if !c.pipelined() {
		if c.PPMicrobatches != 0 {
			return fmt.Errorf("pp_microbatches is %d: it needs pp; without, give micro_batch", c.PPMicrobatches)
		}
		return nil
	}
	if _, err := c.Layout(ranks); err != nil {
		return nil // checkReplicas returns it
	}
	var errs []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	must(c.PPMicrobatches >= 0, "pp_microbatches is %d: give 0 (as micro_batch says) or more", c.PPMicrobatches)
	if _, _, err := c.Pipeline(ranks); err != nil {
		errs = append(errs, err)
	}
	must(c.SampleTokens == 0, "sample_tokens is %d: a pipeline writes no text: give 0, and launcher generate afterwards", c.SampleTokens)
	must(c.RecordEvery == 0, "record_every is %d: a pipeline records loads only: give 0", c.RecordEvery)
	return errors.Join(errs...)
}

// buildPipeline creates this rank's stages and the executor of its list. It is collective.
func buildPipeline(cfg Config, c *collective.Comm) (*pipe.Rank, error) {
	s, stages, err := cfg.Pipeline(c.Size())
	if err != nil {
		return nil, err
	}
	plan, err := pipe.NewPlan(s, cfg.Model.MTPLayers > 0)
	if err != nil {
		return nil, err
	}
	return plan.Build(c, cfg.layout(c.Size()), stages, cfg.messageBytes(c.Size()), func(on moe.Mesh, stage moe.Stage) (*moe.Model, error) {
		return newModel(cfg, on, stage)
	})
}

// build creates this rank's part of the model. It is collective.
func (r *rank) build() (err error) {
	cfg := r.job.cfg
	if cfg.pipelined() {
		if r.pipe, err = buildPipeline(cfg, r.comm); err == nil {
			r.mesh, r.model = r.pipe.Mesh, r.pipe.Models[0]
		}
		return err
	}
	if r.mesh, err = newMesh(cfg, r.comm); err != nil {
		return err
	}
	if r.model, err = newModel(cfg, r.mesh, cfg.Model.Whole()); err == nil {
		r.mesh = r.model.Mesh()
	}
	return err
}

// passes computes the gradients of a step. It is collective.
func (r *rank) passes() (sum totals, err error) {
	if r.pipe != nil {
		loss, err := r.pipe.Run(r.ex, r.data.microBatches(r.draws()))
		sum.add(loss)
		return sum, err
	}
	for i := range r.data.passes() {
		loss, err := r.model.Train(r.ex, r.data.microBatch(i, r.draws())) // forward and backward
		if err != nil {
			return sum, err
		}
		sum.add(loss)
	}
	return sum, nil
}

// comms yields the communicators of the rank, each once.
func (r *rank) comms(yield func(*collective.Comm) bool) {
	if r.pipe != nil && (!yield(r.comm) || !yield(r.pipe.Line)) {
		return
	}
	r.mesh.Comms(yield)
}

// draws names the random numbers of the current step.
func (r *rank) draws() stepDraws {
	return stepDraws{seed: uint32(r.job.cfg.Seed), step: uint32(r.progress.Step + 1)}
}
