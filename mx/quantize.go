package mx

// Quantization to the formats of OCP MX. The unit of work is a panel of up to 32 rows. It holds
// whole blocks in both directions, so one pass over the input serves both. general.go has the other
// formats.

import (
	"fmt"
	"iter"

	"spmoe/mx/internal/quant"
	"spmoe/tensor"
	"spmoe/tensor/format"
	"spmoe/tensor/profile"
)

// Quantize fills dst with the codes and scales of x. The format, the direction and the groups are
// those of dst.
//
// x is FP32 or BF16 with contiguous columns and has dst's shape. The elements of a block are
// divided by its scale and rounded to the nearest code. Ties go to even, and large values saturate
// ([format.Element.Encode]). A block with a NaN or an infinity gets a NaN scale and NaN codes. mode
// applies to E8M0 scales only. [Cast.Quantize] can round stochastically.
func Quantize(ex *tensor.Exec, dst Tensor, x tensor.Matrix, mode ScaleMode) {
	Cast{Format: dst.Format, Mode: mode}.Quantize(ex, dst, x, Draws{})
}

// quantizeMX is Quantize for a format of OCP MX with one byte per code.
func quantizeMX(ex *tensor.Exec, dst Tensor, x tensor.Matrix, mode ScaleMode) {
	q := quantizer{x: x, element: dst.Format.Element, rule: mode.rule(dst.Format.Element)}
	if dst.Blocks == AlongRows {
		q.rows = dst
	} else {
		q.cols = dst
	}
	q.run(ex)
}

// QuantizeBoth quantizes x in both directions: rows has blocks AlongRows, cols AlongCols. It takes
// one pass over x if both have the same OCP MX format.
func QuantizeBoth(ex *tensor.Exec, rows, cols Tensor, x tensor.Matrix, mode ScaleMode) {
	if !OnePass(rows.Format, cols.Format) {
		Quantize(ex, rows, x, mode)
		Quantize(ex, cols, x, mode)
		return
	}
	defer ex.ProfilingRows(profile.Quantize, x.Rows, x.Cols).End()
	q := newBothQuantizer(rows, cols, x.Rows, x.Cols, mode)
	q.x = x
	q.run(ex)
}

// OnePass says whether one pass can quantize a matrix along rows to the first format and along
// columns to the second. QuantizePanels requires it.
func OnePass(rows, cols Format) bool { return rows == cols && rows.isMX() }

// QuantizePanels is QuantizeBoth for a matrix x that is produced a panel at a time. write stores
// rows [lo, hi) of x in part, whose type is dtype. The rows are then quantized while they are in
// cache. write runs on several threads, and its ex is that of the thread. The time counts as the
// caller's, not as quantization.
func QuantizePanels(ex *tensor.Exec, rows, cols Tensor, dtype tensor.DType, mode ScaleMode, write func(ex *tensor.Exec, lo, hi int, part tensor.Tensor)) {
	n, k := rows.Rows(), rows.Cols()
	q := newBothQuantizer(rows, cols, n, k, mode)
	q.stream = q.useStreaming(n*k*dtype.Size(), k)
	tensor.Parallel(ex, q.blockRows(n), opsPerElement*n*k, producedQuantizer{q, dtype, write}, quantizeProduced)
}

// producedQuantizer is a pass over rows that are produced during the pass. It has no x.
type producedQuantizer struct {
	quantizer
	dtype tensor.DType
	write func(ex *tensor.Exec, lo, hi int, part tensor.Tensor)
}

// quantizeProduced produces and quantizes panels [lo, hi).
func quantizeProduced(ex *tensor.Exec, w producedQuantizer, lo, hi int) {
	for block, p := range panels(w.cols.Ends, w.rows.Rows(), format.MXBlock) {
		if block >= hi {
			break
		}
		if block >= lo {
			w.producePanel(ex, block, p)
		}
	}
	if w.stream {
		quant.Drain()
	}
}

// producePanel produces one panel and quantizes it as a matrix of its own.
func (w *producedQuantizer) producePanel(ex *tensor.Exec, block int, p rowRange) {
	mark := ex.Mark()
	defer ex.Release(mark)
	x := ex.New(w.dtype, p.last-p.first, w.rows.Cols())
	w.write(ex, p.first, p.last, x)
	part := w.quantizer
	part.x, part.rows = x.Mat(), w.rows.RowSlice(p.first, p.last)
	part.cols.Codes, part.cols.Scales, part.cols.Ends = w.cols.Codes.Slice(p.first, p.last), w.cols.Scales.Slice(block, block+1), nil
	part.quantizePanel(ex, region{rows: part.x.Rows, cols: part.x.Cols})
}

// newBothQuantizer returns a pass in both directions over a matrix of n rows and k columns.
func newBothQuantizer(rows, cols Tensor, n, k int, mode ScaleMode) quantizer {
	rows.check(AlongRows, n, k)
	cols.check(AlongCols, n, k)
	if !OnePass(rows.Format, cols.Format) {
		panic(fmt.Sprintf("mx: one pass quantizes to one format of OCP MX, not to %v and %v", rows.Format, cols.Format))
	}
	return quantizer{element: rows.Format.Element, rule: mode.rule(rows.Format.Element), rows: rows, cols: cols}
}

