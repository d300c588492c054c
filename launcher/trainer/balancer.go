package trainer

// Load balancing of experts: the routers' selection biases follow the loads of all ranks.

import (
	"fmt"
	"slices"

	"spmoe/collective"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// balancer holds the routers of a rank.
type balancer struct {
	comm     *collective.Comm
	ex       *tensor.Exec
	experts  int
	layers   []int         // of the model, that have experts
	routings []moe.Routing // of this rank: without a pipeline, of all these layers
	// [layers, experts]: tokens of all ranks in the last step
	loads []int64
}

func newBalancer(c *collective.Comm, ex *tensor.Exec, routings []moe.Routing, cfg moe.Config) *balancer {
	b := &balancer{comm: c, ex: ex, experts: cfg.Experts, routings: routings}
	for i := range cfg.Layers + cfg.MTPLayers {
		if !cfg.IsDense(i) {
			b.layers = append(b.layers, i)
		}
	}
	b.loads = make([]int64, len(b.layers)*b.experts)
	return b
}

// load returns the load of each expert of a layer.
func (b *balancer) load(layer int) []int64 {
	return b.loads[slices.Index(b.layers, layer)*b.experts:][:b.experts]
}

// balance sums the experts' loads over all ranks. With move it also moves the selection biases. It
// returns the largest load over the mean, averaged over the layers. It is collective.
func (b *balancer) balance(move bool) (imbalance float64, err error) {
	if len(b.layers) == 0 {
		return 1, nil
	}
	defer b.ex.Enter(b.ex.Enter(profile.Collectives))
	clear(b.loads)
	for _, route := range b.routings {
		copy(b.load(route.Layer), route.Load)
	}
	if err := collective.AllReduce(b.comm, b.loads, collective.Sum); err != nil {
		return 0, fmt.Errorf("summing expert loads: %w", err)
	}
	for _, layer := range b.layers {
		var most, total int64
		for _, tokens := range b.load(layer) {
			most, total = max(most, tokens), total+tokens
		}
		imbalance += float64(most) * float64(b.experts) / float64(max(total, 1)) / float64(len(b.layers))
	}
	for _, route := range b.routings {
		if move {
			route.Balance(b.load(route.Layer))
		} else {
			route.Reset()
		}
	}
	return imbalance, nil
}

// discard drops the loads of an attempt that will be repeated.
func (b *balancer) discard() {
	for _, route := range b.routings {
		route.Reset()
	}
}

// biases appends the selection biases of all routers.
func (b *balancer) biases(all []float32) []float32 {
	for _, route := range b.routings {
		all = append(all, route.Bias.F32()...)
	}
	return all
}

// setBiases sets the selection biases of all routers.
func (b *balancer) setBiases(from []float32) {
	for _, route := range b.routings {
		from = from[copy(route.Bias.F32(), from):]
	}
}
