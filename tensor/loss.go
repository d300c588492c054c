package tensor

import (
	"fmt"
	"math"
	"slices"

	"spmoe/tensor/internal/vec"
)

// CrossEntropy computes -log softmax(logits)[target] of each row, in nats, and its gradient. The
// logits come in blocks of the vocabulary, so that they need not exist all at once:
//
//	Reset     once
//	Add       each block, first to last
//	Loss      any time after that, as Best
//	Gradient  each block again, in any order
//
// It holds, for each row, the maximum m of the logits so far and z = Σ exp(logit - m). When a block
// raises m, z is multiplied by the exponential of the difference (online softmax,
// arXiv:1805.02867). With a single block, z is the sum over the row.
//
// A row with a negative target has no loss and a zero gradient.
type CrossEntropy struct {
	targets []int32
	rows    []lossRow
}

// lossRow describes the softmax of one row over the blocks so far.
type lossRow struct {
	max     float32
	sum     float64 // of exp(logit - max): those of a block in float32, blocks in order
	correct float32 // logit of the target
}

// Reset begins new rows, one per target.
func (c *CrossEntropy) Reset(targets []int32, vocab int) {
	for _, target := range targets {
		if int(target) >= vocab {
			panic(fmt.Sprintf("tensor: target %d of a vocabulary of %d", target, vocab))
		}
	}
	c.targets = append(c.targets[:0], targets...)
	c.rows = slices.Grow(c.rows[:0], len(targets))[:len(targets)]
	for i := range c.rows {
		c.rows[i] = lossRow{max: float32(math.Inf(-1))}
	}
}

// Add adds the logits of a block of the vocabulary, which begins at token first: [rows, block]
// FP32.
func (c *CrossEntropy) Add(ex *Exec, logits Matrix, first int) {
	if ex.dry {
		return // targets are data
	}
	c.check(logits)
	defer ex.describeRows(logits).End()
	forRows(ex, logits.Rows, logits.Rows*logits.Cols, lossBlock{c: c, logits: logits, first: first}, addLossRows)
}

// Gradient sets d to the gradient of scale times the sum of all losses by the logits of a block:
// scale·(softmax - onehot), rounded once. d: [rows, block] FP32 or BF16; it may be logits.
func (c *CrossEntropy) Gradient(ex *Exec, d, logits Matrix, first int, scale float32) {
	if ex.dry {
		return
	}
	c.check(logits)
	sameShape(d, logits)
	defer ex.describeRows(logits).End()
	forRows(ex, logits.Rows, logits.Rows*logits.Cols, lossBlock{c, d, logits, first, scale}, lossGradientRows)
}

// Loss returns the sum of the losses of rows [lo, hi), after all blocks.
func (c *CrossEntropy) Loss(lo, hi int) (sum float64) {
	for r := lo; r < hi; r++ {
		if c.targets[r] >= 0 {
			sum += math.Log(c.rows[r].sum) + float64(c.rows[r].max) - float64(c.rows[r].correct)
		}
	}
	return sum
}

func (c *CrossEntropy) check(logits Matrix) {
	logits.checkFP32Rows()
	if len(c.targets) != logits.Rows {
		panic(fmt.Sprintf("tensor: %d targets for %d rows of logits", len(c.targets), logits.Rows))
	}
}

// lossBlock holds the arguments of Add or Gradient.
type lossBlock struct {
	c         *CrossEntropy
	d, logits Matrix
	first     int
	scale     float32
}

// target returns the column of a row's target, and whether the block has it.
func (b *lossBlock) target(r int) (col int, ok bool) {
	col = int(b.c.targets[r]) - b.first
	return col, col >= 0 && col < b.logits.Cols
}

func addLossRows(ex *Exec, b lossBlock, lo, hi int) {
	exps := ex.scratchRow(0, b.logits.Cols)
	for r := lo; r < hi; r++ {
		if b.c.targets[r] < 0 {
			continue
		}
		s, row := &b.c.rows[r], b.logits.f32Row(r)
		if top := vec.Max(row); top > s.max {
			s.sum *= float64(vec.Exp(s.max - top))
			s.max = top
		}
		s.sum += float64(vec.ExpSum(exps, 1, row, s.max))
		if t, ok := b.target(r); ok {
			s.correct = row[t]
		}
	}
}

func lossGradientRows(ex *Exec, b lossBlock, lo, hi int) {
	exps := ex.scratchRow(0, b.logits.Cols)
	for r := lo; r < hi; r++ {
		if b.c.targets[r] < 0 {
			clear(exps)
			storeScaled(b.d, r, 0, exps)
			continue
		}
		s := b.c.rows[r]
		factor := b.scale / float32(s.sum)
		vec.ExpSum(exps, 1, b.logits.f32Row(r), s.max)
		storeScaled(b.d, r, factor, exps)
		if t, ok := b.target(r); ok {
			at := b.d.RowSlice(r, r+1).ColSlice(t, t+1)
			exps[0] = float32(exps[t]*factor) - b.scale
			storeScaled(at, 0, 1, exps[:1])
		}
	}
}

// storeScaled sets row r of m to a·x, rounded once.
func storeScaled(m Matrix, r int, a float32, x []float32) {
	if m.dtype == BF16 {
		vec.ScaleBF16(m.bf16Row(r), a, x)
	} else {
		vec.Scale(m.f32Row(r), a, x)
	}
}
