package moe

// Parameters, FLOPs and bytes of each part of a model. Counts and FLOPs of the whole model are sums
// over its parts.

import (
	"spmoe/mx"
)

// Part names a part of a model: all layers of one kind.
type Part string

// The parts of a model. Only the MTP module has Joint.
const (
	Embedding   Part = "embedding"
	Norms       Part = "norms" // and biases
	Projections Part = "attention projections"
	Scores      Part = "attention scores" // products of queries with keys and of their softmax with values
	Dense       Part = "dense FFN"
	Router      Part = "router"
	Routed      Part = "routed experts"
	Shared      Part = "shared experts"
	Joint       Part = "joint projection" // of a hidden state and an embedding, before the MTP module's block
	Head        Part = "output head"
)

// Class says in which format the weights of a part are held and multiplied.
type Class int

// The classes of weights.
const (
	Single Class = iota // FP32 in every precision
	Plain               // in the working type of the precision, never quantized
	Linear              // according to [Precision.Linears]
	Expert              // according to [Precision.Experts]; each is on one rank only
)

// Class returns the class of a part's weights.
func (p Part) Class() Class {
	switch p {
	case Norms, Router:
		return Single
	case Projections, Dense, Shared, Joint:
		return Linear
	case Routed:
		return Expert
	}
	return Plain
}

// Module holds the parameters of a part of a model and its costs per token.
type Module struct {
	Part  Part
	MTP   bool // belongs to the MTP module, which [Counts.Active] and [Config.FLOPsPerToken] leave out
	Class Class

	Params int64 // of the whole model
	Active int64 // parameters that one token uses

	// Elements per token that its operations read, besides weights, and write in the forward pass.
	Inputs, Outputs int64

	FLOPs FLOPs

	layers layerRange // that have the part
}

// layerRange is layers [first, end) of a model with of layers. The MTP module is layer number of.
type layerRange struct{ first, end, of int }

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
// followed by the parts of the MTP module if there is one. Each part occurs once, with zeros if the
// model does not have it.
func (c Config) Modules(seq int) []Module {
	linears := c.Linears()
	all := append([]Module{c.embedding()}, c.blocks(linears, false, int64(c.Layers), seq)...)
	all[1] = all[1].plus(norm(1, c.Dim)) // before the head
	all = append(all, products(linears, Head, false))
	for i := range all {
		all[i].layers = c.layersOf(all[i].Part)
	}
	if c.MTPLayers > 0 {
		all = append(all, c.mtpModules(linears, seq)...)
	}
	return all
}

// mtpModules returns the parts of the MTP module.
func (c Config) mtpModules(linears []LinearLayer, seq int) []Module {
	lookUp := c.embedding() // it looks up the model's own embedding
	lookUp.Params, lookUp.Active = 0, 0
	all := append([]Module{lookUp, products(linears, Joint, true)}, c.blocks(linears, true, int64(c.MTPLayers), seq)...)
	all[2] = all[2].plus(norm(2*int64(c.MTPLayers)+1, c.Dim))
	all = append(all, products(linears, Head, true))
	for i := range all {
		all[i].MTP, all[i].layers = true, layerRange{c.Layers, c.Layers + 1, c.Layers}
	}
	return all
}

// layersOf returns the layers that have a part.
func (c Config) layersOf(part Part) layerRange {
	switch part {
	case Dense:
		return layerRange{0, c.DenseLayers, c.Layers}
	case Router, Routed, Shared:
		return layerRange{c.DenseLayers, c.Layers, c.Layers}
	}
	return layerRange{0, c.Layers, c.Layers}
}

// blocks returns the parts of some transformer layers: norms first.
func (c Config) blocks(linears []LinearLayer, mtp bool, layers int64, seq int) []Module {
	norms := norm(layers, c.Dim).plus(norm(layers, c.Dim)).plus(c.kind().vectors(layers))
	all := []Module{norms, products(linears, Projections, mtp), c.scores(layers, seq)}
	for _, part := range []Part{Dense, Router, Routed, Shared} {
		all = append(all, products(linears, part, mtp))
	}
	return all
}

// perExpert returns the parameters of one routed expert.
func (c Config) perExpert() int64 { return 3 * int64(c.Dim) * int64(c.ExpertInter) }

// products returns the part of a model, or of its MTP module, that consists of some linear layers.
// A part without layers has only its name and class.
func products(all []LinearLayer, part Part, mtp bool) Module {
	m := Module{Part: part, Class: part.Class()}
	for _, l := range all {
		if l.Part == part && l.MTP == mtp {
			met := int64(l.Layers) * int64(l.Met)
			m.Params += int64(l.Layers) * int64(l.Held) * l.Params()
			m.Active += met * l.Params()
			m.Inputs += met * int64(l.In)
			m.Outputs += met * int64(l.Out)
		}
	}
	return m.multiplied()
}

// norm returns times RMSNorms of n elements.
func norm(times int64, n int) Module {
	elements := times * int64(n)
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
func (c Config) scores(layers int64, seq int) Module {
	forward := 2 * float64(layers*int64(c.Heads*(c.KeyDim()+c.ValueDim))*int64(seq))
	return Module{
		Part: Scores, Class: Scores.Class(),
		Inputs: layers * int64(c.Heads*c.KeyDim()+c.keyHeads()*(c.KeyDim()+c.ValueDim)), Outputs: layers * int64(c.Heads*c.ValueDim),
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
	for l := m.layers.first; l < m.layers.end; l++ {
		all = append(all, p.of(m.Part, l, m.layers.of))
	}
	if all == nil {
		all = []*Recipe{p.Of(m.Class)}
	}
	return all
}

// QuantizedShare returns the fraction of the module's layers that are quantized.
func (m Module) QuantizedShare(p Precision) float64 {
	quantized, all := 0, m.recipes(p)
	for _, r := range all {
		if r != nil {
			quantized++
		}
	}
	return float64(quantized) / float64(len(all))
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
// heads. The MTP module is not part of generation.
func (c Config) KVCache() int64 {
	return int64(c.Layers * c.keyHeads() * (c.KeyDim() + c.ValueDim))
}
