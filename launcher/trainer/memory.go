package trainer

// How much memory each rank needs, estimated from the configuration.

import (
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// Memory is an estimate of what one rank holds, in bytes.
type Memory struct {
	Weights     int64 `json:"weights"`     // working weights: all replicated ones and this rank's experts, quantized copies included
	Gradients   int64 `json:"gradients"`   // FP32
	Optimizer   int64 `json:"optimizer"`   // this rank's FP32 master weights and the vectors of its rule
	Activations int64 `json:"activations"` // of one forward and backward pass
	Snapshot    int64 `json:"snapshot"`    // copy of the optimizer's state that is saved while training goes on
}

// Total returns the sum.
func (m Memory) Total() int64 {
	return m.Weights + m.Gradients + m.Optimizer + m.Activations + m.Snapshot
}

// Plus adds two estimates, part by part; neither is beyond any machine by more than its parts are.
func (m Memory) Plus(o Memory) Memory {
	return Memory{
		min(m.Weights+o.Weights, mostBytes), min(m.Gradients+o.Gradients, mostBytes), min(m.Optimizer+o.Optimizer, mostBytes),
		min(m.Activations+o.Activations, mostBytes), min(m.Snapshot+o.Snapshot, mostBytes),
	}
}

// EstimateMemory returns what each of n ranks needs.
func (c Config) EstimateMemory(ranks int) (sum Memory) {
	for _, p := range c.Plan(ranks) {
		sum = sum.Plus(p.Memory)
	}
	return sum
}

// PassTokens returns the tokens of one forward and backward pass of each of n ranks.
func (c Config) PassTokens(ranks int) int { return max(c.microBatch(ranks), 1) * c.Seq }

// gathered returns for how many passes of a step a rank makes the weight gradients of routed
// experts at once.
func (c Config) gathered(ranks int) int {
	micro := max(c.microBatch(ranks), 1)
	passes := (c.Batch/ranks + micro - 1) / micro
	return max(min(passes, c.Model.WgradPasses(c.PassTokens(ranks)*ranks)), 1)
}

// Part is what a part of the model needs on a rank, and what one of its tokens costs.
type Part struct {
	moe.Module
	Memory  Memory
	Traffic moe.Traffic // bytes a token
}

// Plan returns the parts of the model on each of n ranks. Their memory adds up to EstimateMemory.
func (c Config) Plan(ranks int) []Part {
	precision, err := c.Recipe()
	if err != nil {
		precision = moe.Unquantized(tensor.FP32)
	}
	recompute, err := moe.ParseRecompute(c.Recompute)
	if err != nil {
		recompute = moe.RecomputeNone
	}
	var plan []Part
	perWeight := int64(optim.BytesPerWeight(c.rule()))
	for _, m := range c.Model.Modules(c.Seq) {
		held, size := m.OnRank(ranks), int64(precision.DType.Size())
		weights := product(held, size)
		if m.Class == moe.Single {
			weights = product(held, 4)
		} else if how := precision.Of(m.Class); how != nil {
			weights += int64(min(float64(held)*m.QuantizedShare(precision)*how.WeightBytes(), mostBytes))
		}
		shard := held // of the optimizer's state, on average if ranks own whole matrices
		if m.Class != moe.Expert {
			shard /= int64(ranks)
		}
		part := Part{Module: m, Traffic: m.Traffic(precision, c.PassTokens(ranks), ranks), Memory: Memory{
			Weights: weights, Gradients: product(held, 4), Optimizer: product(shard, perWeight),
			Activations: product(int64(max(c.microBatch(ranks), 1)), int64(c.Seq), m.KeptBy(recompute)+int64(c.gathered(ranks)-1)*m.DeferredWgrad(), size),
		}}
		if c.copies() {
			part.Memory.Snapshot = part.Memory.Optimizer
		}
		plan = append(plan, part)
	}
	return plan
}

// mostBytes is beyond any machine, and so small that sums of estimates do not overflow.
const mostBytes = 1 << 56

// product multiplies sizes, which users choose: what is beyond any machine stays at 2^56, so
// that sums of products do not overflow.
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

// Heap is the bytes of shared memory that each of n ranks may use if it is a process: room for an
// estimate that is too low, of which only what is used is taken.
func (c Config) Heap(ranks int) int64 { return 4*c.EstimateMemory(ranks).Total() + 1<<30 }

// Vault is the bytes of each of n ranks that outlive it if it is a process: two states of the
// optimizer, whose parts are rounded up.
func (c Config) Vault(ranks int) int64 {
	const groups, multiple, replicated = 3, 4096, 2
	perWeight := int64(optim.BytesPerWeight(c.rule()))
	state := c.EstimateMemory(ranks).Optimizer + product(groups*multiple, perWeight)
	if c.rule().WholeMatrices() { // in each group a rank has at most the largest parameter more than its share
		state += product(replicated, c.largestPart(), perWeight)
	}
	return keeperBytes(c.Model, int(state))
}

// largestPart returns the weights of the largest part of the model that ranks share: no parameter
// of theirs is larger.
func (c Config) largestPart() (most int64) {
	for _, m := range c.Model.Modules(c.Seq) {
		if m.Class != moe.Expert {
			most = max(most, m.Params)
		}
	}
	return most
}

// rule returns the rule of the optimizer, that of the default one if the configuration cannot be.
func (c Config) rule() optim.Rule {
	rule, err := c.Optimizer.Rule()
	if err != nil {
		rule, _ = optim.DefaultConfig().Rule()
	}
	return rule
}

// Heap is [Config.Heap] of the job.
func (j *Job) Heap() int64 { return j.cfg.Heap(j.ranks) }

// Vault is [Config.Vault] of the job.
func (j *Job) Vault() int64 { return j.cfg.Vault(j.ranks) }
