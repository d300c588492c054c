package gemm

// The choice of an algorithm, following the table in doc.go.

import "spmoe/tensor/format"

// A recipe lists the kernels that a tier uses.
type recipe struct {
	bf16, fp32 *microkernel

	// direct returns the kernels for few rows of a and a b that is read in place. few reports
	// whether rows are few.
	few    func(rows, k int) bool
	direct func(b operand) *directKernels

	decoders decoders     // of codes
	integers *microkernel // of MXINT8; nil: codes are decoded

	peakBF16, peakFP32, peakInt8 func(rounds int) float64
}

// kernels returns the kernels of the recipe.
func (r *recipe) kernels() *kernels {
	packed := *r
	packed.few = upTo(0)
	ks := r.products()
	ks.recipe, ks.packed, ks.few = r, packed.products(), r.few
	return ks
}

func (r *recipe) products() *kernels {
	return &kernels{
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
		peakInt8: r.peakInt8,
	}
}

// upTo returns a kernels.few for up to most rows: there, packing b costs more than it saves.
func upTo(most int) func(rows, k int) bool { return func(rows, _ int) bool { return rows <= most } }

// multiply computes a BF16 product. It is direct if rows are few and both operands are contiguous
// along k. Otherwise it is transposed where that was measured to be faster, or uses panels. The
// arguments are those of microkernel.multiply.
func (r *recipe) multiply(s *Scratch, sum, out View, a, b operand, m mode, inexact fallback) {
	switch {
	case m.blocks == nil && r.few(a.rowsOfProduct(), m.length(a.Cols)) && a.inPlace(b):
		r.direct(b).multiply(s, sum, out, a, b, m, inexact)
	case m.blocks == nil && m.retained == nil && r.bf16.transposes(a, b, m) && r.bf16.transposedTimes(s, sum, out, a, b, m):
	default:
		r.bf16.multiply(s, sum, out, a, b, m, inexact)
	}
}

// asIntegers reports whether a and b can be multiplied as integers.
func (r *recipe) asIntegers(a, b Scaled) (x, y operand, ok bool) {
	x, y, ok = int8Operands(a, b)
	return x, y, ok && r.integers != nil
}

// decodable reports whether the assembly can decode a and b on their way into panels. With few rows
// of a, they may also go into the kernels directly.
//
// Few rows are summed in the order of a direct product wherever MXINT8 is involved, for every
// layout. An operand without a direct kernel is therefore not decodable: one that cannot be read in
// place, or a b of MXINT8 for kernels that decode in registers.
func (r *recipe) decodable(a, b Scaled, few bool) (x, y operand, ok bool) {
	x, y, ok = r.decoders.both(a, b)
	if few && (a.Element == format.INT8 || b.Element == format.INT8) {
		ok = ok && x.inPlace(y) && (b.Element != format.INT8 || r.direct(y).whole)
	}
	return x, y, ok
}

// mx computes a·bᵀ. It stores BF16 in out if out is not empty, and FP32 in sum otherwise.
func (ks *kernels) mx(s *Scratch, sum, out View, a, b Scaled, m mode) {
	r := ks.recipe
	if r == nil {
		ks.multiplyDecoded(s, sum, out, a, b, m)
		return
	}
	k := m.length(a.Codes.Cols)
	rows := a.Codes.rowsOfProduct()
	few, slow := r.few(rows, k), ks.forRows(rows, k).fallback(s)
	if x, y, ok := r.asIntegers(a, b); ok {
		r.multiplyIntegers(s, sum, out, x, y, m, slow)
	} else if x, y, ok := r.decodable(a, b, few); ok {
		if !few || !x.inPlace(y) {
			slow = ks.packed.fallback(s) // sums in the order of products that are not direct
			if !ks.chained() {
				slow = bySpan(s, r.bf16.exceptions(s, r.decoders.both, slow))
			}
		}
		r.multiply(s, sum, out, x, y, m, slow)
	} else {
		slow(sum, out, a, b, m)
	}
}
