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

// scales returns the rows of m as scales of chains.
func (m matrix) scales() BlockScales {
	return BlockScales{Type: ScaleFP32, Data: unsafe.Pointer(&m.values[0]), RowStride: m.cols, RunStride: 1, Run: 128, Rows: 1}
}

// product returns the product of a and b with the scales of j, computed in four parts.
func product(j Job, a, b matrix) matrix {
	scales := [2]BlockScales{j.A.Scales, j.B.Scales}
	j.A, j.B = a.source(), b.source()
	j.A.Scales, j.B.Scales = scales[0], scales[1]
	out := matrix{values: make([]float32, a.rows*b.rows), rows: a.rows, cols: b.rows}
	room := NewRoom(nil)
	row, col := out.rows/2, out.cols/3
	for _, rows := range [][2]int{{0, row}, {row, out.rows}} {
		for _, cols := range [][2]int{{0, col}, {col, out.cols}} {
			j.Multiply(&room, out.values[rows[0]*out.cols+cols[0]:], out.cols, rows[0], rows[1]-rows[0], cols[0], cols[1]-cols[0])
		}
	}
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
			j := Job{Plan: H100FP8}
			j.A.Scales, j.B.Scales = sa.scales(), sb.scales()
			if s(0, 0).Squares {
				j.B.Scales.Rows = 128
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

// blockScaled is a matrix of codes with a scale of 8 bits per run of a row.
type blockScaled struct {
	matrix         // without the scales
	scales []uint8 // row by row
	run    int
	kind   ScaleType
}

// randomScaled draws a matrix whose scales are codes that draw returns.
func randomScaled(r *rand.Rand, kind numberKind, rows, cols, run int, scale ScaleType, draw func() uint8) blockScaled {
	m := blockScaled{drawMatrix(r, kind, rows, cols), make([]uint8, rows*((cols+run-1)/run)), run, scale}
	for i := range m.scales {
		m.scales[i] = draw()
	}
	return m
}

func (m *blockScaled) runs() int { return (m.cols + m.run - 1) / m.run }

// scale returns the scale of element k of row i.
func (m *blockScaled) scale(i, k int) Element {
	code := m.scales[i*m.runs()+k/m.run]
	switch {
	case m.kind == ScaleE4M3:
		return ElementOf(format.E4M3.Decode(code), -6)
	case code == 255:
		return Element{Value: math.NaN()}
	}
	return Element{math.Ldexp(1, int(code)-127), int(code) - 127}
}

// elements returns the elements of row i times their scales.
func (m *blockScaled) elements(i int) []Element {
	all := m.matrix.elements(i)
	for k := range all {
		s := m.scale(i, k)
		all[k] = Element{all[k].Value * s.Value, all[k].Exponent + s.Exponent}
	}
	return all
}

// source returns the operand in FP32. Values include the scales if with. If transposed, neighbors
// of a column are neighbors in memory.
func (m *blockScaled) source(with, transposed bool) Source {
	rowStride, colStride, scaleRow, scaleRun := m.cols, 1, m.runs(), 1
	if transposed {
		rowStride, colStride, scaleRow, scaleRun = 1, m.rows, 1, m.rows
	}
	values, scales := make([]float32, m.rows*m.cols), make([]uint8, len(m.scales))
	for i := range m.rows {
		for k, v := range m.row(i) {
			if with {
				v *= float32(m.scale(i, k).Value)
			}
			values[i*rowStride+k*colStride] = v
			scales[i*scaleRow+k/m.run*scaleRun] = m.scales[i*m.runs()+k/m.run]
		}
	}
	return Source{Values: unsafe.Pointer(&values[0]), Rows: m.rows, K: m.cols, RowStride: rowStride, ColStride: colStride, Least: m.least,
		Scales: BlockScales{Type: m.kind, Data: unsafe.Pointer(&scales[0]), RowStride: scaleRow, RunStride: scaleRun, Run: m.run, Rows: 1}}
}

// groupsDot is the product of rows of 4-bit codes by BlackwellFP4.
func groupsDot(a, b *blockScaled, i, j int) (c float32) {
	var terms []Term
	for k := 0; k < a.cols; k += a.run {
		end := min(k+a.run, a.cols)
		terms = append(terms, Group(a.row(i)[k:end], b.row(j)[k:end], a.scale(i, k), b.scale(j, k)))
		if end == a.cols || end%BlackwellFP4.Terms == 0 {
			c, terms = BlackwellFP4.Add(c, terms), nil
		}
	}
	return c
}

// TestTiersScaled compares products of operands with scales of 8 bits, in every layout.
func TestTiersScaled(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	near := func() uint8 { return uint8(120 + r.IntN(12)) }
	far := func() uint8 { return uint8(60 + r.IntN(130)) }
	e4m3 := func() uint8 { return uint8(r.IntN(0x7f)) }
	small := codes(format.E2M1)[0]
	cases := []struct {
		name  string
		plan  Plan
		kind  numberKind
		run   int
		scale ScaleType
		draw  func() uint8
	}{
		{"MXFP8", B200FP8, codes(format.E4M3)[2], 32, ScaleE8M0, near},
		{"MXFP8 with scattered scales", B200FP8, codes(format.E5M2)[2], 32, ScaleE8M0, far},
		{"NVFP4", B200FP4, small, 16, ScaleE4M3, e4m3},
		{"MXFP4", B200FP4, small, 32, ScaleE8M0, near},
		{"MXFP4 with scattered scales", B200FP4, small, 32, ScaleE8M0, far},
	}
	eachTier(t, func(t *testing.T) {
		for _, tt := range cases {
			for layout := range 8 {
				rows, cols, k := 1+r.IntN(9), 1+r.IntN(40), 1+r.IntN(300)
				a := randomScaled(r, tt.kind, rows, k, tt.run, tt.scale, tt.draw)
				b := randomScaled(r, tt.kind, cols, k, tt.run, tt.scale, tt.draw)
				want, groups := matrix{rows: rows, cols: cols}, tt.plan == B200FP4
				for i := range rows {
					for j := range cols {
						if groups {
							want.values = append(want.values, groupsDot(&a, &b, i, j))
						} else {
							want.values = append(want.values, tt.plan.Dot(a.elements(i), b.elements(j)))
						}
					}
				}
				job := Job{Plan: tt.plan, A: a.source(!groups, layout&1 > 0), B: b.source(!groups, layout&2 > 0)}
				got, room := matrix{values: make([]float32, rows*cols)}, NewRoom(nil)
				job.Multiply(&room, got.values, cols, 0, rows, 0, cols)
				if n := differ(got, want); n != 0 {
					t.Errorf("%s, [%d, %d] by [%d, %d], layout %d: %d elements differ", tt.name, rows, k, cols, k, layout, n)
				}
			}
		}
	})
}

// TestLargeProduct has more rows, columns and elements along K than a Room.
func TestLargeProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	a, b := drawMatrix(r, bf16Kinds[0], mostRows+9, chunk+5), drawMatrix(r, bf16Kinds[1], mostCols+20, chunk+5)
	eachTier(t, func(t *testing.T) {
		out, room := make([]float32, a.rows*b.rows), NewRoom(nil)
		job := Job{Plan: H100BF16, A: a.source(), B: b.source()}
		job.Multiply(&room, out, b.rows, 0, a.rows, 0, b.rows)
		for range 2000 {
			i, j := r.IntN(a.rows), r.IntN(b.rows)
			if want := H100BF16.Dot(a.elements(i), b.elements(j)); math.Float32bits(out[i*b.rows+j]) != math.Float32bits(want) {
				t.Fatalf("element (%d, %d) is %g, want %g", i, j, out[i*b.rows+j], want)
			}
		}
	})
}
