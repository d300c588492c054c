package gemm

// The blocked product: pack a block of b and a block of a, then let the microkernel run over their
// panels. A packed panel holds all of k, so that cutting k into runs is only a matter of loop
// bounds.

import (
	"unsafe"

	"spmoe/tensor/internal/stream"
)

const (
	// runSteps is the usual number of steps between a load and a store of the sums: a column panel
	// has 64 KB, which L2 feeds fast enough, since it is read once a row panel.
	runSteps = 512
	// blockRows bounds a block of a: one run of it takes 384 KB of L2, and a microkernel call over
	// it 25 to 60 µs.
	blockRows = 192
	// blockColumns bounds a block of b, and with blockRows the sums kept in scratch.
	blockColumns = 1024
	// blockBytes bounds a packed block of either, unless a single panel is larger. Tiles, which are
	// so fast that a block of sums is best left alone until it is complete, take longer panels and
	// so larger blocks.
	blockBytes      = 2 << 20
	tilesBlockBytes = 4 << 20
)

// rowBlock is a packed block of a, if ready. exact says whether its codes were decoded exactly.
type rowBlock struct {
	rowPanels
	ready, exact bool
}

func (r *rowBlock) pack(f *family, s *Scratch, to *buffer, a operand) {
	r.rowPanels = f.packing.rowPanels(s, to, a, f.rows)
	r.ready, r.exact = true, a.lookup == nil || s.calls.decoding.exact(a)
}

// product is a packed block of a, one of b, and where to put what they give.
type product struct {
	a     rowPanels
	b     unsafe.Pointer
	steps int
	span  int  // steps that are summed together; 0: all
	sum   View // FP32
	out   View // BF16, or empty
	stack func(*tile)

	adds, addStride int // as of tile
}

// multiply puts a·bᵀ into sum in FP32 or, if out is not empty, computes out = a·bᵀ in BF16. Blocks
// of codes that do not decode exactly are left to inexact, which may use s.
func (f *family) multiply(s *Scratch, sum, out View, a, b operand, m into, inexact slowWay) {
	if m.span%f.packing.unit() != 0 && m.span < a.Cols {
		f.multiplySpans(s, sum, a, b, m)
		return
	}
	p := product{steps: f.packing.steps(a.Cols), span: f.packing.steps(m.span)}
	if p.steps == 0 {
		if out.Ptr != nil {
			zeroRows[uint16](out)
		} else if !m.add {
			zeroRows[float32](sum)
		}
		return
	}
	limit := blockBytes
	if f.packing.tiles {
		limit = tilesBlockBytes
	}
	limit = max(limit/(4*p.steps), f.columns)
	columns := min(limit/f.columns*f.columns, blockColumns)
	rows := evenly(a.Rows, min(limit, blockRows), f.rows)
	var kept [keptBlocks]rowBlock
	for j := 0; j < b.Rows; j += columns {
		n := min(columns, b.Rows-j)
		y := b.part(f.packing.elem, j, n)
		p.b = f.packing.columnPanels(s, &s.b, y, f.columns)
		exactY := b.lookup == nil || s.calls.decoding.exact(y)
		for i := 0; i < a.Rows; i += rows {
			height := min(rows, a.Rows-i)
			x := a.part(f.packing.elem, i, height)
			at := 0
			if a.Rows <= keptBlocks*rows {
				at = i / rows
			}
			block := &kept[at]
			if !block.ready || a.Rows > keptBlocks*rows {
				block.pack(f, s, &s.rows[at], x)
			}
			p.a = block.rowPanels
			p.sum, p.out, p.stack = View{}, View{}, f.stack
			if out.Ptr != nil {
				p.out = out.slice(2, i, j, height, n)
			} else {
				p.sum = sum.slice(4, i, j, height, n)
			}
			switch {
			case !block.exact || !exactY:
				inexact(p.sum, p.out, x.scaled(), y.scaled(), m)
				kept = [keptBlocks]rowBlock{}
				p.b = f.packing.columnPanels(s, &s.b, y, f.columns)
			case out.Ptr != nil:
				f.rounded(s, &p)
			case p.span > 0:
				f.spans(s, &p, m.add)
			case m.stream && !m.add && f.streams(&p):
				f.run(s, &p, 0, p.steps, false, false)
				stream.Fence()
			default:
				f.sums(s, &p, m.add)
			}
		}
	}
}

// streams says whether the sums can be stored past the caches, and has it done.
func (f *family) streams(p *product) bool {
	can := f.stackStreamed != nil && p.steps <= f.runSteps && p.sum.Cols%f.columns == 0 && (int(uintptr(p.sum.Ptr))|4*p.sum.RowStride)%line == 0
	if can {
		p.stack = f.stackStreamed
	}
	return can
}

// sums adds up all runs of steps in p.sum, by way of scratch if they are several: there sums lie so
// close that the second-level cache holds them from run to run.
func (f *family) sums(s *Scratch, p *product, accumulate bool) {
	if p.steps <= f.runSteps {
		f.run(s, p, 0, p.steps, accumulate, false)
		return
	}
	result := p.sum
	p.sum = f.closeSums(s, result)
	if accumulate {
		copyRows(p.sum, result)
	}
	for k := 0; k < p.steps; k += f.runSteps {
		f.run(s, p, k, p.steps, accumulate || k > 0, false)
	}
	copyRows(result, p.sum)
}

