package moe

// Parameters, FLOPs and bytes of each part of a model. Counts and FLOPs of the whole model are sums
// over its parts.

import "spmoe/mx"

// Part names a part of a model: all layers of one kind.
type Part string

// The parts of a model. Only the MTP module has Joint.
const (
	Embedding   Part = "embedding"
	Norms       Part = "norms"
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
	Kept   int64 // approximate elements per token saved for the backward pass; see KeptBy

	deferred int64 // see DeferredWgrad
	cheap    int64 // of Kept, what RecomputeSelective recomputes
	// with RecomputeFull: what is saved, and what the layer being recomputed has
	savedFull int64

	// Elements per token that its operations read, besides weights, and write in the forward pass.
	Inputs, Outputs int64

	FLOPs FLOPs

	layers layerRange // that have the part
}

// layerRange is layers [first, end) of a model with of layers. The MTP module is layer number of.
type layerRange struct{ first, end, of int }

// KeptBy returns the approximate elements per token that are saved for the backward pass under a
// recompute policy. For RecomputeFull it includes the activations of one layer, which the backward
// pass recomputes at a time.
func (m Module) KeptBy(r Recompute) int64 {
	switch r {
	case RecomputeSelective:
		return m.Kept - m.cheap
	case RecomputeFull:
		return m.savedFull
	}
	return m.Kept
}

// DeferredWgrad returns the elements per token that a pass saves for the weight gradients of routed
// experts if these are deferred: see [Config.WgradPasses].
func (m Module) DeferredWgrad() int64 { return m.deferred }

// saves adds the elements that each layer saves. Some of them, cheap, take little work to
// recompute.
func (m Module) saves(layers int64, elements, cheap int) Module {
	m.Kept += layers * int64(elements)
	m.cheap += layers * int64(cheap)
	m.savedFull += min(layers, 1) * int64(elements)
	return m
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
// followed by the parts of the MTP module if there is one. Each part occurs once, with zeros if the
// model does not have it.
func (c Config) Modules(seq int) []Module {
	linears := c.Linears()
	layers, dense := int64(c.Layers), int64(c.DenseLayers)
	all := append([]Module{c.embedding()}, c.blocks(linears, false, layers, dense, seq)...)
	all[1] = all[1].plus(norm(1, c.Dim)) // before the head
	all = append(all, products(linears, Head, false))
	for i := range all {
		all[i].layers = c.layersOf(all[i].Part)
	}
	if c.MTPLayers == 0 {
		return all
	}
	lookUp := c.embedding() // the MTP module looks up the model's own embedding
	lookUp.Params, lookUp.Active = 0, 0
	extra := append([]Module{lookUp, products(linears, Joint, true)}, c.blocks(linears, true, 1, 0, seq)...)
	extra[2] = extra[2].plus(norm(3, c.Dim))
	for _, m := range append(extra, products(linears, Head, true)) {
		m.MTP, m.layers = true, layerRange{c.Layers, c.Layers + 1, c.Layers}
		all = append(all, m)
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

// blocks returns the parts of some transformer layers: norms first. The first dense of them have a
// dense FFN. What they save follows the layers' state structs.
func (c Config) blocks(linears []LinearLayer, mtp bool, layers, dense int64, seq int) []Module {
	norms := norm(layers, c.Dim).plus(norm(layers, c.Dim)).plus(norm(layers, c.KVRank)).plus(norm(layers, c.QRank))
	norms = norms.saves(layers, 2*c.Dim, 2*c.Dim)

	projections := products(linears, Projections, mtp)
	projections = projections.saves(layers, 2*c.Dim+2*c.QRank+2*c.KVRank+c.RopeDim, c.QRank+c.KVRank)
	projections.savedFull += layers * int64(c.Dim) // the layers' inputs

	feed := func(part Part, layers int64, width int) Module { // width: of all networks of a layer that a token visits
		return products(linears, part, mtp).saves(layers, 3*width, width)
	}
	moe := layers - dense
	router := products(linears, Router, mtp).saves(moe, 2*c.Experts, 0)
	routed := feed(Routed, moe, c.TopK*c.ExpertInter).saves(moe, 3*c.TopK*c.Dim, 0)
	routed.deferred = moe * int64(c.TopK*(2*c.Dim+3*c.ExpertInter))
	shared := feed(Shared, moe, c.SharedExperts*c.ExpertInter)
	return []Module{norms, projections, c.scores(layers, seq), feed(Dense, dense, c.DenseInter), router, routed, shared}
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
	m.Kept, m.deferred, m.cheap, m.savedFull = m.Kept+o.Kept, m.deferred+o.deferred, m.cheap+o.cheap, m.savedFull+o.savedFull
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
	m := Module{
		Part: Scores, Class: Scores.Class(),
		Inputs: layers * int64(c.Heads*(2*c.KeyDim()+c.ValueDim)), Outputs: layers * int64(c.Heads*c.ValueDim),
		FLOPs: FLOPs{Forward: forward, Dgrad: 2 * forward},
	}
	return m.saves(layers, 2*c.Heads*(c.KeyDim()+c.ValueDim), c.Heads*(c.KeyDim()+c.ValueDim))
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
	how := Recipe{}
	if r := p.Of(m.Class); r != nil {
		how = *r
	}
	share := m.QuantizedShare(p)
	bytes := func(c mx.Cast) float64 { // per element, averaged over the layers
		if !c.Quantizes() {
			return size
		}
		return share*c.Format.BytesPerElement() + (1-share)*size
	}
	return Traffic{
		Forward: bytes(how.Forward.Left)*in + bytes(how.Forward.Right)*held + size*out,
		Dgrad:   bytes(how.Dgrad.Left)*out + bytes(how.Dgrad.Right)*held + size*in,
		Wgrad:   bytes(how.Wgrad.Right)*in + bytes(how.Wgrad.Left)*out + 8*held,
	}
}

// QuantizedShare returns the fraction of the module's layers that use the recipe of its class.
func (m Module) QuantizedShare(p Precision) float64 {
	switch {
	case p.Of(m.Class) == nil:
		return 0
	case p.PlainFirst == 0 && p.PlainLast == 0 || m.layers.end == m.layers.first:
		return 1
	}
	quantized := 0
	for l := m.layers.first; l < m.layers.end; l++ {
		if p.of(m.Class, l, m.layers.of) != nil {
			quantized++
		}
	}
	return float64(quantized) / float64(m.layers.end-m.layers.first)
}

// OnRank returns the parameters of this part on each of the ranks.
func (m Module) OnRank(ranks int) int64 {
	if m.Class == Expert {
		return m.Params / int64(ranks)
	}
	return m.Params
}

// KVCache returns the elements per token of a cache for generation: compressed, as latent vectors
// and rotary keys, and expanded, as keys and values of all heads. The MTP module is not part of
// generation.
func (c Config) KVCache() (compressed, expanded int64) {
	layers := int64(c.Layers)
	return layers * int64(c.cacheRow()), layers * int64(c.Heads*(c.KeyDim()+c.ValueDim))
}
