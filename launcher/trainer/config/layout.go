package config

// How the ranks of a run divide the model, as collective/mesh describes it.

import (
	"errors"
	"fmt"

	"spmoe/collective/mesh"
	"spmoe/moe"
)

// Layout returns how the ranks of the run divide the model. An error says which rule the settings
// break. The default layout may not fit the number of experts: see divides.
func (c Config) Layout(ranks int) (mesh.Layout, error) {
	d := mesh.Degrees{PP: c.PP, DPReplicate: c.DPReplicate, DPShard: c.DPShard, CP: c.CP, TP: c.TP, EP: c.EP}
	l, err := mesh.Resolve(ranks, d, mesh.Model{})
	if err == nil && l == mesh.Default(ranks) {
		return l, nil
	}
	return mesh.Resolve(ranks, d, mesh.Model{Experts: c.RoutedExperts(), Batch: c.Batch})
}

// RoutedExperts returns the number of routed experts per layer; 0: there are none.
func (c Config) RoutedExperts() int {
	if c.Model.MoELayers() == 0 {
		return 0
	}
	return max(c.Model.Experts, 0)
}

// LayoutOrDefault is Layout for a valid configuration. For an invalid one, it returns the
// default layout.
func (c Config) LayoutOrDefault(ranks int) mesh.Layout {
	l, err := c.Layout(ranks)
	if err != nil {
		return mesh.Default(max(ranks, 1))
	}
	return l
}

// SetLayout sets the configuration's layout.
func (c *Config) SetLayout(l mesh.Layout) {
	c.PP, c.DPReplicate, c.DPShard, c.CP, c.TP, c.EP = l.PP, l.DPReplicate, l.DPShard, l.Context(), l.Tensor(), l.EP
}

// Sharers returns the number of ranks that share each sequence.
func (c Config) Sharers() int { return c.sharing().Sharers() }

// SharesSequences reports whether there are several.
func (c Config) SharesSequences() bool { return c.Sharers() > 1 }

// sharing returns a layout with the degrees of sharing only.
func (c Config) sharing() mesh.Layout { return mesh.Layout{CP: c.CP, TP: c.TP} }

// DataRanks returns the number of ranks that read different sequences.
func (c Config) DataRanks(ranks int) int { return c.LayoutOrDefault(ranks).Batch() }

// checkReplicas returns an error if experts would have replicas that cannot give the bits of one
// rank, or if the layout is not legal.
func (c Config) checkReplicas(ranks int) error {
	l, err := c.Layout(ranks)
	var broken *mesh.Error
	if errors.As(err, &broken) && broken.Rule == mesh.RuleBatch {
		return nil // divides says so
	}
	if err != nil || l.Replicas() == 1 || c.RoutedExperts() == 0 {
		return err
	}
	recipe, err := c.Recipe()
	if err != nil {
		return err
	}
	return recipe.CheckReplicas()
}

// checkContext returns an error if ranks cannot share sequences.
func (c Config) checkContext(ranks int) error {
	if !c.SharesSequences() {
		return nil
	}
	if _, err := c.Layout(ranks); err != nil {
		var broken *mesh.Error
		if errors.As(err, &broken) && broken.Rule == mesh.RuleBatch {
			return err
		}
		return nil // checkReplicas says it
	}
	return c.CheckContext()
}

// CheckContext returns an error if ranks cannot share sequences, whatever their number.
func (c Config) CheckContext() error {
	if !c.SharesSequences() {
		return nil
	}
	l := c.sharing()
	var errs []error
	if c.MicroBatch > 1 {
		errs = append(errs, fmt.Errorf("micro_batch is %d: the ranks that share sequences (%s) have one sequence in a pass: give 0 or 1", c.MicroBatch, l.SharersName()))
	}
	if c.RecordRoutes || c.ReplayRoutes != "" {
		errs = append(errs, fmt.Errorf("%s is %d: routes are recorded and replayed by whole sequences: give cp 1 and tp 1", l.SharersName(), l.Sharers()))
	}
	if recipe, err := c.Recipe(); err == nil {
		errs = append(errs, recipe.CheckContext(c.Model, l, c.Seq))
	}
	return errors.Join(errs...)
}

// OnHosts returns an error if ranks on several hosts cannot train in the layout. first has the
// first rank of each host.
func (c Config) OnHosts(ranks int, first []int) error {
	l := c.LayoutOrDefault(ranks)
	for stage := range l.PP {
		on := l.OnHosts(stage, first)
		if len(on) == 1 {
			continue
		}
		where := fmt.Sprintf("stage %d (ranks %d to %d) is", stage, stage*l.StageRanks(), (stage+1)*l.StageRanks()-1)
		if l.PP == 1 {
			where = fmt.Sprintf("ranks 0 to %d are", ranks-1)
		}
		instead := fmt.Sprintf("or a --pp that is a multiple of %d", wholeStages(ranks, first))
		if err := moe.CheckSharers(l, on); err != nil {
			return fmt.Errorf("%s on several hosts: %w, %s", where, err, instead)
		}
		if plan, err := c.PipelinePlan(ranks); c.Pipelined() && err == nil && plan.Schedule.Holders()[plan.Schedule.Stages-1] == stage && plan.LastInFlight() > 1 {
			return fmt.Errorf("pp_schedule is %s, and %s on several hosts: the head's gradient is summed over hosts pass by pass, and this schedule has %d passes of the last stage in flight: give another pp_schedule, %s", c.PPSchedule, where, plan.LastInFlight(), instead)
		}
	}
	return nil
}

// wholeStages returns the least number of ranks of a pipeline with which each stage is on one host.
func wholeStages(ranks int, first []int) int {
	common := ranks
	for _, rank := range first {
		for rank > 0 {
			common, rank = rank, common%rank
		}
	}
	return ranks / common
}
