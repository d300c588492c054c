package reference

import (
	"math"
	"strings"
)

// Recipe says how products cast their operands to 8 bits. Each block of an operand has a scale: the
// stored values times it are the operand. Blocks are given as [rows, columns] where the columns are
// what the product sums over; 0 stands for all.
type Recipe struct {
	Inputs, Weights [2]int // the blocks of inputs and output gradients, and of weights
	Scale           func(amax, most float64) float64
	E5M2            bool // the format of output gradients; all else is E4M3
	Given           bool // scales are those of the run, whole tensors have one each
}

// Recipes are those whose scales follow from the data, and delayed scaling, whose do not.
var Recipes = map[string]*Recipe{
	"mxfp8":       {Inputs: [2]int{1, 32}, Weights: [2]int{1, 32}, Scale: floorScale},
	"mxfp8_rceil": {Inputs: [2]int{1, 32}, Weights: [2]int{1, 32}, Scale: ceilScale},
	"blockwise":   {Inputs: [2]int{1, 128}, Weights: [2]int{128, 128}, Scale: freeScale},
	"rowwise":     {Inputs: [2]int{1, 0}, Weights: [2]int{1, 0}, Scale: ceilScale},
	"tensorwise":  {Scale: freeScale, E5M2: true},
	"delayed":     {E5M2: true, Given: true},
}

// freeScale takes the largest magnitude to the largest value of the format.
func freeScale(amax, most float64) float64 { return max(FP32.Round(amax/most), 0x1p-126) }

// ceilScale is freeScale, rounded up to a power of two (RCEIL).
func ceilScale(amax, most float64) float64 {
	fraction, exp := math.Frexp(FP32.Round(amax / most))
	if fraction == 0.5 {
		exp--
	}
	return math.Ldexp(1, max(exp, -127))
}

// floorScale takes the exponent of the largest magnitude to that of the largest value. Above it,
// values saturate. Source: OCP Microscaling Formats v1.0, 6.3.
func floorScale(amax, most float64) float64 {
	return math.Ldexp(1, max(math.Ilogb(amax)-math.Ilogb(most), -127))
}

// element is E4M3 or E5M2: its bits of mantissa, least exponent and largest value.
type element struct {
	bits, least int
	most        float64
}

var e4m3, e5m2 = element{3, -6, 448}, element{2, -14, 57344}

// round returns x in the format. Beyond the largest value it saturates.
func (e element) round(x float64) float64 {
	if unit := math.Ldexp(1, e.least-e.bits); math.Abs(x) < math.Ldexp(1, e.least) {
		return math.RoundToEven(x/unit) * unit
	}
	lost := 52 - e.bits
	bits := math.Float64bits(x)
	bits = (bits + 1<<(lost-1) - 1 + bits>>lost&1) &^ (1<<lost - 1)
	return min(max(math.Float64frombits(bits), -e.most), e.most)
}

// cast returns an operand as it is after the cast to 8 bits and back.
func (q *Recipe) cast(m matrix, block [2]int, e element, given float64) matrix {
	rows, cols := block[0], block[1]
	if m.flipped {
		rows, cols = cols, rows
		m.rows, m.cols = m.cols, m.rows
	}
	if rows == 0 {
		rows = m.rows
	}
	if cols == 0 {
		cols = m.cols
	}
	y := make([]float64, len(m.data))
	blocks := (m.rows + rows - 1) / max(rows, 1)
	parallel(blocks, len(m.data)/max(blocks, 1)*4, func(lo, hi int) {
		for top := lo * rows; top < min(hi*rows, m.rows); top += rows {
			for left := 0; left < m.cols; left += cols {
				q.castBlock(y, m, [4]int{top, min(top+rows, m.rows), left, min(left+cols, m.cols)}, e, given)
			}
		}
	})
	if m.flipped {
		m.rows, m.cols = m.cols, m.rows
	}
	return matrix{data: y, rows: m.rows, cols: m.cols, flipped: m.flipped}
}

// castBlock casts rows [at[0], at[1]) of columns [at[2], at[3]).
func (q *Recipe) castBlock(y []float64, m matrix, at [4]int, e element, scale float64) {
	if amax := 0.0; !q.Given {
		for r := at[0]; r < at[1]; r++ {
			for _, x := range m.data[r*m.cols+at[2] : r*m.cols+at[3]] {
				amax = max(amax, math.Abs(x))
			}
		}
		if scale = 1; amax > 0 {
			scale = q.Scale(amax, e.most)
		}
	}
	for r := at[0]; r < at[1]; r++ {
		for i := r*m.cols + at[2]; i < r*m.cols+at[3]; i++ {
			y[i] = e.round(float64(float32(m.data[i]/scale))) * scale // code divides in FP32
		}
	}
}

// quantizer casts the operands of one linear layer.
type quantizer struct {
	*Recipe
	scales [3]float64 // of the input, the weight and the output gradient, if they are given
}

// quantizerOf returns that of a linear layer; nil: its products are not quantized.
func (f *formula) quantizerOf(path string) *quantizer {
	if f.rounding.Recipe == nil || f.rounding.Recipe(path) == nil {
		return nil
	}
	q := &quantizer{Recipe: f.rounding.Recipe(path)}
	for i, name := range strings.Fields("input weight grad_output") {
		if !q.Given {
			break
		}
		scale, ok := f.call.Given(path + "." + name + ".scale")
		if !ok || len(scale.Data) != 1 || !(scale.Data[0] > 0) {
			f.fail("delayed scaling needs the scale of its %s: expected one positive number as %s.%s.scale, by which stored values are multiplied", name, path, name)
			scale.Data = []float64{1}
		}
		q.scales[i] = scale.Data[0]
	}
	return q
}

// operands casts both operands of a product. Each is summed over its columns.
func (q *quantizer) operands(a, b matrix, kinds [2]int) (matrix, matrix) {
	if q == nil {
		return a, b
	}
	one := func(m matrix, kind int) matrix {
		e, block := e4m3, q.Inputs
		if kind == 1 {
			block = q.Weights
		} else if kind == 2 && q.E5M2 {
			e = e5m2
		}
		return q.cast(m, block, e, q.scales[kind])
	}
	return one(a, kinds[0]), one(b.transposed(), kinds[1]).transposed()
}
