package gemm

// Packing. For each step of k, a panel stores one dword for each of its rows (of a) or columns (of
// b). A dword is an FP32 number or a pair of BF16. If the microkernel has no BF16 instruction, each
// pair of BF16 becomes two steps of FP32. The second element comes first. An odd last element is
// paired with 0.

import "unsafe"

// packing packs a microkernel's operands into panels. A row is a row of a or a column of b.
type packing struct {
	elem          int    // bytes of an operand's element
	split         bool   // BF16 becomes FP32
	quads         bool   // four BF16 along k stay together, in two steps
	tiles         bool   // panels are for tiles (panels_tiles.go)
	rows, columns packer // of row and of column panels
}

// packer packs rows into a panel.
type packer struct {
	group int // rows that along packs at once
	// along packs up to group rows that are contiguous along k. Row i begins at src + offsets[i]
	// and has words 16-bit words. tail has one bit for each of the last words%32. Steps are step
	// bytes apart. It may prefetch the next rows, ahead bytes past src.
	along func(dst, src unsafe.Pointer, offsets *[16]int, words, tail, step, ahead int)
	// across packs a whole panel of rows that are adjacent in memory. Elements along k are stride
	// bytes apart. Bit i of lanes says that row i exists.
	across func(dst, src unsafe.Pointer, stride, k, step, lanes int)
}

// steps returns the number of steps for k elements.
func (p *packing) steps(k int) int {
	switch {
	case p.elem == 4:
		return k
	case p.split:
		return (k + 1) / 2 * 2
	case p.quads:
		return (k + 3) / 4 * 2
	case p.tiles:
		return (k + tileElements - 1) / tileElements * tileSteps
	}
	return (k + 1) / 2
}

// unit returns the number of elements along k that must stay together.
func (p *packing) unit() int {
	switch {
	case p.elem == 4:
		return 1
	case p.tiles:
		return tileElements
	case p.quads:
		return 4
	}
	return 2
}

// columnPanels packs b into panels of width columns. Its argument holds the columns of b as rows.
// The last panel may be partly filled.
func (p *packing) columnPanels(s *Scratch, to *buffer, b operand, width int) unsafe.Pointer {
	ptr := to.atLeast(p.columnPanelBytes(b, width))
	p.packColumns(s, ptr, b, width)
	return ptr
}

// columnPanelBytes returns the bytes of columnPanels.
func (p *packing) columnPanelBytes(b operand, width int) int {
	return 4 * ((b.Rows + width - 1) / width) * width * p.steps(b.Cols)
}

// packColumns writes columnPanels to ptr.
func (p *packing) packColumns(s *Scratch, ptr unsafe.Pointer, b operand, width int) {
	s.calls.decoding.reset()
	p.panels(s, ptr, b, panelShape{width, width, 4 * width * p.steps(b.Cols), &p.columns})
}

// rowPanels is a block of a, packed unless plain. tall panels of rows rows each are followed by
// short panels of one row less. For tiles, all panels are tall and the last one may be partly
// filled.
type rowPanels struct {
	ptr                     unsafe.Pointer
	rows, tall, short       int
	tallStride, shortStride int  // bytes between panels
	rowStep                 int  // for tiles: bytes between rows of a panel
	plain                   bool // rows are not packed: pairs along k are contiguous
}

// step returns the bytes from one step to the next in a panel of rows rows. A panel for tiles must
// consist of whole tiles.
func (r *rowPanels) step(rows int) int {
	if r.plain {
		return 4
	}
	return 4 * rows
}

// panelsInPlace returns the rows of a as panels for tiles without a copy. It requires whole tiles
// that do not cross cache lines.
func (p *packing) panelsInPlace(a operand, height int) (r rowPanels, ok bool) {
	stride := a.RowStride * p.elem
	if !p.tiles || a.lookup != nil || !a.rowMajor() || a.Cols%tileElements != 0 || (int(uintptr(a.Ptr))|stride)%line != 0 {
		return r, false
	}
	return rowPanels{ptr: a.Ptr, rows: height, tall: (a.Rows + height - 1) / height, tallStride: height * stride, rowStep: stride, plain: true}, true
}

