package moe

import (
	"fmt"

	"spmoe/tensor"
)

// block is one transformer layer: x + attention(norm(x)), then the same with the feed-forward part.
// With several residual streams, mixers join the halves to them.
type block struct {
	layer     int
	times     int // layers that it stands for in a dry run, or 1
	residual  residual
	attnNorm  *rmsNorm
	attention attention
	ffnNorm   *rmsNorm
	ffn       feedForward
}

// blockState is the state of a block in a pass.
type blockState struct {
	join      joinState
	x         tensor.Tensor // its input: [tokens, residualDim]
	attnMix   mixState
	ffnMix    mixState
	attnNorm  normState
	attention attentionState
	ffnNorm   normState
	feed      feedState
}

func newBlock(b *builder, cfg Config, kinds layerKinds, at rankContext, layer int, rope rotaryTables) *block {
	b.layer = layer
	prefix := fmt.Sprintf("model.layers.%d.", layer)
	return &block{
		layer: layer, times: b.timesOf(layer),
		residual:  kinds.residual.build(b, prefix),
		attnNorm:  newNorm(b, prefix+"input_layernorm", cfg.Dim, cfg.NormEps),
		attention: kinds.attention.build(b, prefix+"self_attn.", layer, kinds.attention.rotary(rope)),
		ffnNorm:   newNorm(b, prefix+"post_attention_layernorm", cfg.Dim, cfg.NormEps),
		ffn:       kinds.feed.build(b, prefix+"mlp.", layer, at),
	}
}

// forward returns the block's output for x: both [tokens, residualDim].
func (l *block) forward(p phase, x tensor.Tensor, s *blockState) (tensor.Tensor, error) {
	p.layer = l.layer
	if join := l.residual.join; join != nil {
		x = join.forward(p, x, &s.join)
	}
	defer p.ex.Profile.SetLayer(p.ex.Profile.SetLayer(1 + l.layer))
	s.x = x
	p.in(Projections)
	y := like(p.arena, x) // the next block's input
	defer p.endBlock(p.ex.Mark(), p.arena.Mark())
	a := l.mix(p, x, s)
	in := l.ffnNorm.forward(p, p.cheap, l.residual.ffnMix.read(p, a, &s.ffnMix).Mat(), &s.ffnNorm)
	p.observe("mlp_in", in)
	f, err := l.ffn.forward(p, in, &s.feed)
	if err != nil {
		return x, fmt.Errorf("layer %d: %w", l.layer, err)
	}
	p.observe("mlp", f)
	l.residual.ffnMix.write(p, y, f, a, &s.ffnMix)
	s.ffnMix.keepOutput(p)
	p.observe("out", y)
	return y, nil
}

// mix is the first half. It returns the stream, or streams, after it.
func (l *block) mix(p phase, x tensor.Tensor, s *blockState) tensor.Tensor {
	defer p.endHalf(p.ex.Mark())
	in := l.residual.attnMix.read(p, x, &s.attnMix)
	out := l.attention.forward(p, l.attnNorm.forward(p, p.cheap, in.Mat(), &s.attnNorm), s.attention)
	p.observe("attention", out)
	a := l.residual.attnMix.room(p, out, x)
	l.residual.attnMix.write(p, a, out, x, &s.attnMix)
	return a
}

// backward returns the gradient of the input, given dy, the gradient of the output. A fused phase
// overwrites dy.
func (l *block) backward(p phase, dy tensor.Tensor, s *blockState) (tensor.Tensor, error) {
	p.layer = l.layer
	defer p.ex.Profile.SetLayer(p.ex.Profile.SetLayer(1 + l.layer))
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	l.recomputeMix(p, s)
	half := p.ex.Mark()
	if err := l.recomputeFeed(p, s); err != nil {
		return dy, fmt.Errorf("layer %d, forward again: %w", l.layer, err)
	}
	din, err := l.ffn.backward(p, l.residual.ffnMix.outputGradient(p, dy, &s.ffnMix), &s.feed)
	if err != nil {
		return dy, fmt.Errorf("layer %d, backward: %w", l.layer, err)
	}
	if err := p.sums.compute(p); err != nil {
		return dy, fmt.Errorf("layer %d, backward: %w", l.layer, err)
	}
	da := l.residual.ffnMix.backward(p, dy, din, l.ffnNorm, &s.ffnNorm, &s.ffnMix)
	p.ex.Release(half)
	l.recomputeAttention(p, s)
	din = l.attention.backward(p, l.residual.attnMix.outputGradient(p, da, &s.attnMix), s.attention)
	if err := p.sums.compute(p); err != nil {
		return dy, fmt.Errorf("layer %d, backward: %w", l.layer, err)
	}
	return l.residual.attnMix.backward(p, da, din, l.attnNorm, &s.attnNorm, &s.attnMix), nil
}

// backwardWeight adds to the gradients of all weights.
func (l *block) backwardWeight(p phase, s *blockState) error {
	defer p.ex.Profile.SetLayer(p.ex.Profile.SetLayer(1 + l.layer))
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	l.ffn.backwardWeight(p, &s.feed)
	l.ffnNorm.backwardWeight(p, &s.ffnNorm)
	l.residual.ffnMix.backwardWeight(p, &s.ffnMix)
	l.attention.backwardWeight(p, s.attention)
	l.attnNorm.backwardWeight(p, &s.attnNorm)
	l.residual.attnMix.backwardWeight(p, &s.attnMix)
	if err := p.sums.compute(p); err != nil || l.residual.join == nil {
		return err
	}
	p.ex.Release(mark)
	return l.residual.join.backwardWeight(p, &s.join)
}

// recomputeMix recomputes the whole first half, for the backward passes of both halves.
func (l *block) recomputeMix(p phase, s *blockState) {
	if p.recompute != RecomputeFull {
		return
	}
	p = p.recomputePhase()
	defer p.endRecompute()
	s.ffnNorm.x = l.residual.ffnMix.read(p, l.mix(p, s.x, s), &s.ffnMix).Mat()
}

// recomputeFeed recomputes what the backward pass of the second half needs.
func (l *block) recomputeFeed(p phase, s *blockState) (err error) {
	if p.recompute == RecomputeNone {
		return nil
	}
	p = p.recomputePhase()
	defer p.endRecompute()
	in := l.ffnNorm.forward(p, p.cheap, s.ffnNorm.x, &s.ffnNorm)
	if p.recompute == RecomputeSelective {
		l.ffn.recompute(p, in, &s.feed)
	} else {
		_, err = l.ffn.forward(p, in, &s.feed)
	}
	return err
}

// recomputeAttention recomputes the inputs of attention's projections, and keys and values.
func (l *block) recomputeAttention(p phase, s *blockState) {
	if p.recompute != RecomputeSelective {
		return
	}
	p = p.recomputePhase()
	defer p.endRecompute()
	l.attention.recompute(p, l.attnNorm.forward(p, p.cheap, s.attnNorm.x, &s.attnNorm), s.attention)
}

// layerKinds are the kinds of one layer: how it attends, what each token passes on its own, and
// how it is joined to the residual stream. Layers of equal kinds are equal with ==.
type layerKinds struct {
	attention attentionKind
	feed      feedKind
	residual  residualKind
}

// linears calls add with the matrices of a layer in the order of a pass.
func (k layerKinds) linears(add func(LinearLayer)) {
	k.residual.linears(add)
	k.attention.linears(func(name string, in, out int, expands bool) {
		l := matrix(name, Projections, in, out)
		l.Expands = expands
		add(l)
	})
	k.feed.linears(add)
}
