package moe

import (
	"spmoe/tensor"
	"spmoe/tensor/profile"
)

// head turns hidden states into the cross-entropy of the next token. Logits exist for one
// chunk of rows at a time: their gradient is used at once.
type head struct {
	norm   *rmsNorm
	weight *weight // [vocab, dim]; the MTP module shares the model's
}

// logitsChunk is about how many logits are held at once.
const logitsChunk = 1 << 19

// forward returns the sum of the cross-entropy over the rows of h: [tokens, dim] whose target is not
// negative. In training it adds scale times its gradient to the weight's and sets dh.
func (l *head) forward(p *pass, h, dh tensor.Tensor, targets []int32, scale float32) float64 {
	ex := p.ex
	x := l.norm.forward(ex, h.Mat())
	mark := ex.Mark()
	defer ex.Release(mark)
	vocab := l.weight.W.Dim(0)
	rows := min(max(logitsChunk/vocab, 16), len(targets))
	logits := ex.New(tensor.FP32, rows, vocab)
	var dlogits, dx tensor.Tensor
	if p.train {
		dlogits, dx = ex.New(x.DType(), rows, vocab), like(ex, x)
	}
	var loss float64
	for lo := 0; lo < len(targets); lo += rows {
		hi := min(lo+rows, len(targets))
		chunk, in := logits.Slice(0, hi-lo).Mat(), x.Slice(lo, hi).Mat()
		tensor.MatMul(ex, chunk, in, l.weight.W.Mat().T())
		before := ex.Enter(profile.Loss)
		loss += tensor.CrossEntropy(ex, chunk, targets[lo:hi], scale)
		ex.Enter(before)
		if p.train {
			d := dlogits.Slice(0, hi-lo).Mat()
			tensor.Convert(ex, d, chunk)
			tensor.MatMulAdd(ex, l.weight.Grad.Mat(), d.T(), in)
			tensor.MatMul(ex, dx.Slice(lo, hi).Mat(), d, l.weight.W.Mat())
		}
	}
	if p.train {
		l.norm.backward(ex, dh.Mat(), dx.Mat(), false)
	}
	return loss
}

// logits returns the scores of every token of the vocabulary: [tokens, vocab] FP32.
func (l *head) logits(ex *tensor.Exec, h tensor.Tensor) tensor.Tensor {
	x := l.norm.forward(ex, h.Mat())
	out := ex.New(tensor.FP32, h.Dim(0), l.weight.W.Dim(0))
	tensor.MatMul(ex, out.Mat(), x.Mat(), l.weight.W.Mat().T())
	return out
}
