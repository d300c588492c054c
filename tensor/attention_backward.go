package tensor

import (
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"spmoe/tensor/internal/vec"
	"spmoe/tensor/profile"
)

// backwardKeys is the number of keys in a block of the backward pass, which holds two tiles of
// scores, two of probabilities, and the gradients of the block's keys and values.
const backwardKeys = 256

// CausalAttentionBackward computes dq, dk and dv from do and the operands of CausalAttention.
//
// dk and dv have s.Heads heads, even if k and v have s.KVHeads: the caller sums those of a group.
//
// With p = exp(scale·q·kᵀ - lse): dv = pᵀ·do, dp = do·vᵀ, ds = scale·p·(dp - delta) where delta =
// rowsum(do·o), dq = ds·k, dk = dsᵀ·q.
//
// The outer loop is over key blocks, so dk and dv of a block stay in L2. Sums are in FP32: dk, dv
// over query rows in ascending order, dq over keys in ascending order. They are rounded once. The
// bits do not depend on the sizes of blocks.
func CausalAttentionBackward(ex *Exec, dq, dk, dv, do, q, k, v, o Matrix, lse []float32, s AttentionShape) {
	defer ex.ProfilingRows(profile.Attention, q.Rows, q.Cols).End()
	s.check(q, k, v, o, lse)
	s.checkChosen(ex)
	gradients := s
	gradients.KVHeads = 0
	gradients.check(dq, dk, dv, do, lse)
	if s.queries() != s.Seq || s.Room != 0 {
		panic(fmt.Sprintf("tensor: attention with %d queries in sequences of %d, or with a cache of %d rows, has no gradient", s.queries(), s.Seq, s.Room))
	}
	if do.dtype != o.dtype {
		panic(fmt.Sprintf("tensor: attention of %v with gradients of %v", o.dtype, do.dtype))
	}
	mark := ex.Mark()
	defer ex.Release(mark)
	c := &ex.attention
	*c = attentionCall{
		shape: s,
		q:     q,
		k:     k,
		v:     v,
		o:     o,
		dq:    dq,
		dk:    dk,
		dv:    dv,
		do:    do,
		lse:   lse,
		delta: ex.New(FP32, len(lse)).F32(),
	}
	heads, work := s.Batch*s.Heads, 2*s.work()
	ex.parallel(heads, o.Rows*o.Cols*rowWork, operands{attention: c}, attentionDeltas)
	if !s.sharesHeads(ex.threads(work)) {
		ex.parallel(heads, work, operands{attention: c}, attentionBackwardHeads)
		return
	}
	c.dqSum = ex.New(FP32, s.Seq, s.KeyDim)
	for c.head = range heads {
		c.done = ex.scratchProgress(s.keyBlocks())
		ex.runInParts(s.keyBlocks(), 1, work/heads, operands{attention: c}, attentionBackwardBlocks)
	}
}

// sharesHeads reports whether the threads share the key blocks of each head, rather than take whole
// heads. The results are the same.
func (s AttentionShape) sharesHeads(threads int) bool {
	return threads > 1 && s.Batch*s.Heads < partsPerThread*threads && s.keyBlocks() >= partsPerThread*threads
}

// keyBlocks returns the number of key blocks of a sequence: those of its positions, then those of
// the other keys.
func (s AttentionShape) keyBlocks() int { return s.ownBlocks() + ceilDiv(s.Extra, backwardKeys) }

func (s AttentionShape) ownBlocks() int { return ceilDiv(s.Seq, backwardKeys) }

// keyBlock returns the keys [from, to) of a block, and the first query that may attend to them.
func (s AttentionShape) keyBlock(block int) (from, to, query int) {
	if own := s.ownBlocks(); block >= own {
		from = s.Seq + (block-own)*backwardKeys
		return from, min(from+backwardKeys, s.keys()), 0
	}
	from = block * backwardKeys
	return from, min(from+backwardKeys, s.Seq), from
}

