//go:build amd64 && !purego

package gemm

// Products with few rows of a, which are bound by reading b: it is read from memory once, in place, instead of being packed.
//
// The kernel reads several rows of b at once and the same short run of each, so that a's part of the run stays in the first level of
// cache. To memory that would look like many streams, which prefetchers follow badly. So the columns are cut into strips that the
// second level holds, and while one is multiplied, the next is fetched in the order of memory.
//
// Order of summation: an element has 16 chains of fused multiply-adds along k; chain l takes the pairs (k, k+1) with
// k%32 = 2l, k+1 first. The chains are added up as ((0+2)+(1+3)) of every four, then the first two and the last two of these sums,
// then those; the result is added to c if need be.

import (
	"sync"
	"unsafe"

	"spmoe/tensor/internal/vec"
)

const (
	directPanelRows = 8         // of a that a kernel takes, at most
	directStrip     = 256 << 10 // bytes of b, about, in a strip
	directNear      = 8 << 10   // bytes of a group that the first level of cache holds besides the one before
	directSums      = 8192      // at most, about, in a strip: it takes one call, if k is short

	// The kernels for integers (int8_direct_amd64.go) take more rows and have no strips: they fetch at least so many bytes ahead.
	directHeight = 12
	directAhead  = 32 << 10
)

// directFamily is the kernels by the rows of a and how many rows of b each takes at once, which must be what the generator says.
type directFamily struct {
	kernels [directPanelRows + 1]func(*direct)
	columns func(rows int) int
	unit    int // elements of a row that make a step
}

var (
	directBF16AVX512 = directFamily{
		kernels: [...]func(*direct){nil, directBF16x1AVX512, directBF16x2AVX512, directBF16x3AVX512, directBF16x4AVX512,
			directBF16x5AVX512, directBF16x6AVX512, directBF16x7AVX512, directBF16x8AVX512},
		columns: func(rows int) int { return min(8, 31/(rows+1)) },
		unit:    32,
	}
	directMXAVX512 = directFamily{
		kernels: [...]func(*direct){nil, directMXx1AVX512, directMXx2AVX512, directMXx3AVX512, directMXx4AVX512,
			directMXx5AVX512, directMXx6AVX512, directMXx7AVX512, directMXx8AVX512},
		columns: func(rows int) int { return min(6, 28/(rows+1)) },
		unit:    64,
	}
)

// direct says whether a·bᵀ, whose rows are few, can be computed in place.
func (a operand) direct(b operand) bool {
	inPlace := func(o operand) bool { return o.rowMajor() && (o.lookup == nil || o.scales.rowMajor()) }
	return a.Cols > 0 && inPlace(a) && inPlace(b)
}

// multiplyDirect is family.multiply for operands of which direct approves.
func multiplyDirect(s *Scratch, sum, out View, a, b operand, m into, inexact slowWay) {
	if m.span > 0 {
		s.eachSpan(sum, a.Cols, m, func(dst View, i, j, k, n int) {
			multiplyDirect(s, dst, View{}, a.part(2, i, dst.Rows).along(2, k, n), b.part(2, j, dst.Cols).along(2, k, n), into{}, inexact)
		})
		return
	}
	f := &directBF16AVX512
	if b.lookup != nil {
		f = &directMXAVX512
	}
	panel, exact := s.directPanel(a)
	if !exact {
		inexact(sum, out, a.scaled(), b.scaled(), m)
		return
	}
	const spare = 8 // at most, that a kernel stores behind a row
	target := strided(s.sums.atLeast(4*a.Rows*(b.Rows+spare)), a.Rows, b.Rows, b.Rows+spare, 1)
	if !f.all(s, target, panel, b) {
		sums := target // which other products overwrite
		target = strided(s.unrounded.atLeast(4*a.Rows*b.Rows), a.Rows, b.Rows, b.Rows, 1)
		copyRows(target, sums)
		b.runs(func(j, n int, fits bool) { // only columns that need it: the others stay as they are whatever stands beside them
			if !fits {
				inexact(target.slice(4, 0, j, a.Rows, n), View{}, a.scaled(), b.part(1, j, n).scaled(), into{})
			}
		})
	}
	deliver(sum, out, target, m.add)
}

