package moe

import "spmoe/tensor"

// compressedAttention is the attention of DeepSeek-V4. All heads share one head that is key and
// value at once. A token attends to a window of tokens, to entries, and to a sink of each head:
//
//	c = norm(Wqa·x),  q = rotate(norm(Wqb·c))          of each head, by a norm without a weight
//	k = rotate(norm(Wkv·x)),  and the entries of x
//	o = softmax([q·k/√d, sink])·k                      the sink has no value
//	y = Wb·[A₁·o₁ … A_G·o_G],  o = rotate back(o)       in groups of heads
//
// Values are rotated, because keys are. Rotated back, an output has relative positions.
type compressedAttention struct {
	cfg  compressedKind
	rope *tensor.RotaryTable

	qDown    linear   // [qRank, dim]
	qNorm    *rmsNorm // of latents
	qUp      linear   // [heads·keyDim, qRank]
	headNorm *rmsNorm // of each head of queries, without a weight
	kv       linear   // [keyDim, dim]
	kvNorm   *rmsNorm
	outDown  []linear // of each group: [outputRank, heads·keyDim/groups]
	out      linear   // [dim, groups·outputRank]
	sinks    weight   // [heads, 1] FP32

	compressor *compressor   // nil: there are no entries
	indexer    *entryIndexer // nil: all complete entries are seen
}

// compressedState is the state of compressedAttention in a pass.
type compressedState struct {
	x          activation    // [tokens, dim]
	qLatent    activation    // [tokens, qRank]
	rawQ, rawK tensor.Tensor // before norm and rotation
	q          tensor.Tensor // [tokens, heads·keyDim]
	keys       tensor.Tensor // [sequences·(seq + entries), keyDim]: of each sequence, keys, then entries
	o          tensor.Tensor // [tokens, heads·keyDim], before it is rotated back
	lse        tensor.Tensor
	shape      tensor.AttentionShape
	chosen     tensor.Tensor // bits of keys; a recomputation does not choose again
	parts      []activation  // of each group: [tokens, heads·keyDim/groups]
	joined     activation    // [tokens, groups·outputRank]
	dsinks     tensor.Tensor // [sequences, heads]: gradients

	compressor              compressorState
	qNorm, headNorm, kvNorm normState
	linear                  struct {
		qDown, qUp, kv, out linearState
		outDown             []linearState
	}
}

func (c compressedKind) build(b *builder, prefix string, layer int, rope *tensor.RotaryTable) attention {
	a := &compressedAttention{cfg: c, rope: rope}
	plain := truncNormal(linearStd)
	b.linear(&a.qDown, Projections, prefix+"q_a_proj", c.QRank, c.Dim, plain)
	a.qNorm = newNorm(b, prefix+"q_a_norm", c.QRank, c.NormEps)
	b.linear(&a.qUp, Projections, prefix+"q_b_proj", c.Heads*c.KeyDim(), c.QRank, plain)
	a.headNorm = newPlainNorm(c.Heads, c.KeyDim(), c.NormEps)
	b.linear(&a.kv, Projections, prefix+"kv_proj", c.KeyDim(), c.Dim, plain)
	a.kvNorm = newNorm(b, prefix+"kv_norm", c.KeyDim(), c.NormEps)
	a.outDown = make([]linear, c.OutputGroups)
	b.rows(a.outDown, Projections, prefix+"o_a_proj", c.OutputRank, c.groupCols(), plain)
	b.linear(&a.out, Projections, prefix+"o_b_proj", c.Dim, c.OutputGroups*c.OutputRank, outputInit(layer))
	b.add(b.norms, &a.sinks, Norms, []int{c.Heads, 1}, &Param{Name: prefix + "sinks", Dims: []int{c.Heads}})
	if c.rate() > 0 {
		a.compressor = newCompressor(b, c.Config, prefix+"compressor.", c, c.KeyDim(), rope)
	}
	if c.kind == compressedSparse {
		a.indexer = newEntryIndexer(b, c, prefix+"compressor.indexer.", rope)
	}
	return a
}

func (a *compressedAttention) newState() attentionState {
	s := &compressedState{parts: make([]activation, len(a.outDown))}
	s.linear.outDown = make([]linearState, len(a.outDown))
	return s
}

