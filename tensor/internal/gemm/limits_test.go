//go:build linux

package gemm

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"spmoe/tensor/format"
	"spmoe/tensor/internal/vec"
)

// atPageEnd returns bytes zero bytes, followed by a page that faults.
func atPageEnd(t *testing.T, bytes int) unsafe.Pointer {
	page := syscall.Getpagesize()
	usable := (bytes + page - 1) / page * page
	m, err := syscall.Mmap(-1, 0, usable+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	if err := syscall.Mprotect(m[usable:], syscall.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return unsafe.Pointer(&m[usable-bytes : usable][0])
}

// Operands and results end at the end of readable memory.
func TestNoAccessPastViews(t *testing.T) {
	eachTier(t, func(t *testing.T, ks *kernels) {
		for _, s := range []struct{ m, n, k int }{{1, 1, 1}, {13, 35, 21}, {12, 32, 33}, {7, 9, 3}, {30, 65, 50}} {
			for _, l := range layouts {
				t.Run(fmt.Sprintf("%v,%v", s, l), func(t *testing.T) {
					var scratch Scratch
					view := func(elem, rows, cols int, transposed bool) View {
						v := strided(atPageEnd(t, elem*rows*cols), rows, cols, cols, 1)
						if transposed {
							v.RowStride, v.ColStride = 1, rows
						}
						return v
					}
					a, b := view(2, s.m, s.k, l.aT), view(2, s.k, s.n, l.bT)
					r := rand.New(rand.NewPCG(3, 4))
					for _, v := range []View{a, b} {
						for i := range v.Rows {
							for j := range v.Cols {
								*at[uint16](v, i, j) = vec.ToBF16(float32(r.NormFloat64()))
							}
						}
					}
					c, rounded := view(4, s.m, s.n, false), view(2, s.m, s.n, false)
					ks.bf16(&scratch, c, a, b, mode{add: true})
					ks.bf16Rounded(&scratch, rounded, a, b, mode{})
					for i := range s.m {
						for j := range s.n {
							if want := ks.order(a, b, i, j, 0); *at[float32](c, i, j) != want || *at[uint16](rounded, i, j) != vec.ToBF16(want) {
								t.Fatalf("element %d, %d is %g and %#x, want %g", i, j, *at[float32](c, i, j), *at[uint16](rounded, i, j), want)
							}
						}
					}
					a, b = view(4, s.m, s.k, l.aT), view(4, s.k, s.n, l.bT)
					*at[float32](a, s.m-1, s.k-1), *at[float32](b, s.k-1, s.n-1) = 2, 3
					ks.fp32(&scratch, c, a, b, mode{})
					if got := *at[float32](c, s.m-1, s.n-1); got != 6 {
						t.Errorf("FP32: the last element is %g, want 6", got)
					}
				})
			}
		}
	})
}

// The same for codes and scales.
func TestNoAccessPastScaledViews(t *testing.T) {
	eachTier(t, func(t *testing.T, ks *kernels) {
		for _, s := range []struct{ m, n, k int }{{1, 1, 1}, {13, 35, 21}, {12, 32, 33}, {7, 9, 100}, {2, 40, 577}, {30, 65, 300}, {5, 37, 64}, {13, 51, 160}} {
			for _, f := range formats {
				for _, l := range layouts {
					t.Run(fmt.Sprintf("%v,%v,%v", s, f, l), func(t *testing.T) {
						view := func(rows, cols int, transposed bool) View {
							v := strided(atPageEnd(t, rows*cols), rows, cols, cols, 1)
							if transposed {
								v.RowStride, v.ColStride = 1, rows
							}
							return v
						}
						operand := func(rows int, transposed bool) Scaled {
							m := Scaled{view(rows, s.k, transposed), view(rows, (s.k+31)/32, transposed), f}
							for i := range rows {
								for k := range s.k {
									*at[uint8](m.Codes, i, k) = 0x30
									*at[uint8](m.Scales, i, k/32) = 127
								}
							}
							return m
						}
						a, b := operand(s.m, l.aT), operand(s.n, l.bT)
						x := float32(f.Values()[0x30])
						var scratch Scratch
						for _, add := range []bool{false, true} {
							c := strided(atPageEnd(t, 4*s.m*s.n), s.m, s.n, s.n, 1)
							ks.mx(&scratch, c, View{}, a, b, mode{add: add})
							for i := range s.m {
								for j := range s.n {
									if got, want := *at[float32](c, i, j), float32(s.k)*x*x; got != want {
										t.Fatalf("element %d, %d is %g, want %g", i, j, got, want)
									}
								}
							}
						}
					})
				}
			}
		}
	})
}

// The garbage collector can stop a goroutine that only multiplies. If it could not, this test would
// not end.
func TestCollectionsCompleteDuringProducts(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	eachTier(t, func(t *testing.T, ks *kernels) {
		r := rand.New(rand.NewPCG(7, 8))
		a, b := operands[uint16](r, 96, 96, 96, false, true)
		few := a.slice(2, 0, 0, 2, 96)
		qa, qb := newScaled(format.E4M3, 96, 96, false, false, finite(r, format.E4M3), near(r)), newScaled(format.E5M2, 96, 96, true, true, finite(r, format.E5M2), near(r))
		qAcross := newScaled(format.E4M3, 96, 96, true, true, finite(r, format.E4M3), near(r))
		c := results(r, 96, 96)
		var collected atomic.Bool
		go func() {
			for range 5 {
				runtime.GC()
			}
			collected.Store(true)
		}()
		var s Scratch
		for !collected.Load() {
			ks.bf16(&s, c.View, a.View, b.View, mode{})
			ks.bf16(&s, c.View.slice(4, 0, 0, 2, 96), few, b.View, mode{})
			ks.mx(&s, c.View, View{}, qa.Scaled, qb.Scaled, mode{})
			ks.mx(&s, c.View, View{}, qa.Scaled, qAcross.Scaled, mode{})
		}
	})
}
