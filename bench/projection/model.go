package projection

// What a model costs, counted from the configuration that trains it: its linear layers, the FLOPs of a token, bytes of the exchange.

import (
	"fmt"

	"spmoe/moe"
)

// Model is a model to project: a configuration of this engine, or one of its shape with grouped-query attention, of which the published
// rows have some.
type Model struct {
	Name string
	moe.Config
	KVHeads int // of grouped-query attention, whose heads are ValueDim wide; 0: MLA
}

// part is what a linear layer belongs to, which decides its precision and whether it is computed again.
type part int

const (
	attentionIn part = iota // projections before the scores that selective recomputation leaves alone
	attentionUp             // those that it computes again: MLA's up-projections
	attentionOut
	denseFFN
	sharedFFN
	routerGate
	routedFFN
	headOut
	mtpJoin
)

// linear is one weight matrix, [out, in], and how often a token meets it.
type linear struct {
	name    string
	part    part
	in, out int
	times   float64 // a token
}

func (l linear) params() float64 { return float64(l.in) * float64(l.out) }

// flops of one token's forward product.
func (l linear) flops() float64 { return 2 * l.params() * l.times }

// attention lists the projections of one layer's attention.
func (m Model) attention() []linear {
	if m.KVHeads > 0 {
		return []linear{
			{"qkv", attentionIn, m.Dim, (m.Heads + 2*m.KVHeads) * m.ValueDim, 1},
			{"o", attentionOut, m.Heads * m.ValueDim, m.Dim, 1},
		}
	}
	q := []linear{{"q", attentionUp, m.Dim, m.Heads * m.KeyDim(), 1}}
	if m.QRank > 0 {
		q = []linear{{"q_a", attentionIn, m.Dim, m.QRank, 1}, {"q_b", attentionUp, m.QRank, m.Heads * m.KeyDim(), 1}}
	}
	return append(q,
		linear{"kv_a", attentionIn, m.Dim, m.KVRank + m.RopeDim, 1},
		linear{"kv_b", attentionUp, m.KVRank, m.Heads * (m.NopeDim + m.ValueDim), 1},
		linear{"o", attentionOut, m.Heads * m.ValueDim, m.Dim, 1},
	)
}

// swiGLU lists the two products of a gated network as they are run, gate and up in one.
func (m Model) swiGLU(name string, p part, inter int, times float64) []linear {
	return []linear{{name + "_gate_up", p, m.Dim, 2 * inter, times}, {name + "_down", p, inter, m.Dim, times}}
}

func (m Model) denseLayer() []linear {
	return append(m.attention(), m.swiGLU("ffn", denseFFN, m.DenseInter, 1)...)
}

func (m Model) moeLayer() []linear {
	all := append(m.attention(), linear{"router", routerGate, m.Dim, m.Experts, 1})
	if m.SharedExperts > 0 {
		all = append(all, m.swiGLU("shared", sharedFFN, m.SharedExperts*m.ExpertInter, 1)...)
	}
	return append(all, m.swiGLU("experts", routedFFN, m.ExpertInter, float64(m.TopK))...)
}

func (m Model) head() []linear { return []linear{{"head", headOut, m.Dim, m.Vocab, 1}} }

// mtp is one more Mixture-of-Experts layer, the projection that joins two hidden states, and the head once more.
func (m Model) mtp() []linear {
	if m.MTPLayers == 0 {
		return nil
	}
	return append(append(m.moeLayer(), linear{"mtp_join", mtpJoin, 2 * m.Dim, m.Dim, 1}), m.head()...)
}

// mainMoE is the number of layers with experts without the MTP module's.
func (m Model) mainMoE() int { return m.Layers - m.DenseLayers }

// keys is the width of a head's query and key.
func (m Model) keys() int {
	if m.KVHeads > 0 {
		return m.ValueDim
	}
	return m.KeyDim()
}

// Counts are what a token of the model costs, in parameters and FLOPs. Source: 2 FLOPs a parameter and token; scores and values
// 2·S·heads·(key + value dimension), half of it where the mask is causal.
type Counts struct {
	Total, Active float64 // parameters, embeddings included; the MTP module left out
	Matmul        float64 // parameters that a token is multiplied with: Active without the look-up
	Routed        float64 // FLOPs of a forward pass through the routed experts, MTP left out
	Other         float64 // through all other products
	MTP           float64 // through the MTP module without its attention; 0 without one
	Attention     float64 // scores and values, causal, of all layers but the MTP module's
}

