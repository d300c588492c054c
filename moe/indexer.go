package moe

import (
	"math"

	"spmoe/tensor"
)

// Sparse attention as in DeepSeek-V3.2 and GLM-5: latent attention in which each query sees the
// keys that an indexer has chosen for it. A layer has an indexer, or takes the choice of the last
// layer that has one.
//
// An indexer learns from its own loss only: the divergence of its scores from the mean of the
// heads' probabilities. Its inputs and these probabilities are constants. In the stage "warmup",
// attention sees all keys and nothing else trains.

// sparseKeys chooses the keys of a layer. A nil one has none to choose.
type sparseKeys struct {
	*indexer // nil: the layer takes the choice of the last one that has an indexer
}

// indexer scores the keys of each query.
type indexer struct {
	cfg  Config
	rope *tensor.RotaryTable

	query   linear   // [indexHeads·indexDim, qRank]
	key     linear   // [indexDim, dim]
	norm    *rmsNorm // of centered keys
	bias    weight   // [indexDim, 1] FP32: added to them then
	weights linear   // [indexHeads, dim] FP32
}

// indexState is the state of sparseKeys in a pass.
type indexState struct {
	chosen tensor.Tensor // [tokens, words] of bits; a recomputation does not choose again
	trains bool          // the pass computes the loss

	q, k, w  tensor.Tensor // operands of scores: [tokens, indexHeads·indexDim], [tokens, indexDim], [tokens, indexHeads]
	x        activation    // [tokens, dim] FP32
	centered tensor.Tensor // [tokens, indexDim] FP32: the key less its mean, before its norm

	dq, dk, dw tensor.Tensor // gradients of queries before rotation, of the keys after their norm, and of w
	norm       normState
	linear     struct{ query, key, weights linearState }
}

func newIndexer(b *builder, c Config, prefix string, rope *tensor.RotaryTable) *indexer {
	x := &indexer{cfg: c, rope: rope, weights: linear{part: Norms}}
	if c.IndexRope == halfPairs {
		x.rope = rope.Halves()
	}
	plain := truncNormal(linearStd)
	b.linear(&x.query, Projections, prefix+"wq_b", c.IndexHeads*c.IndexDim, c.QRank, plain)
	b.linear(&x.key, Projections, prefix+"wk", c.IndexDim, c.Dim, plain)
	x.norm = newNorm(b, prefix+"k_norm", c.IndexDim, indexEps)
	b.add(b.norms, &x.bias, Norms, []int{c.IndexDim, 1}, biasParam(prefix+"k_norm", c.IndexDim))
	dims := []int{c.IndexHeads, c.Dim}
	b.add(b.norms, &x.weights.weight, Norms, dims, &Param{Name: prefix + "weights_proj.weight", Dims: dims, Init: plain})
	return x
}

// choose returns the shape of attention with the keys that it sees.
func (a *sparseKeys) choose(p phase, shape tensor.AttentionShape, x, latent *activation, i *indexState) tensor.AttentionShape {
	if a == nil {
		return shape
	}
	if !p.recomputing {
		i.chosen = tensor.Tensor{}
	}
	if i.trains = a.indexer != nil && p.train && a.cfg.IndexWeight > 0; i.trains || a.chooses(p) {
		a.operands(p, x, latent, i)
	}
	switch {
	case a.chooses(p):
		a.chooseKeys(p, i)
	case a.indexer == nil && !p.recomputing:
		i.chosen = p.chosen
	}
	if i.chosen.Valid() {
		shape.Chosen = i.chosen.U64()
	}
	return shape
}

// chooses reports whether the indexer chooses keys in this pass.
func (a *sparseKeys) chooses(p phase) bool {
	return a.indexer != nil && !a.cfg.warmsUp() && !p.recomputing
}

// chooseKeys chooses the keys of all tokens, for this layer and those that share them.
func (x *indexer) chooseKeys(p phase, i *indexState) {
	if p.decoding != nil {
		p.decoding.choose(p.ex, p.layer, x.cfg.IndexTopK, x.operandsOf(p, i), p.choiceMemory)
		return
	}
	p.observe("index_queries", i.q)
	p.observe("index_keys", i.k)
	p.observe("index_weights", i.w)
	of := x.operandsOf(p, i)
	i.chosen = p.choiceMemory(8 * of.KeyWords() * i.q.Dim(0))
	tensor.ChooseKeys(p.ex, i.chosen.U64(), x.cfg.IndexTopK, of)
	p.observe("index_choice", i.chosen)
	p.chosen = i.chosen
}

// choiceMemory returns memory for choices, which lives until the pass ends. Without a backward
// pass, it lives until the next choice.
func (p phase) choiceMemory(bytes int) tensor.Tensor {
	if p.train {
		return p.arena.New(tensor.UINT8, bytes)
	}
	if !p.choices.Valid() || p.choices.Len() < bytes {
		p.choices = p.ex.NewLasting(tensor.UINT8, bytes)
	}
	return p.choices.Slice(0, bytes)
}

