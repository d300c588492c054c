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

// mapScale is the initial value of s. Larger ones let the first steps of F, whose rows are those of
// all streams, throw the maps from one end of σ to the other.
const mapScale = 0.01

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
	m := &mixer{
		streams:    cfg.ResidualStreams,
		iterations: cfg.SinkhornIterations,
		normEps:    float32(cfg.NormEps),
		eps:        float32(cfg.StreamEps),
		head:       head,
	}
	m.project.part = Streams
	outputs, scales := cfg.mixOutputs(), 3
	if head {
		outputs, scales = cfg.ResidualStreams, 1
	}
	dims := []int{outputs, cfg.ResidualDim()}
	b.add(b.norms, &m.project.weight, Streams, dims, &Param{Name: prefix + "fn", Dims: dims, Init: truncNormal(linearStd)})
	b.add(b.norms, &m.base, Norms, []int{outputs, 1}, &Param{Name: prefix + "base", Dims: []int{outputs}})
	b.add(b.norms, &m.scale, Norms, []int{scales, 1}, &Param{Name: prefix + "scale", Dims: []int{scales}, Init: Init{Kind: Constant, Value: mapScale}})
	m.ones = newPlainNorm(1, cfg.ResidualDim(), cfg.NormEps).weight.W.F32()
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
	job := mixing{mixer: m, mixState: s}
	tensor.Parallel(ex, tokens, s.raw.Len()*scoreWork, job, mixLogits)
	tensor.Sigmoid(ex, s.pre.Mat())
	if !m.head {
		tensor.Sigmoid(ex, s.post.Mat())
		tensor.Softmax(ex, s.soft.Reshape(tokens*n, n).Mat())
		m.sinkhorn().Rows(ex, s.comb, s.soft, tensor.Tensor{})
	}
	tensor.Parallel(ex, tokens, s.raw.Len()*scoreWork, job, mixWeights)
	tensor.MixBlocks(ex, h.Mat(), 1, [2]tensor.BlockMix{{X: x.Mat(), W: s.pre}})
	return h
}

// normalize returns x/rms(x).
func (m *mixer) normalize(p phase, to *tensor.Arena, s *mixState) activation {
	flat := to.New(tensor.FP32, s.x.Dim(0), s.x.Dim(1))
	tensor.RMSNorm(p.ex, flat.Mat(), s.rstd.F32(), s.x.Mat(), m.ones, m.normEps)
	return activation{Tensor: flat}
}

// sinkhorn returns the iteration from soft to comb.
func (m *mixer) sinkhorn() tensor.Sinkhorn {
	return tensor.Sinkhorn{Size: m.streams, Iterations: m.iterations, Eps: m.eps}
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
	job := mixing{
		mixer:    m,
		mixState: s,
		draw:     draw,
		dpre:     ex.New(tensor.FP32, tokens, n),
	}
	tensor.BlockDots(ex, job.dpre, s.x.Mat(), dh.Mat(), dim)
	terms := [2]tensor.BlockMix{{X: dh.Mat(), W: s.pre}}
	if !m.head {
		job.dpost = ex.New(tensor.FP32, tokens, n)
		job.dcomb = ex.New(tensor.FP32, tokens, n*n)
		tensor.BlockDots(ex, job.dpost, dy.Mat(), s.out.Mat(), dim)
		tensor.BlockDots(ex, job.dcomb, s.x.Mat(), dy.Mat(), dim)
		m.sinkhorn().Rows(ex, job.dcomb, s.soft, job.dcomb)
		terms[1] = tensor.BlockMix{X: dy.Mat(), W: s.comb, Transposed: true}
	}
	tensor.Parallel(ex, tokens, s.raw.Len()*scoreWork, job, mixBackward)
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
	dpre, dpost, dcomb tensor.Tensor // of pre, post and soft
	draw               tensor.Tensor // of m
}

// mixLogits sets pre, post and soft of tokens [lo, hi) to s·m + b.
func mixLogits(_ *tensor.Exec, m mixing, lo, hi int) {
	base, scale, raw := m.base.W.F32(), m.scale.W.F32(), m.raw.F32()
	at, outputs := 0, m.raw.Dim(1)
	for k, part := range [...]tensor.Tensor{m.pre, m.post, m.soft} {
		if k == len(scale) {
			break
		}
		x, cols := part.F32(), part.Dim(1)
		for t := lo; t < hi; t++ {
			for i := range cols {
				x[t*cols+i] = float32(raw[t*outputs+at+i]*scale[k]) + base[at+i]
			}
		}
		at += cols
	}
}

// mixWeights completes pre and post of tokens [lo, hi).
func mixWeights(_ *tensor.Exec, m mixing, lo, hi int) {
	pre := m.pre.Slice(lo, hi).F32()
	for i := range pre {
		pre[i] += m.eps
	}
	if m.head {
		return
	}
	post := m.post.Slice(lo, hi).F32()
	for i := range post {
		post[i] *= 2
	}
}

// mixBackward sets dlogits, dscale and draw of tokens [lo, hi).
func mixBackward(_ *tensor.Exec, m mixing, lo, hi int) {
	scale, dlogits, raw, draw, dscale := m.scale.W.F32(), m.dlogits.F32(), m.raw.F32(), m.draw.F32(), m.dscale.F32()
	n, outputs := m.streams, m.raw.Dim(1)
	var grads, values [3][]float32
	grads[0], values[0] = m.dpre.F32(), m.pre.F32()
	if !m.head {
		grads[1], values[1] = m.dpost.F32(), m.post.F32()
		grads[2], values[2] = m.dcomb.F32(), m.soft.F32()
	}
	for t := lo; t < hi; t++ {
		d := dlogits[t*outputs:][:outputs]
		for i, v := range values[0][t*n:][:n] {
			d[i] = grads[0][t*n+i] * (v - m.eps) * (1 - (v - m.eps))
		}
		if !m.head {
			for i, v := range values[1][t*n:][:n] {
				d[n+i] = grads[1][t*n+i] * v * (1 - v/2)
			}
			softmaxGradient(d[2*n:], grads[2][t*n*n:][:n*n], values[2][t*n*n:][:n*n], n)
		}
		from := 0
		for k, to := range []int{n, 2 * n, outputs}[:len(scale)] {
			var sum float32
			for at := from; at < to; at++ {
				sum += float32(d[at] * raw[t*outputs+at])
				draw[t*outputs+at] = d[at] * scale[k]
			}
			dscale[t*len(scale)+k] = sum
			from = to
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
