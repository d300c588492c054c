package hosts

// The memory that a host needs.

import (
	"spmoe/moe"
	"spmoe/moe/optim"
)

// memory returns the bytes per host. Each rank has all replicated weights and gradients and its own
// experts, with the quantized copies of both directions. It has its part of the optimizer's state,
// where all ranks share the replicated part. It also has the activations of a pass, with the rows
// of earlier passes whose expert gradients are deferred, and the output's scratch memory.
func (r Recipe) memory(hosts, group int) float64 {
	all, experts := float64(hosts*r.Ranks), float64(group*r.Ranks)
	sequences, passes := r.pass(hosts)
	gathered := min(passes, r.Model.WgradPasses(sequences*r.Seq*group*r.Ranks))
	rule := r.Rule
	if rule == nil {
		rule = optim.AdamW{}
	}
	rank, perWeight := 0.0, float64(optim.BytesPerWeight(rule))
	for _, m := range r.Model.Modules(r.Seq) {
		held, shard := float64(m.Params), float64(m.Params)/all
		if m.Class == moe.Expert {
			held /= experts
			shard = held
		}
		weight := float64(r.weightSize(m))
		if how := r.Precision.Of(m.Class); how != nil {
			weight += m.QuantizedShare(r.Precision) * how.WeightBytes()
		}
		kept := float64(sequences*r.Seq) * float64(m.Kept+int64(gathered-1)*m.DeferredWgrad()) * float64(r.Precision.DType.Size())
		rank += (weight+4)*held + perWeight*shard + kept
	}
	rank += float64(r.Model.OutputScratch(sequences, r.Seq, r.Precision.DType, passes > 1, 1))
	return rank * float64(r.Ranks)
}
