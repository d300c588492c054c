package tensorcore

import "spmoe/tensor/exact"

// A Plan says how cuBLAS makes a product over all of K from the blocks of a unit.
type Plan struct {
	Unit
	// Promote is the number of elements per chain. Chains start at zero, and their sums are added
	// to a total in FP32, rounded to nearest even. 0 means one chain over K.
	Promote int
	// Part is the number of elements per part of K (split-K). A part is summed as if it were alone.
	// The sums of parts are added in FP32, in ascending order. 0 means one part.
	Part int
	// RestFirst says that the elements of a part beyond whole blocks come first, and not last.
	RestFirst bool
}

// The plans of cuBLAS on an H100 and a B200.
var (
	H100BF16    = Plan{Unit: HopperBF16}
	H100OddBF16 = Plan{Unit: HopperTF32, RestFirst: true} // rows of an odd number of elements
	H100TF32    = Plan{Unit: HopperTF32}                  // FP32 operands, rounded to 10 bits of mantissa
	H100FP8     = Plan{Unit: HopperFP8, Promote: 128}     // use_fast_accum=False in PyTorch
	H100FastFP8 = Plan{Unit: HopperFP8}                   // use_fast_accum=True
	B200BF16    = Plan{Unit: BlackwellBF16}
	B200FP8     = Plan{Unit: BlackwellFP8}
	B200FP4     = Plan{Unit: BlackwellFP4}
)

// Split returns the plan with k elements cut into n parts of equally many tiles. The last part may
// be shorter. cuBLAS has tiles of 64 elements, of 128 in FP8, and of 8 if rows are odd.
func (p Plan) Split(k, n, tile int) Plan {
	tiles := (k + tile - 1) / tile
	p.Part = (tiles + n - 1) / n * tile
	return p
}

// Dot returns the product of a row of a and a column of b. They may not be empty.
func (p Plan) Dot(a, b []Element) (total float32) {
	for k := 0; k < len(a); {
		end := p.partEnd(k, len(a))
		total += p.partDot(a[k:end], b[k:end]) // never -0, so the first one stays as it is
		k = end
	}
	return total
}

// partEnd returns the end of the part of n elements that begins with element k.
func (p Plan) partEnd(k, n int) int {
	if p.Part == 0 {
		return n
	}
	return min(k+p.Part, n)
}

// rest returns how many elements of a part of n come before its whole blocks.
func (p Plan) rest(n int) int {
	if !p.RestFirst {
		return 0
	}
	return n % p.Terms
}

func (p Plan) partDot(a, b []Element) float32 {
	if p.Promote == 0 {
		rest := p.rest(len(a))
		return p.Chain(p.Chain(0, a[:rest], b[:rest]), a[rest:], b[rest:])
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
// belong to squares. Otherwise it multiplies it by the scale of a first.
func (s Scales) add(total float32, i int, sum float32) float32 {
	if s.Squares {
		return exact.FMA(sum, s.A[i]*s.B[i], total)
	}
	return exact.FMA(sum*s.A[i], s.B[i], total)
}
