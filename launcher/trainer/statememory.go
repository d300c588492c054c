package trainer

// The memory of weights, gradients and the optimizer's state, which depends on the layout.

import (
	"spmoe/collective/mesh"
	"spmoe/moe"
	"spmoe/moe/optim"
)

// stateMemory returns what each rank holds of a part of the model, without activations. The ranks
// of a host share one copy of dense weights, of their quantized forms and of their gradients,
// except norms and routers. On one host, replicas of an expert do so too. The optimizer's state is
// sharded over all ranks with the same weights, on any number of hosts. So are the sums of earlier
// passes, of gradients that ranks or hosts sum.
func (c Config) stateMemory(m moe.Module, p moe.Precision, l mesh.Layout, hosts int) (s Memory) {
	held, holders := m.Params, l.World // holders: ranks with the same weights
	if m.Class == moe.Expert {
		held, holders = m.OnRank(l.EP), l.Replicas()
	}
	copies := int64(1) // ranks per copy
	switch {
	case m.Class == moe.Expert && hosts == 1:
		copies = int64(holders)
	case m.Class == moe.Plain || m.Class == moe.Linear:
		copies = int64(sharers(l, hosts))
	}
	size := int64(p.DType.Size())
	if m.Class == moe.Single {
		size = 4
	}
	s.Weights, s.Gradients = product(held, size)/copies, product(held, 4)/copies
	if (m.Class == moe.Single || hosts > 1) && holders > 1 && c.passes(l.World) > 1 {
		s.Gradients += product(held, 4) / int64(holders)
	}
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

// sharers returns the number of ranks that share a copy of the dense weights: those of a host, if
// all hosts have the same number.
func sharers(l mesh.Layout, hosts int) int {
	if l.World%hosts != 0 {
		return 1
	}
	return l.World / hosts
}
