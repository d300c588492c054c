package moe

// Attention in the absorbed form (arXiv:2405.04434, 2.1.2). With k = W_k·c and v = W_v·c of a
// latent c, q·k is (W_kᵀ·q)·c and Σ p·v is W_v·Σ p·c. So each query is multiplied with W_k once,
// and scores and sums use the cached latents directly.
//
// In BF16 it rounds differently from the training pass: it rounds W_kᵀ·q and Σ p·c, and training
// rounds k and v. Both round one operand of the same product, so neither form is closer to exact
// arithmetic.

import (
	"spmoe/mx"
	"spmoe/tensor"
)

// absorbed is a layer's absorbed attention.
type absorbed struct {
	*latentAttention
	key    tensor.Tensor // [heads, kvRank, nopeDim]: W_kᵀ
	up     tensor.Matrix // [heads·(nopeDim + valueDim), kvRank]: per head W_k, then W_v
	latent *mxLinear     // how the training pass quantizes latents before it expands them; nil: it does not
}

// absorb splits the expansion of a. If the expansion is quantized, it takes the values of the
// codes.
func (a *latentAttention) absorb(ex *tensor.Exec) *absorbed {
	c, w := a.cfg, a.kvUp.W
	q := a.kvUp.mx
	if q.quantizesForward() {
		w = tensor.New(w.DType(), w.Dim(0), w.Dim(1))
		mx.Dequantize(ex, w.Mat(), q.rows)
	}
	to := &absorbed{latentAttention: a, up: w.Mat(), latent: q, key: tensor.New(w.DType(), c.Heads, c.KVRank, c.NopeDim)}
	for h := range c.Heads {
		at := h * (c.NopeDim + c.ValueDim)
		key := w.Slice(at, at+c.NopeDim)
		if w.DType() == tensor.BF16 {
			transpose(to.key.Index(h).BF16(), key.BF16(), c.NopeDim, c.KVRank)
		} else {
			transpose(to.key.Index(h).F32(), key.F32(), c.NopeDim, c.KVRank)
		}
	}
	return to
}

// transpose sets dst to the transpose of src: [rows, cols].
func transpose[T any](dst, src []T, rows, cols int) {
	for r := range rows {
		for c := range cols {
			dst[c*rows+r] = src[r*cols+c]
		}
	}
}

// extend is [latentAttention.forward] for x, the new tokens of the sequences of a pass, one
// sequence after the other.
func (a *absorbed) extend(p phase, x tensor.Tensor, state attentionState) tensor.Tensor {
	ex, c, s, tokens := p.ex, a.cfg, state.(*latentState), x.Dim(0)
	s.x = activation{Tensor: x}
	q := a.queries(p, s)
	down := a.kvDown.forward(p, p.scratch, &s.x, &s.linear.kvDown)
	key := down.Mat().ColSlice(c.KVRank, c.compressed())
	latent := a.kvNorm.forward(p, p.scratch, down.Mat().ColSlice(0, c.KVRank), &s.kvNorm)
	a.roundLatents(ex, latent.Mat())
	for h := range c.Heads {
		p.rotate(a.rope, a.rotary(q.Mat(), h))
	}
	p.rotate(a.rope, key)
	sequences := a.appendToCache(p, latent.Mat(), key)

	queries := ex.New(x.DType(), tokens, c.Heads*c.compressed())
	sums := ex.New(x.DType(), tokens, c.Heads*c.KVRank)
	s.o = activation{Tensor: ex.New(x.DType(), tokens, c.Heads*c.ValueDim)}
	work := func(dim int) int { return 2 * tokens * c.Heads * c.KVRank * dim }
	heads := absorbedHeads{absorbed: a, q: q.Mat(), queries: queries.Mat(), sums: sums.Mat(), o: s.o.Mat()}
	tensor.Parallel(ex, c.Heads, work(c.NopeDim), heads, absorbQueries)
	tensor.CachedAttention(ex, sums.Reshape(tokens*c.Heads, c.KVRank).Mat(), queries.Reshape(tokens*c.Heads, c.compressed()).Mat(), c.Heads, a.scale, sequences)
	tensor.Parallel(ex, c.Heads, work(c.ValueDim), heads, expandSums)
	return a.out.forward(p, p.saved, &s.o, &s.linear.out)
}

// roundLatents gives latents the values that the training pass multiplies.
func (w *absorbed) roundLatents(ex *tensor.Exec, latent tensor.Matrix) {
	if !w.latent.quantizesForward() {
		return
	}
	by := w.latent.Forward.Left
	codes := mx.New(ex, by.Format, mx.AlongRows, latent.Rows, latent.Cols)
	mx.Quantize(ex, codes, latent, by.Mode)
	mx.Dequantize(ex, latent, codes)
}

// appendToCache appends latents and rotated keys to the caches.
func (a *latentAttention) appendToCache(p phase, latent, key tensor.Matrix) (rows []tensor.CachedRows) {
	p.decoding.each(func(e extension, lo, hi int) {
		end := e.cache.tokens + e.tokens
		all := e.cache.layers[p.layer].rows.Slice(0, end).Mat()
		added := all.RowSlice(e.cache.tokens, end)
		tensor.Convert(p.ex, added.ColSlice(0, a.cfg.KVRank), latent.RowSlice(lo, hi))
		tensor.Convert(p.ex, added.ColSlice(a.cfg.KVRank, a.cfg.compressed()), key.RowSlice(lo, hi))
		rows = append(rows, tensor.CachedRows{Rows: all, Tokens: e.tokens})
	})
	return rows
}

// absorbedHeads holds the inputs and outputs of the heads: [tokens, ...], head next to head.
type absorbedHeads struct {
	*absorbed
	q       tensor.Matrix // rotated output of the projection
	queries tensor.Matrix // in latents' coordinates | rotary
	sums, o tensor.Matrix // of latents, of values
}

// absorbQueries multiplies the queries of heads [lo, hi) with W_k.
func absorbQueries(ex *tensor.Exec, j absorbedHeads, lo, hi int) {
	rank, width := j.cfg.KVRank, j.cfg.compressed()
	for h := lo; h < hi; h++ {
		tensor.MatMul(ex, j.queries.ColSlice(h*width, h*width+rank), j.nope(j.q, h), j.key.Index(h).Mat().T())
		tensor.Convert(ex, j.queries.ColSlice(h*width+rank, (h+1)*width), j.rotary(j.q, h))
	}
}

// expandSums multiplies the sums of heads [lo, hi) with W_v.
func expandSums(ex *tensor.Exec, j absorbedHeads, lo, hi int) {
	rank, nope, values := j.cfg.KVRank, j.cfg.NopeDim, j.cfg.ValueDim
	for h := lo; h < hi; h++ {
		end := (h + 1) * (nope + values)
		tensor.MatMul(ex, j.value(j.o, h), j.sums.ColSlice(h*rank, (h+1)*rank), j.up.RowSlice(end-values, end).T())
	}
}