// blockBefore returns the key block that the sums of a block of queries, from lo on, come from
// before this one: of the first block of other keys, the last one of these queries' positions.
func (s AttentionShape) blockBefore(block, lo int) int {
	if block == s.ownBlocks() {
		return lo / backwardKeys
	}
	return block - 1
}

// attentionDeltas computes the deltas of heads [from, to).
func attentionDeltas(_ *Exec, call operands, from, to int) {
	for n := from; n < to; n++ {
		p := call.attention.problem(n)
		for i := range p.delta {
			p.delta[i] = dotRow(p.do, p.o, i)
		}
		if p.Sinks != nil {
			p.SinkGradients[n] = p.sinkGradient(p.Sinks[p.head])
		}
	}
}

// attentionBackwardHeads computes heads [from, to), counted over all sequences.
func attentionBackwardHeads(ex *Exec, call operands, from, to int) {
	c, s := call.attention, call.attention.shape
	mark := ex.Mark()
	defer ex.Release(mark)
	t := newBackwardTile(ex, c.q.dtype, s)
	t.dq = ex.New(FP32, s.Seq, s.KeyDim)
	for n := from; n < to; n++ {
		p := c.problem(n)
		for block := range s.keyBlocks() {
			t.keyBlock(ex, &p, block)
		}
	}
}

// HelpingScratch returns the bytes that a thread takes from its arena when it helps with a gradient
// of attention, which is more than for other kernels.
func HelpingScratch(s AttentionShape, dtype DType) int {
	ex := NewDryExec()
	newBackwardTile(ex, dtype, s)
	ex.New(FP32, s.Seq, s.KeyDim)
	return ex.Peak()
}

// attentionBackwardBlocks computes key blocks [from, to) of one head.
func attentionBackwardBlocks(ex *Exec, call operands, from, to int) {
	c := call.attention
	mark := ex.Mark()
	defer ex.Release(mark)
	t := newBackwardTile(ex, c.q.dtype, c.shape)
	t.dq, t.done = c.dqSum, c.done
	p := c.problem(c.head)
	for block := from; block < to; block++ {
		t.keyBlock(ex, &p, block)
	}
}

// backwardTile is the scratch memory of one thread of CausalAttentionBackward.
type backwardTile struct {
	scores, dprobs Tensor           // FP32
	probs, dscores Tensor           // in the operands' type
	dk, dv         Tensor           // sums of a key block
	dq             Tensor           // [seq, keyDim]: sums of the head so far
	keysT, valuesT *retainedOperand // of a key block, transposed
	keys           *retainedOperand // of a key block
	done           keyBlockProgress
}

func newBackwardTile(ex *Exec, dtype DType, s AttentionShape) backwardTile {
	rows, keys := s.queryRows(), min(backwardKeys, max(s.Seq, s.Extra))
	return backwardTile{
		scores: newTile(ex, FP32, rows, keys), dprobs: newTile(ex, FP32, rows, keys),
		probs: newTile(ex, dtype, rows, keys), dscores: newTile(ex, dtype, rows, keys),
		dk: ex.New(FP32, keys, s.KeyDim), dv: ex.New(FP32, keys, s.ValueDim),
		keysT: newRetained(ex, 0, dtype, s.KeyDim, keys), valuesT: newRetained(ex, 1, dtype, s.ValueDim, keys), keys: newRetained(ex, 2, dtype, keys, s.KeyDim),
	}
}

// keyBlock computes dk and dv of a key block and adds to the dq of all query rows that see it.
func (t *backwardTile) keyBlock(ex *Exec, p *headProblem, block int) {
	defer t.done.finish(block) // also after a panic, because other threads wait
	from, to, first := p.AttentionShape.keyBlock(block)
	rows := p.queryRows()
	dk, dv := t.dk.Slice(0, to-from), t.dv.Slice(0, to-from)
	dk.Zero()
	dv.Zero()
	t.keysT.set(p.k.RowSlice(from, to).T())
	t.valuesT.set(p.v.RowSlice(from, to).T())
	t.keys.set(p.k.RowSlice(from, to))
	for lo := first; lo < p.Seq; lo += rows {
		ex.Enter(profile.Attention) // shows progress to a watchdog
		if p.firstKey(p.sequence, lo) >= to {
			break // from here on, rows belong to later documents
		}
		t.queryBlock(ex, p, block, lo, min(lo+rows, p.Seq))
	}
	Convert(ex, p.dk.RowSlice(from, to), dk.Mat())
	Convert(ex, p.dv.RowSlice(from, to), dv.Mat())
}

