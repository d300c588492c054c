//go:build amd64 && !purego

package gemm

// Products across for a microkernel that wants a column panel, because decoding takes the registers that sums want, as on AVX2, or because it
// reads tiles: some rows of b are decoded or interleaved for a run along k into a column panel, which meets all row panels while the first
// level of cache holds it.

import "unsafe"

// panels is strip by way of column panels. Sums stay in scratch until they are complete.
func (p *acrossProduct) panels(s *Scratch, j, n, k int) {
	d, t, b, elem, columns := &s.calls.panel, &s.calls.tile, p.b, p.family.elem, p.packed.columns
	d.k = min(p.run, b.Cols-k)
	d.lines = (n*elem + line - 1) / line
	d.ahead, d.linesLeft, d.jump = elem*p.next(j, n, k, d.k), d.lines, d.stride-line*d.lines
	part := b.part(elem, j, n).along(elem, k, d.k)
	width := (n + columns - 1) / columns * columns
	sums := strided(p.partial, p.sum.Rows, width, width, 1)
	*t = tile{b: d.dst, sumStride: 4 * width, steps: p.packed.packing.steps(d.k), startAtSum: min(k, 1)}
	of := product{a: p.a, sum: sums, stack: p.packed.stack}
	for i := 0; i < n; i += columns {
		first := min(i, n-columns) // the last columns begin early enough to be as many
		d.src, d.scales = unsafe.Add(part.Ptr, elem*first), unsafe.Add(part.scales.Ptr, first)
		d.ahead -= elem * first
		p.family.callPanel(d)
		d.ahead += elem * first
		if p.packed.packing.tiles {
			clearSteps(d.dst, 4*columns, d.k, 4*columns)
		}
		t.sum = unsafe.Add(sums.Ptr, 4*i)
		p.packed.column(t, &of, p.packed.packing.steps(k))
	}
	if k+d.k == b.Cols {
		whole := n / columns * columns
		copyRows(p.sum.slice(4, 0, j, p.sum.Rows, whole), sums.slice(4, 0, 0, p.sum.Rows, whole))
		if whole < n {
			copyRows(p.sum.slice(4, 0, j+n-columns, p.sum.Rows, columns), sums.slice(4, 0, width-columns, p.sum.Rows, columns))
		}
	}
}

// callPanel is not inlined for the sake of preemption, as family.column.
//
//go:noinline
func (f *acrossFamily) callPanel(d *columnPanel) { f.panel(d) }
