package trainer

// Load balancing of experts: the routers' selection biases follow the loads of all ranks.

import (
	"fmt"

	"spmoe/collective"
	"spmoe/moe"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// balancer holds the routers of a model.
type balancer struct {
	comm     *collective.Comm
	ex       *tensor.Exec
	experts  int
	routings []moe.Routing
	// [layers, experts]: tokens of all ranks in the last step
	loads []int64
}

func newBalancer(c *collective.Comm, ex *tensor.Exec, model *moe.Model, experts int) *balancer {
	b := &balancer{comm: c, ex: ex, experts: experts, routings: model.Routings()}
	b.loads = make([]int64, len(b.routings)*experts)
	return b
}

// load returns the load of each expert of MoE layer number i.
func (b *balancer) load(i int) []int64 { return b.loads[i*b.experts:][:b.experts] }

// balance sums the experts' loads over all ranks. With move it also moves the selection biases. It
// returns the largest load over the mean, averaged over the layers. It is collective.
func (b *balancer) balance(move bool) (imbalance float64, err error) {
	if len(b.routings) == 0 {
		return 1, nil
	}
	defer b.ex.Enter(b.ex.Enter(profile.Collectives))
	for i, route := range b.routings {
		copy(b.load(i), route.Load)
	}
	if err := collective.AllReduce(b.comm, b.loads, collective.Sum); err != nil {
		return 0, fmt.Errorf("summing expert loads: %w", err)
	}
	for i, route := range b.routings {
		load := b.load(i)
		var most, total int64
		for _, tokens := range load {
			most, total = max(most, tokens), total+tokens
		}
		imbalance += float64(most) * float64(b.experts) / float64(max(total, 1)) / float64(len(b.routings))
		if move {
			route.Balance(load)
		} else {
			clear(route.Load)
		}
	}
	return imbalance, nil
}

// discard drops the loads of an attempt that will be repeated.
func (b *balancer) discard() {
	for _, route := range b.routings {
		clear(route.Load)
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
