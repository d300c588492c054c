package moe

// Residual streams of DeepSeek-V4 (manifold-constrained hyper-connections, mHC). A token has n
// streams of dim elements, side by side: [tokens, n·dim]. A half of a block reads a weighted sum of
// them, and writes to all of them:
//
//	m    = F·x/rms(x)                       of all streams as one vector, in FP32
//	pre  = σ(s₀·m + b) + eps                [n]
//	post = 2σ(s₁·m + b)                     [n]
//	comb = Sinkhorn(softmax(s₂·m + b) + eps)  [n, n], softmax of rows
//	h    = Σ preᵢ·xᵢ
//	yⱼ   = postⱼ·half(h) + Σ combᵢⱼ·xᵢ
//
// The streams begin as copies of the embedding. The head reads pre of its own.

import (
	"spmoe/tensor"
)

// mixer joins a half of a block, or the head, to the streams. A nil mixer stands for a single
// stream, to which a half adds its output.
type mixer struct {
	streams, iterations int
	normEps, eps        float32
	head                bool      // it has pre only
	project             linear    // F: [outputs, streams·dim] FP32
	base, scale         weight    // [outputs], and [1] or [3] for pre, post and comb
	ones                []float32 // [streams·dim]: the weight of its norm
}

// mixState is the state of a mixer in a pass.
type mixState struct {
	x          tensor.Tensor // the streams before the half
	out        tensor.Tensor // of the half: [tokens, dim]
	rstd       tensor.Tensor // [tokens]
	raw        tensor.Tensor // m: [tokens, outputs]
	pre, post  tensor.Tensor // [tokens, streams]
	soft, comb tensor.Tensor // [tokens, streams²]: before Sinkhorn, without eps, and after it

	flat    activation // x/rms(x), FP32
	project linearState
	// the gradients of σ's and softmax's arguments, [tokens, outputs], and their part of that of
	// the scales, [tokens, 1 or 3]
	dlogits, dscale tensor.Tensor
}

// mixOutputs returns the outputs of a mixer of a block.
func (c Config) mixOutputs() int { return c.ResidualStreams*c.ResidualStreams + 2*c.ResidualStreams }

// ResidualDim returns the elements of a token in the residual stream, or in all streams.
func (c Config) ResidualDim() int { return max(c.ResidualStreams, 1) * c.Dim }

// newMixer returns nil for a model with a single stream. prefix begins the parameters' names.
func newMixer(b *builder, cfg Config, prefix string, head bool) *mixer {
	if cfg.ResidualStreams == 0 {
		return nil
	}
	m := &mixer{streams: cfg.ResidualStreams, iterations: cfg.SinkhornIterations, normEps: float32(cfg.NormEps), eps: float32(cfg.StreamEps), head: head}
	m.project.part = Streams
	outputs, scales := cfg.mixOutputs(), 3
	if head {
		outputs, scales = cfg.ResidualStreams, 1
	}
	dims := []int{outputs, cfg.ResidualDim()}
	b.add(b.norms, &m.project.weight, Streams, dims, &Param{Name: prefix + "fn", Dims: dims, Init: truncNormal(linearStd)})
	b.add(b.norms, &m.base, Norms, []int{outputs, 1}, &Param{Name: prefix + "base", Dims: []int{outputs}})
	b.add(b.norms, &m.scale, Norms, []int{scales, 1}, &Param{Name: prefix + "scale", Dims: []int{scales}, Init: Init{Kind: Ones}})
	m.ones = make([]float32, cfg.ResidualDim())
	for i := range m.ones {
		m.ones[i] = 1
	}
	return m
}

