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

// sinkhornTile is the scratch memory of one thread. An element of a block's matrices, or a sum, is a
// row of sinkhornBlock.
type sinkhornTile struct {
	Sinkhorn
	rows     int       // of the block
	matrices []float32 // before the first division and after each, [divisions+1, size²]
	sums     []float32 // by which each division divides lines, [divisions, size]
	grad     []float32 // [size²]
	inner    []float32
	product  []float32
}

func sinkhornRows(ex *Exec, c sinkhornCall, lo, hi int) {
	n, d := c.Size, c.divisions()
	memory := func(rows int) []float32 { return ex.New(FP32, rows*sinkhornBlock).F32() }
	t := sinkhornTile{
		Sinkhorn: c.Sinkhorn, matrices: memory((d + 1) * n * n), sums: memory(d * n),
		grad: memory(n * n), inner: memory(1), product: memory(1),
	}
	for ; lo < hi; lo += sinkhornBlock {
		t.rows = min(sinkhornBlock, hi-lo)
		x, y := c.x.Slice(lo, lo+t.rows).F32(), c.y.Slice(lo, lo+t.rows).F32()
		t.transpose(t.matrices, x)
		for e := range n * n {
			for i := range t.rows {
				t.matrices[e*sinkhornBlock+i] += c.Eps
			}
		}
		t.forward()
		result := t.matrices[d*n*n*sinkhornBlock:]
		if c.dy.Valid() {
			t.transpose(t.grad, c.dy.Slice(lo, lo+t.rows).F32())
			t.backward()
			result = t.grad
		}
		for i := range t.rows {
			for e := range n * n {
				y[i*n*n+e] = result[e*sinkhornBlock+i]
			}
		}
	}
}

// transpose sets a matrix of each row of x.
func (t *sinkhornTile) transpose(part, x []float32) {
	n := t.Size * t.Size
	for i := range t.rows {
		for e, v := range x[i*n:][:n] {
			part[e*sinkhornBlock+i] = v
		}
	}
}

// row returns row i of a part of the tile.
func (t *sinkhornTile) row(part []float32, i int) []float32 {
	return part[i*sinkhornBlock:][:t.rows]
}

// at returns the place of element i of a line: a column in even divisions, a row in odd ones.
func (t *sinkhornTile) at(division, line, i int) int {
	if division%2 == 0 {
		return i*t.Size + line
	}
	return line*t.Size + i
}

// forward runs all divisions. Each sum begins with eps and runs in ascending order.
func (t *sinkhornTile) forward() {
	for d := range t.divisions() {
		before := t.matrices[d*t.Size*t.Size*sinkhornBlock:]
		after := before[t.Size*t.Size*sinkhornBlock:]
		for line := range t.Size {
			sum := t.row(t.sums, d*t.Size+line)
			for r := range sum {
				sum[r] = t.Eps
			}
			for i := range t.Size {
				vec.Add(sum, sum, t.row(before, t.at(d, line, i)))
			}
			for i := range t.Size {
				at := t.at(d, line, i)
				vec.Divide(t.row(after, at), t.row(before, at), sum)
			}
		}
	}
}

// backward turns the gradient of the last matrix into that of the first one, after forward. With y
// = c/(Σc + eps) of a line, dc = (dy - Σ dy·y)/(Σc + eps).
func (t *sinkhornTile) backward() {
	inner, product := t.row(t.inner, 0), t.row(t.product, 0)
	for d := t.divisions() - 1; d >= 0; d-- {
		after := t.matrices[(d+1)*t.Size*t.Size*sinkhornBlock:]
		for line := range t.Size {
			clear(inner)
			for i := range t.Size {
				at := t.at(d, line, i)
				vec.MulScaled(product, 1, t.row(t.grad, at), t.row(after, at))
				vec.Add(inner, inner, product)
			}
			for i := range t.Size {
				grad := t.row(t.grad, t.at(d, line, i))
				vec.AddScaled(grad, -1, inner)
				vec.Divide(grad, grad, t.row(t.sums, d*t.Size+line))
			}
		}
	}
}
