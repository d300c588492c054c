package mx

// Any format in plain Go, block by block: what formats without kernels are quantised and decoded by.

import (
	"fmt"
	"math"

	"spmoe/tensor"
	"spmoe/tensor/format"
)

// generalWork is what an element costs here, in operations of a matrix product.
const generalWork = 256

// quantizeGeneral is Quantize for a format that may be any.
func quantizeGeneral(ex *tensor.Exec, dst Tensor, x tensor.Matrix, mode ScaleMode) {
	dst.findAmax(ex, x)
	tensor.Parallel(ex, dst.Scales.Dim(0), generalWork*x.Rows*x.Cols, general{t: dst, x: x, rule: mode.rule(dst.Format.Element)}, quantizeBlocks)
}

// findAmax sets Amax, if the format has it, to the largest finite magnitude of each group. Others become NaN in their own
// block, and not in all.
func (t Tensor) findAmax(ex *tensor.Exec, x tensor.Matrix) {
	if !t.Amax.Valid() {
		return
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	row := ex.New(tensor.FP32, 1, x.Cols)
	for g := range t.groups() {
		lo, hi := t.groupRows(g, x.Rows)
		amax := float32(0)
		for r := lo; r < hi; r++ {
			tensor.Convert(ex, row.Mat(), x.RowSlice(r, r+1))
			for _, v := range row.F32() {
				if m := magnitude(v); m > amax && m <= math.MaxFloat32 {
					amax = m
				}
			}
		}
		t.Amax.F32()[g] = amax
	}
}

// groupRows returns the rows of group g of a matrix of that many rows.
func (t Tensor) groupRows(g, rows int) (lo, hi int) {
	if t.Ends == nil {
		return 0, rows
	}
	return group(t.Ends, g)
}

func magnitude(v float32) float32 { return float32(math.Abs(float64(v))) }

// general is the arguments of quantizeBlocks.
type general struct {
	t    Tensor
	x    tensor.Matrix
	rule rule
}

// quantizeBlocks quantises rows [lo, hi) of blocks.
func quantizeBlocks(ex *tensor.Exec, g general, lo, hi int) {
	height, width := g.t.Extents()
	codes := ex.New(tensor.UINT8, height*width).U8()
	values := ex.New(tensor.FP32, height*width).F32()
	rows := ex.New(tensor.FP32, height, g.x.Cols)
	for at := range g.t.rowsOfBlocks(g.x.Rows, lo, hi) {
		tensor.Convert(ex, rows.Slice(0, at.last-at.first).Mat(), g.x.RowSlice(at.first, at.last))
		for col := 0; col < g.x.Cols; col += width {
			end := min(col+width, g.x.Cols)
			n := gather(values, rows.F32(), g.x.Cols, at.last-at.first, col, end)
			g.t.setScale(at.block, col/width, g.block(codes[:n], values[:n], at.group))
			for i, code := range codes[:n] {
				g.t.setCode(at.first+i/(end-col), col+i%(end-col), code)
			}
		}
	}
}

// blockRow is rows [first, last) of a group, which hold a row of blocks.
type blockRow struct{ block, group, first, last int }

// rowsOfBlocks yields rows [lo, hi) of blocks of a matrix of that many rows.
func (t Tensor) rowsOfBlocks(rows, lo, hi int) func(yield func(blockRow) bool) {
	height, _ := t.Extents()
	return func(yield func(blockRow) bool) {
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
}

// gather copies columns [col, end) of some rows to values, row by row, and returns their number.
func gather(values, rows []float32, stride, height, col, end int) (n int) {
	for r := range height {
		n += copy(values[n:], rows[r*stride+col:r*stride+end])
	}
	return n
}

// block sets the codes of a block of a group and returns its scale.
func (g *general) block(codes []uint8, values []float32, group int) storedScale {
	amax := float32(0)
	for _, v := range values {
		if v != v {
			amax = v
			break
		}
		amax = max(amax, magnitude(v))
	}
	s, factor := g.scale(amax, group)
	if amax > math.MaxFloat32 || amax != amax {
		fill(codes, g.t.Format.NaN())
		return s
	}
	g.t.Format.EncodeScaled(codes, values, factor)
	return s
}

// storedScale is a scale as memory holds it: a byte, or FP32.
type storedScale struct {
	code  uint8
	value float32
}

// leastAmax is the least magnitude that an FP32 scale is made for, as in DeepSeek's kernels (TileKernels).
const leastAmax = 1e-4

// scale returns the scale for a block whose largest magnitude is amax, and what its elements are to be multiplied by. A
// scale is NaN if amax is no number.
//
// The formulas are those of the references, in FP32: for E4M3 Transformer Engine's NVFP4, for FP32 DeepSeek's TileKernels.
func (g *general) scale(amax float32, group int) (s storedScale, factor float32) {
	odd, largest := amax-amax != 0, g.t.Format.Max()
	switch g.t.Format.Scale {
	case ScaleE4M3:
		if odd {
			return storedScale{code: format.E4M3.NaN()}, 0
		}
		encode := g.t.encodeScale(group)
		s.code = format.E4M3.Encode(min(amax*(encode*(1/largest)), format.E4M3.Max()))
		return s, min(1/(format.E4M3.Decode(s.code)*(1/encode)), math.MaxFloat32)
	case ScaleFP32:
		if odd {
			return storedScale{value: float32(math.NaN())}, 0
		}
		amax = max(amax, leastAmax)
		return storedScale{value: amax / largest}, largest / amax
	default:
		s.code = g.rule.scale(math.Float32bits(amax) &^ (1 << 31))
		return s, math.Float32frombits(powerOfTwo(max(254-int(s.code), 0)))
	}
}

// encodeScale returns what scales of blocks of a group were multiplied by before they were rounded: 1 without a scale of
// the group.
func (t Tensor) encodeScale(group int) float32 {
	if !t.Amax.Valid() {
		return 1
	}
	amax := t.Amax.F32()[group]
	encode := min(format.E4M3.Max()*t.Format.Max()/amax, math.MaxFloat32)
	if amax == 0 || encode == 0 {
		return 1
	}
	return encode
}

// GroupScale returns the scale of group g: what all its elements are to be multiplied by. It is 1 for formats without.
func (t Tensor) GroupScale(g int) float32 {
	if !t.Amax.Valid() || t.Amax.F32()[g] == 0 {
		return 1
	}
	return t.Amax.F32()[g] / (format.E4M3.Max() * t.Format.Max())
}

func (t Tensor) setScale(row, col int, s storedScale) {
	at := row*t.Scales.Dim(1) + col
	if t.Format.Scale == ScaleFP32 {
		t.Scales.F32()[at] = s.value
	} else {
		t.Scales.U8()[at] = s.code
	}
}

// Scale returns the scale of the block in that row and column of blocks.
func (t Tensor) Scale(row, col int) float32 {
	switch at := row*t.Scales.Dim(1) + col; t.Format.Scale {
	case ScaleE4M3:
		return format.E4M3.Decode(t.Scales.U8()[at])
	case ScaleFP32:
		return t.Scales.F32()[at]
	default:
		return DecodeScale(t.Scales.U8()[at])
	}
}

func (t Tensor) setCode(row, col int, code uint8) {
	if !t.Format.Packed {
		t.Codes.U8()[row*t.Codes.Dim(1)+col] = code
		return
	}
	at := &t.Codes.U8()[row*t.Codes.Dim(1)+col/2]
	if col%2 == 0 {
		*at = *at&0xf0 | code
	} else {
		*at = *at&0x0f | code<<4
	}
}

// Code returns the code of an element.
func (t Tensor) Code(row, col int) uint8 {
	if !t.Format.Packed {
		return t.Codes.U8()[row*t.Codes.Dim(1)+col]
	}
	return t.Codes.U8()[row*t.Codes.Dim(1)+col/2] >> (col % 2 * 4) & 0x0f
}

// RowCodes returns the codes of a row, one a byte: those in memory, or a copy in scratch, a row long, if they are packed.
func (t Tensor) RowCodes(row int, scratch []uint8) []uint8 {
	if !t.Format.Packed {
		return t.Codes.Index(row).U8()
	}
	for c := range scratch {
		scratch[c] = t.Code(row, c)
	}
	return scratch
}

// BlockRow returns in which row of blocks a row lies, and in which group.
func (t Tensor) BlockRow(row int) (block, group int) {
	height, _ := t.Extents()
	for g := range t.groups() {
		lo, hi := t.groupRows(g, t.Rows())
		if row < hi {
			return block + (row-lo)/height, g
		}
		block += ceilDiv(hi-lo, height)
	}
	panic(fmt.Sprintf("mx: row %d of %d", row, t.Rows()))
}

// dequantizeGeneral is Dequantize for a format that may be any, with or without the scales of groups.
func dequantizeGeneral(ex *tensor.Exec, dst tensor.Matrix, t Tensor, groupScales bool) {
	tensor.Parallel(ex, t.Scales.Dim(0), generalWork*dst.Rows*dst.Cols, decoding{dst, t, groupScales}, decodeBlocks)
}

// decoding is the arguments of decodeBlocks.
type decoding struct {
	dst         tensor.Matrix
	t           Tensor
	groupScales bool
}

// decodeBlocks decodes rows [lo, hi) of blocks. Products with scales are rounded to FP32.
func decodeBlocks(ex *tensor.Exec, d decoding, lo, hi int) {
	_, width := d.t.Extents()
	values, row := d.t.Format.Values(), ex.New(tensor.FP32, 1, d.dst.Cols)
	scales := ex.New(tensor.FP32, d.t.Scales.Dim(1)).F32()
	for at := range d.t.rowsOfBlocks(d.dst.Rows, lo, hi) {
		for i := range scales {
			scales[i] = d.t.Scale(at.block, i)
		}
		scale := float32(1)
		if d.groupScales {
			scale = d.t.GroupScale(at.group)
		}
		for r := at.first; r < at.last; r++ {
			for c := range row.F32() {
				row.F32()[c] = values[d.t.Code(r, c)] * scales[c/width] * scale
			}
			tensor.Convert(ex, d.dst.RowSlice(r, r+1), row.Mat())
		}
	}
}
