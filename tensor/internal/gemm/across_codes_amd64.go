//go:build amd64 && !purego

package gemm

// Products across for codes where decoding takes the registers that sums want, as on AVX2: 16 rows of b are decoded for a run along k
// into a column panel, which meets all row panels while the first level of cache holds it.

import "unsafe"

// panelColumns is how many columns are decoded at once.
const panelColumns = 16

// decoded is strip for codes that are decoded: a column panel meets all row panels while the first level of cache holds it. Sums stay in
// scratch until they are complete.
func (p *acrossProduct) decoded(s *Scratch, j, n, k int) {
	d, t, b := &s.calls.panel, &s.calls.tile, p.b
	d.k = min(p.run, b.Cols-k)
	d.lines = (n + line - 1) / line
	d.ahead, d.linesLeft, d.jump = p.next(j, n, k, d.k), d.lines, d.stride-line*d.lines
	part := b.part(1, j, n).along(1, k, d.k)
	width := (n + panelColumns - 1) / panelColumns * panelColumns
	sums := strided(p.partial, p.sum.Rows, width, width, 1)
	*t = tile{b: d.dst, sumStride: 4 * width, steps: p.packed.packing.steps(d.k), startAtSum: min(k, 1)}
	of := product{a: p.a, sum: sums}
	for i := 0; i < n; i += panelColumns {
		first := min(i, n-panelColumns) // the last columns begin early enough to be as many
		d.codes, d.scales = unsafe.Add(part.Ptr, first), unsafe.Add(part.scales.Ptr, first)
		d.ahead -= first
		p.family.callDecode(d)
		d.ahead += first
		t.sum = unsafe.Add(sums.Ptr, 4*i)
		p.packed.column(t, &of, k)
	}
	if k+d.k == b.Cols {
		whole := n / panelColumns * panelColumns
		copyRows(p.sum.slice(4, 0, j, p.sum.Rows, whole), sums.slice(4, 0, 0, p.sum.Rows, whole))
		if whole < n {
			copyRows(p.sum.slice(4, 0, j+n-panelColumns, p.sum.Rows, panelColumns), sums.slice(4, 0, width-panelColumns, p.sum.Rows, panelColumns))
		}
	}
}

// callDecode is not inlined for the sake of preemption, as family.column.
//
//go:noinline
func (f *acrossFamily) callDecode(d *codePanel) { f.decode(d) }
