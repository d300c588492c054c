package projection

// The memory of the fullest GPU, estimated from the layout. Activations follow Megatron's count:
// what the backward pass needs of each layer and microbatch in flight.

import (
	"math"

	"spmoe/moe"
)

// Memory is in GB (1e9 bytes).
type Memory struct {
	Weights     float64 `json:"weights"`
	Gradients   float64 `json:"gradients"`
	Optimizer   float64 `json:"optimizer"`
	Activations float64 `json:"activations"`
	Reserve     float64 `json:"reserve"` // buffers of libraries, and fragmentation
}

// Total returns the sum.
func (m Memory) Total() float64 {
	return m.Weights + m.Gradients + m.Optimizer + m.Activations + m.Reserve
}

// sizes is what the memory of a model's runs has in common.
type sizes struct {
	dense, routed float64 // parameters, with the MTP module's except its head
	saved         float64 // elements per token that an average layer saves
}

func (m Model) sizes() sizes {
	n := sizes{routed: m.routedParams(), saved: m.layerActivations()}
	n.dense = m.Count(1).Total - n.routed
	for _, b := range m.mtp() {
		for _, l := range b.Linears {
			switch params := float64(b.Layers) * float64(l.Held) * float64(l.Params()); l.Part {
			case moe.Routed:
				n.routed += params
			case moe.Head:
			default:
				n.dense += params
			}
		}
	}
	return n
}

// memory returns the memory of the GPU with the most layers. Weights are BF16, with their MXFP8
// codes if all linears are quantized, and gradients FP32. The optimizer's 12 bytes per parameter
// are sharded over the data-parallel group. Without a pipeline, TorchTitan also shards weights and
// gradients, all in FP32.
func (r Run) memory(m Model) Memory { return r.memoryOf(m, m.sizes()) }

func (r Run) memoryOf(m Model, n sizes) Memory {
	stage := 1 / float64(r.PP)
	if r.PP > 1 { // whole layers, and the head
		stage = math.Ceil(float64(m.Layers)/float64(r.PP*r.VP)) * float64(r.VP) / float64(m.Layers)
	}
	dense, routed := n.dense*stage/float64(r.TP), n.routed*stage/float64(r.EP)
	dp, edp := float64(r.dp()), float64(max(1, r.GPUs/(r.EP*r.PP)))
	perWeight := 2.0
	if r.Precision == "mxfp8" || r.Precision == "nvfp4" {
		perWeight += 2
	}
	g := Memory{
		Weights: perWeight * (dense + routed) / 1e9, Gradients: 4 * (dense + routed) / 1e9,
		Optimizer: 12 * (dense/dp + routed/edp) / 1e9, Reserve: 8,
	}
	s, err := r.stack()
	sharded := err == nil && s.FSDP && r.PP == 1
	if sharded { // FP32 shards, and the gathered weights of the largest layers
		local := dense/(dp*float64(r.cp())) + routed/edp
		gathered := (dense + routed) / float64(m.Layers)
		g = Memory{Weights: (4*local + 4*gathered) / 1e9, Gradients: 4 * local / 1e9, Optimizer: 8 * local / 1e9, Reserve: 4}
	}
	tokens := float64(r.MicroBatch*r.Seq) / float64(r.TP*r.cp())
	layer := n.saved * 2 * tokens
	if r.quantizesAll() { // inputs are saved as codes
		layer *= 0.6
	}
	layers := float64(m.Layers) * stage
	logits := 6 * float64(m.Vocab) * tokens
	working := layer + logits
	if sharded { // they do not meet, and logits are BF16
		working = max(layer, logits/3)
	}
	g.Activations = (layer*layers*keptShare(r.Recompute)*max(1, r.inFlight()) + working) / 1e9
	return g
}

// layerActivations returns the elements per token saved by an average layer.
func (m Model) layerActivations() (sum float64) {
	for _, b := range m.Blocks() {
		each := 2*float64(b.Parts*m.Dim) + 3*b.Inter + b.Scan/4
		if b.Scores {
			each += 2*float64(m.QRank+m.KVRank) + float64(m.Heads)*float64(2*m.KeyDim()+2*m.ValueDim)
		}
		if b.hasExperts() {
			each += 2 * float64(m.TopK) * float64(m.routedDim())
		}
		sum += each * float64(b.Layers) / float64(m.Layers)
	}
	return sum
}
