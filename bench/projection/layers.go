package projection

// A model as a list of blocks of equal layers. A layer is a list of products, with or without
// scores, and the elements that its other kernels read and write.

import (
	"slices"
	"strings"

	"spmoe/moe"
)

// Block is a number of layers that cost the same.
type Block struct {
	Layers  int
	Parts   int // sub-layers, each with a norm and a residual sum
	Linears []moe.LinearLayer
	Scores  bool    // has attention
	Inter   float64 // width of the activation functions that a token meets
	Scan    float64 // elements per token that a scan or a linear attention reads and writes forward
}

// Mamba is a Mamba-2 layer. Source: transformers, configuration_nemotron_h.py.
type Mamba struct {
	Layers  int `json:"layers"`
	Heads   int `json:"heads"`
	HeadDim int `json:"head_dim"`
	State   int `json:"state"`
	Groups  int `json:"groups"`
	Experts int `json:"expert_layers"` // layers of the model that have experts alone
}

// scanChunk is the number of tokens that a scan turns into products.
const scanChunk = 128

func (s Mamba) linears(dim, layers int) []moe.LinearLayer {
	inner := s.Heads * s.HeadDim
	return []moe.LinearLayer{
		matrix("mamba_in", dim, 2*inner+2*s.Groups*s.State+s.Heads, layers), matrix("mamba_out", inner, dim, layers),
	}
}

// elements counts a convolution (read and write), the chunk's state and output (two reads, one
// write), states between chunks (written and read twice, FP32), and the gated norm.
func (s Mamba) elements() float64 {
	inner, wide := float64(s.Heads*s.HeadDim), float64(s.Heads*s.HeadDim+2*s.Groups*s.State)
	return 2*wide + 2*wide + inner + 8*inner*float64(s.State)/scanChunk + 3*inner
}

// Delta is a gated delta rule in place of attention. Source: transformers,
// configuration_qwen3_next.py.
type Delta struct {
	Layers   int `json:"layers"`
	KeyHeads int `json:"key_heads"`
	Heads    int `json:"value_heads"`
	HeadDim  int `json:"head_dim"`
}

func (d Delta) linears(dim, layers int) []moe.LinearLayer {
	keys, values := d.KeyHeads*d.HeadDim, d.Heads*d.HeadDim
	return []moe.LinearLayer{matrix("delta_in", dim, 2*keys+2*values+2*d.Heads, layers), matrix("delta_out", values, dim, layers)}
}

// elements counts a convolution, five passes over queries, keys and values in chunks of 64, states
// between chunks (written and read twice, FP32), and the gated norm.
func (d Delta) elements() float64 {
	wide, values := float64((2*d.KeyHeads+d.Heads)*d.HeadDim), float64(d.Heads*d.HeadDim)
	return 2*wide + 5*wide + 8*values*float64(d.HeadDim)/64 + 3*values
}

func matrix(name string, in, out, layers int) moe.LinearLayer {
	return moe.LinearLayer{Name: name, Part: moe.Projections, In: in, Out: out, Layers: layers, Held: 1, Met: 1}
}

// Blocks returns the layers of the model without the MTP module's.
func (m Model) Blocks() []Block {
	attention, experts, width := m.linears(false, moe.Projections), m.experts(false), m.expertWidth()
	if s := m.Mamba; s != nil {
		return present(
			Block{s.Layers, 1, s.linears(m.Dim, s.Layers), false, 0, s.elements()},
			Block{s.Experts, 1, experts, false, width, 0},
			Block{m.Layers - s.Layers - s.Experts, 1, attention, true, 0, 0},
		)
	}
	sparse := m.Layers - m.DenseLayers
	blocks := []Block{{m.DenseLayers, 2, slices.Concat(attention, m.linears(false, moe.Dense)), true, float64(m.DenseInter), 0}}
	if d := m.Delta; d != nil {
		blocks = append(blocks, Block{d.Layers, 2, slices.Concat(d.linears(m.Dim, d.Layers), experts), false, width, d.elements()})
		sparse -= d.Layers
	}
	return present(append(blocks, Block{sparse, 2, slices.Concat(attention, experts), true, width, 0})...)
}

func present(blocks ...Block) []Block {
	return slices.DeleteFunc(blocks, func(b Block) bool { return b.Layers <= 0 })
}

// mtp returns the MTP module: a projection that joins two hidden states, one more layer with
// experts, and the head. There are none without it.
func (m Model) mtp() []Block {
	if m.MTPLayers == 0 {
		return nil
	}
	linears := slices.Concat(m.linears(true, moe.Projections), m.experts(true), m.linears(true, moe.Joint, moe.Head))
	return []Block{{max(1, m.MTPDepth), 2, linears, true, m.expertWidth(), 0}}
}

func (b Block) hasExperts() bool {
	return slices.ContainsFunc(b.Linears, func(l moe.LinearLayer) bool { return l.Part == moe.Routed })
}

// experts returns the products of a layer's router, shared and routed experts.
func (m Model) experts(mtp bool) []moe.LinearLayer {
	all := m.linears(mtp, moe.Router, moe.Shared, moe.Routed)
	for i, l := range all {
		up := !strings.HasSuffix(l.Name, "_down")
		if m.Ungated && up && l.Part != moe.Router {
			all[i].Out /= 2
		}
		if m.Latent > 0 && l.Part == moe.Routed {
			if up {
				all[i].In = m.Latent
			} else {
				all[i].Out = m.Latent
			}
		}
	}
	if m.Latent > 0 {
		all = append(all, matrix("latent_down", m.Dim, m.Latent, 1), matrix("latent_up", m.Latent, m.Dim, 1))
	}
	return all
}

func (m Model) expertWidth() float64 { return float64((m.TopK + m.SharedExperts) * m.ExpertInter) }

// routedDim is the width of a row that goes to an expert.
func (m Model) routedDim() int {
	if m.Latent > 0 {
		return m.Latent
	}
	return m.Dim
}

// mainMoE returns the number of layers with experts, without the MTP module's.
func (m Model) mainMoE() (n int) {
	for _, b := range m.Blocks() {
		if b.hasExperts() {
			n += b.Layers
		}
	}
	return n
}

// cutTo returns the model with another number of layers: dense ones first and at least one with
// experts, other kinds in proportion.
func (m Model) cutTo(layers int) Model {
	part := func(n int) int { return (2*n*layers + m.Layers) / (2 * m.Layers) }
	if s := m.Mamba; s != nil {
		c := *s
		c.Layers, c.Experts = part(s.Layers), part(s.Experts)
		m.Mamba = &c
	}
	if d := m.Delta; d != nil {
		c := *d
		c.Layers = part(d.Layers)
		m.Delta = &c
	}
	if m.DenseLayers < m.Layers {
		m.DenseLayers = min(m.DenseLayers, layers-1)
	} else {
		m.DenseLayers = layers
	}
	m.Layers = layers
	return m
}
