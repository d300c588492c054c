package trainer

import "spmoe/internal/fault"

// touchMemory shows what this rank computes with, and its part of the optimizer's state, to those who test what happens when it changes by
// itself.
func (r *rank) touchMemory() {
	if !fault.Armed() {
		return
	}
	for _, g := range r.model.Groups {
		for t := range g.Weights {
			fault.Touch(fault.InWeights, t.Bytes())
		}
	}
	for _, route := range r.routings {
		fault.Touch(fault.InWeights, route.Bias.Bytes())
	}
	for _, t := range r.optim.State {
		fault.Touch(fault.InState, t.Bytes())
	}
}

// touchGradients is touchMemory for the gradients that this rank has computed, without padding, which nobody would miss.
func (r *rank) touchGradients() {
	if !fault.Armed() {
		return
	}
	for _, g := range r.model.Groups {
		fault.Touch(fault.InGradient, g.Grad.Slice(0, g.ParamLen()).Bytes())
	}
}
