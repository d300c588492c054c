package moe

import "spmoe/tensor"

// attention is multi-head latent attention (arXiv:2405.04434): keys and values are expanded
// from one small latent vector a token, and one rotary key is shared by all heads.
type attention struct {
	cfg   Config
	rope  *tensor.RotaryTable
	scale float32

	q     linear   // [heads·keyDim, dim], without query compression
	qDown linear   // [qRank, dim]
	qNorm *rmsNorm // nil without query compression
	qUp   linear   // [heads·keyDim, qRank]

	kvDown linear // [kvRank + ropeDim, dim]: latent | rotary key
	kvNorm *rmsNorm
	kvUp   linear // [heads·(nopeDim + valueDim), kvRank]: per head, nope key | value
	out    linear // [dim, heads·valueDim]

	saved struct {
		x, qLatent, kvLatent tensor.Tensor // inputs of the projections
		down                 tensor.Tensor // latent, before its norm | rotary key
		q, k, v, o           tensor.Tensor
		lse                  tensor.Tensor
		shape                tensor.AttentionShape
	}
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
	b.linear(&a.kvDown, prefix+"kv_a_proj_with_mqa", cfg.KVRank+cfg.RopeDim, cfg.Dim, plain)
	a.kvDown.sharesInput(a.fromInput())
	a.kvNorm = newNorm(b, prefix+"kv_a_layernorm", cfg.KVRank, cfg.NormEps)
	b.linear(&a.kvUp, prefix+"kv_b_proj", cfg.Heads*(cfg.NopeDim+cfg.ValueDim), cfg.KVRank, plain)
	b.linear(&a.out, prefix+"o_proj", cfg.Dim, cfg.Heads*cfg.ValueDim, outputInit(layer))
	return a
}

// forward returns the attention output for x: [sequences·seq, dim].
func (a *attention) forward(p *pass, x tensor.Tensor) tensor.Tensor {
	ex, seq, c, s := p.ex, p.batch.Seq, a.cfg, &a.saved
	s.x = x
	s.shape = tensor.AttentionShape{Batch: x.Dim(0) / seq, Seq: seq, Heads: c.Heads, KeyDim: c.KeyDim(), ValueDim: c.ValueDim, Scale: a.scale, First: p.batch.First}
	s.q = a.queries(p, x)
	for h := range c.Heads {
		a.rope.Rotate(ex, a.rotary(s.q.Mat(), h), seq)
	}
	s.down = a.kvDown.forward(p, x, nil)
	latent, key := a.latentKey(s.down.Mat())
	a.rope.Rotate(ex, key, seq)
	s.kvLatent = a.kvNorm.within(p, latent)
	a.expand(p)

	s.o = ex.New(x.DType(), x.Dim(0), c.Heads*c.ValueDim)
	s.lse = ex.New(tensor.FP32, x.Dim(0)*c.Heads)
	tensor.CausalAttention(ex, s.o.Mat(), s.lse.F32(), s.q.Mat(), s.k.Mat(), s.v.Mat(), s.shape)
	return a.out.forward(p, s.o, nil)
}

// expand sets keys and values of all heads, from the latents and the rotary key.
func (a *attention) expand(p *pass) {
	defer p.brief(p.brief(true))
	ex, c, s := p.ex, a.cfg, &a.saved
	_, key := a.latentKey(s.down.Mat())
	up := a.kvUp.forward(p, s.kvLatent, nil)
	s.k = ex.New(up.DType(), up.Dim(0), c.Heads*c.KeyDim())
	s.v = ex.New(up.DType(), up.Dim(0), c.Heads*c.ValueDim)
	for h := range c.Heads {
		nope, value := a.keyValue(up.Mat(), h)
		tensor.Convert(ex, a.nope(s.k.Mat(), h), nope)
		tensor.Convert(ex, a.rotary(s.k.Mat(), h), key)
		tensor.Convert(ex, a.value(s.v.Mat(), h), value)
	}
}

// again makes anew what was brief, from the input.
func (a *attention) again(p *pass, x tensor.Tensor) {
	s := &a.saved
	s.x = x
	if a.qNorm != nil {
		s.qLatent = a.qNorm.again(p.ex)
	}
	s.kvLatent = a.kvNorm.again(p.ex)
	a.expand(p)
}

func (a *attention) queries(p *pass, x tensor.Tensor) tensor.Tensor {
	if a.qNorm == nil {
		return a.q.forward(p, x, nil)
	}
	a.saved.qLatent = a.qNorm.within(p, a.qDown.forward(p, x, nil).Mat())
	return a.qUp.forward(p, a.saved.qLatent, nil)
}

// fromInput returns the first projection on the way to the queries.
func (a *attention) fromInput() *linear {
	if a.qNorm == nil {
		return &a.q
	}
	return &a.qDown
}

// backward returns the gradient of x.
func (a *attention) backward(p *pass, dy tensor.Tensor) tensor.Tensor {
	ex, c, s := p.ex, a.cfg, &a.saved
	do := a.out.backward(p, dy, s.o, nil)
	dq, dk, dv := like(ex, s.q), like(ex, s.k), like(ex, s.v)
	tensor.CausalAttentionBackward(ex, dq.Mat(), dk.Mat(), dv.Mat(), do.Mat(),
		s.q.Mat(), s.k.Mat(), s.v.Mat(), s.o.Mat(), s.lse.F32(), s.shape)

	dUp := ex.New(dy.DType(), dy.Dim(0), c.Heads*(c.NopeDim+c.ValueDim))
	for h := range c.Heads {
		a.rope.RotateBack(ex, a.rotary(dq.Mat(), h), s.shape.Seq)
		nope, value := a.keyValue(dUp.Mat(), h)
		tensor.Convert(ex, nope, a.nope(dk.Mat(), h))
		tensor.Convert(ex, value, a.value(dv.Mat(), h))
	}
	dDown := ex.New(dy.DType(), dy.Dim(0), c.KVRank+c.RopeDim)
	dLatent, dKey := a.latentKey(dDown.Mat())
	tensor.SumBlocks(ex, dKey, dk.Mat().ColSlice(c.NopeDim, c.Heads*c.KeyDim()), c.Heads, c.KeyDim())
	a.rope.RotateBack(ex, dKey, s.shape.Seq)
	a.kvNorm.backward(p, dLatent, a.kvUp.backward(p, dUp, s.kvLatent, nil).Mat(), false)

	dx := a.kvDown.backward(p, dDown, s.x, nil)
	tensor.Add(ex, dx.Mat(), dx.Mat(), a.queriesBackward(p, dq).Mat())
	return dx
}

func (a *attention) queriesBackward(p *pass, dq tensor.Tensor) tensor.Tensor {
	s := &a.saved
	if a.qNorm == nil {
		return a.q.backward(p, dq, s.x, nil)
	}
	dLatent := a.qUp.backward(p, dq, s.qLatent, nil)
	a.qNorm.backward(p, dLatent.Mat(), dLatent.Mat(), false)
	return a.qDown.backward(p, dLatent, s.x, nil)
}

// latentKey returns the two parts of what kvDown gives.
func (a *attention) latentKey(m tensor.Matrix) (latent, key tensor.Matrix) {
	return m.ColSlice(0, a.cfg.KVRank), m.ColSlice(a.cfg.KVRank, a.cfg.cacheRow())
}

// nope and rotary return the two parts of head h of a query or key matrix, value that of a
// value matrix, keyValue the two parts of head h of what kvUp gives.
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
