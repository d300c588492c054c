package reference

import (
	"fmt"
	"strings"
)

// The modules of a model, by the module paths of transformers. Between them stand the sums and the
// handovers that no module computes: what leaves one module enters the next, forward and backward.

func input(path string) Port  { return Port{Name: path + ".input", Grad: path + ".grad_input"} }
func output(path string) Port { return Port{Name: path + ".output", Grad: path + ".grad_output"} }

// ofRouter is the port of a router's result.
func ofRouter(path, name string) Port {
	return Port{Name: path + "." + name, Grad: path + "." + name + ".grad"}
}

// columns returns columns [lo, hi) of the port.
func (p Port) columns(lo, hi int) Port {
	p.Lo, p.Hi = lo, hi
	return p
}

// Cut returns the port's columns of a tensor, [tokens, columns].
func (p Port) Cut(x Tensor, tokens int) Tensor {
	width := len(x.Data) / max(tokens, 1)
	if p.Hi == 0 || p.Hi > width {
		return x
	}
	cut := Tensor{Dims: []int{tokens, p.Hi - p.Lo}}
	for r := range tokens {
		cut.Data = append(cut.Data, x.Data[r*width+p.Lo:r*width+p.Hi]...)
	}
	return cut
}

// gradient returns the port of p's gradient.
func (p Port) gradient() Port { return Port{Name: p.Grad, Lo: p.Lo, Hi: p.Hi} }

// list collects the modules of a model.
type list struct {
	config  *Config
	modules []*Module
	layer   int
}

// add appends a module of the layer with the usual ports.
func (l *list) add(kind Kind, path string) *Module {
	m := &Module{Path: path, Kind: kind, Layer: l.layer, Inputs: []Port{input(path)}, Outputs: []Port{output(path)}, widths: []int{l.config.Hidden}, config: l.config}
	l.modules = append(l.modules, m)
	return m
}

// glue appends a sum of ports.
func (l *list) glue(kind Kind, path string, to Port, from ...Port) {
	m := l.add(kind, path)
	m.Inputs, m.Outputs, m.widths = from, []Port{to}, nil
}

// link says that a tensor enters some modules, and that its gradient is the sum of theirs. Autograd
// adds the last one's first.
func (l *list) link(from Port, to ...Port) {
	var gradients []Port
	for _, p := range to {
		l.glue(Handover, strings.TrimSuffix(p.label(), ".input")+".handover", p, from)
		gradients = append([]Port{p.gradient()}, gradients...)
	}
	l.glue(Handover, from.label()+".grad", from.gradient(), gradients...)
}

// label names the port's columns too.
func (p Port) label() string {
	if p.Hi == 0 {
		return p.Name
	}
	return fmt.Sprintf("%s[%d:%d]", p.Name, p.Lo, p.Hi)
}

// inside appends a coarse module with those that parts appends as its children.
func (l *list) inside(kind Kind, path string, parts func()) *Module {
	m := l.add(kind, path)
	first := len(l.modules)
	parts()
	for _, child := range l.modules[first:] {
		m.Children = append(m.Children, child.Path)
		if child.Children == nil { // a coarse child's parameters are those of its own children
			m.Params, m.Buffers = append(m.Params, child.Params...), append(m.Buffers, child.Buffers...)
		}
	}
	return m
}

func (l *list) parameter(m *Module, suffix string, dims ...int) {
	name := m.Path + "." + suffix
	m.Params = append(m.Params, name)
	l.config.params[name] = dims
}

func (l *list) norm(path string, width int) {
	m := l.add(Norm, path)
	m.widths = []int{width}
	l.parameter(m, "weight", width)
}

func (l *list) linear(path string, out, in int, bias bool) {
	m := l.add(Linear, path)
	m.widths = []int{in}
	l.parameter(m, "weight", out, in)
	if bias {
		l.parameter(m, "bias", out)
	}
}

// Modules returns the modules in the order of the forward pass, each before those inside it. It
// also notes the dimensions of their parameters: calls must not run at the same time.
func (c *Config) Modules() []*Module {
	l := &list{config: c, layer: -1}
	embedding := l.add(Embedding, "model.embed_tokens")
	embedding.Inputs = nil
	l.parameter(embedding, "weight", c.Vocab, c.Hidden)
	rotary := l.add(Rotary, "model.rotary_emb")
	rotary.Inputs, rotary.Outputs = nil, []Port{{Name: "model.rotary_emb.output"}, {Name: "model.rotary_emb.output.1"}}
	before := output(embedding.Path)
	var logits []Port
	for i := range c.Layers {
		l.layer = i
		path := fmt.Sprintf("model.layers.%d", i)
		l.link(before, input(path))
		if l.block(path); c.Sparse(i) {
			logits = append(logits, ofRouter(path+".mlp.gate", "logits"))
		}
		before = output(path)
	}
	l.layer = -1
	l.multiToken(before)
	if len(logits) > 0 { // Qwen's loss counts the choices of all layers together
		l.balance("model."+loadBalance, loadBalance, logits...)
	}
	head := l.inside(Head, "head", func() {
		l.norm("model.norm", c.Hidden)
		l.link(output("model.norm"), input("lm_head"))
		if l.linear("lm_head", c.Vocab, c.Hidden, false); c.Tied {
			l.modules[len(l.modules)-1].Params = []string{"model.embed_tokens.weight"}
			delete(c.params, "lm_head.weight")
		}
		l.loss("loss", "lm_head")
	})
	head.Inputs, head.Outputs = []Port{input("model.norm")}, []Port{{Name: "loss"}}
	return l.modules
}

