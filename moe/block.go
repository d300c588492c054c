package moe

import (
	"fmt"

	"spmoe/tensor"
)

// block is one transformer layer: x + attention(norm(x)), then the same with the feed-forward part.
type block struct {
	layer     int
	times     int   // layers that it stands for in a dry run, or 1
	join      *join // before the block, if it predicts further ahead; nil: its input is the residual stream
	attnNorm  *rmsNorm
	attention attention
	ffnNorm   *rmsNorm
	ffn       feedForward
}

// blockState is the state of a block in a pass.
type blockState struct {
	join      joinState
	x         tensor.Tensor // its input: [tokens, dim]
	attnNorm  normState
	attention attentionState
	ffnNorm   normState
	feed      feedState
}

// residualKind is what a configuration says about the input of a layer.
type residualKind interface {
	// linears calls add with the matrices before the block. vectors is that of [attentionKind].
	linears(add func(LinearLayer))
	vectors() int
	// build adds the parameters of what is before the block. prefix begins their names.
	build(b *builder, prefix string) *join
}

// streamKind is the output of the layer before it.
type streamKind struct{}

func (streamKind) linears(func(LinearLayer))    {}
func (streamKind) vectors() int                 { return 0 }
func (streamKind) build(*builder, string) *join { return nil }

func newBlock(b *builder, cfg Config, kinds layerKinds, at rankContext, layer int, rope *tensor.RotaryTable) *block {
	b.layer = layer
	prefix := fmt.Sprintf("model.layers.%d.", layer)
	return &block{
		layer: layer, times: b.timesOf(layer),
		join:      kinds.residual.build(b, prefix),
		attnNorm:  newNorm(b, prefix+"input_layernorm", cfg.Dim, cfg.NormEps),
		attention: kinds.attention.build(b, prefix+"self_attn.", layer, kinds.attention.rotary(rope)),
		ffnNorm:   newNorm(b, prefix+"post_attention_layernorm", cfg.Dim, cfg.NormEps),
		ffn:       kinds.feed.build(b, prefix+"mlp.", layer, at),
	}
}

// forward returns the block's output for x: [tokens, dim].
func (l *block) forward(p phase, x tensor.Tensor, s *blockState) (tensor.Tensor, error) {
	p.layer = l.layer
	if l.join != nil {
		x = l.join.forward(p, x, &s.join)
	}
	defer p.ex.Profile.SetLayer(p.ex.Profile.SetLayer(1 + l.layer))
	s.x = x
	p.in(Projections)
	y := like(p.arena, x) // the next block's input
	defer p.endBlock(p.ex.Mark(), p.arena.Mark())
	a := l.mix(p, x, s)
	in := l.ffnNorm.forward(p, p.cheap, a.Mat(), &s.ffnNorm)
	p.observe("mlp_in", in)
	f, err := l.ffn.forward(p, in, &s.feed)
	if err != nil {
		return x, fmt.Errorf("layer %d: %w", l.layer, err)
	}
	p.observe("mlp", f)
	tensor.Add(p.ex, y.Mat(), f.Mat(), a.Mat())
	p.observe("out", y)
	return y, nil
}

// mix is the first half: x + attention(norm(x)).
func (l *block) mix(p phase, x tensor.Tensor, s *blockState) tensor.Tensor {
	defer p.endHalf(p.ex.Mark())
	a := l.attention.forward(p, l.attnNorm.forward(p, p.cheap, x.Mat(), &s.attnNorm), s.attention)
	p.observe("attention", a)
	tensor.Add(p.ex, a.Mat(), a.Mat(), x.Mat())
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
	din, err := l.ffn.backward(p, dy, &s.feed)
	if err != nil {
		return dy, fmt.Errorf("layer %d, backward: %w", l.layer, err)
	}
	if err := p.sums.compute(p); err != nil {
		return dy, fmt.Errorf("layer %d, backward: %w", l.layer, err)
	}
	da := p.residual(dy)
	l.ffnNorm.backward(p, da.Mat(), din.Mat(), true, &s.ffnNorm)
	p.ex.Release(half)
	l.recomputeAttention(p, s)
	din = l.attention.backward(p, da, s.attention)
	if err := p.sums.compute(p); err != nil {
		return dy, fmt.Errorf("layer %d, backward: %w", l.layer, err)
	}
	dx := p.residual(da)
	l.attnNorm.backward(p, dx.Mat(), din.Mat(), true, &s.attnNorm)
	return dx, nil
}

// backwardWeight adds to the gradients of all weights.
func (l *block) backwardWeight(p phase, s *blockState) error {
	defer p.ex.Profile.SetLayer(p.ex.Profile.SetLayer(1 + l.layer))
	mark := p.ex.Mark()
	defer p.ex.Release(mark)
	l.ffn.backwardWeight(p, &s.feed)
	l.ffnNorm.backwardWeight(p, &s.ffnNorm)
	l.attention.backwardWeight(p, s.attention)
	l.attnNorm.backwardWeight(p, &s.attnNorm)
	if err := p.sums.compute(p); err != nil || l.join == nil {
		return err
	}
	p.ex.Release(mark)
	return l.join.backwardWeight(p, &s.join)
}

// recomputeMix recomputes the whole first half, for the backward passes of both halves.
func (l *block) recomputeMix(p phase, s *blockState) {
	if p.recompute != RecomputeFull {
		return
	}
	p = p.recomputePhase()
	defer p.endRecompute()
	s.ffnNorm.x = l.mix(p, s.x, s).Mat()
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
