package mx

// Quantization to any format, a panel at a time: some columns of one row of blocks.

import (
	"math"

	"spmoe/mx/internal/quant"
	"spmoe/tensor"
)

// generalOpsPerElement is the cost of one element here, in operations of a matrix product.
const generalOpsPerElement = 128

// quantizeGeneral quantizes to any format, with the scales per group that dst.Amax gives.
func quantizeGeneral(ex *tensor.Exec, dst Tensor, x tensor.Matrix, c Cast, draws Draws) {
	g := quantizeArgs{t: dst, x: x, rule: c.Mode.rule(dst.Format.Element), rounding: c.Rounding, draws: draws, largest: dst.Format.Max()}
	tensor.Parallel(ex, dst.Scales.Dim(0), generalOpsPerElement*x.Rows*x.Cols, g, quantizeBlocks)
}

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
	p := g.newPanel(ex, g.x.Cols)
	if ex.Dry() {
		return
	}
	for at := range g.t.rowsOfBlocks(g.x.Rows, lo, hi) {
		p.quantizeRow(at, 0, g.x.Cols)
	}
}

// findAmax sets Amax to the largest finite magnitude of each group if the format has group scales.
// A NaN or an infinity makes its own block NaN but not the whole group.
func (t Tensor) findAmax(ex *tensor.Exec, x tensor.Matrix) {
	if !t.Amax.Valid() || ex.Dry() {
		return
	}
	for g := range t.groups() {
		lo, hi := t.groupRows(g, x.Rows)
		t.Amax.F32()[g] = largestFinite(ex, x.RowSlice(lo, hi))
	}
}

// largestFinite returns the largest finite magnitude of a matrix.
func largestFinite(ex *tensor.Exec, x tensor.Matrix) float32 {
	if kernels == quant.Tiles && x.DType() == tensor.BF16 {
		if most := amaxBF16(x); uint32(most)<<16 < infinity {
			return math.Float32frombits(uint32(most) << 16)
		}
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	row, most := ex.New(tensor.FP32, 1, x.Cols), uint32(0)
	for r := range x.Rows {
		tensor.Convert(ex, row.Mat(), x.RowSlice(r, r+1))
		for _, v := range row.F32() {
			if m := magnitudeBits(v); m < infinity {
				most = max(most, m)
			}
		}
	}
	return math.Float32frombits(most)
}
