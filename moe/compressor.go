package moe

import (
	"math"

	"spmoe/tensor"
)

// compressor makes entries of DeepSeek-V4's attention, each for a window of rate tokens: see
// [tensor.Compression]. An entry is normalized, and rotated to the first position of its window.
type compressor struct {
	width, rate int
	overlap     bool
	rope        *tensor.RotaryTable

	values linear   // [width or 2·width, dim]
	gate   linear   // the same
	bias   weight   // [rate, width or 2·width] FP32: added to the gates of a window's rows
	norm   *rmsNorm // of entries
}

// compressorState is the state of a compressor in a pass.
type compressorState struct {
	window tensor.Compression
	u, z   tensor.Tensor // values and gates: [tokens, width or 2·width]
	raw    tensor.Tensor // entries before their norm: [sequences·entries, width]
	du, dz tensor.Tensor
	places tensor.Tensor // [tokens, rate]: 1 at the place of each token in its window
	norm   normState
	linear struct{ values, gate linearState }
}

// newCompressor adds the parameters of a compressor. prefix begins their names.
func newCompressor(b *builder, cfg Config, prefix string, kind compressedKind, width int, rope *tensor.RotaryTable) *compressor {
	c := &compressor{
		width:   width,
		rate:    kind.rate(),
		overlap: kind.overlaps(),
		rope:    rope,
	}
	cols := kind.compressedCols(width)
	b.linear(&c.values, Projections, prefix+"kv_proj", cols, cfg.Dim, truncNormal(linearStd))
	b.linear(&c.gate, Projections, prefix+"gate_proj", cols, cfg.Dim, truncNormal(linearStd))
	b.add(b.norms, &c.bias, Norms, []int{c.rate, cols}, &Param{Name: prefix + "position_bias", Dims: []int{c.rate, cols}})
	c.norm = newNorm(b, prefix+"kv_norm", width, cfg.NormEps)
	c.norm.tokens = c.rate
	return c
}

// forward returns the entries of x: [sequences·(seq/rate), width].
func (c *compressor) forward(p phase, x *activation, s *compressorState) tensor.Tensor {
	c.project(p, x, s)
	p.in(Scores)
	starts := tensor.Windows(p.ex, p.saved, len(p.sequences), p.batch.Seq, c.rate, p.batch.First)
	c.compress(p, s, p.batch.Seq, starts, s.u, s.z)
	return c.finish(p, s, c.rope)
}

// project computes the values and the gates of x.
func (c *compressor) project(p phase, x *activation, s *compressorState) {
	s.u = c.values.forward(p, p.saved, x, &s.linear.values)
	s.z = c.gate.forward(p, p.saved, x, &s.linear.gate)
}

// compress computes the entries of windows from values and gates of sequences, before their norm.
func (c *compressor) compress(p phase, s *compressorState, seq int, starts []int32, u, z tensor.Tensor) {
	s.window = tensor.Compression{
		Seq:     seq,
		Rate:    c.rate,
		Overlap: c.overlap,
		First:   p.batch.First,
		Bias:    c.bias.W,
		Starts:  starts,
	}
	s.raw = p.saved.New(u.DType(), len(starts), c.width)
	s.window.Compress(p.ex, s.raw.Mat(), u.Mat(), z.Mat())
}

// finish returns the entries from those before their norm.
func (c *compressor) finish(p phase, s *compressorState, rope *tensor.RotaryTable) tensor.Tensor {
	entries := c.norm.forward(p, p.cheap, s.raw.Mat(), &s.norm)
	rope.RotateAt(p.ex, c.rotary(entries), s.window.Starts, false)
	return entries
}

// rotary returns the channels of entries that are rotated: the last ones.
func (c *compressor) rotary(entries tensor.Tensor) tensor.Matrix {
	return entries.Mat().ColSlice(c.width-2*c.rope.Pairs(), c.width)
}

// backward returns the gradient of x. de, that of the entries, is overwritten.
func (c *compressor) backward(p phase, de tensor.Tensor, s *compressorState) tensor.Tensor {
	p.in(Scores)
	c.rope.RotateAt(p.ex, c.rotary(de), s.window.Starts, true)
	c.norm.backward(p, de.Mat(), de.Mat(), false, &s.norm)
	s.du = like(p.saved, s.u)
	s.dz = like(p.saved, s.z)
	s.window.Backward(p.ex, s.du, s.dz, de.Mat(), s.u.Mat(), s.z.Mat())
	s.places = c.placesOf(p, s.dz)
	if p.fused {
		c.bias.owner.(biasOwner).addRows(p, &c.bias, s.places, s.dz)
	}
	dx := c.values.backward(p, p.scratch, activation{Tensor: s.du}, &s.linear.values)
	tensor.Add(p.ex, dx.Mat(), dx.Mat(), c.gate.backward(p, p.scratch, activation{Tensor: s.dz}, &s.linear.gate).Mat())
	return dx
}

