package optim

import (
	"math"
	"slices"

	"spmoe/tensor"
)

// Newton-Schulz iterations that replace all singular values of a matrix by about 1
// (https://kellerjordan.github.io/posts/muon). An iteration applies an odd polynomial to each
// singular value.

// Polynomial has the coefficients of a·s + b·s³ + c·s⁵.
type Polynomial struct{ A, B, C float32 }

var (
	// It lifts small values fast. The results lie between about 0.7 and 1.2.
	fast = Polynomial{3.4445, -4.7750, 2.0315}
	// 1 is a fixed point with slope 0: it brings values near 1 closer.
	closing = Polynomial{2, -1.5, 0.5}

	fiveSteps = slices.Repeat([]Polynomial{fast}, 5)
	tenSteps  = append(slices.Repeat([]Polynomial{fast}, 8), closing, closing)
)

const nsEps = 1e-7 // added to the norm of a matrix, which may be zero

// NewtonSchulz returns the orthogonalized x in type dtype, FP32 or BF16, in the arena of ex. The
// products have operands of that type and FP32 sums.
//
// x: [rows, cols] FP32. The bits depend on x only, and on the instruction tier.
func NewtonSchulz(ex *tensor.Exec, x tensor.Tensor, dtype tensor.DType, iterations []Polynomial) tensor.Tensor {
	rows, cols := x.Dim(0), x.Dim(1)
	side := min(rows, cols)
	y := ex.New(dtype, rows, cols)
	mark := ex.Mark()
	defer ex.Release(mark)
	product, gram, factor := ex.New(tensor.FP32, rows, cols), ex.New(dtype, side, side), ex.New(dtype, side, side)
	square := product.Reshape(rows*cols).Slice(0, side*side).Reshape(side, side) // used before product

	squares := 0.0
	for _, s := range tensor.SumSquares(ex, x.Reshape(x.Len()), normPiece) {
		squares += s
	}
	scale := float32(1 / (math.Sqrt(squares) + nsEps)) // singular values are at most 1
	tensor.LinearSum(ex, y, scale, x, 0, x, tensor.LinearSums{})
	for _, p := range iterations {
		// With G = y·yᵀ or, of a tall matrix, yᵀ·y: y = a·y + (b·G + c·G²)·y, or y·(...).
		wide, tall := y.Mat(), y.Mat().T()
		if rows > cols {
			wide, tall = tall, wide
		}
		tensor.MatMulSymmetric(ex, gram.Mat(), wide, tall)
		tensor.MatMulSymmetric(ex, square.Mat(), gram.Mat(), gram.Mat())
		tensor.LinearSum(ex, factor, p.B, gram, p.C, square, tensor.LinearSums{})
		if rows > cols {
			tensor.MatMul(ex, product.Mat(), y.Mat(), factor.Mat())
		} else {
			tensor.MatMul(ex, product.Mat(), factor.Mat(), y.Mat())
		}
		tensor.LinearSum(ex, y, p.A, y, 1, product, tensor.LinearSums{})
	}
	return y
}
