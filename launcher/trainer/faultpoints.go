package trainer

// Places where tests damage what a step computes with: [fault] in processes of ranks, corrupt in
// this package's own tests.

import "spmoe/internal/fault"

// passWeights passes the place before gradients are computed: weights and optimizer state in
// memory.
func passWeights(r *rank) {
	if r.job.corrupt != nil {
		r.job.corrupt(r, false)
	}
	if !fault.Armed() {
		return
	}
	for _, g := range r.model.Groups {
		for t := range g.Weights {
			fault.Touch(fault.InWeights, t.Bytes())
		}
	}
	for _, route := range r.balancer.routings {
		fault.Touch(fault.InWeights, route.Bias.Bytes())
	}
	for _, t := range r.optim.State {
		fault.Touch(fault.InState, t.Bytes())
	}
}

// passGradients passes the place after this rank has computed its gradients. Their padding, which
// nothing reads, is left out.
func passGradients(r *rank) {
	if r.job.corrupt != nil {
		r.job.corrupt(r, true)
	}
	if !fault.Armed() {
		return
	}
	for _, g := range r.model.Groups {
		fault.Touch(fault.InGradient, g.Grad.Slice(0, g.ParamLen()).Bytes())
	}
}