// closeSums is room in scratch for the sums of a result.
func (f *family) closeSums(s *Scratch, result View) View {
	stride := f.wholeTiles(result.Cols)
	return f.kept(strided(s.sums.atLeast(4*result.Rows*stride), result.Rows, stride, stride, 1), result)
}

// wholeTiles rounds columns up to those of whole tiles.
func (f *family) wholeTiles(columns int) int {
	return (columns + f.columns - 1) / f.columns * f.columns
}

// kept is a view of whole tiles as the microkernel keeps to a result's columns, if it can: if not,
// there is room and no edge.
func (f *family) kept(tiles, result View) View {
	if f.masked {
		tiles.Cols = result.Cols
	}
	return tiles
}

// rounded adds up all runs of steps in scratch, if they are several or the microkernel cannot
// round, and ends in p.out.
func (f *family) rounded(s *Scratch, p *product) {
	rounds := f.rounds
	if f.stackRounded != nil && p.steps <= f.runSteps && p.out.Cols%f.columns == 0 {
		rounds, p.stack = true, f.stackRounded
	}
	if p.steps > f.runSteps || !rounds {
		p.sum = f.closeSums(s, p.out)
	}
	for k := 0; k < p.steps; k += f.runSteps {
		f.run(s, p, k, p.steps, k > 0, rounds && k+f.runSteps >= p.steps)
	}
	if !rounds {
		roundRows(p.out, p.sum)
	}
}

// run multiplies one run of steps from k on, at most to end, column panel by column panel.
func (f *family) run(s *Scratch, p *product, k, end int, startAtSum, round bool) {
	t := &s.calls.tile
	*t = tile{steps: min(f.runSteps, end-k), adds: p.adds, addStride: p.addStride}
	if startAtSum {
		t.startAtSum = 1
	}
	if f.room > 0 {
		t.out = s.partial.atLeast(f.room)
	}
	columns := max(p.sum.Cols, p.out.Cols)
	for j := 0; j < columns; j += f.columns {
		n := min(f.columns, columns-j)
		t.columns = 1<<n - 1
		t.b = unsafe.Add(p.b, 4*(j*p.steps+k*f.columns))
		t.sum, t.sumStride = unsafe.Pointer(nil), 0
		if p.sum.Ptr != nil {
			t.sum, t.sumStride = unsafe.Add(p.sum.Ptr, 4*j), 4*p.sum.RowStride
		}
		switch {
		case round && p.stack != nil:
			t.sum, t.sumStride = unsafe.Add(p.out.Ptr, 2*j), 2*p.out.RowStride
		case round:
			t.out, t.outStride = unsafe.Add(p.out.Ptr, 2*j), 2*p.out.RowStride
		}
		if n < f.columns && !f.masked {
			f.edge(s, p, k, n)
			continue
		}
		f.column(t, p, k)
	}
}

// edge multiplies the last column panel, n columns wide, for a microkernel that writes whole tiles:
// in scratch.
func (f *family) edge(s *Scratch, p *product, k, n int) {
	t, stride := &s.calls.tile, 4*f.columns
	part := strided(t.sum, p.sum.Rows, n, p.sum.RowStride, 1)
	whole := strided(s.edge.atLeast(stride*p.sum.Rows), p.sum.Rows, n, f.columns, 1)
	if t.startAtSum != 0 || t.adds != 0 {
		copyRows(whole, part)
	}
	t.sum, t.sumStride = whole.Ptr, stride
	f.column(t, p, k)
	copyRows(part, whole)
}

// column multiplies all row panels with one column panel. Assembly cannot be preempted: this
// function can, because it has a frame and hence a stack check, so it must not be inlined.
//
//go:noinline
func (f *family) column(t *tile, p *product, k int) {
	tall, short := p.a.rows, p.a.rows-1
	if p.stack != nil {
		t.a, t.aStride, t.count = unsafe.Add(p.a.ptr, k*p.a.step(tall)), p.a.tallStride, max(p.sum.Rows, p.out.Rows)
		t.rowStep, t.tileStep = p.a.rowStep, tileSteps*p.a.step(tall)
		f.configure(t)
		p.stack(t)
		return
	}
	t.a, t.aStride, t.count = unsafe.Add(p.a.ptr, 4*k*tall), p.a.tallStride, p.a.tall
	sum, out := t.sum, t.out
	if p.a.tall > 0 {
		f.tiles[tall](t)
	}
	if p.a.short == 0 {
		return
	}
	done := p.a.tall * tall
	t.a, t.aStride, t.count = unsafe.Add(p.a.shortPtr(), 4*k*short), p.a.shortStride, p.a.short
	if sum != nil {
		t.sum = unsafe.Add(sum, done*t.sumStride)
	}
	if out != nil {
		t.out = unsafe.Add(out, done*t.outStride)
	}
	f.tiles[short](t)
}

// evenly cuts n into near-equal parts of at most limit, and rounds their size up to a multiple of
// unit if limit allows it.
func evenly(n, limit, unit int) int {
	parts := (n + limit - 1) / limit
	size := (n + parts - 1) / parts
	return min((size+unit-1)/unit*unit, limit)
}
