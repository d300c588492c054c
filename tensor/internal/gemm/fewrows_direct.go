package gemm

// Products with few rows of a, bound by reading b. So b is read where it lies, once for each row
// panel of a, and not packed. Each lane of a kernel sums one element, so the order is that of
// panels, and only speed decides which products come here.
//
// A b that is contiguous along k is transposed in registers. A group of its rows is prefetched
// while the one before it is multiplied: in memory order if the rows are dense.

import (
	"unsafe"

	"spmoe/tensor/internal/vec"
)

const (
	directAlongColumns  = 16
	directAcrossColumns = 32

	directUnit = 8 // elements along k of a unit
	directRun  = 4 // units of a run
)

// directKernels holds the kernels for a b that is contiguous along k, and for one whose columns are
// adjacent. a is packed as row panels.
type directKernels struct{ along, across directLayout }

// directLayout holds the kernels for one layout of b, by the rows of a.
type directLayout struct {
	most    int // rows of a up to which they were measured to be faster than panels
	columns int // that a kernel takes
	kernels []func(*direct)
}

// of returns the kernels for a product; nil: panels are faster, or needed.
func (f *directKernels) of(a, b operand, m mode) *directLayout {
	if f == nil || m.blocks != nil || m.span > 0 || m.retained != nil && m.retained.packed {
		return nil
	}
	l, along := &f.across, b.lengthwise()
	if along {
		l = &f.along
	}
	if a.Rows > l.most || b.Rows < l.columns || along && a.Cols%directUnit != 0 || !along && (b.lookup != nil || b.RowStride != 1) || a.Cols == 0 {
		return nil
	}
	return l
}

// multiply is microkernel.multiply for whole groups of columns. It returns their number.
func (l *directLayout) multiply(s *Scratch, by *packing, sum, out View, a, b operand, m mode, inexact fallback) int {
	n := b.Rows / l.columns * l.columns
	if sum.Ptr != nil {
		sum = sum.slice(4, 0, 0, sum.Rows, n)
	} else {
		out = out.slice(2, 0, 0, out.Rows, n)
	}
	b = b.part(2, 0, n)
	panels := by.rowPanels(s, &s.a, a, len(l.kernels)-1)
	exact := a.lookup == nil || s.calls.decoding.exact(a)
	target := strided(s.sums.atLeast(4*a.Rows*n), a.Rows, n, n, 1)
	continues := m.add && !m.whole()
	if continues {
		copyRows(target, sum)
	}
	if exact && l.sums(s, target, &panels, b, continues) {
		m.times(target)
		storeResult(sum, out, target, m.add && !continues)
	} else {
		inexact(sum, out, a.scaled(), b.scaled(), m)
	}
	return n
}

// sums computes the sums, or adds to them. It reports whether b was decoded exactly.
func (l *directLayout) sums(s *Scratch, sum View, a *rowPanels, b operand, add bool) (exact bool) {
	if b.lookup == nil {
		l.part(s, sum, a, 0, b.View, add)
		return true
	}
	s.calls.decoding.reset()
	for j := 0; j < b.Rows; j += chunkRows {
		n := min(chunkRows, b.Rows-j)
		for k := 0; k < b.Cols; k += chunkSteps {
			chunk := s.chunk(b, j, k, n, min(chunkSteps, b.Cols-k))
			l.part(s, sum.slice(4, 0, j, sum.Rows, n), a, k, chunk, add || k > 0)
		}
	}
	return s.calls.decoding.exact(b)
}

// part multiplies with a part of b, whose elements along k begin with element k of a.
func (l *directLayout) part(s *Scratch, sum View, a *rowPanels, k int, b View, add bool) {
	d := &s.calls.direct
	*d = direct{stride: 2 * b.RowStride, sumStride: 4 * sum.RowStride, runs: b.Cols / (directRun * directUnit), units: b.Cols / directUnit % directRun}
	if b.ColStride != 1 && b.Cols > 1 {
		d.stride, d.runs, d.units = 2*b.ColStride, b.Cols/2, b.Cols%2
	}
	d.fetches(l.columns, b)
	if add {
		d.load = 1
	}
	for j := 0; j < b.Rows; j += l.columns {
		d.b = unsafe.Pointer(at[uint16](b, j, 0))
		ahead := d.ahead
		for i, panel := 0, a.ptr; i < sum.Rows; {
			rows, stride := a.rows, a.tallStride
			if i >= a.tall*a.rows {
				rows, stride = a.rows-1, a.shortStride
			}
			d.a, d.sum = unsafe.Add(panel, 4*k*rows), unsafe.Pointer(at[float32](sum, i, j))
			l.call(rows, d)
			i, panel = i+rows, unsafe.Add(panel, stride)
			d.ahead = 0 // the first panel has fetched the next group
		}
		d.ahead = ahead
	}
}

// fetches sets the lines to prefetch while a call multiplies a group of rows of b: those of the
// next group, in memory order or, if rows are not dense, one of each row.
func (d *direct) fetches(columns int, b View) {
	d.ahead, d.fetchLine = columns*d.stride, line
	if b.RowStride != b.Cols {
		d.fetchLine, d.fetchBack = d.stride, line-columns*d.stride
	}
}

// call is not inlined, so that the goroutine can be preempted (see microkernel.column).
//
//go:noinline
func (l *directLayout) call(rows int, d *direct) { l.kernels[rows](d) }

// storeResult rounds, adds or copies the sums into the result.
func storeResult(sum, out, sums View, add bool) {
	switch {
	case out.Ptr != nil:
		roundRows(out, sums)
	case add:
		for i := range sum.Rows {
			c := row[float32](sum, i)
			vec.Add(c, c, row[float32](sums, i))
		}
	default:
		copyRows(sum, sums)
	}
}
