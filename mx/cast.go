package mx

import (
	"fmt"

	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// Cast says how to quantize an operand: the format, the rule that chooses its scales, and the
// rounding. Casts can be compared with ==. The zero Cast leaves an operand unchanged.
type Cast struct {
	Format   Format
	Mode     ScaleMode // for E8M0 scales; the other types have one rule
	Rounding Rounding
}

// Quantizes says whether the cast does anything.
func (c Cast) Quantizes() bool { return c.Format.Quantizes() }

// Quantize fills dst, whose format is the cast's, with the codes and scales of x. It is [Quantize]
// with the rounding of the cast. draws names the random numbers for stochastic rounding.
func (c Cast) Quantize(ex *tensor.Exec, dst Tensor, x tensor.Matrix, draws Draws) {
	c.quantize(ex, dst, x, draws, true)
}

// Encode is Quantize with the largest magnitudes in dst.Amax as they are. A caller sets them to
// those of a matrix that contains x. See [FindAmax].
func (c Cast) Encode(ex *tensor.Exec, dst Tensor, x tensor.Matrix, draws Draws) {
	c.quantize(ex, dst, x, draws, false)
}

// FindAmax sets dst.Amax to the largest finite magnitude of each group of x, after the Hadamard
// transform if the format has one. It does nothing for formats without a tensor scale.
func FindAmax(ex *tensor.Exec, dst Tensor, x tensor.Matrix) {
	defer ex.ProfilingRows(profile.Quantize, x.Rows, x.Cols).End()
	dst.check(dst.Blocks, x.Rows, x.Cols)
	if !dst.Amax.Valid() {
		return
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	dst.findAmax(ex, transformed(ex, dst, x))
}

func (c Cast) quantize(ex *tensor.Exec, dst Tensor, x tensor.Matrix, draws Draws, findAmax bool) {
	defer ex.ProfilingRows(profile.Quantize, x.Rows, x.Cols).End()
	dst.check(dst.Blocks, x.Rows, x.Cols)
	if c.Format != dst.Format {
		panic(fmt.Sprintf("mx: a cast to %v cannot fill a matrix of %v", c.Format, dst.Format))
	}
	if c.Rounding == Nearest && dst.Format.isMX() {
		quantizeMX(ex, dst, x, c.Mode)
		return
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	x = transformed(ex, dst, x)
	if findAmax {
		dst.findAmax(ex, x)
	}
	quantizeGeneral(ex, dst, x, c, draws)
}
