//go:build amd64 && !purego

package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"spmoe/tensor/cpu"
	"spmoe/tensor/cpu/cputest"
	"spmoe/tensor/format"
)

// Shapes around the kernels' units: 32 columns, two and four steps of k, blocks of 32 of them,
// runs, strips, panels.
var acrossShapes = []struct{ m, n, k int }{
	{1, 32, 1}, {2, 33, 2}, {3, 63, 3}, {4, 64, 4}, {5, 65, 31}, {6, 40, 32}, {7, 95, 33}, {8, 96, 34}, {9, 97, 35}, {10, 34, 63}, {11, 50, 66},
	{12, 70, 97}, {1, 100, 200}, {2, 64, 385}, {13, 32, 130}, {17, 45, 128}, {25, 37, 129}, {64, 35, 260}, {8, 100, 300}, {3, 130, 513}, {9, 1090, 257}, {2, 2150, 140}, {8, 4200, 40}, {20, 70, 1100},
}

// acrossTiers lists the microkernels with kernels for across products, and the tiers they need.
var acrossTiers = []struct {
	tier        cpu.Tier
	microkernel *microkernel
	decoders    decoders
}{
	{cpu.AVX2, &bf16SplitAVX2, decodersAVX2},
	{cpu.AMX, &bf16AMX, decodersAVX512},
	{cpu.AVX512BF16, &bf16AVX512, decodersAVX512},
}

// acrossTest multiplies with an acrossKernels.
type acrossTest struct {
	*microkernel
	decoders
	s *Scratch
}

func (a *acrossTest) multiply(sum, out View, x, y operand) bool {
	return a.across.of(y).multiply(a.s, a.microkernel, sum, out, x, y)
}

// eachAcross runs f for each of acrossTiers.
func eachAcross(t *testing.T, f func(t *testing.T, a *acrossTest)) {
	for _, tier := range acrossTiers {
		t.Run(tier.tier.String(), func(t *testing.T) {
			cputest.Need(t, tier.tier)
			f(t, &acrossTest{tier.microkernel, tier.decoders, new(Scratch)})
		})
	}
}

// check compares a product with the packed one.
func (a *acrossTest) check(t *testing.T, x, y operand) {
	t.Helper()
	if !a.across.accepts(x, y, mode{}) {
		t.Fatal("the operands are not taken")
	}
	checkPacked(t, a.s, a.microkernel, x, y, func(sum, out View) bool { return a.multiply(sum, out, x, y) })
}

// checkPacked compares a product of x and y by multiply with the packed product.
func checkPacked(t *testing.T, s *Scratch, f *microkernel, x, y operand, multiply func(sum, out View) bool) {
	m, n, k := x.Rows, y.Rows, x.Cols
	t.Helper()
	want, got := newMatrix[float32](m, n, false, guard), newMatrix[float32](m, n, false, guard)
	f.multiply(s, want.View, View{}, x, y, mode{}, nil)
	s.poison()
	if !multiply(got.View, View{}) {
		t.Fatal("the product was not computed")
	}
	sums := want.elements(t)
	// Which of several NaNs results is unspecified.
	bothNaN := func(x, y float32) bool { return x != x && y != y }
	for i, sum := range got.elements(t) {
		if x, y := math.Float32bits(sum), math.Float32bits(sums[i]); x != y && !bothNaN(sum, sums[i]) {
			t.Fatalf("[%d, %d, %d]: element %d, %d is %#x, want %#x", m, n, k, i/n, i%n, x, y)
		}
	}
	rounded := newMatrix[uint16](m, n, false, 7)
	s.poison()
	multiply(View{}, rounded.View)
	for i, x := range rounded.elements(t) {
		if y := roundBF16(sums[i]); x != y && !bothNaN(wideBF16(x), wideBF16(y)) {
			t.Fatalf("element %d is %#x, want %#x", i, x, y)
		}
	}
}

