package optim

// An exponential moving average of the master weights, as more state of any rule.

import (
	"math"

	"spmoe/moe"
	"spmoe/tensor"
)

// AverageName is the name of the vector of averaged weights: see [Averaged].
const AverageName = "ema"

// averaged is a rule with one more vector, the last one: the average a of its master weights w over
// its updates,
//
//	a = Σ decay^(n-i)·w_i / Σ decay^(n-i),  i = 1 … n
//
// so that the initial weights have no share in it. It is FP32. A step that is skipped is no update.
type averaged struct {
	Rule
	decay float64
}

// Averaged returns a rule that also averages the weights, with a decay of at least 0 and below 1. A
// decay of 0 returns the rule itself. [Optimizer.PublishAverage] puts the average to use.
func Averaged(rule Rule, decay float64) Rule {
	if decay == 0 {
		return rule
	}
	return averaged{rule, decay}
}

// Vectors lists those of the rule, and the average.
func (a averaged) Vectors() []Vector {
	return append(a.Rule.Vectors(), Vector{AverageName, tensor.FP32})
}

// Of is the rule for the class, with an average.
func (a averaged) Of(c moe.Class) Rule { return averaged{a.Rule.Of(c), a.decay} }

// Scratch is that of the rule.
func (a averaged) Scratch(rows, cols int) float64 { return Scratch(a.Rule, rows, cols) }

// Prepare returns the update of a step, and of the average after it.
func (a averaged) Prepare(s Step) Update {
	update, own, keep := a.Rule.Prepare(s), len(a.Rule.Vectors()), a.keep(s.Number)
	return func(ex *tensor.Exec, r Run) {
		update(ex, r)
		average, before := r.Vector(own)
		master, _ := r.Master()
		tensor.LinearSum(ex, average, float32(keep), before, float32(1-keep), master, r.sumsOf(1+own, false))
	}
}

// keep returns the factor of the old average in update number n. It is 0 in the first one, and
// rises to the decay.
func (a averaged) keep(n int) float64 {
	past := 1 - math.Pow(a.decay, float64(n-1)) // Σ decay^i of the updates before, times 1-decay
	return a.decay * past / (1 - math.Pow(a.decay, float64(n)))
}

// Averages reports whether there is an average to publish: the rule is an [Averaged] one, and
// weights were updated.
func (o *Optimizer) Averages() bool { return o.averages && o.steps > 0 }

// PublishAverage rounds the averaged weights to the working weights of all ranks, for passes
// without an update. Publish must follow. The state must have an average: see Averages. It is
// collective.
func (o *Optimizer) PublishAverage() error {
	if !o.Averages() {
		panic("optim: there are no averaged weights")
	}
	return o.publish(func(s state) tensor.Tensor { return s[len(s)-1] })
}
