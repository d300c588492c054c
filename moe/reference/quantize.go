package reference

import "math"

// Recipe says how each product casts its operands: forward (input, weight), dgrad (output gradient,
// weight) and wgrad (output gradient, input).
type Recipe [3][2]Cast

// Cast is one to 8 bits. Each block has a scale: the stored values times it are the operand. Blocks
// are given as [rows, columns] where the columns are what the product sums over; 0 stands for all.
//
// Of an element between two values of the format, the last bit of a free scale decides, and whether
// code divides by it or multiplies by its reciprocal. With ties of 1 it gets the smaller magnitude,
// of -1 the larger, and of 0 the even one.
type Cast struct {
	Block [2]int
	Scale Scale
	E5M2  bool // else E4M3
	Off   bool // the operand stays as it is
}

// Scale is how a block's scale follows from its largest magnitude.
type Scale int

const (
	Free  Scale = iota // takes the largest magnitude to the largest value of the format
	Ceil               // Free, rounded up to a power of two (RCEIL)
	Floor              // takes its exponent to that of the largest value, and saturates above it
)

// Recipes are those whose scales follow from the data.
var Recipes = map[string]*Recipe{
	"mxfp8":       newRecipe([2]int{1, 32}, [2]int{1, 32}, Floor),
	"mxfp8_rceil": newRecipe([2]int{1, 32}, [2]int{1, 32}, Ceil),
	"blockwise":   newRecipe([2]int{1, 128}, [2]int{128, 128}, Free),
	"rowwise":     newRecipe([2]int{1, 0}, [2]int{1, 0}, Ceil),
	"tensorwise":  newRecipe([2]int{}, [2]int{}, Free),
}

func newRecipe(inputs, weights [2]int, scale Scale) *Recipe {
	x, w := Cast{Block: inputs, Scale: scale}, Cast{Block: weights, Scale: scale}
	dy := x
	dy.E5M2 = inputs == [2]int{} // the range of one scale per tensor is too small in E4M3
	return &Recipe{{x, w}, {dy, w}, {dy, x}}
}

// of returns the scale of a block. Floor is that of OCP Microscaling Formats v1.0, 6.3.
func (s Scale) of(amax, most float64) float64 {
	scale := max(FP32.Round(amax/most), 0x1p-126)
	fraction, exp := math.Frexp(scale)
	switch {
	case s == Free:
		return scale
	case s == Floor:
		exp = math.Ilogb(amax) - math.Ilogb(most)
	case fraction == 0.5:
		exp--
	}
	return math.Ldexp(1, max(exp, -127))
}

// element is E4M3 or E5M2: its bits of mantissa, least exponent and largest value.
type element struct {
	bits, least int
	most        float64
}

var e4m3, e5m2 = element{3, -6, 448}, element{2, -14, 57344}

// round returns x in the format. Beyond the largest value it saturates. The sum with a large number
// ends at the last bit of the result.
func (e element) round(x float32) float64 {
	exp := min(max(int(math.Float32bits(x)>>23&0xff)-127, e.least), 100) // |x| in [2^exp, 2^(exp+1))
	large := 1.5 * math.Float32frombits(uint32(exp-e.bits+23+127)<<23)
	return min(max(float64(x+large-large), -e.most), e.most)
}

// The products of a linear layer.
const (
	forward = iota
	dgrad
	wgrad
)

// operands casts both operands of a product, which sums over the columns of a and the rows of b.
func (q *Recipe) operands(product int, ties [2]float64, a, b matrix) (matrix, matrix) {
	if q == nil {
		return a, b
	}
	return q[product][0].apply(a, ties[0]), q[product][1].apply(b.transposed(), ties[1]).transposed()
}

// apply returns an operand as it is after the cast to 8 bits and back.
func (c Cast) apply(m matrix, ties float64) matrix {
	e, block := e4m3, c.Block
	if c.Off {
		return m
	} else if c.E5M2 {
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
				amax, scale, divisor := 0.0, 1.0, 1.0
				for r := top; r < min(top+block[0], size[0]); r++ {
					for _, x := range m.data[r*size[1]+left : r*size[1]+right] {
						amax = max(amax, math.Abs(x))
					}
				}
				if amax > 0 {
					scale = c.Scale.of(amax, e.most)
					if divisor = scale; c.Scale == Free {
						divisor *= 1 + ties*0x1p-22
					}
				}
				for r := top; r < min(top+block[0], size[0]); r++ {
					for i := r*size[1] + left; i < r*size[1]+right; i++ {
						y[i] = e.round(float32(m.data[i]/divisor)) * scale // code divides in FP32
					}
				}
			}
		}
	})
	return matrix{data: y, rows: m.rows, cols: m.cols, flipped: m.flipped}
}
