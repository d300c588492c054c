package moe

import (
	"fmt"

	"spmoe/mx"
	"spmoe/tensor"
)

// ffn is a set of SwiGLU feed-forward networks of one width, y = down·(silu(gate·x) * up·x):
// all experts of a rank, or a single network that every token goes through.
type ffn struct {
	inter  int
	gateUp linear // [networks, 2·inter, dim]: gate, then up
	down   linear // [networks, dim, inter]

	saved struct {
		x, gateUp, h tensor.Tensor
		ends         []int32
	}
}

// newFFN returns a network for every prefix ("model.layers.3.mlp.experts.0."), in group g.
func newFFN(b *builder, g *Group, cfg Config, prefixes []string, layer, inter int) *ffn {
	f := &ffn{inter: inter}
	var gateUp, down []*Param
	for _, prefix := range prefixes {
		gateUp = append(gateUp,
			&Param{Name: prefix + "gate_proj.weight", Dims: []int{inter, cfg.Dim}, Init: truncNormal(linearStd)},
			&Param{Name: prefix + "up_proj.weight", Dims: []int{inter, cfg.Dim}, Init: outputInit(layer)})
		down = append(down, &Param{Name: prefix + "down_proj.weight", Dims: []int{cfg.Dim, inter}, Init: outputInit(layer)})
	}
	b.grouped(g, &f.gateUp, []int{len(prefixes), 2 * inter, cfg.Dim}, gateUp...)
	b.grouped(g, &f.down, []int{len(prefixes), cfg.Dim, inter}, down...)
	return f
}

// newExperts returns the networks of experts [first, first+count) of a layer.
func newExperts(b *builder, cfg Config, prefix string, layer, first, count int) *ffn {
	prefixes := make([]string, count)
	for i := range prefixes {
		prefixes[i] = fmt.Sprintf("%sexperts.%d.", prefix, first+i)
	}
	return newFFN(b, b.experts, cfg, prefixes, layer, cfg.ExpertInter)
}

// arriving is what a set of networks reads, forward or backward: rows, and their codes if they have come quantised.
type arriving struct {
	tensor.Tensor
	codes mx.Tensor // blocks along rows; zero: none
}

// forward computes y for the rows of x: [rows, dim], of which [ends[g-1], ends[g]) belong to
// network g; nil ends: all rows are tokens of this rank, for the only network.
func (f *ffn) forward(p *pass, x arriving, ends []int32) tensor.Tensor {
	f.hidden(p, x, ends)
	return f.output(p)
}

// hidden is forward up to h, output the rest.
func (f *ffn) hidden(p *pass, x arriving, ends []int32) {
	s := &f.saved
	s.x, s.ends = x.Tensor, ends
	f.gateUp.mx.takeInput(x.codes)
	s.gateUp = f.gateUp.forward(p, s.x, ends)
	f.activate(p)
}

func (f *ffn) output(p *pass) tensor.Tensor { return f.down.forward(p, f.saved.h, f.saved.ends) }

// activate sets h.
func (f *ffn) activate(p *pass) {
	defer p.brief(p.brief(true))
	s := &f.saved
	s.h = p.ex.New(s.gateUp.DType(), s.gateUp.Dim(0), f.inter)
	gate, up := f.halves(s.gateUp.Mat())
	tensor.SwiGLU(p.ex, s.h.Mat(), gate, up)
}

// backward adds to the weights' gradients and returns that of x. It overwrites what forward kept.
func (f *ffn) backward(p *pass, dy arriving) tensor.Tensor {
	s := &f.saved
	f.down.mx.takeGradient(dy.codes)
	dh := f.down.backward(p, dy.Tensor, s.h, s.ends)
	gate, up := f.halves(s.gateUp.Mat())
	tensor.SwiGLUBackward(p.ex, gate, up, dh.Mat(), gate, up)
	return f.gateUp.backward(p, s.gateUp, s.x, s.ends)
}

func (f *ffn) halves(m tensor.Matrix) (gate, up tensor.Matrix) {
	return m.ColSlice(0, f.inter), m.ColSlice(f.inter, 2*f.inter)
}