func (l *list) loss(path, logits string) {
	m := l.add(Loss, path)
	m.Inputs, m.Outputs, m.widths = []Port{output(logits)}, []Port{{Name: path}}, []int{l.config.Vocab}
}

// block appends a layer: two branches, each added to what it reads.
func (l *list) block(path string) {
	c := l.config
	x, y, first, second, attn, mlp := input(path), output(path), path+".input_layernorm", path+".post_attention_layernorm", path+".self_attn", path+".mlp"
	l.inside(Block, path, func() {
		l.glue(Handover, first+".handover", input(first), x)
		l.glue(Residual, path+".input.grad", x.gradient(), input(first).gradient(), output(attn).gradient())
		l.norm(first, c.Hidden)
		l.link(output(first), input(attn))
		l.attention(attn)
		l.glue(Residual, path+".residual_attn", input(second), x, output(attn))
		l.glue(Residual, path+".residual_attn.grad", output(attn).gradient(), input(second).gradient(), y.gradient())
		l.norm(second, c.Hidden)
		l.link(output(second), input(mlp))
		if c.Sparse(l.layer) {
			l.moe(mlp)
		} else {
			l.mlp(mlp, c.DenseInter)
		}
		l.glue(Residual, path+".residual_mlp", y, input(second), output(mlp))
		l.glue(Handover, path+".residual_mlp.grad", output(mlp).gradient(), y.gradient())
	})
}

func (l *list) attention(path string) {
	c := l.config
	l.inside(Attention, path, func() {
		var core []Port
		if c.KVRank > 0 {
			core = l.latentProjections(path)
		} else {
			core = l.groupedProjections(path)
		}
		m := l.add(Core, path+".core")
		m.Inputs, m.Outputs = core, []Port{input(path + ".o_proj")}
		if m.widths = []int{c.Heads * c.HeadDim, c.KVHeads * c.HeadDim}; c.KVRank > 0 {
			m.widths = []int{c.Heads * c.HeadDim, c.RopeDim, c.Heads * (c.NopeDim + c.ValueDim)}
		}
		l.linear(path+".o_proj", c.Hidden, c.Heads*c.ValueDim, c.OutputBias)
		l.link(output(path+".o_proj"), output(path))
	})
}

// latentProjections appends the projections of DeepSeek's attention and returns the inputs of its
// core: queries, the key part that all heads share, and keys and values from the latent.
func (l *list) latentProjections(path string) []Port {
	c, queries := l.config, path+".q_proj"
	down := path + ".kv_a_proj_with_mqa"
	if c.QRank > 0 {
		queries = path + ".q_b_proj"
		l.link(input(path), input(path+".q_a_proj"), input(down))
		l.linear(path+".q_a_proj", c.QRank, c.Hidden, c.AttentionBias)
		l.link(output(path+".q_a_proj"), input(path+".q_a_layernorm"))
		l.norm(path+".q_a_layernorm", c.QRank)
		l.link(output(path+".q_a_layernorm"), input(queries))
		l.linear(queries, c.Heads*c.HeadDim, c.QRank, false)
	} else {
		l.link(input(path), input(queries), input(down))
		l.linear(queries, c.Heads*c.HeadDim, c.Hidden, false)
	}
	l.linear(down, c.KVRank+c.RopeDim, c.Hidden, c.AttentionBias)
	l.link(output(down).columns(0, c.KVRank), input(path+".kv_a_layernorm"))
	l.norm(path+".kv_a_layernorm", c.KVRank)
	l.link(output(path+".kv_a_layernorm"), input(path+".kv_b_proj"))
	l.linear(path+".kv_b_proj", c.Heads*(c.NopeDim+c.ValueDim), c.KVRank, false)
	return []Port{output(queries), output(down).columns(c.KVRank, c.KVRank+c.RopeDim), output(path + ".kv_b_proj")}
}

// groupedProjections appends queries, keys and values, and returns them.
func (l *list) groupedProjections(path string) (core []Port) {
	c := l.config
	l.link(input(path), input(path+".q_proj"), input(path+".k_proj"), input(path+".v_proj"))
	for _, p := range []struct {
		name  string
		heads int
		norm  bool
	}{{"q", c.Heads, c.QKNorm}, {"k", c.KVHeads, c.QKNorm}, {"v", c.KVHeads, false}} {
		projection, norm := path+"."+p.name+"_proj", path+"."+p.name+"_norm"
		l.linear(projection, p.heads*c.HeadDim, c.Hidden, c.AttentionBias)
		if !p.norm {
			core = append(core, output(projection))
			continue
		}
		l.link(output(projection), input(norm))
		l.norm(norm, c.HeadDim)
		core = append(core, output(norm))
	}
	return core
}