// Across products have the bits of packed ones, for every layout and format of a.
func TestAcrossEqualsPacked(t *testing.T) {
	eachAcross(t, func(t *testing.T, a *acrossTest) {
		for i, sh := range acrossShapes {
			if sh.m > a.across.elements.height {
				continue
			}
			sh.n = max(sh.n, a.across.elements.minRows())
			for _, aT := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v,%v", sh, aT), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(i), 1))
					x, y := operands[uint16](r, sh.m, sh.n, sh.k, aT, false)
					a.check(t, operand{View: x.View}, operand{View: y.transposed()})
					c := newMatrix[float32](sh.m, sh.n, false, guard)
					a.multiply(c.View, View{}, operand{View: x.View}, operand{View: y.transposed()})
					checkOrder(t, c, x.View, y.View, a.packing.tiles)
					codes := finite(r, format.E4M3)
					if i%2 == 1 { // mostly normal numbers, as in training
						codes = func() uint8 { return uint8(r.IntN(2)<<7 | 8 + r.IntN(118)) }
					}
					coded, ok := a.operand(newScaled(formats[i%3], sh.m, sh.k, aT, aT, finite(r, formats[i%3]), near(r)).Scaled)
					weights, okWeights := a.operand(newScaled(format.E4M3, sh.n, sh.k, true, true, codes, near(r)).Scaled)
					if !ok || !okWeights {
						t.Fatal("the operands are not decodable")
					}
					a.check(t, coded, weights)
					a.check(t, operand{View: x.View}, weights)
				})
			}
		}
	})
}

// Operands that do not decode exactly are rejected, wherever the inexact element is.
func TestAcrossRejectsInexact(t *testing.T) {
	const m, n, k = 5, 70, 99
	changes := []struct{ code, scale uint8 }{{0x7f, 127}, {0xff, 127}, {0x00, 255}, {0x38, 255}, {0x01, 2}, {0x7e, 254}}
	eachAcross(t, func(t *testing.T, a *acrossTest) {
		for _, ch := range changes {
			for _, row := range []int{0, 31, 32, 40, 69} {
				for _, col := range []int{0, 31, 64, 97, 98} {
					r := rand.New(rand.NewPCG(3, uint64(row)))
					coded := newScaled(format.E4M3, m, k, false, false, finite(r, format.E4M3), near(r))
					weights := newScaled(format.E4M3, n, k, true, true, finite(r, format.E4M3), near(r))
					x, _ := a.operand(coded.Scaled)
					y, _ := a.operand(weights.Scaled)
					c := newMatrix[float32](m, n, false, guard)
					if !a.multiply(c.View, View{}, x, y) {
						t.Fatal("the product was not computed")
					}
					*at[uint8](weights.Codes, row, col), *at[uint8](weights.Scales, row, col/format.MXBlock) = ch.code, ch.scale
					if a.multiply(c.View, View{}, x, y) {
						t.Fatalf("code %#x with scale %d at row %d, %d of b was taken for exact", ch.code, ch.scale, row, col)
					}
					*at[uint8](weights.Codes, row, col), *at[uint8](weights.Scales, row, col/format.MXBlock) = 0, 127
					*at[uint8](coded.Codes, row%m, col), *at[uint8](coded.Scales, row%m, col/format.MXBlock) = ch.code, ch.scale
					if a.multiply(c.View, View{}, x, y) {
						t.Fatalf("code %#x with scale %d at row %d, %d of a was taken for exact", ch.code, ch.scale, row%m, col)
					}
				}
			}
		}
	})
}

