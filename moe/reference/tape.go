package reference

import (
	"runtime"
	"slices"
	"sync"

	"spmoe/tensor"
)

// node is a matrix in a computation, with the gradient of it.
type node struct {
	rows, cols int
	data, grad []float64     // grad is nil until a gradient arrives
	dtype      Format        // what the family's code stores it in: it decides the format of results
	store      Format        // what data and grad are rounded to
	fixed      bool          // takes no gradient: a constant, or detached
	single     tensor.Tensor // a copy for the FP32 kernels, once one needs it
}

func (n *node) row(r int) []float64     { return n.data[r*n.cols : (r+1)*n.cols] }
func (n *node) gradRow(r int) []float64 { return n.grad[r*n.cols : (r+1)*n.cols] }

// tape records operations, to run their derivatives in reverse.
type tape struct {
	rounding Rounding
	fast     bool
	inside   int     // depth of kernels whose results are rounded at their ends only
	forward  bool    // nothing goes backward
	lost     uint32  // bits of mantissa that products lose of FP32 operands
	recipe   *Recipe // of the next linear layer; nil: its products are not quantized
	backward []func()
}

// node returns a matrix of zeros for the result of an operation.
func (t *tape) node(rows, cols int, dtype Format) *node {
	n := &node{
		rows:  rows,
		cols:  cols,
		data:  make([]float64, rows*cols),
		dtype: dtype,
		store: dtype,
	}
	if t.inside > 0 && dtype != Exact {
		n.store = FP32
	}
	return n
}

// constant returns a matrix without gradient.
func (t *tape) constant(rows, cols int, data []float64, dtype Format) *node {
	return &node{
		rows:  rows,
		cols:  cols,
		data:  data,
		dtype: dtype,
		store: dtype,
		fixed: true,
	}
}

// kernel runs operations that fused code does in one kernel. Their results are rounded once, at the
// end, if the rounding is of that way.
func (t *tape) kernel(f func() *node) *node {
	if t.rounding.Way == EveryOp {
		return f()
	}
	return t.fused(f)
}

// fused runs operations that are one kernel in all code, such as a product.
func (t *tape) fused(f func() *node) *node {
	t.inside++
	inner := f()
	if t.inside--; t.inside > 0 {
		return inner
	}
	return t.copied(inner, inner.dtype)
}

// each returns the result of an operation on rows, rounded.
func (t *tape) each(rows, cols int, dtype Format, f func(r int, y []float64)) *node {
	n := t.node(rows, cols, dtype)
	parallel(rows, cols, func(lo, hi int) {
		for r := lo; r < hi; r++ {
			f(r, n.row(r))
		}
		n.store.roundAll(n.data[lo*cols : hi*cols])
	})
	return n
}

// derive records what passes the gradient of y on. It runs if y has one.
func (t *tape) derive(y *node, back func()) *node {
	if t.forward {
		return y
	}
	t.backward = append(t.backward, func() {
		if y.grad != nil {
			back()
		}
	})
	return y
}

// give adds a gradient to x. f writes one row of it. As autograd stores each gradient and each sum
// of two, both are rounded.
func (t *tape) give(x *node, f func(r int, g []float64)) {
	if x.fixed {
		return
	}
	first := x.grad == nil
	if first {
		x.grad = make([]float64, len(x.data))
	}
	parallel(x.rows, x.cols, func(lo, hi int) {
		part := make([]float64, x.cols)
		for r := lo; r < hi; r++ {
			sum := x.gradRow(r)
			if first {
				f(r, sum)
				x.store.roundAll(sum)
				continue
			}
			clear(part)
			f(r, part)
			x.store.roundAll(part)
			for i, v := range part {
				sum[i] += v
			}
			x.store.roundAll(sum)
		}
	})
}

// giveAll adds a gradient of all rows, which becomes x's.
func (t *tape) giveAll(x *node, g []float64) {
	if x.grad != nil || x.fixed {
		t.give(x, func(r int, row []float64) { copy(row, g[r*x.cols:]) })
		return
	}
	parallel(x.rows, x.cols, func(lo, hi int) { x.store.roundAll(g[lo*x.cols : hi*x.cols]) })
	x.grad = g
}

// run passes gradients back to the inputs.
func (t *tape) run() {
	for _, back := range slices.Backward(t.backward) {
		back()
	}
}

// parallel calls f for ranges of n items. Each item has a cost of some elements.
func parallel(n, cost int, f func(lo, hi int)) {
	parts := min(runtime.GOMAXPROCS(0), n, n*max(cost, 1)>>14)
	if parts <= 1 {
		f(0, n)
		return
	}
	var group sync.WaitGroup
	for i := range parts {
		group.Go(func() { f(i*n/parts, (i+1)*n/parts) })
	}
	group.Wait()
}
