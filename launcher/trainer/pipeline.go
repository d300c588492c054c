package trainer

// Pipelines: the ranks of a run are divided into stages, and each rank runs its part of a schedule.

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"spmoe/collective"
	"spmoe/collective/pipeline"
	"spmoe/launcher/system"
	"spmoe/moe"
	"spmoe/moe/optim"
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
	return c.divide(microbatches)
}

// divide returns the schedule of some micro-batches, and the stages.
func (c Config) divide(microbatches int) (s *pipeline.Schedule, stages []moe.Stage, err error) {
	perRank := c.PPStages
	if c.PPLayout != "" {
		if stages, err = c.Model.ParseStages(c.PPLayout); err != nil {
			return nil, nil, fmt.Errorf("pp_layout: %w", err)
		}
		if n := len(stages); perRank == 0 && n%c.PP == 0 {
			perRank = n / c.PP
		} else if n != perRank*c.PP {
			return nil, nil, fmt.Errorf("pp_layout %.60q has %d stages: give the same number to each of the %d ranks (pp)", c.PPLayout, n, c.PP)
		}
	}
	if isSchedule(c.PPSchedule) {
		s, err = pipeline.New(c.PPSchedule, c.PP, perRank, microbatches)
	} else {
		s, err = c.readSchedule(perRank, microbatches)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("pp_schedule: %w", err)
	}
	if stages == nil {
		if stages, err = c.Model.Stages(s.Stages, c.Seq); err != nil {
			return nil, nil, fmt.Errorf("pp is %d: %w", c.PP, err)
		}
	}
	return s, stages, nil
}

// isSchedule reports whether a schedule of that name exists. Other names are those of files, unless
// they look like neither.
func isSchedule(name string) bool {
	known := func(n string) bool { return strings.EqualFold(n, name) }
	return slices.ContainsFunc(pipeline.Names(), known) || !strings.ContainsAny(name, "./\\")
}

// ReadSchedules reads the schedules of a file, in the order of their titles.
func ReadSchedules(path string) ([]*pipeline.Schedule, error) {
	file, _, err := system.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all, err := pipeline.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return all, nil
}

// readSchedule returns the schedule in a file that has lists for the ranks and micro-batches of the
// run. It checks the lists.
func (c Config) readSchedule(perRank, microbatches int) (*pipeline.Schedule, error) {
	all, err := ReadSchedules(c.PPSchedule)
	if err != nil {
		return nil, err
	}
	var titles []string
	for _, s := range all {
		if len(s.Ranks) == c.PP && s.Microbatches == microbatches && (perRank == 0 || s.Stages == perRank*c.PP) {
			if err := s.Check(); err != nil {
				return nil, fmt.Errorf("%s: %w", c.PPSchedule, err)
			}
			return s, nil
		}
		titles = append(titles, s.Title())
	}
	want := fmt.Sprintf("%d ranks (pp) and %d micro-batches", c.PP, microbatches)
	if perRank > 0 {
		want += fmt.Sprintf(" with %d stages", perRank*c.PP)
	}
	return nil, fmt.Errorf("%s has no lists for %s: it has %.300s", c.PPSchedule, want, strings.Join(titles, "; "))
}

// checkPipeline returns an error if the model cannot be trained in stages.
func (c Config) checkPipeline(ranks int) error {
	if !c.pipelined() {
		if c.PPLayout != "" || c.PPStages != 0 {
			return fmt.Errorf("pp_layout is %q and pp_stages_per_rank %d: they need pp", c.PPLayout, c.PPStages)
		}
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
	return errors.Join(errs...)
}

// pipelinePlan returns the plan of a step of some ranks.
func (c Config) pipelinePlan(ranks int) (*pipe.Plan, error) {
	s, stages, err := c.Pipeline(ranks)
	if err != nil {
		return nil, err
	}
	plan, err := pipe.NewPlan(s, stages)
	if err == nil {
		plan.Overlap = c.PPOverlap
	}
	return plan, err
}

// buildPipeline creates this rank's stages and the executor of its list. It is collective.
func buildPipeline(cfg Config, c *collective.Comm) (*pipe.Rank, error) {
	plan, err := cfg.pipelinePlan(c.Size())
	if err != nil {
		return nil, err
	}
	return plan.Build(c, cfg.LayoutOrDefault(c.Size()), cfg.messageBytes(c.Size()), func(on moe.Mesh, stage moe.Stage) (*moe.Model, error) {
		on.FSDP, on.Cut = cfg.FSDP, optim.Cut(cfg.rule())
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

// activationPeak returns the maximum bytes that passes have held.
func (r *rank) activationPeak() int {
	if r.pipe != nil {
		return r.pipe.ActivationPeak(r.ex)
	}
	return r.model.ActivationPeak(r.ex)
}
