package moe

import "spmoe/tensor"

// attention is multi-head latent attention (arXiv:2405.04434). Keys and values are expanded from
// one small latent vector per token, and all heads share one rotary key.
type attention struct {
	cfg   Config
	rope  *tensor.RotaryTable
	scale float32

	q     linear   // [heads·keyDim, dim], if queries are not compressed
	qDown linear   // [qRank, dim]
	qNorm *rmsNorm // nil if queries are not compressed
	qUp   linear   // [heads·keyDim, qRank]

	kvDown linear // [kvRank + ropeDim, dim]: latent | rotary key
	kvNorm *rmsNorm
	kvUp   linear // [heads·(nopeDim + valueDim), kvRank]: per head, nope key | value
	out    linear // [dim, heads·valueDim]

	queryRows, keyRows HeadRows // of q or qUp, and of kvUp
}

// attentionState is the state of attention in a pass.
type attentionState struct {
	x        activation    // [tokens, dim]
	qLatent  activation    // [tokens, qRank]
	q        tensor.Tensor // [tokens, heads·keyDim]: per head, nope | rotary
	down     tensor.Tensor // [tokens, kvRank + ropeDim]: latent, before its norm | rotary key
	kvLatent activation    // [tokens, kvRank]
	k        tensor.Tensor // [tokens, heads·keyDim]
	v        tensor.Tensor // [tokens, heads·valueDim]
	o        activation    // [tokens, heads·valueDim]
	lse      tensor.Tensor // [tokens·heads] FP32: logarithms of the sums of exponentials
	shape    tensor.AttentionShape

	qNorm, kvNorm normState
	linear        struct{ q, qDown, qUp, kvDown, kvUp, out linearState }
}

func newAttention(b *builder, cfg Config, prefix string, layer int, rope *tensor.RotaryTable) *attention {
	a := &attention{cfg: cfg, rope: rope, scale: cfg.softmaxScale()}
	plain := truncNormal(linearStd)
	if cfg.QRank > 0 {
		b.linear(&a.qDown, prefix+"q_a_proj", cfg.QRank, cfg.Dim, plain)
		a.qNorm = newNorm(b, prefix+"q_a_layernorm", cfg.QRank, cfg.NormEps)
		b.linear(&a.qUp, prefix+"q_b_proj", cfg.Heads*cfg.KeyDim(), cfg.QRank, plain)
	} else {
		b.linear(&a.q, prefix+"q_proj", cfg.Heads*cfg.KeyDim(), cfg.Dim, plain)
	}
	a.queryRows = HeadRows{Rows: cfg.KeyDim(), Root: cfg.NopeDim, Whole: cfg.RopeDim}
	b.lastMatrix().Heads = &a.queryRows
	b.linear(&a.kvDown, prefix+"kv_a_proj_with_mqa", cfg.KVRank+cfg.RopeDim, cfg.Dim, plain)
	a.kvNorm = newNorm(b, prefix+"kv_a_layernorm", cfg.KVRank, cfg.NormEps)
	b.linear(&a.kvUp, prefix+"kv_b_proj", cfg.Heads*(cfg.NopeDim+cfg.ValueDim), cfg.KVRank, plain)
	a.keyRows = HeadRows{Rows: cfg.NopeDim + cfg.ValueDim, Root: cfg.NopeDim}
	b.lastMatrix().Heads = &a.keyRows
	b.linear(&a.out, prefix+"o_proj", cfg.Dim, cfg.Heads*cfg.ValueDim, outputInit(layer))
	return a
}

// forward returns the attention output for x, both [tokens, dim]:
//
//	q = rotate(Wuq·norm(Wdq·x))              or rotate(Wq·x)
//	latent | key = Wdkv·x,  key = rotate(key)
//	k_nope | v = Wukv·norm(latent)
//	k = k_nope | key                         of each head
//	out = Wo·softmax(scale·q·kᵀ)·v
func (a *attention) forward(p phase, x tensor.Tensor, s *attentionState) tensor.Tensor {
	ex, seq, c := p.ex, p.batch.Seq, a.cfg
	s.x = activation{Tensor: x}
	s.q = a.queries(p, s)
	for h := range c.Heads {
		a.rope.Rotate(ex, a.rotary(s.q.Mat(), h), seq)
	}
	s.down = a.kvDown.forward(p, p.saved, &s.x, &s.linear.kvDown)
	latent, key := a.latentKey(s.down.Mat())
	a.rope.Rotate(ex, key, seq)
	s.kvLatent = activation{Tensor: a.kvNorm.forward(p, p.cheap, latent, &s.kvNorm)}
	a.expand(p, s)
	a.attend(p, s)
	return a.out.forward(p, p.saved, &s.o, &s.linear.out)
}

// queries returns the queries of all heads before rotation.
func (a *attention) queries(p phase, s *attentionState) tensor.Tensor {
	if a.qNorm == nil {
		return a.q.forward(p, p.saved, &s.x, &s.linear.q)
	}
	down := a.qDown.forward(p, p.saved, &s.x, &s.linear.qDown)
	s.qLatent = activation{Tensor: a.qNorm.forward(p, p.cheap, down.Mat(), &s.qNorm)}
	return a.qUp.forward(p, p.saved, &s.qLatent, &s.linear.qUp)
}

