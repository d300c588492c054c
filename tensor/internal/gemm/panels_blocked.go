package gemm

// The blocked product: pack a block of b and a block of a, then run the microkernel over their
// panels. A packed panel holds all of k, so cutting k into runs only changes loop bounds.

import (
	"unsafe"

	"spmoe/tensor/internal/stream"
)

const (
	// runSteps is the usual number of steps between a load and a store of the sums. A column panel
	// of that length has 64 KB. L2 delivers it fast enough, since it is read once per row panel.
	runSteps = 512
	// blockRows bounds a block of a. One run of a block takes 384 KB of L2, and a microkernel call
	// over it takes 25 to 60 µs.
	blockRows = 192
	// blockColumns bounds a block of b. Together with blockRows it bounds the sums held in scratch.
	blockColumns = 1024
	// blockBytes bounds a packed block of either operand, unless a single panel is larger.
	blockBytes = 2 << 20
	// packedBytes bounds a packed block of b, unless that leaves fewer than leastColumns columns.
	// L2 holds the block from packing to the last product, together with rows of a.
	packedBytes  = 512 << 10
	leastColumns = 128
)

// The same for tiles. They multiply faster than L2 delivers two operands. So the part of a column
// panel that is in use stays in L1 (innerSteps), and L2 holds the rows that pass through.
const (
	tilesRunSteps   = 1024
	tilesInnerSteps = 256 // 32 KB of a column panel
	// A run of a block takes at most tilesRunBytes. Blocks have more rows than others, because
	// column panels come from memory once per block.
	tilesBlockRows  = 384
	tilesRunBytes   = 1 << 20
	tilesBlockBytes = 4 << 20 // blocks of sums should not be touched again until they are complete
	// A call multiplies at most tilesCallSteps steps of rows if it has several column panels. That
	// takes 8 µs, and 40 µs on a core whose other hyperthread is busy.
	tilesCallSteps = 1 << 17
)

// product is a packed block of a, one of b and the destination of their product.
type product struct {
	a        rowPanels
	b        unsafe.Pointer
	steps    int
	skipped  int  // further steps of the panels of b, which this product does not use
	span     int  // steps that are summed together; 0: all
	sum      View // FP32
	out      View // BF16, or empty
	mode     mode
	row, col int // of c, where sum or out begins
}

// pass says how a run of steps begins and ends.
type pass struct {
	atSum           bool // begin with the sums
	rounds          bool // store BF16
	scaled          bool // use tile.rowScales and tile.columnScales for mode.blocks
	adds, addStride int  // as in tile
	// last is used instead of allPanels if the sums do not stay FP32 where it may load them.
	last func(*tile)
}

// drive computes the product of two packed blocks by the driver for its mode.
func (f *microkernel) drive(s *Scratch, p *product) {
	switch {
	case p.out.Ptr != nil:
		f.rounded(s, p)
	case p.span > 0:
		f.spans(s, p)
	default:
		f.chain(s, p)
	}
}

// multiply computes a·bᵀ. It stores BF16 in out if out is not empty, and FP32 in sum otherwise.
// Blocks of codes that do not decode exactly are left to inexact, which may use s.
func (f *microkernel) multiply(s *Scratch, sum, out View, a, b operand, m mode, inexact fallback) {
	if m.span%f.packing.unit() != 0 && m.span < a.Cols {
		f.multiplySpans(s, sum, a, b, m)
		return
	}
	if a.Cols == 0 {
		clearResult(sum, out, m.add)
		return
	}
	blocks := f.blocks(s, a, b, m)
	for j := 0; j < b.Rows; j += blocks.columns {
		y := b.part(f.packing.elem, j, min(blocks.columns, b.Rows-j))
		blocks.packColumns(y, j)
		for i := 0; i < a.Rows; i += blocks.rows {
			x := a.part(f.packing.elem, i, min(blocks.rows, a.Rows-i))
			row := blocks.packRows(x, i)
			p := product{
				a:       row.rowPanels,
				b:       blocks.panels,
				steps:   blocks.steps,
				skipped: blocks.skipped,
				span:    blocks.span,
				mode:    m,
				row:     i,
				col:     j,
			}
			if out.Ptr != nil {
				p.out = out.slice(2, i, j, x.Rows, y.Rows)
			} else {
				p.sum = sum.slice(4, i, j, x.Rows, y.Rows)
			}
			if row.exact && blocks.exact {
				f.drive(s, &p)
			} else {
				inexact(p.sum, p.out, x.scaled(), y.scaled(), m)
				blocks.forget()
				blocks.packColumns(y, j)
			}
		}
	}
}

