package trainer

import (
	"math"

	"spmoe/moe"
	"spmoe/mx"
	"spmoe/tensor"
)

// What quantisation did to an operand: how its codes, in the form of the forward product or dgrad,
// differ from what it was.

// quantisation is the sums over the elements of an operand that a record holds.
type quantisation struct{ elements, signal, noise, saturated, flushed float64 }

func (s *quantisation) add(o quantisation) {
	s.elements += o.elements
	s.signal += o.signal
	s.noise += o.noise
	s.saturated += o.saturated
	s.flushed += o.flushed
}

// panelRows is how many rows are taken together. Sums are rounded by panels, so that they do not depend on the threads.
const panelRows = 32

// measureWork is what an element costs, in operations of a matrix product.
const measureWork = 64

// measure compares the rows of q with its X, on the threads of ex.
func measure(ex *tensor.Exec, q moe.Quantised) (sum quantisation) {
	if q.X.Rows == 0 {
		return sum
	}
	c := comparison{q: q, largest: q.Format.Max(), panels: make([]quantisation, (q.X.Rows+panelRows-1)/panelRows)}
	for code := range c.values {
		c.values[code] = q.Format.Decode(uint8(code))
	}
	tensor.Parallel(ex, len(c.panels), measureWork*q.X.Rows*q.X.Cols, &c, comparePanels)
	for _, p := range c.panels {
		sum.add(p)
	}
	return sum
}

// comparison is one pass over an operand.
type comparison struct {
	q       moe.Quantised
	values  [256]float32 // of the codes
	largest float32      // of them
	panels  []quantisation
}

func comparePanels(ex *tensor.Exec, c *comparison, lo, hi int) {
	x, rows, cols := c.q.X, c.q.Rows, c.q.X.Cols
	codes, scales, perRow := rows.Codes.U8(), rows.Scales.U8(), rows.Scales.Dim(1)
	wide := ex.New(tensor.FP32, panelRows, cols)
	for p := lo; p < hi; p++ {
		first, last := p*panelRows, min((p+1)*panelRows, x.Rows)
		tensor.Convert(ex, wide.Mat().RowSlice(0, last-first), x.RowSlice(first, last))
		for r := first; r < last; r++ {
			values := wide.Index(r - first).F32()
			for b := range perRow {
				from, to := b*mx.BlockSize, min((b+1)*mx.BlockSize, cols)
				c.panels[p].add(c.block(values[from:to], codes[r*cols+from:r*cols+to], scales[r*perRow+b]))
			}
		}
	}
}

// block compares one block. It counts in units of the block's scale, a power of two, so that squares neither overflow nor vanish.
func (c *comparison) block(x []float32, codes []uint8, scale uint8) quantisation {
	sum := quantisation{elements: float64(len(x))}
	if scale == mx.NaNScale {
		sum.signal, sum.noise = math.NaN(), math.NaN()
		return sum
	}
	inverse, largest := mx.DecodeScale(mx.NaNScale-1-scale), math.Float32bits(c.largest)
	var signal, noise float32
	var saturated, flushed uint32
	codes = codes[:len(x)]
	for i, v := range x {
		scaled, decoded := v*inverse, c.values[codes[i]]
		off := scaled - decoded
		signal += scaled * scaled
		noise += off * off
		// The bits of floats without a sign are ordered as they are; the difference's sign costs less than two comparisons.
		saturated += (largest - math.Float32bits(scaled)&^(1<<31)) >> 31
		if decoded == 0 && v != 0 {
			flushed++
		}
	}
	unit := math.Ldexp(1, 2*(int(scale)-127))
	sum.signal, sum.noise = unit*float64(signal), unit*float64(noise)
	sum.saturated, sum.flushed = float64(saturated), float64(flushed)
	return sum
}
