package optim

import (
	"fmt"
	"math"

	"spmoe/moe"
	"spmoe/tensor"
)

// AdamW holds the constants of the optimizer (arXiv:1711.05101). Weight decay applies to every
// parameter.
type AdamW struct {
	Beta1, Beta2, Eps, WeightDecay float64
	// Moments is the type in which both moments are stored: FP32, or BF16 as in DeepSeek-V3
	// (arXiv:2412.19437, 3.3.3). The arithmetic is FP32 with either.
	Moments tensor.DType
}

// maxBF16Beta is the largest beta with which BF16 moments decay. A moment m is rounded back to m if
// (1-beta)·m is less than half a unit in its last place, which is at most m/256.
const maxBF16Beta = 1 - 1.0/256

// Validate returns an error for the first invalid field.
func (c AdamW) Validate() error {
	switch {
	case !(c.Beta1 >= 0 && c.Beta1 < 1):
		return fmt.Errorf("optimizer.beta1 is %g: give 0 or more, below 1", c.Beta1)
	case !(c.Beta2 >= 0 && c.Beta2 < 1):
		return fmt.Errorf("optimizer.beta2 is %g: give 0 or more, below 1", c.Beta2)
	case c.Moments == tensor.BF16 && max(c.Beta1, c.Beta2) > maxBF16Beta:
		return fmt.Errorf("optimizer.beta1 is %g and optimizer.beta2 %g: with moments in bf16 give at most %g, because a moment would be rounded back instead of decaying", c.Beta1, c.Beta2, maxBF16Beta)
	case !(c.Eps > 0) || math.IsInf(c.Eps, 0):
		return fmt.Errorf("optimizer.eps is %g: give a positive number", c.Eps)
	case !(c.WeightDecay >= 0) || math.IsInf(c.WeightDecay, 0):
		return fmt.Errorf("optimizer.weight_decay is %g: give 0 or more", c.WeightDecay)
	}
	return nil
}

// Vectors lists both moments.
func (c AdamW) Vectors() []Vector {
	return []Vector{{"exp_avg", c.Moments}, {"exp_avg_sq", c.Moments}}
}

// WholeMatrices is false: each weight is updated on its own.
func (c AdamW) WholeMatrices() bool { return false }

// Scratch is 0: an update takes no memory.
func (c AdamW) Scratch(rows, cols int) float64 { return 0 }

// Of is AdamW for all parameters.
func (c AdamW) Of(moe.Class) Rule { return c }

// Prepare returns the update of a step. It passes over memory once.
func (c AdamW) Prepare(s Step) Update {
	step := tensor.NewAdamWStep(s.LR, c.Beta1, c.Beta2, c.Eps, c.WeightDecay, s.GradScale, s.Number)
	return func(ex *tensor.Exec, r Run) {
		var dst, src tensor.AdamWState
		dst.Master, src.Master = r.Master()
		dst.ExpAvg, src.ExpAvg = r.Vector(0)
		dst.ExpAvgSq, src.ExpAvgSq = r.Vector(1)
		tensor.AdamW(ex, dst, src, r.Work, r.Grad, step, r.Sums)
	}
}
