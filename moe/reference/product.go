package reference

import (
	"math"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/gonum"

	"spmoe/tensor"
)

// matrix is an operand of a product.
type matrix struct {
	data       []float64
	rows, cols int
	flipped    bool  // data is its transpose
	of         *node // retains the copy in FP32; may be nil
}

func view(n *node) matrix { return matrix{data: n.data, rows: n.rows, cols: n.cols, of: n} }

func (m matrix) transposed() matrix {
	m.rows, m.cols, m.flipped = m.cols, m.rows, !m.flipped
	return m
}

// product returns a·b. With rounding, and in fast passes if it is large, sums are FP32 as on a GPU,
// else they are float64.
func (t *tape) product(a, b matrix) []float64 {
	const large = 1e7 // multiplications
	rounds := t.rounding.Format != Exact && t.rounding.Jitter == 0
	if rounds || t.fast && float64(a.rows)*float64(a.cols)*float64(b.cols) > large {
		return t.product32(a, b)
	}
	c := make([]float64, a.rows*b.cols)
	if a.rows == 0 || a.cols == 0 || b.cols == 0 {
		return c
	}
	ta, lda := a.blas()
	tb, ldb := b.blas()
	gonum.Implementation{}.Dgemm(ta, tb, a.rows, b.cols, a.cols, 1, a.data, lda, b.data, ldb, 0, c, b.cols)
	return c
}

func (m matrix) blas() (blas.Transpose, int) {
	if m.flipped {
		return blas.Trans, m.rows
	}
	return blas.NoTrans, m.cols
}

// execs are the contexts of the FP32 kernels, one for each goroutine that runs one.
var execs = sync.Pool{New: func() any { return tensor.NewExec() }}

// product32 returns a·b by the FP32 kernels.
func (t *tape) product32(a, b matrix) []float64 {
	x, w := t.single(a), t.single(b)
	c := tensor.New(tensor.FP32, a.rows, b.cols)
	y := make([]float64, a.rows*b.cols)
	parallel(a.rows, a.cols*b.cols, func(lo, hi int) {
		ex := execs.Get().(*tensor.Exec)
		defer execs.Put(ex)
		tensor.MatMul(ex, c.Mat().RowSlice(lo, hi), x.RowSlice(lo, hi), w)
		part := y[lo*b.cols : hi*b.cols]
		for i, v := range c.F32()[lo*b.cols : hi*b.cols] {
			part[i] = float64(v)
		}
	})
	return y
}

// single returns the operand in FP32, or in TF32 if products use that.
func (t *tape) single(m matrix) tensor.Matrix {
	if m.of != nil && m.of.single.Valid() {
		return m.oriented(m.of.single)
	}
	rows, cols := m.rows, m.cols
	if m.flipped {
		rows, cols = cols, rows
	}
	x, lost := tensor.New(tensor.FP32, rows, cols), t.lost
	if t.rounding.TF32 {
		lost = 13
	}
	parallel(len(m.data), 1, func(lo, hi int) {
		values := x.F32()[lo:hi]
		for i, v := range m.data[lo:hi] {
			values[i] = float32(v)
			if bits := math.Float32bits(values[i]); lost > 0 {
				values[i] = math.Float32frombits((bits + 1<<(lost-1) - 1 + bits>>lost&1) &^ (1<<lost - 1))
			}
		}
	})
	if m.of != nil {
		m.of.single = x
	}
	return m.oriented(x)
}

func (m matrix) oriented(x tensor.Tensor) tensor.Matrix {
	if m.flipped {
		return x.Mat().T()
	}
	return x.Mat()
}
