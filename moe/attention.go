package moe

import (
	"slices"

	"spmoe/tensor"
)

// attention is the first half of a block, between its norm and the residual sum. x, dy and the
// results are [tokens, dim]. A pass has a state, which newState returns, for each attention layer.
//
// A new kind implements this interface and [attentionKind], and is chosen in Config.layer. It gets
// memory from phases only, so dry runs count it, and sums gradients of weights with linear and
// rmsNorm only, so layouts have the same bits.
type attention interface {
	newState() attentionState
	forward(p phase, x tensor.Tensor, s attentionState) tensor.Tensor
	backward(p phase, dy tensor.Tensor, s attentionState) tensor.Tensor // the gradient of x
	backwardWeight(p phase, s attentionState)                           // adds to the gradients of all weights

	// recompute restores what was in cheap memory, from the input.
	recompute(p phase, x tensor.Tensor, s attentionState)

	// record makes training passes raise top, [heads], to the largest score of each head.
	record(top []float32)
}

// attentionState is the state of an attention layer in a pass: a pointer to its own type.
type attentionState any

// attentionKind is what a configuration says about the attention of a layer.
type attentionKind interface {
	validate(must func(ok bool, format string, args ...any))
	// linears lists the projections in the order of a pass: see LinearLayer.
	linears(add func(name string, in, out int, expands bool))
	// vectors returns the number of elements of norms and biases.
	vectors() int
	// shape returns the heads, their dimensions and the scale of the scores.
	shape() tensor.AttentionShape
	// rotary returns the table that rotates queries and keys, from those of interleaved pairs.
	rotary(t rotaryTables) *tensor.RotaryTable
	// keys returns the keys that a token at the end of a sequence attends to.
	keys(seq int) int
	// build adds the parameters of a layer to b. prefix begins their names.
	build(b *builder, prefix string, layer int, rope *tensor.RotaryTable) attention
}

// scoreState is the state of attention between the projections, for one pass.
type scoreState struct {
	q     tensor.Tensor // [tokens, heads·keyDim]
	k     tensor.Tensor // [tokens, keyHeads·keyDim]
	v     tensor.Tensor // [tokens, keyHeads·valueDim]
	o     activation    // [tokens, heads·valueDim]
	lse   tensor.Tensor // [tokens·heads] FP32: logarithms of the sums of exponentials
	shape tensor.AttentionShape
}

// rotate rotates x, [tokens, 2·pairs], to the positions of the pass's tokens.
func (p phase) rotate(table *tensor.RotaryTable, x tensor.Matrix) {
	if p.decoding != nil {
		p.decoding.rotate(p.ex, p.layer, table, x)
		return
	}
	here, n := p.positions(table)
	here.Rotate(p.ex, x, n)
}

// rotateHeads turns elements [from, to) of each head of x, which has some width: with turn, which
// is rotate or rotateBack.
func rotateHeads(table *tensor.RotaryTable, x tensor.Matrix, width, from, to int, turn func(*tensor.RotaryTable, tensor.Matrix)) {
	for at := 0; at < x.Cols; at += width {
		turn(table, x.ColSlice(at+from, at+to))
	}
}

// rotateBack applies the transpose of rotate.
func (p phase) rotateBack(table *tensor.RotaryTable, x tensor.Matrix) {
	if p.decoding != nil {
		p.decoding.rotateBack(p.ex, p.layer, x)
		return
	}
	here, n := p.positions(table)
	here.RotateBack(p.ex, x, n)
}

// attend computes the attention of all heads. It raises top, unless it is nil, to the largest
// scores of a training pass. The ranks that share a sequence compute some of the heads each: q, k
// and v, and lse, are then those of this rank's heads.
func (s *scoreState) attend(p phase, shape tensor.AttentionShape, top []float32) {
	p.in(Scores)
	if p.decoding != nil {
		s.o = activation{Tensor: p.saved.New(s.q.DType(), s.q.Dim(0), shape.Heads*shape.ValueDim)}
		p.decoding.attend(p.ex, p.layer, shape, s.o.Tensor, s.q, s.k, s.v)
		return
	}
	tokens := s.q.Dim(0)
	s.shape, top = p.heads(shape, top)
	s.shape.Seq = p.batch.Seq
	s.shape.Batch = tokens / p.batch.Seq
	s.shape.First = p.whole().First
	s.o = activation{Tensor: p.local(p.saved).New(s.q.DType(), tokens, s.shape.Heads*shape.ValueDim)}
	s.lse = p.saved.New(tensor.FP32, tokens*s.shape.Heads)
	s.score(p, top)
	s.o.Tensor = p.toRows([3]exchanged{{s.o.Tensor, p.saved}})[0]
}

// gather replaces queries, keys and values of this rank's tokens, if it shares a sequence, by those
// of its heads, in the given arenas. A nil arena leaves a matrix as it is.
func (s *scoreState) gather(p phase, q, k, v *tensor.Arena) {
	all := p.toHeads([3]exchanged{{s.q, q}, {s.k, k}, {s.v, v}})
	s.q, s.k, s.v = all[0], all[1], all[2]
}

// score computes outputs and largest scores.
func (s *scoreState) score(p phase, top []float32) {
	if top == nil || !p.train || p.recomputing {
		tensor.CausalAttention(p.ex, s.o.Mat(), s.lse.F32(), s.q.Mat(), s.k.Mat(), s.v.Mat(), s.shape)
		return
	}
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	scores := p.ex.New(tensor.FP32, s.lse.Len()).F32()
	tensor.CausalAttentionTop(p.ex, s.o.Mat(), s.lse.F32(), scores, s.q.Mat(), s.k.Mat(), s.v.Mat(), s.shape)
	if p.ex.Dry() {
		return
	}
	for i := range s.shape.Batch * s.shape.Heads {
		largest := &top[i%s.shape.Heads]
		*largest = max(*largest, slices.Max(scores[i*s.shape.Seq:(i+1)*s.shape.Seq]))
	}
}
