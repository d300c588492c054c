package tensor

// Attention with scores, heads and shapes at their limits.

import (
	"fmt"
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

// TestGroupedHeads: a head of keys and values that several heads of queries share gives the bits of
// copies of it.
func TestGroupedHeads(t *testing.T) {
	eachAttention(t, func(t *testing.T, g *generator, s AttentionShape) {
		const group = 3
		few := s
		few.Heads, few.KVHeads = group*s.Heads, s.Heads
		many := few
		many.KVHeads = 0
		a, b := newAttention(g, many), newAttention(g, many)
		for _, r := range [][2]*region{{&a.q, &b.q}, {&a.do, &b.do}} {
			Convert(a.ex, r[1].Matrix, r[0].Matrix)
		}
		a.shape = few
		a.k, a.v = g.matrix(b.k.Rows, s.Heads*s.KeyDim), g.matrix(b.v.Rows, s.Heads*s.ValueDim)
		for h := range many.Heads {
			at := h / group
			Convert(a.ex, b.k.ColSlice(h*s.KeyDim, (h+1)*s.KeyDim), a.k.ColSlice(at*s.KeyDim, (at+1)*s.KeyDim))
			Convert(a.ex, b.v.ColSlice(h*s.ValueDim, (h+1)*s.ValueDim), a.v.ColSlice(at*s.ValueDim, (at+1)*s.ValueDim))
		}
		for _, x := range []*attention{a, b} {
			x.forward()
			x.backward()
		}
		same(t, "o", a.o.Matrix, values(b.o.Matrix))
		same(t, "lse", vectorOf(a.lse), values(vectorOf(b.lse)))
		same(t, "dq", a.dq.Matrix, values(b.dq.Matrix))
		same(t, "dk", a.dk.Matrix, values(b.dk.Matrix))
		same(t, "dv", a.dv.Matrix, values(b.dv.Matrix))
	})
}

// TestLastQueries: the last rows of a sequence have the output that they have among all rows, in
// FP32 with the same bits.
func TestLastQueries(t *testing.T) {
	eachAttention(t, func(t *testing.T, g *generator, s AttentionShape) {
		a := newAttention(g, s)
		a.forward()
		for _, n := range []int{1, 3, s.Seq/2 + 1, s.Seq} {
			n = min(n, s.Seq)
			last := newAttention(g, AttentionShape{Batch: s.Batch, Seq: n, Heads: s.Heads, KeyDim: s.KeyDim, ValueDim: s.ValueDim})
			last.k, last.v, last.shape = a.k, a.v, s
			last.shape.Queries = n
			for b := range s.Batch {
				Convert(a.ex, last.q.RowSlice(b*n, (b+1)*n), a.q.RowSlice((b+1)*s.Seq-n, (b+1)*s.Seq))
			}
			last.forward()
			for b := range s.Batch {
				want, got := values(a.o.RowSlice((b+1)*s.Seq-n, (b+1)*s.Seq)), last.o.RowSlice(b*n, (b+1)*n)
				if g.dtype == FP32 {
					same(t, fmt.Sprintf("the last %d rows", n), got, want)
				} else {
					near(t, fmt.Sprintf("the last %d rows", n), got, want, absolute(8*unit(BF16)))
				}
				for h := range s.Heads {
					for i := range n {
						if x, y := last.lse[(b*s.Heads+h)*n+i], a.lse[(b*s.Heads+h+1)*s.Seq-n+i]; math.Abs(float64(x-y)) > 1e-5 {
							t.Errorf("the last %d rows: lse %v of head %d, row %d, want %v", n, x, h, i, y)
						}
					}
				}
			}
			last.o.intact(t)
			if n < s.Seq {
				last.dk, last.dv = a.dk, a.dv
				mustPanic(t, "has no gradient", last.backward)
			}
		}
	})
}

func TestAttentionOfSeveralTypesPanics(t *testing.T) {
	s := attentionShapes[1]
	for want, spoil := range map[string]func(a, other *attention){
		"over fp32, bf16 and fp32 into fp32":       func(a, other *attention) { a.k = other.k },
		"over fp32, fp32 and fp32 into bf16":       func(a, other *attention) { a.o = other.o },
		"attention of fp32 with gradients of bf16": func(a, other *attention) { a.dq, a.dk, a.dv, a.do = other.dq, other.dk, other.dv, other.do },
	} {
		a, other := newAttention(newGenerator(FP32, 0), s), newAttention(newGenerator(BF16, 0), s)
		spoil(a, other)
		mustPanic(t, want, a.backward)
	}
}
