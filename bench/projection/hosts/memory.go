package hosts

// The memory that a host needs.

import (
	"spmoe/moe"
	"spmoe/moe/optim"
)

// memory returns the bytes per host, without those of its processes. Each rank has its own experts.
// The ranks of a host hold one copy of the other matrices, with FP32 gradients and quantized forms
// for both directions. A rank also has its part of the optimizer's state, where all ranks share the
// replicated part, its part of the sums of earlier passes, and the activations of its passes.
func (r Recipe) memory(hosts, group int) float64 {
	all, experts := float64(hosts*r.Ranks), float64(group*r.Ranks)
	rule := r.Rule
	if rule == nil {
		rule = optim.AdamW{}
	}
	sequences, passes := r.pass(hosts)
	rank := 0.0
	for _, m := range r.Model.Modules(r.Seq) {
		held, copies, shard := float64(m.Params), 1.0, float64(m.Params)/all
		switch m.Class {
		case moe.Expert:
			held /= experts
			shard = held
		case moe.Plain, moe.Linear:
			copies /= float64(r.Ranks)
		}
		codes := 0.0
		if how := r.Precision.Of(m.Class); how != nil {
			codes = m.QuantizedShare(r.Precision) * how.WeightBytes()
		}
		rank += (float64(r.weightSize(m))+4+codes)*copies*held + float64(optim.BytesPerWeight(rule.Of(m.Class)))*shard
		if passes > 1 && all > 1 && (m.Class == moe.Single || hosts > 1 && m.Class != moe.Expert) {
			rank += 4 * shard // the sums of earlier passes
		}
	}
	pass := r.Model.PassMemory(moe.PassShape{
		Sequences: sequences, Seq: r.Seq, Sharers: r.Ranks, EP: group * r.Ranks, Precision: r.Precision, Adds: passes > 1,
		Deferred: min(passes, r.Model.WgradPasses(sequences*r.Seq*group*r.Ranks)),
	})
	return (rank + pass.AllSaved() + pass.Rows + pass.Scratch) * float64(r.Ranks)
}
