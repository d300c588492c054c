package mx

// Quantisation. The matrix is worked off in panels of up to 32 rows, which hold whole blocks in both directions, so that
// one reading of the input serves both.

import (
	"fmt"

	"spmoe/tensor"
)

// Quantize fills dst with the codes and scales of x, in the format, direction and groups of dst.
//
// x: FP32 or BF16, columns contiguous, of dst's shape. The elements of a block are divided by its scale and rounded to the
// nearest code, ties to even, saturating (Format.Encode). A block with a NaN or an infinity gets NaNScale and NaN codes.
func Quantize(ex *tensor.Exec, dst Tensor, x tensor.Matrix, mode ScaleMode) {
	dst.check(dst.Blocks, x.Rows, x.Cols)
	q := quantizer{format: dst.Format, rule: mode.rule(dst.Format)}
	if dst.Blocks == AlongRows {
		q.rows = dst
	} else {
		q.cols = dst
	}
	q.run(ex, x)
}

// QuantizeBoth is Quantize in both directions in one pass: rows has blocks AlongRows, cols AlongCols (and perhaps groups),
// both the same format.
func QuantizeBoth(ex *tensor.Exec, rows, cols Tensor, x tensor.Matrix, mode ScaleMode) {
	rows.check(AlongRows, x.Rows, x.Cols)
	cols.check(AlongCols, x.Rows, x.Cols)
	if rows.Format != cols.Format {
		panic(fmt.Sprintf("mx: one pass quantises to one format, not to %v and %v", rows.Format, cols.Format))
	}
	q := quantizer{format: rows.Format, rule: mode.rule(rows.Format), rows: rows, cols: cols}
	q.run(ex, x)
}

// A quantizer is one pass over a matrix. A direction that is not wanted is the zero Tensor.
type quantizer struct {
	format     Format
	rule       rule
	rows, cols Tensor
	// inPlace says that x is so small that a cache holds it: then it is read where it is. From memory, its rows are
	// better copied one by one, as the prefetcher likes it, than read in tiles.
	inPlace bool
}

// A place is where a panel lies: its first row and column, its extents, and the block row of an AlongCols matrix that it
// fills.
type place struct{ row, col, rows, cols, block int }

// inPlaceBytes bounds what is read in place: about a second-level cache.
const inPlaceBytes = 1 << 20

// panelCols bounds the columns of a panel: its input and its output stay in the second-level cache together.
const panelCols = 2048

func (q *quantizer) run(ex *tensor.Exec, x tensor.Matrix) {
	q.inPlace = x.Rows*x.Cols*x.DType().Size() <= inPlaceBytes
	if q.cols.Ends == nil {
		q.group(ex, x, 0, x.Rows, 0)
		return
	}
	block := 0
	for g := range q.cols.Ends {
		lo, hi := group(q.cols.Ends, g)
		block = q.group(ex, x, lo, hi, block)
	}
}

// group works off rows [lo, hi), whose column blocks begin at block row block, and returns the next block row.
func (q *quantizer) group(ex *tensor.Exec, x tensor.Matrix, lo, hi, block int) int {
	for ; lo < hi; lo, block = lo+BlockSize, block+1 {
		rows := min(BlockSize, hi-lo)
		for col := 0; col < x.Cols; col += panelCols {
			cols := min(panelCols, x.Cols-col)
			mark := ex.Mark()
			q.panel(ex, x.RowSlice(lo, lo+rows).ColSlice(col, col+cols), place{lo, col, rows, cols, block})
			ex.Release(mark)
		}
	}
	return block
}

// panel quantises x, which lies at that place.
func (q *quantizer) panel(ex *tensor.Exec, x tensor.Matrix, at place) {
	if q.tiles(ex, x, at) {
		return
	}
	values := ex.New(tensor.FP32, at.rows, at.cols)
	tensor.Convert(ex, values.Mat(), x)
	q.portable(values.F32(), at)
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
