package state

// Load balancing of experts: the routers' selection biases follow the loads of all ranks.

import (
	"fmt"
	"slices"

	"spmoe/collective"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Balancer holds the routers of a rank.
type Balancer struct {
	comm     *collective.Comm
	ex       *tensor.Exec
	Experts  int
	Layers   []int         // of the model, that have experts
	Routings []moe.Routing // of this rank: without a pipeline, of all these layers
	// [layers, experts]: tokens of all ranks in the last step
	Loads []int64
}

// NewBalancer returns the balancer of the routers of this rank's layers.
func NewBalancer(c *collective.Comm, ex *tensor.Exec, routings []moe.Routing, cfg moe.Config) *Balancer {
	b := &Balancer{comm: c, ex: ex, Experts: cfg.Experts, Routings: routings}
	for i := range cfg.Layers + cfg.MTPLayers {
		if !cfg.IsDense(i) {
			b.Layers = append(b.Layers, i)
		}
	}
	b.Loads = make([]int64, len(b.Layers)*b.Experts)
	return b
}

// Load returns the load of each expert of a layer.
func (b *Balancer) Load(layer int) []int64 {
	return b.Loads[slices.Index(b.Layers, layer)*b.Experts:][:b.Experts]
}

// Balance sums the experts' loads over all ranks. With move it also moves the selection biases. It
// returns the largest load over the mean, averaged over the layers. It is collective.
func (b *Balancer) Balance(move bool) (imbalance float64, err error) {
	if len(b.Layers) == 0 {
		return 1, nil
	}
	defer b.ex.Enter(b.ex.Enter(profile.Collectives))
	clear(b.Loads)
	for _, route := range b.Routings {
		copy(b.Load(route.Layer), route.Load)
	}
	if err := collective.AllReduce(b.comm, b.Loads, collective.Sum); err != nil {
		return 0, fmt.Errorf("summing expert loads: %w", err)
	}
	for _, layer := range b.Layers {
		var most, total int64
		for _, tokens := range b.Load(layer) {
			most, total = max(most, tokens), total+tokens
		}
		imbalance += float64(most) * float64(b.Experts) / float64(max(total, 1)) / float64(len(b.Layers))
	}
	for _, route := range b.Routings {
		if move {
			route.Balance(b.Load(route.Layer))
		} else {
			route.Reset()
		}
	}
	return imbalance, nil
}

// Discard drops the loads of an attempt that will be repeated.
func (b *Balancer) Discard() {
	for _, route := range b.Routings {
		route.Reset()
	}
}
