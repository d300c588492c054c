//go:build amd64 && !purego

package gemm

// Packing: panels hold, step after step of k, one dword for each of their rows (of a) or columns (of b). A dword is an FP32
// number or a pair of BF16; where the microkernel has no BF16 instruction, each pair of BF16 becomes two steps of FP32, the
// second element first. An odd last element is paired with 0.

import "unsafe"

// packing is how one family's operands get into panels. A row is a row of a or a column of b.
type packing struct {
	elem  int  // bytes of an operand's element
	split bool // BF16 becomes FP32
	group int  // rows that along packs at once
	// along packs up to group rows that are contiguous along k. Row i begins at src + offsets[i] and has words 16-bit words;
	// tail has a bit for each of the last words%32. Steps are step bytes apart.
	along func(dst, src unsafe.Pointer, offsets *[16]int, words, tail, step int)
	// across packs rows that are neighbours in memory, with stride bytes along k: acrossPanel up to a column panel of them,
	// across up to a row panel. Bit i of lanes says that row i exists.
	across, acrossPanel func(dst, src unsafe.Pointer, stride, k, step, lanes int)
}

// steps is the number of steps that k elements become.
func (p *packing) steps(k int) int {
	switch {
	case p.elem == 4:
		return k
	case p.split:
		return (k + 1) / 2 * 2
	}
	return (k + 1) / 2
}

// columnPanels packs b into panels of width columns, the last of which may be partly filled.
func (p *packing) columnPanels(s *Scratch, b View, width int) unsafe.Pointer {
	steps := p.steps(b.Rows)
	panels := (b.Cols + width - 1) / width
	ptr := s.b.atLeast(4 * panels * width * steps)
	rows := b.transposed()
	for j := 0; j < b.Cols; j += width {
		p.panel(s, unsafe.Add(ptr, 4*j*steps), rows.slice(p.elem, j, 0, min(width, b.Cols-j), b.Rows), width, p.acrossPanel)
	}
	return ptr
}

// rowPanels is a packed block of a: tall panels of rows rows each, then short panels of one row less.
type rowPanels struct {
	ptr               unsafe.Pointer
	rows, tall, short int
}

// rowPanels packs a into panels of near-equal height, at most height.
func (p *packing) rowPanels(s *Scratch, a View, height int) rowPanels {
	steps := p.steps(a.Cols)
	n := (a.Rows + height - 1) / height
	r := rowPanels{ptr: s.a.atLeast(4 * a.Rows * steps), rows: (a.Rows + n - 1) / n}
	r.short = n*r.rows - a.Rows
	r.tall = n - r.short
	i := 0
	for panel := range n {
		rows := r.rows
		if panel >= r.tall {
			rows--
		}
		// A panel's last store reaches into the next panel, which is therefore packed later.
		p.panel(s, unsafe.Add(r.ptr, 4*i*steps), a.slice(p.elem, i, 0, rows, a.Cols), rows, p.across)
		i += rows
	}
	return r
}

// panel packs the rows of v at a distance of width dwords from step to step. It is not inlined for the sake of preemption, as
// family.column.
//
//go:noinline
func (p *packing) panel(s *Scratch, dst unsafe.Pointer, v View, width int, across func(dst, src unsafe.Pointer, stride, k, step, lanes int)) {
	if !v.rowMajor() {
		across(dst, v.Ptr, v.ColStride*p.elem, v.Cols, 4*width, 1<<v.Rows-1)
		return
	}
	words := v.Cols * p.elem / 2
	for i := 0; i < v.Rows; i += p.group {
		for r := range p.group { // past the last row, the last row again: its lanes are overwritten or never used
			s.offsets[r] = min(r, v.Rows-1-i) * v.RowStride * p.elem
		}
		p.along(unsafe.Add(dst, 4*i), unsafe.Add(v.Ptr, i*v.RowStride*p.elem), &s.offsets, words, 1<<(words%32)-1, 4*width)
	}
}