// Count counts for sequences of seq tokens.
func (m Model) Count(seq int) Counts {
	var c Counts
	norms := func(layer bool) float64 {
		n := 0
		if layer {
			n = 2 * m.Dim
			if m.KVHeads == 0 {
				n += m.QRank + m.KVRank
			}
		}
		return float64(n)
	}
	layer := func(list []linear, n int) {
		for _, l := range list {
			held := l.params()
			if l.part == routedFFN {
				c.Routed += float64(n) * l.flops()
				held *= float64(m.Experts)
			} else {
				c.Other += float64(n) * l.flops()
			}
			c.Total += float64(n) * held
			c.Active += float64(n) * l.params() * l.times
			c.Matmul += float64(n) * l.params() * l.times
		}
		c.Total, c.Active = c.Total+float64(n)*norms(true), c.Active+float64(n)*norms(true)
	}
	layer(m.denseLayer(), m.DenseLayers)
	layer(m.moeLayer(), m.mainMoE())
	embedding := float64(m.Vocab) * float64(m.Dim)
	c.Other += 2 * embedding
	c.Matmul += embedding
	c.Total, c.Active = c.Total+2*embedding+float64(m.Dim), c.Active+2*embedding+float64(m.Dim)
	c.Attention = float64(m.Layers) * m.attentionFLOPs(seq)
	for _, l := range m.mtp() {
		c.MTP += l.flops()
	}
	return c
}

// attentionFLOPs of one token's causal scores and values in one layer.
func (m Model) attentionFLOPs(seq int) float64 {
	return float64(seq) * float64(m.Heads) * float64(m.keys()+m.ValueDim)
}

// TrainFLOPs is what training counts for a token: three times the forward pass, without recomputation. Megatron counts causal scores and the
// MTP module; TorchTitan all scores and no MTP.
func (m Model) TrainFLOPs(seq int, causal bool) float64 {
	c := m.Count(seq)
	forward := 2*c.Matmul + c.MTP
	attention := c.Attention
	if m.MTPLayers > 0 {
		attention += m.attentionFLOPs(seq)
	}
	if !causal {
		attention *= 2
	}
	return 3 * (forward + attention)
}

// RowBytes is what one copy of a token takes on the wire: BF16, or MXFP8 codes with a scale a block of 32.
func (m Model) RowBytes(wire string) float64 {
	if wire == "mxfp8" {
		return float64(m.Dim) + float64(m.Dim)/32
	}
	return 2 * float64(m.Dim)
}

// ModelByName returns a flavor of the engine, with one MTP module if asked, or a published model of the data files.
func ModelByName(name string, mtp bool) (Model, error) {
	if c, err := moe.FlavorByName(name); err == nil {
		if mtp {
			c.MTPLayers = 1
		}
		return Model{Name: name, Config: c}, nil
	}
	var known []string
	for _, f := range moe.Flavors() {
		known = append(known, f.Name)
	}
	for _, p := range data().models {
		if p.Name == name {
			return p.model(mtp), nil
		}
		known = append(known, p.Name)
	}
	return Model{}, oneOf("model", name, known)
}

// published is a model in data/models.json: a flavor with fewer layers, or a shape of its own.
type publishedModel struct {
	Name    string `json:"name"`
	Flavor  string `json:"flavor,omitempty"` // that the other fields change
	Source  string `json:"source"`
	Layers  int    `json:"layers,omitempty"`
	Dense   *int   `json:"dense_layers,omitempty"`
	Dim     int    `json:"dim,omitempty"`
	Heads   int    `json:"heads,omitempty"`
	KVHeads int    `json:"kv_heads,omitempty"`
	HeadDim int    `json:"head_dim,omitempty"`
	Experts int    `json:"experts,omitempty"`
	TopK    int    `json:"top_k,omitempty"`
	Inter   int    `json:"expert_inter,omitempty"`
	Shared  *int   `json:"shared_experts,omitempty"`
	Vocab   int    `json:"vocab,omitempty"`
	Groups  int    `json:"groups,omitempty"` // of experts, all of which a token may visit
}

func (p publishedModel) model(mtp bool) Model {
	c, err := moe.FlavorByName(p.Flavor)
	if err != nil {
		panic(fmt.Sprintf("projection: data/models.json: %s: %v", p.Name, err))
	}
	for _, f := range []struct {
		to    *int
		value int
	}{{&c.Layers, p.Layers}, {&c.Dim, p.Dim}, {&c.Heads, p.Heads}, {&c.Experts, p.Experts}, {&c.TopK, p.TopK}, {&c.ExpertInter, p.Inter}, {&c.Vocab, p.Vocab}} {
		if f.value > 0 {
			*f.to = f.value
		}
	}
	if p.Dense != nil {
		c.DenseLayers = *p.Dense
	}
	if p.Shared != nil {
		c.SharedExperts = *p.Shared
	}
	if p.Groups > 0 {
		c.Groups, c.TopKGroups = p.Groups, p.Groups
	}
	if p.KVHeads > 0 {
		c.QRank, c.KVRank, c.NopeDim, c.RopeDim, c.ValueDim = 0, 0, 0, 0, p.HeadDim
	}
	if mtp {
		c.MTPLayers = 1
	}
	return Model{Name: p.Name, Config: c, KVHeads: p.KVHeads}
}