// blocks packs the operands of a product block by block.
type blocks struct {
	f             *microkernel
	s             *Scratch
	mode          mode
	rows, columns int // of a block
	steps, span   int
	retain        bool // all blocks of a stay packed
	packed        [retainedBlocks]rowBlock

	// The packed block of b.
	panels  unsafe.Pointer
	skipped int
	exact   bool
}

// rowBlock is a packed block of a, once ready. exact reports whether its codes were decoded
// exactly.
type rowBlock struct {
	rowPanels
	ready, exact bool
}

// blocks chooses the sizes of blocks.
func (f *microkernel) blocks(s *Scratch, a, b operand, m mode) blocks {
	steps, span := f.packing.steps(a.Cols), f.packing.steps(m.span)
	if m.whole() && span == 0 {
		span = steps
	}
	limit, most := blockBytes, blockRows
	if f.packing.tiles {
		limit, most = tilesBlockBytes, tilesRows(steps)
	}
	limit = max(limit/(4*steps), f.columns)
	rows := evenly(a.Rows, min(limit, most), f.rows)
	columns := min(limit, max(packedBytes/(4*steps), leastColumns), blockColumns) / f.columns * f.columns
	return blocks{
		f:       f,
		s:       s,
		mode:    m,
		rows:    rows,
		columns: columns,
		steps:   steps,
		span:    span,
		retain:  a.Rows <= retainedBlocks*rows,
	}
}

// packColumns packs a block of b that begins with column j.
func (k *blocks) packColumns(y operand, j int) {
	if r := k.mode.retained; r != nil {
		panels, steps := r.panels(k.s, &k.f.packing, k.f.columns)
		k.panels, k.skipped = unsafe.Add(panels, 4*j*steps), steps-k.steps
	} else {
		k.panels = k.f.packing.columnPanels(k.s, &k.s.b, y, k.f.columns)
	}
	k.exact = y.lookup == nil || k.s.calls.decoding.exact(y)
}

// packRows packs a block of a that begins with row i, unless it is packed.
func (k *blocks) packRows(x operand, i int) *rowBlock {
	at := 0
	if k.retain {
		at = i / k.rows
	}
	r := &k.packed[at]
	if !r.ready || !k.retain {
		r.rowPanels = k.f.packing.rowPanels(k.s, &k.s.rows[at], x, k.f.rows)
		r.ready, r.exact = true, x.lookup == nil || k.s.calls.decoding.exact(x)
	}
	return r
}

// forget packs blocks again when they are needed.
func (k *blocks) forget() { k.packed = [retainedBlocks]rowBlock{} }

// clearResult stores the product of operands without elements.
func clearResult(sum, out View, add bool) {
	if out.Ptr != nil {
		zeroRows[uint16](out)
	} else if !add {
		zeroRows[float32](sum)
	}
}

// tilesRows bounds the rows of a block of a for tiles.
func tilesRows(steps int) int {
	return min(tilesBlockRows, tilesRunBytes/(4*min(steps, tilesRunSteps)))
}

// streamed returns the microkernel that stores the sums past the caches, or nil if it cannot.
func (f *microkernel) streamed(p *product) func(*tile) {
	if p.steps <= f.runSteps && p.sum.Cols%f.columns == 0 && (int(uintptr(p.sum.Ptr))|4*p.sum.RowStride)%line == 0 {
		return f.allPanelsStreamed
	}
	return nil
}

