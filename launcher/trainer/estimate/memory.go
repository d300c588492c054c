// Package estimate says what a run will need before it starts: memory of each rank, room on the
// disk, bytes on the network; and what is odd about its settings.
package estimate

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"spmoe/collective/mesh"
	"spmoe/datasets"
	"spmoe/launcher/trainer/config"
	"spmoe/launcher/trainer/events"
	"spmoe/launcher/trainer/state"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/moe/pipe"
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
		plan = append(plan, Part{Module: moe.Module{Part: "gathered"}, Memory: buffers})
		sum = sum.Plus(buffers)
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
	n.pass.Saved = saved
	n.pass.Scratch = max(n.pass.Scratch, UpdateScratch(c)) + twin
	return n, nil
}

// UpdateScratch returns the scratch memory of the largest update of a matrix. Updates and passes
// use the same memory in turn.
func UpdateScratch(c config.Config) (most float64) {
	for _, l := range c.Model.Linears() {
		if l.Layers > 0 {
			most = max(most, Rule(c).Of(l.Part.Class()).Scratch(l.Out, l.In))
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
	l, err := c.Layout(ranks)
	if err != nil {
		return whole, err
	}
	anyShards := c
	anyShards.DPReplicate, anyShards.DPShard, anyShards.EP = 0, 0, 0
	key := fmt.Sprintf("plan %s %d %d", keyOf(anyShards), l.Batch(), c.Passes(ranks))
	plan, err := known(key, func() (*pipe.Plan, error) { return c.PipelinePlan(ranks) })
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
	return PassTokens(c, ranks) * c.Model.ResidualDim() * dtype.Size()
}

const (
	// programBytes are the pages of the executable that a run reads: RssFile in /proc/self/status.
	programBytes = 21 << 20
	// runtimeBytes are Go's runtime, and the small objects of a run of one rank: what is resident
	// after the text is loaded, without the text and the program.
	runtimeBytes = 6 << 20
	// FurtherBytes are those of a process that shares the program with others: its runtime and its
	// small objects, and what the kernel holds for its threads and pages
	FurtherBytes = 10 << 20
	// bytes of memory per byte of text while it is read: files, documents and tokens
	ReadTimes = 3
	// of a rank: the writer of its part of a checkpoint collects blocks
	writerBytes = 1 << 20
	// each of a rank's two arenas ends in a large page that is used in part
	arenaEnds = 2 << 20
	// bytes of Go's runtime per byte of heap: spans and bitmaps
	heapOverhead = 1.0 / 1024
	// for every 256 gradients there is a partial sum of the norm
	bytesPerSquared = 8.0 / 256
)

// processBytes returns each rank's share of the memory of their process. held is what a rank holds
// besides.
func processBytes(c config.Config, ranks int, pass moe.PassMemory, held events.Memory) int64 {
	threads := float64(c.RankThreads(ranks, runtime.GOMAXPROCS(0)))
	text := float64(TextBytes(c.Data))
	perRank := threads*(pass.Packing+pass.Helping) + writerBytes + arenaEnds + normBytes(c, held)
	once := (programBytes + runtimeBytes + text) / float64(ranks)
	heap := float64(held.Total()) + perRank + text/float64(ranks)
	return int64(min(once+perRank+heap*(heapOverhead+GarbagePercent/100.0), events.MostBytes))
}

// normBytes returns the partial sums of the norm of a rank's part of the gradients.
func normBytes(c config.Config, held events.Memory) float64 {
	perWeight := optim.BytesPerWeight(Rule(c).Of(moe.Linear)) // of most weights
	return float64(held.Optimizer) / float64(max(perWeight, 1)) * bytesPerSquared
}

// TextBytes is [datasets.TextBytes].
func TextBytes(paths []string) int64 {
	n, _ := known("text "+strings.Join(paths, "\x00"), func() (int64, error) { return datasets.TextBytes(paths), nil })
	return n
}
