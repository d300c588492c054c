package moe

import "spmoe/tensor"

// latentAttention is multi-head latent attention, MLA (arXiv:2405.04434). Keys and values are
// expanded from one small latent vector per token, and all heads share one rotary key.
type latentAttention struct {
	cfg  latentKind
	rope *tensor.RotaryTable

	q     linear   // [heads·keyDim, dim], if queries are not compressed
	qDown linear   // [qRank, dim]
	qNorm *rmsNorm // nil if queries are not compressed
	qUp   linear   // [heads·keyDim, qRank]

	kvDown linear // [kvRank + ropeDim, dim]: latent | rotary key
	kvNorm *rmsNorm
	kvUp   linear // [heads·(nopeDim + valueDim), kvRank]: per head, nope key | value
	out    linear // [dim, heads·valueDim]

	queryRows, keyRows HeadRows // of q or qUp, and of kvUp

	sparse *sparseKeys // chooses the keys of each query; nil: it attends to all
}

// latentState is the state of latentAttention in a pass.
type latentState struct {
	scoreState
	x        activation    // [tokens, dim]
	qLatent  activation    // [tokens, qRank]
	down     tensor.Tensor // [tokens, kvRank + ropeDim]: latent, before its norm | rotary key
	kvLatent activation    // [tokens, kvRank]

	index indexState

	qNorm, kvNorm normState
	linear        struct{ q, qDown, qUp, kvDown, kvUp, out linearState }
}

// latentKind is [attentionKind] of MLA.
type latentKind struct{ Config }

func (c latentKind) validate(must func(bool, string, ...any)) {
	for _, f := range []size{{"kv_rank", c.KVRank, 1 << 16}, {"nope_dim", c.NopeDim, 1 << 12}} {
		f.validate(must)
	}
	must(!c.QKNorm && !c.QKVBias && !c.OutputBias, "model.qk_norm, model.qkv_bias and model.output_bias belong to grouped-query attention: give model.kv_heads, too")
	must(c.QRank >= 0 && c.QRank <= 1<<16, "model.q_rank is %d: give 0 (no compression) or a rank up to %d", c.QRank, 1<<16)
}

func (c latentKind) linears(add func(name string, in, out int, expands bool)) {
	if c.QRank > 0 {
		add("q_a", c.Dim, c.QRank, false)
		add("q_b", c.QRank, c.Heads*c.KeyDim(), true)
	} else {
		add("q", c.Dim, c.Heads*c.KeyDim(), true)
	}
	add("kv_a", c.Dim, c.KVRank+c.RopeDim, false)
	add("kv_b", c.KVRank, c.Heads*(c.NopeDim+c.ValueDim), true)
	add("o", c.Heads*c.ValueDim, c.Dim, false)
}

func (c latentKind) vectors() int { return c.KVRank + c.QRank }

func (c latentKind) shape() tensor.AttentionShape {
	return tensor.AttentionShape{Heads: c.Heads, KVHeads: c.Heads, KeyDim: c.KeyDim(), ValueDim: c.ValueDim, Scale: c.softmaxScale()}
}

func (c latentKind) rotary(t rotaryTables) *tensor.RotaryTable { return t.main }

func (c latentKind) keys(seq int) int { return seq }

func (c latentKind) build(b *builder, prefix string, layer int, rope *tensor.RotaryTable) attention {
	a := &latentAttention{cfg: c, rope: rope}
	plain, query := truncNormal(linearStd), (*Param)(nil)
	if c.QRank > 0 {
		b.linear(&a.qDown, Projections, prefix+"q_a_proj", c.QRank, c.Dim, plain)
		a.qNorm = newNorm(b, prefix+"q_a_layernorm", c.QRank, c.latentEps())
		query = b.linear(&a.qUp, Projections, prefix+"q_b_proj", c.Heads*c.KeyDim(), c.QRank, plain)
	} else {
		query = b.linear(&a.q, Projections, prefix+"q_proj", c.Heads*c.KeyDim(), c.Dim, plain)
	}
	a.queryRows = HeadRows{Rows: c.KeyDim(), Root: c.NopeDim, Whole: c.RopeDim}
	query.Heads = &a.queryRows
	b.linear(&a.kvDown, Projections, prefix+"kv_a_proj_with_mqa", c.KVRank+c.RopeDim, c.Dim, plain)
	a.kvNorm = newNorm(b, prefix+"kv_a_layernorm", c.KVRank, c.latentEps())
	key := b.linear(&a.kvUp, Projections, prefix+"kv_b_proj", c.Heads*(c.NopeDim+c.ValueDim), c.KVRank, plain)
	a.keyRows = HeadRows{Rows: c.NopeDim + c.ValueDim, Root: c.NopeDim}
	key.Heads = &a.keyRows
	b.linear(&a.out, Projections, prefix+"o_proj", c.Dim, c.Heads*c.ValueDim, outputInit(layer))
	return a
}

