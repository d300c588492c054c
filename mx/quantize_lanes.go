package mx

// Quantization by the AVX2 kernels for any format. They process eight FP32 at a time in rows of
// whole blocks.

import (
	"math"

	"spmoe/mx/internal/quant"
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// A laneQuantizer quantizes one panel from an FP32 copy. Zeros pad the rows of the copy to whole
// blocks.
type laneQuantizer struct {
	quantizer
	at      region
	grid    quant.Grid
	perRow  int       // blocks per row
	width   int       // columns of the copy
	values  []float32 // followed by zeros, which complete the last group of blocks
	factors []float32 // one per block
	scales  []uint8
	row     []uint8 // codes of one row
}

// quantizeLanes quantizes x, the given region of q.x.
func (q *quantizer) quantizeLanes(ex *tensor.Exec, x tensor.Matrix, at region) {
	perRow := ceilDiv(at.cols, format.MXBlock)
	width := perRow * format.MXBlock
	copied := ex.New(tensor.FP32, at.rows+quant.Group, width)
	l := laneQuantizer{quantizer: *q, at: at, grid: q.grid(), perRow: perRow, width: width, values: copied.F32(), row: ex.New(tensor.UINT8, width).U8()}
	room := max(wholeGroups(at.rows*perRow), width)
	l.factors, l.scales = ex.New(tensor.FP32, room).F32(), ex.New(tensor.UINT8, room).U8()
	if ex.Dry() {
		return
	}
	if at.cols < width {
		clear(l.values)
	} else {
		clear(l.values[at.rows*width:])
	}
	tensor.Convert(ex, copied.Mat().RowSlice(0, at.rows).ColSlice(0, at.cols), x)
	if q.rows.requested() {
		l.alongRows()
	}
	if q.cols.requested() {
		l.alongCols()
	}
}

func wholeGroups(n int) int { return (n + quant.Group - 1) / quant.Group * quant.Group }

// grid returns the format and scale mode for the kernels.
func (q *quantizer) grid() quant.Grid {
	e := q.element
	g := quant.NewGrid(e.Mantissa(), e.MinExponent(), math.Float32bits(e.Max()), e.SignBit())
	if q.rule.mode == RCEIL {
		return g.Ceil(q.rule.reciprocal)
	}
	return g.Floor(q.rule.roundUp, q.rule.emax)
}

func (l *laneQuantizer) alongRows() {
	codes, stride, n := l.rows.codesAt(l.at), l.rows.Cols(), wholeGroups(l.at.rows*l.perRow)
	quant.AmaxRows(l.factors[:n], l.values)
	odd := quant.Scales(l.scales[:n], l.factors, &l.grid)
	for r := range l.at.rows {
		quant.EncodeRows(l.row, l.values[r*l.width:], l.factors[r*l.perRow:], &l.grid)
		copy(codes[r*stride:][:l.at.cols], l.row)
	}
	copyRows(l.rows.scalesAt(l.at), l.rows.Scales.Dim(1), l.scales, l.perRow, l.at.rows, l.perRow)
	if !odd {
		return
	}
	for b, scale := range l.scales[:l.at.rows*l.perRow] {
		if scale == NaNScale {
			r, c := b/l.perRow, b%l.perRow*format.MXBlock
			fill(codes[r*stride+c:][:min(format.MXBlock, l.at.cols-c)], l.element.NaN())
		}
	}
}

func (l *laneQuantizer) alongCols() {
	codes, stride := l.cols.codesAt(l.at), l.cols.Cols()
	quant.AmaxCols(l.factors[:l.width], l.values, l.at.rows)
	odd := quant.Scales(l.scales[:l.width], l.factors, &l.grid)
	for r := range l.at.rows {
		quant.EncodeCols(l.row, l.values[r*l.width:], l.factors, &l.grid)
		row := codes[r*stride:][:l.at.cols]
		copy(row, l.row)
		if odd {
			for c := range row {
				if l.scales[c] == NaNScale {
					row[c] = l.element.NaN()
				}
			}
		}
	}
	copy(l.cols.scalesAt(l.at)[:l.at.cols], l.scales)
}
