package mx

// Products in FP8 with FP32 scales, as in DeepSeek-V3: BF16 holds the codes, and the FP32 sum over
// each block is scaled and added.

import (
	"spmoe/tensor"
	"spmoe/tensor/format"
)

// promoted multiplies formats whose elements are exact in BF16 and whose blocks have FP32 scales.
// Both operands must have blocks of the same length.
type promoted struct{}

// promotes says whether promoted takes the format. Blocks of whole tiles of AMX are required.
func (f Format) promotes() bool {
	return f.Scale.dtype() == tensor.FP32 && f.Block[1]%format.MXBlock == 0 && !f.IsInteger() && !f.hasGain()
}

// hasGain says whether group scales or a constant multiply the elements.
func (f Format) hasGain() bool { return f.TensorScale || f.Shrink }

// continues is false: the scaled sums of runs are complete before they are added to the result.
func (promoted) continues(_, _ Format) bool { return false }

func (promoted) decode(ex *tensor.Exec, a, b Tensor) (x, y tensor.Matrix) {
	return elementsOf(ex, a), elementsOf(ex, b)
}

func (promoted) multiply(p product, c tensor.Matrix, a, b part) {
	tensor.MatMulPromoted(p.ex, c, a.Matrix, b.T(), blockScalesOf(a, b))
}

func (promoted) gradient(p product, c tensor.Matrix, a, b part, span int, accumulate bool) {
	if span == 0 {
		span = max(a.Cols, 1)
	}
	tensor.WgradPromoted(p.ex, c, a.T(), b.T(), blockScalesOf(a, b), span, accumulate)
}

func blockScalesOf(a, b part) tensor.BlockScales {
	return tensor.BlockScales{Run: a.t.Format.Block[1], A: a.scaleView(), B: b.scaleView()}
}

// elementsOf returns the elements of t without their scales. It is NaN in blocks with a NaN scale,
// because their codes are.
func elementsOf(ex *tensor.Exec, t Tensor) tensor.Matrix {
	c := ex.New(tensor.BF16, t.Rows(), t.Cols()).Mat()
	dequantizeGeneral(ex, c, t, noScales)
	return c
}
