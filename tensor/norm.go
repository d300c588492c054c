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
	rowParts(ex, x.Rows, x.Rows*x.Cols, norm{x: x, y: y, w: w, rstd: rstd, eps: eps}, normRows)
}

// norm is the arguments of RMSNorm and of its gradient.
type norm struct {
	x, y, dy, dx Matrix
	w, rstd      []float32
	eps          float32
	addToDX      bool
	dw           Matrix // a row for each normRun rows
}

// normRows does rows [lo, hi).
func normRows(ex *Exec, n norm, lo, hi int) {
	if allBF16(n.x, n.y) {
		split := ex.split(n.w)
		for r := lo; r < hi; r++ {
			in := n.x.bf16Row(r)
			n.rstd[r] = inverseRMS(vec.SquaresBF16(in), len(in), n.eps)
			vec.MulScaledBF16(n.y.bf16Row(r), n.rstd[r], in, split)
		}
		return
	}
	for r := lo; r < hi; r++ {
		in := ex.load(0, n.x, r)
		n.rstd[r] = inverseRMS(vec.Dot(in, in), len(in), n.eps)
		out := ex.target(1, n.y, r)
		vec.MulScaled(out, n.rstd[r], in, n.w)
		ex.store(n.y, r, out)
	}
}

// split returns the weights in the order that kernels on BF16 rows want, in scratch.
func (ex *Exec) split(w []float32) []float32 {
	row := ex.scratchRow(3, vec.SplitLen(len(w)))
	vec.Split(row, w)
	return row
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
	mark := ex.Mark()
	defer ex.Release(mark)
	n := norm{x: x, dy: dy, dx: dx, w: w, rstd: rstd, addToDX: addToDX, dw: ex.New(FP32, (x.Rows+normRun-1)/normRun, x.Cols).Mat()}
	rowParts(ex, n.dw.Rows, x.Rows*x.Cols, n, normBackwardRuns)
	for i := range n.dw.Rows {
		vec.AddScaled(dw, 1, n.dw.f32Row(i))
	}
}

// normRun is the number of rows whose weight gradients are summed by one thread, whatever the number of threads; the
// sums are added in order.
const normRun = 32

// normBackwardRuns does runs [lo, hi) of normRun rows.
func normBackwardRuns(ex *Exec, n norm, lo, hi int) {
	for i := lo; i < hi; i++ {
		from, to := i*normRun, min((i+1)*normRun, n.x.Rows)
		dw := n.dw.f32Row(i)
		clear(dw)
		n.backward(ex, dw, from, to)
	}
}

// backward does rows [lo, hi), and adds to dw.
func (n norm) backward(ex *Exec, dw []float32, lo, hi int) {
	x, dy, dx := n.x, n.dy, n.dx
	if allBF16(x, dy, dx) {
		split := ex.split(n.w)
		for r := lo; r < hi; r++ {
			in, d, scale := x.bf16Row(r), dy.bf16Row(r), n.rstd[r]
			sum := vec.NormWeightGradBF16(dw, scale, d, in, n.w)
			vec.NormInputGradBF16(dx.bf16Row(r), n.addToDX, scale, d, split, perX(sum, scale, x.Cols), in)
		}
		return
	}
	for r := lo; r < hi; r++ {
		in, d, scale := ex.load(0, x, r), ex.load(1, dy, r), n.rstd[r]
		sum := vec.NormWeightGrad(dw, scale, d, in, n.w)
		out := ex.load(2, dx, r)
		vec.NormInputGrad(out, n.addToDX, scale, d, n.w, perX(sum, scale, x.Cols), in)
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