// record does nothing: queries are normalized, so scaling their weights changes no score.
func (a *compressedAttention) record([]float32) {}

// forward returns the attention output for x, both [tokens, dim].
func (a *compressedAttention) forward(p phase, x tensor.Tensor, state attentionState) tensor.Tensor {
	s := state.(*compressedState)
	s.x = activation{Tensor: x}
	down := a.qDown.forward(p, p.saved, &s.x, &s.linear.qDown)
	s.qLatent = activation{Tensor: a.qNorm.forward(p, p.cheap, down.Mat(), &s.qNorm)}
	s.rawQ = a.qUp.forward(p, p.saved, &s.qLatent, &s.linear.qUp)
	s.rawK = a.kv.forward(p, p.saved, &s.x, &s.linear.kv)
	var entries tensor.Tensor
	if a.entriesOf(p) > 0 {
		entries = a.compressor.forward(p, &s.x, &s.compressor)
	}
	a.operands(p, s, entries)
	s.o = p.saved.New(s.q.DType(), x.Dim(0), s.q.Dim(1))
	s.lse = p.saved.New(tensor.FP32, x.Dim(0)*a.cfg.Heads)
	if p.decoding != nil {
		a.extend(p, s, s.keys)
	} else {
		a.attend(p, s)
	}
	for g := range s.parts {
		s.parts[g] = activation{Tensor: a.derotated(p, s, g)}
	}
	p.in(Projections)
	s.joined = activation{Tensor: p.saved.New(x.DType(), x.Dim(0), a.out.W.Dim(1))}
	for g := range a.outDown {
		mark := p.ex.Mark()
		y := a.outDown[g].forward(p, p.scratch, &s.parts[g], &s.linear.outDown[g])
		tensor.Convert(p.ex, a.group(s.joined.Mat(), g), y.Mat())
		p.endHalf(mark) // the backward pass may read what is there
	}
	return a.out.forward(p, p.saved, &s.joined, &s.linear.out)
}

// entriesOf returns the entries of a sequence. In generation they are in a cache.
func (a *compressedAttention) entriesOf(p phase) int {
	if a.compressor == nil || p.decoding != nil {
		return 0
	}
	return p.batch.Seq / a.compressor.rate
}

// operands computes queries and keys from those before their norms, and from entries.
func (a *compressedAttention) operands(p phase, s *compressedState, entries tensor.Tensor) {
	s.q = a.headNorm.forwardHeads(p, s.rawQ, &s.headNorm)
	a.rotate(s.q, p.rotate)
	keys := a.kvNorm.forward(p, p.cheap, s.rawK.Mat(), &s.kvNorm)
	a.rotate(keys, p.rotate)
	p.in(Scores)
	n := a.entriesOf(p)
	sequences := len(p.sequences)
	if n == 0 {
		s.keys = keys
		return
	}
	s.keys = p.cheap.New(keys.DType(), sequences*(p.batch.Seq+n), keys.Dim(1))
	for i := range sequences {
		own, more := a.split(s.keys, i, p.batch.Seq, n)
		tensor.Convert(p.ex, own, keys.Slice(i*p.batch.Seq, (i+1)*p.batch.Seq).Mat())
		tensor.Convert(p.ex, more, entries.Slice(i*n, (i+1)*n).Mat())
	}
}

// split returns the rows of sequence i in all: keys of tokens, and n entries.
func (a *compressedAttention) split(all tensor.Tensor, i, seq, n int) (keys, entries tensor.Matrix) {
	rows := all.Slice(i*(seq+n), (i+1)*(seq+n)).Mat()
	return rows.RowSlice(0, seq), rows.RowSlice(seq, seq+n)
}

// attend computes the attention of all heads.
func (a *compressedAttention) attend(p phase, s *compressedState) {
	p.in(Scores)
	s.shape = a.cfg.shape()
	s.shape.Seq = p.batch.Seq
	s.shape.Batch = len(p.sequences)
	s.shape.Extra = a.entriesOf(p)
	s.shape.First = a.windows(p)
	s.shape.Sinks = a.sinks.W.Reshape(a.cfg.Heads).F32()
	if s.shape.Extra > 0 {
		a.choose(p, s)
	}
	tensor.CausalAttention(p.ex, s.o.Mat(), s.lse.F32(), s.q.Mat(), s.keys.Mat(), s.keys.Mat(), s.shape)
}

