package gemm

// Products with few rows of a. They are bound by reading b. So b is read in place once instead of
// being packed.
//
// The kernel reads several rows of b at once, and the same short run of each. a's part of the run
// thus stays in L1. Memory would see many streams, which hardware prefetchers follow badly. So the
// columns are cut into strips that fit in L2. While one strip is multiplied, the next is prefetched
// in memory order.
//
// Rows of b that are too long for that are cut into runs along k. A strip then has more rows, of
// which L2 holds one run: each run fetches the same rows' next one. Every run of a strip loads and
// stores vectors of sums and reads a from L2 again, so it needs enough rows of b.
//
// Order of summation: an element has 16 chains of fused multiply-adds along k. Chain l takes the
// pairs (k, k+1) with k%32 = 2l. In each pair k+1 comes first. Of every four chains the sum is
// (0+2)+(1+3). Then the first two and the last two of these sums are added, and then those two. The
// result is added to c if requested.

import (
	"unsafe"

	"spmoe/tensor/internal/vec"
)

const (
	directStrip = 256 << 10 // approximate bytes of b in a strip
	directNear  = 8 << 10   // bytes of a group that L1 holds along with the previous group
	directRuns  = 192 << 10 // bytes of the runs of a strip if rows of b are cut into runs
	// Approximate upper bound of the sums in a strip. A strip takes one call if k is short.
	directSums = 8192
)

// inPlace reports whether a product with few rows of a can read b in place.
func (a operand) inPlace(b operand) bool {
	return a.Cols > 0 && a.lengthwise() && b.lengthwise()
}

// multiply is microkernel.multiply for operands that are inPlace.
func (f *directKernels) multiply(s *Scratch, sum, out View, a, b operand, m mode, inexact fallback) {
	if m.span > 0 {
		s.eachSpan(sum, a.Cols, m, func(dst View, i, j, k, n int) {
			f.multiply(s, dst, View{}, a.part(2, i, dst.Rows).along(2, k, n), b.part(2, j, dst.Cols).along(2, k, n), mode{}, inexact)
		})
		return
	}
	panel, exact := f.panel(s, a)
	if !exact {
		inexact(sum, out, a.scaled(), b.scaled(), m)
		return
	}
	const spare = 8 // the most that a kernel stores past the end of a row
	target := strided(s.sums.atLeast(4*a.Rows*(b.Rows+spare)), a.Rows, b.Rows, b.Rows+spare, 1)
	exact = f.all(s, target, panel, b)
	if f.factors != nil && !s.calls.direct[0].below(f.mostScale) {
		f.wider.multiply(s, sum, out, a, b, m, inexact)
		return
	}
	if !exact {
		sums := target // other products overwrite it
		target = strided(s.unrounded.atLeast(4*a.Rows*b.Rows), a.Rows, b.Rows, b.Rows, 1)
		copyRows(target, sums)
		// Only the columns that need it: the bits of a column must not depend on its neighbours.
		b.runs(func(j, n int, fits bool) {
			if !fits {
				inexact(target.slice(4, 0, j, a.Rows, n), View{}, a.scaled(), b.part(1, j, n).scaled(), mode{})
			}
		})
	}
	m.times(target)
	storeResult(sum, out, target, m.add)
}

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

// panels cuts rows into panels of near-equal height.
func (f *directKernels) panels(rows int) (panels, height int) {
	most := len(f.kernels) - 1
	panels = (rows + most - 1) / most
	return panels, (rows + panels - 1) / panels
}

// directSteps returns the number of 32-element vectors per row for which a panel has room.
func directSteps(cols int) int { return (cols + 63) / 64 * 2 }

