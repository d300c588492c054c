package moe

import (
	"fmt"

	"spmoe/mx"
	"spmoe/tensor"
)

// Products are the three products of one linear layer outside a model: y = x·wᵀ, dx = dy·w and
// dw = dyᵀ·x. They are those of a layer in a model without peers, with all rows as one sequence.
//
// The matrices are all BF16 or all FP32. DW is FP32. The zero Matrix or Tensor stands for a result
// that is not wanted.
type Products struct {
	X  tensor.Tensor // [rows, K]
	W  tensor.Tensor // [N, K], or [groups, N, K]
	DY tensor.Tensor // [rows, N]
	// Ends divides the rows into the groups of experts, as in tensor.GroupedMatMul. Nil stands for
	// a layer without experts.
	Ends []int32

	Y, DX tensor.Matrix // [rows, N], [rows, K]
	DW    tensor.Tensor // of the shape of W

	Seed, Step uint32 // of stochastic rounding
}

// Compute computes the results that are not zero, in a precision. The recipe is that of experts if
// there are groups, and that of linear layers otherwise. sum adds all products.
func (l *Products) Compute(ex *tensor.Exec, p Precision, sum mx.Sum) error {
	class := Linear
	if l.Ends != nil {
		class = Expert
	}
	layer := linear{weight: weight{W: l.W, Grad: l.DW}, sum: sum}
	if how := p.Of(class); how != nil {
		recipe := *how
		recipe.Sum = sum
		if err := recipe.validate(); err != nil {
			return fmt.Errorf("precision %s: %w", p.Name, err)
		}
		layer.mx = &mxLinear{Recipe: recipe}
		layer.mx.allocate(&ex.Arena, l.W)
		layer.mx.refresh(ex, l.W)
	}
	backward := l.DX.Rows > 0 || l.DW.Valid()
	pass := &passState{train: backward, batch: Batch{Seq: max(l.X.Dim(0), 1), Seed: l.Seed, Step: l.Step}}
	f := pass.fusedPhase(ex)
	x := &activation{Tensor: l.X, rowGroups: rowGroups{ends: l.Ends}}
	layer.mx.quantizeInput(f, x)
	switch {
	case l.Y.Rows == 0:
	case layer.mx.quantizesForward():
		layer.mx.forward(ex, l.Y, x)
	default:
		layer.multiply(ex, l.Y, x)
	}
	if !backward {
		return nil
	}
	dy := &activation{Tensor: l.DY, rowGroups: x.rowGroups}
	layer.mx.quantizeGradient(f, dy)
	if l.DW.Valid() {
		layer.passes = newSumTree(l.DW)
		layer.wgrad(f, dy, x, pass.batch.Seq)
	}
	if l.DX.Rows > 0 {
		layer.backwardInput(ex, l.DX, dy)
	}
	return nil
}
