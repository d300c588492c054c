package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spmoe/tensor/format"
	"spmoe/tensor/internal/vec"
)

// Guards around codes and scales decode to NaN.
const (
	guardCode  = 0x7f
	guardScale = 255
)

// scaledMatrix is a Scaled with guards.
type scaledMatrix struct {
	Scaled
	codes, scales matrix[uint8]
}

func newScaled(f *format.Element, rows, k int, codesT, scalesT bool, code, scale func() uint8) scaledMatrix {
	codes := newMatrix[uint8](rows, k, codesT, guardCode).fill(code)
	scales := newMatrix[uint8](rows, (k+format.MXBlock-1)/format.MXBlock, scalesT, guardScale).fill(scale)
	return scaledMatrix{Scaled{codes.View, scales.View, f}, codes, scales}
}

// finite draws codes of f that are numbers. One in 300 is zero or subnormal, which some kernels
// handle separately. Thus a large number of rows and steps have such codes and others do not.
func finite(r *rand.Rand, f *format.Element) func() uint8 {
	return func() uint8 {
		for {
			code := uint8(r.Uint32())
			x := math.Abs(float64(f.Values()[code]))
			if !math.IsNaN(x) && !math.IsInf(x, 0) && (x >= float64(leastNormal(f)) || r.IntN(20) == 0) {
				return code
			}
		}
	}
}

// leastNormal returns the smallest normal number of f. For INT8, which has no such distinction, it
// is 0.
func leastNormal(f *format.Element) float32 {
	if f == format.INT8 {
		return 0
	}
	return f.Values()[1<<f.Mantissa()]
}

// near draws scales around 1.
func near(r *rand.Rand) func() uint8 { return func() uint8 { return uint8(120 + r.IntN(15)) } }

// element returns element (i, k) in float64.
func (m Scaled) element(i, k int) float64 {
	return float64(m.Element.Values()[*at[uint8](m.Codes, i, k)]) * scale(*at[uint8](m.Scales, i, k/format.MXBlock))
}

// bf16 decodes m, which must fit, into a view of either layout.
func (m Scaled) bf16(transposed bool) View {
	v := newMatrix[uint16](m.Codes.Rows, m.Codes.Cols, transposed, nan16)
	for i := range v.Rows {
		for k := range v.Cols {
			*at[uint16](v.View, i, k) = vec.ToBF16(float32(m.element(i, k)))
		}
	}
	return v.View
}

var formats = []*format.Element{format.E4M3, format.E5M2, format.INT8}

// eachScaled runs f for shapes, formats of a and b, and layouts of codes and scales.
func eachScaled(t *testing.T, f func(t *testing.T, m, n int, a, b scaledMatrix, r *rand.Rand)) {
	for i, s := range append(shapes, struct{ m, n, k int }{67, 70, 600}, struct{ m, n, k int }{4, 130, 1500}) {
		for l := range 16 {
			bit := func(j int) bool { return l>>j&1 == 1 }
			// Sometimes codes and scales in different orders.
			if i%4 != 0 && (bit(0) != bit(1) || bit(2) != bit(3)) {
				continue
			}
			fa, fb := formats[(i+l)%3], formats[(i+l/4)%3]
			t.Run(fmt.Sprintf("%dx%dx%d,%v%v,%v%v", s.m, s.n, s.k, fa, l&3, fb, l>>2), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(i), uint64(l)))
				a := newScaled(fa, s.m, s.k, bit(0), bit(1), finite(r, fa), near(r))
				b := newScaled(fb, s.n, s.k, bit(2), bit(3), finite(r, fb), near(r))
				f(t, s.m, s.n, a, b, r)
			})
		}
	}
}

