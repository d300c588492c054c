//go:build amd64 && !purego

package gemm

// Products with few rows of a, which are bound by reading b: it is read from memory once, in place, instead of being packed.
//
// Order of summation: an element has 16 chains of fused multiply-adds along k; chain l takes the pairs (k, k+1) with
// k%32 = 2l, k+1 first. The chains are added up as ((0+2)+(1+3)) of every four, then the first two and the last two of these sums,
// then those; the result is added to c if need be.

import "unsafe"

// directHeight is the most rows of a that a kernel takes.
const directHeight = 12

// directFamily is the kernels by the rows of a and how many rows of b each takes at once, which must be what the generator says.
type directFamily struct {
	kernels [directHeight + 1]func(*direct)
	columns func(rows int) int
	unit    int // elements of a row that make a step
}

var (
	directBF16AVX512 = directFamily{
		kernels: [...]func(*direct){nil, directBF16x1AVX512, directBF16x2AVX512, directBF16x3AVX512, directBF16x4AVX512, directBF16x5AVX512, directBF16x6AVX512,
			directBF16x7AVX512, directBF16x8AVX512, directBF16x9AVX512, directBF16x10AVX512, directBF16x11AVX512, directBF16x12AVX512},
		columns: func(rows int) int { return min(8, 31/(rows+1)) },
		unit:    32,
	}
	directMXAVX512 = directFamily{
		kernels: [...]func(*direct){nil, directMXx1AVX512, directMXx2AVX512, directMXx3AVX512, directMXx4AVX512, directMXx5AVX512, directMXx6AVX512,
			directMXx7AVX512, directMXx8AVX512, directMXx9AVX512, directMXx10AVX512, directMXx11AVX512, directMXx12AVX512},
		columns: func(rows int) int { return min(6, 23/(rows+2)) },
		unit:    64,
	}
)

// direct says whether a·bᵀ, whose rows are few, can be computed in place.
func (a operand) direct(b operand) bool {
	inPlace := func(o operand) bool { return o.rowMajor() && (o.lookup == nil || o.scales.rowMajor()) }
	return a.Cols > 0 && inPlace(a) && inPlace(b)
}

const (
	directRun     = 8192      // elements of a that the first level of cache holds: 16 KB
	directPartial = 256 << 10 // bytes of sums that are kept in vectors between two runs along k
	directBytes   = 1 << 20   // bytes of b that a call reads, for the sake of preemption: some 50 µs
	directAhead   = 32 << 10  // bytes at least between what is read and what is fetched, which hides the memory's latency
)

// multiplyDirect is family.multiply for operands of which direct approves.
func multiplyDirect(s *Scratch, sum, out View, a, b operand, accumulate bool, inexact slowWay) {
	f := &directBF16AVX512
	if b.lookup != nil {
		f = &directMXAVX512
	}
	panel, exact := s.directPanel(a)
	if !exact {
		inexact(sum, out, a.scaled(), b.scaled(), accumulate)
		return
	}
	target := sum
	if accumulate || out.Ptr != nil {
		target = strided(s.sums.atLeast(4*a.Rows*b.Rows), a.Rows, b.Rows, b.Rows, 1)
	}
	if !f.all(s, target, panel, b) {
		b.runs(func(j, n int, fits bool) { // only columns that need it: the others stay as they are whatever stands beside them
			if !fits {
				inexact(target.slice(4, 0, j, a.Rows, n), View{}, a.scaled(), b.part(1, j, n).scaled(), false)
			}
		})
	}
	switch {
	case out.Ptr != nil:
		roundRows(out, target)
	case accumulate:
		for i := range sum.Rows {
			c := row[float32](sum, i)
			for j, x := range row[float32](target, i) {
				c[j] += x
			}
		}
	}
}

