package gemm

// Two other ways to read adjacent rows of b: through the packed product's microkernel, or through
// tiles. On AVX2, decoding takes the registers that sums need. So some rows of b are decoded for a
// run along k into a column panel. All row panels are multiplied with it while it is in L1. Tiles
// multiply a block of 32 steps of k while the next block is made.

import "unsafe"

const acrossBlocks = 2 * 4 * tileRows * line // bytes of two blocks of 32 steps of k for tiles

// panelRoom returns room for blocks, or for a column panel followed by the microkernel's own
// scratch space.
func (p *acrossProduct) panelRoom(s *Scratch) unsafe.Pointer {
	if p.kernels.tiles == nil {
		return s.b.atLeast(p.panelBytes() + p.packed.scratchBytes)
	}
	room := s.b.atLeast(2 * acrossBlocks)
	return unsafe.Add(room, -int(uintptr(room))&(acrossBlocks-1))
}

// panelBytes returns the size of a column panel plus one step.
func (p *acrossProduct) panelBytes() int {
	return 4 * p.packed.columns * (p.packed.packing.steps(p.run) + 1)
}

// panels does the work of strip through column panels or blocks. Sums stay in scratch until they
// are complete.
func (p *acrossProduct) panels(s *Scratch, j, n, k int) {
	d, t, b, elem, columns := &s.calls.panel, &s.calls.tile, p.b, p.kernels.elem, p.packed.columns
	if p.kernels.tiles != nil && p.a.tall == 1 {
		columns = 2 * acrossColumns
	}
	d.k = min(p.run, b.Cols-k)
	d.lines = (n*elem + line - 1) / line
	d.ahead, d.linesLeft, d.jump = elem*p.next(j, n, k, d.k), d.lines, d.stride-line*d.lines
	part := b.part(elem, j, n).along(elem, k, d.k)
	width := (n + columns - 1) / columns * columns
	sums := strided(p.partial, p.result.Rows, width, width, 1)
	*t = tile{sumStride: 4 * width, steps: p.packed.packing.steps(d.k), startAtSum: min(k, 1)}
	if p.kernels.panel != nil && p.packed.scratchBytes > 0 { // blocks of tiles need no room
		t.out = unsafe.Add(d.dst, p.panelBytes())
	}
	if p.kernels.tiles != nil {
		p.blockTile(t, k)
	}
	for i := 0; i < n; i += columns {
		first := min(i, n-columns) // the last group starts early enough to be full
		d.src, d.scales = unsafe.Add(part.Ptr, elem*first), unsafe.Add(part.scales.Ptr, first)
		d.ahead -= elem * first
		t.sum = unsafe.Add(sums.Ptr, 4*i)
		if p.kernels.tiles != nil {
			p.kernels.callTiles(p.a.tall, d, t)
		} else {
			p.multiplyPanel(d, t, sums, p.packed.packing.steps(k))
		}
		d.ahead += elem * first
	}
	if k+d.k == b.Cols {
		whole := n / columns * columns
		p.result.put(j, sums.slice(4, 0, 0, sums.Rows, whole))
		if whole < n {
			p.result.put(j+n-columns, sums.slice(4, 0, width-columns, sums.Rows, columns))
		}
	}
}

// multiplyPanel packs a column panel for a run that starts at step and multiplies all row panels
// with it. If a fused kernel exists, it multiplies the first row panel while it packs.
func (p *acrossProduct) multiplyPanel(d *columnPanel, t *tile, sums View, step int) {
	a := p.a
	t.b = d.dst
	if first, rows := a.panel(0); rows < len(p.kernels.fused) {
		t.a = unsafe.Add(first, 4*rows*step)
		p.kernels.callFused(rows, d, t)
		if !a.dropFirst() {
			return
		}
		t.sum = unsafe.Add(t.sum, rows*t.sumStride)
	} else {
		p.kernels.callPanel(d)
	}
	p.packed.column(t, &product{a: a, sum: sums}, step, pass{})
}

// dropFirst removes the first panel. It reports whether any are left.
func (r *rowPanels) dropFirst() bool {
	if r.tall+r.short == 1 {
		return false
	}
	if r.tall > 0 {
		r.tall--
		r.ptr = unsafe.Add(r.ptr, r.tallStride)
	} else {
		r.short--
		r.ptr = unsafe.Add(r.ptr, r.shortStride)
	}
	return true
}

// callFused is not inlined, so that the goroutine can be preempted (see microkernel.column).
//
//go:noinline
func (f *acrossKernels) callFused(rows int, d *columnPanel, t *tile) { f.fused[rows](d, t) }

// callPanel is not inlined, so that the goroutine can be preempted (see microkernel.column).
//
//go:noinline
func (f *acrossKernels) callPanel(d *columnPanel) { f.panel(d) }

// blockTile sets the arguments that multiply blocks from step k on.
func (p *acrossProduct) blockTile(t *tile, k int) {
	t.a = unsafe.Add(p.a.ptr, p.packed.packing.steps(k)*p.a.step(p.a.rows))
	t.aStride, t.rowStep, t.tileStep = p.a.tallStride, p.a.rowStep, tileSteps*p.a.step(p.a.rows)
	p.kernels.configure(t, p.a.tall, p.result.Rows)
}

// callTiles is not inlined, so that the goroutine can be preempted (see microkernel.column).
//
//go:noinline
func (f *acrossKernels) callTiles(panels int, d *columnPanel, t *tile) { f.tiles[panels](d, t) }
