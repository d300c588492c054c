package config

// How experts and sequences divide among ranks.

import (
	"fmt"
	"strconv"
	"strings"

	"spmoe/collective"
	"spmoe/collective/pipeline"
	"spmoe/moe"
	"spmoe/moe/pipe"
)

// divides returns an error if experts or sequences do not divide evenly among ranks. It names the
// numbers of ranks that need no other change.
func (c Config) divides(ranks int) error {
	if c.Pipelined() || c.SharesSequences() {
		return nil // see checkPipeline and checkContext
	}
	experts := c.RoutedExperts()
	l, err := c.Layout(ranks)
	if err == nil && l.EP == ranks && experts%ranks != 0 {
		return fmt.Errorf("-np %d: %[1]d ranks do not divide %d experts: use -np %s and a --batch that it divides", ranks, experts, divisors(experts, experts))
	}
	if c.Batch%ranks != 0 {
		next := (c.Batch/ranks + 1) * ranks
		return fmt.Errorf("batch is %d: give a multiple of the %d ranks, such as %d, or use -np %s", c.Batch, ranks, next, divisors(c.Batch, experts))
	}
	return nil
}

// divisors lists the numbers of ranks that divide both a and b, which may be 0; the first ten of
// many.
func divisors(a, b int) string {
	const most = 10
	var words []string
	for n := 1; n <= collective.MaxRanks && len(words) < most; n++ {
		if a%n == 0 && b%n == 0 {
			words = append(words, strconv.Itoa(n))
		}
	}
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Pipelined reports whether the model is cut into stages.
func (c Config) Pipelined() bool { return c.PP > 1 }

// Pipeline returns the schedule of a step of some ranks, and the stages of the model.
func (c Config) Pipeline(ranks int) (*pipeline.Schedule, []moe.Stage, error) {
	l, err := c.Layout(ranks)
	if err != nil {
		return nil, nil, err
	}
	microbatches := c.PPMicrobatches
	if microbatches < 1 {
		microbatches = c.Passes(ranks)
	}
	if n := max(l.Batch()*microbatches, 1); c.Batch < 1 || c.Batch%n != 0 {
		return nil, nil, fmt.Errorf("batch is %d: give a multiple of the micro-batches of all ranks with the same stage, %d", c.Batch, n)
	} else if c.SharesSequences() && c.Batch != n {
		return nil, nil, fmt.Errorf("pp_microbatches is %d: the ranks that share sequences (%s) have one sequence in a micro-batch: give %d, or 0", microbatches, l.SharersName(), c.Batch/l.Batch())
	}
	if most := c.Model.Layers + 2; c.PP > most { // their lists would take long, for nothing
		_, err := c.Model.Stages(c.PP, c.Seq)
		return nil, nil, fmt.Errorf("pp is %d: %w", c.PP, err)
	}
	s, err := pipeline.New(c.PPSchedule, c.PP, c.PPStages, microbatches)
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
	if !c.Pipelined() {
		if c.PPStages != 0 {
			return fmt.Errorf("pp_stages_per_rank is %d: it needs pp", c.PPStages)
		}
		if c.PPMicrobatches != 0 {
			return fmt.Errorf("pp_microbatches is %d: it needs pp; without, give micro_batch", c.PPMicrobatches)
		}
		return nil
	}
	if _, err := c.Layout(ranks); err != nil {
		return nil // checkReplicas returns it
	}
	_, _, err := c.Pipeline(ranks)
	return err
}

// PipelinePlan returns the plan of a step of some ranks.
func (c Config) PipelinePlan(ranks int) (*pipe.Plan, error) {
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
