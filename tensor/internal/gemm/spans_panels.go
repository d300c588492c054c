package gemm

// Sums by spans in products of panels.

import "spmoe/tensor/internal/stream"

// spans stores the tree of the spans' sums in p.sum.
func (f *microkernel) spans(s *Scratch, p *product, accumulate bool) {
	leaves := (p.steps + p.span - 1) / p.span
	oneRun := f.adds && min(p.span, p.steps) <= f.runSteps && !p.mode.whole()
	if oneRun && leaves == 1 {
		if accumulate {
			p.adds = 1
		}
		f.run(s, p, 0, p.steps, false, false)
		p.adds = 0
		return
	}
	if leaves == 1 && !accumulate && !p.mode.whole() && f.streams(p) {
		f.run(s, p, 0, p.steps, false, false)
		stream.Fence()
		return
	}
	result := p.sum
	t := s.tree(result.Rows, f.wholeTiles(result.Cols), leaves)
	for from := 0; from < p.steps; from += p.span {
		if oneRun {
			p.adds, p.addStride = t.ready(), 4*t.rows*t.cols
		}
		p.sum = f.clipColumns(t.tile(t.open-p.adds), result)
		if end := min(from+p.span, p.steps); p.mode.blocks != nil {
			f.promoted(s, p, from, end, result.Cols)
		} else {
			for k := from; k < end; k += f.runSteps {
				f.run(s, p, k, end, k > from, false)
			}
		}
		p.mode.times(p.sum)
		t.push(p.adds)
	}
	p.adds = 0
	t.put(result, accumulate)
}

// multiplySpans is multiply for spans that cut a unit of packing. It packs each span separately. It
// is for plain elements only.
func (f *microkernel) multiplySpans(s *Scratch, sum View, a, b operand, m mode) {
	elem := f.packing.elem
	s.eachSpan(sum, a.Cols, m, func(dst View, i, j, k, n int) {
		f.multiply(s, dst, View{}, a.part(elem, i, dst.Rows).along(elem, k, n), b.part(elem, j, dst.Cols).along(elem, k, n), mode{}, nil)
	})
}
