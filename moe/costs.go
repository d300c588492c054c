package moe

// Parameters, FLOPs and bytes of each part of a model. Counts and FLOPs of the whole model are sums
// over its parts.

import (
	"errors"
	"fmt"
	"slices"

	"spmoe/mx"
	"spmoe/tensor"
)

// Module holds the parameters of a part of a model and its costs per token.
type Module struct {
	Part  Part
	Ahead bool // of layers that predict further ahead, which [Counts.Active] and [Config.FLOPsPerToken] leave out
	Class Class

	Params int64 // of the whole model
	Active int64 // parameters that one token uses

	// Elements per token that its operations read, besides weights, and write in the forward pass.
	Inputs, Outputs int64

	FLOPs FLOPs

	layers []int // that have the part, of a model with of layers
	of     int
}

// FLOPs are the operations per token, as TorchTitan counts them: 2 for each of the three products
// of a weight that the token uses, norms like matrices, and attention as if it were not causal.
type FLOPs struct {
	Forward float64 `json:"forward"`
	Dgrad   float64 `json:"dgrad"`
	Wgrad   float64 `json:"wgrad"`
}

// Total returns the FLOPs of training.
func (f FLOPs) Total() float64 { return f.Forward + f.Dgrad + f.Wgrad }

// Plus adds two counts.
func (f FLOPs) Plus(o FLOPs) FLOPs {
	return FLOPs{f.Forward + o.Forward, f.Dgrad + o.Dgrad, f.Wgrad + o.Wgrad}
}

// Modules returns the parts of the model in the order of a pass, for sequences of seq tokens,
// followed by those of layers that predict further ahead, if there are some. Each part occurs once,
// with zeros if the model does not have it.
func (c Config) Modules(seq int) (all []Module) {
	index := map[PartKey]int{}
	for _, ahead := range []bool{false, true}[:1+min(c.MTPLayers, 1)] {
		for _, part := range partOrder {
			if part != Joint || ahead {
				index[PartKey{part, ahead}] = len(all)
				all = append(all, Module{Part: part, Ahead: ahead, Class: part.Class(), of: c.Layers})
			}
		}
	}
	for i := range c.AllLayers() {
		ahead := i >= c.Layers
		for _, m := range c.modulesOf(i, seq) {
			sum := &all[index[PartKey{m.Part, ahead}]]
			*sum = sum.plus(m)
			sum.layers = append(sum.layers, i)
		}
	}
	for key, at := range index {
		all[at] = all[at].plus(c.outside(key))
	}
	return all
}

// modulesOf returns the parts of one layer. Norms include biases.
func (c Config) modulesOf(layer, seq int) []Module {
	k := c.layer(layer)
	norms := norm(2 * c.Dim)
	addNorm := func(n, times int) {
		m := norm(n)
		m.Inputs, m.Outputs = int64(times)*m.Inputs, int64(times)*m.Outputs
		norms = norms.plus(m)
	}
	k.residual.vectors(addNorm)
	k.attention.vectors(addNorm)
	all := []Module{norms, scores(k.attention.shape(), seq)}
	k.linears(func(l LinearLayer) {
		m := l.module()
		if last := &all[len(all)-1]; last.Part == m.Part {
			*last = last.plus(m)
		} else {
			all = append(all, m)
		}
	})
	return all
}

// outside returns what a model has of a part outside of layers: the look-up of embeddings, the norm
// before the head, and the head.
func (c Config) outside(key PartKey) (m Module) {
	switch key.Part {
	case Embedding:
		m = c.embedding()
	case Norms:
		return norm(c.Dim)
	case Head:
		return c.head(key.Ahead).module()
	}
	if key.Ahead { // it looks up the model's own embedding
		m.Params, m.Active = 0, 0
	}
	return m
}

// perExpert returns the parameters of one routed expert.
func (c Config) perExpert() int64 { return 3 * int64(c.Dim) * int64(c.ExpertInter) }

// module returns the part of a layer that consists of a matrix.
func (l LinearLayer) module() Module {
	m := Module{Part: l.Part, Class: l.Part.Class(), Params: int64(l.Held) * l.Params(), Active: int64(l.Met) * l.Params()}
	m.Inputs, m.Outputs = int64(l.Met*l.In), int64(l.Met*l.Out)
	return m.multiplied()
}

// norm returns an RMSNorm, or a bias, of n elements.
func norm(n int) Module {
	elements := int64(n)
	return Module{Part: Norms, Class: Norms.Class(), Params: elements, Active: elements, Inputs: elements, Outputs: elements}.multiplied()
}

// multiplied adds the FLOPs of a token that is multiplied once per product with all active weights.
func (m Module) multiplied() Module {
	m.FLOPs = FLOPs{2 * float64(m.Active), 2 * float64(m.Active), 2 * float64(m.Active)}
	return m
}

// plus adds two modules of the same part.
func (m Module) plus(o Module) Module {
	m.Params, m.Active = m.Params+o.Params, m.Active+o.Active
	m.Inputs, m.Outputs = m.Inputs+o.Inputs, m.Outputs+o.Outputs
	m.FLOPs = m.FLOPs.Plus(o.FLOPs)
	return m
}

// embedding is a look-up: a token reads one row and multiplies nothing.
func (c Config) embedding() Module {
	n := int64(c.Vocab) * int64(c.Dim)
	return Module{Part: Embedding, Class: Embedding.Class(), Params: n, Active: n, Outputs: int64(c.Dim)}
}