// panel decodes a and copies it, one panel after the other. The vectors of all rows for the same k
// are adjacent. exact is as in notes.exact.
func (f *directKernels) panel(s *Scratch, a operand) (p unsafe.Pointer, exact bool) {
	steps := directSteps(a.Cols)
	p = s.a.atLeast(f.vector * steps * a.Rows)
	_, height := f.panels(a.Rows)
	copyChunk := func(v View, i, k int) {
		panel, step := unsafe.Add(p, f.vector*steps*i), f.vector*v.Rows
		for r := range v.Rows {
			dst, src, whole := unsafe.Add(panel, f.vector*r+k/32*step), row[uint16](v, r), v.Cols/32
			if whole > 0 {
				f.put(dst, unsafe.Pointer(&src[0]), whole, step)
			}
			if n := min(directSteps(v.Cols), steps-k/32) - whole; n > 0 {
				rest := &s.calls.paddedTail
				clear(rest[copy(rest[:], src[32*whole:]):])
				f.put(unsafe.Add(dst, whole*step), unsafe.Pointer(rest), n, step)
			}
		}
	}
	s.calls.decoding.reset()
	for i := 0; i < a.Rows; i += height {
		n := min(height, a.Rows-i)
		if a.lookup == nil {
			copyChunk(a.slice(2, i, 0, n, a.Cols), i, 0)
			continue
		}
		for k := 0; k < a.Cols; k += chunkSteps {
			copyChunk(s.chunk(a, i, k, n, min(chunkSteps, a.Cols-k)), i, k)
		}
	}
	return p, a.lookup == nil || s.calls.decoding.exact(a)
}

// directProduct holds what the calls of a product share.
type directProduct struct {
	kernels *directKernels
	// For panels of height rows and for the last panel, which may have fewer.
	calls       *[2]direct
	sum         View
	a           unsafe.Pointer // panels
	height, run int
	byRun       bool // prefetch run by run, not strip by strip
	// Vectors of sums, kept between runs: for every row of a, those of columns columns.
	partial unsafe.Pointer
	columns int
}

// all computes sum = a·bᵀ and reports whether all of b was decoded exactly.
func (f *directKernels) all(s *Scratch, sum View, panel unsafe.Pointer, b operand) (exact bool) {
	panels, height := f.panels(sum.Rows)
	p := directProduct{kernels: f, calls: &s.calls.direct, sum: sum, a: panel, height: height, run: f.run(height)}
	unit := f.columns(height)
	if panels > 1 {
		unit = 12 // a multiple of the group width at every panel height that then occurs
	}
	p.byRun = f.strided && b.Cols > p.run
	strip := directStrip / (b.Cols * f.elem)
	if p.byRun {
		strip = directRuns / (p.run * f.elem)
	}
	strip = min(strip, directSums/sum.Rows)
	decodes := f.whole && b.lookup != nil
	if decodes {
		strip, p.run = chunkRows, chunkSteps
		s.calls.decoding.reset()
	}
	strip = min(max(strip/unit, 1)*unit, b.Rows)
	if b.Cols > p.run || f.whole && b.Cols%f.unit > 0 {
		const spare = 64 // columns that groups may compute twice
		p.columns = strip + spare
		p.partial = s.partial.atLeast(64 * sum.Rows * p.columns)
	}
	for i, rows := range []int{height, sum.Rows - (panels-1)*height} {
		p.calls[i].prepare(f, rows, sum, b)
	}
	for j := 0; j < b.Rows; j += strip {
		j = max(min(j, b.Rows-unit), 0) // leave no fewer columns than a kernel takes
		p.strip(s, j, min(strip, b.Rows-j), b)
	}
	switch {
	case b.lookup == nil:
		return true
	case decodes:
		return s.calls.decoding.exact(b)
	}
	return p.calls[0].exact(b)
}

// prepare sets what all calls for a panel of rows rows of a share.
func (d *direct) prepare(f *directKernels, rows int, sum View, b operand) {
	*d = direct{rows: rows, sumStride: 4 * sum.RowStride, wholeScales: 1<<16 - 1}
	if b.lookup != nil && f.tables != nil {
		d.codes = f.tables[b.lookup.element]()
	}
	d.notes.reset()
}

// strip computes n columns of sum from column j on, run by run along k.
func (p *directProduct) strip(s *Scratch, j, n int, b operand) {
	f := p.kernels
	strip := b.part(f.elem, j, n)
	for k := 0; k < b.Cols; {
		part, inPlace := p.part(s, strip, k)
		next := min(k+part.Cols, b.Cols)
		ahead := 0
		if inPlace {
			ahead = f.elem * p.ahead(strip, k, next)
		}
		for i := 0; i < p.sum.Rows; i += p.height {
			d := &p.calls[0]
			if p.sum.Rows-i < p.height {
				d = &p.calls[1]
			}
			d.a = unsafe.Add(p.a, f.vector*(i*directSteps(b.Cols)+k/32*d.rows))
			d.partial = unsafe.Add(p.partial, 64*i*p.columns)
			d.ahead, d.load, d.finish = ahead, k, 0
			if next == b.Cols {
				d.finish = 1
			}
			p.panel(d, p.sum.slice(4, i, j, d.rows, n), part, i/p.height)
		}
		k = next
	}
}

