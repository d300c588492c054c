//go:build amd64 && !purego

package gemm

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"spmoe/tensor/internal/vec"
)

// Transposed products have the bits of packed ones: around whole tiles, several strips, several
// runs along k, any layout of a, b in place or not.
func TestTransposedEqualsPacked(t *testing.T) {
	needsAMX(t)
	f, s := &bf16AMX, new(Scratch)
	shapes := []struct{ m, n, k int }{{1, 1, 1}, {1, 16, 32}, {2, 17, 31}, {3, 31, 33}, {5, 32, 64}, {8, 33, 96}, {15, 48, 100}, {16, 64, 512}, {17, 100, 513}, {31, 130, 545}, {32, 1030, 160}, {4, 600, 1056}, {9, 50, 4128}, {7, 97, 1100}, {12, 70, 700}, {20, 70, 700}}
	for i, sh := range shapes {
		if shortened(sh.m*sh.n*sh.k, 1000000) {
			continue
		}
		for _, aT := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v,%v", sh, aT), func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(i), 7))
				x, _ := operands[uint16](r, sh.m, sh.n, sh.k, aT, true)
				y := lines(sh.n, sh.k).fill(func() uint16 { return vec.ToBF16(r.Float32() - 0.5) })
				// Not aligned to cache lines.
				_, apart := operands[uint16](r, sh.m, sh.n, sh.k, aT, true)
				coded, _ := decodersAVX512.operand(newScaled(formats[i%2], sh.m, sh.k, aT, aT, finite(r, formats[i%2]), near(r)).Scaled)
				weights, _ := decodersAVX512.operand(newScaled(formats[i/2%2], sh.n, sh.k, false, false, finite(r, formats[i/2%2]), near(r)).Scaled)
				for _, a := range []operand{{View: x.View}, coded} {
					for _, b := range []operand{{View: y.View}, {View: apart.transposed()}, weights} {
						if !f.transposes(a, b, mode{}) {
							t.Fatal("the operands are not taken")
						}
						checkPacked(t, s, f, a, b, func(sum, out View) bool { return f.multiplyTransposed(s, sum, out, a, b) })
					}
				}
			})
		}
	}
}

// Pointers that the garbage collector sees during a product point into the operands. They must not
// point past them, where there may be no Go memory.
func TestTransposedPointsIntoOperands(t *testing.T) {
	needsAMX(t)
	const m, n, k = 8, 128, 64
	s := new(Scratch)
	r := rand.New(rand.NewPCG(5, 6))
	a, _ := operands[uint16](r, m, n, k, false, true)
	b := lines(n, k)
	c := newMatrix[float32](m, n, false, guard)
	if !bf16AMX.multiplyTransposed(s, c.View, View{}, operand{View: a.View}, operand{View: b.View}) {
		t.Fatal("the product was not computed")
	}
	first, last := uintptr(b.Ptr), uintptr(b.slice(2, n-1, 0, 1, k).Ptr)
	if at := uintptr(s.calls.tile.a); at < first || at > last {
		t.Errorf("rows begin at %#x, %#x is left, the last row is at %#x", first, at, last)
	}
}

// lines returns a matrix whose rows are aligned to cache lines, with guards in between.
func lines(rows, cols int) matrix[uint16] {
	stride := (cols + gap + 31) / 32 * 32
	memory := make([]uint16, (rows+1)*stride+line)
	for i := range memory {
		memory[i] = nan16
	}
	m := matrix[uint16]{memory: memory, guard: nan16}
	first := 0
	for uintptr(unsafe.Pointer(&memory[first]))%line != 0 {
		first++
	}
	m.View = strided(unsafe.Pointer(&memory[first]), rows, cols, stride, 1)
	return m
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
		if y := vec.ToBF16(sums[i]); x != y && !bothNaN(vec.FromBF16(x), vec.FromBF16(y)) {
			t.Fatalf("element %d is %#x, want %#x", i, x, y)
		}
	}
}
