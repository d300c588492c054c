package gemm

// Products with few rows of a where the rows of b are adjacent in memory. Weights in gradients of
// data have this layout. b is read in place once instead of being packed. The bits are those of the
// packed product.
//
// The kernel takes 32 rows of b. With 4 rows of a and more, the AVX2 kernel takes 16 rows twice.
// From each step of k it reads a cache line or half of one. So k is cut into runs that fit in L2.
// While one run is multiplied, the next is prefetched in memory order. fewrows_across_panels.go has
// other ways.

import (
	"unsafe"

	"spmoe/tensor/format"
)

const acrossColumns = 32 // rows of b per kernel call

// acrossKernels holds kernels and their parameters. kernels is indexed by the rows of a.
type acrossKernels struct {
	kernels []func(*across)
	tables  map[*format.Element]func() *directCodes // decoding tables of the kernels, by element
	// If not nil, it packs column panels for the packed product's microkernel.
	panel func(*columnPanel)
	// Packs a panel and multiplies the first row panel at the same time. Indexed by the rows of
	// that panel, for the counts that have such a kernel.
	fused []func(*columnPanel, *tile)
	// If not nil, they multiply 64 columns (32 with two row panels). Indexed by row panels.
	tiles     []func(*columnPanel, *tile)
	configure func(t *tile, panels, rows int) // sets the tile configuration for the rows
	maxScale  uint8                           // the largest scale that panel or tiles can decode
	element   *format.Element                 // of codes
	elem      int                             // bytes of an element of b
	// Each row panel prefetches its share of the next run. Otherwise each prefetches all of it.
	sharePrefetch bool
	run           int // approximate steps of k in a run
	strip         int // approximate bytes of b in a run
	// The rows of a up to which this was measured to be faster than packing. On AMX no more were
	// tried.
	height int
}

// acrossByFormat holds the kernels of a tier for a b of plain elements and for one of codes.
type acrossByFormat struct{ elements, codes *acrossKernels }

func (fs *acrossByFormat) of(b operand) *acrossKernels {
	if b.lookup != nil {
		return fs.codes
	}
	return fs.elements
}

// accepts reports whether the kernels for adjacent rows of b can compute a·bᵀ in place. Their sums
// start at 0 and form one chain.
func (fs *acrossByFormat) accepts(a, b operand, m mode) bool {
	if fs == nil || a.Cols == 0 || b.Rows < fs.of(b).minRows() || m.add || m.span > 0 || b.RowStride != 1 {
		return false
	}
	return a.Rows <= fs.of(b).height && (b.lookup == nil || b.lookup.element == fs.codes.element && b.scales.RowStride == 1)
}

// multiply is microkernel.multiply for operands that acrossByFormat.accepts. It returns false if an
// operand does not decode exactly; then the result is still to be computed. packed is the
// microkernel of the packed product.
func (f *acrossKernels) multiply(s *Scratch, packed *microkernel, sum, out View, a, b operand) bool {
	p := acrossProduct{kernels: f, packed: packed, call: &s.calls.across, b: b, a: packed.packing.rowPanels(s, &s.a, a, f.rows(packed))}
	if a.lookup != nil && !s.calls.decoding.exact(a) {
		return false
	}
	p.result, p.sum = resultOf(sum, out), sum
	// Kernels leave sums; panels round theirs when they store them.
	rounded := out.Ptr != nil && !f.inPanels()
	if rounded {
		p.sum = strided(s.sums.atLeast(4*out.Rows*out.Cols), out.Rows, out.Cols, out.Cols, 1)
	}
	p.all(s)
	if b.lookup != nil && !p.exact(s) {
		return false
	}
	if rounded {
		roundRows(out, p.sum)
	}
	return true
}

// acrossProduct is one such product.
type acrossProduct struct {
	kernels      *acrossKernels
	packed       *microkernel
	call         *across
	a            rowPanels
	b            operand
	result       result
	sum          View // output of the kernels
	run, columns int  // of a strip of b
	// Vectors of sums, kept between runs: for every row of a, those of a strip's columns.
	partial unsafe.Pointer
}

// rows returns the largest number of rows in a row panel.
func (f *acrossKernels) rows(packed *microkernel) int {
	if f.inPanels() {
		return packed.rows
	}
	return len(f.kernels) - 1
}

// minRows returns the smallest number of rows of b.
func (f *acrossKernels) minRows() int {
	if f.tiles != nil {
		return 2 * acrossColumns
	}
	return acrossColumns
}

