// Package estimate says what a run will need before it starts: memory of each rank, room on the
// disk, bytes on the network; and what is odd about its settings.
package estimate

import (
	"cmp"
	"errors"
	"slices"

	"spmoe/collective/mesh"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
	"spmoe/moe/optim"
)

// GarbagePercent is the most garbage, in percent of the heap in use.
const GarbagePercent = 1

// Memory returns what each of the ranks needs if they are on one host.
func Memory(c config.Config, ranks int) events.Memory {
	return LayoutMemory(c, c.LayoutOrDefault(ranks), 1)
}

// LayoutMemory returns what each rank of a layout needs if the ranks are on some hosts, in equal
// numbers. In a pipeline, it is the rank that needs most.
func LayoutMemory(c config.Config, l mesh.Layout, hosts int) events.Memory {
	return slices.MaxFunc(RankMemory(c, l, hosts), func(a, b events.Memory) int { return cmp.Compare(a.Total(), b.Total()) })
}

// PerParameter holds the bytes of all ranks per parameter of the model, without activations.
type PerParameter struct {
	Weights   float64 `json:"weights"`
	Gradients float64 `json:"gradients"`
	Optimizer float64 `json:"optimizer"`
	Snapshot  float64 `json:"snapshot"`
	Process   float64 `json:"process"`
	All       float64 `json:"all"`
}

// BytesPerParameter returns what all ranks need per parameter. What every rank holds counts as
// often as there are ranks.
func BytesPerParameter(c config.Config, ranks int) PerParameter {
	m, parameters := AllMemory(c, ranks), float64(max(c.Model.Count().Total, 1))
	per := func(bytes int64) float64 { return float64(bytes) / parameters }
	return PerParameter{per(m.Weights), per(m.Gradients), per(m.Optimizer), per(m.Snapshot), per(m.Process), per(m.Total() - m.Activations)}
}

// PassTokens returns the tokens per rank in one forward and backward pass.
func PassTokens(c config.Config, ranks int) int {
	return max(c.RankBatch(ranks), 1) * c.Seq / c.LayoutOrDefault(ranks).Sharers()
}

// Part holds what a part of the model needs on a rank and its cost per token.
type Part struct {
	moe.Module
	Memory events.Memory
}

// process is the name of the part of a plan that holds [Memory.Process].
const process moe.Part = "process"

// Plan returns the parts of the model on each of the ranks, and the process as a part without
// weights. Their memory sums to that of Memory.
func Plan(c config.Config, ranks int) []Part {
	return slices.MaxFunc(PlansOf(c, c.LayoutOrDefault(ranks), 1), func(a, b []Part) int { return cmp.Compare(total(a), total(b)) })
}

// total returns the memory of a plan.
func total(plan []Part) (sum int64) {
	for _, p := range plan {
		sum += p.Memory.Total()
	}
	return sum
}

// planOf is Plan for a rank of a layout on some hosts.
func planOf(c config.Config, h holding, l mesh.Layout, hosts int) []Part {
	all := l.World
	l = l.Stage()
	c.SetLayout(l)
	n, err := countRank(c, h, l, stageHosts(all, l.World, hosts))
	if err != nil { // nothing can be counted: the settings are invalid, or no machine has room
		n.pass.Saved = map[moe.PartKey]float64{{Part: moe.Embedding}: 0}
		if errors.Is(err, errAbsurd) {
			n.pass.Saved[moe.PartKey{Part: moe.Embedding}] = events.MostBytes
		}
	}
	var plan []Part
	var sum events.Memory
	for _, m := range c.Model.Modules(c.Seq) {
		key := moe.PartKey{Part: m.Part, Ahead: m.Ahead}
		part := Part{Module: m, Memory: n.parts[key]}
		activations := n.pass.Saved[key]
		if key == n.pass.Peak {
			activations += n.pass.Scratch
		}
		switch key {
		case moe.PartKey{Part: moe.Embedding}:
			activations += float64(h.Boxes(hosts) * MessageBytes(c, l.World))
		case moe.PartKey{Part: moe.Routed}:
			activations += n.pass.Rows
		}
		part.Memory.Activations = int64(min(activations, events.MostBytes))
		plan, sum = append(plan, part), sum.Plus(part.Memory)
	}
	if buffers := n.parts[moe.PartKey{}]; buffers.Total() > 0 {
		plan, sum = append(plan, Part{Module: moe.Module{Part: "gathered"}, Memory: buffers}), sum.Plus(buffers)
	}
	return append(plan, Part{Module: moe.Module{Part: process}, Memory: events.Memory{Process: processBytes(c, all/hosts, n.pass, sum)}})
}