// stream stores the sums past the caches. It returns false if the microkernel cannot.
func (f *microkernel) stream(s *Scratch, p *product) bool {
	last := f.streamed(p)
	if last != nil {
		f.run(s, p, 0, p.steps, pass{last: last})
		stream.Fence()
	}
	return last != nil
}

// chain adds up all runs of steps in p.sum. With several runs it uses scratch, where the sums are
// dense enough to stay in L2 from run to run.
func (f *microkernel) chain(s *Scratch, p *product) {
	add := p.mode.add
	if p.mode.stream && !add && f.stream(s, p) {
		return
	}
	if p.steps <= f.runSteps {
		f.run(s, p, 0, p.steps, pass{atSum: add})
		return
	}
	result := p.sum
	p.sum = f.scratchSums(s, result)
	if add {
		copyRows(p.sum, result)
	}
	for k := 0; k < p.steps; k += f.runSteps {
		f.run(s, p, k, p.steps, pass{atSum: add || k > 0})
	}
	copyRows(result, p.sum)
}

// scratchSums returns room in scratch for the sums of a result.
func (f *microkernel) scratchSums(s *Scratch, result View) View {
	stride := f.wholeTiles(result.Cols)
	return f.clipColumns(strided(s.sums.atLeast(4*result.Rows*stride), result.Rows, stride, stride, 1), result)
}

// wholeTiles rounds columns up to whole tiles.
func (f *microkernel) wholeTiles(columns int) int {
	return (columns + f.columns - 1) / f.columns * f.columns
}

// clipColumns limits a view of whole tiles to the result's columns if the microkernel can mask
// columns. Otherwise there is room for the whole tiles.
func (f *microkernel) clipColumns(tiles, result View) View {
	if f.masked {
		tiles.Cols = result.Cols
	}
	return tiles
}

// rounded adds up all runs of steps and rounds the sums into p.out. It uses scratch if there are
// several runs or the microkernel cannot round.
func (f *microkernel) rounded(s *Scratch, p *product) {
	end := pass{rounds: f.rounds && !p.mode.whole()}
	if f.allPanelsRounded != nil && !p.mode.whole() && p.steps <= f.runSteps && p.out.Cols%f.columns == 0 {
		end = pass{rounds: true, last: f.allPanelsRounded}
	}
	if p.steps > f.runSteps || !end.rounds {
		p.sum = f.scratchSums(s, p.out)
	}
	if p.mode.blocks != nil {
		f.promoted(s, p, 0, p.steps, p.out.Cols)
	} else {
		for k := 0; k < p.steps; k += f.runSteps {
			how := pass{}
			if k+f.runSteps >= p.steps {
				how = end
			}
			how.atSum = k > 0
			f.run(s, p, k, p.steps, how)
		}
	}
	if !end.rounds {
		p.mode.round(p.out, p.sum)
	}
}

// run multiplies one run of steps, column panel by column panel. It starts at step k and stops at
// end at the latest.
func (f *microkernel) run(s *Scratch, p *product, k, end int, how pass) {
	t := &s.calls.tile
	*t = tile{steps: min(f.runSteps, end-k), adds: how.adds, addStride: how.addStride}
	if how.atSum {
		t.startAtSum = 1
	}
	if f.scratchBytes > 0 {
		t.out = s.partial.atLeast(max(f.scratchBytes, f.partialBytes(p, how, t.steps)))
	}
	columns := max(p.sum.Cols, p.out.Cols)
	var n int
	for j := 0; j < columns; j += n {
		n = f.columnsPerCall(p, t.steps, columns-j)
		t.columns = 1<<min(n, f.columns) - 1
		t.furtherPanels, t.bStride = max(n/f.columns, 1)-1, 4*f.columns*(p.steps+p.skipped)
		t.b = unsafe.Add(p.b, 4*(j*(p.steps+p.skipped)+k*f.columns))
		if how.scaled {
			p.setScales(t, j, k/f.packing.steps(p.mode.blocks.Run))
		}
		t.sum, t.sumStride = unsafe.Pointer(nil), 0
		if p.sum.Ptr != nil {
			t.sum, t.sumStride = unsafe.Add(p.sum.Ptr, 4*j), 4*p.sum.RowStride
		}
		switch {
		case how.rounds && f.allPanels != nil:
			t.sum, t.sumStride = unsafe.Add(p.out.Ptr, 2*j), 2*p.out.RowStride
		case how.rounds:
			t.out, t.outStride = unsafe.Add(p.out.Ptr, 2*j), 2*p.out.RowStride
		}
		if n < f.columns && !f.masked {
			f.edge(s, p, k, n, how)
			continue
		}
		f.column(t, p, k, how)
	}
}

