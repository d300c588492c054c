package projection

// Models by a Hugging Face config.json: what a projection needs of any architecture, not only of
// those that this engine trains.

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"spmoe/moe"
)

// hfModel holds the fields under the names that the library transformers uses.
type hfModel struct {
	Text  json.RawMessage `json:"text_config"` // of a model that also sees or hears
	Type  string          `json:"model_type"`
	Dim   int             `json:"hidden_size"`
	Inter int             `json:"intermediate_size"`
	Vocab int             `json:"vocab_size"`

	Layers  int `json:"num_hidden_layers"`
	Dense   int `json:"first_k_dense_replace"`
	Heads   int `json:"num_attention_heads"`
	KVHeads int `json:"num_key_value_heads"`
	HeadDim int `json:"head_dim"`
	QRank   int `json:"q_lora_rank"`
	KVRank  int `json:"kv_lora_rank"`
	Nope    int `json:"qk_nope_head_dim"`
	Rope    int `json:"qk_rope_head_dim"`
	Value   int `json:"v_head_dim"`
	Top     int `json:"index_topk"` // keys that a query reads
	Index   int `json:"index_n_heads"`

	Window     int      `json:"sliding_window"`
	Types      []string `json:"layer_types"`
	UsesWindow *bool    `json:"use_sliding_window"`

	Experts      int    `json:"n_routed_experts"`
	NumExperts   int    `json:"num_experts"`
	LocalExperts int    `json:"num_local_experts"`
	TopK         int    `json:"num_experts_per_tok"`
	ExpertInter  int    `json:"moe_intermediate_size"`
	Shared       int    `json:"n_shared_experts"`
	SharedInter  int    `json:"shared_expert_intermediate_size"`
	Latent       int    `json:"moe_latent_size"`
	Groups       int    `json:"n_group"`
	TopKGroups   int    `json:"topk_group"`
	MTP          int    `json:"num_nextn_predict_layers"`
	Act          string `json:"mlp_hidden_act"`

	Pattern     string `json:"hybrid_override_pattern"` // of Mamba-2
	DeltaValues int    `json:"linear_num_value_heads"`
}

// ParseModel reads a model from a Hugging Face config.json.
func ParseModel(name string, text []byte, mtp bool) (Model, error) {
	var h hfModel
	err := json.Unmarshal(text, &h)
	if err == nil && h.Text != nil {
		err = json.Unmarshal(h.Text, &h)
	}
	if err != nil {
		return Model{}, fmt.Errorf("%s: %w", name, err)
	}
	if h.Type == "deepseek_v4" {
		return Model{}, fmt.Errorf("%s: a configuration of DeepSeek-V4, whose indexer and hash layers have other fields: give the name DeepSeek-V4-Flash or DeepSeek-V4-Pro, with --layers if it has fewer", name)
	}
	if h.Pattern != "" || h.DeltaValues > 0 {
		return Model{}, fmt.Errorf("%s: a model with layers of Mamba-2 or Gated DeltaNet: give one of the names that --model lists, with --layers if it has fewer", name)
	}
	h.Experts = cmp.Or(h.Experts, h.NumExperts, h.LocalExperts)
	if h.Experts > 0 {
		h.ExpertInter = cmp.Or(h.ExpertInter, h.Inter)
		h.TopK = max(h.TopK, 1)
	} else {
		h.Dense = h.Layers
	}
	h.KVHeads = cmp.Or(h.KVHeads, h.Heads)
	h.HeadDim = cmp.Or(h.HeadDim, h.Dim/max(h.Heads, 1))
	if err := h.check(); err != nil {
		return Model{}, fmt.Errorf("%s: %w", name, err)
	}
	m := Model{Name: name, Config: h.config(), Variant: h.variant()}
	if mtp {
		m.MTPLayers, m.MTPDepth = 1, max(1, h.MTP)
	}
	return m, nil
}

func (h hfModel) check() error {
	const most = 1 << 22
	for _, f := range []struct {
		name  string
		value int
		needs bool
	}{
		{"hidden_size", h.Dim, true}, {"num_hidden_layers", h.Layers, true}, {"num_attention_heads", h.Heads, true},
		{"vocab_size", h.Vocab, true},
		{"head_dim", h.HeadDim, true}, {"intermediate_size", h.Inter, h.Dense > 0}, {"moe_intermediate_size", h.ExpertInter, h.Experts > 0},
		{"num_experts", h.Experts, false}, {"num_key_value_heads", h.KVHeads, true}, {"kv_lora_rank", h.KVRank, false},
		{"q_lora_rank", h.QRank, false},
		{"qk_nope_head_dim", h.Nope, false}, {"qk_rope_head_dim", h.Rope, h.KVRank > 0}, {"v_head_dim", h.Value, h.KVRank > 0},
		{"n_shared_experts", h.Shared, false}, {"sliding_window", h.Window, false}, {"index_topk", h.Top, false}, {"index_n_heads", h.Index, false}, {"moe_latent_size", h.Latent, false},
		{"n_group", h.Groups, false}, {"topk_group", h.TopKGroups, false}, {"first_k_dense_replace", h.Dense, false},
	} {
		if f.value < 0 || f.value > most || f.needs && f.value == 0 {
			return fmt.Errorf("%s is %d: give 1 to %d", f.name, f.value, most)
		}
	}
	if h.Layers > 1000 || h.Experts > 1<<14 || h.TopK > 256 || h.Dense > h.Layers || h.Experts > 0 && h.TopK > h.Experts {
		return fmt.Errorf("%d layers, %d of them dense, and %d of %d experts per token: give at most 1000 layers and 256 of 16384 experts",
			h.Layers, h.Dense, h.TopK, h.Experts)
	}
	return nil
}

func (h hfModel) config() moe.Config {
	c := moe.Config{
		Dim: h.Dim, Vocab: h.Vocab, Layers: h.Layers, DenseLayers: h.Dense, Heads: h.Heads, DenseInter: h.Inter,
		Experts: max(h.Experts, 1), TopK: max(h.TopK, 1), ExpertInter: max(h.ExpertInter, 1), SharedExperts: h.Shared,
		Groups: max(h.Groups, 1), TopKGroups: max(h.TopKGroups, 1),
	}
	if h.SharedInter > 0 {
		c.SharedExperts = max(1, h.SharedInter/c.ExpertInter)
	}
	if h.KVRank > 0 {
		c.QRank, c.KVRank, c.NopeDim, c.RopeDim, c.ValueDim = h.QRank, h.KVRank, h.Nope, h.Rope, h.Value
	} else {
		c.KVHeads, c.RopeDim, c.ValueDim = h.KVHeads, h.HeadDim, h.HeadDim
	}
	return c
}

func (h hfModel) variant() (v Variant) {
	if h.KVRank == 0 {
		v.Rate = 1.2 // heads of 128 against 192/128
	}
	v.Latent, v.Ungated = h.Latent, h.Act == "relu2"
	if h.Window > 0 && (h.UsesWindow == nil || *h.UsesWindow) {
		v.Window, v.Windowed = h.Window, 1
		if n := len(h.Types); n > 0 {
			v.Windowed = float64(strings.Count(strings.Join(h.Types, " "), "sliding")) / float64(n)
		}
	}
	if h.Top > 0 {
		v.Window, v.Windowed, v.IndexHeads = h.Top, 1, max(h.Index, 1)
	}
	return v
}
