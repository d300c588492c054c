package optim

import (
	"spmoe/moe"
	"spmoe/tensor"
)

// frozen is the rule of parameters that do not train. They have the state of the rule that would
// train them, so that a run may train them later.
type frozen struct{ Rule }

// ruleOf returns the rule for a parameter.
func ruleOf(rule Rule, p *moe.Param) Rule {
	if rule = rule.Of(p.Class); p.Frozen {
		return frozen{rule}
	}
	return rule
}

// Prepare returns an update that changes nothing. It takes the checksums of all that it reads.
func (frozen) Prepare(Step) Update {
	return func(ex *tensor.Exec, r Run) {
		for i := range r.src {
			dst, src := r.vector(i)
			tensor.Words(ex, &r.Sums.Read[i], src)
			if dst.Len() > 0 && &dst.Bytes()[0] != &src.Bytes()[0] {
				copy(dst.Bytes(), src.Bytes())
			}
			if i > 0 { // Round has the sum of the master weights
				tensor.Words(ex, &r.Sums.Wrote[i], dst)
			}
		}
		tensor.Words(ex, &r.Sums.Grad, r.Grad)
		r.Round(ex)
	}
}
