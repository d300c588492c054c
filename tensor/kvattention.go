package tensor

import (
	"fmt"

	"spmoe/tensor/internal/vec"
	"spmoe/tensor/profile"
)

// Attention of new tokens over the KV cache of their sequence. All heads share one cached row per
// token, and its first columns are also its value. This is multi-head latent attention in its
// absorbed form.

// CachedRows is the KV cache of one sequence, as input to CachedAttention.
type CachedRows struct {
	Rows   Matrix // [positions, keyDim]: one row per token, the new tokens last
	Tokens int    // number of new tokens
}

// CachedAttention computes o = softmax(scale·q·kᵀ)·v for the new tokens of sequences of any
// lengths. Each token attends to the tokens of its sequence up to and including itself. k is the
// rows of the sequence, v their first valueDim columns.
//
// q: [tokens·heads, keyDim], o: [tokens·heads, valueDim]. The heads of a token are consecutive
// rows. The new tokens of a sequence follow those of the previous sequence. All matrices have one
// element type. Scores and softmax are FP32. The bits of a sequence's rows do not depend on the
// other sequences.
func CachedAttention(ex *Exec, o, q Matrix, heads int, scale float32, sequences []CachedRows) {
	defer ex.ProfilingRows(profile.Attention, q.Rows, q.Cols).End()
	c := cachedCall{o: o, q: q, heads: heads, scale: scale, sequences: sequences}
	c.check()
	blocks, work := 0, 0
	for _, s := range sequences {
		blocks += c.blocks(s)
		work += 2 * s.Tokens * heads * s.Rows.Rows * (q.Cols + o.Cols)
	}
	Parallel(ex, blocks, work, c, cachedBlocks)
}

// cachedCall holds the arguments of CachedAttention.
type cachedCall struct {
	o, q      Matrix
	heads     int
	scale     float32
	sequences []CachedRows
}

func (c *cachedCall) check() {
	rows := 0
	for _, s := range c.sequences {
		if s.Tokens < 1 || s.Rows.Rows < s.Tokens || s.Rows.Cols != c.q.Cols || s.Rows.dtype != c.q.dtype {
			panic(fmt.Sprintf("tensor: %d new tokens among rows [%d, %d] of %v for queries of %d columns of %v",
				s.Tokens, s.Rows.Rows, s.Rows.Cols, s.Rows.dtype, c.q.Cols, c.q.dtype))
		}
		s.Rows.checkRows()
		rows += s.Tokens * c.heads
	}
	if c.q.Rows != rows || c.o.Rows != rows || c.o.Cols > c.q.Cols || c.o.dtype != c.q.dtype {
		panic(fmt.Sprintf("tensor: cached attention of q [%d, %d] of %v into o [%d, %d] of %v for %d rows",
			c.q.Rows, c.q.Cols, c.q.dtype, c.o.Rows, c.o.Cols, c.o.dtype, rows))
	}
	c.q.checkRows()
	c.o.checkRows()
}

// stepBlock is the number of query rows in a block for a sequence with one new token. It is small,
// so that several threads can share the heads of a single sequence.
const stepBlock = 16

// blockRows returns the number of query rows in a block of s. It depends on s only, so the bits of
// a row depend on s only.
func (c *cachedCall) blockRows(s CachedRows) int {
	if s.Tokens == 1 {
		return stepBlock
	}
	return queryBlock
}

func (c *cachedCall) blocks(s CachedRows) int {
	size := c.blockRows(s)
	return (s.Tokens*c.heads + size - 1) / size
}

// cachedBlocks computes blocks [from, to), counted over all sequences.
func cachedBlocks(ex *Exec, c cachedCall, from, to int) {
	block, row := 0, 0 // first block and first row of the sequence
	for _, s := range c.sequences {
		size, n, rows := c.blockRows(s), c.blocks(s), s.Tokens*c.heads
		for i := max(from-block, 0); i < min(to-block, n); i++ {
			lo, hi := i*size, min((i+1)*size, rows)
			c.block(ex, s, c.q.RowSlice(row+lo, row+hi), c.o.RowSlice(row+lo, row+hi), lo)
		}
		block, row = block+n, row+rows
	}
}

// block computes the query rows q of a sequence. The first of them is the sequence's row lo.
func (c *cachedCall) block(ex *Exec, s CachedRows, q, o Matrix, lo int) {
	mark := ex.Mark()
	defer ex.Release(mark)
	seen := func(row int) int { return s.Rows.Rows - s.Tokens + (lo+row)/c.heads + 1 }
	keys := s.Rows.RowSlice(0, seen(q.Rows-1))
	scores, probs := ex.New(FP32, q.Rows, keys.Rows).Mat(), ex.New(q.dtype, q.Rows, keys.Rows).Mat()
	MatMul(ex, scores, q, keys.T())
	inverse := ex.scratchRow(3, q.Rows)
	for i := range inverse {
		inverse[i] = softmaxRow(probs, i, seen(i), scores.f32Row(i), c.scale)
	}
	out := ex.New(FP32, o.Rows, o.Cols).Mat()
	MatMul(ex, out, probs, keys.ColSlice(0, o.Cols))
	for i := range inverse {
		scaleRow(o, i, inverse[i], out.f32Row(i))
	}
}

// softmaxRow sets row i of p to exp(scale·scores - max) for the first seen scores, and to zero for
// the rest. It returns the inverse of the row's sum. The caller scales the output by it.
func softmaxRow(p Matrix, i, seen int, scores []float32, scale float32) float32 {
	scores = scores[:seen]
	top := scale * vec.Max(scores)
	if p.dtype == BF16 {
		return 1 / vec.ExpSumBF16(only(p.bf16Row(i), keyRange{0, seen}), scale, scores, top)
	}
	return 1 / vec.ExpSum(only(p.f32Row(i), keyRange{0, seen}), scale, scores, top)
}
