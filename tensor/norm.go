package tensor

import (
	"fmt"
	"math"

	"spmoe/tensor/internal/vec"
)

// RMSNorm computes y = x · rstd · w with rstd = 1/sqrt(mean(x²) + eps) of each row.
//
// x, y: [rows, n]; w: [n] FP32; rstd: [rows], kept for the backward pass.
func RMSNorm(ex *Exec, y Matrix, rstd []float32, x Matrix, w []float32, eps float32) {
	sameShape(y, x)
	checkNorm(x, w, rstd)
	fused := allBF16(x, y)
	for r := range x.Rows {
		if fused {
			in := x.bf16Row(r)
			rstd[r] = inverseRMS(vec.SquaresBF16(in), len(in), eps)
			vec.MulScaledBF16(y.bf16Row(r), rstd[r], in, w)
			continue
		}
		in := ex.load(0, x, r)
		rstd[r] = inverseRMS(vec.Dot(in, in), len(in), eps)
		out := ex.target(1, y, r)
		vec.MulScaled(out, rstd[r], in, w)
		ex.store(y, r, out)
	}
}

// inverseRMS returns 1/sqrt(squares/n + eps).
func inverseRMS(squares float32, n int, eps float32) float32 {
	return float32(1 / math.Sqrt(float64(squares)/float64(n)+float64(eps)))
}

// RMSNormBackward computes dx, or adds to it, and adds to dw, from dy and what RMSNorm saw.
//
// With x̂ = x·rstd and g = dy·w:  dw += Σ dy·x̂  and  dx = rstd·(g - x̂·mean(g·x̂)).
func RMSNormBackward(ex *Exec, dx Matrix, dw []float32, dy, x Matrix, w, rstd []float32, addToDX bool) {
	sameShape(dx, x)
	sameShape(dy, x)
	checkNorm(x, w, rstd)
	if len(dw) != len(w) {
		panic(fmt.Sprintf("tensor: %d weights and %d gradients", len(w), len(dw)))
	}
	fused := allBF16(x, dy, dx)
	for r := range x.Rows {
		scale := rstd[r]
		if fused {
			in, d := x.bf16Row(r), dy.bf16Row(r)
			sum := vec.NormWeightGradBF16(dw, scale, d, in, w)
			vec.NormInputGradBF16(dx.bf16Row(r), addToDX, scale, d, w, perX(sum, scale, x.Cols), in)
			continue
		}
		in, d := ex.load(0, x, r), ex.load(1, dy, r)
		sum := vec.NormWeightGrad(dw, scale, d, in, w)
		out := ex.load(2, dx, r)
		vec.NormInputGrad(out, addToDX, scale, d, w, perX(sum, scale, x.Cols), in)
		ex.store(dx, r, out)
	}
}

// perX returns what x is multiplied by in dx, where sum is that of dy·x·w.
func perX(sum, rstd float32, n int) float32 { return -sum * rstd * rstd * rstd / float32(n) }

func checkNorm(x Matrix, w, rstd []float32) {
	if len(w) != x.Cols || len(rstd) != x.Rows {
		panic(fmt.Sprintf("tensor: norm of [%d, %d] with %d weights and %d inverse deviations", x.Rows, x.Cols, len(w), len(rstd)))
	}
}