// windows returns the first position of each token's window, which begins no earlier than its
// document.
func (a *compressedAttention) windows(p phase) []int32 {
	first := p.saved.New(tensor.INT32, len(p.batch.Inputs)).I32()
	if p.ex.Dry() {
		return nil
	}
	for t := range first {
		first[t] = int32(max(t%p.batch.Seq-a.cfg.Window+1, 0))
		if p.batch.First != nil {
			first[t] = max(first[t], p.batch.First[t])
		}
	}
	return first
}

// choose chooses the keys of each token.
func (a *compressedAttention) choose(p phase, s *compressedState) {
	words := s.shape.KeyWords()
	if !p.recomputing {
		mark := p.ex.Mark()
		s.chosen = p.arena.New(tensor.UINT8, s.q.Dim(0), 8*words)
		c := tensor.EntryChoice{AttentionShape: s.shape, Documents: p.batch.First, Rate: a.compressor.rate}
		if a.indexer != nil {
			c.TopK = a.cfg.IndexTopK
			c.Index = a.indexer.operands(p, &s.x, &s.qLatent)
		}
		c.Choose(p.ex, s.chosen.U64())
		p.ex.Release(mark)
	}
	s.shape.Chosen = s.chosen.U64()
}

// derotated returns the output of a group of heads, rotated back.
func (a *compressedAttention) derotated(p phase, s *compressedState, g int) tensor.Tensor {
	cols := a.cfg.groupCols()
	part := p.cheap.New(s.o.DType(), s.o.Dim(0), cols)
	tensor.Convert(p.ex, part.Mat(), s.o.Mat().ColSlice(g*cols, (g+1)*cols))
	a.rotate(part, p.rotateBack)
	return part
}

// group returns the columns of group g in the output of outDown.
func (a *compressedAttention) group(m tensor.Matrix, g int) tensor.Matrix {
	return m.ColSlice(g*a.cfg.OutputRank, (g+1)*a.cfg.OutputRank)
}

// rotate turns the last elements of all heads of x: with phase.rotate, or back.
func (a *compressedAttention) rotate(x tensor.Tensor, turn func(*tensor.RotaryTable, tensor.Matrix)) {
	rotateHeads(a.rope, x.Mat(), a.cfg.KeyDim(), a.cfg.NopeDim, a.cfg.KeyDim(), turn)
}

// recompute implements [attention].
func (a *compressedAttention) recompute(p phase, x tensor.Tensor, state attentionState) {
	s := state.(*compressedState)
	s.x.restore(x)
	s.qLatent.restore(a.qNorm.forward(p, p.cheap, s.qNorm.x, &s.qNorm))
	var entries tensor.Tensor
	if a.entriesOf(p) > 0 {
		entries = a.compressor.finish(p, &s.compressor, a.rope)
	}
	a.operands(p, s, entries)
	for g := range s.parts {
		s.parts[g].restore(a.derotated(p, s, g))
	}
}

// backward returns the gradient of x.
func (a *compressedAttention) backward(p phase, dy tensor.Tensor, state attentionState) tensor.Tensor {
	ex, s := p.ex, state.(*compressedState)
	do := a.outputBackward(p, dy, s)
	p.in(Scores)
	dq := like(p.saved, s.q)
	dkeys := a.scoresBackward(p, dq, do, s)
	dk, dentries := a.divide(p, dkeys, s)

	a.rotate(dq, p.rotateBack)
	a.headNorm.backwardHeads(p, dq, &s.headNorm)
	a.rotate(dk, p.rotateBack)
	a.kvNorm.backward(p, dk.Mat(), dk.Mat(), false, &s.kvNorm)
	dx := a.kv.backward(p, p.scratch, activation{Tensor: dk}, &s.linear.kv)
	dLatent := a.qUp.backward(p, p.saved, activation{Tensor: dq}, &s.linear.qUp)
	a.qNorm.backward(p, dLatent.Mat(), dLatent.Mat(), false, &s.qNorm)
	tensor.Add(ex, dx.Mat(), dx.Mat(), a.qDown.backward(p, p.scratch, activation{Tensor: dLatent}, &s.linear.qDown).Mat())
	if dentries.Valid() {
		tensor.Add(ex, dx.Mat(), dx.Mat(), a.compressor.backward(p, dentries, &s.compressor).Mat())
	}
	return dx
}

