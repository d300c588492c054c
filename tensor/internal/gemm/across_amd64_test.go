//go:build amd64 && !purego

package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/cpuid/v2"
)

// Shapes around the kernels' units: 32 columns, two and four steps of k, blocks of 32 of them, runs, strips, panels.
var acrossShapes = []struct{ m, n, k int }{
	{1, 32, 1}, {2, 33, 2}, {3, 63, 3}, {4, 64, 4}, {5, 65, 31}, {6, 40, 32}, {7, 95, 33}, {8, 96, 34}, {9, 97, 35}, {10, 34, 63}, {11, 50, 66},
	{12, 70, 97}, {13, 32, 130}, {17, 45, 128}, {25, 37, 129}, {64, 35, 260}, {8, 100, 300}, {3, 130, 513}, {9, 1090, 257}, {2, 2150, 140}, {8, 4200, 40},
}

// Products across have the bits of packed ones, whatever the layout and the format of a.
func TestAcrossEqualsPacked(t *testing.T) {
	if !cpuid.CPU.Supports(cpuid.AVX512BF16, cpuid.AVX512VBMI) {
		t.Skip("this CPU lacks AVX512-BF16 or VBMI")
	}
	var s Scratch
	check := func(t *testing.T, a, b operand, m, n int) {
		t.Helper()
		if !a.across(b, into{}) {
			t.Fatal("the operands are not taken")
		}
		want, got := newMatrix[float32](m, n, false, guard), newMatrix[float32](m, n, false, guard)
		bf16AVX512.multiply(&s, want.View, View{}, a, b, into{}, nil)
		s.poison()
		if !multiplyAcross(&s, got.View, View{}, a, b) {
			t.Fatal("the product was not computed")
		}
		sums := want.elements(t)
		checkSame(t, got.elements(t), sums)
		rounded := newMatrix[uint16](m, n, false, 7)
		multiplyAcross(&s, View{}, rounded.View, a, b)
		for i, x := range rounded.elements(t) {
			if y := roundBF16(sums[i]); x != y {
				t.Fatalf("element %d is %#x, want %#x", i, x, y)
			}
		}
	}
	for i, sh := range acrossShapes {
		for _, aT := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v,%v", sh, aT), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				a, b := operands[uint16](r, sh.m, sh.n, sh.k, aT, false)
				check(t, operand{View: a.View}, operand{View: b.transposed()}, sh.m, sh.n)
				codes := finite(r, E4M3)
				if i%2 == 1 { // mostly normal numbers, as in training
					codes = func() uint8 { return uint8(r.IntN(2)<<7 | 8 + r.IntN(118)) }
				}
				x, ok := decodersAVX512.operand(newScaled(formats[i%3], sh.m, sh.k, aT, aT, finite(r, formats[i%3]), near(r)).Scaled)
				y, okY := decodersAVX512.operand(newScaled(E4M3, sh.n, sh.k, true, true, codes, near(r)).Scaled)
				if !ok || !okY {
					t.Fatal("the operands are not decodable")
				}
				check(t, x, y, sh.m, sh.n)
				check(t, operand{View: a.View}, y, sh.m, sh.n)
			})
		}
	}
}

// What does not decode exactly, anywhere in either operand, is left to others.
func TestAcrossLeavesWhatIsNotExact(t *testing.T) {
	if !cpuid.CPU.Supports(cpuid.AVX512BF16, cpuid.AVX512VBMI) {
		t.Skip("this CPU lacks AVX512-BF16 or VBMI")
	}
	const m, n, k = 5, 70, 99
	var s Scratch
	for _, ch := range []struct{ code, scale uint8 }{{0x7f, 127}, {0xff, 127}, {0x00, 255}, {0x38, 255}, {0x01, 2}, {0x7e, 254}} {
		for _, row := range []int{0, 31, 32, 40, 69} {
			for _, col := range []int{0, 31, 64, 97, 98} {
				r := rand.New(rand.NewPCG(3, uint64(row)))
				a := newScaled(E4M3, m, k, false, false, finite(r, E4M3), near(r))
				b := newScaled(E4M3, n, k, true, true, finite(r, E4M3), near(r))
				x, _ := decodersAVX512.operand(a.Scaled)
				y, _ := decodersAVX512.operand(b.Scaled)
				c := newMatrix[float32](m, n, false, guard)
				if !multiplyAcross(&s, c.View, View{}, x, y) {
					t.Fatal("the product was not computed")
				}
				*at[uint8](b.Codes, row, col), *at[uint8](b.Scales, row, col/blockLength) = ch.code, ch.scale
				if multiplyAcross(&s, c.View, View{}, x, y) {
					t.Fatalf("code %#x with scale %d at row %d, %d of b was taken for exact", ch.code, ch.scale, row, col)
				}
				*at[uint8](b.Codes, row, col), *at[uint8](b.Scales, row, col/blockLength) = 0, 127
				*at[uint8](a.Codes, row%m, col), *at[uint8](a.Scales, row%m, col/blockLength) = ch.code, ch.scale
				if multiplyAcross(&s, c.View, View{}, x, y) {
					t.Fatalf("code %#x with scale %d at row %d, %d of a was taken for exact", ch.code, ch.scale, row%m, col)
				}
			}
		}
	}
}

// Infinities and NaNs of BF16 show in their columns and nowhere else.
func TestAcrossNaNAndInf(t *testing.T) {
	if !cpuid.CPU.Supports(cpuid.AVX512BF16, cpuid.AVX512VBMI) {
		t.Skip("this CPU lacks AVX512-BF16 or VBMI")
	}
	const m, n, k = 9, 75, 67
	a, b := operands[uint16](rand.New(rand.NewPCG(1, 2)), m, n, k, false, false)
	special := map[int]uint16{0: nan16, 31: 0x7f80, 40: 0xff80, 74: nan16}
	for j, x := range special {
		*at[uint16](b.View, (j+66)%k, j) = x
	}
	var s Scratch
	c := newMatrix[float32](m, n, false, guard)
	if !multiplyAcross(&s, c.View, View{}, operand{View: a.View}, operand{View: b.transposed()}) {
		t.Fatal("the product was not computed")
	}
	for i, x := range c.elements(t) {
		bits, isSpecial := special[i%n]
		finite := !math.IsNaN(float64(x)) && !math.IsInf(float64(x), 0)
		if finite == isSpecial || bits == nan16 && x == x {
			t.Errorf("element %d, %d is %g", i/n, i%n, x)
		}
	}
}
