package gemm

// Products for tiles with few rows of a where b is contiguous along k. Weights in forward products
// have this layout. They compute cᵀ = b·aᵀ. Tiles read b in place, or from where its codes were
// decoded. Only a becomes a column panel. The bits are those of the packed product: tiles add the
// same products in the same order.

import (
	"unsafe"

	"spmoe/tensor/internal/vec"
)

const (
	tallRows = 64 // rows of b that the microkernel multiplies at once

	transposedBytes = 256 << 10 // approximate bytes of b that are multiplied at once in place
	transposedRun   = 2048      // largest number of elements of a row
)

// transposedKernels holds the kernels of transposed products.
type transposedKernels struct {
	// microkernel.allPanels for a multiple of tallRows rows and 16 columns.
	tall func(*tile)
	// Like tall, but decodes codes along k. For up to 8, 16 or 32 columns.
	codes         [3]func(*decoding, *tile)
	sums, rounded transposer // to FP32 and to BF16
}

// transposer transposes groups·16 rows of sums. Column i (of up to 8) becomes row i of dst, whose
// rows are stride bytes apart.
type transposer func(dst, src unsafe.Pointer, stride, groups, rows int)

// transposes reports whether a·bᵀ can be computed as a transposed product, and whether that pays.
func (f *microkernel) transposes(a, b operand, m mode) bool {
	if f.transposed == nil || a.Cols == 0 || a.Rows > f.columns || m.add || m.span > 0 {
		return false
	}
	return b.lengthwise()
}

// multiplyTransposed is multiply for operands for which transposes holds. It returns false if an
// operand does not decode exactly; then the result is still to be computed.
func (f *microkernel) multiplyTransposed(s *Scratch, sum, out View, a, b operand) bool {
	width := f.columns
	if b.lookup != nil && a.lengthwise() {
		width = codesWidth(a.Rows)
	}
	p := product{steps: f.packing.steps(a.Cols), b: f.packing.columnPanels(s, &s.b, a, width)}
	if a.lookup != nil && !s.calls.decoding.exact(a) {
		return false
	}
	c := resultOf(sum, out)
	if b.lookup == nil {
		f.transposedElements(s, &p, c, b)
		return true
	}
	f.transposedCodes(s, &p, c, b, width)
	return s.calls.decoding.exact(b)
}

// transposedTimes is multiplyTransposed for a mode, which may have an alpha.
func (f *microkernel) transposedTimes(s *Scratch, sum, out View, a, b operand, m mode) bool {
	if m.alpha == 0 {
		return f.multiplyTransposed(s, sum, out, a, b)
	}
	sums := strided(s.unrounded.atLeast(4*a.Rows*b.Rows), a.Rows, b.Rows, b.Rows, 1)
	if !f.multiplyTransposed(s, sums, View{}, a, b) {
		return false
	}
	m.times(sums)
	storeResult(sum, out, sums, false)
	return true
}

// transposedElements computes c for a b of BF16.
func (f *microkernel) transposedElements(s *Scratch, p *product, c result, b operand) {
	_, inPlace := f.packing.panelsInPlace(b, f.rows)
	rows := max(transposedBytes/(2*b.Cols)/tallRows, 1) * tallRows
	sums := s.transposedSums(rows, f.columns)
	x := p.b
	for j := 0; j < b.Rows; j += rows {
		p.sum = sums.slice(4, 0, 0, min(rows, b.Rows-j), f.columns)
		for k := 0; k < b.Cols; k += transposedRun {
			y := b.part(2, j, p.sum.Rows).along(2, k, min(transposedRun, b.Cols-k))
			p.a = f.packing.rowPanels(s, &s.a, y, f.rows)
			p.steps, p.b = f.packing.steps(y.Cols), unsafe.Add(x, 4*f.columns*f.packing.steps(k))
			f.transposedPart(s, p, c.Rows, k > 0, inPlace)
		}
		f.transpose(c, j, p.sum)
	}
}

// transposedSums returns room for sums of rows rows, plus the rows that fill up a tile.
func (s *Scratch) transposedSums(rows, columns int) View {
	return strided(s.edge.atLeast(4*(rows+tileRows)*columns), rows, columns, columns, 1)
}

// transposedPart multiplies columns columns. If fetch is set, it prefetches the following rows: the
// number that it multiplies at once.
func (f *microkernel) transposedPart(s *Scratch, p *product, columns int, startAtSum bool, fetch bool) {
	whole := p.sum.Rows / tallRows * tallRows
	for j := 0; j < columns && whole > 0; j += tileRows {
		t := &s.calls.tile
		*t = tile{a: p.a.ptr, aStride: p.a.tallStride, b: unsafe.Add(p.b, 4*j), sum: unsafe.Add(p.sum.Ptr, 4*j), sumStride: 4 * p.sum.RowStride,
			steps: p.steps, count: whole, tiled: tiled{rowStep: p.a.rowStep, tileStep: tileSteps * p.a.step(f.rows)}}
		if startAtSum {
			t.startAtSum = 1
		}
		if fetch && j == 0 {
			t.ahead = tallRows * p.a.rowStep
		}
		f.callTall(t)
	}
	if whole < p.sum.Rows {
		rest := *p
		rest.a.ptr = unsafe.Add(p.a.ptr, whole/f.rows*p.a.tallStride)
		rest.sum = p.sum.slice(4, whole, 0, p.sum.Rows-whole, f.columns)
		f.run(s, &rest, 0, p.steps, pass{atSum: startAtSum})
	}
}

// callTall is not inlined, so that the goroutine can be preempted (see microkernel.column).
//
//go:noinline
func (f *microkernel) callTall(t *tile) { f.transposed.tall(t) }

// transpose stores the rows of sums as columns of c, from j on.
func (f *microkernel) transpose(c result, j int, sums View) {
	const most = 8 // columns of sums at a time
	transpose := f.transposed.sums
	if c.elem == 2 {
		transpose = f.transposed.rounded
	}
	whole := sums.Rows / tileRows * tileRows
	for i := 0; i < c.Rows && whole > 0; i += most {
		transpose(c.slice(c.elem, i, j, 1, 1).Ptr, sums.slice(4, 0, i, 1, 1).Ptr, c.elem*c.RowStride, whole/tileRows, min(most, c.Rows-i))
	}
	for r := whole; r < sums.Rows; r++ {
		for i := range c.Rows {
			if x := *at[float32](sums, r, i); c.elem == 2 {
				*at[uint16](c.View, i, j+r) = vec.ToBF16(x)
			} else {
				*at[float32](c.View, i, j+r) = x
			}
		}
	}
}
