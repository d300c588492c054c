package moe

import (
	"spmoe/mx"
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// output is the projection onto the vocabulary, from which all predictions are made.
// For each row h of the hidden states, with the weight W and the following token target:
//
//	x      = norm(h)
//	logits = x·Wᵀ
//	loss  += -log softmax(logits)[target]
//	d      = scale·(softmax(logits) - onehot(target))
//	dx     = d·W,  dW += dᵀ·x,  dh = the norm's gradient for dx
//
// W is multiplied in blocks of the vocabulary. Training goes over W twice for each chunk of rows:
// once for the logits and their softmax, once for d and dx. dW is computed from d of many chunks at
// once, so that it is written once for every few thousand rows. Memory is bounded by outputSizes.
type output struct {
	weight weight // [vocab, dim]
	host   *host  // the ranks that share its gradient; nil: none do
	sizes  outputSizes
	sum    mx.Sum
	loss   tensor.CrossEntropy // of the current chunk

	partials  []outputPartial // memory of outputGradient
	rowLosses []float64       // where rows of a shared sequence leave their losses; nil: there is none
	piece     [2]int          // the tokens whose gradients this rank computes in a pass
}

// rowGradients are the operands of the weight gradient for some rows.
type rowGradients struct {
	dlogits blocked
	x       tensor.Tensor // [rows, dim]
}

// outputPartial is the gradient from the rows of one rank.
type outputPartial struct {
	outputRounds
	operands []rowGradients // of the current round, of each rank that has rows of it
	tree     gradientTree   // over groups
	into     tensor.Tensor
	adds     bool // the current group is added to what into holds
}

// prediction holds the inputs and outputs of one prediction from hidden states.
type prediction struct {
	norm    *rmsNorm
	h, dh   tensor.Tensor // [tokens, dim]: before the norm, and its gradient, which training sets
	targets []int32       // negative: none
	scale   float32       // of the gradient of one token's cross-entropy
	ahead   bool          // of tokens after the next one

	state normState
	x, dx tensor.Tensor // after the norm
	// x and dx of the ranks that share the sequence, one after the other; nil: those of this rank.
	// With them, targets has those of the sequence.
	peers []predictionRows
}

// predictionRows are rows after the norm, with their gradients.
type predictionRows struct{ x, dx tensor.Matrix }

// rows returns up to n rows from a token on.
func (a *prediction) rows(token, n int) predictionRows {
	if a.peers == nil {
		rows := predictionRows{x: a.x.Slice(token, token+n).Mat()}
		if a.dx.Valid() { // not in an evaluation
			rows.dx = a.dx.Slice(token, token+n).Mat()
		}
		return rows
	}
	each := a.x.Dim(0)
	of, first := a.peers[token/each], token%each
	n = min(n, each-first)
	return predictionRows{of.x.RowSlice(first, first+n), of.dx.RowSlice(first, first+n)}
}

// headNorm is a norm before the head whose weight's gradient waits for the end of the pass, when
// those of earlier passes are complete.
type headNorm struct {
	*rmsNorm
	state normState
}

// rows processes rows [lo, hi) chunk by chunk. In training it stores their gradients in held.
func (o *output) rows(p phase, all []prediction, lo, hi int, held rowGradients) {
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	most := o.chunkRows(len(all), p.batch.Seq, lo, hi)
	vocab := o.weight.W.Dim(0)
	if !p.train { // an evaluation needs the logits of one block only
		vocab = o.sizes.blockSize(vocab)
	}
	logits := newBlocked(p.scratch, tensor.FP32, most, vocab)
	for at, n := lo, 0; at < hi; at += n {
		a, token := rowAt(all, p.batch.Seq, at)
		rows := a.rows(token, chunkAt(len(all), p.batch.Seq, at, hi, most))
		n = rows.x.Rows
		c := outputChunk{prediction: *a, row: at, token: token, predictionRows: rows, logits: logits}
		o.losses(p, &c)
		if p.train {
			tensor.Convert(p.ex, held.x.Slice(at-lo, at-lo+n).Mat(), rows.x)
			o.gradients(p, &c, held.dlogits, at-lo)
		}
		if p.ex.Dry() {
			return // the other chunks are no larger
		}
	}
}

// chunkRows returns the largest number of rows of a chunk of rows [lo, hi).
func (o *output) chunkRows(predictions, seq, lo, hi int) int {
	return min(o.sizes.chunkRows(o.weight.W.Dim(0), predictions, seq), hi-lo)
}

// chunkAt returns the number of rows of the chunk that begins at a row, of rows up to hi.
func chunkAt(predictions, seq, at, hi, most int) int {
	n := min(most, hi-at)
	if left := seq - at%seq; n < seq || predictions > 1 {
		n = min(n, left)
	}
	return n
}

// outputChunk is some rows of one prediction, from token on.
type outputChunk struct {
	prediction
	predictionRows
	row    int // the first one
	token  int
	logits blocked // with room for its rows or more
}

// losses computes the logits of a chunk and adds to the losses of its sequences.
func (o *output) losses(p phase, c *outputChunk) {
	vocab := o.weight.W.Dim(0)
	if !p.ex.Dry() {
		o.loss.Reset(c.targets[c.token:c.token+c.count()], vocab)
	}
	o.sizes.blocks(vocab, func(lo, hi int) {
		logits := c.block(p, lo, hi)
		o.sum.Multiply(p.ex, logits, c.predictionRows.x, o.weight.W.Slice(lo, hi).Mat().T())
		defer p.ex.Profiling(profile.Loss).End()
		o.loss.Add(p.ex, logits, lo)
	})
	if p.ex.Dry() {
		return
	}
	if probs := p.batch.LogProbs; probs != nil && !c.ahead {
		for r := range c.count() {
			probs[c.token+r] = -o.loss.Loss(r, r+1)
		}
	}
	if o.rowLosses != nil {
		for r := range c.count() {
			o.rowLosses[c.row+r] = o.loss.Loss(r, r+1)
		}
		return
	}
	seq := p.batch.Seq
	for r, n := 0, 0; r < c.count(); r += n {
		t := c.token + r
		n = min(seq-t%seq, c.count()-r)
		sequence := &p.sequences[t/seq]
		*sequence.of(c.ahead) += o.loss.Loss(r, r+n)
	}
}

// gradients stores the gradients of a chunk's logits in rows at and following of d, and sets dx.
// With several blocks, dx is summed in FP32 and rounded once.
func (o *output) gradients(p phase, c *outputChunk, d blocked, at int) {
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	vocab, n := o.weight.W.Dim(0), c.count()
	dx := c.predictionRows.dx
	sum := dx
	if o.sizes.blockSize(vocab) < vocab && dx.DType() != tensor.FP32 {
		sum = p.scratch.New(tensor.FP32, n, dx.Cols).Mat()
	}
	o.sizes.blocks(vocab, func(lo, hi int) {
		part := d.block(lo, hi).RowSlice(at, at+n)
		o.gradientBlock(p, c, part, lo)
		w := o.weight.W.Slice(lo, hi).Mat()
		if lo == 0 {
			o.sum.Multiply(p.ex, sum, part, w)
		} else {
			o.sum.MultiplyOn(p.ex, sum, part, w)
		}
	})
	if sum != dx {
		tensor.Convert(p.ex, dx, sum)
	}
}

// gradientBlock sets d to the gradient of a block's logits.
func (o *output) gradientBlock(p phase, c *outputChunk, d tensor.Matrix, first int) {
	defer p.ex.Profiling(profile.Loss).End()
	o.loss.Gradient(p.ex, d, c.block(p, first, first+d.Cols), first, c.scale)
}

// count returns the number of rows.
func (c *outputChunk) count() int { return c.predictionRows.x.Rows }

// block returns the chunk's logits of tokens [lo, hi).
func (c *outputChunk) block(p phase, lo, hi int) tensor.Matrix {
	if !p.train { // there is room for one block
		lo, hi = 0, hi-lo
	}
	return c.logits.block(lo, hi).RowSlice(0, c.count())
}

// rowAt returns the prediction and the token of a row.
func rowAt(all []prediction, seq, at int) (a *prediction, token int) {
	sequence, which := at/(seq*len(all)), at/seq%len(all)
	return &all[which], sequence*seq + at%seq
}
