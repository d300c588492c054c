package hosts

// The memory that a host needs.

import (
	"slices"

	"spmoe/collective/ep"
	"spmoe/collective/mesh"
	"spmoe/moe"
	"spmoe/moe/optim"
	"spmoe/tensor"
)

// memory returns the bytes per host, without those of its processes, from a dry run of its first
// rank. It is 0 if the model has no such layout.
func (r Recipe) memory(hosts, group int) float64 {
	rule := r.Rule
	if rule == nil {
		rule = optim.AdamW{}
	}
	sequences, passes := r.pass(hosts)
	n := hosts * r.Ranks
	on := moe.DryMesh(mesh.Layout{World: n, PP: 1, DPReplicate: 1, DPShard: n, EP: group * r.Ranks}, hosts, 0)
	options := ep.Options{Dispatch: r.Wire}
	whole, err := moe.NewDryRun(on, r.Model, r.Precision, r.Seq, options, r.Model.Whole(), false)
	if err != nil {
		return 0
	}
	optim.NewDry(tensor.NewDryExec(), whole.Groups, on.World, rule)
	once, err := moe.NewDryRun(on, r.Model, r.Precision, r.Seq, options, r.Model.Whole(), true)
	if err == nil {
		err = whole.SumPasses(passes)
	}
	if err == nil {
		err = once.Step(slices.Repeat([]int{sequences}, min(passes, r.Model.WgradPasses(r.Precision, sequences*r.Seq*n)+1)), r.Seq, false)
	}
	if err != nil {
		return 0
	}
	pass := once.PassMemory(r.Seq)
	rank := float64(optim.StateBytes(rule, whole.Groups)) + pass.AllSaved() + pass.Rows + pass.Scratch
	whole.Held(func(_ moe.PartKey, weights, gradients float64) { rank += weights + gradients })
	return rank * float64(r.Ranks)
}
