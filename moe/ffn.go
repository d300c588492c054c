package moe

import (
	"strconv"

	"spmoe/tensor"
)

// ffn is a set of SwiGLU feed-forward networks of one width, y = down·(silu(gate·x) * up·x): all
// experts of a rank, or a single network that every token visits.
type ffn struct {
	inter  int
	limit  float32 // of gate and up: see tensor.ClampedSwiGLU; 0: none
	gateUp linear  // [networks, 2·inter, dim]: gate, then up
	down   linear  // [networks, dim, inter]
}

// ffnState is the state of the networks in a pass.
type ffnState struct {
	x      activation    // [rows, dim]
	h      activation    // [rows, inter]
	gateUp tensor.Tensor // [rows, 2·inter]; after the backward pass, its gradient

	linear struct{ gateUp, down linearState }
}

// newFFN returns a network for each prefix ("model.layers.3.mlp.experts.0."), in group g.
func newFFN(b *builder, g *Group, part Part, cfg Config, prefixes []string, layer, inter int) *ffn {
	f := &ffn{inter: inter}
	if part != Dense {
		f.limit = float32(cfg.SwiGLULimit)
	}
	wide, narrow := []int{inter, cfg.Dim}, []int{cfg.Dim, inter}
	params := make([]Param, 3*len(prefixes))
	var gateUp, down []*Param
	for i, prefix := range prefixes {
		p := params[3*i:][:3]
		p[0] = Param{Name: prefix + "gate_proj.weight", Dims: wide, Init: truncNormal(linearStd)}
		p[1] = Param{Name: prefix + "up_proj.weight", Dims: wide, Init: outputInit(layer)}
		p[2] = Param{Name: prefix + "down_proj.weight", Dims: narrow, Init: outputInit(layer)}
		gateUp, down = append(gateUp, &p[0], &p[1]), append(down, &p[2])
	}
	b.grouped(g, &f.gateUp, part, []int{len(prefixes), 2 * inter, cfg.Dim}, gateUp...)
	b.grouped(g, &f.down, part, []int{len(prefixes), cfg.Dim, inter}, down...)
	return f
}

// newExperts returns the networks of experts [first, first+count) of a layer.
func newExperts(b *builder, cfg Config, prefix string, layer, first, count int) *ffn {
	prefixes := make([]string, count)
	for i := range prefixes {
		prefixes[i] = prefix + "experts." + strconv.Itoa(first+i) + "."
	}
	return newFFN(b, b.experts, Routed, cfg, prefixes, layer, cfg.ExpertInter)
}

// forward computes y for the rows of x, [rows, dim], in the arena to. Each network computes the
// rows of its group.
func (f *ffn) forward(p phase, to *tensor.Arena, x activation, s *ffnState) tensor.Tensor {
	f.hidden(p, x, s)
	return f.down.forward(p, to, &s.h, &s.linear.down)
}

// hidden is the part of forward up to h.
func (f *ffn) hidden(p phase, x activation, s *ffnState) {
	s.x = x
	s.gateUp = f.gateUp.forward(p, p.saved, &s.x, &s.linear.gateUp)
	s.h = activation{Tensor: f.activate(p, s), rowGroups: x.rowGroups}
}

// activate returns h = silu(gate) * up.
func (f *ffn) activate(p phase, s *ffnState) tensor.Tensor {
	h := p.cheap.New(s.gateUp.DType(), s.gateUp.Dim(0), f.inter)
	gate, up := f.halves(s.gateUp.Mat())
	if f.limit > 0 {
		tensor.ClampedSwiGLU(p.ex, h.Mat(), gate, up, f.limit)
	} else {
		tensor.SwiGLU(p.ex, h.Mat(), gate, up)
	}
	return h
}

// backward returns the gradient of x.
func (f *ffn) backward(p phase, dy activation, s *ffnState) tensor.Tensor {
	dh := f.down.backward(p, p.scratch, dy, &s.linear.down)
	gate, up := f.halves(s.gateUp.Mat())
	// the gradient of gateUp takes its place
	if f.limit > 0 {
		tensor.ClampedSwiGLUBackward(p.ex, gate, up, dh.Mat(), gate, up, f.limit)
	} else {
		tensor.SwiGLUBackward(p.ex, gate, up, dh.Mat(), gate, up)
	}
	return f.gateUp.backward(p, p.scratch, activation{Tensor: s.gateUp}, &s.linear.gateUp)
}

// backwardWeight adds to the gradients of both weights.
func (f *ffn) backwardWeight(p phase, s *ffnState) {
	f.down.backwardWeight(p, &s.linear.down)
	f.gateUp.backwardWeight(p, &s.linear.gateUp)
}

func (f *ffn) halves(m tensor.Matrix) (gate, up tensor.Matrix) {
	return m.ColSlice(0, f.inter), m.ColSlice(f.inter, 2*f.inter)
}