// Scales with which every code is exact give the bits of the packed product. Other scales are left
// to it.
func TestAcrossAnyScale(t *testing.T) {
	const m, n, k = 7, 75, 99
	eachAcross(t, func(t *testing.T, a *acrossTest) {
		r := rand.New(rand.NewPCG(1, 3))
		x, _ := operands[uint16](r, m, n, k, false, false)
		got, want := newMatrix[float32](m, n, false, guard), newMatrix[float32](m, n, false, guard)
		for scale := range 256 {
			weights := newScaled(format.E4M3, n, k, true, true, finite(r, format.E4M3), near(r))
			*at[uint8](weights.Scales, scale%n, scale%3) = uint8(scale)
			y, _ := a.operand(weights.Scaled)
			most := int(y.lookup.maxScale)
			if codes := a.across.codes; codes.maxScale > 0 {
				most = min(most, int(codes.maxScale))
			}
			computed := a.multiply(got.View, View{}, operand{View: x.View}, y)
			if inRange := scale >= int(y.lookup.minScale) && scale <= most; computed != inRange {
				t.Errorf("scale %d: the product was computed: %v, want %v", scale, computed, inRange)
			}
			if computed {
				a.microkernel.multiply(a.s, want.View, View{}, operand{View: x.View}, y, mode{}, nil)
				checkSame(t, got.elements(t), want.elements(t))
			}
		}
	})
}

// Infinities and NaNs of BF16 appear in their columns and nowhere else.
func TestAcrossNaNAndInf(t *testing.T) {
	const m, n, k = 9, 75, 67
	x, y := operands[uint16](rand.New(rand.NewPCG(1, 2)), m, n, k, false, false)
	special := map[int]uint16{0: nan16, 31: 0x7f80, 40: 0xff80, 74: nan16}
	for j, bits := range special {
		*at[uint16](y.View, (j+66)%k, j) = bits
	}
	eachAcross(t, func(t *testing.T, a *acrossTest) {
		c := newMatrix[float32](m, n, false, guard)
		if !a.multiply(c.View, View{}, operand{View: x.View}, operand{View: y.transposed()}) {
			t.Fatal("the product was not computed")
		}
		for i, sum := range c.elements(t) {
			bits, isSpecial := special[i%n]
			finite := !math.IsNaN(float64(sum)) && !math.IsInf(float64(sum), 0)
			if finite == isSpecial || bits == nan16 && sum == sum {
				t.Errorf("element %d, %d is %g", i/n, i%n, sum)
			}
		}
	})
}

// Where no instruction flushes subnormals, any bits of BF16 give the bits of the packed product,
// including the signs of zeros. An odd last element is paired with zeros there, which turn a sum of
// -0 into 0.
func TestAcrossAnyBits(t *testing.T) {
	eachAcross(t, func(t *testing.T, a *acrossTest) {
		for i, sh := range acrossShapes {
			if sh.m > a.across.elements.height {
				continue
			}
			sh.n = max(sh.n, a.across.elements.minRows())
			r := rand.New(rand.NewPCG(uint64(i), 5))
			x, y := operands[uint16](r, sh.m, sh.n, sh.k, false, false)
			for _, tiny := range []bool{true, false} {
				bits := func() uint16 { return uint16(r.Uint32()) }
				if tiny { // products and sums around the smallest numbers
					bits = func() uint16 { return uint16(r.IntN(2)<<15 | r.IntN(0x2100)) }
				}
				x.fill(bits)
				y.fill(bits)
				a.check(t, operand{View: x.View}, operand{View: y.transposed()})
			}
		}
	})
}

// Products that the kernels cannot compute are refused: added to c, with spans, too narrow, in
// other layouts, or with too many rows.
func TestAcrossRefuses(t *testing.T) {
	eachAcross(t, func(t *testing.T, a *acrossTest) {
		taken := func(m, n int, bT bool, how mode) bool {
			x, y := operands[uint16](rand.New(rand.NewPCG(1, 2)), m, n, 40, false, bT)
			return a.across.accepts(operand{View: x.View}, operand{View: y.transposed()}, how)
		}
		if !taken(8, 64, false, mode{}) || !taken(8, 64, false, mode{stream: true}) {
			t.Error("a product was refused")
		}
		if taken(8, 64, false, mode{add: true}) || taken(8, 64, false, mode{span: 32}) ||
			taken(8, a.across.elements.minRows()-1, false, mode{}) || taken(8, 64, true, mode{}) || taken(a.across.elements.height+1, 64, false, mode{}) {
			t.Error("a product was taken")
		}
	})
}
