package mx

// Quantization to any format in plain Go, a row of blocks at a time.

import (
	"math"

	"spmoe/tensor"
	"spmoe/tensor/format"
)

// generalWork is what an element costs here, in operations of a matrix product.
const generalWork = 256

// quantizeGeneral is Quantize for a format that may be any.
func quantizeGeneral(ex *tensor.Exec, dst Tensor, x tensor.Matrix, mode ScaleMode) {
	dst.findAmax(ex, x)
	tensor.Parallel(ex, dst.Scales.Dim(0), generalWork*x.Rows*x.Cols, general{t: dst, x: x, rule: mode.rule(dst.Format.Element), largest: dst.Format.Max()}, quantizeBlocks)
}

// findAmax sets Amax, if the format has it, to the largest finite magnitude of each group. Others
// become NaN in their own block, and not in all.
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

func magnitude(v float32) float32 { return float32(math.Abs(float64(v))) }

// general is the arguments of quantizeBlocks.
type general struct {
	t    Tensor
	x    tensor.Matrix
	rule rule

	largest float32 // number of the format
}

// quantizeBlocks quantizes rows [lo, hi) of blocks.
func quantizeBlocks(ex *tensor.Exec, g general, lo, hi int) {
	cols := g.x.Cols
	height, width := g.t.Extents()
	rows := ex.New(tensor.FP32, height, cols)
	amax, factors := ex.New(tensor.INT32, ceilDiv(cols, width)).I32(), ex.New(tensor.FP32, cols).F32()
	codes := ex.New(tensor.UINT8, cols).U8()
	for at := range g.t.rowsOfBlocks(g.x.Rows, lo, hi) {
		panel := rows.Slice(0, at.last-at.first)
		tensor.Convert(ex, panel.Mat(), g.x.RowSlice(at.first, at.last))
		clear(amax)
		for r := range panel.Dim(0) {
			raise(amax, panel.Index(r).F32(), width)
		}
		g.setScales(factors, amax, at)
		for r := range panel.Dim(0) {
			row := panel.Index(r).F32()
			for c, factor := range factors {
				row[c] *= factor
			}
			g.t.Format.EncodeScaled(codes, row, 1)
			fillOdd(codes, amax, width, g.t.Format.NaN())
			g.t.setCodes(at.first+r, codes)
		}
	}
}

// raise lifts amax, the bits of magnitudes, to those of the blocks in a row. Bits of magnitudes are
// ordered as these are, those of NaNs above all.
func raise(amax []int32, row []float32, width int) {
	if width == 1 {
		for c, v := range row {
			amax[c] = max(amax[c], int32(math.Float32bits(v)&^(1<<31)))
		}
		return
	}
	for b := range amax {
		most := amax[b]
		for _, v := range row[b*width : min((b+1)*width, len(row))] {
			most = max(most, int32(math.Float32bits(v)&^(1<<31)))
		}
		amax[b] = most
	}
}

// setScales chooses the scales of a row of blocks, and sets factors to what the elements of each
// column are to be multiplied by.
func (g *general) setScales(factors []float32, amax []int32, at blockRow) {
	_, width := g.t.Extents()
	encode := g.t.encodeScale(at.group)
	for b, bits := range amax {
		s, factor := g.scale(math.Float32frombits(uint32(bits)), encode)
		g.t.setScale(at.block, b, s)
		for c := b * width; c < min((b+1)*width, len(factors)); c++ {
			factors[c] = factor
		}
	}
}

// fillOdd sets the codes of blocks in a row that have a NaN or an infinity.
func fillOdd(codes []uint8, amax []int32, width int, with uint8) {
	for b, bits := range amax {
		if bits >= infinity {
			fill(codes[b*width:min((b+1)*width, len(codes))], with)
		}
	}
}

// leastAmax is the least magnitude that an FP32 scale is made for, as in DeepSeek's kernels
// (TileKernels).
const leastAmax = 1e-4

// scale returns the scale for a block whose largest magnitude is amax, and what its elements are to
// be multiplied by. A scale is NaN if amax is no number. E4M3 scales are multiplied by encode
// before they are rounded.
//
// The formulas are those of the references, in FP32: for E4M3 Transformer Engine's NVFP4, for FP32
// DeepSeek's TileKernels.
func (g *general) scale(amax, encode float32) (s storedScale, factor float32) {
	odd := amax-amax != 0
	switch g.t.Format.Scale {
	case ScaleE4M3:
		if odd {
			return storedScale{code: format.E4M3.NaN()}, 0
		}
		s.code = format.E4M3.Encode(min(amax*(encode*(1/g.largest)), largestE4M3))
		return s, min(1/(format.E4M3.Values()[s.code]*(1/encode)), math.MaxFloat32)
	case ScaleFP32:
		if odd {
			return storedScale{value: float32(math.NaN())}, 0
		}
		amax = max(amax, leastAmax)
		return storedScale{value: amax / g.largest}, g.largest / amax
	default:
		s.code = g.rule.scale(math.Float32bits(amax))
		return s, math.Float32frombits(powerOfTwo(max(254-int(s.code), 0)))
	}
}

// largestE4M3 is the largest scale.
var largestE4M3 = format.E4M3.Max()

// encodeScale returns what scales of blocks of a group are multiplied by before they are rounded: 1
// without a scale of the group.
func (t Tensor) encodeScale(group int) float32 {
	if !t.Amax.Valid() {
		return 1
	}
	amax := t.Amax.F32()[group]
	encode := min(largestE4M3*t.Format.Max()/amax, math.MaxFloat32)
	if amax == 0 || encode == 0 {
		return 1
	}
	return encode
}
