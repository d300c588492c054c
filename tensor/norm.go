package tensor

import (
	"fmt"
	"math"

	"spmoe/tensor/internal/vec"
)

// RMSNorm computes y = x · rstd · w with rstd = 1/sqrt(mean(x²) + eps) of each row.
//
// x, y: [rows, n]. w: [n] FP32. rstd: [rows] is saved for the backward pass.
func RMSNorm(ex *Exec, y Matrix, rstd []float32, x Matrix, w []float32, eps float32) {
	sameShape(y, x)
	checkNorm(x, w, rstd)
	defer ex.describeRows(x).End()
	forRows(ex, x.Rows, x.Rows*x.Cols, normJob{x: x, y: y, w: w, rstd: rstd, eps: eps}, normRows)
}

// normJob holds the arguments of RMSNorm and of its gradient.
type normJob struct {
	x, y, dy, dx Matrix
	w, rstd      []float32
	eps          float32
	addToDX      bool
	span         int
	dw           Matrix // one row per run of rows, span by span
}

// normRows computes rows [lo, hi).
func normRows(ex *Exec, n normJob, lo, hi int) {
	if lo < hi && allBF16(n.x, n.y) {
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

// split returns the weights in scratch memory, in the order that the kernels on BF16 rows need.
func (ex *Exec) split(w []float32) []float32 {
	row := ex.scratchRow(3, vec.SplitLen(len(w)))
	vec.Split(row, w)
	return row
}

// inverseRMS returns 1/sqrt(squares/n + eps).
func inverseRMS(squares float32, n int, eps float32) float32 {
	return float32(1 / math.Sqrt(float64(squares)/float64(n)+float64(eps)))
}

// RMSNormBackward computes dx, or adds to it, and adds to dw. Its inputs are dy and the operands of
// RMSNorm.
//
// With x̂ = x·rstd and g = dy·w:  dw += Σ dy·x̂  and  dx = rstd·(g - x̂·mean(g·x̂)). The sum over
// rows follows spans of span rows, as in Wgrad.
func RMSNormBackward(ex *Exec, dx Matrix, dw []float32, dy, x Matrix, w, rstd []float32, addToDX bool, span int) {
	sameShape(dx, x)
	sameShape(dy, x)
	checkNorm(x, w, rstd)
	if len(dw) != len(w) {
		panic(fmt.Sprintf("tensor: %d weights and %d gradients", len(w), len(dw)))
	}
	if span < 1 {
		panic(fmt.Sprintf("tensor: norm by spans of %d rows, want 1 or more", span))
	}
	if x.Rows == 0 {
		return
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	span = min(span, x.Rows)
	spans := (x.Rows + span - 1) / span
	n := normJob{x: x, dy: dy, dx: dx, w: w, rstd: rstd, addToDX: addToDX, span: span, dw: ex.New(FP32, spans*NormRuns(span), x.Cols).Mat()}
	defer ex.describeRows(x).End()
	forRows(ex, n.dw.Rows, x.Rows*x.Cols, n, normBackwardRuns)
	if !ex.dry {
		vec.Add(dw, dw, n.weightGradient(spans))
	}
}

// RMSNormBackwardRuns is RMSNormBackward for a part of a span, which begins with a run of it. It
// leaves the sums of runs in runs, [NormRuns(rows), n] FP32, for SumNormRuns.
func RMSNormBackwardRuns(ex *Exec, dx, runs, dy, x Matrix, w, rstd []float32, addToDX bool) {
	sameShape(dx, x)
	sameShape(dy, x)
	checkNorm(x, w, rstd)
	runs.checkFP32Rows()
	if runs.Rows != NormRuns(x.Rows) || runs.Cols != x.Cols {
		panic(fmt.Sprintf("tensor: runs [%d, %d] of a norm of [%d, %d]", runs.Rows, runs.Cols, x.Rows, x.Cols))
	}
	defer ex.describeRows(x).End()
	n := normJob{x: x, dy: dy, dx: dx, w: w, rstd: rstd, addToDX: addToDX, span: max(x.Rows, 1), dw: runs}
	forRows(ex, runs.Rows, x.Rows*x.Cols, n, normBackwardRuns)
}

// SumNormRuns adds the runs of a span, from RMSNormBackwardRuns for each part of it, to dw.
func SumNormRuns(ex *Exec, dw []float32, parts []Matrix) {
	if ex.dry {
		return
	}
	sum := ex.scratchRow(0, len(dw))
	clear(sum)
	for _, runs := range parts {
		for i := range runs.Rows {
			vec.Add(sum, sum, runs.f32Row(i))
		}
	}
	vec.Add(dw, dw, sum)
}

// weightGradient adds up the runs of each span in order, and the spans in a binary tree.
func (n normJob) weightGradient(spans int) []float32 {
	runs := NormRuns(n.span)
	for s := range spans {
		first := n.dw.f32Row(s * runs)
		for i := 1; i < runs; i++ {
			vec.Add(first, first, n.dw.f32Row(s*runs+i))
		}
	}
	for stride := 1; stride < spans; stride *= 2 {
		for s := 0; s+stride < spans; s += 2 * stride {
			left := n.dw.f32Row(s * runs)
			vec.Add(left, left, n.dw.f32Row((s+stride)*runs))
		}
	}
	return n.dw.f32Row(0)
}

// normRun is the largest number of rows whose weight gradients one thread sums. It does not depend
// on the number of threads.
const normRun = 32

// NormRuns returns the number of runs in a span.
func NormRuns(span int) int { return (span + normRun - 1) / normRun }

// normBackwardRuns computes runs [lo, hi). Runs past the end of a short last span are empty.
func normBackwardRuns(ex *Exec, n normJob, lo, hi int) {
	runs := NormRuns(n.span)
	for i := lo; i < hi; i++ {
		begin := i / runs * n.span
		from := begin + i%runs*normRun
		to := min(from+normRun, begin+n.span, n.x.Rows)
		dw := n.dw.f32Row(i)
		clear(dw)
		n.backward(ex, dw, from, to)
	}
}

// backward computes rows [lo, hi) and adds to dw.
func (n normJob) backward(ex *Exec, dw []float32, lo, hi int) {
	x, dy, dx := n.x, n.dy, n.dx
	if allBF16(x, dy, dx) {
		split := ex.split(n.w)
		for r := lo; r < hi; r++ {
			in, d, scale := x.bf16Row(r), dy.bf16Row(r), n.rstd[r]
			sum := vec.NormWeightGradBF16(dw, scale, d, in, n.w)
			vec.NormInputGradBF16(dx.bf16Row(r), n.addToDX, scale, d, split, xFactor(sum, scale, x.Cols), in)
		}
		return
	}
	for r := lo; r < hi; r++ {
		in, d, scale := ex.load(0, x, r), ex.load(1, dy, r), n.rstd[r]
		sum := vec.NormWeightGrad(dw, scale, d, in, n.w)
		out := ex.load(2, dx, r)
		vec.NormInputGrad(out, n.addToDX, scale, d, n.w, xFactor(sum, scale, x.Cols), in)
		ex.store(dx, r, out)
	}
}

// xFactor returns the factor of x in dx. sum is the sum of dy·x·w.
func xFactor(sum, rstd float32, n int) float32 { return -sum * rstd * rstd * rstd / float32(n) }

func checkNorm(x Matrix, w, rstd []float32) {
	if len(w) != x.Cols || len(rstd) != x.Rows {
		panic(fmt.Sprintf("tensor: norm of [%d, %d] with %d weights and %d inverse deviations", x.Rows, x.Cols, len(w), len(rstd)))
	}
}

// Center sets each row of dst, FP32, to x less the mean of its elements, which are summed in
// ascending order. With RMSNorm it is LayerNorm. It is its own gradient.
func Center(ex *Exec, dst, x Matrix) { ex.rowwise(centerRows, dst, x) }

func centerRows(ex *Exec, m [5]Matrix) {
	dst, x := m[0], m[1]
	for r := range dst.Rows {
		row, sum := ex.load(0, x, r), 0.0
		for _, v := range row {
			sum += float64(v)
		}
		mean := float32(sum / float64(len(row)))
		for i, v := range row {
			dst.f32Row(r)[i] = v - mean
		}
	}
}
