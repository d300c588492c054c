package gemm

// Products with few rows of a and a b whose rows are neighbours in memory, as weights in gradients
// of data: b is read from memory once, in place, instead of being packed. The bits are those of the
// packed product.
//
// The kernel takes 32 rows of b (those of AVX2 for 4 rows of a and more twice 16;
// fewrows_across_panels.go: other ways), and of each step of k no more than a cache line or half of
// one. So k is cut into runs that the second level of cache holds, and while one is multiplied, the
// next is fetched in the order of memory.

import (
	"unsafe"

	"spmoe/tensor/format"
)

const acrossColumns = 32 // rows of b that a kernel takes

// acrossFamily is the kernels by the rows of a.
type acrossFamily struct {
	kernels   []func(*across)
	tables    map[*format.Element]func() *directCodes // by element: with what kernels decode codes
	panel     func(*columnPanel)                      // or, if not nil, what makes column panels for the packed product's microkernel
	meanwhile []func(*columnPanel, *tile)             // panel that multiplies the first row panel meanwhile, by its rows, if it has so few
	tiles     []func(*columnPanel, *tile)             // or, if not nil, by the row panels: what multiplies 64 columns, or 32 if there are two
	configure func(t *tile, panels, rows int)         // what tiles need to know of the rows
	maxScale  uint8                                   // above which panel or tiles cannot decode
	element   *format.Element                         // of codes
	elem      int                                     // bytes of an element of b
	shared    bool                                    // each row panel fetches its part of what comes next; if not, each fetches all
	run       int                                     // steps of k, about, in a run
	strip     int                                     // bytes of b, about, in a run
	height    int                                     // rows of a up to which this was found faster than packing; on AMX no more were tried
}

// acrossFamilies is those of a tier: for a b of elements and of codes.
type acrossFamilies struct{ elements, codes *acrossFamily }

func (fs *acrossFamilies) of(b operand) *acrossFamily {
	if b.lookup != nil {
		return fs.codes
	}
	return fs.elements
}

// take says whether a·bᵀ can be computed in place by the kernels for rows of b that are neighbours.
// Their sums begin at 0 and are one chain.
func (fs *acrossFamilies) take(a, b operand, m into) bool {
	if fs == nil || a.Cols == 0 || b.Rows < fs.of(b).least() || m.add || m.span > 0 || b.RowStride != 1 {
		return false
	}
	return a.Rows <= fs.of(b).height && (b.lookup == nil || b.lookup.element == fs.codes.element && b.scales.RowStride == 1)
}

// multiply is family.multiply for operands that acrossFamilies.take, if all that they hold decodes
// exactly. Otherwise it returns false, and the result is still to be computed. packed is the family
// of the packed product.
func (f *acrossFamily) multiply(s *Scratch, packed *family, sum, out View, a, b operand) bool {
	p := acrossProduct{family: f, packed: packed, call: &s.calls.across, b: b, a: packed.packing.rowPanels(s, &s.a, a, f.rows(packed))}
	if a.lookup != nil && !s.calls.decoding.exact(a) {
		return false
	}
	p.result, p.sum = resultOf(sum, out), sum
	rounded := out.Ptr != nil && !f.inPanels() // kernels leave sums; those of panels are rounded on their way
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
	family       *acrossFamily
	packed       *family
	call         *across
	a            rowPanels
	b            operand
	result       result
	sum          View           // what kernels leave
	run, columns int            // of a strip of b
	partial      unsafe.Pointer // vectors of sums between runs, for every row of a those of a strip's columns
}

// rows is the most that a row panel may have.
func (f *acrossFamily) rows(packed *family) int {
	if f.inPanels() {
		return packed.rows
	}
	return len(f.kernels) - 1
}

// least is the fewest rows of b.
func (f *acrossFamily) least() int {
	if f.tiles != nil {
		return 2 * acrossColumns
	}
	return acrossColumns
}

// inPanels says whether b is made into panels or blocks, in columnPanel.
func (f *acrossFamily) inPanels() bool { return f.panel != nil || f.tiles != nil }

// exact says whether all of b was decoded exactly.
func (p *acrossProduct) exact(s *Scratch) bool {
	if p.family.inPanels() {
		return s.calls.panel.below(p.family.maxScale) && s.calls.panel.exact(p.b)
	}
	return p.call.exact(p.b)
}

// all computes the sums.
func (p *acrossProduct) all(s *Scratch) {
	b, elem := p.b, p.family.elem
	p.run = evenly(b.Cols, p.family.run, format.MXBlock)
	p.columns = max(p.family.strip/(p.run*elem)/acrossColumns, 1) * acrossColumns
	const spare = 3 * acrossColumns // that the last strip may have more, and that are computed twice
	p.partial = s.partial.atLeast(4 * p.result.Rows * (p.columns + spare))
	*p.call = across{stride: elem * b.ColStride, scaleStride: b.scales.ColStride, sumStride: 4 * p.sum.RowStride}
	p.call.notes.reset()
	if p.family.inPanels() {
		s.calls.panel = columnPanel{dst: p.panelRoom(s), lookup: b.lookup, stride: elem * b.ColStride, scaleStride: b.scales.ColStride}
		s.calls.panel.reset()
	} else if b.lookup != nil {
		p.call.codes = p.family.tables[b.lookup.element]()
	}
	for j := 0; j < b.Rows; {
		n := p.columns
		if b.Rows-j < n+acrossColumns {
			n = b.Rows - j
		}
		for k := 0; k < b.Cols; k += p.run {
			if p.family.inPanels() {
				p.panels(s, j, n, k)
			} else {
				p.strip(j, n, k)
			}
		}
		j += n
	}
}

// next is how far from a strip's run lies what comes next in memory order: the next run or, after
// the last one, that of the next columns or of the next matrix.
func (p *acrossProduct) next(j, n, k, run int) int {
	if k+run == p.b.Cols && j+n < p.b.Rows {
		return n - k*p.b.ColStride
	}
	return run * p.b.ColStride
}

// strip multiplies a run along k from element k on with n columns from column j on.
func (p *acrossProduct) strip(j, n, k int) {
	d, b, elem := p.call, p.b, p.family.elem
	d.k = min(p.run, b.Cols-k)
	next := p.next(j, n, k, d.k)
	parts := 1
	if p.family.shared {
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
		if p.family.shared {
			d.ahead += at * d.k / parts * d.stride
		}
		d.moved = moves{}
		d.groups = n / acrossColumns
		p.family.call(d, rows)
		if rest := n % acrossColumns; rest > 0 { // the last columns once more, with those before them
			first := n - acrossColumns
			d.moved = moves{b: elem * first, sum: 4 * first, scales: first, partial: d.moved.partial}
			d.groups = 1
			p.family.call(d, rows)
		}
		i += rows
	}
}

// panel is the ith panel and its rows.
func (r *rowPanels) panel(i int) (p unsafe.Pointer, rows int) {
	if i < r.tall {
		return unsafe.Add(r.ptr, i*r.tallStride), r.rows
	}
	return unsafe.Add(r.shortPtr(), (i-r.tall)*r.shortStride), r.rows - 1
}

// call is not inlined for the sake of preemption, as family.column.
//
//go:noinline
func (f *acrossFamily) call(d *across, rows int) { f.kernels[rows](d) }
