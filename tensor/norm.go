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
	for r := range x.Rows {
		in := ex.load(0, x, r)
		scale := float32(1 / math.Sqrt(float64(vec.Dot(in, in))/float64(len(in))+float64(eps)))
		rstd[r] = scale
		out := ex.target(1, y, r)
		vec.MulScaled(out, scale, in, w)
		ex.store(y, r, out)
	}
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
	for r := range x.Rows {
		in, d := ex.load(0, x, r), ex.load(1, dy, r)
		scale := rstd[r]
		vec.AddMulScaled(dw, scale, d, in)
		g := ex.scratchRow(2, len(in))
		vec.MulScaled(g, scale, d, w)
		vec.AddScaled(g, -vec.Dot(g, in)*scale*scale/float32(len(in)), in)
		if addToDX {
			vec.Add(g, g, ex.load(3, dx, r))
		}
		out := ex.target(3, dx, r)
		copy(out, g)
		ex.store(dx, r, out)
	}
}

func checkNorm(x Matrix, w, rstd []float32) {
	if len(w) != x.Cols || len(rstd) != x.Rows {
		panic(fmt.Sprintf("tensor: norm of [%d, %d] with %d weights and %d inverse deviations", x.Rows, x.Cols, len(w), len(rstd)))
	}
}