// outputBackward returns the gradient of the output before it is rotated back.
func (a *compressedAttention) outputBackward(p phase, dy tensor.Tensor, s *compressedState) tensor.Tensor {
	djoined := a.out.backward(p, p.scratch, activation{Tensor: dy}, &s.linear.out)
	do := like(p.scratch, s.o)
	cols := a.cfg.groupCols()
	for g := range a.outDown {
		dpart := p.saved.New(dy.DType(), dy.Dim(0), a.cfg.OutputRank)
		tensor.Convert(p.ex, dpart.Mat(), a.group(djoined.Mat(), g))
		back := a.outDown[g].backward(p, p.scratch, activation{Tensor: dpart}, &s.linear.outDown[g])
		tensor.Convert(p.ex, do.Mat().ColSlice(g*cols, (g+1)*cols), back.Mat())
	}
	a.rotate(do, p.rotate)
	return do
}

// scoresBackward sets dq and returns the gradient of keys, which are values too.
func (a *compressedAttention) scoresBackward(p phase, dq, do tensor.Tensor, s *compressedState) tensor.Tensor {
	heads := a.cfg.Heads
	width := a.cfg.KeyDim()
	s.dsinks = p.saved.New(tensor.FP32, s.shape.Batch, heads)
	dkeys := like(p.saved, s.keys)
	dvalues := like(p.scratch, s.keys)
	var perHead [2]tensor.Tensor
	for i := range perHead {
		perHead[i] = p.scratch.New(s.keys.DType(), s.keys.Dim(0), heads*width)
	}
	shape := s.shape
	shape.SinkGradients = s.dsinks.Reshape(s.dsinks.Len()).F32()
	tensor.CausalAttentionBackward(p.ex, dq.Mat(), perHead[0].Mat(), perHead[1].Mat(), do.Mat(),
		s.q.Mat(), s.keys.Mat(), s.keys.Mat(), s.o.Mat(), s.lse.F32(), shape)
	tensor.SumBlocks(p.ex, dkeys.Mat(), perHead[0].Mat(), heads, width)
	tensor.SumBlocks(p.ex, dvalues.Mat(), perHead[1].Mat(), heads, width)
	tensor.Add(p.ex, dkeys.Mat(), dkeys.Mat(), dvalues.Mat())
	if p.fused {
		a.sinks.addRows(p, s.dsinks)
	}
	return dkeys
}

// divide returns the gradients of the keys of tokens and of entries; without entries, an invalid
// one.
func (a *compressedAttention) divide(p phase, dkeys tensor.Tensor, s *compressedState) (dk, dentries tensor.Tensor) {
	n, seq := s.shape.Extra, p.batch.Seq
	if n == 0 {
		return dkeys, dentries
	}
	dk = like(p.saved, s.rawK)
	dentries = p.saved.New(dkeys.DType(), s.shape.Batch*n, dkeys.Dim(1))
	for i := range s.shape.Batch {
		own, more := a.split(dkeys, i, seq, n)
		tensor.Convert(p.ex, dk.Slice(i*seq, (i+1)*seq).Mat(), own)
		tensor.Convert(p.ex, dentries.Slice(i*n, (i+1)*n).Mat(), more)
	}
	return dk, dentries
}

// backwardWeight adds to the gradients of all weights.
func (a *compressedAttention) backwardWeight(p phase, state attentionState) {
	s := state.(*compressedState)
	a.out.backwardWeight(p, &s.linear.out)
	for g := range a.outDown {
		a.outDown[g].backwardWeight(p, &s.linear.outDown[g])
	}
	a.sinks.addRows(p, s.dsinks)
	a.kvNorm.backwardWeight(p, &s.kvNorm)
	a.kv.backwardWeight(p, &s.linear.kv)
	a.qUp.backwardWeight(p, &s.linear.qUp)
	a.qNorm.backwardWeight(p, &s.qNorm)
	a.qDown.backwardWeight(p, &s.linear.qDown)
	if s.shape.Extra > 0 {
		a.compressor.backwardWeight(p, &s.compressor)
	}
}