// placesOf returns 1 at the place of each token in its window and 0 elsewhere, in x's type. With
// it, the gradient of the biases is that of a weight.
func (c *compressor) placesOf(p phase, x tensor.Tensor) tensor.Tensor {
	places := p.saved.New(x.DType(), x.Dim(0), c.rate)
	tensor.Zero(p.ex, places)
	one := p.ex.New(tensor.FP32, 1)
	if p.ex.Dry() {
		return places
	}
	one.F32()[0] = 1
	for t := range x.Dim(0) {
		at := t % p.batch.Seq
		if p.batch.First != nil {
			at -= int(p.batch.First[t])
		}
		tensor.Convert(nil, places.Slice(t, t+1).Mat().ColSlice(at%c.rate, at%c.rate+1), one.Broadcast(1))
	}
	return places
}

// backwardWeight adds to the gradients of all weights.
func (c *compressor) backwardWeight(p phase, s *compressorState) {
	c.bias.owner.(biasOwner).addRows(p, &c.bias, s.places, s.dz)
	c.values.backwardWeight(p, &s.linear.values)
	c.gate.backwardWeight(p, &s.linear.gate)
	c.norm.backwardWeight(p, &s.norm)
}

// entryIndexer scores the entries of each query, as the indexer of DeepSeek-V3.2 does keys. Its
// choice has no gradient.
type entryIndexer struct {
	cfg     Config
	keys    *compressor
	query   linear // [indexHeads·indexDim, qRank]
	weights linear // [indexHeads, dim] FP32
}

func newEntryIndexer(b *builder, kind compressedKind, prefix string, rope *tensor.RotaryTable) *entryIndexer {
	x := &entryIndexer{cfg: kind.Config, weights: linear{part: Norms}}
	x.keys = newCompressor(b, kind.Config, prefix, kind, kind.IndexDim, rope)
	b.linear(&x.query, Projections, prefix+"q_b_proj", kind.IndexHeads*kind.IndexDim, kind.QRank, truncNormal(linearStd))
	dims := []int{kind.IndexHeads, kind.Dim}
	b.add(b.norms, &x.weights.weight, Norms, dims, &Param{Name: prefix + "scorer.weights_proj.weight", Dims: dims, Init: truncNormal(linearStd)})
	return x
}

// operands returns what the scores of entries are computed from, in scratch memory. x: [tokens,
// dim], latent: the normed latents of the queries.
func (x *entryIndexer) operands(p phase, in, latent *activation) tensor.Indexer {
	p.saved, p.cheap = p.scratch, p.scratch
	var keys compressorState
	k := x.keys.forward(p, in, &keys)
	q, w := x.queries(p, in, latent)
	return x.scores(k, q, w, p.batch.Seq/x.keys.rate)
}

// queries returns the queries of all heads, rotated, and the weights of these heads.
func (x *entryIndexer) queries(p phase, in, latent *activation) (q, w tensor.Tensor) {
	c := x.cfg
	var query linearState
	q = x.query.forward(p, p.scratch, latent, &query)
	p.in(Scores)
	rotateHeads(x.keys.rope, q.Mat(), c.IndexDim, c.IndexDim-c.RopeDim, c.IndexDim, p.rotate)
	wide := inFP32(p, p.scratch, in)
	w = p.scratch.New(tensor.FP32, in.Dim(0), c.IndexHeads)
	x.weights.multiply(p.ex, w.Mat(), &wide)
	return q, w
}

// scores returns what the scores of entries are computed from. k has n entries of
// each sequence.
func (x *entryIndexer) scores(k, q, w tensor.Tensor, n int) tensor.Indexer {
	c := x.cfg
	scale := float32(1 / math.Sqrt(float64(c.IndexDim*c.IndexHeads)))
	shape := tensor.AttentionShape{
		Heads:  c.IndexHeads,
		KeyDim: c.IndexDim,
		Scale:  scale,
		Seq:    n,
	}
	return tensor.Indexer{
		AttentionShape: shape,
		Q:              q.Mat(),
		K:              k.Mat(),
		W:              w.Mat(),
	}
}
