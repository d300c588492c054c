package mx

// Access to the codes and scales of a quantized matrix in any format.

import (
	"fmt"

	"spmoe/tensor"
	"spmoe/tensor/format"
)

// groupRows returns the rows of group g of a matrix of the given number of rows.
func (t Tensor) groupRows(g, rows int) (lo, hi int) {
	if t.Ends == nil {
		return 0, rows
	}
	return group(t.Ends, g)
}

// blockRow is one row of blocks: rows [first, last) of a group.
type blockRow struct{ block, group, first, last int }

// rowsOfBlocks yields rows [lo, hi) of blocks of a matrix of the given number of rows.
// It is small enough to be inlined, so that a loop over it needs no memory of the Go heap.
func (t *Tensor) rowsOfBlocks(rows, lo, hi int) func(yield func(blockRow) bool) {
	return func(yield func(blockRow) bool) { t.yieldRowsOfBlocks(rows, lo, hi, yield) }
}

func (t *Tensor) yieldRowsOfBlocks(rows, lo, hi int, yield func(blockRow) bool) {
	height, _ := t.BlockShape()
	block := 0
	for g := range t.groups() {
		first, last := t.groupRows(g, rows)
		for ; first < last; first, block = first+height, block+1 {
			if block >= lo && block < hi && !yield(blockRow{block, g, first, min(first+height, last)}) {
				return
			}
		}
	}
}

// storedScale is a scale as stored in memory: a byte or FP32.
type storedScale struct {
	code  uint8
	value float32
}

// GroupScale returns the scale that multiplies all elements of group g. It is 1 for formats without
// group scales, and 4/3 for those with Shrink.
func (t Tensor) GroupScale(g int) float32 {
	scale := float32(1)
	switch {
	case t.Format.Scale == ScaleNone:
		scale = 1 / t.encodeScale(g)
	case t.Amax.Valid() && t.Amax.F32()[g] != 0:
		scale = t.Amax.F32()[g] / (largestE4M3 * t.Format.Max())
	}
	if t.Format.Shrink {
		scale *= 4.0 / 3
	}
	return scale
}

func (t Tensor) setScale(row, col int, s storedScale) {
	switch at := row*t.Scales.Dim(1) + col; t.Format.Scale {
	case ScaleNone:
	case ScaleFP32, ScalePow2:
		t.Scales.F32()[at] = s.value
	default:
		t.Scales.U8()[at] = s.code
	}
}

// Scale returns the scale of the block in the given row and column of blocks. It is 1 with
// ScaleNone.
func (t Tensor) Scale(row, col int) float32 {
	switch at := row*t.Scales.Dim(1) + col; t.Format.Scale {
	case ScaleNone:
		return 1
	case ScaleE4M3:
		return format.E4M3.Values()[t.Scales.U8()[at]]
	case ScaleFP32, ScalePow2:
		return t.Scales.F32()[at]
	default:
		return DecodeScale(t.Scales.U8()[at])
	}
}

// rowFrom returns row r of a matrix of bytes, from a byte on.
func rowFrom(t tensor.Tensor, r, at int) []uint8 {
	width := t.Dim(1)
	return t.U8()[r*width+at : (r+1)*width]
}

// setCodes sets the codes of a row from a column on. Packed rows begin with an even column.
func (t Tensor) setCodes(row, col int, codes []uint8) {
	per := t.Format.perByte()
	to := rowFrom(t.Codes, row, col/per)[:len(codes)/per]
	if !t.Format.Packed {
		copy(to, codes)
		return
	}
	for i := range to {
		to[i] = codes[2*i] | codes[2*i+1]<<4
	}
}

// Code returns the code of an element.
func (t Tensor) Code(row, col int) uint8 {
	if !t.Format.Packed {
		return t.Codes.U8()[row*t.Codes.Dim(1)+col]
	}
	return t.Codes.U8()[row*t.Codes.Dim(1)+col/2] >> (col % 2 * 4) & 0x0f
}

// RowCodes returns the codes of a row, one per byte. Packed codes are unpacked into scratch, which
// has one byte per column. Otherwise the result is the stored row.
func (t Tensor) RowCodes(row int, scratch []uint8) []uint8 {
	codes := rowFrom(t.Codes, row, 0)
	if !t.Format.Packed {
		return codes
	}
	for i, pair := range codes {
		scratch[2*i], scratch[2*i+1] = pair&0x0f, pair>>4
	}
	return scratch
}

// BlockRow returns the row of blocks that holds a row, and the group of that row.
func (t Tensor) BlockRow(row int) (block, group int) {
	height, _ := t.BlockShape()
	for g := range t.groups() {
		lo, hi := t.groupRows(g, t.Rows())
		if row < hi {
			return block + (row-lo)/height, g
		}
		block += ceilDiv(hi-lo, height)
	}
	panic(fmt.Sprintf("mx: row %d of %d", row, t.Rows()))
}
