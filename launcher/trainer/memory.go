package trainer

// The memory that each rank needs, estimated from the configuration.

import (
	"cmp"
	"errors"
	"slices"

	"spmoe/collective/mesh"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// Memory is an estimate of the memory of one rank, in bytes.
type Memory struct {
	// working weights with their quantized forms: this rank's experts, norms, and its share of the
	// dense weights, which exist once on a host
	Weights   int64 `json:"weights"`
	Gradients int64 `json:"gradients"` // FP32, of the same weights
	// this rank's FP32 master weights and the vectors of its rule
	Optimizer int64 `json:"optimizer"`
	// what a pass saves for its backward pass, and the most scratch memory at once
	Activations int64 `json:"activations"`
	// copy of the optimizer's state that is saved while training continues
	Snapshot int64 `json:"snapshot"`
	// this rank's share of everything else in the process of goroutine ranks: see processBytes
	Process int64 `json:"process"`
}

// Total returns the sum.
func (m Memory) Total() int64 {
	return m.Weights + m.Gradients + m.Optimizer + m.Activations + m.Snapshot + m.Process
}

// Plus adds two estimates, part by part. Each sum is capped like its parts.
func (m Memory) Plus(o Memory) Memory {
	return Memory{
		min(m.Weights+o.Weights, mostBytes), min(m.Gradients+o.Gradients, mostBytes), min(m.Optimizer+o.Optimizer, mostBytes),
		min(m.Activations+o.Activations, mostBytes), min(m.Snapshot+o.Snapshot, mostBytes),
		min(m.Process+o.Process, mostBytes),
	}
}

// EstimateMemory returns what each of the ranks needs if they are on one host.
func (c Config) EstimateMemory(ranks int) Memory { return c.LayoutMemory(c.LayoutOrDefault(ranks), 1) }

// LayoutMemory returns what each rank of a layout needs if the ranks are on some hosts, in equal
// numbers. In a pipeline, it is the rank that needs most.
func (c Config) LayoutMemory(l mesh.Layout, hosts int) Memory {
	return slices.MaxFunc(c.RankMemory(l, hosts), func(a, b Memory) int { return cmp.Compare(a.Total(), b.Total()) })
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
func (c Config) BytesPerParameter(ranks int) PerParameter {
	m, parameters := c.AllMemory(ranks), float64(max(c.Model.Count().Total, 1))
	per := func(bytes int64) float64 { return float64(bytes) / parameters }
	return PerParameter{per(m.Weights), per(m.Gradients), per(m.Optimizer), per(m.Snapshot), per(m.Process), per(m.Total() - m.Activations)}
}

// PassTokens returns the tokens per rank in one forward and backward pass.
func (c Config) PassTokens(ranks int) int { return max(c.RankBatch(ranks), 1) * c.Seq }

// Part holds what a part of the model needs on a rank and its cost per token.
type Part struct {
	moe.Module
	Memory  Memory
	Traffic moe.Traffic // bytes per token
}

// process is the name of the part of a plan that holds [Memory.Process].
const process moe.Part = "process"

// Plan returns the parts of the model on each of the ranks, and the process as a part without
// weights. Their memory sums to EstimateMemory.
func (c Config) Plan(ranks int) []Part {
	return slices.MaxFunc(c.plansOf(c.LayoutOrDefault(ranks), 1), func(a, b []Part) int { return cmp.Compare(total(a), total(b)) })
}

// total returns the memory of a plan.
func total(plan []Part) (sum int64) {
	for _, p := range plan {
		sum += p.Memory.Total()
	}
	return sum
}

// planOf is Plan for a rank of a layout on some hosts.
func (c Config) planOf(h holding, l mesh.Layout, hosts int) []Part {
	all := l.World
	l = l.Stage()
	c.SetLayout(l)
	n, err := c.countRank(h, l, hosts)
	if err != nil { // nothing can be counted: the settings are invalid, or no machine has room
		n.pass.Saved = map[moe.PartKey]float64{{Part: moe.Embedding}: 0}
		if errors.Is(err, errAbsurd) {
			n.pass.Saved[moe.PartKey{Part: moe.Embedding}] = mostBytes
		}
	}
	precision, _ := c.Recipe()
	var plan []Part
	var sum Memory
	for _, m := range c.Model.Modules(c.Seq) {
		key := moe.PartKey{Part: m.Part, MTP: m.MTP}
		part := Part{Module: m, Traffic: m.Traffic(precision, c.PassTokens(l.World), l.EP), Memory: n.parts[key]}
		activations := n.pass.Saved[key]
		if key == n.pass.Peak {
			activations += n.pass.Scratch
		}
		switch key {
		case moe.PartKey{Part: moe.Embedding}:
			activations += float64(h.boxes(hosts) * c.messageBytes(l.World))
		case moe.PartKey{Part: moe.Routed}:
			activations += n.pass.Rows
		}
		part.Memory.Activations = int64(min(activations, mostBytes))
		plan, sum = append(plan, part), sum.Plus(part.Memory)
	}
	if buffers := n.parts[moe.PartKey{}]; buffers.Total() > 0 {
		plan, sum = append(plan, Part{Module: moe.Module{Part: "gathered"}, Memory: buffers}), sum.Plus(buffers)
	}
	return append(plan, Part{Module: moe.Module{Part: process}, Memory: Memory{Process: c.processBytes(all/hosts, n.pass, sum)}})
}

// rankCount is what a rank holds: the state of each part of the model, and what its passes need,
// where Saved has that of all passes in flight.
type rankCount struct {
	parts map[moe.PartKey]Memory
	pass  moe.PassMemory
}

// countRank counts what a rank holds. The configuration's layout is that of the ranks of a stage.
func (c Config) countRank(h holding, l mesh.Layout, hosts int) (n rankCount, err error) {
	d, err := c.newDryRank(l, hosts, 0)
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
		if passes[number], err = d.knownPasses(stage); err != nil {
			return n, err
		}
		n.pass = n.pass.Most(passes[number].pass)
	}
	times := h.saved(func(stage int, split bool) float64 {
		if split {
			return passes[stage].split
		}
		return passes[stage].pass.AllSaved()
	}) / max(n.pass.AllSaved(), 1)
	saved := map[moe.PartKey]float64{}
	for part, bytes := range n.pass.Saved {
		saved[part] = times * bytes
	}
	twin := 0.0 // of the second action of a pair
	if h.plan != nil && h.plan.Overlaps(l.Batch()) {
		twin = n.pass.Scratch
	}
	n.pass.Saved, n.pass.Scratch = saved, max(n.pass.Scratch, c.updateScratch())+twin
	return n, nil
}

// sizeArenas makes the arenas of a rank as large as its passes need, so that each is in one piece,
// with room for experts that receive more rows than the mean. What is not used takes no memory, but
// the system refuses a piece larger than all memory.
func (c Config) sizeArenas(models []*moe.Model, ex *tensor.Exec, l mesh.Layout, hosts int) {
	const mostRoom = 512 << 20
	withRoom := func(bytes float64) int { return int(min(bytes+min(bytes, mostRoom), mostBytes)) }
	d, err := c.newDryRank(l.Stage(), hosts, 0)
	if err != nil {
		return
	}
	var most moe.PassMemory
	saved := 0.0
	for _, m := range models {
		n, err := d.knownPasses(m.Stage())
		if err != nil {
			return
		}
		most, saved = most.Most(n.pass), max(saved, n.pass.AllSaved(), n.split)
	}
	ex.First = withRoom(max(most.Scratch, c.updateScratch()))
	for _, m := range models {
		m.PassBytes = withRoom(saved)
	}
}

// updateScratch returns the scratch memory of the largest update of a matrix. Updates and passes
// use the same memory in turn.
func (c Config) updateScratch() (most float64) {
	for _, l := range c.Model.Linears() {
		if l.Layers > 0 {
			most = max(most, optim.Scratch(c.rule().Of(l.Part.Class()), l.Out, l.In))
		}
	}
	return most
}

// mostBytes is beyond any machine, and small enough that sums of estimates do not overflow.
const mostBytes = 1 << 56

// product multiplies sizes, which users choose. It is capped at mostBytes, so that sums of products
// do not overflow.
func product(factors ...int64) int64 {
	p, estimate := int64(1), 1.0
	for _, f := range factors {
		p *= f
		estimate *= float64(f)
	}
	if estimate > mostBytes {
		return mostBytes
	}
	return p
}

// Heap returns the bytes of shared memory that each of the ranks may use as a process. It leaves
// room for an estimate that is too low; only what is used is allocated. One rank allocates what all
// share.
func (c Config) Heap(ranks int) int64 {
	estimate := c.EstimateMemory(ranks)
	return 4*estimate.Total() + min(int64(ranks)*(estimate.Weights+estimate.Gradients), mostBytes) + 1<<30
}

// Vault returns the bytes per rank that survive its process: two states of the optimizer, with
// parts rounded up.
func (c Config) Vault(ranks int) int64 {
	const multiple, replicated = 4096 + moe.ShardMultiple, 2 // a segment's last rank has its padding
	l, segments := c.LayoutOrDefault(ranks), int64(6)
	if c.pipelined() {
		l, segments = l.Stage(), segments*c.mostStages(ranks) // the bound of a rank that has nearly all layers
	}
	perWeight := int64(optim.MostBytesPerWeight(c.rule()))
	bytes := c.LayoutMemory(l, 1).Optimizer + product(segments*multiple, perWeight)
	// The owners of whole matrices have equal loads, and one half of a load is memory. So a rank
	// exceeds twice its share by at most the largest parameter.
	if c.rule().Of(moe.Linear).WholeMatrices() {
		bytes += c.LayoutMemory(l, 1).Optimizer + product(replicated, c.largestPart(), perWeight)
		if c.LayoutOrDefault(ranks).Replicas() > 1 {
			bytes += product(int64(c.Model.ExpertInter), int64(c.Model.Dim), perWeight)
		}
	}
	return vaultBytes(c.Model, int(bytes))
}

// largestPart returns the weights of the largest part of the model that ranks share. None of their
// parameters is larger.
func (c Config) largestPart() (most int64) {
	for _, m := range c.Model.Modules(c.Seq) {
		if m.Class != moe.Expert {
			most = max(most, m.Params)
		}
	}
	return most
}

// rule returns the rule of the optimizer, or the default one if the configuration is invalid.
func (c Config) rule() optim.Rule {
	rule, err := c.Rule()
	if err != nil {
		rule, _ = optim.DefaultConfig().Rule()
	}
	return rule
}

// Heap is [Config.Heap] of the job.
func (j *Job) Heap() int64 { return j.cfg.Heap(j.ranks) }

// Vault is [Config.Vault] of the job.
func (j *Job) Vault() int64 { return j.cfg.Vault(j.ranks) }