// deliver makes the result of the sums.
func deliver(sum, out, sums View, add bool) {
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

// directPanels cuts rows into panels of near-equal height.
func directPanels(rows int) (panels, height int) {
	panels = (rows + directPanelRows - 1) / directPanelRows
	return panels, (rows + panels - 1) / panels
}

// directPanel copies a, decoded, panel by panel: vector after vector of every row follow each other. exact is as in notes.exact.
func (s *Scratch) directPanel(a operand) (p unsafe.Pointer, exact bool) {
	steps := (a.Cols + 63) / 64 * 2
	p = s.a.atLeast(64 * steps * a.Rows)
	_, height := directPanels(a.Rows)
	copyChunk := func(v View, i, k int) {
		panel := unsafe.Add(p, 64*steps*i)
		for r := range v.Rows {
			src := row[uint16](v, r)
			for step := k / 32; len(src) > 0; step++ {
				dst := (*[32]uint16)(unsafe.Add(panel, 64*(step*v.Rows+r)))
				n := copy(dst[:], src)
				clear(dst[n:])
				src = src[n:]
			}
		}
		if (a.Cols+31)/32 < steps {
			clear(unsafe.Slice((*uint16)(unsafe.Add(panel, 64*(steps-1)*v.Rows)), 32*v.Rows))
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

// run is how many elements of a row along k are multiplied at a time. a's part of them should leave half of the first level of cache
// to the rows of b; codes take so little of the way from the second level that a may come from there.
func (f *directFamily) run(height int) int {
	elements := 8192
	if f == &directMXAVX512 {
		elements = 1 << 17
	}
	return elements / height / 512 * 512
}

// directProduct is what the calls of a product have in common.
type directProduct struct {
	family      *directFamily
	calls       *[2]direct // for panels of height rows, and for the last one, which may have fewer
	sum         View
	a           unsafe.Pointer // panels
	height, run int
	partial     unsafe.Pointer // vectors of sums between runs, for every row of a those of so many columns
	columns     int
}

// all computes sum = a·bᵀ and says whether all of b was decoded exactly.
func (f *directFamily) all(s *Scratch, sum View, panel unsafe.Pointer, b operand) (exact bool) {
	panels, height := directPanels(sum.Rows)
	p := directProduct{family: f, calls: &s.calls.direct, sum: sum, a: panel, height: height, run: f.run(height)}
	unit := f.columns(height)
	if panels > 1 {
		unit = 12 // of which that of every height above directPanelRows/2 is a divisor
	}
	strip := min(directStrip/(b.Cols*64/f.unit), directSums/sum.Rows)
	strip = min(max(strip/unit, 1)*unit, b.Rows)
	if b.Cols > p.run {
		const spare = 64 // columns that groups may compute twice
		p.columns = strip + spare
		p.partial = s.partial.atLeast(64 * sum.Rows * p.columns)
	}
	for i, rows := range []int{height, sum.Rows - (panels-1)*height} {
		p.calls[i].prepare(f, rows, sum, b)
	}
	for j := 0; j < b.Rows; j += strip {
		p.strip(j, min(strip, b.Rows-j), b)
	}
	return b.lookup == nil || p.calls[0].exact(b)
}

// prepare sets what all calls for so many rows of a have in common. If b has fewer rows than the kernel takes, each is a group of the
// same row.
func (d *direct) prepare(f *directFamily, rows int, sum View, b operand) {
	width := f.columns(rows)
	*d = direct{rows: rows, columns: width, stride: 64 / f.unit * b.RowStride, scaleStride: b.scales.RowStride, sumStride: 4 * sum.RowStride, wholeScales: 1<<16 - 1}
	d.scalesAhead = 2 * width * d.scaleStride // of the group after the next
	if width*d.stride <= directNear {
		d.near = 1
	}
	if b.Rows < width {
		d.columns, d.stride, d.scaleStride = 1, 0, 0
	}
	if b.lookup != nil {
		d.codes = directTables[b.lookup.format]()
	}
	d.notes.reset()
}

// strip computes n columns of sum from column j on, run by run along k.
func (p *directProduct) strip(j, n int, b operand) {
	elem := 64 / p.family.unit
	steps := (b.Cols + 63) / 64 * 2 // of a panel of a
	strip := b.part(elem, j, n)
	for k := 0; k < b.Cols; k += p.run {
		part := strip.along(elem, k, min(p.run, b.Cols-k))
		// This run fetches its share of the next strip, from this row and column on.
		row, column := n*k/b.Cols, n*k%b.Cols
		for i := 0; i < p.sum.Rows; i += p.height {
			d := &p.calls[0]
			if p.sum.Rows-i < p.height {
				d = &p.calls[1]
			}
			d.a = unsafe.Add(p.a, 64*(i*steps+k/32*d.rows))
			d.partial = unsafe.Add(p.partial, 64*i*p.columns)
			d.ahead = elem * ((n+row)*b.RowStride + column - k)
			d.load, d.finish = k, 0
			if k+p.run >= b.Cols {
				d.finish = 1
			}
			p.panel(d, p.sum.slice(4, i, j, d.rows, n), part)
		}
	}
}

// panel multiplies a panel of a with the rows of b. If they are no multiple of what the kernel takes, the last ones are taken again
// with those before them.
func (p *directProduct) panel(d *direct, sum View, b operand) {
	elem := 64 / p.family.unit
	d.steps, d.tail = b.Cols/p.family.unit, 1<<(b.Cols%p.family.unit)-1
	d.blocks, d.lastScales = (b.scales.Cols+15)/16, 1<<((b.scales.Cols+15)%16+1)-1
	d.moved = [4]int{}
	for j := 0; j < b.Rows; {
		j = min(j, b.Rows-d.columns)
		d.groups = 1
		if d.columns > 1 {
			d.groups = (b.Rows - j) / d.columns
		}
		n := d.groups * d.columns
		part := b.part(elem, j, n)
		d.b, d.scales, d.sum = part.Ptr, part.scales.Ptr, sum.slice(4, 0, j, 1, 1).Ptr
		d.moved = [4]int{3: d.moved[3]} // the sums in vectors go on
		p.family.call(d)
		j += n
	}
}

// call is not inlined for the sake of preemption, as family.column.
//
//go:noinline
func (f *directFamily) call(d *direct) { f.kernels[d.rows](d) }

var directTables = [...]func() *directCodes{
	E4M3: sync.OnceValue(func() *directCodes { return newDirectCodes(decodersAVX512[E4M3](), 237) }), // all but 0, subnormal numbers and NaN
	E5M2: sync.OnceValue(func() *directCodes { return newDirectCodes(decodersAVX512[E5M2](), 0) }),   // none
}

// newDirectCodes makes tables that are looked up for codes but those whose double less 16 is less than rare.
func newDirectCodes(l *lookup, rare uint8) *directCodes {
	c := &directCodes{high: l.high, low: l.low, top: l.top - (7<<23 | 7<<7)}
	for i := range c.rare {
		c.rare[i] = rare
	}
	return c
}
