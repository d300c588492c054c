package tensor

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// A packed weight gives the bits of one that is not, on any number of threads, and can be packed again.
func TestPackedGivesTheSameBits(t *testing.T) {
	var p Packed
	for _, threads := range []int{1, 3} {
		ex := NewParallelExec(threads)
		defer ex.Close()
		for _, s := range []struct{ m, n, k int }{{1, 1, 1}, {3, 70, 65}, {30, 100, 192}, {64, 161, 300}, {20, 1100, 64}, {4, 5, 0}} {
			for l, f := range append(codeFormats, codeFormats...) {
				t.Run(fmt.Sprintf("%d,%v,%v,%v", threads, s, f, l > 2), func(t *testing.T) {
					r := rand.New(rand.NewPCG(uint64(s.k), uint64(l)))
					a, b := newQuantised(r, f, s.m, s.k, l > 2), newQuantised(r, f, s.n, s.k, l > 2)
					if s.k > 64 {
						*b.Scales.byteAt(s.n/2, 1) = 255 // NaN: panels cannot hold it
					}
					x, w := random(1, BF16, s.m, s.k), random(2, BF16, s.n, s.k)
					for _, dtype := range floats {
						same := func(what string, want, got Tensor) {
							if !bytes.Equal(want.Bytes(), got.Bytes()) {
								t.Errorf("%s into %v: packed gives other bits", what, dtype)
							}
						}
						want, got := New(dtype, s.m, s.n), New(dtype, s.m, s.n)
						MatMulScaled(ex, want.Mat(), a.Scaled, b.Scaled)
						p.PackScaled(ex, b.Scaled)
						MatMulScaledPacked(ex, got.Mat(), a.Scaled, &p)
						same("codes", want, got)
						MatMul(ex, want.Mat(), x.Mat(), w.Mat().T())
						p.Pack(ex, w.Mat().T())
						MatMulPacked(ex, got.Mat(), x.Mat(), &p)
						same("BF16", want, got)
					}
				})
			}
		}
	}
}

// Neither do products with a packed weight allocate, nor packing again.
func TestPackedAllocatesNothing(t *testing.T) {
	ex := NewExec()
	x, w, y := random(1, BF16, 40, 64), random(2, BF16, 70, 64), New(BF16, 40, 70)
	var p Packed
	p.Pack(ex, w.Mat().T())
	if n := testing.AllocsPerRun(2, func() { MatMulPacked(ex, y.Mat(), x.Mat(), &p); p.Pack(ex, w.Mat().T()) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func TestPackedShapesThatDoNotFitPanic(t *testing.T) {
	ex := NewExec()
	var p Packed
	p.Pack(ex, New(BF16, 8, 5).Mat())
	c, a := New(BF16, 3, 5).Mat(), New(BF16, 3, 8).Mat()
	mustPanic(t, "packed [8, 5]", func() { MatMulPacked(ex, c, New(BF16, 3, 9).Mat(), &p) })
	mustPanic(t, "want bf16", func() { MatMulPacked(ex, c, New(FP32, 3, 8).Mat(), &p) })
	mustPanic(t, "want bf16", func() { p.Pack(ex, New(FP32, 8, 5).Mat()) })
	codes := Scaled{New(UINT8, 3, 8).Mat(), New(UINT8, 3, 1).Mat(), E4M3}
	mustPanic(t, "want uint8", func() { MatMulScaledPacked(ex, c, codes, &p) })
	MatMulPacked(ex, c, a, &p)
}
