package tensorcore

import "math"

// A Unit says how a tensor core adds a block of products to its accumulator.
type Unit struct {
	Name     string
	Terms    int  // products per block
	Fraction int  // fractional bits that terms keep below the largest exponent
	Mantissa int  // explicit mantissa bits of the sum
	Model    bool // published, but not compared with the chip
}

// The units of a Hopper (H100) and of a Blackwell (B200). FP8 is E4M3 and E5M2 in any mix. MXFP8
// adds like BlackwellFP8.
var (
	HopperBF16    = Unit{Name: "h100 bf16", Terms: 16, Fraction: 25, Mantissa: 23}
	HopperTF32    = Unit{Name: "h100 tf32", Terms: 8, Fraction: 25, Mantissa: 23}
	HopperFP8     = Unit{Name: "h100 fp8", Terms: 32, Fraction: 13, Mantissa: 13}
	BlackwellBF16 = Unit{Name: "b200 bf16", Terms: 16, Fraction: 25, Mantissa: 23}
	BlackwellFP8  = Unit{Name: "b200 fp8", Terms: 32, Fraction: 25, Mantissa: 23, Model: true}
	BlackwellFP4  = Unit{Name: "b200 fp4", Terms: 64, Fraction: 35, Mantissa: 23, Model: true}
)

// An Element is a number and its exponent as the unit sees it: that of its leading bit, but at
// least the exponent of the format's smallest normal number. A power of two that scales the element
// is a part of both.
type Element struct {
	Value    float64
	Exponent int
}

// ElementOf returns the element of value x. least is the smallest exponent of a normal number.
func ElementOf(x float32, least int) Element {
	if x == 0 || x-x != 0 {
		return Element{float64(x), least}
	}
	return Element{float64(x), max(math.Ilogb(float64(x)), least)}
}

// A Term is what a unit aligns and adds: a product.
type Term struct {
	Value    float64
	Exponent int
}

// Product returns the term of a·b. Its exponent is not normalized: the significand is in [1, 4).
func Product(a, b Element) Term { return Term{a.Value * b.Value, a.Exponent + b.Exponent} }

// Group returns the term of a group of products of 4-bit codes, which are added exactly and scaled.
// Its exponent is that of the scales.
func Group(a, b []float32, scaleA, scaleB Element) Term {
	sum := 0.0
	for k := range a {
		sum += float64(a[k]) * float64(b[k])
	}
	return Term{sum * scaleA.Value * scaleB.Value, scaleA.Exponent + scaleB.Exponent}
}

const (
	leastExponent = -133       // terms are aligned to this exponent at least
	leastNormal   = -126       // of FP32
	canonicalNaN  = 0x7fffffff // the only NaN that units return
)

// Add returns the sum of the accumulator c and a block of terms.
func (u Unit) Add(c float32, terms []Term) float32 {
	// Terms are exact in FP64, and so is each step. Only operands can be infinite or NaN.
	special := float64(c)
	for _, t := range terms {
		special += t.Value
	}
	if special-special != 0 {
		return specialSum(special)
	}
	accumulator := Term(ElementOf(c, leastNormal))

	largest := max(leastExponent, exponent(accumulator))
	for _, t := range terms {
		largest = max(largest, exponent(t))
	}
	unit := math.Ldexp(1, largest-u.Fraction)
	sum := int64(accumulator.Value / unit) // drops the fraction, toward zero
	for _, t := range terms {
		sum += int64(t.Value / unit)
	}
	return u.result(float64(sum) * unit)
}

// exponent returns the exponent with which t takes part in the alignment. Zeros do not.
func exponent(t Term) int {
	if t.Value == 0 {
		return leastExponent
	}
	return t.Exponent
}

// result cuts an exact sum toward zero to the unit's mantissa. FP32's subnormal numbers are kept.
// What is beyond its range becomes infinite. Zero is positive, also what is left of a negative sum.
func (u Unit) result(sum float64) float32 {
	if sum == 0 {
		return 0
	}
	exponent := max(math.Ilogb(sum), leastNormal)
	step := math.Ldexp(1, exponent-u.Mantissa)
	return float32(math.Trunc(sum/step)*step) + 0 // -0 + 0 is +0
}

func specialSum(s float64) float32 {
	if s != s {
		return math.Float32frombits(canonicalNaN)
	}
	return float32(s)
}

// Chain returns the sum of c and the products of a and b. Each block's sum is the next one's
// accumulator. The last block may be short.
func (u Unit) Chain(c float32, a, b []Element) float32 {
	terms := make([]Term, 0, u.Terms)
	for k := range a {
		if terms = append(terms, Product(a[k], b[k])); len(terms) == u.Terms {
			c, terms = u.Add(c, terms), terms[:0]
		}
	}
	if len(terms) > 0 {
		c = u.Add(c, terms)
	}
	return c
}
