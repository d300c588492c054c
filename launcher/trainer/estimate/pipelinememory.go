package estimate

// The memory of the ranks of a pipeline: each has stages of its own, and several passes in flight.

import (
	"spmoe/collective/mesh"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/moe"
	"spmoe/moe/pipe"
)

// holding is what a rank has of a model.
type holding struct {
	stages map[int]moe.Stage // by their numbers
	place  int
	plan   *pipe.Plan // nil: there is no pipeline
}

// Holdings returns what the ranks of a pipeline hold, by their place in it. With an error, which
// says why there is no such pipeline, they are those of one stage.
func Holdings(c config.Config, ranks int) ([]holding, error) {
	whole := []holding{{stages: map[int]moe.Stage{0: c.Model.Whole()}}}
	if !c.Pipelined() {
		return whole, nil
	}
	plan, err := c.PipelinePlan(ranks)
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
func mostStages(c config.Config, ranks int) int64 {
	all, _ := Holdings(c, ranks)
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

// Boxes returns the number of boxes for messages on a rank of some hosts, with the copies of
// messages on their way to other hosts.
func (h holding) Boxes(hosts int) int {
	switch {
	case h.plan == nil:
		return 0
	case hosts > 1:
		return 2 * h.plan.Boxes()
	}
	return h.plan.Boxes()
}

// stageHosts returns on how many hosts the ranks of a stage are, if all ranks are on some hosts in
// equal numbers. Hosts that cut stages unevenly count as if each stage were on all of them.
func stageHosts(ranks, ofStage, hosts int) int {
	switch perHost := max(ranks/hosts, 1); {
	case perHost%ofStage == 0:
		return 1
	case ofStage%perHost == 0:
		return ofStage / perHost
	}
	return hosts
}

// RankMemory returns what ranks of a layout need if they are on some hosts, in equal numbers: one
// for each place in the pipeline.
func RankMemory(c config.Config, l mesh.Layout, hosts int) (all []events.Memory) {
	for _, plan := range PlansOf(c, l, hosts) {
		var sum events.Memory
		for _, p := range plan {
			sum = sum.Plus(p.Memory)
		}
		all = append(all, sum)
	}
	return all
}

// AllMemory returns what all ranks need together if they are on one host.
func AllMemory(c config.Config, ranks int) (sum events.Memory) {
	l := c.LayoutOrDefault(ranks)
	for _, m := range RankMemory(c, l, 1) {
		sum = sum.Plus(m.Times(l.StageRanks()))
	}
	return sum
}

// PlansOf returns the parts of the model on a rank of each place in the pipeline.
func PlansOf(c config.Config, l mesh.Layout, hosts int) (plans [][]Part) {
	c.SetLayout(l)
	all, _ := Holdings(c, l.World)
	for _, h := range all {
		plans = append(plans, planOf(c, h, l, hosts))
	}
	return plans
}

// MessageBytes returns the size of a message between stages: a tensor of a pass, [tokens, dim].
func MessageBytes(c config.Config, ranks int) int {
	dtype, err := c.DType()
	if err != nil {
		return 0
	}
	return PassTokens(c, ranks) * c.Model.Dim * dtype.Size()
}