// Products with each number of few rows. The weights have fewer rows than a kernel takes at once,
// one block, or several runs, and lie along k or across. Then one code or scale is set to a value
// that some kernels leave to others.
func TestFewRowsEqualBF16(t *testing.T) {
	for _, sh := range []struct{ n, k int }{{1, 32}, {5, 64}, {75, 544}, {20, 1056}} {
		for m := 1; m <= 17; m++ {
			if shortened(m*sh.n*sh.k, 100000) {
				continue
			}
			for _, across := range []struct{ a, b bool }{{false, false}, {false, true}, {true, false}} {
				r := rand.New(rand.NewPCG(uint64(m), uint64(sh.k)))
				a := newScaled(formats[m%2], m, sh.k, across.a, across.a, finite(r, formats[m%2]), near(r))
				b := newScaled(format.E4M3, sh.n, sh.k, across.b, across.b, finite(r, format.E4M3), near(r))
				check := func(what string) {
					t.Log(m, sh, across, what)
					checkEqualsBF16(t, a, b, across.a, across.b)
				}
				if check("finite"); sh.k > 100 && m%4 != 1 {
					continue // of many blocks, some numbers of rows have the values below
				}
				column, k := r.IntN(sh.n), r.IntN(sh.k)
				code, scale := at[uint8](b.Codes, column, k), at[uint8](b.Scales, column, k/format.MXBlock)
				usual := *code
				*code = 0x7f | uint8(r.IntN(2)<<7)
				check("NaN")
				*code, *scale = usual, 200
				check("large scale")
				*scale = 255
				check("scale without a value")
				*scale = 5
				block := k / format.MXBlock * format.MXBlock
				for i := block; i < block+format.MXBlock; i++ {
					code := at[uint8](b.Codes, column, i)
					// 2 and more: smaller values are subnormal in BF16 with such a scale.
					*code = *code&0xbe | 0x40
				}
				check("small scale")
			}
		}
	}
}

// checkEqualsBF16 compares a·bᵀ with the product of their elements in the same layouts, on every
// tier.
func checkEqualsBF16(t *testing.T, a, b scaledMatrix, aT, bT bool) {
	t.Helper()
	var s Scratch
	m, n := a.Codes.Rows, b.Codes.Rows
	x, y := a.bf16(aT), b.bf16(bT).transposed()
	eachTier(t, func(t *testing.T, ks *kernels) {
		want, got := newMatrix[float32](m, n, false, guard), newMatrix[float32](m, n, false, guard)
		ks.bf16(&s, want.View, x, y, mode{})
		s.poison()
		ks.mx(&s, got.View, View{}, a.Scaled, b.Scaled, mode{})
		checkSame(t, got.elements(t), want.elements(t))
	})
}

// Each tier gives the bits that it gives for operands decoded to BF16.
func TestScaledEqualsBF16(t *testing.T) {
	var s Scratch
	eachScaled(t, func(t *testing.T, m, n int, a, b scaledMatrix, r *rand.Rand) {
		// Codes whose scales have another order are decoded row by row first.
		inOrder := func(m Scaled) bool {
			return m.Codes.rowMajor() && m.Scales.rowMajor() || m.Codes.RowStride == 1 && m.Scales.RowStride == 1
		}
		asStored := inOrder(a.Scaled) && inOrder(b.Scaled)
		x, y := a.bf16(asStored && !a.Codes.rowMajor()), b.bf16(asStored && !b.Codes.rowMajor()).transposed()
		initial := results(r, m, n)
		eachTier(t, func(t *testing.T, ks *kernels) {
			for _, accumulate := range []bool{false, true} {
				want, got := initial.clone(), initial.clone()
				ks.bf16(&s, want.View, x, y, mode{add: accumulate})
				ks.mx(&s, got.View, View{}, a.Scaled, b.Scaled, mode{add: accumulate})
				checkSame(t, got.elements(t), want.elements(t))
			}
			want, got := newMatrix[uint16](m, n, false, 7), newMatrix[uint16](m, n, false, 7)
			ks.bf16Rounded(&s, want.View, x, y, mode{})
			ks.mx(&s, View{}, got.View, a.Scaled, b.Scaled, mode{})
			checkSame(t, got.elements(t), want.elements(t))
		})
	})
}

