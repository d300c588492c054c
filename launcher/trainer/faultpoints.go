package trainer

// Places where tests damage the data of a step: [fault] in rank processes, corrupt in this
// package's own tests.

import "spmoe/internal/fault"

// passWeights passes the place before gradients are computed, with weights and optimizer state in
// memory.
func passWeights(r *rank) {
	if r.job.corrupt != nil {
		r.job.corrupt(r, false)
	}
	if !fault.Armed() {
		return
	}
	for _, g := range r.groups() {
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

// passGradients passes the place after this rank has computed its gradients. It leaves out their
// padding, which nothing reads.
func passGradients(r *rank) {
	if r.job.corrupt != nil {
		r.job.corrupt(r, true)
	}
	if !fault.Armed() {
		return
	}
	for _, g := range r.groups() {
		fault.Touch(fault.InGradient, g.Grad.Slice(0, min(g.ParamLen(), g.Len())).Bytes())
	}
}
