package tensorcore

// Products of 4-bit codes: groups of them are terms.

// multiplyGroups sets totals to the product of operands of BlackwellFP4. Groups are runs of scales.
func (t *tile) multiplyGroups() {
	for k0 := 0; k0 < t.A.K; k0 += chunk {
		k1 := min(k0+chunk, t.A.K)
		left := t.left[:t.padded()]
		t.packing(&t.A, 0).packRows(left, t.row, t.end, k0, k1)
		for col := t.col; col < t.endCol; col += t.columns {
			right := t.packer.rows[:min(t.columns, t.endCol-col)]
			t.packing(&t.B, 0).packRows(right, col, t.endCol, k0, k1)
			sums := t.panel(col)
			for r := range t.end - t.row {
				for j := range right {
					sum := &sums[r*t.columns+j]
					for k := k0; k < k1; k += t.Terms {
						*sum = t.blockOfGroups(*sum, &left[r], &right[j], t.row+r, col+j, k, min(k+t.Terms, k1), k0)
					}
				}
			}
		}
	}
}

// blockOfGroups adds the products [k, end) of a row and a column to c. The packed rows begin with
// element k0.
func (t *tile) blockOfGroups(c float32, left, right *leftRow, row, col, k, end, k0 int) float32 {
	t.terms = t.terms[:0]
	for run := t.A.Scales.Run; k < end; k += run {
		lo, hi := k-k0, min(k+run, end)-k0
		t.terms = append(t.terms, Group(left.values[lo:hi], right.values[lo:hi], t.A.Scales.element(row, k/run), t.B.Scales.element(col, k/run)))
	}
	return t.Add(c, t.terms)
}