// expand computes keys and values of all heads from the latents and the rotary key.
func (a *attention) expand(p phase, s *attentionState) {
	ex, c := p.ex, a.cfg
	up := a.kvUp.forward(p, p.scratch, &s.kvLatent, &s.linear.kvUp)
	_, key := a.latentKey(s.down.Mat())
	p.in(Scores)
	s.k = p.cheap.New(up.DType(), up.Dim(0), c.Heads*c.KeyDim())
	s.v = p.cheap.New(up.DType(), up.Dim(0), c.Heads*c.ValueDim)
	for h := range c.Heads {
		nope, value := a.keyValue(up.Mat(), h)
		tensor.Convert(ex, a.nope(s.k.Mat(), h), nope)
		tensor.Convert(ex, a.rotary(s.k.Mat(), h), key)
		tensor.Convert(ex, a.value(s.v.Mat(), h), value)
	}
}

// backward returns the gradient of x.
func (a *attention) backward(p phase, dy tensor.Tensor, s *attentionState) tensor.Tensor {
	ex, c := p.ex, a.cfg
	do := a.out.backward(p, p.scratch, activation{Tensor: dy}, &s.linear.out)
	p.in(Scores)
	dq, dk, dv := like(p.saved, s.q), like(p.scratch, s.k), like(p.scratch, s.v)
	tensor.CausalAttentionBackward(ex, dq.Mat(), dk.Mat(), dv.Mat(), do.Mat(),
		s.q.Mat(), s.k.Mat(), s.v.Mat(), s.o.Mat(), s.lse.F32(), s.shape)

	dUp := p.saved.New(dy.DType(), dy.Dim(0), c.Heads*(c.NopeDim+c.ValueDim))
	for h := range c.Heads {
		a.rope.RotateBack(ex, a.rotary(dq.Mat(), h), s.shape.Seq)
		nope, value := a.keyValue(dUp.Mat(), h)
		tensor.Convert(ex, nope, a.nope(dk.Mat(), h))
		tensor.Convert(ex, value, a.value(dv.Mat(), h))
	}
	dDown := p.saved.New(dy.DType(), dy.Dim(0), c.KVRank+c.RopeDim)
	dLatent, dKey := a.latentKey(dDown.Mat())
	tensor.SumBlocks(ex, dKey, dk.Mat().ColSlice(c.NopeDim, c.Heads*c.KeyDim()), c.Heads, c.KeyDim())
	a.rope.RotateBack(ex, dKey, s.shape.Seq)
	dkvLatent := a.kvUp.backward(p, p.scratch, activation{Tensor: dUp}, &s.linear.kvUp)
	a.kvNorm.backward(p, dLatent, dkvLatent.Mat(), false, &s.kvNorm)

	dx := a.kvDown.backward(p, p.scratch, activation{Tensor: dDown}, &s.linear.kvDown)
	tensor.Add(ex, dx.Mat(), dx.Mat(), a.queriesBackward(p, dq, s).Mat())
	return dx
}

// queriesBackward returns the gradient of x through the queries.
func (a *attention) queriesBackward(p phase, dq tensor.Tensor, s *attentionState) tensor.Tensor {
	if a.qNorm == nil {
		return a.q.backward(p, p.scratch, activation{Tensor: dq}, &s.linear.q)
	}
	dLatent := a.qUp.backward(p, p.saved, activation{Tensor: dq}, &s.linear.qUp)
	a.qNorm.backward(p, dLatent.Mat(), dLatent.Mat(), false, &s.qNorm)
	return a.qDown.backward(p, p.scratch, activation{Tensor: dLatent}, &s.linear.qDown)
}

// backwardWeight adds to the gradients of all weights.
func (a *attention) backwardWeight(p phase, s *attentionState) {
	a.out.backwardWeight(p, &s.linear.out)
	a.kvUp.backwardWeight(p, &s.linear.kvUp)
	a.kvNorm.backwardWeight(p, &s.kvNorm)
	a.kvDown.backwardWeight(p, &s.linear.kvDown)
	if a.qNorm == nil {
		a.q.backwardWeight(p, &s.linear.q)
		return
	}
	a.qUp.backwardWeight(p, &s.linear.qUp)
	a.qNorm.backwardWeight(p, &s.qNorm)
	a.qDown.backwardWeight(p, &s.linear.qDown)
}

// latentKey splits the output of kvDown into latents and rotary keys.
func (a *attention) latentKey(m tensor.Matrix) (latent, key tensor.Matrix) {
	return m.ColSlice(0, a.cfg.KVRank), m.ColSlice(a.cfg.KVRank, a.cfg.cacheRow())
}

// nope and rotary return the two parts of head h of a query or key matrix. value returns head h of
// a value matrix, keyValue the two parts of head h of the output of kvUp.
func (a *attention) nope(m tensor.Matrix, h int) tensor.Matrix {
	at := h * a.cfg.KeyDim()
	return m.ColSlice(at, at+a.cfg.NopeDim)
}

func (a *attention) rotary(m tensor.Matrix, h int) tensor.Matrix {
	end := (h + 1) * a.cfg.KeyDim()
	return m.ColSlice(end-a.cfg.RopeDim, end)
}

func (a *attention) value(m tensor.Matrix, h int) tensor.Matrix {
	return m.ColSlice(h*a.cfg.ValueDim, (h+1)*a.cfg.ValueDim)
}

func (a *attention) keyValue(m tensor.Matrix, h int) (nope, value tensor.Matrix) {
	n, v := a.cfg.NopeDim, a.cfg.ValueDim
	at := h * (n + v)
	return m.ColSlice(at, at+n), m.ColSlice(at+n, at+n+v)
}
