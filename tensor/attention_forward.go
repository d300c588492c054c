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

// forwardGroup is the number of query rows for which a key block is packed once.
const forwardGroup = 512

// CausalAttention computes o = softmax(scale·q·kᵀ)·v. Each row attends to the rows from s.First up
// to and including itself.
//
// q, k: [batch·seq, heads·keyDim]. v, o: [batch·seq, heads·valueDim]. All have one element type.
// lse: [batch·heads·seq] receives the log-sum-exp of each row for the backward pass. k and v have
// s.KVHeads heads, and q, o and lse s.Queries rows per sequence, if these are given.
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
	s.checkChosen(ex)
	if top != nil && len(top) != len(lse) {
		panic(fmt.Sprintf("tensor: %d largest scores of %d rows", len(top), len(lse)))
	}
	ex.attention = attentionCall{shape: s, q: q, k: k, v: v, o: o, lse: lse, top: top}
	ex.parallel(s.Batch*s.Heads*s.queryBlocks(), s.work(), operands{attention: &ex.attention}, attentionForwardBlocks)
}

// attentionForwardBlocks computes query blocks [from, to), counted over all heads. Those of a head
// count from its end: the last ones have the most keys, and long parts should begin early. Adjacent
// blocks form a group, for which keys and values are packed once.
func attentionForwardBlocks(ex *Exec, call operands, from, to int) {
	c, s := call.attention, call.attention.shape
	mark := ex.Mark()
	defer ex.Release(mark)
	rows, blocks := s.queryRows(), s.queryBlocks()
	group := min(blocks, forwardGroup/rows)
	t := newForwardTile(ex, c.q.dtype, s, min(group*rows, s.queries()))
	for n := from; n < to; {
		p := c.problem(n / blocks)
		end := blocks - n%blocks
		begin := max(end-min(group, to-n), 0)
		t.group(ex, &p, p.before+begin*rows, min(p.before+end*rows, s.Seq))
		n += end - begin
	}
}

// forwardTile is the scratch memory of one thread of CausalAttention.
type forwardTile struct {
	scores, probs Tensor           // of a query block
	keys, values  *retainedOperand // of a key block
	out           Tensor           // [group rows, valueDim]: output before it is divided by sum
	max, sum      []float32        // per row of the group: running max, sum of exponentials relative to it
}

func newForwardTile(ex *Exec, dtype DType, s AttentionShape, group int) forwardTile {
	rows, keys := s.queryRows(), min(forwardKeys, max(s.Seq, s.Extra))
	return forwardTile{
		scores: newTile(ex, FP32, rows, keys), probs: newTile(ex, dtype, rows, keys), out: ex.New(FP32, group, s.ValueDim),
		keys: newRetained(ex, 0, dtype, s.KeyDim, keys), values: newRetained(ex, 1, dtype, keys, s.ValueDim),
		max: ex.New(FP32, group).F32(), sum: ex.New(FP32, group).F32(),
	}
}

// group computes the output of the queries at positions [lo, hi), key block by key block.
func (t *forwardTile) group(ex *Exec, p *headProblem, lo, hi int) {
	clear(t.sum)
	rows := p.queryRows()
	for from := p.firstKey(p.sequence, lo); from < hi; {
		to := min(from/forwardKeys*forwardKeys+forwardKeys, hi)
		t.keys.set(p.k.RowSlice(from, to).T())
		t.values.set(p.v.RowSlice(from, to))
		for at := max(lo, from/rows*rows); at < hi; at += rows {
			t.queryBlock(ex, p, at-lo, at, min(at+rows, hi), from, to)
		}
		from = to
	}
	for from := p.Seq; from < p.keys(); from += forwardKeys {
		to := min(from+forwardKeys, p.keys())
		if first, end := p.chosenKeys(lo, hi, from, to); first >= end {
			continue
		}
		t.keys.set(p.k.RowSlice(from, to).T())
		t.values.set(p.v.RowSlice(from, to))
		for at := lo; at < hi; at += rows {
			t.queryBlock(ex, p, at-lo, at, min(at+rows, hi), from, to)
		}
	}
	t.finish(p, lo, hi)
}

// finish divides the outputs of a group by the sums of exponentials.
func (t *forwardTile) finish(p *headProblem, lo, hi int) {
	out := t.out.Mat()
	for i := range hi - lo {
		row := lo + i - p.before
		if p.top != nil {
			p.top[row] = t.max[i]
		}
		scale := float32(1)
		if p.Sinks != nil {
			t.sum[i], t.max[i], scale = addSink(p.Sinks[p.head], t.max[i], t.sum[i])
		}
		scaleRow(p.o, row, scale/t.sum[i], out.f32Row(i))
		p.lse[row] = t.max[i] + float32(math.Log(float64(t.sum[i])))
	}
}

// queryBlock adds those of keys [from, to) that the queries at positions [lo, hi) see to their
// output, which begins at row first of the group.
func (t *forwardTile) queryBlock(ex *Exec, p *headProblem, first, lo, hi, from, to int) {
	ex.Enter(profile.Attention) // shows progress to a watchdog
	if from < p.Seq {
		to = min(to, hi)
	}
	begin := p.firstKey(p.sequence, lo)
	start := max(from, begin)
	if start > begin { // the output has a sum to add to
		start, to = p.chosenKeys(lo, hi, start, to)
	}
	if start >= to {
		return // these rows belong to later documents, or have chosen other keys
	}
	out := t.out.Slice(first, first+hi-lo).Mat()
	scores := tile(t.scores, hi-lo, to-start)
	probs := tile(t.probs, hi-lo, to-start)
	t.keys.times(ex, scores, p.q.RowSlice(lo-p.before, hi-p.before), p.k.RowSlice(start, to).T(), false)
	for i := range hi - lo {
		row := scores.f32Row(i)
		seen := p.choose(p.seen(lo+i, start, to), lo+i, start, row)
		t.softmaxRow(probs, out, i, first+i, seen, row, p.Scale)
	}
	t.values.times(ex, out, probs, p.v.RowSlice(start, to), start > begin)
}

// softmaxRow sets row i of p to exp(scale·scores - running max) within seen, and to zero elsewhere.
// It is row n of the group. A row without a sum has seen no keys: its running max and its output
// are not defined yet.
func (t *forwardTile) softmaxRow(p, out Matrix, i, n int, seen keyRange, scores []float32, scale float32) {
	if seen.from == seen.to {
		clearRow(p, i)
		return
	}
	scores = scores[seen.from:seen.to]
	top := scale * vec.Max(scores)
	switch {
	case t.sum[n] == 0:
		t.max[n] = top
	case top > t.max[n]:
		down := vec.Exp(t.max[n] - top)
		t.max[n], t.sum[n] = top, t.sum[n]*down
		vec.Scale(out.f32Row(i), down, out.f32Row(i))
	}
	if p.dtype == BF16 {
		t.sum[n] += vec.ExpSumBF16(only(p.bf16Row(i), seen), scale, scores, t.max[n])
	} else {
		t.sum[n] += vec.ExpSum(only(p.f32Row(i), seen), scale, scores, t.max[n])
	}
}
