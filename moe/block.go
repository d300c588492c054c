package moe

import (
	"fmt"

	"spmoe/collective"
	"spmoe/collective/ep"
	"spmoe/tensor"
)

// block is one transformer layer: x + attention(norm(x)), then the same with the feed-forward part.
type block struct {
	layer     int
	attnNorm  *rmsNorm
	attention *attention
	ffnNorm   *rmsNorm
	ffn       feedForward
	router    *router // nil in a dense layer

	x tensor.Tensor // input of the last forward pass
}

// place says where a model is built: this rank's communicator and the exchange that its
// Mixture-of-Experts layers share.
type place struct {
	comm     *collective.Comm
	exchange ep.Exchange
}

func newBlock(b *builder, cfg Config, at place, layer int, rope *tensor.RotaryTable) *block {
	prefix := fmt.Sprintf("model.layers.%d.", layer)
	l := &block{
		layer:     layer,
		attnNorm:  newNorm(b, prefix+"input_layernorm", cfg.Dim, cfg.NormEps),
		attention: newAttention(b, cfg, prefix+"self_attn.", layer, rope),
		ffnNorm:   newNorm(b, prefix+"post_attention_layernorm", cfg.Dim, cfg.NormEps),
	}
	prefix += "mlp."
	if cfg.IsDense(layer) {
		l.ffn = newDenseFFN(b, cfg, prefix, layer, cfg.DenseInter)
		return l
	}
	perRank := cfg.Experts / at.comm.Size()
	l.router = newRouter(b, cfg, prefix, layer)
	m := &moeLayer{
		router: l.router, exchange: at.exchange,
		routed: newExperts(b, cfg, prefix, layer, at.comm.Rank()*perRank, perRank),
	}
	if cfg.SharedExperts > 0 {
		m.shared = newDenseFFN(b, cfg, prefix+"shared_experts.", layer, cfg.SharedExperts*cfg.ExpertInter)
	}
	l.ffn = m
	return l
}

// forward returns the block's output for x: [tokens, dim].
func (l *block) forward(p *pass, x tensor.Tensor) (y tensor.Tensor, err error) {
	ex := p.ex
	l.x, p.layer = x, l.layer
	if !p.keeps() {
		y = like(ex, x)
		mark := ex.Mark()
		defer ex.Release(mark)
	}
	a := l.mix(p, x)
	defer p.endBrief()
	in := l.ffnNorm.within(p, a.Mat())
	p.observe("mlp_in", in)
	f, err := l.ffn.forward(p, in)
	if err != nil {
		return x, fmt.Errorf("layer %d: %w", l.layer, err)
	}
	p.observe("mlp", f)
	if !y.Valid() {
		y = f
	}
	tensor.Add(ex, y.Mat(), f.Mat(), a.Mat())
	p.observe("out", y)
	return y, nil
}

// mix is the first half: x + attention(norm(x)).
func (l *block) mix(p *pass, x tensor.Tensor) tensor.Tensor {
	defer p.endBrief()
	a := l.attend(p, l.attnNorm.within(p, x.Mat()))
	p.observe("attention", a)
	tensor.Add(p.ex, a.Mat(), a.Mat(), x.Mat())
	return a
}

// backward turns dy, the gradient of the output, into that of the input, in place.
func (l *block) backward(p *pass, dy tensor.Tensor) error {
	ex := p.ex
	mark := ex.Mark()
	defer ex.Release(mark)
	if p.recompute == RecomputeFull {
		l.mixAgain(p)
	}
	half := ex.Mark()
	if err := l.feedAgain(p); err != nil {
		return fmt.Errorf("layer %d, forward again: %w", l.layer, err)
	}
	din, err := l.ffn.backward(p, dy)
	if err != nil {
		return fmt.Errorf("layer %d, backward: %w", l.layer, err)
	}
	l.ffnNorm.backward(p, dy.Mat(), din.Mat(), true)
	ex.Release(half)
	if p.recompute == RecomputeSelective {
		l.attendAgain(p)
	}
	l.attnNorm.backward(p, dy.Mat(), l.attention.backward(p, dy).Mat(), true)
	return nil
}

// mixAgain makes the first half again, all of it, for the backward passes of both.
func (l *block) mixAgain(p *pass) {
	defer p.redo(p.redo(true))
	l.ffnNorm.x = l.mix(p, l.x).Mat()
}

// feedAgain makes anew what the backward pass of the second half needs.
func (l *block) feedAgain(p *pass) (err error) {
	if p.recompute == RecomputeNone {
		return nil
	}
	defer p.redo(p.redo(true))
	in := l.ffnNorm.again(p.ex)
	if p.recompute == RecomputeSelective {
		l.ffn.again(p, in)
	} else {
		_, err = l.ffn.forward(p, in)
	}
	return err
}

// attendAgain makes anew what the forward pass of attention has not kept.
func (l *block) attendAgain(p *pass) {
	defer p.redo(p.redo(true))
	l.attention.again(p, l.attnNorm.again(p.ex))
}