// read returns the input of the half, before its norm: [tokens, dim].
func (m *mixer) read(p phase, x tensor.Tensor, s *mixState) tensor.Tensor {
	if m == nil {
		return x
	}
	p.in(Streams)
	ex, tokens, n := p.ex, x.Dim(0), m.streams
	s.x = x
	s.rstd = p.saved.New(tensor.FP32, tokens)
	s.raw = p.saved.New(tensor.FP32, tokens, m.project.W.Dim(0))
	s.pre = p.saved.New(tensor.FP32, tokens, n)
	if !m.head {
		s.post = p.saved.New(tensor.FP32, tokens, n)
		s.soft = p.saved.New(tensor.FP32, tokens, n*n)
		s.comb = p.saved.New(tensor.FP32, tokens, n*n)
	}
	h := p.saved.New(x.DType(), tokens, x.Dim(1)/n)
	mark := ex.Mark()
	defer ex.Release(mark)
	flat := m.normalize(p, p.scratch, s)
	m.project.multiply(ex, s.raw.Mat(), &flat)
	tensor.Parallel(ex, tokens, m.work(tokens), mixing{mixer: m, mixState: s}, mixLogits)
	tensor.Sigmoid(ex, s.pre.Mat())
	if !m.head {
		tensor.Sigmoid(ex, s.post.Mat())
		tensor.Softmax(ex, s.soft.Reshape(tokens*n, n).Mat())
	}
	tensor.Parallel(ex, tokens, m.work(tokens), mixing{mixer: m, mixState: s}, mixWeights)
	tensor.MixBlocks(ex, h.Mat(), 1, [2]tensor.BlockMix{{X: x.Mat(), W: s.pre}})
	return h
}

// normalize returns x/rms(x).
func (m *mixer) normalize(p phase, to *tensor.Arena, s *mixState) activation {
	flat := to.New(tensor.FP32, s.x.Dim(0), s.x.Dim(1))
	tensor.RMSNorm(p.ex, flat.Mat(), s.rstd.F32(), s.x.Mat(), m.ones, m.normEps)
	return activation{Tensor: flat}
}

// work returns the amount of work for some tokens, in the unit of [tensor.Parallel].
func (m *mixer) work(tokens int) int {
	return tokens * m.streams * m.streams * m.iterations * scoreWork
}

// write sets y to the streams after the half, whose output is out. A single stream may be in out.
func (m *mixer) write(p phase, y, out, x tensor.Tensor, s *mixState) {
	if m == nil {
		tensor.Add(p.ex, y.Mat(), out.Mat(), x.Mat())
		return
	}
	p.in(Streams)
	s.out = out
	tensor.MixBlocks(p.ex, y.Mat(), m.streams, [2]tensor.BlockMix{{X: out.Mat(), W: s.post}, {X: x.Mat(), W: s.comb}})
}

// keepOutput copies the half's output, which is in scratch memory, for the backward pass.
func (s *mixState) keepOutput(p phase) {
	if !s.out.Valid() || !p.train {
		return
	}
	kept := like(p.arena, s.out)
	tensor.Convert(p.ex, kept.Mat(), s.out.Mat())
	s.out = kept
}

// room returns memory for the streams after a half whose output is out.
func (m *mixer) room(p phase, out, x tensor.Tensor) tensor.Tensor {
	if m == nil {
		return out
	}
	return like(p.saved, x)
}

// outputGradient returns the gradient of the half's output, given that of the streams after it.
func (m *mixer) outputGradient(p phase, dy tensor.Tensor, s *mixState) tensor.Tensor {
	if m == nil {
		return dy
	}
	p.in(Streams)
	dout := like(p.saved, s.out)
	tensor.MixBlocks(p.ex, dout.Mat(), 1, [2]tensor.BlockMix{{X: dy.Mat(), W: s.post}})
	return dout
}

// backward returns the gradient of the streams before the half: dy is that of the streams after it,
// and din that of its input after norm. A fused phase overwrites dy.
func (m *mixer) backward(p phase, dy, din tensor.Tensor, norm *rmsNorm, of *normState, s *mixState) tensor.Tensor {
	if m == nil {
		dx := p.residual(dy)
		norm.backward(p, dx.Mat(), din.Mat(), true, of)
		return dx
	}
	dh := like(p.scratch, din)
	norm.backward(p, dh.Mat(), din.Mat(), false, of)
	dx := dy
	if !p.fused {
		dx = like(p.saved, dy)
	}
	m.inputGradient(p, dx, dy, dh, s)
	return dx
}

