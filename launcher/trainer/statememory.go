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
// passes, of gradients that ranks or hosts sum, and all of the dense weights with FSDP.
func (c Config) stateMemory(m moe.Module, p moe.Precision, l mesh.Layout, hosts int) (s Memory) {
	held, holders := m.Params, l.World // holders: ranks with the same weights
	if m.Class == moe.Expert {
		held, holders = m.OnRank(l.EP), l.Replicas()
	}
	// the mean of the ranks, if each owns whole matrices
	s.Optimizer = product(held/int64(holders), int64(optim.BytesPerWeight(c.rule().Of(m.Class))))
	if c.copies() {
		s.Snapshot = s.Optimizer
	}
	copies := int64(1) // ranks per copy
	switch {
	case c.sharded(m, l, hosts):
		s.Weights, s.Gradients = product(held, int64(p.DType.Size()))/int64(l.World), product(held, 4)/int64(l.World)
		return s
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
	s.Weights += int64(min(float64(held)*m.CodeBytes(p), mostBytes)) / copies
	return s
}

// sharded reports whether hosts hold a part of these weights each.
func (c Config) sharded(m moe.Module, l mesh.Layout, hosts int) bool {
	return c.FSDP && hosts > 1 && l.World%hosts == 0 && (m.Class == moe.Plain || m.Class == moe.Linear)
}

// bufferMemory returns a rank's share of what its host gathers sharded weights into, and computes
// their gradients in: the largest unit, with the quantized forms of the largest one that has them.
func (c Config) bufferMemory(p moe.Precision, l mesh.Layout, hosts int) (s Memory) {
	if !c.sharded(moe.Module{Class: moe.Linear}, l, hosts) {
		return s
	}
	var most moe.DenseUnit
	for _, u := range c.Model.DenseUnits() {
		most.Params, most.Quantized = max(most.Params, u.Params), max(most.Quantized, u.Quantized)
	}
	each := int64(sharers(l, hosts))
	s.Weights, s.Gradients = product(most.Params, int64(p.DType.Size()))/each, product(most.Params, 4)/each
	s.Weights += int64(min(float64(most.Quantized)*p.MostCodeBytes(moe.Linear), mostBytes)) / each
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
