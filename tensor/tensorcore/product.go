package tensorcore

import "spmoe/tensor/exact"

// A Plan says how cuBLAS makes a product over all of K from the blocks of a unit.
type Plan struct {
	Unit
	// Promote is the number of elements per chain. Chains start at zero, and their sums are added
	// to a total in FP32, rounded to nearest even. 0 means one chain over K.
	Promote int
}

// The plans of cuBLAS on an H100 and a B200.
var (
	H100BF16    = Plan{Unit: HopperBF16}
	H100FP8     = Plan{Unit: HopperFP8, Promote: 128} // use_fast_accum=False in PyTorch
	H100FastFP8 = Plan{Unit: HopperFP8}               // use_fast_accum=True
	B200BF16    = Plan{Unit: BlackwellBF16}
	B200FP8     = Plan{Unit: BlackwellFP8}
	B200FP4     = Plan{Unit: BlackwellFP4}
)

// Dot returns the product of a row of a and a column of b. They may not be empty.
func (p Plan) Dot(a, b []Element) float32 {
	if p.Promote == 0 {
		return p.Chain(0, a, b)
	}
	var total float32
	for k := 0; k < len(a); k += p.Promote {
		end := min(k+p.Promote, len(a))
		total += p.Chain(0, a[k:end], b[k:end])
	}
	return total
}

// Scales are the FP32 scales of a row of a and a column of b, one per chain.
type Scales struct {
	A, B []float32
	// Squares says that those of b belong to squares of 128, and not to a column each.
	Squares bool
}

// DotScaled is Dot with scales, as cuBLAS multiplies FP8 in blocks of 128.
func (p Plan) DotScaled(a, b []Element, s Scales) float32 {
	var total float32
	for i := range s.A {
		k, end := i*p.Promote, min((i+1)*p.Promote, len(a))
		total = s.add(total, i, p.Chain(0, a[k:end], b[k:end]))
	}
	return total
}

// add adds the sum of chain i. cuBLAS multiplies it by the product of the scales if those of b
// belong to squares. Otherwise it multiplies it by the scale of a first, but by that of b first if
// there is only one chain.
func (s Scales) add(total float32, i int, sum float32) float32 {
	first, second := s.factors(i)
	return exact.FMA(sum*first, second, total)
}

func (s Scales) factors(i int) (first, second float32) {
	switch {
	case s.Squares:
		return 1, s.A[i] * s.B[i]
	case len(s.A) == 1:
		return s.B[i], s.A[i]
	}
	return s.A[i], s.B[i]
}
