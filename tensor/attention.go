package tensor

import (
	"fmt"
	"math"

	"spmoe/tensor/internal/vec"
	"spmoe/tensor/profile"
)

// Causal attention in blocks of query rows. Only the scores of one block against its keys are in
// memory at a time. The backward pass recomputes them from the saved log-sum-exp of each row.

// queryBlock is the number of query rows in a block.
const queryBlock = 64

// AttentionShape describes a batch of causal attention problems.
type AttentionShape struct {
	Batch, Seq, Heads int
	KeyDim, ValueDim  int     // per head
	Scale             float32 // multiplies the scores before the softmax

	// First, [batch·seq], is the first position in its sequence that each row attends to. With
	// several documents packed into a sequence, it is the start of the row's document. It does not
	// decrease within a sequence. It lies between 0 and the row's own position. Nil means 0 for all
	// rows.
	First []int32
}

// head returns the rows of sequence b and the columns of head h, with dim columns per head.
func (s AttentionShape) head(m Matrix, b, h, dim int) Matrix {
	return m.RowSlice(b*s.Seq, (b+1)*s.Seq).ColSlice(h*dim, (h+1)*dim)
}

// first returns the first position that row i of sequence b attends to.
func (s AttentionShape) first(b, i int) int {
	if s.First == nil {
		return 0
	}
	return int(s.First[b*s.Seq+i])
}

// checkFirst panics if First breaks the rules in its comment.
func (s AttentionShape) checkFirst() {
	if s.First == nil {
		return
	}
	if len(s.First) != s.Batch*s.Seq {
		panic(fmt.Sprintf("tensor: attention over %d sequences of %d rows and First with %d positions, want one per row", s.Batch, s.Seq, len(s.First)))
	}
	for b := range s.Batch {
		before := 0
		for i := range s.Seq {
			first := s.first(b, i)
			if first < before || first > i {
				panic(fmt.Sprintf("tensor: row %d of sequence %d attends from position %d, the row before it from %d: First must not decrease or exceed the row", i, b, first, before))
			}
			before = first
		}
	}
}

func (s AttentionShape) check(q, k, v, o Matrix, lse []float32) {
	s.checkFirst()
	rows := s.Batch * s.Seq
	if q.Rows != rows || k.Rows != rows || v.Rows != rows || o.Rows != rows ||
		q.Cols != s.Heads*s.KeyDim || k.Cols != q.Cols || v.Cols != s.Heads*s.ValueDim || o.Cols != v.Cols ||
		len(lse) != rows*s.Heads {
		s.First = nil
		panic(fmt.Sprintf("tensor: attention %+v over q [%d, %d], k [%d, %d], v [%d, %d], o [%d, %d], lse [%d]",
			s, q.Rows, q.Cols, k.Rows, k.Cols, v.Rows, v.Cols, o.Rows, o.Cols, len(lse)))
	}
	if k.dtype != q.dtype || v.dtype != q.dtype || o.dtype != q.dtype {
		panic(fmt.Sprintf("tensor: attention over %v, %v and %v into %v, want one type", q.dtype, k.dtype, v.dtype, o.dtype))
	}
}

// CausalAttention computes o = softmax(scale·q·kᵀ)·v. Each row attends to the rows from s.First up
// to and including itself.
//
// q, k: [batch·seq, heads·keyDim]. v, o: [batch·seq, heads·valueDim]. All have one element type.
// lse: [batch·heads·seq] receives the log-sum-exp of each row for the backward pass.
func CausalAttention(ex *Exec, o Matrix, lse []float32, q, k, v Matrix, s AttentionShape) {
	defer ex.ProfilingRows(profile.Attention, q.Rows, q.Cols).End()
	s.check(q, k, v, o, lse)
	ex.attention = attentionCall{shape: s, q: q, k: k, v: v, o: o, lse: lse}
	ex.parallel(s.Batch*s.Heads, s.work(), operands{attention: &ex.attention}, attentionHeads)
}

// attentionCall holds the arguments that the threads of an attention kernel share.
type attentionCall struct {
	shape                      AttentionShape
	q, k, v, o, dq, dk, dv, do Matrix
	lse                        []float32
}

// work estimates the operations of a forward pass.
func (s AttentionShape) work() int {
	return s.Batch * s.Heads * s.Seq * s.Seq * (s.KeyDim + s.ValueDim)
}