// rankCount is what a rank holds: the state of each part of the model, and what its passes need,
// where Saved has that of all passes in flight.
type rankCount struct {
	parts map[moe.PartKey]events.Memory
	pass  moe.PassMemory
}

// countRank counts what a rank holds. The configuration's layout is that of the ranks of a stage.
func countRank(c config.Config, h holding, l mesh.Layout, hosts int) (n rankCount, err error) {
	d, err := NewDryRank(c, l, hosts, 0)
	if err != nil {
		return n, err
	}
	state, err := d.knownState(h.stages)
	if err != nil {
		return n, err
	}
	n.parts = state.parts
	passes := map[int]stageCount{}
	for number, stage := range h.stages {
		if passes[number], err = d.KnownPasses(stage); err != nil {
			return n, err
		}
		n.pass = n.pass.Most(passes[number].Pass)
	}
	times := h.saved(func(stage int, split bool) float64 {
		if split {
			return passes[stage].Split
		}
		return passes[stage].Pass.AllSaved()
	}) / max(n.pass.AllSaved(), 1)
	saved := map[moe.PartKey]float64{}
	for part, bytes := range n.pass.Saved {
		saved[part] = times * bytes
	}
	twin := 0.0 // of the second action of a pair
	if h.plan != nil && h.plan.Overlaps(l.StageRanks()) {
		twin = n.pass.Scratch
	}
	n.pass.Saved, n.pass.Scratch = saved, max(n.pass.Scratch, UpdateScratch(c))+twin
	return n, nil
}

// UpdateScratch returns the scratch memory of the largest update of a matrix. Updates and passes
// use the same memory in turn.
func UpdateScratch(c config.Config) (most float64) {
	for _, l := range c.Model.Linears() {
		if l.Layers > 0 {
			most = max(most, optim.Scratch(Rule(c).Of(l.Part.Class()), l.Out, l.In))
		}
	}
	return most
}

// Heap returns the bytes of shared memory that each of the ranks may use as a process. It leaves
// room for an estimate that is too low; only what is used is allocated. One rank allocates what all
// share.
func Heap(c config.Config, ranks int) int64 {
	estimate := Memory(c, ranks)
	return 4*estimate.Total() + min(int64(ranks)*(estimate.Weights+estimate.Gradients), events.MostBytes) + 1<<30
}

// Vault returns the bytes per rank that survive its process: two states of the optimizer, with
// parts rounded up.
func Vault(c config.Config, ranks int) int64 {
	const multiple, replicated = 4096 + moe.ShardMultiple, 2 // a segment's last rank has its padding
	l, segments := c.LayoutOrDefault(ranks), int64(6)
	if c.Pipelined() {
		l, segments = l.Stage(), segments*mostStages(c, ranks) // the bound of a rank that has nearly all layers
	}
	perWeight := int64(optim.MostBytesPerWeight(Rule(c)))
	bytes := LayoutMemory(c, l, 1).Optimizer + events.Product(segments*multiple, perWeight)
	// The owners of whole matrices have equal loads, and one half of a load is memory. So a rank
	// exceeds twice its share by at most the largest parameter.
	if Rule(c).Of(moe.Linear).WholeMatrices() {
		bytes += LayoutMemory(c, l, 1).Optimizer + events.Product(replicated, largestPart(c), perWeight)
		if c.LayoutOrDefault(ranks).Replicas() > 1 {
			bytes += events.Product(int64(c.Model.ExpertInter), int64(c.Model.Dim), perWeight)
		}
	}
	return state.VaultBytes(c.Model, int(bytes))
}

// largestPart returns the weights of the largest part of the model that ranks share. None of their
// parameters is larger.
func largestPart(c config.Config) (most int64) {
	for _, m := range c.Model.Modules(c.Seq) {
		if m.Class != moe.Expert {
			most = max(most, m.Params)
		}
	}
	return most
}

// Rule returns the rule of the optimizer, or the default one if the configuration is invalid.
func Rule(c config.Config) optim.Rule {
	rule, err := c.Optimizer.Rule()
	if err != nil {
		rule, _ = optim.DefaultConfig().Rule()
	}
	return rule
}
