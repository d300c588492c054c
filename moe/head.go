package moe

import (
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// output is the projection onto the vocabulary, from which the model and its MTP module predict.
// For each row h of the hidden states, with the weight W and the following token target:
//
//	x      = norm(h)
//	logits = x·Wᵀ
//	loss  += -log softmax(logits)[target]
//	d      = scale·(softmax(logits) - onehot(target))
//	dx     = d·W,  dW += dᵀ·x,  dh = the norm's gradient for dx
//
// Logits exist for one chunk of rows at a time. Their gradients d are held for whole sequences,
// unless they are too large, and multiplied at once.
type output struct {
	weight weight // [vocab, dim]
}

// prediction holds the inputs and outputs of one prediction from hidden states.
type prediction struct {
	norm    *rmsNorm
	h, dh   tensor.Tensor // [tokens, dim]: before the norm, and its gradient, which training sets
	targets []int32       // negative: none
	scale   float32       // of the gradient of one token's cross-entropy
	mtp     bool          // whether the loss is the MTP module's

	state normState
	x, dx tensor.Tensor // after the norm
}

// logitsChunk is the approximate number of logits held at once, heldGradients that of their
// gradients.
const (
	logitsChunk   = 1 << 21
	heldGradients = 1 << 24
)

// forward adds the cross-entropy of each token that has a target to the losses of its sequence. In
// training it runs the backward pass as well: it adds to the gradients of the weights and sets dh.
//
// If there are two predictions, a sequence's gradient of the weight is the sum over the rows of the
// first prediction, then over those of the second. Rows are numbered in that order: sequence by
// sequence, prediction by prediction.
func (o *output) forward(p phase, all []prediction) error {
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	p.saved, p.fused = p.scratch, true // nothing is left for a later phase
	for i := range all {
		a := &all[i]
		a.x = a.norm.forward(p, p.scratch, a.h.Mat(), &a.state)
	}
	if !p.train {
		o.rows(p, all, 0, len(p.sequences)*len(all)*p.batch.Seq, rowGradients{})
		return nil
	}
	for i := range all {
		all[i].dx = like(p.scratch, all[i].x)
	}
	if err := o.train(p, all); err != nil {
		return err
	}
	for i := range all {
		a := &all[i]
		a.norm.backward(p, a.dh.Mat(), a.dx.Mat(), false, &a.state)
	}
	return nil
}

// rowGradients are the operands of the weight gradient for some rows: [rows, vocab] and [rows,
// dim].
type rowGradients struct{ dlogits, x tensor.Tensor }

// train processes all rows and computes the weight's gradient as a balanced binary tree over groups
// of sequences. If ranks share the gradient, the gradients of all logits are held, because each
// rank multiplies its columns of those of all ranks.
func (o *output) train(p phase, all []prediction) error {
	if h := o.weight.host; h != nil {
		whole := len(all) * p.batch.Seq
		held := o.newRows(p, all, len(p.sequences)*whole)
		o.rows(p, all, 0, len(p.sequences)*whole, held)
		return h.product(p, &o.weight, held.dlogits, held.x, whole)
	}
	if len(p.sequences) == 0 {
		return nil
	}
	whole := len(all) * p.batch.Seq // rows per sequence
	group, held := o.heldRows(whole, len(p.sequences))
	kept := o.newRows(p, all, held)
	sum := newGradientTree(p.ex, &o.weight, (len(p.sequences)+group-1)/group)
	for first := 0; first < len(p.sequences); first += group {
		end := min(first+group, len(p.sequences)) * whole
		into, accumulate := sum.next()
		if held >= whole {
			o.rows(p, all, first*whole, end, kept)
			d, x := kept.upTo(end - first*whole)
			tensor.Wgrad(p.ex, into.Mat(), d, x, whole, accumulate)
		} else {
			if !accumulate {
				tensor.Zero(p.ex, into)
			}
			for lo := first * whole; lo < end; lo += held {
				hi := min(lo+held, end)
				o.rows(p, all, lo, hi, kept)
				d, x := kept.upTo(hi - lo)
				tensor.MatMulAdd(p.ex, into.Mat(), d.T(), x)
			}
		}
		sum.push()
	}
	p.sealGrad(&o.weight)
	return nil
}

// newRows returns memory for the operands of n rows.
func (o *output) newRows(p phase, all []prediction, n int) rowGradients {
	dtype := all[0].x.DType()
	return rowGradients{p.scratch.New(dtype, n, o.weight.W.Dim(0)), p.scratch.New(dtype, n, o.weight.W.Dim(1))}
}

// heldRows returns the number of sequences whose gradients are held at once, a power of two, and
// the number of their rows. If the gradients of one sequence are too large, the rows are fewer than
// a sequence has.
func (o *output) heldRows(whole, sequences int) (group, held int) {
	vocab := o.weight.W.Dim(0)
	group = 1
	for group < sequences && 2*group*whole*vocab <= heldGradients {
		group *= 2
	}
	if held = group * whole; held*vocab > heldGradients {
		held = max(heldGradients/vocab, 16) / 16 * 16
	}
	return group, held
}

// upTo returns the first n rows.
func (r rowGradients) upTo(n int) (dlogits, x tensor.Matrix) {
	return r.dlogits.Slice(0, n).Mat(), r.x.Slice(0, n).Mat()
}

// rows processes rows [lo, hi) chunk by chunk. In training it stores their gradients in held.
func (o *output) rows(p phase, all []prediction, lo, hi int, held rowGradients) {
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	most := min(o.chunkRows(len(all), p.batch.Seq), hi-lo)
	logits := p.scratch.New(tensor.FP32, most, o.weight.W.Dim(0))
	for at, n := lo, 0; at < hi; at += n {
		a, token := rowAt(all, p.batch.Seq, at)
		n = min(most, hi-at)
		if left := p.batch.Seq - at%p.batch.Seq; n < p.batch.Seq || len(all) > 1 {
			n = min(n, left)
		}
		chunk, x := logits.Slice(0, n).Mat(), a.x.Slice(token, token+n).Mat()
		tensor.MatMul(p.ex, chunk, x, o.weight.W.Mat().T())
		p.crossEntropy(chunk, a, token)
		if p.train {
			d := held.dlogits.Slice(at-lo, at-lo+n).Mat()
			tensor.Convert(p.ex, d, chunk)
			tensor.Convert(p.ex, held.x.Slice(at-lo, at-lo+n).Mat(), x)
			tensor.MatMul(p.ex, a.dx.Slice(token, token+n).Mat(), d, o.weight.W.Mat())
		}
	}
}

// chunkRows returns the number of rows whose logits are held at once: whole sequences, or at most
// one. The rows of a chunk belong to one prediction each, next to each other.
func (o *output) chunkRows(predictions, seq int) int {
	most := max(logitsChunk/o.weight.W.Dim(0), 16)
	if predictions == 1 && most > seq {
		return most / seq * seq
	}
	return min(most, seq)
}

// rowAt returns the prediction and the token of a row.
func rowAt(all []prediction, seq, at int) (a *prediction, token int) {
	sequence, which := at/(seq*len(all)), at/seq%len(all)
	return &all[which], sequence*seq + at%seq
}

// crossEntropy replaces the logits of tokens from token on by their gradients, and adds to the
// losses of the sequences.
func (p phase) crossEntropy(logits tensor.Matrix, a *prediction, token int) {
	defer p.ex.Profiling(profile.Loss).End()
	seq := p.batch.Seq
	for r := 0; r < logits.Rows; {
		t := token + r
		n := min(seq-t%seq, logits.Rows-r)
		*p.sequences[t/seq].of(a.mtp) += tensor.CrossEntropy(p.ex, logits.RowSlice(r, r+n), a.targets[t:t+n], a.scale)
		r += n
	}
}

// logits returns the scores of every token of the vocabulary: [tokens, vocab] FP32. x: [tokens,
// dim], after the norm.
func (o *output) logits(ex *tensor.Exec, x tensor.Tensor) tensor.Tensor {
	out := ex.New(tensor.FP32, x.Dim(0), o.weight.W.Dim(0))
	tensor.MatMul(ex, out.Mat(), x.Mat(), o.weight.W.Mat().T())
	return out
}
