package config

// How experts and sequences divide among ranks.

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"spmoe/collective"
	"spmoe/collective/pipeline"
	"spmoe/launcher/system"
	"spmoe/moe"
	"spmoe/moe/pipe"
)

// divides returns an error if experts or sequences do not divide evenly among ranks. It names all
// that must change, and the numbers of ranks that need no other change.
func (c Config) divides(ranks int) error {
	if c.Pipelined() || c.SharesSequences() {
		return nil // see checkPipeline and checkContext
	}
	experts := c.RoutedExperts()
	l, err := c.Layout(ranks)
	uneven, short := err == nil && l.EP == ranks && experts%ranks != 0, c.Batch < 1 || c.Batch%ranks != 0
	use, good := "", c.rankCounts(experts)
	if len(good) > 0 {
		use = "use -np " + orList(good)
	}
	nextBatch := max(1, (c.Batch+ranks-1)/ranks) * ranks
	switch {
	case uneven && short && use != "":
		return fmt.Errorf("-np %d: %[1]d ranks divide neither %d experts nor a batch of %d: %s", ranks, experts, c.Batch, use)
	case uneven:
		others := slices.DeleteFunc(divisorsOf(experts), func(n int) bool { return slices.Contains(good, n) })
		if len(others) > 0 {
			use = strings.TrimPrefix(use+", or", ", or")
			use += fmt.Sprintf(" -np %s with a --batch that it divides", orList(others))
		}
		return fmt.Errorf("-np %d: %[1]d ranks do not divide %d experts: %s", ranks, experts, strings.TrimSpace(use))
	case short && use != "" && ranks > 1:
		return fmt.Errorf("batch is %d: give a multiple of the %d ranks, such as %d, or %s", c.Batch, ranks, nextBatch, use)
	case short:
		return fmt.Errorf("batch is %d: give a multiple of the %d ranks, such as %d", c.Batch, ranks, nextBatch)
	}
	return nil
}

// rankCounts lists the numbers of ranks that divide both experts, unless there are none, and the
// batch.
func (c Config) rankCounts(experts int) (all []int) {
	if c.Batch < 1 {
		return nil
	}
	for _, n := range divisorsOf(max(experts, 0)) {
		if c.Batch%n == 0 {
			all = append(all, n)
		}
	}
	if experts == 0 {
		for n := 1; n <= min(c.Batch, collective.MaxRanks); n++ {
			if c.Batch%n == 0 {
				all = append(all, n)
			}
		}
	}
	return all
}

// divisorsOf lists the divisors of n that can be a number of ranks.
func divisorsOf(n int) (all []int) {
	for d := 1; d <= min(n, collective.MaxRanks); d++ {
		if n%d == 0 {
			all = append(all, d)
		}
	}
	return all
}

// orList joins numbers as a sentence does, the first ten of them: "1, 2 or 4".
func orList(numbers []int) string {
	const most = 10
	var words []string
	for _, n := range numbers[:min(len(numbers), most)] {
		words = append(words, strconv.Itoa(n))
	}
	if len(numbers) > most {
		words = slices.Concat(words[:most-1], []string{strconv.Itoa(numbers[len(numbers)-1])})
	}
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
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
	if IsSchedule(c.PPSchedule) {
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

// IsSchedule reports whether a schedule of that name exists. Other names are those of files, unless
// they look like neither.
func IsSchedule(name string) bool {
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
	if !c.Pipelined() {
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