func (a *latentAttention) newState() attentionState { return &latentState{} }

func (a *latentAttention) record(top []float32) { a.queryRows.Top, a.keyRows.Top = top, top }

// forward returns the attention output for x, both [tokens, dim]:
//
//	q = rotate(Wuq·norm(Wdq·x))              or rotate(Wq·x)
//	latent | key = Wdkv·x,  key = rotate(key)
//	k_nope | v = Wukv·norm(latent)
//	k = k_nope | key                         of each head
//	out = Wo·softmax(scale·q·kᵀ)·v
func (a *latentAttention) forward(p phase, x tensor.Tensor, state attentionState) tensor.Tensor {
	c, s := a.cfg, state.(*latentState)
	s.x = activation{Tensor: x}
	s.q = a.queries(p, s)
	rotateHeads(a.rope, s.q.Mat(), c.KeyDim(), c.NopeDim, c.KeyDim(), p.rotate)
	s.down = a.kvDown.forward(p, p.saved, &s.x, &s.linear.kvDown)
	latent, key := a.latentKey(s.down.Mat())
	p.rotate(a.rope, key)
	s.kvLatent = activation{Tensor: a.kvNorm.forward(p, p.cheap, latent, &s.kvNorm)}
	a.expand(p, s)
	s.gather(p, p.saved, p.cheap, p.cheap)
	shape := a.sparse.choose(p, c.shape(), &s.x, &s.qLatent, &s.index)
	s.attend(p, shape, a.queryRows.Top)
	a.sparse.computeLoss(p, &s.scoreState, &s.index)
	return a.out.forward(p, p.saved, &s.o, &s.linear.out)
}

// recompute implements [attention].
func (a *latentAttention) recompute(p phase, x tensor.Tensor, state attentionState) {
	s := state.(*latentState)
	s.x.restore(x)
	if a.qNorm != nil {
		s.qLatent.restore(a.qNorm.forward(p, p.cheap, s.qNorm.x, &s.qNorm))
	}
	s.kvLatent = activation{Tensor: a.kvNorm.forward(p, p.cheap, s.kvNorm.x, &s.kvNorm)} // expand quantizes it again
	a.expand(p, s)
	s.gather(p, nil, p.cheap, p.cheap)
	a.sparse.recompute(p, &s.x, &s.index)
}

// queries returns the queries of all heads before rotation.
func (a *latentAttention) queries(p phase, s *latentState) tensor.Tensor {
	if a.qNorm == nil {
		return a.q.forward(p, p.local(p.saved), &s.x, &s.linear.q)
	}
	down := a.qDown.forward(p, p.saved, &s.x, &s.linear.qDown)
	s.qLatent = activation{Tensor: a.qNorm.forward(p, p.cheap, down.Mat(), &s.qNorm)}
	return a.qUp.forward(p, p.local(p.saved), &s.qLatent, &s.linear.qUp)
}

// expand computes keys and values of all heads from the latents and the rotary key.
func (a *latentAttention) expand(p phase, s *latentState) {
	ex, c := p.ex, a.cfg
	up := a.kvUp.forward(p, p.scratch, &s.kvLatent, &s.linear.kvUp)
	_, key := a.latentKey(s.down.Mat())
	p.in(Scores)
	s.k = p.local(p.cheap).New(up.DType(), up.Dim(0), c.Heads*c.KeyDim())
	s.v = p.local(p.cheap).New(up.DType(), up.Dim(0), c.Heads*c.ValueDim)
	nope, value := a.keysValues(up)
	tensor.Convert(ex, a.byHead(s.k).ColSlice(0, c.NopeDim), nope)
	tensor.Convert(ex, a.byHead(s.v), value)
	for at := c.NopeDim; at < s.k.Dim(1); at += c.KeyDim() {
		tensor.Convert(ex, s.k.Mat().ColSlice(at, at+c.RopeDim), key)
	}
}

