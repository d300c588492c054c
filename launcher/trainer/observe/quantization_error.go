package observe

// The quantization error of an operand: how the values of its codes differ from the original. It is
// measured in the form for the forward product or dgrad. An operand that only wgrad quantizes is
// measured in that form.

import (
	"math"

	"spmoe/moe"
	"spmoe/mx"
	"spmoe/tensor"
)

// QuantizationError holds the sums over the elements of an operand that a record stores.
type QuantizationError struct{ Elements, Signal, Noise, Saturated, Flushed float64 }

func (s *QuantizationError) add(o QuantizationError) {
	s.Elements += o.Elements
	s.Signal += o.Signal
	s.Noise += o.Noise
	s.Saturated += o.Saturated
	s.Flushed += o.Flushed
}

// panelRows is the number of rows per partial sum. Sums are rounded by panels, so that they do not
// depend on the number of threads.
const panelRows = 32

// measureWork is the cost of an element, in operations of a matrix product.
const measureWork = 64

// Measure compares the rows of q with its X, on the threads of ex. If the format has a transform,
// it compares with the transform of X.
func Measure(ex *tensor.Exec, q moe.Quantized) (sum QuantizationError) {
	if q.X.Rows == 0 {
		return sum
	}
	c := comparison{
		x:       q.X,
		codes:   q.Rows,
		largest: q.Format.Max(),
		values:  q.Format.Values(),
		panels:  make([]QuantizationError, (q.X.Rows+panelRows-1)/panelRows),
	}
	if !q.Rows.Codes.Valid() {
		c.codes = q.Cols
	}
	if f := c.codes.Format; f.Hadamard > 0 {
		mark := ex.Mark()
		defer ex.Release(mark)
		c.x = ex.New(q.X.DType(), q.X.Rows, q.X.Cols).Mat()
		mx.Hadamard(ex, c.x, q.X, f, c.codes.Blocks, c.codes.Ends)
	}
	tensor.Parallel(ex, len(c.panels), measureWork*q.X.Rows*q.X.Cols, &c, comparePanels)
	for _, p := range c.panels {
		sum.add(p)
	}
	return sum
}

// comparison is one pass over an operand.
type comparison struct {
	x       tensor.Matrix
	codes   mx.Tensor
	values  *[256]float32 // of the codes
	largest float32       // the largest of them
	panels  []QuantizationError
}

func comparePanels(ex *tensor.Exec, c *comparison, lo, hi int) {
	x, cols, perRow := c.x, c.x.Cols, c.codes.Scales.Dim(1)
	_, width := c.codes.BlockShape()
	if c.codes.Format.Scale == mx.ScaleNone {
		width, perRow = cols, 1
	}
	wide, scratch := ex.New(tensor.FP32, panelRows, cols), ex.New(tensor.UINT8, cols).U8()
	for p := lo; p < hi; p++ {
		first, last := p*panelRows, min((p+1)*panelRows, x.Rows)
		tensor.Convert(ex, wide.Mat().RowSlice(0, last-first), x.RowSlice(first, last))
		for r := first; r < last; r++ {
			values, codes := wide.Index(r-first).F32(), c.codes.RowCodes(r, scratch)
			block, group := c.codes.BlockRow(r)
			for b := range perRow {
				from, to := b*width, min((b+1)*width, cols)
				c.panels[p].add(c.block(values[from:to], codes[from:to], c.codes.Scale(block, b)*c.codes.GroupScale(group)))
			}
		}
	}
}

// block compares one block of a row. It computes in units of the block's scale, so that squares
// neither overflow nor underflow.
func (c *comparison) block(x []float32, codes []uint8, scale float32) QuantizationError {
	sum := QuantizationError{Elements: float64(len(x))}
	switch {
	case scale != scale:
		sum.Signal, sum.Noise = math.NaN(), math.NaN()
		return sum
	case scale == 0:
		return allFlushed(x)
	}
	inverse, largest := 1/scale, math.Float32bits(c.largest)
	var signal, noise float32
	var saturated, flushed uint32
	codes = codes[:len(x)]
	for i, v := range x {
		scaled, decoded := v*inverse, c.values[codes[i]]
		off := scaled - decoded
		signal += scaled * scaled
		noise += off * off
		// Without the sign, the bits of floats have the order of their values. The sign of the
		// difference is cheaper than two comparisons.
		saturated += (largest - math.Float32bits(scaled)&^(1<<31)) >> 31
		if decoded == 0 && v != 0 {
			flushed++
		}
	}
	unit := float64(scale) * float64(scale)
	sum.Signal, sum.Noise = unit*float64(signal), unit*float64(noise)
	sum.Saturated, sum.Flushed = float64(saturated), float64(flushed)
	return sum
}

// allFlushed is block for a scale of 0, which makes every value 0.
func allFlushed(x []float32) QuantizationError {
	sum := QuantizationError{Elements: float64(len(x))}
	for _, v := range x {
		sum.Signal += float64(v) * float64(v)
		if v != 0 {
			sum.Flushed++
		}
	}
	sum.Noise = sum.Signal
	return sum
}
