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
func (l *block) forward(p *pass, x tensor.Tensor) (tensor.Tensor, error) {
	ex := p.ex
	p.layer = l.layer
	a := l.attend(p, l.attnNorm.forward(ex, x.Mat()))
	p.observe("attention", a)
	tensor.Add(ex, a.Mat(), a.Mat(), x.Mat())
	in := l.ffnNorm.forward(ex, a.Mat())
	p.observe("mlp_in", in)
	f, err := l.ffn.forward(p, in)
	if err != nil {
		return x, fmt.Errorf("layer %d: %w", l.layer, err)
	}
	p.observe("mlp", f)
	tensor.Add(ex, f.Mat(), f.Mat(), a.Mat())
	p.observe("out", f)
	return f, nil
}

// backward turns dy, the gradient of the output, into that of the input, in place.
func (l *block) backward(p *pass, dy tensor.Tensor) error {
	ex := p.ex
	mark := ex.Mark()
	defer ex.Release(mark)
	din, err := l.ffn.backward(p, dy)
	if err != nil {
		return fmt.Errorf("layer %d, backward: %w", l.layer, err)
	}
	l.ffnNorm.backward(p, dy.Mat(), din.Mat(), true)
	l.attnNorm.backward(p, dy.Mat(), l.attention.backward(p, dy).Mat(), true)
	return nil
}
