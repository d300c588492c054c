package moe

import (
	"fmt"

	"spmoe/tensor"
)

// Routing is the state of one layer's router other than its parameters.
type Routing struct {
	Layer int
	Name  string        // name of the selection bias in checkpoints
	Bias  tensor.Tensor // [experts] FP32
	Load  []int64       // [experts]: choices of this rank's tokens since the last Balance or Reset

	router *router
}

// Routes records or replaces the choices of experts of a pass. Its functions are called for each
// layer with experts, by the model's number of the layer, in the order of the forward pass. A
// recomputation does not record. The slices hold [tokens, topK] and must not be changed.
type Routes struct {
	// Replay, if not nil, returns distinct experts for each token of the batch, and their weights.
	// Nil weights are the router's own: the scores of these experts. The scores get
	// the gradient that they have if the router itself gives these weights to these experts. So a
	// pass that replays its own routes has its own bits. A recomputation calls Replay again, and it
	// must return the same.
	Replay func(layer int) (experts []int32, weights []float32)

	// Record, if not nil, receives what the pass uses. The slices are valid during the call.
	Record func(layer int, experts []int32, weights []float32)
}

// replayed returns the routes that replace the choices of a layer; nil: there are none.
func (p phase) replayed() (experts []int32, weights []float32) {
	if r := p.batch.Routes; r != nil && r.Replay != nil {
		return r.Replay(p.layer)
	}
	return nil, nil
}

// record records the routes of a layer.
func (p phase) record(experts, weights tensor.Tensor) {
	if r := p.batch.Routes; r != nil && r.Record != nil && !p.recomputing {
		r.Record(p.layer, experts.I32(), weights.F32())
	}
}

// Routings returns the routers of all Mixture-of-Experts layers, first to last.
func (m *Model) Routings() []Routing {
	var all []Routing
	for _, b := range m.blocks {
		if l, ok := b.ffn.(*moeLayer); ok {
			name := fmt.Sprintf("model.layers.%d.mlp.gate.e_score_correction_bias", b.layer)
			all = append(all, Routing{b.layer, name, l.router.bias, l.router.load, l.router})
		}
	}
	return all
}

// Balance moves the selection bias against load, the choices of all ranks, as auxiliary-loss-free
// balancing does (arXiv:2408.15664), and resets the count.
func (r Routing) Balance(load []int64) {
	r.router.balance(load)
	r.router.resetLoad()
}

// Reset resets the count.
func (r Routing) Reset() { r.router.resetLoad() }
