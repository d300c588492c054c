package moe

import (
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// output is the projection onto the vocabulary, from which the model and its MTP module predict. Logits exist for one chunk of rows at
// a time; their gradient is held for whole sequences, where they are not too large, and multiplied at once.
type output struct {
	weight weight // [vocab, dim]
}

// prediction is what is made of hidden states.
type prediction struct {
	norm    *rmsNorm
	h, dh   tensor.Tensor // [tokens, dim]: before the norm, and its gradient, which training sets
	targets []int32       // negative: none
	scale   float32       // of the gradient of one token's cross-entropy
	mtp     bool          // whose loss it is

	state normState
	x, dx tensor.Tensor // behind the norm
}

// logitsChunk is about how many logits are held at once, heldGradients how many of their gradients.
const (
	logitsChunk   = 1 << 21
	heldGradients = 1 << 24
)

// forward adds to each sequence's losses the cross-entropy of its tokens that have a target. In training it adds scale times
// its gradient to the weight's and sets dh.
//
// Where there are two predictions, a sequence's gradient of the weight is the sum over the rows of the first, then over those of
// the second. Rows are counted like that: sequence by sequence, prediction by prediction.
func (o *output) forward(p phase, all []prediction) {
	ex := p.ex
	p.kept, p.fused = p.brief, true // the backward pass is here
	mark := ex.Mark()
	defer ex.Release(mark)
	for i := range all {
		a := &all[i]
		a.x = a.norm.forward(p, p.brief, a.h.Mat(), &a.state)
		if p.train {
			a.dx = like(p.brief, a.x)
		}
	}
	whole := len(all) * p.batch.Seq // rows of a sequence
	if len(p.sequences) > 0 && p.train {
		o.train(p, all, whole)
	} else {
		o.rows(p, all, 0, len(p.sequences)*whole, rowGradients{})
	}
	if p.train {
		for i := range all {
			a := &all[i]
			a.norm.backward(p, a.dh.Mat(), a.dx.Mat(), false, &a.state)
		}
	}
}

// train is forward but for the norms.
func (o *output) train(p phase, all []prediction, whole int) {
	ex := p.ex
	vocab, dim := o.weight.W.Dim(0), o.weight.W.Dim(1)
	group := 1 // sequences whose gradients are held
	for group < len(p.sequences) && 2*group*whole*vocab <= heldGradients {
		group *= 2
	}
	held := group * whole
	if held*vocab > heldGradients {
		held = max(heldGradients/vocab, 16) / 16 * 16
	}
	kept := rowGradients{dlogits: ex.New(all[0].x.DType(), held, vocab), x: ex.New(all[0].x.DType(), held, dim)}
	sum := newTree(ex, &o.weight, (len(p.sequences)+group-1)/group)
	for first := 0; first < len(p.sequences); first += group {
		end := min(first+group, len(p.sequences)) * whole
		into, accumulate := sum.next()
		if held < whole && !accumulate {
			tensor.Zero(ex, into)
		}
		for lo := first * whole; lo < end; lo += held {
			hi := min(lo+held, end)
			o.rows(p, all, lo, hi, kept)
			d, x := kept.dlogits.Slice(0, hi-lo).Mat(), kept.x.Slice(0, hi-lo).Mat()
			if held < whole {
				tensor.MatMulAdd(ex, into.Mat(), d.T(), x)
			} else {
				tensor.Wgrad(ex, into.Mat(), d, x, whole, accumulate)
			}
		}
		sum.push()
	}
}

// rowGradients is what the gradient of the weight is a product of, for some rows: [rows, vocab] and [rows, dim].
type rowGradients struct{ dlogits, x tensor.Tensor }

// rows does rows [lo, hi), chunk by chunk, and keeps their gradients in training.
func (o *output) rows(p phase, all []prediction, lo, hi int, keep rowGradients) {
	ex, seq := p.ex, p.batch.Seq
	mark := ex.Mark()
	defer ex.Release(mark)
	vocab := o.weight.W.Dim(0)
	most := max(logitsChunk/vocab, 16)
	if len(all) == 1 && most > seq {
		most = most / seq * seq // whole sequences: those of one prediction are neighbours
	} else {
		most = min(most, seq)
	}
	most = min(most, hi-lo)
	logits := ex.New(tensor.FP32, most, vocab)
	for at := lo; at < hi; {
		sequence, which := at/(seq*len(all)), at/seq%len(all)
		token := sequence*seq + at%seq
		n := min(most, hi-at)
		if n < seq || len(all) > 1 {
			n = min(n, seq-at%seq)
		}
		chunk, a := logits.Slice(0, n).Mat(), &all[which]
		x := a.x.Slice(token, token+n).Mat()
		tensor.MatMul(ex, chunk, x, o.weight.W.Mat().T())
		p.crossEntropy(chunk, a, token)
		if p.train {
			d := keep.dlogits.Slice(at-lo, at-lo+n).Mat()
			tensor.Convert(ex, d, chunk)
			tensor.Convert(ex, keep.x.Slice(at-lo, at-lo+n).Mat(), x)
			tensor.MatMul(ex, a.dx.Slice(token, token+n).Mat(), d, o.weight.W.Mat())
		}
		at += n
	}
}

// crossEntropy turns logits, those of tokens from token on, into their gradient, and adds to the losses of the sequences.
func (p phase) crossEntropy(logits tensor.Matrix, a *prediction, token int) {
	defer p.ex.Enter(p.ex.Enter(profile.Loss))
	seq := p.batch.Seq
	for r := 0; r < logits.Rows; {
		t := token + r
		n := min(seq-t%seq, logits.Rows-r)
		*p.sequences[t/seq].of(a.mtp) += tensor.CrossEntropy(p.ex, logits.RowSlice(r, r+n), a.targets[t:t+n], a.scale)
		r += n
	}
}

// logits returns the scores of every token of the vocabulary: [tokens, vocab] FP32. x: [tokens, dim], behind the norm.
func (o *output) logits(ex *tensor.Exec, x tensor.Tensor) tensor.Tensor {
	out := ex.New(tensor.FP32, x.Dim(0), o.weight.W.Dim(0))
	tensor.MatMul(ex, out.Mat(), x.Mat(), o.weight.W.Mat().T())
	return out
}
