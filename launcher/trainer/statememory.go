package trainer

// The memory of weights, gradients and the optimizer's state, which depends on the layout.

import (
	"spmoe/collective/mesh"
	"spmoe/moe"
	"spmoe/moe/optim"
)

// stateMemory returns what each rank holds of a part of the model, without activations. Ranks of
// one host that have the same weights share one copy of them, of their quantized forms and of their
// gradients, except norms and routers. Between hosts nothing is shared. The optimizer's state is
// sharded over all ranks with the same weights, on any number of hosts.
func (c Config) stateMemory(m moe.Module, p moe.Precision, l mesh.Layout, hosts int) (s Memory) {
	held, holders := m.Params, l.World // holders: ranks with the same weights
	if m.Class == moe.Expert {
		held, holders = m.OnRank(l.EP), l.Replicas()
	}
	copies := int64(holders) // ranks per copy
	if m.Class == moe.Single || hosts > 1 {
		copies = 1
	}
	size := int64(p.DType.Size())
	if m.Class == moe.Single {
		size = 4
	}
	s.Weights, s.Gradients = product(held, size)/copies, product(held, 4)/copies
	if how := p.Of(m.Class); how != nil {
		s.Weights += int64(min(float64(held)*m.QuantizedShare(p)*how.WeightBytes(), mostBytes)) / copies
	}
	// the mean of the ranks, if each owns whole matrices
	s.Optimizer = product(held/int64(holders), int64(optim.BytesPerWeight(c.rule())))
	if c.copies() {
		s.Snapshot = s.Optimizer
	}
	return s
}