// A quantizer is one pass over a matrix. A direction that is not requested is the zero Tensor.
type quantizer struct {
	x          tensor.Matrix
	element    *format.Element
	rule       rule
	rows, cols Tensor
	stream     bool // write the codes with non-temporal stores
}

// A region is a panel or a part of one. It has a first row and column, extents, and its row of
// blocks in an AlongCols matrix.
type region struct{ row, col, rows, cols, block int }

// A rowRange is rows [first, last) of a panel.
type rowRange struct{ first, last int }

// panels yields the panels of a matrix and their numbers. The rows of group g end at ends[g]. A
// panel has height rows. The last panel of a group may have fewer.
func panels(ends []int32, rows, height int) iter.Seq2[int, rowRange] {
	return func(yield func(int, rowRange) bool) {
		first, last, groups, block := 0, rows, 1, 0
		if ends != nil {
			groups = len(ends)
		}
		for g := range groups {
			if ends != nil {
				first, last = group(ends, g)
			}
			for ; first < last; first, block = first+height, block+1 {
				if !yield(block, rowRange{first, min(first+height, last)}) {
					return
				}
			}
		}
	}
}

// stripCols is the granularity in which threads share the columns of a panel. It is a multiple of
// tiles and blocks.
const stripCols = 256

// opsPerElement is the cost of one element, in operations of a matrix product.
const opsPerElement = 32

// run distributes the panels over the threads in strips of columns. Matrices of few rows are thus
// shared as well.
func (q *quantizer) run(ex *tensor.Exec) {
	q.stream = q.useStreaming(q.x.Rows*q.x.Cols*q.x.DType().Size(), q.x.Cols)
	tensor.Parallel(ex, q.blockRows(q.x.Rows)*q.stripsPerPanel(), opsPerElement*q.x.Rows*q.x.Cols, *q, quantizeRange)
}

// stripsPerPanel returns the number of strips in a panel.
func (q *quantizer) stripsPerPanel() int { return (q.x.Cols + stripCols - 1) / stripCols }

// quantizeRange quantizes strips [lo, hi). Strips are numbered panel by panel. It handles the
// strips of one panel together.
func quantizeRange(ex *tensor.Exec, q quantizer, lo, hi int) {
	if ex.Dry() {
		q.quantizePanel(ex, region{rows: min(q.x.Rows, format.MXBlock), cols: q.x.Cols})
		return
	}
	strips := q.stripsPerPanel()
	for block, p := range panels(q.cols.Ends, q.x.Rows, format.MXBlock) {
		if block*strips >= hi {
			break
		}
		if from, to := max(lo-block*strips, 0), min(hi-block*strips, strips); from < to {
			col := from * stripCols
			q.quantizePanel(ex, region{p.first, col, p.last - p.first, min(to*stripCols, q.x.Cols) - col, block})
		}
	}
	if q.stream {
		quant.Drain()
	}
}

// blockRows returns the number of panels in a matrix of the given number of rows.
func (q *quantizer) blockRows(rows int) int {
	if q.cols.requested() {
		return q.cols.Scales.Dim(0)
	}
	return ceilDiv(rows, format.MXBlock)
}

// quantizePanel quantizes one region of a panel.
func (q *quantizer) quantizePanel(ex *tensor.Exec, at region) {
	mark := ex.Mark()
	defer ex.Release(mark)
	switch {
	case kernels < quant.Strips || !tilesSupport(q.element, q.x.DType()):
		q.quantizeAny(ex, at)
	case kernels == quant.Strips:
		q.quantizeStrips(ex, at)
	default:
		q.quantizeTiles(ex, at)
	}
}

// quantizeAny quantizes a region as that of any format.
func (q *quantizer) quantizeAny(ex *tensor.Exec, at region) {
	for _, t := range []Tensor{q.rows, q.cols} {
		if !t.requested() {
			continue
		}
		mark := ex.Mark()
		g := quantizeArgs{t: t, x: q.x, rule: q.rule, largest: t.Format.Max()}
		p := g.newPanel(ex, at.cols)
		height, _ := t.BlockShape()
		for row := at.row; row < at.row+at.rows && !ex.Dry(); row += height {
			blocks := blockRow{block: row, first: row, last: row + 1}
			if height > 1 {
				blocks = blockRow{block: at.block, first: row, last: at.row + at.rows}
			}
			p.quantizeRow(blocks, at.col, at.col+at.cols)
		}
		ex.Release(mark)
	}
}

// requested says whether to fill this direction.
func (t *Tensor) requested() bool { return t.Codes.Valid() }

// codesAt returns the codes from the start of the region on.
func (t *Tensor) codesAt(at region) []uint8 { return t.Codes.U8()[at.row*t.Cols()+at.col:] }

// scalesAt returns the scales from the start of the region on.
func (t *Tensor) scalesAt(at region) []uint8 {
	if t.Blocks == AlongRows {
		return t.Scales.U8()[at.row*t.Scales.Dim(1)+at.col/format.MXBlock:]
	}
	return t.Scales.U8()[at.block*t.Cols()+at.col:]
}
