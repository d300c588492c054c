package tensor

// Gradients of weights by spans: a rank with the first half of the sequences and one with the
// second add up to what one rank with all of them gets, bit for bit.

import (
	"fmt"
	"slices"
	"testing"
)

const spanCols, spanVocabulary = 137, 11

// gradients are those that sum over tokens: of a linear layer, a norm and an embedding.
func spanGradients(ex *Exec, dy, x Tensor, ids []int32, span, lo, hi int) []float32 {
	dw, dnorm, dtable := New(FP32, spanCols, spanCols), New(FP32, spanCols), New(FP32, spanVocabulary, spanCols)
	w, rstd := New(FP32, spanCols).F32(), make([]float32, hi-lo)
	for i := range w {
		w[i] = float32(i%7) - 2.5
	}
	a, b := dy.Mat().RowSlice(lo, hi), x.Mat().RowSlice(lo, hi)
	RMSNorm(ex, ex.New(x.dtype, hi-lo, spanCols).Mat(), rstd, b, w, 1e-6)
	Wgrad(ex, dw.Mat(), a, b, span, false)
	RMSNormBackward(ex, ex.New(x.dtype, hi-lo, spanCols).Mat(), dnorm.F32(), a, b, w, rstd, false, span)
	EmbedBackward(ex, dtable.Mat(), span, []Embedded{{a, ids[lo:hi]}, {b, ids[:hi-lo]}})
	return slices.Concat(dw.F32(), dnorm.F32(), dtable.F32())
}

func TestSpansNest(t *testing.T) {
	for _, dtype := range floats {
		for _, span := range []int{1, 7, 33, 64} {
			for _, threads := range []int{1, 2} {
				t.Run(fmt.Sprintf("%v/span=%d/threads=%d", dtype, span, threads), func(t *testing.T) {
					ex := NewParallelExec(threads)
					defer ex.Close()
					const sequences = 8
					dy, x := random(1, dtype, sequences*span, spanCols), random(2, dtype, sequences*span, spanCols)
					ids := make([]int32, sequences*span)
					for i := range ids { // the second use reads from the start: every part must see the same
						ids[i] = int32(i % span * 5 % spanVocabulary)
					}
					want := spanGradients(ex, dy, x, ids, span, 0, sequences*span)
					for parts := 2; parts <= sequences; parts *= 2 {
						got := make([][]float32, parts)
						for p := range parts {
							got[p] = spanGradients(ex, dy, x, ids, span, p*sequences*span/parts, (p+1)*sequences*span/parts)
						}
						for ; len(got) > 1; got = got[:len(got)/2] {
							for p := range len(got) / 2 {
								got[p] = sumOf(got[2*p], got[2*p+1])
							}
						}
						if at := differ(got[0], want); at >= 0 {
							t.Errorf("%d parts: element %d of %d is %g, want %g", parts, at, len(want), got[0][at], want[at])
						}
					}
					chain := spanGradients(ex, dy, x, ids, sequences*span, 0, sequences*span)
					if differ(chain, want) < 0 {
						t.Error("one span gives the same bits as many: the order of the sum does not show in this test")
					}
				})
			}
		}
	}
}

func sumOf(x, y []float32) []float32 {
	sum := make([]float32, len(x))
	for i := range sum {
		sum[i] = x[i] + y[i]
	}
	return sum
}

// differ returns the first element in which x and y differ, or -1.
func differ(x, y []float32) int {
	for i := range x {
		if x[i] != y[i] {
			return i
		}
	}
	return -1
}

// TestEmbedBackwardOrder holds the sum for one id against the definition: rows of a span in order,
// use by use, spans as a tree, the last span shorter than the others.
func TestEmbedBackwardOrder(t *testing.T) {
	const rows, span = 17, 3
	a, b := random(3, FP32, rows, 5), random(4, FP32, rows, 5)
	first, second := make([]int32, rows), make([]int32, rows)
	for i := range rows {
		first[i], second[i] = int32(i*i%3), int32(i%4)
	}
	got := New(FP32, 4, 5)
	EmbedBackward(NewExec(), got.Mat(), span, []Embedded{{a.Mat(), first}, {b.Mat(), second}})
	for id := range int32(4) {
		var sums [][]float32
		for lo := 0; lo < rows; lo += span {
			sum := make([]float32, 5)
			for _, use := range []struct {
				x   Tensor
				ids []int32
			}{{a, first}, {b, second}} {
				for r := lo; r < min(lo+span, rows); r++ {
					if use.ids[r] == id {
						sum = sumOf(sum, use.x.Index(r).F32())
					}
				}
			}
			sums = append(sums, sum)
		}
		if want := treeOf(sums); !slices.Equal(got.Index(int(id)).F32(), want) {
			t.Errorf("gradient of id %d is %v, want %v", id, got.Index(int(id)).F32(), want)
		}
	}
}

// treeOf adds up leaves: the first 2^i of them, with the largest i that leaves some, and the rest.
func treeOf(leaves [][]float32) []float32 {
	if len(leaves) == 1 {
		return leaves[0]
	}
	half := 1
	for 2*half < len(leaves) {
		half *= 2
	}
	return sumOf(treeOf(leaves[:half]), treeOf(leaves[half:]))
}
