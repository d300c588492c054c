package mx

// Quantisation. The matrix is worked off in panels of up to 32 rows, which hold whole blocks in both directions, so that
// one reading of the input serves both.

import (
	"fmt"

	"spmoe/mx/internal/quant"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Quantize fills dst with the codes and scales of x, in the format, direction and groups of dst.
//
// x: FP32 or BF16, columns contiguous, of dst's shape. The elements of a block are divided by its scale and rounded to the
// nearest code, ties to even, saturating (Format.Encode). A block with a NaN or an infinity gets NaNScale and NaN codes.
func Quantize(ex *tensor.Exec, dst Tensor, x tensor.Matrix, mode ScaleMode) {
	defer ex.Enter(ex.Enter(profile.Quantize))
	dst.check(dst.Blocks, x.Rows, x.Cols)
	q := quantizer{x: x, format: dst.Format, rule: mode.rule(dst.Format)}
	if dst.Blocks == AlongRows {
		q.rows = dst
	} else {
		q.cols = dst
	}
	q.run(ex)
}

// QuantizeBoth is Quantize in both directions in one pass: rows has blocks AlongRows, cols AlongCols (and perhaps groups),
// both the same format.
func QuantizeBoth(ex *tensor.Exec, rows, cols Tensor, x tensor.Matrix, mode ScaleMode) {
	defer ex.Enter(ex.Enter(profile.Quantize))
	q := both(rows, cols, x, mode)
	q.run(ex)
}

// QuantizeAsWritten is QuantizeBoth for an x that write fills meanwhile: rows [lo, hi) at a time, on a thread that has ex, just before they
// are quantised, so that caches still hold them. The time is that of the caller's family.
func QuantizeAsWritten(ex *tensor.Exec, rows, cols Tensor, x tensor.Matrix, mode ScaleMode, write func(ex *tensor.Exec, lo, hi int)) {
	q := both(rows, cols, x, mode)
	q.write = write
	q.run(ex)
}

// both is a pass in both directions.
func both(rows, cols Tensor, x tensor.Matrix, mode ScaleMode) quantizer {
	rows.check(AlongRows, x.Rows, x.Cols)
	cols.check(AlongCols, x.Rows, x.Cols)
	if rows.Format != cols.Format {
		panic(fmt.Sprintf("mx: one pass quantises to one format, not to %v and %v", rows.Format, cols.Format))
	}
	return quantizer{x: x, format: rows.Format, rule: mode.rule(rows.Format), rows: rows, cols: cols}
}

// A quantizer is one pass over a matrix. A direction that is not wanted is the zero Tensor.
type quantizer struct {
	x          tensor.Matrix
	format     Format
	rule       rule
	rows, cols Tensor
	write      func(ex *tensor.Exec, lo, hi int) // fills rows of x before they are read; nil: x is there
	stream     bool                              // the codes are better written past the caches
}

// A place is where a panel lies: its first row and column, its extents, and the block row of an AlongCols matrix that it
// fills.
type place struct{ row, col, rows, cols, block int }

// stripCols is the unit in which the columns of a panel are shared out, in whole tiles and blocks, unless whole rows have to be written first.
const stripCols = 256

// operations is what an element costs, in operations of a matrix product.
const operations = 32

// run shares the panels out, those of few rows in strips of columns.
func (q *quantizer) run(ex *tensor.Exec) {
	q.stream = q.streams()
	strips, _ := q.split()
	tensor.Parallel(ex, q.blockRows()*strips, operations*q.x.Rows*q.x.Cols, *q, quantizePart)
}

// split returns the number of strips of a panel, and the columns of each but the last.
func (q *quantizer) split() (strips, cols int) {
	if q.write != nil {
		return 1, q.x.Cols
	}
	return (q.x.Cols + stripCols - 1) / stripCols, stripCols
}

// quantizePart works off strips [lo, hi), counted along the panels, one panel after the other. Strips of one panel are
// taken together.
func quantizePart(ex *tensor.Exec, q quantizer, lo, hi int) {
	strips, width := q.split()
	ends := q.cols.Ends
	for g, block := 0, 0; block*strips < hi; g++ {
		first, last := 0, q.x.Rows
		if ends != nil {
			first, last = group(ends, g)
		}
		for row := first; row < last; row, block = row+BlockSize, block+1 {
			from, to := max(lo-block*strips, 0), min(hi-block*strips, strips)
			if from < to {
				col := from * width
				cols := min(to*width, q.x.Cols) - col
				if q.write != nil {
					q.write(ex, row, min(row+BlockSize, last))
				}
				q.panel(ex, place{row, col, min(BlockSize, last-row), cols, block})
			}
		}
	}
	if q.stream {
		quant.Drain()
	}
}

// blockRows returns the number of panels.
func (q *quantizer) blockRows() int {
	if q.cols.wanted() {
		return q.cols.Scales.Dim(0)
	}
	return blocks(q.x.Rows)
}

// panel quantises what lies at that place.
func (q *quantizer) panel(ex *tensor.Exec, at place) {
	mark := ex.Mark()
	defer ex.Release(mark)
	switch {
	case kernels == tiles && tileable(q.format, q.x.DType()):
		q.tiles(ex, at)
	case kernels >= lanes && stripable(q.format, q.x.DType()):
		q.strips(ex, at)
	default:
		q.values(ex, at)
	}
}

// valueCols bounds the columns that are held as FP32 at a time: a second-level cache has room for them.
const valueCols = 1024

// values quantises a panel from its values in FP32, a few columns after the other.
func (q *quantizer) values(ex *tensor.Exec, at place) {
	x := q.x.RowSlice(at.row, at.row+at.rows)
	end := at.col + at.cols
	for ; at.col < end; at.col += at.cols {
		at.cols = min(valueCols, end-at.col)
		mark := ex.Mark()
		if part := x.ColSlice(at.col, at.col+at.cols); kernels >= lanes {
			q.lanes(ex, part, at)
		} else {
			q.portable(ex, part, at)
		}
		ex.Release(mark)
	}
}

// wanted says whether this direction is to be filled.
func (t *Tensor) wanted() bool { return t.Codes.Valid() }

// codesAt returns the codes from that place on.
func (t *Tensor) codesAt(at place) []uint8 { return t.Codes.U8()[at.row*t.Cols()+at.col:] }

// scalesAt returns the scales from those of that place on.
func (t *Tensor) scalesAt(at place) []uint8 {
	if t.Blocks == AlongRows {
		return t.Scales.U8()[at.row*t.Scales.Dim(1)+at.col/BlockSize:]
	}
	return t.Scales.U8()[at.block*t.Cols()+at.col:]
}
