package moe

import (
	"math"

	"spmoe/tensor"
)

// groupedAttention is grouped-query attention, GQA (arXiv:2305.13245), as in Qwen3-MoE and GLM-4.5.
// Each head of keys and values serves several heads of queries. The first ropeDim elements of a
// head are rotated, by pairs of halves.
type groupedAttention struct {
	cfg  groupedKind
	rope *tensor.RotaryTable

	qkv          linear   // [(heads + 2·kvHeads)·keyDim, dim]: queries | keys | values, head next to head
	qNorm, kNorm *rmsNorm // of each head; nil: none
	out          linear   // [dim, heads·keyDim]

	queryRows HeadRows
}

// groupedState is the state of groupedAttention in a pass.
type groupedState struct {
	scoreState
	x            activation    // [tokens, dim]
	rawQ, rawK   tensor.Tensor // q and k before norm and rotation; without norms, q and k themselves
	qNorm, kNorm normState
	linear       struct{ qkv, out linearState }
}

// groupedKind is [attentionKind] of GQA.
type groupedKind struct{ Config }

func (c groupedKind) validate(must func(bool, string, ...any)) {
	must(c.KVHeads > 0 && c.Heads%max(c.KVHeads, 1) == 0, "model.kv_heads is %d: it must divide model.heads, %d", c.KVHeads, c.Heads)
	must(c.QRank == 0 && c.KVRank == 0, "model.q_rank is %d and model.kv_rank is %d: grouped-query attention compresses nothing, give 0 and 0 with model.kv_heads", c.QRank, c.KVRank)
	must(c.NopeDim >= 0 && c.NopeDim <= 1<<12, "model.nope_dim is %d: give 0 to %d", c.NopeDim, 1<<12)
	must(c.ValueDim == c.KeyDim(), "model.value_dim is %d: grouped-query attention has model.nope_dim + model.rope_dim, %d", c.ValueDim, c.KeyDim())
}

func (c groupedKind) linears(add func(name string, in, out int, expands bool)) {
	add("qkv", c.Dim, c.width(), false)
	add("o", c.Heads*c.KeyDim(), c.Dim, false)
}

// width returns the number of elements of all heads: queries, keys and values.
func (c groupedKind) width() int { return (c.Heads + 2*c.KVHeads) * c.KeyDim() }

func (c groupedKind) vectors() (n int) {
	if c.QKNorm {
		n += 2 * c.KeyDim()
	}
	if c.QKVBias {
		n += c.width()
	}
	if c.OutputBias {
		n += c.Dim
	}
	return n
}

func (c groupedKind) shape() tensor.AttentionShape {
	scale := float32(1 / math.Sqrt(float64(c.KeyDim())))
	return tensor.AttentionShape{
		Heads:    c.Heads,
		KVHeads:  c.KVHeads,
		KeyDim:   c.KeyDim(),
		ValueDim: c.ValueDim,
		Scale:    scale,
	}
}

func (c groupedKind) rotary(t rotaryTables) *tensor.RotaryTable { return t.main.Halves() }

func (c groupedKind) keys(seq int) int { return seq }

func (c groupedKind) build(b *builder, prefix string, layer int, rope *tensor.RotaryTable) attention {
	a := &groupedAttention{cfg: c, rope: rope}
	// Several heads of queries share a key, so queries take all of QK-clip's factor.
	a.queryRows = HeadRows{Rows: c.KeyDim(), Whole: c.KeyDim()}
	var weights, biases []*Param
	for _, p := range []struct {
		name  string
		heads int
	}{{"q_proj", c.Heads}, {"k_proj", c.KVHeads}, {"v_proj", c.KVHeads}} {
		rows := p.heads * c.KeyDim()
		weights = append(weights, &Param{Name: prefix + p.name + ".weight", Dims: []int{rows, c.Dim}, Init: truncNormal(linearStd)})
		biases = append(biases, biasParam(prefix+p.name, rows))
	}
	weights[0].Heads = &a.queryRows
	b.grouped(b.dense, &a.qkv, Projections, []int{1, c.width(), c.Dim}, weights...)
	if c.QKVBias {
		b.bias(&a.qkv, biases...)
	}
	if c.QKNorm {
		a.qNorm = newHeadNorm(b, prefix+"q_norm", c.Heads, c.KeyDim(), c.NormEps)
		a.kNorm = newHeadNorm(b, prefix+"k_norm", c.KVHeads, c.KeyDim(), c.NormEps)
	}
	b.linear(&a.out, Projections, prefix+"o_proj", c.Dim, c.Heads*c.KeyDim(), outputInit(layer))
	if c.OutputBias {
		b.bias(&a.out, biasParam(prefix+"o_proj", c.Dim))
	}
	return a
}

func (a *groupedAttention) newState() attentionState { return &groupedState{} }

func (a *groupedAttention) record(top []float32) { a.queryRows.Top = top }

// forward returns the attention output for x, both [tokens, dim]:
//
//	q | k | v = Wqkv·x + bqkv
//	q = rotate(norm(q)), k = rotate(norm(k))       of each head
//	out = Wo·softmax(scale·q·kᵀ)·v + bo            with the k and v of the head's group
func (a *groupedAttention) forward(p phase, x tensor.Tensor, state attentionState) tensor.Tensor {
	s := state.(*groupedState)
	a.project(p, x, s)
	a.turn(p, s)
	s.gather(p, a.turned(p), a.turned(p), p.saved)
	s.attend(p, a.cfg.shape(), a.queryRows.Top)
	return a.out.forward(p, p.saved, &s.o, &s.linear.out)
}

