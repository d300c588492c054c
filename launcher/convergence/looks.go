package convergence

// A comparison from look to look: train the seeds up to a look, judge, go on with undecided arms.

import (
	"context"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"spmoe/launcher/convergence/design"
	"spmoe/launcher/record"
	"spmoe/launcher/trainer/events"
)

// study holds the finished runs of a comparison.
type study struct {
	*Comparison
	plan     string // SHA-256 of the plan
	progress *progress
	tasks    []task
	logs     []*record.Log // of tasks
}

// Run trains the runs that are not finished yet and compares them, up to the look at which no arm
// is undecided. If ctx ends, it stops with [trainer.ErrInterrupted], and the next Run continues.
// Check must have succeeded.
func (c *Comparison) Run(ctx context.Context) (Result, error) {
	plan, err := c.saveFolder()
	if err != nil {
		return Result{}, err
	}
	s := &study{Comparison: c, plan: plan, progress: newProgress(c)}
	defer s.progress.close()
	return s.run(ctx)
}

func (s *study) run(ctx context.Context) (Result, error) {
	open, from := s.Recipes, 0 // the baseline and undecided recipes
	for i := 0; ; i++ {
		look := s.Design.Looks[i]
		tasks := s.tasksOf(open, from, look.Seeds)
		s.progress.add(tasks)
		if err := s.train(ctx, tasks); err != nil {
			return Result{}, err
		}
		result, err := s.judge()
		if err != nil || look.Seeds == s.Design.Seeds() {
			return result, err
		}
		s.progress.look(i+1, result)
		if s.Looked != nil {
			if err := s.Looked(result); err != nil {
				return Result{}, err
			}
		}
		if open, from = s.undecided(result), look.Seeds; len(open) == 1 {
			return result, nil // only the baseline is left
		}
	}
}

// judge compares the finished runs.
func (s *study) judge() (Result, error) {
	result, err := s.compare(s.tasks, s.logs)
	result.Plan = s.plan
	return result, err
}

// undecided returns the baseline and the recipes that a result leaves undecided. Recipes whose
// baseline has diverged are not among them: further seeds cannot decide those.
func (s *study) undecided(r Result) (open []Recipe) {
	for i, arm := range r.Arms {
		if i == 0 || arm.Verdict == Undecided && r.failure(arm) == "" {
			open = append(open, s.Recipes[indexOf(s.Recipes, arm.Name)])
		}
	}
	return open
}

// train trains runs and adds them to the finished ones.
func (s *study) train(ctx context.Context, tasks []task) error {
	logs := make([]*record.Log, len(tasks))
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(s.Jobs)
	for i, t := range tasks {
		group.Go(func() (err error) {
			if within.Err() != nil {
				return events.ErrInterrupted
			}
			logs[i], err = s.Comparison.run(within, t, s.progress)
			return err
		})
	}
	err := group.Wait()
	s.tasks, s.logs = append(s.tasks, tasks...), append(s.logs, logs...)
	return err
}

// pilotFolder is the folder of the pilot in that of the comparison.
const pilotFolder = "pilot"

// Pilot returns a comparison of all precisions with a number of seeds that c does not use. c needs
// no design yet.
func (c *Comparison) Pilot(seeds int) (*Comparison, error) {
	if _, err := c.existingPlan(); err != nil {
		return nil, err
	}
	pilot := *c
	pilot.Out = filepath.Join(c.Out, pilotFolder)
	pilot.Design = design.Fixed(pilotMargin, seeds)
	pilot.Config.Seed += MaxSeeds
	return &pilot, nil
}

// pilotMargin is of no effect: a pilot has no verdict.
const pilotMargin = 0.5
