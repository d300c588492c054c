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
func AdamW(ex *Exec, master, expAvg, expAvgSq, grad Tensor, step AdamWStep) {
	n := master.Len()
	if expAvg.Len() != n || expAvgSq.Len() != n || grad.Len() != n {
		panic(fmt.Sprintf("tensor: AdamW of %d weights with moments of %d and %d and a gradient of %d",
			n, expAvg.Len(), expAvgSq.Len(), grad.Len()))
	}
	job := update{master: master.F32(), expAvg: expAvg.F32(), expAvgSq: expAvgSq.F32(), grad: grad.F32(), step: step}
	rowParts(ex, runs(n), n, job, updateRuns)
}

// update is the arguments of AdamW.
type update struct {
	master, expAvg, expAvgSq, grad []float32
	step                           AdamWStep
}

func updateRuns(_ *Exec, u update, lo, hi int) {
	vec.AdamW(ofRuns(u.master, lo, hi), ofRuns(u.expAvg, lo, hi), ofRuns(u.expAvgSq, lo, hi), ofRuns(u.grad, lo, hi), u.step)
}

// SumSquares returns the sum of squares of an FP32 tensor in float64.
func SumSquares(ex *Exec, x Tensor) float64 {
	v := x.F32()
	job := squares{x: v, sums: ex.scratchSums((len(v) + vec.Chunk - 1) / vec.Chunk)}
	rowParts(ex, len(job.sums), len(v), job, sumSquaresChunks)
	var sum float64
	for _, s := range job.sums {
		sum += s
	}
	return sum
}

// squares is the arguments of SumSquares, and the sum of each chunk.
type squares struct {
	x    []float32
	sums []float64
}

func sumSquaresChunks(_ *Exec, s squares, lo, hi int) {
	for c := lo; c < hi; c++ {
		s.sums[c] = vec.SumSquares(s.x[c*vec.Chunk : min((c+1)*vec.Chunk, len(s.x))])
	}
}
