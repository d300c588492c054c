package trainer

// The memory of the ranks of a pipeline: each has stages of its own, and several passes in flight.

import (
	"spmoe/collective/mesh"
	"spmoe/moe"
	"spmoe/moe/pipe"
)

// holding is what a rank has of a model.
type holding struct {
	stages map[int]moe.Stage // by their numbers
	place  int
	plan   *pipe.Plan // nil: there is no pipeline
}

// holdings returns what the ranks of a pipeline hold, by their place in it. With an error, which
// says why there is no such pipeline, they are those of one stage.
func (c Config) holdings(ranks int) ([]holding, error) {
	whole := []holding{{stages: map[int]moe.Stage{0: c.Model.Whole()}}}
	if !c.pipelined() {
		return whole, nil
	}
	plan, err := c.pipelinePlan(ranks)
	if err != nil {
		return whole, err
	}
	s, stages := plan.Schedule, plan.Stages()
	all := make([]holding, len(s.Ranks))
	for place := range all {
		all[place] = holding{stages: map[int]moe.Stage{}, place: place, plan: plan}
	}
	for stage, place := range s.Holders() {
		all[place].stages[stage] = stages[stage]
	}
	return all, nil
}

// mostStages returns the most stages of a rank.
func (c Config) mostStages(ranks int) int64 {
	all, _ := c.holdings(ranks)
	most := 0
	for _, h := range all {
		most = max(most, len(h.stages))
	}
	return int64(most)
}

// saved returns the bytes that all passes of a rank save at once, if a pass saves bytes(stage,
// split): see [pipe.Plan.Held].
func (h holding) saved(bytes func(stage int, split bool) float64) float64 {
	if h.plan == nil {
		return bytes(0, false)
	}
	return h.plan.Held(h.place, bytes)
}

// boxes returns the number of boxes for messages on a rank of some hosts, with the copies of
// messages on their way to other hosts.
func (h holding) boxes(hosts int) int {
	switch {
	case h.plan == nil:
		return 0
	case hosts > 1:
		return 2 * h.plan.Boxes()
	}
	return h.plan.Boxes()
}

// RankMemory returns what ranks of a layout need if they are on some hosts, in equal numbers: one
// for each place in the pipeline.
func (c Config) RankMemory(l mesh.Layout, hosts int) (all []Memory) {
	for _, plan := range c.plansOf(l, hosts) {
		var sum Memory
		for _, p := range plan {
			sum = sum.Plus(p.Memory)
		}
		all = append(all, sum)
	}
	return all
}

// AllMemory returns what all ranks need together if they are on one host.
func (c Config) AllMemory(ranks int) (sum Memory) {
	l := c.LayoutOrDefault(ranks)
	for _, m := range c.RankMemory(l, 1) {
		sum = sum.Plus(m.Times(l.Batch()))
	}
	return sum
}

// Times returns the memory of n ranks.
func (m Memory) Times(n int) Memory {
	by := int64(n)
	return Memory{
		product(m.Weights, by), product(m.Gradients, by), product(m.Optimizer, by),
		product(m.Activations, by), product(m.Snapshot, by), product(m.Process, by),
	}
}

// plansOf returns the parts of the model on a rank of each place in the pipeline.
func (c Config) plansOf(l mesh.Layout, hosts int) (plans [][]Part) {
	c.SetLayout(l)
	all, _ := c.holdings(l.World)
	for _, h := range all {
		plans = append(plans, c.planOf(h, l, hosts))
	}
	return plans
}

// messageBytes returns the size of a message between stages: a tensor of a pass, [tokens, dim].
func (c Config) messageBytes(ranks int) int {
	dtype, err := c.DType()
	if err != nil {
		return 0
	}
	return c.PassTokens(ranks) * c.Model.Dim * dtype.Size()
}
