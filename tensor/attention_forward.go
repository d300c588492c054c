package tensor

import (
	"fmt"
	"math"

	"spmoe/tensor/internal/vec"
	"spmoe/tensor/profile"
)

// forwardKeys is the number of keys in a block of the forward pass. With 128 query rows, a tile
// takes 384 KB of L2: scores in FP32 and probabilities in BF16.
const forwardKeys = 512

// CausalAttention computes o = softmax(scale·q·kᵀ)·v. Each row attends to the rows from s.First up
// to and including itself.
//
// q, k: [batch·seq, heads·keyDim]. v, o: [batch·seq, heads·valueDim]. All have one element type.
// lse: [batch·heads·seq] receives the log-sum-exp of each row for the backward pass.
//
// The softmax is online. A row's output and the sum of its exponentials are FP32 sums over keys in
// ascending order, block by block. Exponentials are relative to the running max, which is the
// largest score of the blocks so far. A block with a larger one first scales both sums down.
func CausalAttention(ex *Exec, o Matrix, lse []float32, q, k, v Matrix, s AttentionShape) {
	CausalAttentionTop(ex, o, lse, nil, q, k, v, s)
}

// CausalAttentionTop is CausalAttention that also sets top, [batch·heads·seq], to the largest of
// each row's scores scale·q·k. A nil top is not set.
func CausalAttentionTop(ex *Exec, o Matrix, lse, top []float32, q, k, v Matrix, s AttentionShape) {
	defer ex.ProfilingRows(profile.Attention, q.Rows, q.Cols).End()
	s.check(q, k, v, o, lse)
	if top != nil && len(top) != len(lse) {
		panic(fmt.Sprintf("tensor: %d largest scores of %d rows", len(top), len(lse)))
	}
	ex.attention = attentionCall{shape: s, q: q, k: k, v: v, o: o, lse: lse, top: top}
	ex.parallel(s.Batch*s.Heads*s.queryBlocks(), s.work(), operands{attention: &ex.attention}, attentionForwardBlocks)
}

// attentionForwardBlocks computes query blocks [from, to), counted over all heads. Those of a head
// count from its end: the last ones have the most keys, and long parts should begin early.
func attentionForwardBlocks(ex *Exec, call operands, from, to int) {
	c, s := call.attention, call.attention.shape
	mark := ex.Mark()
	defer ex.Release(mark)
	rows, blocks := s.queryRows(), s.queryBlocks()
	t := newForwardTile(ex, c.q.dtype, s)
	for n := from; n < to; n++ {
		p := c.problem(n / blocks)
		lo := (blocks - 1 - n%blocks) * rows
		t.queryBlock(ex, &p, lo, min(lo+rows, s.Seq))
	}
}

// forwardTile is the scratch memory of one thread of CausalAttention.
type forwardTile struct {
	scores, probs Tensor
	out           Tensor    // [query rows, valueDim]: output before it is divided by sum
	max, sum      []float32 // per query row: running max, sum of exponentials relative to it
}

func newForwardTile(ex *Exec, dtype DType, s AttentionShape) forwardTile {
	rows, keys := s.queryRows(), min(forwardKeys, s.Seq)
	return forwardTile{
		scores: ex.New(FP32, rows*keys), probs: ex.New(dtype, rows*keys), out: ex.New(FP32, rows, s.ValueDim),
		max: ex.New(FP32, rows).F32(), sum: ex.New(FP32, rows).F32(),
	}
}

// queryBlock computes the output of query rows [lo, hi).
func (t *forwardTile) queryBlock(ex *Exec, p *headProblem, lo, hi int) {
	ex.Enter(profile.Attention) // shows progress to a watchdog
	out := t.out.Slice(0, hi-lo).Mat()
	clear(t.sum)
	begin := p.firstKey(p.sequence, lo)
	for from := begin; from < hi; {
		to := min(from/forwardKeys*forwardKeys+forwardKeys, hi)
		scores, probs := tile(t.scores, hi-lo, to-from), tile(t.probs, hi-lo, to-from)
		matMul(ex, scores, p.q.RowSlice(lo, hi), p.k.RowSlice(from, to).T(), false)
		for i := range hi - lo {
			t.softmaxRow(probs, out, i, p.seen(lo+i, from, to), scores.f32Row(i), p.Scale)
		}
		matMul(ex, out, probs, p.v.RowSlice(from, to), from > begin)
		from = to
	}
	for i := range hi - lo {
		scaleRow(p.o, lo+i, 1/t.sum[i], out.f32Row(i))
		p.lse[lo+i] = t.max[i] + float32(math.Log(float64(t.sum[i])))
		if p.top != nil {
			p.top[lo+i] = t.max[i]
		}
	}
}

// softmaxRow sets row i of p to exp(scale·scores - running max) within seen, and to zero elsewhere.
// A row without a sum has seen no keys: its running max and its output are not defined yet.
func (t *forwardTile) softmaxRow(p, out Matrix, i int, seen keyRange, scores []float32, scale float32) {
	if seen.from == seen.to {
		clearRow(p, i)
		return
	}
	scores = scores[seen.from:seen.to]
	top := scale * vec.Max(scores)
	switch {
	case t.sum[i] == 0:
		t.max[i] = top
	case top > t.max[i]:
		down := vec.Exp(t.max[i] - top)
		t.max[i], t.sum[i] = top, t.sum[i]*down
		vec.Scale(out.f32Row(i), down, out.f32Row(i))
	}
	if p.dtype == BF16 {
		t.sum[i] += vec.ExpSumBF16(only(p.bf16Row(i), seen), scale, scores, t.max[i])
	} else {
		t.sum[i] += vec.ExpSum(only(p.f32Row(i), seen), scale, scores, t.max[i])
	}
}
