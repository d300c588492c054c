package tensor

import (
	"fmt"

	"spmoe/tensor/internal/vec"
)

// AdamWStep holds the constants of one optimizer step; see NewAdamWStep.
type AdamWStep = vec.AdamWStep

// NewAdamWStep prepares step number step, counted from 1, of AdamW with decoupled weight
// decay, in the form of torch.optim.AdamW. Gradients are multiplied by gradScale first.
func NewAdamWStep(lr, beta1, beta2, eps, weightDecay, gradScale float64, step int) AdamWStep {
	return vec.NewAdamWStep(lr, beta1, beta2, eps, weightDecay, gradScale, step)
}

// AdamW updates master weights and both moments in place, in one pass over memory. All four
// are FP32 and of one length.
func AdamW(master, expAvg, expAvgSq, grad Tensor, step AdamWStep) {
	n := master.Len()
	if expAvg.Len() != n || expAvgSq.Len() != n || grad.Len() != n {
		panic(fmt.Sprintf("tensor: AdamW of %d weights with moments of %d and %d and a gradient of %d",
			n, expAvg.Len(), expAvgSq.Len(), grad.Len()))
	}
	vec.AdamW(master.F32(), expAvg.F32(), expAvgSq.F32(), grad.F32(), step)
}

// SumSquares returns the sum of squares of an FP32 tensor in float64.
func SumSquares(x Tensor) float64 { return vec.SumSquares(x.F32()) }
