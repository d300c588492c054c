package tensor

import (
	"math"
	"testing"
)

const normEps = 1e-2

// rmsNorm is RMSNorm in float64.
func rmsNorm(x, w dense) (y, rstd dense) {
	y, rstd = zeros(x.rows, x.cols), zeros(1, x.rows)
	for r := range x.rows {
		row := dense{1, x.cols, x.row(r)}
		rstd.v[r] = 1 / math.Sqrt(inner(row, row)/float64(x.cols)+normEps)
		for j, v := range row.v {
			*y.at(r, j) = v * rstd.v[r] * w.v[j]
		}
	}
	return y, rstd
}

var normShapes = [][2]int{{1, 1}, {3, 17}, {2, 64}, {5, 131}}

func eachNorm(t *testing.T, f func(t *testing.T, g *generator, x region, w []float32)) {
	eachLayout(t, func(t *testing.T, g *generator) {
		for _, s := range normShapes {
			x := g.matrix(s[0], s[1])
			for j := range x.Cols { // a row about as small as the root of eps
				set(x.Matrix, 0, j, get(x.Matrix, 0, j)*0x1p-4)
			}
			f(t, g, x, g.vector(s[1]))
		}
	})
}

func TestRMSNorm(t *testing.T) {
	ex := NewExec()
	eachNorm(t, func(t *testing.T, g *generator, x region, w []float32) {
		want, wantRSTD := rmsNorm(values(x.Matrix), values(vectorOf(w)))
		rstd := make([]float32, x.Rows)
		for _, y := range []region{g.matrix(x.Rows, x.Cols), x} {
			RMSNorm(ex, y.Matrix, rstd, x.Matrix, w, normEps)
			near(t, "y", y.Matrix, want, scaled(want, 0))
			near(t, "rstd", vectorOf(rstd), wantRSTD, absolute(0))
			y.intact(t)
		}
	})
}

// TestRMSNormBackward holds the gradients of sum(dy·y) against numeric differentiation.
func TestRMSNormBackward(t *testing.T) {
	ex := NewExec()
	eachNorm(t, func(t *testing.T, g *generator, x region, w []float32) {
		rstd := make([]float32, x.Rows)
		RMSNorm(ex, g.matrix(x.Rows, x.Cols).Matrix, rstd, x.Matrix, w, normEps)
		for _, mode := range []string{"set", "add", "dx is dy"} {
			dx, dy := g.matrix(x.Rows, x.Cols), g.matrix(x.Rows, x.Cols)
			if mode == "dx is dy" {
				dx = dy
			}
			dw := g.vector(x.Cols)
			inputs, weights, outer := values(x.Matrix), values(vectorOf(w)), values(dy.Matrix)
			loss := func() float64 {
				y, _ := rmsNorm(inputs, weights)
				return inner(outer, y)
			}
			wantDX, wantDW := gradient(inputs, loss), gradient(weights, loss)
			for i, old := range values(vectorOf(dw)).v {
				wantDW.v[i] += old
			}
			if mode == "add" {
				for i, old := range values(dx.Matrix).v {
					wantDX.v[i] += old
				}
			}
			RMSNormBackward(ex, dx.Matrix, dw, dy.Matrix, x.Matrix, w, rstd, mode == "add", 2)
			near(t, "dx, "+mode, dx.Matrix, wantDX, normSlack(rstd, x.Cols))
			near(t, "dw, "+mode, vectorOf(dw), wantDW, absolute(4e-6))
			dx.intact(t)
		}
	})
}

// normSlack allows an error in proportion to rstd, with which the gradients of a row grow.
func normSlack(rstd []float32, cols int) slack {
	return func(i int) float64 { return 4e-6 * float64(1+rstd[i/cols]) }
}