// panelsDecoded decodes codes along k row by row, in a layout that tiles can read. It adds to the
// notes.
func (p *packing) panelsDecoded(s *Scratch, to *buffer, a operand, height int) rowPanels {
	const group = 128 // smallest number of bytes that a call decodes to
	// Not a power of two: rows would then compete for the same cache lines.
	stride := (2*a.Cols+group-1)/group*group + line
	ptr := to.atLeast(stride * a.Rows)
	for i := 0; i < a.Rows; i += chunkRows {
		rows := a.part(1, i, min(chunkRows, a.Rows-i))
		for k := 0; k < a.Cols; k += decodeSteps {
			s.decodeRows(unsafe.Add(ptr, i*stride+2*k), stride, rows.along(1, k, min(decodeSteps, a.Cols-k)))
		}
	}
	return rowPanels{ptr: ptr, rows: height, tall: (a.Rows + height - 1) / height, tallStride: height * stride, rowStep: stride, plain: true}
}

// rowPanels packs a into panels of near-equal height (at most height) in to. It does not copy them
// if they can be read in place.
func (p *packing) rowPanels(s *Scratch, to *buffer, a operand, height int) rowPanels {
	if r, ok := p.panelsInPlace(a, height); ok {
		return r
	}
	if p.tiles && a.lookup != nil && a.lengthwise() {
		s.calls.decoding.reset()
		return p.panelsDecoded(s, to, a, height)
	}
	steps := p.steps(a.Cols)
	n := (a.Rows + height - 1) / height
	r := rowPanels{rows: (a.Rows + n - 1) / n, rowStep: line}
	r.short = n*r.rows - a.Rows
	if p.tiles {
		r.rows, r.short = height, 0
	}
	r.tall = n - r.short
	// A panel's last store writes past the panel, hence the extra line.
	r.tallStride, r.shortStride = 4*steps*r.rows+line, 4*steps*(r.rows-1)+line
	r.ptr = to.atLeast(r.tall*r.tallStride + r.short*r.shortStride)
	s.calls.decoding.reset()
	done := min(r.tall*r.rows, a.Rows)
	p.panels(s, r.ptr, a.part(p.elem, 0, done), panelShape{r.rows, r.rows, r.tallStride, &p.rows})
	if r.short > 0 {
		p.panels(s, r.shortPtr(), a.part(p.elem, done, a.Rows-done), panelShape{r.rows - 1, r.rows - 1, r.shortStride, &p.rows})
	}
	return r
}

func (r *rowPanels) shortPtr() unsafe.Pointer { return unsafe.Add(r.ptr, r.tall*r.tallStride) }

// panelShape gives the rows per panel, the dwords between steps and the bytes between panels. The
// packer packs them.
type panelShape struct {
	height, width, stride int
	*packer
}

// panels packs the rows of o. Codes are first decoded in chunks that fit in L1 and L2.
func (p *packing) panels(s *Scratch, dst unsafe.Pointer, o operand, shape panelShape) {
	if o.lookup == nil {
		p.packPanels(s, dst, o.View, shape)
		return
	}
	rows := chunkRows / shape.height * shape.height
	for i := 0; i < o.Rows; i += rows {
		n := min(rows, o.Rows-i)
		for k := 0; k < o.Cols; k += chunkSteps {
			v := s.chunk(o, i, k, n, min(chunkSteps, o.Cols-k))
			p.packPanels(s, unsafe.Add(dst, i/shape.height*shape.stride+4*shape.width*p.steps(k)), v, shape)
		}
	}
}

// packPanels packs the rows of v into consecutive panels.
func (p *packing) packPanels(s *Scratch, dst unsafe.Pointer, v View, shape panelShape) {
	for i := 0; i < v.Rows; i += shape.height {
		to := unsafe.Add(dst, i/shape.height*shape.stride)
		p.panel(s, to, v.slice(p.elem, i, 0, min(shape.height, v.Rows-i), v.Cols), shape.width, shape.packer)
	}
}

// panel packs the rows of v. Steps are width dwords apart. It is not inlined, so that the goroutine
// can be preempted (see microkernel.column).
//
//go:noinline
func (p *packing) panel(s *Scratch, dst unsafe.Pointer, v View, width int, by *packer) {
	if !v.rowMajor() {
		by.across(dst, v.Ptr, v.ColStride*p.elem, v.Cols, 4*width, 1<<v.Rows-1)
		return
	}
	words := v.Cols * p.elem / 2
	for i := 0; i < v.Rows; i += by.group {
		// Past the last row, repeat it: those lanes are overwritten or never used.
		for r := range by.group {
			s.calls.offsets[r] = min(r, v.Rows-1-i) * v.RowStride * p.elem
		}
		stride := v.RowStride * p.elem
		by.along(unsafe.Add(dst, 4*i), unsafe.Add(v.Ptr, i*stride), &s.calls.offsets, words, 1<<(words%32)-1, 4*width, by.group*stride)
	}
}
