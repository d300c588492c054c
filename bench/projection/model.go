package projection

// The costs of a model, counted from the linear layers of its configuration: FLOPs per token and
// bytes of the exchange.

import (
	"errors"
	"fmt"
	"slices"

	"spmoe/internal/strictjson"
	"spmoe/moe"
)

// Model is a model to project: a configuration of this engine, or a variant of one, as in some
// published rows.
type Model struct {
	Name string
	moe.Config
	Variant
}

// Variant describes what a model has that none of this engine's has.
type Variant struct {
	// rate of the attention kernel over that for 192/128 heads; 0: the same
	Rate float64 `json:"attention_rate,omitempty"`
	// keys that a query of a windowed layer reads, and the share of such layers
	Window   int     `json:"window,omitempty"`
	Windowed float64 `json:"windowed,omitempty"`
	// ranks of low-rank queries and outputs, these in groups of heads; 0: full rank
	QueryRank    int `json:"query_rank,omitempty"`
	OutputRank   int `json:"output_rank,omitempty"`
	OutputGroups int `json:"output_groups,omitempty"`
	// heads of the indexer of sparse attention; 0: none
	SparseHeads int `json:"index_heads,omitempty"`
	// residual streams of hyper-connections; 0: one
	Streams int `json:"streams,omitempty"`
	// an expert has two matrices, without a gate
	Ungated bool `json:"ungated,omitempty"`
	// width of the rows that routed experts read and write; 0: the hidden size
	Latent   int    `json:"latent,omitempty"`
	MTPDepth int    `json:"mtp_depth,omitempty"` // MTP modules; 0: one
	Mamba    *Mamba `json:"mamba,omitempty"`
	Delta    *Delta `json:"delta,omitempty"`
}

// flops returns the forward FLOPs per token in one layer.
func flops(l moe.LinearLayer) float64 { return 2 * float64(l.Params()) * float64(l.Met) }

// linears returns the linear layers of the given parts, in that order.
func (m Model) linears(mtp bool, parts ...moe.Part) (all []moe.LinearLayer) {
	known := m.Linears()
	all = make([]moe.LinearLayer, 0, len(known))
	for _, part := range parts {
		if part == moe.Projections && m.QueryRank > 0 {
			all = append(all, m.lowRank()...)
			continue
		}
		for _, l := range known {
			if l.Part == part && l.Ahead == mtp {
				all = append(all, l)
			}
		}
	}
	return all
}

// lowRank lists the projections of grouped-query attention in one layer with low-rank queries and
// outputs, and with keys and values in one.
func (m Model) lowRank() []moe.LinearLayer {
	heads, keysAndValues := m.Heads*m.ValueDim, 2*m.KVHeads*m.ValueDim
	linear := func(name string, in, out int) moe.LinearLayer {
		return moe.LinearLayer{Name: name, Part: moe.Projections, In: in, Out: out, Layers: m.Layers, Held: 1, Met: 1}
	}
	expansion := linear("q_b", m.QueryRank, heads)
	expansion.Expands = true
	return []moe.LinearLayer{
		linear("q_a", m.Dim, m.QueryRank), expansion, linear("kv", m.Dim, keysAndValues),
		linear("o_a", heads/m.Variant.OutputGroups, m.Variant.OutputRank), linear("o_b", m.Variant.OutputRank, m.Dim),
	}
}

// parameters returns the parameters without the MTP module: those of the routed experts, and the
// others with embedding and head.
func (m Model) parameters() (dense, routed float64) {
	for _, b := range m.Blocks() {
		for _, l := range b.Linears {
			params := float64(b.Layers) * float64(l.Params()) * float64(l.Held)
			if l.Part == moe.Routed {
				routed += params
			} else {
				dense += params
			}
		}
	}
	return dense + 2*float64(m.Vocab)*float64(m.Dim) + m.norms(), routed
}

// norms returns the parameters of all norms and biases, without those of the MTP module.
func (m Model) norms() (params float64) {
	for _, part := range m.Modules(0) {
		if part.Part == moe.Norms && !part.Ahead {
			params += float64(part.Params)
		}
	}
	return params
}

// attentionFLOPs returns the FLOPs per token of causal scores and values in one layer.
func (m Model) attentionFLOPs(seq int) float64 {
	keys := float64(seq) / 2 // that a query reads on average
	keys = (1-m.Windowed)*keys + m.Windowed*min(keys, float64(m.Variant.Window))
	return 2 * keys * float64(m.Heads) * float64(m.KeyDim()+m.ValueDim)
}

// TrainFLOPs returns the training FLOPs per token as Megatron counts them: three times the forward
// pass without recomputation, causal scores, and the MTP module.
func (m Model) TrainFLOPs(seq int) (sum float64) {
	for _, b := range slices.Concat(m.Blocks(), m.mtp()) {
		for _, l := range b.Linears {
			sum += 3 * float64(b.Layers) * flops(l)
		}
		if b.Scores {
			sum += 3 * float64(b.Layers) * m.attentionFLOPs(seq)
		}
	}
	return sum + 6*float64(m.Vocab)*float64(m.Dim)
}

// ModelByName returns a flavor of the engine, with one MTP module if mtp, or a published model of
// the data files.
func ModelByName(name string, mtp bool) (Model, error) {
	if c, err := moe.FlavorByName(name); err == nil {
		if c.IndexHeads > 0 {
			return Model{}, fmt.Errorf("model %s has an indexer (model.index_heads), and no published run tells what attention over chosen keys costs: give a model without", name)
		}
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

// ParseModel reads a model in the form of an entry of data/models.json.
func ParseModel(file string, text []byte, mtp bool) (Model, error) {
	var p publishedModel
	err := strictjson.Unmarshal(text, &p)
	if err == nil && p.Name == "" {
		err = errors.New("field name is missing")
	}
	if err == nil {
		_, err = moe.FlavorByName(p.Flavor)
	}
	if err != nil {
		return Model{}, fmt.Errorf("%s: %w: give the form of an entry of bench/projection/data/models.json", file, err)
	}
	m := p.model(mtp)
	return m, m.Config.Validate()
}

// publishedModel is a model in data/models.json: a flavor with fewer layers, or a shape of its own.
type publishedModel struct {
	Name    string `json:"name"`
	Flavor  string `json:"flavor,omitempty"` // to which the other fields are changes
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
	Groups  int    `json:"groups,omitempty"` // expert groups; a token may visit all
	Inner   int    `json:"dense_inter,omitempty"`
	Variant
}

func (p publishedModel) model(mtp bool) Model {
	c, err := moe.FlavorByName(p.Flavor)
	if err != nil {
		panic(fmt.Sprintf("projection: data/models.json: %s: %v", p.Name, err))
	}
	for _, f := range []struct {
		to    *int
		value int
	}{{&c.Layers, p.Layers}, {&c.Dim, p.Dim}, {&c.Heads, p.Heads}, {&c.Experts, p.Experts}, {&c.TopK, p.TopK}, {&c.ExpertInter, p.Inter}, {&c.DenseInter, p.Inner}, {&c.Vocab, p.Vocab}} {
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
		c.KVHeads = p.KVHeads
		c.QRank = 0
		c.KVRank = 0
		c.NopeDim = 0
		c.RopeDim = p.HeadDim
		c.ValueDim = p.HeadDim
	}
	if mtp {
		c.MTPLayers = 1
	}
	return Model{Name: p.Name, Config: c, Variant: p.Variant}
}