// operands computes the operands of scores:
//
//	q = rotate(Wq·norm(Wdq·x)),  k = rotate(LayerNorm(Wk·x)),  w = Ww·x
func (x *indexer) operands(p phase, in, latent *activation, i *indexState) {
	i.q = x.query.forward(p, p.scratch, latent, &i.linear.query)
	raw := x.key.forward(p, p.scratch, in, &i.linear.key)
	p.in(Scores)
	i.centered = p.saved.New(tensor.FP32, raw.Dim(0), raw.Dim(1))
	tensor.Center(p.ex, i.centered.Mat(), raw.Mat())
	k := x.norm.forward(p, p.scratch, i.centered.Mat(), &i.norm)
	tensor.Add(p.ex, k.Mat(), k.Mat(), x.bias.W.Broadcast(k.Dim(0)))
	rotateHeads(x.rope, k.Mat(), x.cfg.IndexDim, 0, x.cfg.RopeDim, p.rotate)
	rotateHeads(x.rope, i.q.Mat(), x.cfg.IndexDim, 0, x.cfg.RopeDim, p.rotate)
	i.k = raw
	tensor.Convert(p.ex, i.k.Mat(), k.Mat())
	i.x = inFP32(p, p.cheap, in)
	i.w = p.scratch.New(tensor.FP32, raw.Dim(0), x.cfg.IndexHeads)
	i.linear.weights.x = &i.x
	x.weights.multiply(p.ex, i.w.Mat(), &i.x)
}

// inFP32 returns x in FP32.
func inFP32(p phase, to *tensor.Arena, x *activation) activation {
	wide := to.New(tensor.FP32, x.Dim(0), x.Dim(1))
	tensor.Convert(p.ex, wide.Mat(), x.Mat())
	return activation{Tensor: wide}
}

// operandsOf returns the operands of scores.
func (x *indexer) operandsOf(p phase, i *indexState) tensor.Indexer {
	c, seq := x.cfg, p.batch.Seq
	return tensor.Indexer{
		AttentionShape: tensor.AttentionShape{
			Batch: i.q.Dim(0) / seq, Seq: seq, Heads: c.IndexHeads, KeyDim: c.IndexDim, First: p.batch.First,
			Scale: float32(1 / math.Sqrt(float64(c.IndexHeads*c.IndexDim))),
		},
		Q: i.q.Mat(), K: i.k.Mat(), W: i.w.Mat(),
	}
}

// computeLoss adds the loss of the layer's indexer to those of the sequences, as a mean over the
// global batch, and computes the gradients of the operands of its scores.
func (a *sparseKeys) computeLoss(p phase, s *scoreState, i *indexState) {
	if a == nil || !i.trains {
		return
	}
	p.in(Scores)
	i.dq = like(p.saved, i.q)
	i.dw = like(p.saved, i.w)
	i.dk = p.saved.New(tensor.FP32, i.k.Dim(0), i.k.Dim(1))
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	l := a.lossOf(p, s, i)
	l.Losses = float64s(p.ex.New(tensor.UINT8, 8*l.Batch).Bytes())
	l.Compute(p.ex)
	if !p.recomputing && !p.ex.Dry() {
		for n, loss := range l.Losses {
			p.sequences[n].index += roundedPart(loss / float64(p.batch.GlobalSequences*max(l.Rows, 1)))
		}
	}
	rotateHeads(a.rope, i.dq.Mat(), a.cfg.IndexDim, 0, a.cfg.RopeDim, p.rotateBack)
	rotateHeads(a.rope, i.dk.Mat(), a.cfg.IndexDim, 0, a.cfg.RopeDim, p.rotateBack)
}

// lossOf describes the loss of a layer. Rows without a target have none: with predictions further
// ahead, the last one of a sequence.
func (x *indexer) lossOf(p phase, s *scoreState, i *indexState) tensor.IndexLoss {
	rows := p.batch.Seq
	if p.layer >= p.layers {
		rows--
	}
	return tensor.IndexLoss{
		Indexer: x.operandsOf(p, i), Attention: s.shape, Queries: s.q.Mat(), Keys: s.k.Mat(), LSE: s.lse.F32(),
		Rows: rows, Weight: float32(x.cfg.IndexWeight / float64(p.batch.GlobalSequences*max(rows, 1))),
		DQ: i.dq.Mat(), DK: i.dk.Mat(), DW: i.dw.Mat(),
	}
}

// recompute restores what was in cheap memory.
func (a *sparseKeys) recompute(p phase, x *activation, i *indexState) {
	if a != nil && i.trains {
		i.x = inFP32(p, p.cheap, x)
	}
}

// backward computes the gradients of the indexer's projections from those of its scores.
func (a *sparseKeys) backward(p phase, i *indexState) {
	if a == nil || !i.trains {
		return
	}
	dkey := p.saved.New(i.dq.DType(), i.dk.Dim(0), i.dk.Dim(1))
	if p.fused {
		a.bias.addRows(p, i.dk)
	}
	dcentered := like(p.scratch, i.dk)
	a.norm.backward(p, dcentered.Mat(), i.dk.Mat(), false, &i.norm)
	tensor.Center(p.ex, dcentered.Mat(), dcentered.Mat())
	tensor.Convert(p.ex, dkey.Mat(), dcentered.Mat())
	a.key.backwardDetached(p, activation{Tensor: dkey}, &i.linear.key)
	a.query.backwardDetached(p, activation{Tensor: i.dq}, &i.linear.query)
	a.weights.backwardDetached(p, activation{Tensor: i.dw}, &i.linear.weights)
}

// backwardWeight adds to the gradients of all weights of the indexer.
func (a *sparseKeys) backwardWeight(p phase, i *indexState) {
	if a == nil || !i.trains {
		return
	}
	a.bias.addRows(p, i.dk)
	a.norm.backwardWeight(p, &i.norm)
	a.key.backwardWeight(p, &i.linear.key)
	a.query.backwardWeight(p, &i.linear.query)
	a.weights.backwardWeight(p, &i.linear.weights)
}
