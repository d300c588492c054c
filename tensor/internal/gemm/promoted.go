package gemm

// Products whose elements share FP32 scales in runs along k. The sum of each run is scaled and
// added in FP32, as DeepSeek-V3 promotes the partial sums of Tensor Cores. Some microkernels do so
// before they store a tile (microkernel.scales). For the others, and for scales that change within
// a column panel, a second pass over the sums does.

import (
	"unsafe"

	"spmoe/tensor/internal/vec"
)

// BlockScales are the scales of both operands of c = a·b in runs of Run elements along k.
type BlockScales struct {
	Run  int
	A, B ScaleView // by rows of a and columns of b
}

// ScaleView finds the scale of a row (or column) in a run: Values[(First+row)/Rows·RowStride +
// run·RunStride].
type ScaleView struct {
	Values               []float32
	First, Rows          int
	RowStride, RunStride int
}

// at returns the index of the scale of a row in a run.
func (v *ScaleView) at(row, run int) int { return (v.First+row)/v.Rows*v.RowStride + run*v.RunStride }

// BF16Promoted computes c = Σ scales·(a·b over a run), or adds it to c. With a span, that is the
// sum of each span, as in BF16Times. Spans consist of whole runs.
func BF16Promoted(s *Scratch, c, a, b View, scales BlockScales, span int, accumulate bool) {
	if check(c, a, b) {
		s.calls.blocks = scales
		s.kernels().bf16(s, c, a, b, mode{add: accumulate, span: span, blocks: &s.calls.blocks})
	}
}

// BF16ToBF16Promoted computes c as BF16Promoted does and rounds it to BF16.
func BF16ToBF16Promoted(s *Scratch, c, a, b View, scales BlockScales) {
	if check(c, a, b) {
		s.calls.blocks = scales
		s.kernels().bf16Rounded(s, c, a, b, mode{blocks: &s.calls.blocks})
	}
}

// add adds the scaled sums of a run to sums. They are those of c from row i and column j on.
func (b *BlockScales) add(sums, run View, i, j, at int) {
	for r := range sums.Rows {
		to := row[float32](sums, r)
		from := row[float32](run, r)[:sums.Cols]
		scale := b.A.Values[b.A.at(i+r, at)]
		if b.B.perColumn() {
			first := b.B.at(j, at)
			vec.MulScaled(from, scale, from, b.B.Values[first:first+len(from)])
			vec.Add(to, to, from)
			continue
		}
		for c := 0; c < len(to); {
			end := min(c+b.B.Rows-(b.B.First+j+c)%b.B.Rows, len(to))
			vec.AddScaled(to[c:end], scale*b.B.Values[b.B.at(j+c, at)], from[c:end])
			c = end
		}
	}
}

// promote sets sums to the sum of runs [from, end). Their elements are those of c from row i and
// column j on. product sets its first argument to the unscaled sum over a run.
func (b *BlockScales) promote(s *Scratch, sums View, i, j, from, end int, product func(dst View, run int)) {
	zeroRows[float32](sums)
	part := strided(s.unrounded.atLeast(4*sums.Rows*sums.RowStride), sums.Rows, sums.Cols, sums.RowStride, 1)
	for run := from; run < end; run++ {
		product(part, run)
		b.add(sums, part, i, j, run)
	}
}

// promoted sets the first columns of p.sum to the scaled sums of steps [from, end). p.sum may have
// more columns, up to whole tiles.
func (f *microkernel) promoted(s *Scratch, p *product, from, end, columns int) {
	tiles, steps := p.sum, f.packing.steps(p.mode.blocks.Run)
	if f.scalesTiles(p, steps) {
		zeroRows[float32](p.sum)
		for k := from; k < end; k += steps {
			f.run(s, p, k, min(k+steps, end), pass{scaled: true, adds: 1})
		}
		return
	}
	sums := tiles
	sums.Cols = columns
	p.mode.blocks.promote(s, sums, p.row, p.col, from/steps, (end+steps-1)/steps, func(dst View, run int) {
		p.sum = dst
		p.sum.Cols = tiles.Cols
		f.run(s, p, run*steps, min((run+1)*steps, end), pass{})
	})
	p.sum = tiles
}

// scalesTiles reports whether the microkernel can scale the sums of runs: each row has its own
// scales, and so has each column, unless those of a column panel share them.
func (f *microkernel) scalesTiles(p *product, steps int) bool {
	a, b := &p.mode.blocks.A, &p.mode.blocks.B
	shared := (b.First+p.col)%f.columns == 0 && b.Rows%f.columns == 0
	return f.scales && steps <= f.runSteps && a.Rows == 1 && (shared || b.perColumn())
}

// perColumn reports whether each column has its own scales, adjacent in memory.
func (v *ScaleView) perColumn() bool { return v.Rows == 1 && v.RowStride == 1 }

// setScales sets the scales of a run for the column panel that begins with column j.
func (p *product) setScales(t *tile, j, run int) {
	a, b := &p.mode.blocks.A, &p.mode.blocks.B
	t.rowScales = unsafe.Pointer(&a.Values[a.at(p.row, run)])
	t.rowScaleStride = 4 * a.RowStride
	t.rowScale = 0
	t.columnScales = unsafe.Pointer(&b.Values[b.at(p.col+j, run)])
	t.perColumn = 0
	if b.perColumn() {
		t.perColumn = 1
	}
}

// promotePortable is promote for n elements along k from element k on, in plain Go.
func promotePortable[T uint16 | float32](s *Scratch, sums, a, b View, i, j, k, n int, scales *BlockScales) {
	elem := int(unsafe.Sizeof(*new(T)))
	scales.promote(s, sums, i, j, k/scales.Run, (k+n+scales.Run-1)/scales.Run, func(dst View, run int) {
		first := run * scales.Run
		length := min(scales.Run, k+n-first)
		multiplyPortable[T](s, dst, View{}, a.slice(elem, i, first, dst.Rows, length), b.slice(elem, first, j, length, dst.Cols), false)
	})
}