// columnsPerCall returns the number of columns that the next call of column multiplies. Those of
// one panel, or with tiles those of several whole panels, unless that would delay preemption.
func (f *microkernel) columnsPerCall(p *product, steps, left int) int {
	panels := 1
	if f.innerSteps > 0 && steps <= f.innerSteps {
		panels = max(tilesCallSteps/(steps*max(p.sum.Rows, p.out.Rows)), 1)
	}
	return min(panels*f.columns, max(left/f.columns, 1)*f.columns, left)
}

// edge multiplies the last column panel (n columns wide) in scratch. It is for microkernels that
// write whole tiles.
func (f *microkernel) edge(s *Scratch, p *product, k, n int, how pass) {
	t, stride := &s.calls.tile, 4*f.columns
	part := strided(t.sum, p.sum.Rows, n, p.sum.RowStride, 1)
	whole := strided(s.edge.atLeast(stride*p.sum.Rows), p.sum.Rows, n, f.columns, 1)
	if t.startAtSum != 0 || t.adds != 0 {
		copyRows(whole, part)
	}
	t.sum, t.sumStride = whole.Ptr, stride
	f.column(t, p, k, how)
	copyRows(part, whole)
}

// column multiplies all row panels with one column panel. Assembly cannot be preempted: this
// function can, because it has a frame and hence a stack check, so it must not be inlined.
//
//go:noinline
func (f *microkernel) column(t *tile, p *product, k int, how pass) {
	tall, short := p.a.rows, p.a.rows-1
	if f.allPanels != nil {
		t.a, t.aStride = unsafe.Add(p.a.ptr, k*p.a.step(tall)), p.a.tallStride
		t.rowStep, t.tileStep = p.a.rowStep, tileSteps*p.a.step(tall)
		f.innerRuns(t, p, how.last)
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

// innerRuns multiplies all row panels with one column panel, in runs of innerSteps. Between runs,
// the sums are where they end, or in t.out if last does not leave them as FP32.
func (f *microkernel) innerRuns(t *tile, p *product, last func(*tile)) {
	whole, rows := *t, max(p.sum.Rows, p.out.Rows)
	run := f.innerSteps
	if run == 0 {
		run = whole.steps
	}
	for k := 0; k < whole.steps; k += run {
		*t = whole
		t.a, t.b = unsafe.Add(t.a, k*p.a.step(p.a.rows)), unsafe.Add(t.b, 4*k*f.columns)
		t.count, t.rows, t.steps = rows, rows, min(run, whole.steps-k)
		if k > 0 {
			t.startAtSum = 1
		}
		kernel := f.allPanels
		switch {
		case last == nil:
		case k+run < whole.steps:
			t.sum, t.sumStride = t.out, 4*f.columns
		default:
			kernel = last
		}
		f.configure(t)
		kernel(t)
	}
	*t = whole // for the next column panel
}

// partialBytes returns the room for the sums of a column panel between its inner runs.
func (f *microkernel) partialBytes(p *product, how pass, steps int) int {
	if how.last == nil || steps <= f.innerSteps {
		return 0
	}
	return 4 * f.columns * (max(p.sum.Rows, p.out.Rows) + 2*tileRows - 1) / (2 * tileRows) * (2 * tileRows)
}

// evenly cuts n into near-equal parts of at most limit. It rounds their size up to a multiple of
// unit if limit allows.
func evenly(n, limit, unit int) int {
	parts := (n + limit - 1) / limit
	size := (n + parts - 1) / parts
	return min((size+unit-1)/unit*unit, limit)
}
