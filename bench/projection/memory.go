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

// memory returns the memory of the GPU with the most layers. Weights are BF16, with their MXFP8
// codes if all linears are quantized, and gradients FP32. The optimizer's 12 bytes per parameter
// are sharded over the data-parallel group. Without a pipeline, TorchTitan also shards weights and
// gradients.
func (r Run) memory(m Model) Memory {
	c := m.Count(r.Seq)
	expert := 3 * float64(m.Dim) * float64(m.ExpertInter)
	moeLayers := float64(m.MoELayers())
	routed := moeLayers * float64(m.Experts) * expert
	dense := c.Total - float64(m.mainMoE()*m.Experts)*expert
	if m.MTPLayers > 0 {
		for _, l := range m.mtp() {
			if l.Part != moe.Routed && l.Part != moe.Head {
				dense += float64(l.Params())
			}
		}
	}
	stage := 1 / float64(r.PP)
	if r.PP > 1 { // whole layers, and the head
		stage = math.Ceil(float64(m.Layers)/float64(r.PP*r.VP)) * float64(r.VP) / float64(m.Layers)
	}
	dense, routed = dense*stage/float64(r.TP), routed*stage/float64(r.EP)
	dp, edp := float64(r.dp()), float64(max(1, r.GPUs/(r.EP*r.PP)))
	perWeight := 2.0
	if r.Precision == "mxfp8" || r.Precision == "nvfp4" {
		perWeight += 2
	}
	g := Memory{
		Weights: perWeight * (dense + routed) / 1e9, Gradients: 4 * (dense + routed) / 1e9,
		Optimizer: 12 * (dense/dp + routed/edp) / 1e9, Reserve: 8,
	}
	if s, err := r.stack(); err == nil && s.FSDP && r.PP == 1 { // sharded, with one gathered layer at a time
		g.Weights, g.Gradients = g.Weights/edp, g.Gradients/edp
	}
	tokens := float64(r.MicroBatch*r.Seq) / float64(r.TP)
	layer := m.layerActivations() * 2 * tokens
	if r.quantizesAll() { // inputs are saved as codes
		layer *= 0.6
	}
	layers := float64(m.Layers) * stage
	logits := 6 * float64(m.Vocab) * tokens
	g.Activations = (layer*layers*keptShare(r.Recompute)*max(1, r.inFlight()) + layer + logits) / 1e9
	return g
}

// layerActivations returns the elements per token saved by an average layer.
func (m Model) layerActivations() float64 {
	heads := float64(m.Heads)
	attention := 4*float64(m.Dim) + 2*float64(m.QRank+m.KVRank) + heads*float64(2*m.KeyDim()+2*m.ValueDim)
	moe := float64(m.TopK+m.SharedExperts)*3*float64(m.ExpertInter) + 2*float64(m.TopK)*float64(m.Dim)
	dense := 3 * float64(m.DenseInter)
	return attention + (moe*float64(m.mainMoE())+dense*float64(m.DenseLayers))/float64(max(m.Layers, 1))
}