// attentionHeads computes heads [from, to), counted over all sequences.
func attentionHeads(ex *Exec, call operands, from, to int) {
	c, s := call.attention, call.attention.shape
	mark := ex.Mark()
	defer ex.Release(mark)
	block := min(queryBlock, s.Seq)
	scores, probs := ex.New(FP32, block*s.Seq), ex.New(c.q.dtype, block*s.Seq)
	out := ex.New(FP32, block, s.ValueDim)
	for n := from; n < to; n++ {
		b, h := n/s.Heads, n%s.Heads
		qh, kh := s.head(c.q, b, h, s.KeyDim), s.head(c.k, b, h, s.KeyDim)
		vh, oh := s.head(c.v, b, h, s.ValueDim), s.head(c.o, b, h, s.ValueDim)
		rowLSE := c.lse[n*s.Seq:]
		for lo := 0; lo < s.Seq; lo += block {
			hi := min(lo+block, s.Seq)
			at := s.firstKey(b, lo)
			sc, p := tile(scores, hi-lo, hi-at), tile(probs, hi-lo, hi-at)
			MatMul(ex, sc, qh.RowSlice(lo, hi), kh.RowSlice(at, hi).T())
			inverse := ex.scratchRow(3, hi-lo)
			for i := range hi - lo {
				seen := keyRange{s.first(b, lo+i) - at, lo + i + 1 - at}
				inverse[i] = softmaxRow(p, i, seen, sc.f32Row(i), s.Scale, &rowLSE[lo+i])
			}
			ob := out.Slice(0, hi-lo).Mat()
			MatMul(ex, ob, p, vh.RowSlice(at, hi))
			for i := range hi - lo {
				scaleRow(oh, lo+i, inverse[i], ob.f32Row(i))
			}
		}
	}
}

// keyRange is the range [from, to) of keys that a row attends to, relative to its block's first
// key.
type keyRange struct{ from, to int }

// firstKey returns the first key for the block of query rows that starts at lo. It is a multiple of
// queryBlock, so the operands have the same alignment with First as without.
func (s AttentionShape) firstKey(b, lo int) int { return s.first(b, lo) / queryBlock * queryBlock }

// tile views the first rows·cols elements of a flat scratch tensor as a matrix.
func tile(t Tensor, rows, cols int) Matrix { return t.Slice(0, rows*cols).Reshape(rows, cols).Mat() }

// softmaxRow sets row i of p to exp(scale·scores - max) within seen, and to zero elsewhere. It
// returns the inverse of the row's sum. The caller scales the output by it.
func softmaxRow(p Matrix, i int, seen keyRange, scores []float32, scale float32, lse *float32) float32 {
	scores = scores[seen.from:seen.to]
	top := scale * vec.Max(scores)
	var sum float32
	if p.dtype == BF16 {
		sum = vec.ExpSumBF16(only(p.bf16Row(i), seen), scale, scores, top)
	} else {
		sum = vec.ExpSum(only(p.f32Row(i), seen), scale, scores, top)
	}
	*lse = top + float32(math.Log(float64(sum)))
	return 1 / sum
}

// only returns the seen part of a row and clears the rest.
func only[T uint16 | float32](row []T, seen keyRange) []T {
	clear(row[:seen.from])
	clear(row[seen.to:])
	return row[seen.from:seen.to]
}

// scaleRow sets row i of dst to a·x.
func scaleRow(dst Matrix, i int, a float32, x []float32) {
	if dst.dtype == BF16 {
		vec.ScaleBF16(dst.bf16Row(i), a, x)
	} else {
		vec.Scale(dst.f32Row(i), a, x)
	}
}

// CausalAttentionBackward computes dq, dk and dv from do and the operands of CausalAttention.
//
// With p = exp(scale·q·kᵀ - lse): dv = pᵀ·do, dp = do·vᵀ, ds = scale·p·(dp - rowsum(do·o)), dq =
// ds·k, dk = dsᵀ·q. The sums over query blocks are in FP32.
func CausalAttentionBackward(ex *Exec, dq, dk, dv, do, q, k, v, o Matrix, lse []float32, s AttentionShape) {
	defer ex.ProfilingRows(profile.Attention, q.Rows, q.Cols).End()
	s.check(q, k, v, o, lse)
	s.check(dq, dk, dv, do, lse)
	if do.dtype != o.dtype {
		panic(fmt.Sprintf("tensor: attention of %v with gradients of %v", o.dtype, do.dtype))
	}
	ex.attention = attentionCall{shape: s, q: q, k: k, v: v, o: o, dq: dq, dk: dk, dv: dv, do: do, lse: lse}
	ex.parallel(s.Batch*s.Heads, 2*s.work(), operands{attention: &ex.attention}, attentionBackwardHeads)
}