// inputGradient sets dx, which may be dy, from dy and the gradient of the half's input. Those of
// the head have no dy.
func (m *mixer) inputGradient(p phase, dx, dy, dh tensor.Tensor, s *mixState) {
	p.in(Streams)
	ex, tokens, n, outputs := p.ex, dh.Dim(0), m.streams, s.raw.Dim(1)
	s.dlogits = p.saved.New(tensor.FP32, tokens, outputs)
	s.dscale = p.saved.New(tensor.FP32, tokens, m.scale.W.Dim(0))
	s.flat = m.normalize(p, p.saved, s)
	s.project.x = &s.flat
	draw, dim := p.saved.New(tensor.FP32, tokens, outputs), dh.Dim(1)
	mark := ex.Mark()
	defer ex.Release(mark)
	job := mixing{mixer: m, mixState: s, draw: draw, dpre: ex.New(tensor.FP32, tokens, n)}
	tensor.BlockDots(ex, job.dpre, s.x.Mat(), dh.Mat(), dim)
	terms := [2]tensor.BlockMix{{X: dh.Mat(), W: s.pre}}
	if !m.head {
		job.dpost = ex.New(tensor.FP32, tokens, n)
		job.dcomb = ex.New(tensor.FP32, tokens, n*n)
		tensor.BlockDots(ex, job.dpost, dy.Mat(), s.out.Mat(), dim)
		tensor.BlockDots(ex, job.dcomb, s.x.Mat(), dy.Mat(), dim)
		terms[1] = tensor.BlockMix{X: dy.Mat(), W: s.comb, Transposed: true}
	}
	tensor.Parallel(ex, tokens, m.work(tokens), job, mixBackward)
	tensor.MixBlocks(ex, dx.Mat(), n, terms)
	dflat := m.project.backward(p, p.scratch, activation{Tensor: draw}, &s.project)
	unused := ex.New(tensor.FP32, len(m.ones))
	tensor.Zero(ex, unused)
	tensor.RMSNormBackward(ex, dx.Mat(), unused.F32(), dflat.Mat(), s.x.Mat(), m.ones, s.rstd.F32(), true, max(tokens, 1))
	if p.fused {
		m.addVectors(p, s)
	}
}

// backwardWeight adds to the gradients of all weights.
func (m *mixer) backwardWeight(p phase, s *mixState) {
	if m != nil {
		m.project.backwardWeight(p, &s.project)
		m.addVectors(p, s)
	}
}

// addVectors adds to the gradients of base and scale.
func (m *mixer) addVectors(p phase, s *mixState) {
	m.base.addRows(p, s.dlogits)
	m.scale.addRows(p, s.dscale)
}

// mixing holds the arguments of mixLogits, mixWeights and mixBackward.
type mixing struct {
	*mixer
	*mixState
	dpre, dpost, dcomb tensor.Tensor // of the weights of blocks
	draw               tensor.Tensor // of m
}

// rows returns the arguments of σ and softmax of a token, as slices of one type of tensors.
func (m mixing) rows(t int, pre, post, comb tensor.Tensor) (parts [3][]float32) {
	parts[0] = pre.Index(t).F32()
	if !m.head {
		parts[1], parts[2] = post.Index(t).F32(), comb.Index(t).F32()
	}
	return parts
}

// mixLogits sets pre, post and soft of tokens [lo, hi) to s·m + b.
func mixLogits(_ *tensor.Exec, m mixing, lo, hi int) {
	base := m.base.W.Reshape(m.base.W.Len()).F32()
	scale := m.scale.W.Reshape(m.scale.W.Len()).F32()
	for t := lo; t < hi; t++ {
		raw, at := m.raw.Index(t).F32(), 0
		for k, part := range m.rows(t, m.pre, m.post, m.soft) {
			for i := range part {
				part[i] = float32(raw[at]*scale[k]) + base[at]
				at++
			}
		}
	}
}