// backward returns the gradient of x.
func (a *latentAttention) backward(p phase, dy tensor.Tensor, state attentionState) tensor.Tensor {
	ex, c, s := p.ex, a.cfg, state.(*latentState)
	a.sparse.backward(p, &s.index)
	do := a.out.backward(p, p.scratch, activation{Tensor: dy}, &s.linear.out)
	p.in(Scores)
	o := s.o.Tensor
	heads := p.toHeads([3]exchanged{{do, p.scratch}, {o, p.scratch}})
	do, o = heads[0], heads[1]
	dq := like(p.local(p.saved), s.q)
	dk := like(p.scratch, s.k)
	dv := like(p.scratch, s.v)
	tensor.CausalAttentionBackward(ex, dq.Mat(), dk.Mat(), dv.Mat(), do.Mat(),
		s.q.Mat(), s.k.Mat(), s.v.Mat(), o.Mat(), s.lse.F32(), s.shape)
	rows := p.toRows([3]exchanged{{dq, p.saved}, {dk, p.scratch}, {dv, p.scratch}})
	dq, dk, dv = rows[0], rows[1], rows[2]

	dUp := p.saved.New(dy.DType(), dy.Dim(0), c.Heads*(c.NopeDim+c.ValueDim))
	rotateHeads(a.rope, dq.Mat(), c.KeyDim(), c.NopeDim, c.KeyDim(), p.rotateBack)
	nope, value := a.keysValues(dUp)
	tensor.Convert(ex, nope, a.byHead(dk).ColSlice(0, c.NopeDim))
	tensor.Convert(ex, value, a.byHead(dv))
	dDown := p.saved.New(dy.DType(), dy.Dim(0), c.KVRank+c.RopeDim)
	dLatent, dKey := a.latentKey(dDown.Mat())
	tensor.SumBlocks(ex, dKey, dk.Mat().ColSlice(c.NopeDim, c.Heads*c.KeyDim()), c.Heads, c.KeyDim())
	p.rotateBack(a.rope, dKey)
	dkvLatent := a.kvUp.backward(p, p.scratch, activation{Tensor: dUp}, &s.linear.kvUp)
	a.kvNorm.backward(p, dLatent, dkvLatent.Mat(), false, &s.kvNorm)

	dx := a.kvDown.backward(p, p.scratch, activation{Tensor: dDown}, &s.linear.kvDown)
	tensor.Add(ex, dx.Mat(), dx.Mat(), a.queriesBackward(p, dq, s).Mat())
	return dx
}

// queriesBackward returns the gradient of x through the queries.
func (a *latentAttention) queriesBackward(p phase, dq tensor.Tensor, s *latentState) tensor.Tensor {
	if a.qNorm == nil {
		return a.q.backward(p, p.scratch, activation{Tensor: dq}, &s.linear.q)
	}
	dLatent := a.qUp.backward(p, p.saved, activation{Tensor: dq}, &s.linear.qUp)
	a.qNorm.backward(p, dLatent.Mat(), dLatent.Mat(), false, &s.qNorm)
	return a.qDown.backward(p, p.scratch, activation{Tensor: dLatent}, &s.linear.qDown)
}

// backwardWeight adds to the gradients of all weights.
func (a *latentAttention) backwardWeight(p phase, state attentionState) {
	s := state.(*latentState)
	a.sparse.backwardWeight(p, &s.index)
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
func (a *latentAttention) latentKey(m tensor.Matrix) (latent, key tensor.Matrix) {
	return m.ColSlice(0, a.cfg.KVRank), m.ColSlice(a.cfg.KVRank, a.cfg.KVRank+a.cfg.RopeDim)
}

// byHead views t, [tokens, heads·n], as [tokens·heads, n]. A copy then reads a token's heads one
// after another, as they lie in memory.
func (a *latentAttention) byHead(t tensor.Tensor) tensor.Matrix {
	return t.Reshape(t.Dim(0)*a.cfg.Heads, t.Dim(1)/a.cfg.Heads).Mat()
}

// keysValues splits the output of kvUp by head.
func (a *latentAttention) keysValues(up tensor.Tensor) (nope, value tensor.Matrix) {
	m := a.byHead(up)
	return m.ColSlice(0, a.cfg.NopeDim), m.ColSlice(a.cfg.NopeDim, m.Cols)
}