// attentionBackwardHeads computes heads [from, to), counted over all sequences.
func attentionBackwardHeads(ex *Exec, call operands, from, to int) {
	c, s := call.attention, call.attention.shape
	mark := ex.Mark()
	defer ex.Release(mark)
	block := min(queryBlock, s.Seq)
	t := backwardTiles{
		scores: ex.New(FP32, block*s.Seq), dprobs: ex.New(FP32, block*s.Seq),
		probs: ex.New(c.q.dtype, block*s.Seq), dscores: ex.New(c.q.dtype, block*s.Seq),
		dk: ex.New(FP32, s.Seq, s.KeyDim), dv: ex.New(FP32, s.Seq, s.ValueDim),
	}
	for n := from; n < to; n++ {
		b, h := n/s.Heads, n%s.Heads
		p := headProblem{
			q: s.head(c.q, b, h, s.KeyDim), k: s.head(c.k, b, h, s.KeyDim), dq: s.head(c.dq, b, h, s.KeyDim),
			v: s.head(c.v, b, h, s.ValueDim), o: s.head(c.o, b, h, s.ValueDim), do: s.head(c.do, b, h, s.ValueDim),
			lse: c.lse[n*s.Seq:][:s.Seq], sequence: b,
		}
		t.dk.Zero()
		t.dv.Zero()
		for lo := 0; lo < s.Seq; lo += block {
			t.backward(ex, p, s, lo, min(lo+block, s.Seq))
		}
		Convert(ex, s.head(c.dk, b, h, s.KeyDim), t.dk.Mat())
		Convert(ex, s.head(c.dv, b, h, s.ValueDim), t.dv.Mat())
	}
}

// headProblem holds the operands of one head of one sequence.
type headProblem struct {
	q, k, v, o, do, dq Matrix
	lse                []float32
	sequence           int
}

// backwardTiles is the scratch memory of CausalAttentionBackward.
type backwardTiles struct {
	scores, dprobs Tensor // of one query block, FP32
	probs, dscores Tensor // probabilities and score gradients of that block, in the operands' type
	dk, dv         Tensor
}

// backward handles query rows [lo, hi) of one head.
func (t backwardTiles) backward(ex *Exec, p headProblem, s AttentionShape, lo, hi int) {
	at := s.firstKey(p.sequence, lo)
	scores, dprobs := tile(t.scores, hi-lo, hi-at), tile(t.dprobs, hi-lo, hi-at)
	probs, dscores := tile(t.probs, hi-lo, hi-at), tile(t.dscores, hi-lo, hi-at)
	q, do, o := p.q.RowSlice(lo, hi), p.do.RowSlice(lo, hi), p.o.RowSlice(lo, hi)
	k, v := p.k.RowSlice(at, hi), p.v.RowSlice(at, hi)
	MatMul(ex, scores, q, k.T())
	MatMul(ex, dprobs, do, v.T())
	for i := range hi - lo {
		seen := keyRange{s.first(p.sequence, lo+i) - at, lo + i + 1 - at}
		softmaxBackwardRow(probs, dscores, i, seen, s.Scale, scores.f32Row(i), dprobs.f32Row(i), p.lse[lo+i], dotRow(do, o, i))
	}
	MatMulAdd(ex, t.dv.Slice(at, hi).Mat(), probs.T(), do)
	MatMul(ex, p.dq.RowSlice(lo, hi), dscores, k)
	MatMulAdd(ex, t.dk.Slice(at, hi).Mat(), dscores.T(), q)
}

// softmaxBackwardRow applies vec.SoftmaxBackward to row i of p and ds within seen, and sets the
// rest to zero.
func softmaxBackwardRow(p, ds Matrix, i int, seen keyRange, scale float32, scores, dp []float32, lse, delta float32) {
	scores, dp = scores[seen.from:seen.to], dp[seen.from:seen.to]
	if p.dtype == BF16 {
		vec.SoftmaxBackwardBF16(only(p.bf16Row(i), seen), only(ds.bf16Row(i), seen), scale, scores, dp, lse, delta)
		return
	}
	vec.SoftmaxBackward(only(p.f32Row(i), seen), only(ds.f32Row(i), seen), scale, scores, dp, lse, delta)
}

// dotRow returns the inner product of row i of x and row i of y. Both have the same type.
func dotRow(x, y Matrix, i int) float32 {
	if x.dtype == BF16 {
		return vec.DotBF16(x.bf16Row(i), y.bf16Row(i))
	}
	return vec.Dot(x.f32Row(i), y.f32Row(i))
}