// Every code is exact under every scale. a is a unit matrix (all of it, or few rows at a time), so
// that c holds the values themselves.
func TestEveryCodeAndScale(t *testing.T) {
	one := map[*format.Element]uint8{format.E4M3: 0x38, format.E5M2: 0x3c, format.INT8: 0x40}
	for l := range 8 {
		// The last format also in a ragged block.
		f, transposed, k := formats[min(l/2, 2)], l%2 == 1, format.MXBlock-l/6
		t.Run(fmt.Sprintf("%v,%v,%d", f, transposed, k), func(t *testing.T) {
			const columns = 34 // for all codes, and for groups of columns with some left over
			i, code, scale := 0, 0, 0
			a := newScaled(f, k, k, transposed, transposed, func() uint8 {
				i++
				if (i-1)%(k+1) == 0 {
					return one[f]
				}
				return 0
			}, func() uint8 { return 127 })
			b := newScaled(f, columns, k, transposed, transposed, func() uint8 {
				code++
				if x := f.Values()[uint8(code-1)]; x-x != 0 {
					return 1 // not finite: it would appear in other elements
				}
				return uint8(code - 1)
			}, func() uint8 { return uint8(scale) })
			eachTier(t, func(t *testing.T, ks *kernels) {
				var s Scratch
				for scale = range 255 {
					if shortened(scale%127, 1) { // 0, 1, 127, 128 and 254 remain
						continue
					}
					if ends := scale < 8 || scale > 246; (l%2 == 1 || l > 5) && !ends && scale%4 != 3 {
						continue // the other layout has them
					}
					b.scales.fill(func() uint8 { return uint8(scale) })
					for _, rows := range []int{k, 8} {
						if rows == 8 && scale%8 != 7 && scale > 1 && scale < 254 {
							continue // few rows have some of them
						}
						c := newMatrix[float32](k, columns, false, guard)
						for i := 0; i < k; i += rows {
							n := min(rows, k-i)
							ks.mx(&s, c.slice(4, i, 0, n, columns), View{}, a.rows(i, n), b.Scaled, mode{})
						}
						for i, got := range c.elements(t) {
							if want := float32(b.element(i%columns, i/columns)); got != want {
								t.Fatalf("code %#x with scale %d is %g, want %g", *at[uint8](b.Codes, i%columns, i/columns), scale, got, want)
							}
						}
					}
				}
			})
		})
	}
}