// queryBlock adds what query rows [lo, hi) and a key block give to each other.
func (t *backwardTile) queryBlock(ex *Exec, p *headProblem, block, lo, hi int) {
	begin, to, _ := p.AttentionShape.keyBlock(block)
	at, own := p.firstKey(p.sequence, lo), begin < p.Seq
	from := max(at, begin)
	if own {
		to = min(to, hi)
	}
	last := own && to == hi && p.Extra == 0 || to == p.keys() && !own // key block of these rows
	if at < begin {                                                   // dq has a sum to add to
		from, to = p.chosenKeys(lo, hi, from, to)
	}
	if from < to {
		t.addTile(ex, p, begin, lo, hi, from, to)
	}
	if at < begin {
		t.done.wait(p.blockBefore(block, lo), hi)
	}
	dq := t.dq.Slice(lo, hi).Mat()
	if from < to {
		t.keys.times(ex, dq, tile(t.dscores, hi-lo, to-from), p.k.RowSlice(from, to), at < begin)
	}
	if last {
		Convert(ex, p.dq.RowSlice(lo, hi), dq)
	}
	t.done.set(block, hi)
}

// addTile adds to dk and dv, and sets dscores, for query rows [lo, hi) and keys [from, to) of the
// key block that starts at begin.
func (t *backwardTile) addTile(ex *Exec, p *headProblem, begin, lo, hi, from, to int) {
	q := p.q.RowSlice(lo, hi)
	do := p.do.RowSlice(lo, hi)
	scores := tile(t.scores, hi-lo, to-from)
	dprobs := tile(t.dprobs, hi-lo, to-from)
	probs := tile(t.probs, hi-lo, to-from)
	dscores := tile(t.dscores, hi-lo, to-from)
	t.keysT.times(ex, scores, q, p.k.RowSlice(from, to).T(), false)
	t.valuesT.times(ex, dprobs, do, p.v.RowSlice(from, to).T(), false)
	for i := range hi - lo {
		row := scores.f32Row(i)
		seen := p.choose(p.seen(lo+i, from, to), lo+i, from, row)
		softmaxBackwardRow(probs, dscores, i, seen, p.Scale, row, dprobs.f32Row(i), p.lse[lo+i], p.delta[lo+i])
	}
	matMul(ex, t.dv.Slice(from-begin, to-begin).Mat(), probs.T(), do, true)
	matMul(ex, t.dk.Slice(from-begin, to-begin).Mat(), dscores.T(), q, true)
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

// keyBlockProgress orders the sums of dq if several threads share the key blocks of a head. It has
// one number per key block: the query rows before it are complete. Nil: one thread computes all key
// blocks, in order.
//
// A thread waits only for the key block before its own. Threads take key blocks in ascending order,
// so that block is complete or another thread is computing it. Hence they do not wait in a circle.
type keyBlockProgress []atomic.Int64

// set declares the query rows before row complete.
func (d keyBlockProgress) set(block, row int) {
	if d != nil {
		d[block].Store(int64(row))
	}
}

// finish declares all query rows complete.
func (d keyBlockProgress) finish(block int) { d.set(block, math.MaxInt) }

// wait returns when the query rows before row are complete.
func (d keyBlockProgress) wait(block, row int) {
	if d == nil {
		return
	}
	for spins := 1; d[block].Load() < int64(row); spins++ {
		if spins%waitSpins == 0 {
			runtime.Gosched()
		}
	}
}
