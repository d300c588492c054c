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
)

// atPageEnd returns bytes bytes, all 0, behind which lies a page that faults.
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

// Operands and results end where memory does.
func TestNothingBehindTheViewsIsTouched(t *testing.T) {
	eachTier(t, func(t *testing.T, ks *kernels) {
		for _, s := range []struct{ m, n, k int }{{1, 1, 1}, {13, 35, 21}, {12, 32, 33}, {7, 9, 3}, {30, 65, 50}} {
			for _, l := range layouts {
				t.Run(fmt.Sprintf("%v,%v", s, l), func(t *testing.T) {
					var scratch Scratch
					view := func(elem, rows, cols int, transposed bool) View {
						v := View{atPageEnd(t, elem*rows*cols), rows, cols, cols, 1}
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
								*at[uint16](v, i, j) = roundBF16(float32(r.NormFloat64()))
							}
						}
					}
					c, rounded := view(4, s.m, s.n, false), view(2, s.m, s.n, false)
					ks.bf16(&scratch, c, a, b, true)
					ks.bf16Rounded(&scratch, rounded, a, b)
					for i := range s.m {
						for j := range s.n {
							if want := dotBF16(a, b, i, j, 0); *at[float32](c, i, j) != want || *at[uint16](rounded, i, j) != roundBF16(want) {
								t.Fatalf("element %d, %d is %g and %#x, want %g", i, j, *at[float32](c, i, j), *at[uint16](rounded, i, j), want)
							}
						}
					}
					a, b = view(4, s.m, s.k, l.aT), view(4, s.k, s.n, l.bT)
					*at[float32](a, s.m-1, s.k-1), *at[float32](b, s.k-1, s.n-1) = 2, 3
					ks.fp32(&scratch, c, a, b, false)
					if got := *at[float32](c, s.m-1, s.n-1); got != 6 {
						t.Errorf("FP32: the last element is %g, want 6", got)
					}
				})
			}
		}
	})
}

func TestWarmCallsAllocateNothing(t *testing.T) {
	eachTier(t, func(t *testing.T, ks *kernels) {
		r := rand.New(rand.NewPCG(5, 6))
		a, b := operands[uint16](r, 20, 50, 600, false, true)
		c, rounded := results(r, 20, 50), newMatrix[uint16](20, 50, false, 0)
		fa, fb := operands[float32](r, 20, 50, 60, true, false)
		var s Scratch
		call := func() {
			ks.bf16(&s, c.View, a.View, b.View, true)
			ks.bf16Rounded(&s, rounded.View, a.View, b.View)
			ks.fp32(&s, c.View, fa.View, fb.View, true)
		}
		if n := testing.AllocsPerRun(3, call); n != 0 {
			t.Errorf("%v allocations a call, want 0", n)
		}
	})
}

// The collector stops a goroutine that does nothing but multiply: if it could not, the work would go on for ever.
func TestCollectionsCompleteDuringProducts(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	eachTier(t, func(t *testing.T, ks *kernels) {
		r := rand.New(rand.NewPCG(7, 8))
		a, b := operands[uint16](r, 96, 96, 96, false, false)
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
			ks.bf16(&s, c.View, a.View, b.View, false)
		}
	})
}
