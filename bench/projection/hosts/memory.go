package hosts

// The memory that a host needs.

import (
	"spmoe/moe"
	"spmoe/moe/optim"
)

// memory returns the bytes per host, without those of its processes. Each rank has its own experts.
// The ranks of a single host hold one copy of the other matrices; on several hosts, each rank has a
// copy. A copy has FP32 gradients and quantized forms for both directions. A rank also has its part
// of the optimizer's state, where all ranks share the replicated part, and the activations of its
// passes.
func (r Recipe) memory(hosts, group int) float64 {
	all, experts, sharers := float64(hosts*r.Ranks), float64(group*r.Ranks), 1
	if hosts == 1 {
		sharers = r.Ranks
	}
	rule := r.Rule
	if rule == nil {
		rule = optim.AdamW{}
	}
	rank, perWeight := 0.0, float64(optim.BytesPerWeight(rule))
	for _, m := range r.Model.Modules(r.Seq) {
		held, copies, shard := float64(m.Params), 1.0, float64(m.Params)/all
		switch m.Class {
		case moe.Expert:
			held /= experts
			shard = held
		case moe.Plain, moe.Linear:
			copies /= float64(sharers)
		}
		codes := 0.0
		if how := r.Precision.Of(m.Class); how != nil {
			codes = m.QuantizedShare(r.Precision) * how.WeightBytes()
		}
		rank += (float64(r.weightSize(m))+4+codes)*copies*held + perWeight*shard
	}
	sequences, passes := r.pass(hosts)
	pass := r.Model.PassMemory(moe.PassShape{
		Sequences: sequences, Seq: r.Seq, Sharers: sharers, EP: group * r.Ranks, Precision: r.Precision, Adds: passes > 1,
		Deferred: min(passes, r.Model.WgradPasses(sequences*r.Seq*group*r.Ranks)),
	})
	return (rank + pass.AllSaved() + pass.Scratch) * float64(r.Ranks)
}
