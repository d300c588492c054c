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
	clear(r.Load)
}

// Reset resets the count.
func (r Routing) Reset() { clear(r.Load) }
