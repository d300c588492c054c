package projection

// The host's time: kernels that it launches one by one, and a GPU that waits for it.

import (
	"math"

	"spmoe/moe"
)

// launched is the share of a layer's row-wise kernels that the host still launches one by one with
// a kind of CUDA graphs: of 20 kernels 20, 10 and 3.
var launched = map[string]float64{"none": 1, "partial": 0.5, "full": 0.15}

// called is the same for all calls of a layer except those of its experts, which only full graphs
// contain.
var called = map[string]float64{"none": 1, "partial": 0.4, "full": 0}

// Graphs lists the kinds of CUDA graphs.
func Graphs() []string { return []string{"none", "partial", "full"} }

// kernelPasses returns the kernels of a layer per micro-batch, in those of a forward pass. A
// backward pass has twice as much.
func (e *estimator) kernelPasses() float64 { return 3 + e.full() }

// perMicroBatch returns the GPU-milliseconds per token of something that takes each GPU some
// microseconds per micro-batch.
func (e *estimator) perMicroBatch(micros float64) float64 {
	return micros / 1e3 / float64(e.run.MicroBatch*e.run.Seq) * float64(e.run.TP*e.run.cp())
}

// hostBound adds the time for which a layer's GPU waits for the host. The host needs a time for its
// calls, and the GPU one for its kernels. A layer takes the fourth root of the sum of their fourth
// powers: nearly the longer of both, and more where they are close. Stalls of the stack are added.
func (e *estimator) hostBound(c *costs, b Block) {
	calls := e.stack.Calls * float64(b.Parts) / 2 * called[e.stack.Graphs]
	if b.hasExperts() && e.stack.Graphs != "full" {
		experts := e.stack.CallsPerExpert * float64(e.model.Experts/e.run.EP)
		if e.quantized(moe.Routed) { // each expert's operands are quantized by kernels of their own
			experts *= 2
		}
		calls += experts
	}
	host := e.perMicroBatch(calls * e.set[hostCalls] * e.gpu.HostMicros.Value * e.kernelPasses() / 3)
	busy := c.sum()
	c[Host] += math.Pow(math.Pow(busy, 4)+math.Pow(host, 4), 0.25) - busy
	c[Host] += c.sum() * e.stack.Stall / (1 - e.stack.Stall)
}