// scores is attention between the projections. It has 2·heads·(key + value dimension)·seq FLOPs per
// layer, and twice that in the backward pass for the queries, keys and values. It has no weights.
func scores(s tensor.AttentionShape, seq int) Module {
	forward := 2 * float64(s.Heads*(s.KeyDim+s.ValueDim)) * float64(seq)
	return Module{
		Part: Scores, Class: Scores.Class(),
		Inputs: int64(s.Heads*s.KeyDim + s.KVHeads*(s.KeyDim+s.ValueDim)), Outputs: int64(s.Heads * s.ValueDim),
		FLOPs: FLOPs{Forward: forward, Dgrad: 2 * forward},
	}
}

// Traffic is a lower bound of the bytes per token that a part reads and writes in memory, in the
// working type: each operand of its products once, and nothing in between. It leaves out
// quantization, residuals, activation functions and rotations, which kernels can fuse.
type Traffic struct {
	Forward float64 `json:"forward"`
	Dgrad   float64 `json:"dgrad"`
	Wgrad   float64 `json:"wgrad"`
}

// Total returns the bytes of training.
func (t Traffic) Total() float64 { return t.Forward + t.Dgrad + t.Wgrad }

// Plus adds two traffics.
func (t Traffic) Plus(o Traffic) Traffic {
	return Traffic{t.Forward + o.Forward, t.Dgrad + o.Dgrad, t.Wgrad + o.Wgrad}
}

// Traffic returns the bytes per token of a pass of tokens tokens on each of the ranks, which share
// the experts evenly. Weights are read once per pass and product; FP32 gradients of weights are
// read and written once.
func (m Module) Traffic(p Precision, tokens, ranks int) Traffic {
	size := float64(p.DType.Size())
	in, out := float64(m.Inputs), float64(m.Outputs)
	held := float64(m.Active)
	switch {
	case m.Part == Embedding:
		return Traffic{Forward: 2 * size * out, Wgrad: (size + 8) * out}
	case m.Part == Scores:
		return Traffic{Forward: size * (in + out), Dgrad: 2 * size * (in + out)}
	case m.Class == Expert:
		held = float64(m.OnRank(ranks))
	}
	held /= float64(tokens)
	if m.Class == Single {
		return Traffic{Forward: size*in + 4*held + size*out, Dgrad: size*out + 4*held + size*in, Wgrad: size*(in+out) + 8*held}
	}
	bytes := func(of func(Recipe) mx.Cast) float64 { return m.operandBytes(p, of) }
	return Traffic{
		Forward: bytes(func(r Recipe) mx.Cast { return r.Forward.Left })*in + bytes(func(r Recipe) mx.Cast { return r.Forward.Right })*held + size*out,
		Dgrad:   bytes(func(r Recipe) mx.Cast { return r.Dgrad.Left })*out + bytes(func(r Recipe) mx.Cast { return r.Dgrad.Right })*held + size*in,
		Wgrad:   bytes(func(r Recipe) mx.Cast { return r.Wgrad.Right })*in + bytes(func(r Recipe) mx.Cast { return r.Wgrad.Left })*out + 8*held,
	}
}

// recipes lists the recipe of each of the module's layers; nil: it is not quantized. A module
// outside of layers has that of its class.
func (m Module) recipes(p Precision) (all []*Recipe) {
	for _, layer := range m.layers {
		all = append(all, p.of(m.Part, layer, m.of))
	}
	if all == nil {
		all = []*Recipe{p.Of(m.Class)}
	}
	return all
}

// operandBytes returns the bytes per element of an operand, averaged over the module's layers.
func (m Module) operandBytes(p Precision, of func(Recipe) mx.Cast) (mean float64) {
	all := m.recipes(p)
	for _, r := range all {
		bytes := float64(p.DType.Size())
		if r != nil && of(*r).Quantizes() {
			bytes = of(*r).Format.BytesPerElement()
		}
		mean += bytes / float64(len(all))
	}
	return mean
}

// OnRank returns the parameters of this part on each of the ranks.
func (m Module) OnRank(ranks int) int64 {
	if m.Class == Expert {
		return m.Params / int64(ranks)
	}
	return m.Params
}

// KVCache returns the elements per token of a cache for generation: keys and values of all their
// heads, of layers that predict the next token.
func (c Config) KVCache() (n int64) {
	for i := range c.Layers {
		shape := c.layer(i).attention.shape()
		n += int64(shape.KVHeads * (shape.KeyDim + shape.ValueDim))
	}
	return n
}

// CheckLayers returns an error if a recipe of single layers is for layers that the model does not
// have.
func (p Precision) CheckLayers(c Config) error {
	var errs []error
	for _, rule := range p.Layers {
		selected := slices.ContainsFunc(c.Modules(0), func(m Module) bool {
			return m.Class.quantizable() && slices.ContainsFunc(m.layers, func(l int) bool { return rule.Select.has(m.Part, l, m.of) })
		})
		if !selected || rule.Select.where == "at" && rule.Select.hi >= c.AllLayers() {
			errs = append(errs, fmt.Errorf("precision %s: layers select = %q: the model has layers 0 to %d, %d of them dense, and %d shared and %d routed experts",
				p.Name, rule.Select, c.AllLayers()-1, c.DenseLayers, c.SharedExperts, c.Experts))
		}
	}
	return errors.Join(errs...)
}
