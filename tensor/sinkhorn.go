package tensor

import (
	"fmt"

	"spmoe/tensor/internal/vec"
)

// Sinkhorn's iteration: a matrix of positive numbers, whose columns and rows are divided by their
// sums in turns, becomes nearly doubly stochastic.

// Sinkhorn describes an iteration over square matrices.
type Sinkhorn struct {
	Size, Iterations int
	Eps              float32 // added to each element first, and to each sum
}

// Rows sets each row of y, which has Size² elements, to the matrix that x becomes. With dy, it sets
// y to the gradient of x instead, given that of the result. y may be dy.
func (s Sinkhorn) Rows(ex *Exec, y, x, dy Tensor) {
	if x.Dim(1) != s.Size*s.Size || y.Len() != x.Len() || dy.Valid() && dy.Len() != x.Len() {
		panic(fmt.Sprintf("tensor: Sinkhorn of %d by %d in rows of %d: %d into %d", s.Size, s.Size, x.Dim(1), x.Len(), y.Len()))
	}
	defer ex.describeRows(y.Mat()).End()
	forRows(ex, x.Dim(0), x.Len()*s.divisions(), sinkhornCall{s, y, x, dy}, sinkhornRows)
}

// divisions returns the number of divisions. The first iteration divides columns only.
func (s Sinkhorn) divisions() int { return 2*s.Iterations - 1 }

// sinkhornCall holds the arguments of Rows.
type sinkhornCall struct {
	Sinkhorn
	y, x, dy Tensor
}

// sinkhornBlock is the number of matrices that kernels work on at a time.
const sinkhornBlock = 64

// sinkhornTile is the scratch memory of one thread. An element of a block's matrices, or a sum, is
// a row of sinkhornBlock numbers.
type sinkhornTile struct {
	Sinkhorn
	rows     int       // of the block
	matrices []float32 // before the first division and after each, [divisions+1, size²]
	sums     []float32 // by which each division divides lines, [divisions, size]
	grad     []float32 // [size²], and two rows for products and their sums
}

func sinkhornRows(ex *Exec, c sinkhornCall, lo, hi int) {
	n, d := c.Size, c.divisions()
	memory := func(rows int) []float32 { return ex.New(FP32, rows*sinkhornBlock).F32() }
	t := sinkhornTile{c.Sinkhorn, 0, memory((d + 1) * n * n), memory(d * n), memory(n*n + 2)}
	for ; lo < hi; lo += sinkhornBlock {
		t.rows = min(sinkhornBlock, hi-lo)
		x := c.x.Slice(lo, lo+t.rows).F32()
		for i, v := range x {
			t.matrices[i%(n*n)*sinkhornBlock+i/(n*n)] = v + c.Eps
		}
		t.forward()
		result := t.matrices[d*n*n*sinkhornBlock:]
		if c.dy.Valid() {
			for i, v := range c.dy.Slice(lo, lo+t.rows).F32() {
				t.grad[i%(n*n)*sinkhornBlock+i/(n*n)] = v
			}
			t.backward()
			result = t.grad
		}
		y := c.y.Slice(lo, lo+t.rows).F32()
		for i := range y {
			y[i] = result[i%(n*n)*sinkhornBlock+i/(n*n)]
		}
	}
}

// element returns element i of a line of a division in a part of the tile. A line is a column in
// even divisions, a row in odd ones.
func (t *sinkhornTile) element(part []float32, division, line, i int) []float32 {
	if division%2 == 0 {
		line, i = i, line
	}
	return t.row(part, line*t.Size+i)
}

func (t *sinkhornTile) row(part []float32, i int) []float32 {
	return part[i*sinkhornBlock:][:t.rows]
}

// forward runs all divisions. Each sum begins with eps and runs in ascending order.
func (t *sinkhornTile) forward() {
	matrix := t.Size * t.Size * sinkhornBlock
	for d := range t.divisions() {
		before := t.matrices[d*matrix:]
		after := before[matrix:]
		for line := range t.Size {
			sum := t.row(t.sums, d*t.Size+line)
			for r := range sum {
				sum[r] = t.Eps
			}
			for i := range t.Size {
				vec.Add(sum, sum, t.element(before, d, line, i))
			}
			for i := range t.Size {
				vec.Divide(t.element(after, d, line, i), t.element(before, d, line, i), sum)
			}
		}
	}
}

// backward turns the gradient of the last matrix into that of the first one, after forward. With y
// = c/(Σc + eps) of a line, dc = (dy - Σ dy·y)/(Σc + eps).
func (t *sinkhornTile) backward() {
	matrix := t.Size * t.Size
	product, inner := t.row(t.grad, matrix), t.row(t.grad, matrix+1)
	for d := t.divisions() - 1; d >= 0; d-- {
		after := t.matrices[(d+1)*matrix*sinkhornBlock:]
		for line := range t.Size {
			clear(inner)
			for i := range t.Size {
				vec.MulScaled(product, 1, t.element(t.grad, d, line, i), t.element(after, d, line, i))
				vec.Add(inner, inner, product)
			}
			for i := range t.Size {
				grad := t.element(t.grad, d, line, i)
				vec.AddScaled(grad, -1, inner)
				vec.Divide(grad, grad, t.row(t.sums, d*t.Size+line))
			}
		}
	}
}
