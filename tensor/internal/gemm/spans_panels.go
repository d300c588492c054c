package gemm

// Sums by spans in products of panels.

import "spmoe/tensor/internal/stream"

// spans stores the tree of the spans' sums in p.sum.
func (f *microkernel) spans(s *Scratch, p *product, accumulate bool) {
	leaves := (p.steps + p.span - 1) / p.span
	oneRun := f.adds && min(p.span, p.steps) <= f.runSteps && p.mode.alpha == 0
	if oneRun && leaves == 1 {
		if accumulate {
			p.adds = 1
		}
		f.run(s, p, 0, p.steps, false, false)
		p.adds = 0
		return
	}
	if leaves == 1 && !accumulate && p.mode.alpha == 0 && f.streams(p) {
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
		for k, end := from, min(from+p.span, p.steps); k < end; k += f.runSteps {
			f.run(s, p, k, end, k > from, false)
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
