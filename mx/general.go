package mx

// Quantization to any format in plain Go, one row of blocks at a time.

import (
	"math"

	"spmoe/tensor"
	"spmoe/tensor/format"
)

// generalOpsPerElement is the cost of one element here, in operations of a matrix product.
const generalOpsPerElement = 256

// quantizeGeneral quantizes to any format, with the scales per group that dst.Amax gives.
func quantizeGeneral(ex *tensor.Exec, dst Tensor, x tensor.Matrix, c Cast, draws Draws) {
	g := quantizeArgs{t: dst, x: x, rule: c.Mode.rule(dst.Format.Element), rounding: c.Rounding, draws: draws, largest: dst.Format.Max()}
	tensor.Parallel(ex, dst.Scales.Dim(0), generalOpsPerElement*x.Rows*x.Cols, g, quantizeBlocks)
}

// findAmax sets Amax to the largest finite magnitude of each group if the format has group scales.
// A NaN or an infinity makes its own block NaN but not the whole group.
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

// quantizeArgs holds the arguments of quantizeBlocks.
type quantizeArgs struct {
	t    Tensor
	x    tensor.Matrix
	rule rule

	rounding Rounding
	draws    Draws

	largest float32 // largest number of the format
}

// quantizeBlocks quantizes rows [lo, hi) of blocks.
func quantizeBlocks(ex *tensor.Exec, g quantizeArgs, lo, hi int) {
	cols := g.x.Cols
	height, width := g.t.BlockShape()
	rows := ex.New(tensor.FP32, height, cols)
	amax, factors := ex.New(tensor.INT32, ceilDiv(cols, width)).I32(), ex.New(tensor.FP32, cols).F32()
	codes, draws := ex.New(tensor.UINT8, cols).U8(), ex.New(tensor.INT32, cols).I32()
	for at := range g.t.rowsOfBlocks(g.x.Rows, lo, hi) {
		panel := rows.Slice(0, at.last-at.first)
		tensor.Convert(ex, panel.Mat(), g.x.RowSlice(at.first, at.last))
		clear(amax)
		for r := range panel.Dim(0) {
			updateAmax(amax, panel.Index(r).F32(), width)
		}
		g.setScales(ex, factors, amax, panel, at)
		for r := range panel.Dim(0) {
			g.encodeRow(codes, panel.Index(r).F32(), factors, draws, at.first+r)
			fillNonFinite(codes, amax, width, g.t.Format.NaN())
			g.t.setCodes(at.first+r, codes)
		}
	}
}

// encodeRow sets codes to those of a row, which it overwrites. draws is scratch memory.
func (g *quantizeArgs) encodeRow(codes []uint8, row, factors []float32, draws []int32, index int) {
	for c, factor := range factors {
		row[c] *= factor
	}
	if g.rounding == Nearest {
		g.t.Format.EncodeScaled(codes, row, 1)
		return
	}
	g.draws.fill(draws, index)
	g.t.Format.EncodeStochastic(codes, row, draws)
}

// updateAmax updates amax with one row. amax holds the bits of the largest magnitude of each block.
// The bits of magnitudes sort like the magnitudes, and those of NaNs above all others.
func updateAmax(amax []int32, row []float32, width int) {
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

// setScales chooses the scales of a row of blocks. It sets factors to the multiplier of the
// elements in each column.
func (g *quantizeArgs) setScales(ex *tensor.Exec, factors []float32, amax []int32, panel tensor.Tensor, at blockRow) {
	mark := ex.Mark()
	defer ex.Release(mark)
	_, width := g.t.BlockShape()
	encode := g.t.encodeScale(at.group)
	var chooser scaleChooser
	if g.t.Format.FourOverSix {
		chooser = g.newScaleChooser(ex, panel, at.group)
	}
	for b, bits := range amax {
		s, factor := g.scale(math.Float32frombits(uint32(bits)), encode)
		if g.t.Format.FourOverSix && bits < infinity {
			s.code, factor = chooser.choose(b, math.Float32frombits(uint32(bits)))
		}
		g.t.setScale(at.block, b, s)
		for c := b * width; c < min((b+1)*width, len(factors)); c++ {
			factors[c] = factor
		}
	}
}

// fillNonFinite sets the codes of the blocks in a row that hold a NaN or an infinity.
func fillNonFinite(codes []uint8, amax []int32, width int, with uint8) {
	for b, bits := range amax {
		if bits >= infinity {
			fill(codes[b*width:min((b+1)*width, len(codes))], with)
		}
	}
}

// leastAmax is the smallest block maximum for an FP32 scale. Smaller maxima are raised to it, as in
// DeepSeek's kernels (TileKernels).
const leastAmax = 1e-4

// scale returns the scale of a block whose largest magnitude is amax. factor multiplies the
// elements of the block. The scale is NaN if amax is NaN or infinite. An E4M3 scale is multiplied
// by encode before it is rounded.
//
// The formulas are those of the reference implementations, in FP32. For E4M3 that is NVFP4 in
// Transformer Engine. For FP32 it is DeepSeek's TileKernels.
func (g *quantizeArgs) scale(amax, encode float32) (s storedScale, factor float32) {
	switch g.t.Format.Scale {
	case ScaleE4M3:
		if amax-amax != 0 {
			return storedScale{code: format.E4M3.NaN()}, 0
		}
		s.code = format.E4M3.Encode(min(amax*(encode*(1/g.largest)), largestE4M3))
		return s, elementFactor(s.code, encode)
	case ScaleFP32, ScalePow2:
		return g.wideScale(amax)
	default:
		s.code = g.rule.scale(math.Float32bits(amax))
		factor = math.Float32frombits(powerOfTwo(max(254-int(s.code), 0)))
		if g.t.Format.Shrink {
			factor *= 0.75
		}
		return s, factor
	}
}

// wideScale is scale for FP32 scales.
func (g *quantizeArgs) wideScale(amax float32) (s storedScale, factor float32) {
	if amax-amax != 0 {
		return storedScale{value: float32(math.NaN())}, 0
	}
	amax = max(amax, leastAmax)
	s.value, factor = amax/g.largest, g.largest/amax
	if g.t.Format.Scale == ScalePow2 {
		s.value = math.Float32frombits((math.Float32bits(s.value) + fraction) &^ fraction)
		factor = 1 / s.value
	}
	return s, factor
}

// largestE4M3 is the largest E4M3 scale.
var largestE4M3 = format.E4M3.Max()

// elementFactor returns the multiplier of the elements of a block with an E4M3 scale.
func elementFactor(code uint8, encode float32) float32 {
	return min(1/(format.E4M3.Values()[code]*(1/encode)), math.MaxFloat32)
}

// hasGroupScale says whether GroupScale may differ from 1.
func (t Tensor) hasGroupScale() bool { return t.Amax.Valid() || t.Format.Shrink }

// encodeScale returns the multiplier of a group's block scales before they are rounded. It is 1 if
// the format has no group scales.
func (t Tensor) encodeScale(group int) float32 {
	if !t.Amax.Valid() {
		return 1
	}
	amax := t.Amax.F32()[group]
	encode := min(t.Format.largestScale()*t.Format.Max()/amax, math.MaxFloat32)
	if amax == 0 || encode == 0 {
		return 1
	}
	return encode
}
