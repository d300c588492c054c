package moe

import (
	"fmt"

	"spmoe/tensor"
)

// Routing is the state of one layer's router other than its parameters.
type Routing struct {
	Layer int
	Name  string        // of Bias in checkpoints
	Bias  tensor.Tensor // FP32: the selection bias, [experts], or the table of a hash layer, [vocab, topK]
	Load  []int64       // [experts]: choices of this rank's tokens since the last Balance or Reset

	router *router
}

// Routings returns the routers of all Mixture-of-Experts layers, first to last.
func (m *Model) Routings() []Routing {
	var all []Routing
	for _, b := range m.blocks {
		if l, ok := b.ffn.(*moeLayer); ok {
			r, name := l.router, "e_score_correction_bias"
			state := r.bias
			if r.table.Valid() {
				name, state = tableName, r.table
			}
			all = append(all, Routing{b.layer, fmt.Sprintf("model.layers.%d.mlp.gate.%s", b.layer, name), state, r.load, r})
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

// IsTable reports whether Bias is the table of a hash layer.
func (r Routing) IsTable() bool { return r.router.table.Valid() }

// CheckTable returns an error if Bias is a table and an element is not the number of an expert.
func (r Routing) CheckTable() error {
	if !r.IsTable() {
		return nil
	}
	experts := r.router.cfg.Experts
	for i, e := range r.Bias.Reshape(r.Bias.Len()).F32() {
		if !(e >= 0 && e < float32(experts)) || e != float32(int(e)) {
			return fmt.Errorf("%s: token %d has expert %v: the model has experts 0 to %d", r.Name, i/r.router.cfg.TopK, e, experts-1)
		}
	}
	return nil
}

// Reset resets the count.
func (r Routing) Reset() { clear(r.Load) }
