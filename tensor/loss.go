package tensor

import (
	"fmt"
	"math"

	"spmoe/tensor/internal/vec"
)

// CrossEntropy returns the sum over rows of -log softmax(logits)[target], in nats. It overwrites
// logits with the gradient of scale times that sum: (softmax - onehot)·scale.
//
// logits: [rows, vocab] FP32. A row with a negative target has no loss and a zero gradient.
func CrossEntropy(ex *Exec, logits Matrix, targets []int32, scale float32) float64 {
	logits.checkFP32Rows()
	if len(targets) != logits.Rows {
		panic(fmt.Sprintf("tensor: %d targets for %d rows of logits", len(targets), logits.Rows))
	}
	var sum float64
	job := crossEntropyJob{logits: logits, targets: targets, scale: scale, losses: ex.scratchSums(logits.Rows)}
	forRows(ex, logits.Rows, logits.Rows*logits.Cols, job, crossEntropyRows)
	for _, l := range job.losses {
		sum += l
	}
	return sum
}

// crossEntropyJob holds the arguments of CrossEntropy and the loss of each row.
type crossEntropyJob struct {
	logits  Matrix
	targets []int32
	scale   float32
	losses  []float64
}

func crossEntropyRows(_ *Exec, c crossEntropyJob, lo, hi int) {
	for r := lo; r < hi; r++ {
		c.losses[r] = crossEntropyRow(c.logits.f32Row(r), c.targets[r], c.scale)
	}
}

func crossEntropyRow(row []float32, target int32, scale float32) float64 {
	if target < 0 {
		clear(row)
		return 0
	}
	if int(target) >= len(row) {
		panic(fmt.Sprintf("tensor: target %d of a vocabulary of %d", target, len(row)))
	}
	top := vec.Max(row)
	correct := row[target]
	z := vec.ExpSum(row, 1, row, top)
	vec.Scale(row, scale/z, row)
	row[target] -= scale
	return math.Log(float64(z)) + float64(top) - float64(correct)
}