func (l *list) mlp(path string, inter int) {
	c, gate, up, down := l.config, path+".gate_proj", path+".up_proj", path+".down_proj"
	l.inside(MLP, path, func() {
		l.link(input(path), input(gate), input(up))
		l.linear(gate, inter, c.Hidden, c.MLPBias)
		l.linear(up, inter, c.Hidden, c.MLPBias)
		act := l.add(Act, path+".act")
		act.Inputs, act.Outputs, act.widths = []Port{output(gate), output(up)}, []Port{input(down)}, []int{inter}
		l.linear(down, c.Hidden, inter, c.MLPBias)
		l.link(output(down), output(path))
	})
}

func (l *list) moe(path string) {
	c, gate, experts, shared := l.config, path+".gate", path+".experts", path+".shared_experts"
	readers, parts := []Port{input(gate), input(experts)}, []Port{output(experts)}
	if c.SharedExperts > 0 {
		readers, parts = append(readers, input(shared)), append(parts, output(shared))
	}
	l.inside(MoE, path, func() {
		l.link(input(path), readers...)
		l.router(gate)
		weights := Port{Name: experts + ".input.2", Grad: experts + ".grad_input.2"} // as transformers calls it
		l.link(ofRouter(gate, "weights"), weights)
		l.experts(experts, weights)
		if c.SharedExperts > 0 {
			l.mlp(shared, c.SharedExperts*c.ExpertInter)
		}
		l.glue(Residual, path+".sum", output(path), parts...)
		for _, part := range parts {
			l.glue(Handover, strings.TrimSuffix(part.Name, ".output")+".grad", part.gradient(), output(path).gradient())
		}
	})
}

func (l *list) router(path string) {
	c := l.config
	m := l.add(Router, path)
	m.Outputs = []Port{ofRouter(path, "logits"), ofRouter(path, "weights")}
	l.parameter(m, "weight", c.Experts, c.Hidden)
	if c.SelectionBias {
		m.Buffers = []string{path + ".e_score_correction_bias"}
		c.params[m.Buffers[0]] = []int{c.Experts}
	}
	for _, formula := range []string{loadBalance, sequenceBalance, zLoss} {
		l.balance(path+"."+formula, formula, m.Outputs[0])
	}
}

// balance appends a loss of router logits.
func (l *list) balance(path, formula string, logits ...Port) {
	m := l.add(Balance, path)
	m.Inputs, m.Outputs, m.formula, m.widths = logits, []Port{{Name: path}}, formula, []int{l.config.Experts}
}

func (l *list) experts(path string, weights Port) {
	c := l.config
	m := l.add(Experts, path)
	m.Inputs, m.widths = append(m.Inputs, weights), []int{c.Hidden, c.TopK}
	for e := range c.Experts {
		l.parameter(m, fmt.Sprintf("%d.gate_proj.weight", e), c.ExpertInter, c.Hidden)
		l.parameter(m, fmt.Sprintf("%d.up_proj.weight", e), c.ExpertInter, c.Hidden)
		l.parameter(m, fmt.Sprintf("%d.down_proj.weight", e), c.Hidden, c.ExpertInter)
	}
}

// multiToken appends DeepSeek's layers for further tokens. Each joins the hidden states of the
// layer before with the embedding of the next token:
//
//	x = eh_proj([enorm(embedding), hnorm(hidden)])
//
// The gradient of the last layer's output is the sum over the final norm and the first of them.
func (l *list) multiToken(before Port) {
	c := l.config
	readers := []Port{input("model.norm")}
	for i := range c.MTPLayers {
		l.layer = c.Layers + i
		path := fmt.Sprintf("model.layers.%d", l.layer)
		enorm, hnorm, join, head := path+".enorm", path+".hnorm", path+".eh_proj", path+".shared_head"
		l.link(before, append(readers, input(hnorm))...)
		readers = nil
		embedding := l.add(Embedding, path+".embed_tokens")
		embedding.Inputs, embedding.Params = nil, []string{"model.embed_tokens.weight"}
		l.link(output(embedding.Path), input(enorm))
		l.norm(enorm, c.Hidden)
		l.norm(hnorm, c.Hidden)
		l.link(output(enorm), input(join).columns(0, c.Hidden))
		l.link(output(hnorm), input(join).columns(c.Hidden, 2*c.Hidden))
		l.linear(join, c.Hidden, 2*c.Hidden, false)
		l.link(output(join), input(path))
		l.block(path)
		l.link(output(path), input(head+".norm"))
		l.norm(head+".norm", c.Hidden)
		l.link(output(head+".norm"), input(head+".head"))
		l.linear(head+".head", c.Vocab, c.Hidden, false)
		l.loss(path+".loss", head+".head")
		before = output(path)
	}
	if l.layer = -1; readers != nil {
		l.link(before, readers...)
	}
}
