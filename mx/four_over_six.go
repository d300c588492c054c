package mx

// The choice of a block's scale by the error that it leaves.
//
// Source: J. Cook et al., Four Over Six (arXiv 2512.02010). The order of operations is that of
// torchao's four_over_six_quantize with the mean absolute error and a bound of 256, which follows
// Transformer Engine.

import (
	"math/bits"

	"spmoe/tensor"
	"spmoe/tensor/format"
)

// largestScale returns the largest block scale relative to a tensor scale. FourOverSix leaves room
// for one half more.
func (f Format) largestScale() float32 {
	if f.FourOverSix {
		return 256
	}
	return largestE4M3
}

// A scaleChooser chooses between two scales per block: one that maps the largest magnitude to the
// largest number of the format, and one that maps it to 2/3 of that.
type scaleChooser struct {
	*panel
	encode float32   // of the group
	amax   float32   // of the group
	line   []float32 // scratch for the elements of a block along the contracted dimension
	codes  []uint8   // scratch for their codes
	errors []float32 // scratch for the errors of the lines of a block
}

// newScaleChooser returns the chooser for a panel. It is empty for a format without the choice.
func (p *panel) newScaleChooser(ex *tensor.Exec) scaleChooser {
	if !p.t.Format.FourOverSix {
		return scaleChooser{}
	}
	if ex.Dry() {
		p.at.group, p.t.Amax = 0, tensor.New(tensor.FP32, 1)
	}
	lines, length := p.t.Format.Block[0], p.t.Format.Block[1]
	return scaleChooser{
		panel: p, encode: p.encodeScale, amax: p.t.Amax.F32()[p.at.group],
		line: ex.New(tensor.FP32, length).F32(), codes: ex.New(tensor.UINT8, length).U8(),
		errors: ex.New(tensor.FP32, 1<<bits.Len(uint(lines-1))).F32(),
	}
}

// choose returns the scale of block b, whose largest magnitude is amax, and the factor of its
// elements. The first scale stays if both leave the same error.
func (c *scaleChooser) choose(b int, amax float32) (code uint8, factor float32) {
	base := amax / c.quantizeArgs.largest * c.encode
	least := float32(-1)
	for _, scale := range [2]float32{base, base * 1.5} {
		candidate := format.E4M3.Encode(min(scale, largestE4M3))
		f := elementFactor(candidate, c.encode)
		if e := c.blockError(b, candidate, f); least < 0 || e < least {
			least, code, factor = e, candidate, f
		}
	}
	return code, factor
}

// blockError returns the sum of the errors of a block's elements. It adds along each line first,
// and then the lines pairwise.
func (c *scaleChooser) blockError(b int, code uint8, factor float32) float32 {
	clear(c.errors)
	for i := range c.t.Format.Block[0] {
		c.errors[i] = c.lineError(c.blockLine(b, i), format.E4M3.Values()[code], factor)
	}
	for half := len(c.errors) / 2; half > 0; half /= 2 {
		for i := range half {
			c.errors[i] += c.errors[i+half]
		}
	}
	return c.errors[0]
}

// blockLine returns line i of block b. It is shorter where the matrix ends within the block.
func (c *scaleChooser) blockLine(b, i int) []float32 {
	line, first := c.line[:0], b*c.width
	if c.t.Blocks == AlongRows && i < c.rows() {
		return append(line, c.row(i)[first:min(first+c.width, c.cols)]...)
	}
	if c.t.Blocks == AlongCols && first+i < c.cols {
		for r := range c.rows() {
			line = append(line, c.row(r)[first+i])
		}
	}
	return line
}

func (c *scaleChooser) lineError(line []float32, scale, factor float32) float32 {
	codes := c.codes[:len(line)]
	c.t.Format.EncodeScaled(codes, line, factor)
	unit, sum := c.quantizeArgs.largest*c.t.Format.largestScale(), float32(0)
	for k, x := range line {
		sum += magnitude(c.t.Format.Values()[codes[k]]*scale*c.amax/unit - x)
	}
	return sum
}
