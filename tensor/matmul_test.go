package tensor

import (
	"fmt"
	"math"
	"testing"
)

// product multiplies in float64, and adds up the absolute values of the terms.
func product(a, b dense) (c, mag dense) {
	c, mag = zeros(a.rows, b.cols), zeros(a.rows, b.cols)
	for i := range a.rows {
		for k, x := range a.row(i) {
			for j, y := range b.row(k) {
				*c.at(i, j) += x * y
				*mag.at(i, j) += math.Abs(x * y)
			}
		}
	}
	return c, mag
}

// operand returns a [rows, cols] region whose memory is transposed if asked.
func (g *generator) operand(rows, cols int, transposed bool) region {
	if !transposed {
		return g.matrix(rows, cols)
	}
	r := g.matrix(cols, rows)
	r.Matrix = r.T()
	return r
}

var matmulShapes = [][3]int{{1, 1, 1}, {3, 5, 7}, {17, 33, 9}, {64, 31, 130}, {2, 70, 1}, {65, 16, 48}, {5, 4, 0}}

func eachProduct(t *testing.T, f func(t *testing.T, g *generator, a, b region, want, mag dense)) {
	eachLayout(t, func(t *testing.T, g *generator) {
		for _, s := range matmulShapes {
			for _, aT := range []bool{false, true} {
				for _, bT := range []bool{false, true} {
					t.Run(fmt.Sprintf("%v,%v,%v", s, aT, bT), func(t *testing.T) {
						a, b := g.operand(s[0], s[2], aT), g.operand(s[2], s[1], bT)
						want, mag := product(values(a.Matrix), values(b.Matrix))
						f(t, g, a, b, want, mag)
					})
				}
			}
		}
	})
}

func TestMatMul(t *testing.T) {
	ex := NewExec()
	eachProduct(t, func(t *testing.T, g *generator, a, b region, want, mag dense) {
		for _, dtype := range floats {
			if dtype == BF16 && g.dtype == FP32 {
				continue // BF16 results are for BF16 operands
			}
			c := g.of(dtype, want.rows, want.cols)
			MatMul(ex, c.Matrix, a.Matrix, b.Matrix)
			near(t, "c", c.Matrix, want, scaled(mag, float64(a.Cols)*eps32))
			c.intact(t)
		}
	})
}

func TestMatMulAdd(t *testing.T) {
	ex := NewExec()
	eachProduct(t, func(t *testing.T, g *generator, a, b region, want, mag dense) {
		c := g.of(FP32, want.rows, want.cols)
		for i, x := range values(c.Matrix).v {
			want.v[i] += x
			mag.v[i] += math.Abs(x)
		}
		MatMulAdd(ex, c.Matrix, a.Matrix, b.Matrix)
		near(t, "c", c.Matrix, want, scaled(mag, float64(a.Cols+1)*eps32))
		c.intact(t)
	})
}