// mixWeights completes pre, post and comb of tokens [lo, hi).
func mixWeights(ex *tensor.Exec, m mixing, lo, hi int) {
	s := m.sinkhorn(ex)
	for t := lo; t < hi; t++ {
		parts := m.rows(t, m.pre, m.post, m.comb)
		for i := range parts[0] {
			parts[0][i] += m.eps
		}
		for i := range parts[1] {
			parts[1][i] *= 2
		}
		if !m.head {
			copy(parts[2], s.forward(m.positive(&s, t)))
		}
	}
}

// sinkhorn returns memory for the comb of a token.
func (m mixing) sinkhorn(ex *tensor.Exec) sinkhorn {
	n, d := m.streams, divisions(m.iterations)
	return sinkhorn{
		n: n, eps: m.eps, first: ex.New(tensor.FP32, n*n).F32(),
		after: ex.New(tensor.FP32, d*n*n).F32(), sums: ex.New(tensor.FP32, d*n).F32(),
	}
}

// positive returns what Sinkhorn's iteration begins with.
func (m mixing) positive(s *sinkhorn, t int) []float32 {
	for i, v := range m.soft.Index(t).F32() {
		s.first[i] = v + m.eps
	}
	return s.first
}

// mixBackward sets dlogits, dscale and draw of tokens [lo, hi).
func mixBackward(ex *tensor.Exec, m mixing, lo, hi int) {
	work, scale := m.sinkhorn(ex), m.scale.W.Reshape(m.scale.W.Len()).F32()
	for t := lo; t < hi; t++ {
		d := m.dlogits.Index(t).F32()
		dscale := m.dscale.Index(t).F32()
		raw := m.raw.Index(t).F32()
		draw := m.draw.Index(t).F32()
		at := 0
		grads := m.rows(t, m.dpre, m.dpost, m.dcomb)
		for i, v := range m.pre.Index(t).F32() {
			d[i] = grads[0][i] * (v - m.eps) * (1 - (v - m.eps))
		}
		if !m.head {
			for i, v := range m.post.Index(t).F32() {
				d[m.streams+i] = grads[1][i] * v * (1 - v/2)
			}
			work.forward(m.positive(&work, t))
			work.backward(grads[2])
			softmaxGradient(d[2*m.streams:], grads[2], m.soft.Index(t).F32(), m.streams)
		}
		for k, part := range grads {
			var sum float32
			for range part {
				sum += float32(d[at] * raw[at])
				draw[at] = d[at] * scale[k]
				at++
			}
			if k < len(dscale) {
				dscale[k] = sum
			}
		}
	}
}

// softmaxGradient sets d to the gradient of the arguments of softmax, whose result is s, in rows of
// n. grad is that of the result.
func softmaxGradient(d, grad, s []float32, n int) {
	for row := 0; row < len(s); row += n {
		var inner float32
		for i := row; i < row+n; i++ {
			inner += float32(grad[i] * s[i])
		}
		for i := row; i < row+n; i++ {
			d[i] = s[i] * (grad[i] - inner)
		}
	}
}

// expand returns the streams of tokens, copies of h: [tokens, dim].
func expand(p phase, h tensor.Tensor, streams int) tensor.Tensor {
	dim := h.Dim(1)
	x := p.arena.New(h.DType(), h.Dim(0), streams*dim)
	for i := range streams {
		tensor.Convert(p.ex, x.Mat().ColSlice(i*dim, (i+1)*dim), h.Mat())
	}
	return x
}

// expandBackward returns the gradient of the argument of expand.
func expandBackward(p phase, dx tensor.Tensor, dim int) tensor.Tensor {
	if dx.Dim(1) == dim {
		return dx
	}
	dh := p.arena.New(dx.DType(), dx.Dim(0), dim)
	tensor.SumBlocks(p.ex, dh.Mat(), dx.Mat(), dx.Dim(1)/dim, dim)
	return dh
}
