package tensor

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"spmoe/tensor/format"
)

// TestThreadsGiveTheSameBits runs every product that is split over threads with 1 to 5 of them.
func TestThreadsGiveTheSameBits(t *testing.T) {
	for _, dtype := range []DType{FP32, BF16} {
		for _, shape := range [][3]int{{7, 300, 512}, {64, 512, 96}, {200, 96, 130}, {3, 1030, 300}, {700, 130, 70}, {400, 290, 140}} {
			m, n, k := shape[0], shape[1], shape[2]
			t.Run(fmt.Sprintf("%v/%dx%dx%d", dtype, m, n, k), func(t *testing.T) {
				want := productsOn(t, 1, dtype, m, n, k)
				for _, threads := range []int{2, 5} {
					for i, got := range productsOn(t, threads, dtype, m, n, k) {
						if !slices.Equal(got, want[i]) {
							t.Errorf("%d threads: product %d has other bits than on one", threads, i)
						}
					}
				}
			})
		}
	}
}

// productsOn returns the bytes of all kinds of products of the same random operands.
func productsOn(t *testing.T, threads int, dtype DType, m, n, k int) (results [][]byte) {
	t.Helper()
	ex := NewParallelExec(threads)
	defer ex.Close()
	return productsWith(ex, dtype, m, n, k)
}

func productsWith(ex *Exec, dtype DType, m, n, k int) (results [][]byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(dims ...int) Tensor {
		wide, x := New(FP32, dims...), New(dtype, dims...)
		for i := range wide.F32() {
			wide.F32()[i] = float32(rng.NormFloat64())
		}
		Convert(ex, x.Mat(), wide.Mat())
		return x
	}
	const groups = 3
	x, w, dy := random(m, k), random(groups, n, k), random(m, n)
	ends := []int32{int32(m / 3), int32(m / 3), int32(m)}
	y, dx, dw := New(dtype, m, n), New(dtype, m, k), New(FP32, groups, n, k)
	sum := New(FP32, n, k)
	MatMul(ex, y.Mat(), x.Mat(), w.Index(0).Mat().T())
	results = append(results, slices.Clone(y.Bytes()))
	for range 2 {
		MatMulAdd(ex, sum.Mat(), dy.Mat().T(), x.Mat())
	}
	GroupedMatMul(ex, y.Mat(), x.Mat(), w, ends)
	GroupedDgrad(ex, dx.Mat(), dy.Mat(), w, ends)
	GroupedWgrad(ex, dw, dy.Mat(), x.Mat(), ends, false)
	codes, weights := newQuantized(rng, format.E4M3, m, k, false), newQuantized(rng, format.E5M2, n, k, false)
	scaled := New(FP32, m, n)
	MatMulScaled(ex, scaled.Mat(), codes.Scaled, weights.Scaled)
	MatMulScaledAdd(ex, scaled.Mat(), codes.Scaled, weights.Scaled)
	results = append(append(results, attentionOn(ex, random)...), scaled.Bytes())
	return append(results, sum.Bytes(), y.Bytes(), dx.Bytes(), dw.Bytes())
}

// TestParallelParts: the parts cover all items once, and nested parallel work stays on its thread.
func TestParallelParts(t *testing.T) {
	ex := NewParallelExec(4)
	defer ex.Close()
	for _, n := range []int{1, 2, 3, 4, 5, 100} {
		for round := range 200 {
			done := make([]atomic.Int32, n)
			var calls, nested atomic.Int32
			ex.parallel(n, leastWork, operands{}, func(ex *Exec, _ operands, lo, hi int) {
				calls.Add(1)
				if lo >= hi {
					t.Errorf("%d items: part [%d, %d)", n, lo, hi)
				}
				for i := lo; i < hi; i++ {
					done[i].Add(1)
				}
				ex.parallel(10, leastWork, operands{}, func(_ *Exec, _ operands, lo, hi int) {
					nested.Add(int32(hi - lo))
				})
			})
			for i := range done {
				if got := done[i].Load(); got != 1 {
					t.Fatalf("%d items, round %d: item %d was done %d times", n, round, i, got)
				}
			}
			if most := int32(min(n, 4*partsPerThread)); calls.Load() > most || nested.Load() != 10*calls.Load() {
				t.Fatalf("%d items: %d parts and %d nested items, want at most %d and 10 in each", n, calls.Load(), nested.Load(), most)
			}
		}
	}
}

// TestParallelPanics: a panic in any part reaches the caller after all parts have ended. The
// threads can be used again.
func TestParallelPanics(t *testing.T) {
	ex := NewParallelExec(3)
	defer ex.Close()
	for guilty := range 3 {
		var begun, ended atomic.Int32
		func() {
			defer func() {
				if got := recover(); got != "part" {
					t.Errorf("part %d: recovered %v", guilty, got)
				}
			}()
			ex.parallel(3, leastWork, operands{}, func(_ *Exec, _ operands, lo, hi int) {
				begun.Add(1)
				defer ended.Add(1)
				if lo == guilty {
					panic("part")
				}
			})
		}()
		if begun.Load() < 1 || ended.Load() != begun.Load() {
			t.Errorf("part %d: %d parts of %d had ended", guilty, ended.Load(), begun.Load())
		}
		var sum atomic.Int32
		ex.parallel(3, leastWork, operands{}, func(_ *Exec, _ operands, lo, hi int) { sum.Add(int32(hi)) })
		if sum.Load() != 6 {
			t.Errorf("after the panic of part %d the parts sum to %d", guilty, sum.Load())
		}
	}
}

// attentionOn returns the bytes of an attention and its gradients.
func attentionOn(ex *Exec, random func(dims ...int) Tensor) (results [][]byte) {
	s := AttentionShape{Batch: 2, Seq: 130, Heads: 3, KeyDim: 16, ValueDim: 24, Scale: 0.2}
	rows := s.Batch * s.Seq
	q, k, v, do := random(rows, s.Heads*s.KeyDim), random(rows, s.Heads*s.KeyDim), random(rows, s.Heads*s.ValueDim), random(rows, s.Heads*s.ValueDim)
	like := func(x Tensor) Tensor { return New(x.DType(), x.Dims()...) }
	o, dq, dk, dv := like(v), like(q), like(k), like(v)
	lse := make([]float32, rows*s.Heads)
	CausalAttention(ex, o.Mat(), lse, q.Mat(), k.Mat(), v.Mat(), s)
	CausalAttentionBackward(ex, dq.Mat(), dk.Mat(), dv.Mat(), do.Mat(), q.Mat(), k.Mat(), v.Mat(), o.Mat(), lse, s)
	for _, t := range []Tensor{o, dq, dk, dv} {
		results = append(results, t.Bytes())
	}
	return results
}
