package reference

import "math"

// Recipe says how products cast their operands to 8 bits. Each block of an operand has a scale: the
// stored values times it are the operand. Blocks are given as [rows, columns] where the columns are
// what the product sums over; 0 stands for all.
type Recipe struct {
	Inputs, Weights [2]int // the blocks of inputs and output gradients, and of weights
	Scale           func(amax, most float64) float64
	E5M2            bool // the format of output gradients; all else is E4M3
}

// Recipes are those whose scales follow from the data.
var Recipes = map[string]*Recipe{
	"mxfp8":       {Inputs: [2]int{1, 32}, Weights: [2]int{1, 32}, Scale: floorScale},
	"mxfp8_rceil": {Inputs: [2]int{1, 32}, Weights: [2]int{1, 32}, Scale: ceilScale},
	"blockwise":   {Inputs: [2]int{1, 128}, Weights: [2]int{128, 128}, Scale: freeScale},
	"rowwise":     {Inputs: [2]int{1, 0}, Weights: [2]int{1, 0}, Scale: ceilScale},
	"tensorwise":  {Scale: freeScale, E5M2: true},
}

// freeScale takes the largest magnitude to the largest value of the format.
func freeScale(amax, most float64) float64 { return max(FP32.Round(amax/most), 0x1p-126) }

// ceilScale is freeScale, rounded up to a power of two (RCEIL).
func ceilScale(amax, most float64) float64 {
	fraction, exp := math.Frexp(freeScale(amax, most))
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
	return min(max(roundBits(x, e.bits, e.least, math.Inf(1)), -e.most), e.most)
}

// operand says what an operand of a product is.
type operand int

const (
	input operand = iota
	weight
	outputGradient
)

// operands casts both operands of a product, which sums over the columns of a and the rows of b.
func (q *Recipe) operands(a matrix, isA operand, b matrix, isB operand) (matrix, matrix) {
	if q == nil {
		return a, b
	}
	return q.cast(a, isA), q.cast(b.transposed(), isB).transposed()
}

// cast returns an operand as it is after the cast to 8 bits and back.
func (q *Recipe) cast(m matrix, is operand) matrix {
	e, block := e4m3, q.Inputs
	if is == weight {
		block = q.Weights
	} else if is == outputGradient && q.E5M2 {
		e = e5m2
	}
	size := [2]int{m.rows, m.cols} // of the data
	if m.flipped {
		size[0], size[1], block[0], block[1] = size[1], size[0], block[1], block[0]
	}
	for i, n := range size {
		if block[i] == 0 {
			block[i] = n
		}
	}
	y := make([]float64, len(m.data))
	strips := (size[0] + block[0] - 1) / max(block[0], 1)
	parallel(strips, 4*len(m.data)/max(strips, 1), func(lo, hi int) {
		for top := lo * block[0]; top < min(hi*block[0], size[0]); top += block[0] {
			for left := 0; left < size[1]; left += block[1] {
				right := min(left+block[1], size[1])
				amax, scale := 0.0, 1.0
				for r := top; r < min(top+block[0], size[0]); r++ {
					for _, x := range m.data[r*size[1]+left : r*size[1]+right] {
						amax = max(amax, math.Abs(x))
					}
				}
				if amax > 0 {
					scale = q.Scale(amax, e.most)
				}
				for r := top; r < min(top+block[0], size[0]); r++ {
					for i := r*size[1] + left; i < r*size[1]+right; i++ {
						y[i] = e.round(float64(float32(m.data[i]/scale))) * scale // code divides in FP32
					}
				}
			}
		}
	})
	return matrix{data: y, rows: m.rows, cols: m.cols, flipped: m.flipped}
}
