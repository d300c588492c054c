package tensorcore

// Every tier against Plan.Dot, bit for bit: recorded products, and random ones of any shape.

import (
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"spmoe/tensor/cpu/cputest"
	"spmoe/tensor/format"
)

// eachTier runs f with the kernels of each tier.
func eachTier(t *testing.T, f func(t *testing.T)) {
	cputest.Each(t, table, func(t *testing.T, k *kernels) {
		defer func(k *kernels) { active = k }(active)
		active = k
		f(t)
	})
}

// source returns the operand with the rows of m.
func (m matrix) source() Source {
	return Source{Values: unsafe.Pointer(unsafe.SliceData(m.values)), Rows: m.rows, K: m.cols, RowStride: m.cols, ColStride: 1, Least: m.least}
}

// product returns the product of a and b.
func product(j Job, a, b matrix) matrix {
	j.A, j.B = a.source(), b.source()
	out := matrix{values: make([]float32, a.rows*b.rows), rows: a.rows, cols: b.rows}
	j.Multiply(new(Room), out.values, out.cols, 0, out.rows, 0, out.cols)
	return out
}

// differ counts the elements of got and want with different bits.
func differ(got, want matrix) (n int) {
	for i, w := range want.values {
		if math.Float32bits(got.values[i]) != math.Float32bits(w) {
			n++
		}
	}
	return n
}

func TestTiersGolden(t *testing.T) {
	eachTier(t, func(t *testing.T) {
		for _, r := range recordings {
			f := openGolden(t, r.file)
			for _, prefix := range f.products() {
				got := product(Job{Plan: r.plan}, f.matrix(prefix+".a"), f.matrix(prefix+".b"))
				if n := differ(got, f.matrix(prefix+"."+r.out)); n != 0 {
					t.Errorf("%s, %s.%s: %d elements differ", r.file, prefix, r.out, n)
				}
			}
		}
		scaled(t, func(f golden, prefix string, s func(i, j int) Scales) {
			sa, sb := f.matrix(prefix+".scale_a"), f.matrix(prefix+".scale_b")
			j := Job{Plan: H100FP8, ScalesA: &ChainScales{Values: sa.values, RowStride: sa.cols, RunStride: 1, Rows: 1},
				ScalesB: &ChainScales{Values: sb.values, RowStride: sb.cols, RunStride: 1, Rows: 1}}
			if s(0, 0).Squares {
				j.ScalesB.Rows = 128
			}
			if n := differ(product(j, f.matrix(prefix+".a"), f.matrix(prefix+".b")), f.matrix(prefix+".out")); n != 0 {
				t.Errorf("%s: %d elements differ", prefix, n)
			}
		})
	})
}

// A numberKind draws elements of a matrix.
type numberKind struct {
	name  string
	least int
	draw  func(r *rand.Rand) float32
}

var bf16Kinds = []numberKind{
	{"normal", leastNormal, func(r *rand.Rand) float32 { return bf16(float32(r.NormFloat64())) }},
	{"wide", leastNormal, func(r *rand.Rand) float32 { return bf16(float32(math.Ldexp(r.NormFloat64(), r.IntN(40)-20))) }},
	{"tiny", leastNormal, func(r *rand.Rand) float32 { return bf16(float32(math.Ldexp(r.NormFloat64(), -r.IntN(80)))) }},
	{"any finite bits", leastNormal, func(r *rand.Rand) float32 {
		return math.Float32frombits((r.Uint32() & 0xbf7f << 16) | uint32(r.IntN(2))<<29)
	}},
	{"any bits", leastNormal, func(r *rand.Rand) float32 { return math.Float32frombits(r.Uint32() << 16) }},
	{"sparse", leastNormal, func(r *rand.Rand) float32 {
		if r.IntN(8) > 0 {
			return 0
		}
		return bf16(float32(math.Ldexp(r.NormFloat64(), -r.IntN(70))))
	}},
	{"large significands", leastNormal, func(r *rand.Rand) float32 { return math.Float32frombits(uint32(0x3ffe+r.IntN(2)) << 16) }},
}

func bf16(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ 0xffff) }

func codes(e *format.Element) []numberKind {
	finite := func(r *rand.Rand) float32 {
		for {
			if x := e.Decode(uint8(r.UintN(256))); x-x == 0 {
				return x
			}
		}
	}
	return []numberKind{
		{e.String(), e.MinExponent(), func(r *rand.Rand) float32 { return e.Decode(e.Encode(float32(r.NormFloat64()))) }},
		{e.String() + " of any bits", e.MinExponent(), func(r *rand.Rand) float32 { return e.Decode(uint8(r.UintN(256))) }},
		{e.String() + " of any finite bits", e.MinExponent(), finite},
		{e.String() + " constant", e.MinExponent(), func(*rand.Rand) float32 { return 1.75 }},
	}
}

func drawMatrix(r *rand.Rand, kind numberKind, rows, cols int) matrix {
	m := matrix{values: make([]float32, rows*cols), rows: rows, cols: cols, least: kind.least}
	for i := range m.values {
		m.values[i] = kind.draw(r)
	}
	return m
}

// dots returns what Plan.Dot returns for each element.
func dotsOf(p Plan, a, b matrix) matrix {
	out := matrix{rows: a.rows, cols: b.rows}
	for i := range a.rows {
		row := a.elements(i)
		for j := range b.rows {
			out.values = append(out.values, p.Dot(row, b.elements(j)))
		}
	}
	return out
}

func TestTiersRandom(t *testing.T) {
	fp8 := append(codes(format.E4M3), codes(format.E5M2)...)
	plans := []struct {
		Plan
		kinds []numberKind
	}{{H100BF16, bf16Kinds}, {H100FP8, fp8}, {H100FastFP8, fp8}, {B200FP8, fp8}}
	eachTier(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		for _, p := range plans {
			for _, left := range p.kinds {
				for range 4 {
					right := p.kinds[r.IntN(len(p.kinds))]
					k := 1 + r.IntN(300)
					a, b := drawMatrix(r, left, 1+r.IntN(9), k), drawMatrix(r, right, 1+r.IntN(40), k)
					if n := differ(product(Job{Plan: p.Plan}, a, b), dotsOf(p.Plan, a, b)); n != 0 {
						t.Errorf("%s: %s [%d, %d] by %s [%d, %d]: %d elements differ", p.Name, left.name, a.rows, k, right.name, b.rows, k, n)
					}
				}
			}
		}
	})
}