// part returns the run of a strip that begins at k. The run stays where it lies if the kernels can
// read it there. Otherwise it is copied to scratch and padded with zeros.
func (p *directProduct) part(s *Scratch, strip operand, k int) (part operand, inPlace bool) {
	n := min(p.run, strip.Cols-k)
	rest := n % p.kernels.unit
	switch {
	case p.kernels.factors != nil:
		part = strip.along(1, k, n)
		part.scales = p.kernels.factors(s, part.scales, &p.calls[0].notes)
		return part, true
	case !p.kernels.whole:
		return strip.along(p.kernels.elem, k, n), true
	case strip.lookup != nil:
		part = operand{View: s.chunk(strip, 0, k, strip.Rows, n)}
		part.Cols = (n + p.kernels.unit - 1) / p.kernels.unit * p.kernels.unit
		return part, false
	case n > rest:
		return strip.along(2, k, n-rest), true
	}
	padded := strided(s.chunks.atLeast(64*strip.Rows), strip.Rows, 32, 32, 1)
	for i := range strip.Rows {
		dst := row[uint16](padded, i)
		clear(dst[copy(dst, row[uint16](strip.View, i)[k:]):])
	}
	return operand{View: padded}, false
}

// ahead returns the elements from the start of a run at k to those that it prefetches: the next run
// of the same rows or of the next strip. next is where the next run starts.
func (p *directProduct) ahead(strip operand, k, next int) int {
	switch n := strip.Rows; {
	case p.byRun && next < strip.Cols:
		return next - k
	case p.byRun:
		return n*strip.RowStride - k
	default:
		// Its share of the next strip, in memory order, from this row and column on.
		row, column := n*k/strip.Cols, n*k%strip.Cols
		return (n+row)*strip.RowStride + column - k
	}
}

// fetch sets which lines a call prefetches to L2. All panels of a meet the same rows of b. If there
// are enough panels, each prefetches one row of every group, so that all of them read memory at an
// even pace. A burst by one panel would hold up its loads from L2.
func (p *directProduct) fetch(d *direct, width, panel int) {
	if !p.byRun {
		d.fetchStride, d.fetchBack, d.fetchJump = line, 0, 0
		return
	}
	d.fetchJump = width*d.stride - line*d.steps
	if p.sum.Rows > (width-1)*p.height {
		d.ahead += panel % width * d.stride
		d.fetchStride, d.fetchBack = 0, line
	} else {
		d.fetchStride, d.fetchBack = d.stride, line-width*d.stride
	}
}

// panel multiplies panel number panel of a with the rows of b. If these are not a multiple of the
// group width, the last group starts early and recomputes some columns. If there are fewer than a
// group, each group is the same row repeated.
func (p *directProduct) panel(d *direct, sum View, b operand, panel int) {
	elem, width := p.kernels.elem, p.kernels.columns(d.rows)
	d.columns, d.stride, d.scaleStride = width, elem*b.RowStride, b.scales.RowStride
	d.scalesAhead, d.near = 2*width*d.scaleStride, 0 // of the group after the next
	if width*d.stride <= directNear {
		d.near = 1
	}
	if b.Rows < width {
		d.columns, d.stride, d.scaleStride = 1, 0, 0
	}
	d.steps, d.tail = b.Cols/p.kernels.unit, 1<<(b.Cols%p.kernels.unit)-1
	d.blocks, d.lastScales = (b.scales.Cols+15)/16, 1<<((b.scales.Cols+15)%16+1)-1
	p.fetch(d, width, panel)
	d.moved = moves{}
	for j := 0; j < b.Rows; {
		j = min(j, b.Rows-d.columns)
		d.groups = 1
		if d.columns == width {
			d.groups = (b.Rows - j) / width
		}
		n := d.groups * d.columns
		part := b.part(elem, j, n)
		d.b, d.scales, d.sum = part.Ptr, part.scales.Ptr, sum.slice(4, 0, j, 1, 1).Ptr
		d.moved = moves{partial: d.moved.partial} // the vectors of sums continue
		p.kernels.call(d)
		j += n
	}
}

// call is not inlined, so that the goroutine can be preempted (see microkernel.column).
//
//go:noinline
func (f *directKernels) call(d *direct) { f.kernels[d.rows](d) }
