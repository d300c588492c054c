package moe

// Parameters and FLOPs of each part of a model. Counts and FLOPs of the whole model are sums
// over its parts.

import (
	"errors"
	"fmt"

	"spmoe/tensor"
)

// Module holds the parameters of a part of a model and its costs per token.
type Module struct {
	Part  Part
	Ahead bool // of layers that predict further ahead, which [Counts.Active] and [Config.FLOPsPerToken] leave out
	Class Class

	Params int64 // of the whole model
	Active int64 // parameters that one token uses

	FLOPs FLOPs
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
				all = append(all, Module{Part: part, Ahead: ahead, Class: part.Class()})
			}
		}
	}
	for i := range c.AllLayers() {
		ahead := i >= c.Layers
		for _, m := range c.modulesOf(i, seq) {
			at := index[PartKey{m.Part, ahead}]
			all[at] = all[at].plus(m)
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
	norms := 2*c.Dim + k.residual.vectors() + k.attention.vectors()
	all := []Module{norm(norms), scores(k.attention.shape(), k.attention.keys(seq))}
	if c.hasIndexer(layer) {
		all[1] = all[1].plus(c.indexScores(seq))
	}
	if v4, ok := k.attention.(compressedKind); ok && v4.kind == compressedSparse {
		all[1].FLOPs.Forward += 2 * float64(c.IndexHeads*c.IndexDim) * float64(seq/c.CSARate) // the indexer's scores
	}
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
		// a look-up: a token reads one row and multiplies nothing
		n := int64(c.Vocab) * int64(c.Dim)
		m = Module{Part: Embedding, Class: Embedding.Class(), Params: n, Active: n}
	case Norms:
		if c.ResidualStreams > 0 {
			return norm(c.Dim + c.ResidualStreams + 1) // of the mixer before the head: base and scale
		}
		return norm(c.Dim)
	case Streams:
		if c.ResidualStreams > 0 && !key.Ahead {
			return matrix("head_mixer", Streams, c.ResidualDim(), c.ResidualStreams).module()
		}
	case Head:
		return c.head(key.Ahead).module()
	}
	if key.Ahead { // it looks up the model's own embedding
		m.Params, m.Active = 0, 0
	}
	return m
}

// module returns the part of a layer that consists of a matrix.
func (l LinearLayer) module() Module {
	return Module{Part: l.Part, Class: l.Part.Class(), Params: int64(l.Held) * l.Params(), Active: int64(l.Met) * l.Params()}.multiplied()
}

// norm returns an RMSNorm, or a bias, of n elements.
func norm(n int) Module {
	return Module{Part: Norms, Class: Norms.Class(), Params: int64(n), Active: int64(n)}.multiplied()
}

// multiplied adds the FLOPs of a token that is multiplied once per product with all active weights.
func (m Module) multiplied() Module {
	m.FLOPs = FLOPs{2 * float64(m.Active), 2 * float64(m.Active), 2 * float64(m.Active)}
	return m
}

// plus adds two modules of the same part.
func (m Module) plus(o Module) Module {
	m.Params, m.Active = m.Params+o.Params, m.Active+o.Active
	m.FLOPs = m.FLOPs.Plus(o.FLOPs)
	return m
}

// scores is attention between the projections. It has 2·heads·(key + value dimension)·keys FLOPs
// per layer, and twice that in the backward pass for the queries, keys and values. It has no
// weights.
func scores(s tensor.AttentionShape, keys int) Module {
	forward := 2 * float64(s.Heads*(s.KeyDim+s.ValueDim)) * float64(keys)
	return Module{Part: Scores, Class: Scores.Class(), FLOPs: FLOPs{Forward: forward, Dgrad: 2 * forward}}
}

// indexScores is what an indexer computes between its projections: products of its queries with its
// key. What its loss computes again is not counted, and attention over chosen keys costs as much as
// over all, because all products are computed.
func (c Config) indexScores(seq int) Module {
	forward := 2 * float64(c.IndexHeads*c.IndexDim) * float64(seq)
	return Module{Part: Scores, Class: Scores.Class(), FLOPs: FLOPs{Forward: forward, Dgrad: 2 * forward}}
}

// KVCache returns the elements per token of a cache for generation: keys and values of all their
// heads, and the keys of indexers, of layers that predict the next token. A window, whose size is
// that of any sequence, does not count.
func (c Config) KVCache() (n int64) {
	for i := range c.Layers {
		kind := c.layer(i).attention
		if v4, ok := kind.(compressedKind); ok {
			n += int64(v4.entryElements())
			continue
		}
		shape := kind.shape()
		n += int64(shape.KVHeads * (shape.KeyDim + shape.ValueDim))
		if c.hasIndexer(i) {
			n += int64(c.IndexDim)
		}
	}
	return n
}

// CheckLayers returns an error if a recipe of single layers is for layers that the model does not
// have.
func (p Precision) CheckLayers(c Config) error {
	var errs []error
	for _, rule := range p.Layers {
		selected := false
		for i := range c.AllLayers() {
			for _, m := range c.modulesOf(i, 0) {
				selected = selected || m.Class.quantizable() && rule.Select.has(m.Part, i, c.Layers)
			}
		}
		if !selected || rule.Select.where == "at" && rule.Select.hi >= c.AllLayers() {
			errs = append(errs, fmt.Errorf("precision %s: layers select = %q: the model has layers 0 to %d, %d of them dense, and %d shared and %d routed experts",
				p.Name, rule.Select, c.AllLayers()-1, c.DenseLayers, c.SharedExperts, c.Experts))
		}
	}
	return errors.Join(errs...)
}
