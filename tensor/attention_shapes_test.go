package tensor

// Attention with scores, heads and shapes at their limits.

import (
	"math"
	"testing"
)

// TestAttentionOfHugeScores: only the distance from a row's largest score matters.
func TestAttentionOfHugeScores(t *testing.T) {
	s := AttentionShape{Batch: 1, Seq: 3, Heads: 1, KeyDim: 1, ValueDim: 1, Scale: 2}
	a := newAttention(newGenerator(FP32, 0), s)
	for i, x := range []float64{-1e18, 1e18, 1e18} {
		set(a.q.Matrix, i, 0, 1e18)
		set(a.k.Matrix, i, 0, x)
		set(a.v.Matrix, i, 0, float64(1+i))
	}
	a.forward()
	same(t, "o", a.o.Matrix, dense{3, 1, []float64{1, 2, 2.5}})
	a.backward()
	for _, m := range []Matrix{a.dq.Matrix, a.dk.Matrix, a.dv.Matrix} {
		for i, x := range values(m).v {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				t.Errorf("gradient %d is %v", i, x)
			}
		}
	}
}
