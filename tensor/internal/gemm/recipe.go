package gemm

// The choice of an algorithm, following the table in doc.go.

import "spmoe/tensor/format"

// A recipe lists the kernels that a tier uses.
type recipe struct {
	bf16, fp32 *family

	// direct returns the kernels for few rows of a and a b that is read in place. few reports
	// whether rows are few.
	few    func(rows, k int) bool
	direct func(b operand) *directFamily

	decoders decoders // of codes; nil: plain Go
	integers *family  // of MXINT8; nil: codes are decoded

	peakBF16, peakFP32, peakInt8 func(rounds int) float64
}

// kernels returns the kernels of the recipe.
func (r *recipe) kernels() *kernels {
	packed := &kernels{
		fp32: func(s *Scratch, c, a, b View, m into) {
			r.fp32.multiply(s, c, View{}, operand{View: a}, operand{View: b.transposed()}, m, nil)
		},
		tiles:    r.bf16.packing.tiles,
		peakBF16: r.peakBF16,
		peakFP32: r.peakFP32,
		peakInt8: r.peakInt8,
	}
	packed.bf16By(r.bf16.product)
	ks := *packed
	ks.packed, ks.few = packed, r.few
	ks.bf16By(r.multiply)
	if r.decoders != nil {
		ks.scaled = func(s *Scratch, sum, out View, a, b Scaled, m into) { r.scaled(&ks, s, sum, out, a, b, m) }
	}
	return &ks
}

// setBF16 makes multiply compute the products of BF16. Its arguments are those of
// microkernel.multiply.
func (ks *kernels) bf16By(multiply func(s *Scratch, sum, out View, a, b operand, m into, inexact slowWay)) {
	ks.bf16 = func(s *Scratch, c, a, b View, m into) {
		multiply(s, c, View{}, operand{View: a}, operand{View: b.transposed()}, m, nil)
	}
	ks.bf16Rounded = func(s *Scratch, c, a, b View) {
		multiply(s, View{}, c, operand{View: a}, operand{View: b.transposed()}, into{}, nil)
	}
}

// multiply computes a BF16 product. It is direct if rows are few and both operands are contiguous
// along k. Otherwise it uses panels.
func (r *recipe) multiply(s *Scratch, sum, out View, a, b operand, m into, inexact slowWay) {
	if r.few(a.Rows, m.length(a.Cols)) && a.direct(b) {
		r.direct(b).multiply(s, sum, out, a, b, m, inexact)
	} else {
		r.bf16.product(s, sum, out, a, b, m, inexact)
	}
}

// product is multiply, except that it reads b in place where that was measured to be faster.
func (f *family) product(s *Scratch, sum, out View, a, b operand, m into, inexact slowWay) {
	switch {
	case f.across.take(a, b, m) && f.across.of(b).multiply(s, f, sum, out, a, b):
	case f.turns(a, b, m) && f.multiplyTurned(s, sum, out, a, b):
	default:
		f.multiply(s, sum, out, a, b, m, inexact)
	}
}

// asIntegers reports whether a and b can be multiplied as integers.
func (r *recipe) asIntegers(a, b Scaled) (x, y operand, ok bool) {
	x, y, ok = int8Operands(a, b)
	return x, y, ok && r.integers != nil
}

// decodable reports whether the assembly can decode a and b on their way into panels or, with few
// rows of a, into the kernels.
//
// Few rows are summed in the order of a direct product wherever MXINT8 is involved, for every
// layout. An operand without a direct kernel is therefore not decodable: one that cannot be read in
// place, or a b of MXINT8 for kernels that decode in registers.
func (r *recipe) decodable(a, b Scaled, few bool) (x, y operand, ok bool) {
	x, y, ok = r.decoders.both(a, b)
	if few && (a.Element == format.INT8 || b.Element == format.INT8) {
		ok = ok && x.direct(y) && (b.Element != format.INT8 || r.direct(y).whole)
	}
	return x, y, ok
}

// scaled implements kernels.scaled for ks.
func (r *recipe) scaled(ks *kernels, s *Scratch, sum, out View, a, b Scaled, m into) {
	k := m.length(a.Codes.Cols)
	few, slow := r.few(a.Codes.Rows, k), ks.of(a.Codes.Rows, k).slow(s)
	if x, y, ok := r.asIntegers(a, b); ok {
		r.integers.multiplyInt8(s, sum, out, x, y, m, slow)
	} else if x, y, ok := r.decodable(a, b, few); ok {
		if !few || !x.direct(y) {
			slow = ks.packed.slow(s) // sums in the order of products that are not direct
			if ks.tiles {
				slow = bySpan(s, r.bf16.exceptions(s, r.decoders.both, slow))
			}
		}
		r.multiply(s, sum, out, x, y, m, slow)
	} else {
		slow(sum, out, a, b, m)
	}
}
