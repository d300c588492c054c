package gemm

// The choice of an algorithm, following the table in doc.go.

// A recipe lists the kernels that a tier uses.
type recipe struct {
	bf16, fp32 *microkernel

	direct *directKernels // for few rows of a and a b that is read in place; nil: none

	decoders decoders // of codes

	peakBF16, peakFP32 func(rounds int) float64
}

// kernels returns the kernels of the recipe.
func (r *recipe) kernels() *kernels {
	return &kernels{
		recipe: r,
		bf16: func(s *Scratch, c, a, b View, m mode) {
			r.multiply(s, c, View{}, operand{View: a}, operand{View: b.transposed()}, m, nil)
		},
		bf16Rounded: func(s *Scratch, c, a, b View, m mode) {
			r.multiply(s, View{}, c, operand{View: a}, operand{View: b.transposed()}, m, nil)
		},
		fp32: func(s *Scratch, c, a, b View, m mode) {
			r.fp32.multiply(s, c, View{}, operand{View: a}, operand{View: b.transposed()}, m, nil)
		},
		tiles:    r.bf16.packing.tiles,
		quads:    r.bf16.packing.quads,
		peakBF16: r.peakBF16,
		peakFP32: r.peakFP32,
	}
}

// multiply computes a BF16 product, by the algorithm that was measured to be the fastest for its
// shape. All have the same order of summation. The arguments are those of microkernel.multiply.
func (r *recipe) multiply(s *Scratch, sum, out View, a, b operand, m mode, inexact fallback) {
	if l := r.direct.of(a, b, m); l != nil {
		done := l.multiply(s, &r.bf16.packing, sum, out, a, b, m, inexact)
		if done == b.Rows {
			return
		}
		sum, out = sum.columnsFrom(4, done), out.columnsFrom(2, done)
		b, m.retained = b.part(2, done, b.Rows-done), nil
	}
	if m.blocks == nil && m.retained == nil && r.bf16.transposes(a, b, m) && r.bf16.transposedTimes(s, sum, out, a, b, m) {
		return
	}
	r.bf16.multiply(s, sum, out, a, b, m, inexact)
}

// mx computes a·bᵀ. It stores BF16 in out if out is not empty, and FP32 in sum otherwise.
func (ks *kernels) mx(s *Scratch, sum, out View, a, b Scaled, m mode) {
	slow, r := ks.fallback(s), ks.recipe
	if r == nil {
		slow(sum, out, a, b, m)
	} else if x, y, ok := r.decoders.both(a, b); ok {
		if !ks.chained() {
			slow = bySpan(s, r.bf16.exceptions(s, r.decoders.both, slow))
		}
		r.multiply(s, sum, out, x, y, m, slow)
	} else {
		slow(sum, out, a, b, m)
	}
}