// A value that is not a number or is out of range in one row of either operand affects that row or
// column only.
func TestSpecialRows(t *testing.T) {
	const n, k = 70, 96
	changes := []struct {
		f           *format.Element
		code, scale uint8
		k           int
	}{
		{format.E4M3, 0x7f, 127, 40}, {format.E4M3, 0xff, 127, 95}, {format.E5M2, 0x7d, 127, 0}, {format.E5M2, 0x7c, 127, 33}, {format.E4M3, 0x00, 255, 64}, {format.E4M3, 0x38, 255, 31},
		{format.INT8, 0x80, 127, 2}, {format.INT8, 0x00, 255, 2}, {format.E4M3, 0x01, 0, 5}, {format.E4M3, 0x7e, 254, 5}, {format.E4M3, 0x80, 0, 50}, {format.E5M2, 0x01, 3, 70}, {format.INT8, 0x81, 254, 50},
		{format.INT8, 0x80, 5, 33}, {format.INT8, 0x40, 5, 33},
	}
	for i, ch := range changes {
		for pair := range 4 {
			l := 2*pair + (i+pair+pair/2)%2 // the next change has the other layouts
			transposed, inA, m := l&1 == 1, l&2 == 2, 5+l/4*20
			t.Run(fmt.Sprintf("%v,%v", ch, l), func(t *testing.T) {
				r := rand.New(rand.NewPCG(9, uint64(l)))
				a := newScaled(ch.f, m, k, transposed, transposed, finite(r, ch.f), near(r))
				b := newScaled(ch.f, n, k, transposed, transposed, finite(r, ch.f), near(r))
				special, row := b, 67
				if inA {
					special, row = a, 3
				}
				for i := ch.k &^ 31; i < ch.k&^31+32; i++ { // only zeros around it
					*at[uint8](special.Codes, row, i) = 0
				}
				*at[uint8](special.Codes, row, ch.k) = ch.code
				*at[uint8](special.Scales, row, ch.k/32) = ch.scale
				start := results(r, m, n)
				want, bound := reference(start.elements(t), a.element, func(k, j int) float64 { return b.element(j, k) }, m, n, k)
				eachTier(t, func(t *testing.T, ks *kernels) {
					var s Scratch
					got := start.clone()
					ks.mx(&s, got.View, View{}, a.Scaled, b.Scaled, mode{add: true})
					plain, rounded := newMatrix[float32](m, n, false, guard), newMatrix[uint16](m, n, false, 7)
					ks.mx(&s, plain.View, View{}, a.Scaled, b.Scaled, mode{})
					ks.mx(&s, View{}, rounded.View, a.Scaled, b.Scaled, mode{})
					bits, sums := rounded.elements(t), plain.elements(t)
					for i, x := range got.elements(t) {
						y := float64(float32(want[i]))
						if d := math.Abs(float64(x) - y); d > bound[i] || (x == x) != (y == y) {
							t.Fatalf("element %d, %d is %g, want %g", i/n, i%n, x, y)
						}
						if d := math.Abs(float64(sums[i]+*at[float32](start.View, i/n, i%n)) - y); d > bound[i] || (sums[i] == sums[i]) != (y == y) {
							t.Fatalf("element %d, %d is %g before it is added, want %g with it", i/n, i%n, sums[i], y)
						}
						if z := vec.FromBF16(bits[i]); z != vec.FromBF16(vec.ToBF16(sums[i])) && z == z {
							t.Fatalf("element %d, %d is %g rounded to BF16, %g before", i/n, i%n, z, sums[i])
						}
					}
				})
			})
		}
	}
}

// Elements have the same bits whatever the other columns are, also when those take the fallback.
func TestScaledDoesNotDependOnColumns(t *testing.T) {
	const n = 75
	for _, s := range []struct {
		m, k   int
		fa, fb *format.Element
	}{{1, 1100, format.E4M3, format.E5M2}, {3, 1100, format.E5M2, format.E4M3}, {8, 1100, format.E4M3, format.E4M3}, {12, 1100, format.E4M3, format.E5M2}, {13, 1100, format.E4M3, format.E5M2}, {31, 2080, format.E4M3, format.E4M3},
		{40, 1100, format.E4M3, format.E4M3}, {9, 1088, format.INT8, format.INT8}, {20, 1100, format.INT8, format.E4M3}} {
		m, k := s.m, s.k
		eachTier(t, func(t *testing.T, ks *kernels) {
			r := rand.New(rand.NewPCG(9, 10))
			a := newScaled(s.fa, m, k, false, false, finite(r, s.fa), near(r))
			b := newScaled(s.fb, n, k, false, false, finite(r, s.fb), near(r))
			whole, part := newMatrix[float32](m, n, false, guard), newMatrix[float32](m, n, false, guard)
			var s Scratch
			ks.mx(&s, whole.View, View{}, a.Scaled, b.Scaled, mode{})
			*at[uint8](b.Scales, 50, 0) = 1
			ks.mx(&s, part.View, View{}, a.Scaled, b.Scaled, mode{})
			for i := range m {
				for j := range n {
					if j != 50 && *at[float32](part.View, i, j) != *at[float32](whole.View, i, j) {
						t.Fatalf("%d rows: element %d, %d changes with another column", m, i, j)
					}
				}
			}
			for j := 0; j < n-5; j += 7 {
				ks.mx(&s, part.View.slice(4, 0, j, m, 5), View{}, a.Scaled, b.rows(j, 5), mode{})
				for i := range m {
					if got, want := *at[float32](part.View, i, j+2), *at[float32](whole.View, i, j+2); got != want && j+2 != 50 {
						t.Fatalf("%d rows: element %d, %d is %g among few columns and %g among all", m, i, j+2, got, want)
					}
				}
			}
		})
	}
}
