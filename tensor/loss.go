package tensor

import (
	"fmt"
	"math"

	"spmoe/tensor/internal/vec"
)

// CrossEntropy returns the sum over rows of -log softmax(logits)[target], in nats, and turns
// logits into the gradient of scale times that sum: (softmax - onehot)·scale.
//
// logits: [rows, vocab] FP32, overwritten; a row whose target is negative counts as nothing.
func CrossEntropy(logits Matrix, targets []int32, scale float32) float64 {
	logits.checkFP32Rows()
	if len(targets) != logits.Rows {
		panic(fmt.Sprintf("tensor: %d targets for %d rows of logits", len(targets), logits.Rows))
	}
	var sum float64
	for r, target := range targets {
		row := logits.f32Row(r)
		if target < 0 {
			clear(row)
			continue
		}
		if int(target) >= logits.Cols {
			panic(fmt.Sprintf("tensor: target %d of a vocabulary of %d", target, logits.Cols))
		}
		top := vec.Max(row)
		correct := row[target]
		z := vec.ExpSum(row, 1, row, top)
		sum += math.Log(float64(z)) + float64(top) - float64(correct)
		vec.Scale(row, scale/z, row)
		row[target] -= scale
	}
	return sum
}