// project computes queries and keys, before their norms, and values.
func (a *groupedAttention) project(p phase, x tensor.Tensor, s *groupedState) {
	s.x = activation{Tensor: x}
	all := a.qkv.forward(p, p.scratch, &s.x, &s.linear.qkv)
	q, k, v := a.parts(all.Mat())
	raw := p.saved // the norms read it in the backward pass
	if a.qNorm == nil {
		raw = p.local(p.saved)
	}
	for _, part := range [...]struct {
		to   *tensor.Tensor
		from tensor.Matrix
		in   *tensor.Arena
	}{{&s.rawQ, q, raw}, {&s.rawK, k, raw}, {&s.v, v, p.local(p.saved)}} {
		*part.to = part.in.New(all.DType(), part.from.Rows, part.from.Cols)
		tensor.Convert(p.ex, part.to.Mat(), part.from)
	}
}

// turned returns the arena for queries and keys after norm and rotation.
func (a *groupedAttention) turned(p phase) *tensor.Arena {
	if a.qNorm == nil {
		return p.saved
	}
	return p.cheap
}

// turn computes queries and keys from those before their norms.
func (a *groupedAttention) turn(p phase, s *groupedState) {
	s.q = a.qNorm.forwardHeads(p, s.rawQ, &s.qNorm)
	a.rotate(s.q.Mat(), p.rotate)
	s.k = a.kNorm.forwardHeads(p, s.rawK, &s.kNorm)
	a.rotate(s.k.Mat(), p.rotate)
}

// recompute implements [attention].
func (a *groupedAttention) recompute(p phase, x tensor.Tensor, state attentionState) {
	s := state.(*groupedState)
	if s.x.restore(x); a.qNorm != nil {
		a.turn(p, s)
		s.gather(p, p.cheap, p.cheap, nil)
	}
}

// backward returns the gradient of x.
func (a *groupedAttention) backward(p phase, dy tensor.Tensor, state attentionState) tensor.Tensor {
	ex, c, s := p.ex, a.cfg, state.(*groupedState)
	do := a.out.backward(p, p.scratch, activation{Tensor: dy}, &s.linear.out)
	p.in(Scores)
	dall := p.saved.New(dy.DType(), dy.Dim(0), c.width())
	toQ, toK, toV := a.parts(dall.Mat())
	o := s.o.Tensor
	heads := p.toHeads([3]exchanged{{do, p.scratch}, {o, p.scratch}})
	do, o = heads[0], heads[1]
	dq := like(p.scratch, s.q)
	dk := p.scratch.New(s.k.DType(), dy.Dim(0), c.KVHeads*c.KeyDim())
	perHead := [2]tensor.Tensor{like(p.scratch, s.q), like(p.scratch, s.q)} // of k and v
	tensor.CausalAttentionBackward(ex, dq.Mat(), perHead[0].Mat(), perHead[1].Mat(), do.Mat(),
		s.q.Mat(), s.k.Mat(), s.v.Mat(), o.Mat(), s.lse.F32(), s.shape)
	rows := p.toRows([3]exchanged{{dq, p.scratch}, {perHead[0], p.scratch}, {perHead[1], p.scratch}})
	dq, perHead = rows[0], [2]tensor.Tensor(rows[1:])
	group := c.Heads / c.KVHeads
	for h := range c.KVHeads {
		tensor.SumBlocks(ex, a.heads(dk.Mat(), h, 1), a.heads(perHead[0].Mat(), h*group, group), group, c.KeyDim())
		tensor.SumBlocks(ex, a.heads(toV, h, 1), a.heads(perHead[1].Mat(), h*group, group), group, c.KeyDim())
	}
	a.rotate(dq.Mat(), p.rotateBack)
	a.rotate(dk.Mat(), p.rotateBack)
	a.qNorm.backwardHeads(p, dq, &s.qNorm)
	a.kNorm.backwardHeads(p, dk, &s.kNorm)
	tensor.Convert(ex, toQ, dq.Mat())
	tensor.Convert(ex, toK, dk.Mat())
	return a.qkv.backward(p, p.scratch, activation{Tensor: dall}, &s.linear.qkv)
}

// backwardWeight adds to the gradients of all weights.
func (a *groupedAttention) backwardWeight(p phase, state attentionState) {
	s := state.(*groupedState)
	a.out.backwardWeight(p, &s.linear.out)
	if a.qNorm != nil {
		a.qNorm.backwardWeight(p, &s.qNorm)
		a.kNorm.backwardWeight(p, &s.kNorm)
	}
	a.qkv.backwardWeight(p, &s.linear.qkv)
}

// parts splits the output of qkv into queries, keys and values.
func (a *groupedAttention) parts(m tensor.Matrix) (q, k, v tensor.Matrix) {
	heads, kv := a.cfg.Heads, a.cfg.KVHeads
	return a.heads(m, 0, heads), a.heads(m, heads, kv), a.heads(m, heads+kv, kv)
}

// heads returns the columns of n heads from the first one on.
func (a *groupedAttention) heads(m tensor.Matrix, first, n int) tensor.Matrix {
	return m.ColSlice(first*a.cfg.KeyDim(), (first+n)*a.cfg.KeyDim())
}

// rotate turns the first elements of all heads of x: with phase.rotate, or back.
func (a *groupedAttention) rotate(x tensor.Matrix, turn func(*tensor.RotaryTable, tensor.Matrix)) {
	rotateHeads(a.rope, x, a.cfg.KeyDim(), 0, a.cfg.RopeDim, turn)
}