// directPanels cuts rows into panels of near-equal height.
func directPanels(rows int) (panels, height int) {
	panels = (rows + directHeight - 1) / directHeight
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

// all computes sum = a·bᵀ and says whether all of b was decoded exactly.
func (f *directFamily) all(s *Scratch, sum View, panel unsafe.Pointer, b operand) (exact bool) {
	rows := sum.Rows
	panels, height := directPanels(rows)
	run := max(directRun/height/512, 1) * 512
	unit := f.columns(height)
	if panels > 1 {
		unit = 12 // of which that of every height above directHeight/2 is a divisor
	}
	most := min(directPartial/(64*rows), directBytes/(min(b.Cols, run)*64/f.unit))
	most = max(most/unit, 1) * unit
	exact = true
	for j := 0; j < b.Rows; j += most {
		n := min(most, b.Rows-j)
		exact = f.strip(s, sum.slice(4, 0, j, rows, n), panel, b.part(64/f.unit, j, n), height, run) && exact
	}
	return exact
}

// strip computes sum, of few columns, run by run along k.
func (f *directFamily) strip(s *Scratch, sum View, panel unsafe.Pointer, b operand, height, run int) (exact bool) {
	d := &s.calls.direct
	*d = direct{lookup: b.lookup, wholeScales: 1<<16 - 1}
	const spare = 64 // columns that groups may compute twice
	partial := s.partial.atLeast(64 * sum.Rows * (sum.Cols + spare))
	steps := (b.Cols + 63) / 64 * 2
	exact = true
	for k := 0; k < b.Cols; k += run {
		part := b.along(64/f.unit, k, min(run, b.Cols-k))
		d.steps, d.tail = part.Cols/f.unit, 1<<(part.Cols%f.unit)-1
		d.blocks, d.lastScales = (part.scales.Cols+15)/16, 1<<((part.scales.Cols+15)%16+1)-1
		d.load, d.finish = k, 0
		if k+run >= b.Cols {
			d.finish = 1
		}
		d.notes.reset()
		for i := 0; i < sum.Rows; i += height {
			n := min(height, sum.Rows-i)
			d.a = unsafe.Add(panel, 64*(i*steps+k/32*n))
			d.partial = unsafe.Add(partial, 64*i*(sum.Cols+spare))
			f.panel(d, sum.slice(4, i, 0, n, sum.Cols), part)
		}
		exact = exact && (b.lookup == nil || d.notes.exact(part))
	}
	return exact
}

// panel multiplies a panel of a with all rows of b. If they are no multiple of what the kernel takes, the last ones are taken again
// with those before them or, if there are none, each as a group of the same row.
func (f *directFamily) panel(d *direct, sum View, b operand) {
	rows := sum.Rows
	width := f.columns(rows)
	d.stride, d.scaleStride = 64/f.unit*b.RowStride, b.scales.RowStride
	columns := width
	if b.Rows < width {
		d.stride, d.scaleStride, columns = 0, 0, 1
	}
	d.valid = [2]uint64{}
	for i := range rows {
		for j := range width {
			e := i*width + j
			d.offsets[e] = int32(4 * (i*sum.RowStride + j))
			if j < columns {
				d.valid[e/16] |= 1 << (e % 16)
			}
		}
	}
	ahead := 1 + directAhead/(width*d.stride+1)
	d.ahead, d.scalesAhead = ahead*width*d.stride, ahead*width*d.scaleStride
	d.moved = [4]int{}
	for j := 0; j < b.Rows; {
		j = min(j, b.Rows-columns)
		d.groups = 1
		if columns == width {
			d.groups = (b.Rows - j) / width
		}
		n := d.groups * columns
		part := b.part(64/f.unit, j, n)
		d.b, d.scales, d.sum = part.Ptr, part.scales.Ptr, sum.slice(4, 0, j, 1, 1).Ptr
		d.moved = [4]int{3: d.moved[3]} // the sums in vectors go on
		f.call(d, rows)
		j += n
	}
}

// call is not inlined for the sake of preemption, as family.column.
//
//go:noinline
func (f *directFamily) call(d *direct, rows int) { f.kernels[rows](d) }