// inPanels reports whether columnPanel turns b into panels or blocks.
func (f *acrossKernels) inPanels() bool { return f.panel != nil || f.tiles != nil }

// exact reports whether all of b was decoded exactly.
func (p *acrossProduct) exact(s *Scratch) bool {
	if p.kernels.inPanels() {
		return s.calls.panel.below(p.kernels.maxScale) && s.calls.panel.exact(p.b)
	}
	return p.call.exact(p.b)
}

// all computes the sums.
func (p *acrossProduct) all(s *Scratch) {
	b, elem := p.b, p.kernels.elem
	p.run = evenly(b.Cols, p.kernels.run, format.MXBlock)
	p.columns = max(p.kernels.strip/(p.run*elem)/acrossColumns, 1) * acrossColumns
	// For a wider last strip and for columns that are computed twice.
	const spare = 3 * acrossColumns
	p.partial = s.partial.atLeast(4 * p.result.Rows * (p.columns + spare))
	*p.call = across{stride: elem * b.ColStride, scaleStride: b.scales.ColStride, sumStride: 4 * p.sum.RowStride}
	p.call.notes.reset()
	if p.kernels.inPanels() {
		s.calls.panel = columnPanel{dst: p.panelRoom(s), lookup: b.lookup, stride: elem * b.ColStride, scaleStride: b.scales.ColStride}
		s.calls.panel.reset()
	} else if b.lookup != nil {
		p.call.codes = p.kernels.tables[b.lookup.element]()
	}
	for j := 0; j < b.Rows; {
		n := p.columns
		if b.Rows-j < n+acrossColumns {
			n = b.Rows - j
		}
		for k := 0; k < b.Cols; k += p.run {
			if p.kernels.inPanels() {
				p.panels(s, j, n, k)
			} else {
				p.strip(j, n, k)
			}
		}
		j += n
	}
}

// next returns the distance from a strip's run to the next data in memory order. That is the next
// run. After the last run it is the next columns or the next matrix.
func (p *acrossProduct) next(j, n, k, run int) int {
	if k+run == p.b.Cols && j+n < p.b.Rows {
		return n - k*p.b.ColStride
	}
	return run * p.b.ColStride
}

// strip multiplies one run that starts at element k with n columns from column j on.
func (p *acrossProduct) strip(j, n, k int) {
	d, b, elem := p.call, p.b, p.kernels.elem
	d.k = min(p.run, b.Cols-k)
	next := p.next(j, n, k, d.k)
	parts := 1
	if p.kernels.sharePrefetch {
		parts = p.a.tall + p.a.short
	}
	d.fetchStep = (line + parts - 1) / parts
	d.lines = (n*elem + d.fetchStep - 1) / d.fetchStep
	d.jump = d.stride - d.fetchStep*d.lines
	d.load, d.finish = k, 0
	if k+d.k == b.Cols {
		d.finish = 1
	}
	part := b.part(elem, j, n).along(elem, k, d.k)
	d.b, d.scales = part.Ptr, part.scales.Ptr
	for i, at := 0, 0; i < p.sum.Rows; at++ {
		panel, rows := p.a.panel(at)
		d.a = unsafe.Add(panel, 4*rows*p.packed.packing.steps(k))
		d.sum = p.sum.slice(4, i, j, 1, 1).Ptr
		d.partial = unsafe.Add(p.partial, 4*i*(n+acrossColumns))
		d.ahead, d.linesLeft = elem*next, d.lines
		if p.kernels.sharePrefetch {
			d.ahead += at * d.k / parts * d.stride
		}
		d.moved = moves{}
		d.groups = n / acrossColumns
		p.kernels.call(d, rows)
		// Recompute the last full group, which ends at the last column.
		if rest := n % acrossColumns; rest > 0 {
			first := n - acrossColumns
			d.moved = moves{b: elem * first, sum: 4 * first, scales: first, partial: d.moved.partial}
			d.groups = 1
			p.kernels.call(d, rows)
		}
		i += rows
	}
}

// panel returns the ith panel and its number of rows.
func (r *rowPanels) panel(i int) (p unsafe.Pointer, rows int) {
	if i < r.tall {
		return unsafe.Add(r.ptr, i*r.tallStride), r.rows
	}
	return unsafe.Add(r.shortPtr(), (i-r.tall)*r.shortStride), r.rows - 1
}

// call is not inlined, so that the goroutine can be preempted (see microkernel.column).
//
//go:noinline
func (f *acrossKernels) call(d *across, rows int) { f.kernels[rows](d) }
