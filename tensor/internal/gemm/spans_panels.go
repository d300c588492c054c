package gemm

// Sums by spans in products of panels.

// spans stores the tree of the spans' sums in p.sum, or adds it there.
func (f *microkernel) spans(s *Scratch, p *product) {
	leaves, add := (p.steps+p.span-1)/p.span, p.mode.add
	oneRun := f.adds && min(p.span, p.steps) <= f.runSteps && !p.mode.whole()
	switch {
	case oneRun && leaves == 1:
		how := pass{}
		if add {
			how.adds = 1
		}
		f.run(s, p, 0, p.steps, how)
		return
	case leaves == 1 && !add && !p.mode.whole():
		if !f.stream(s, p) {
			f.chain(s, p)
		}
		return
	}
	result := p.sum
	t := s.tree(result.Rows, f.wholeTiles(result.Cols), leaves)
	for from := 0; from < p.steps; from += p.span {
		how := pass{}
		if oneRun {
			how.adds, how.addStride = t.ready(), 4*t.rows*t.cols
		}
		p.sum = f.clipColumns(t.tile(t.open-how.adds), result)
		if end := min(from+p.span, p.steps); p.mode.blocks != nil {
			f.promoted(s, p, from, end, result.Cols)
		} else {
			for k := from; k < end; k += f.runSteps {
				how.atSum = k > from
				f.run(s, p, k, end, how)
			}
		}
		p.mode.times(p.sum)
		t.push(how.adds)
	}
	t.put(result, add)
}

// multiplySpans is multiply for spans that cut a unit of packing. It packs each span separately. It
// is for plain elements only.
func (f *microkernel) multiplySpans(s *Scratch, sum View, a, b operand, m mode) {
	elem := f.packing.elem
	s.eachSpan(sum, a.Cols, m, func(dst View, i, j, k, n int) {
		f.multiply(s, dst, View{}, a.part(elem, i, dst.Rows).along(elem, k, n), b.part(elem, j, dst.Cols).along(elem, k, n), mode{}, nil)
	})
}
