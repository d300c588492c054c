package hosts

// What a host must hold.

import (
	"spmoe/moe"
	"spmoe/moe/optim"
)

// memory is the bytes of a host: each of its ranks has all replicated weights and gradients and its
// own experts, with the quantized copies of both directions, its part of AdamW's state (replicated
// ones shared by all ranks), and what a pass keeps, with the rows of passes before it whose
// gradients of experts are still to be made.
func (r Recipe) memory(hosts, group int) float64 {
	all, experts := float64(hosts*r.Ranks), float64(group*r.Ranks)
	sequences, passes := r.pass(hosts)
	gathered := min(passes, r.Model.WgradPasses(sequences*r.Seq*group*r.Ranks))
	rank, perWeight := 0.0, float64(optim.BytesPerWeight(optim.AdamW{}))
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
	return rank * float64(r.Ranks)
}
