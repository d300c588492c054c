package reference

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Config describes a model. The tagged fields are those of config.json; ReadConfig sets the others
// by the family.
type Config struct {
	Family string `json:"model_type"`
	Vocab  int    `json:"vocab_size"`
	Hidden int    `json:"hidden_size"`
	Layers int    `json:"num_hidden_layers"`
	Tied   bool   `json:"tie_word_embeddings"`

	Eps       float64 `json:"rms_norm_eps"`
	LatentEps float64 `json:"-"`

	Heads         int  `json:"num_attention_heads"`
	KVHeads       int  `json:"num_key_value_heads"`
	HeadDim       int  `json:"head_dim"` // of queries and keys
	NopeDim       int  `json:"qk_nope_head_dim"`
	RopeDim       int  `json:"qk_rope_head_dim"` // the part that is rotated
	ValueDim      int  `json:"v_head_dim"`
	QRank         int  `json:"q_lora_rank"`  // 0: queries have no latent
	KVRank        int  `json:"kv_lora_rank"` // 0: attention is grouped, not latent
	QKNorm        bool `json:"use_qk_norm"`
	AttentionBias bool `json:"attention_bias"` // of q, k and v, or the latents
	OutputBias    bool `json:"-"`
	Interleaved   bool `json:"rope_interleave"` // a rotated pair is two neighbours
	RopeFP32      bool `json:"-"`               // the rotation is in FP32
	UseWindow     bool `json:"use_sliding_window"`
	Window        int  `json:"sliding_window"` // 0: none
	Rope          Rope `json:"-"`

	DenseInter    int      `json:"intermediate_size"`
	ExpertInter   int      `json:"moe_intermediate_size"`
	DenseLayers   int      `json:"first_k_dense_replace"`
	SparseStep    int      `json:"decoder_sparse_step"`
	MLPOnly       []int    `json:"mlp_only_layers"`
	MLPBias       bool     `json:"mlp_bias"`
	SharedExperts int      `json:"n_shared_experts"`
	MLPTypes      []string `json:"mlp_layer_types"`          // of each layer, dense or sparse; it counts before the others
	MTPLayers     int      `json:"num_nextn_predict_layers"` // set it to 0 if the weights lack them

	Experts       int     `json:"n_routed_experts"`
	QwenExperts   int     `json:"num_experts"`
	LocalExperts  int     `json:"num_local_experts"`
	TopK          int     `json:"num_experts_per_tok"`
	Groups        int     `json:"n_group"`
	TopKGroups    int     `json:"topk_group"`
	TopKMethod    string  `json:"topk_method"`
	GroupMax      bool    `json:"-"` // a group's score is its largest, not the sum of two
	Softmax       bool    `json:"-"` // scores are a softmax, not a sigmoid
	NormTopK      bool    `json:"norm_topk_prob"`
	SelectionBias bool    `json:"-"`
	RouterFP32    bool    `json:"-"` // casts its input and weight
	RouteScale    float64 `json:"routed_scaling_factor"`
	BalanceWeight float64 `json:"router_aux_loss_coef"`

	IndexHeads       int      `json:"index_n_heads"` // of the indexer of sparse attention
	IndexDim         int      `json:"index_head_dim"`
	IndexTopK        int      `json:"index_topk"`             // 0: attention is dense
	IndexerTypes     []string `json:"indexer_types"`          // full, or shared: the choice of the layer before
	IndexPattern     string   `json:"index_topk_pattern"`     // the same as a letter for each layer, F or S
	IndexEvery       int      `json:"index_topk_freq"`        // the same by a rule: one layer in this many is full
	IndexFirst       int      `json:"index_skip_topk_offset"` // and the first ones
	IndexInterleaved bool     `json:"-"`
	IndexPairs       *bool    `json:"indexer_rope_interleave"`

	// Of DeepSeek-V4: residual streams, and attention to compressed entries.
	Streams                  int     `json:"-"` // 0: there is one hidden state
	SinkhornSteps            int     `json:"-"`
	HyperEps                 float64 `json:"-"`
	OutputGroups, OutputRank int     `json:"-"`
	Limit                    float64 `json:"-"` // of gate and up; 0: none
	CompressRope             Rope    `json:"-"` // of layers that compress
	attentions               []string
	rates                    map[string]int // tokens of an entry, by the kind of attention
	hash                     []bool         // layers whose experts a table chooses

	UnreadKeys []string `json:"-"` // of config.json, which mean nothing to this package

	Act          string   `json:"hidden_act"`
	MaxPositions int      `json:"max_position_embeddings"`
	Partial      float64  `json:"partial_rotary_factor"`
	Theta        float64  `json:"rope_theta"`
	Scaling      ropeKeys `json:"rope_scaling"`    // of older versions
	Parameters   ropeKeys `json:"rope_parameters"` // of newer ones

	params map[string][]int
}

// Rope says how positions rotate queries and keys.
type Rope struct {
	ropeKeys
	Amplitude  float64 // of the tables
	ScoreScale float64 // of the scores, besides 1/sqrt(HeadDim)
}

// ropeKeys are the parameters of a rotary embedding in config.json.
type ropeKeys struct {
	Type            string  `json:"rope_type"`
	OldType         string  `json:"type"`
	Theta           float64 `json:"rope_theta"`
	Partial         float64 `json:"partial_rotary_factor"`
	Factor          float64 `json:"factor"` // 1: no YaRN
	Original        int     `json:"original_max_position_embeddings"`
	BetaFast        float64 `json:"beta_fast"`
	BetaSlow        float64 `json:"beta_slow"`
	MScale          float64 `json:"mscale"`
	MScaleAllDim    float64 `json:"mscale_all_dim"`
	AttentionFactor float64 `json:"attention_factor"`
	Truncate        *bool   `json:"truncate"`
}

// ReadConfig reads the config.json of a model of one of the families.
func ReadConfig(configJSON []byte) (*Config, error) {
	c := &Config{
		Eps: 1e-6, LatentEps: 1e-6, RouteScale: 1, Groups: 1, TopKGroups: 1, SparseStep: 1, Interleaved: true,
		TopKMethod: "greedy", Act: "silu", Theta: 10000, Partial: 1, Window: 4096, IndexEvery: 1, IndexFirst: 2,
	}
	if err := json.Unmarshal(configJSON, c); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	c.KVHeads = cmp.Or(c.KVHeads, c.Heads)
	switch c.Family {
	case "deepseek_v2":
		c.Softmax = true
		c.GroupMax = true
		c.NormTopK = false
		c.RouterFP32 = true
		c.Interleaved, c.RopeFP32 = true, true
		if c.TopKMethod == "greedy" {
			c.Groups, c.TopKGroups = 1, 1
		}
	case "deepseek_v3", "glm4_moe", "deepseek_v32", "glm_moe_dsa":
		c.SelectionBias, c.RouterFP32 = true, true
		c.IndexInterleaved = c.Family == "glm_moe_dsa"
	case "qwen3_moe":
		c.Softmax, c.QKNorm = true, true
		c.Experts = max(c.QwenExperts, c.LocalExperts)
	case "deepseek_v4":
	default:
		return nil, fmt.Errorf("config.json: model_type is %.60q: expected deepseek_v2, deepseek_v3, deepseek_v32, deepseek_v4, glm_moe_dsa, qwen3_moe or glm4_moe", c.Family)
	}
	if c.latent() {
		c.HeadDim, c.KVHeads = c.NopeDim+c.RopeDim, c.Heads
	} else {
		c.KVRank, c.Interleaved = 0, false
		c.HeadDim = cmp.Or(c.HeadDim, c.Hidden/max(c.Heads, 1))
		c.ValueDim, c.RopeDim = c.HeadDim, c.HeadDim
	}
	var wrong []error
	if c.Family == "deepseek_v4" {
		wrong = c.readV4(configJSON)
	} else {
		wrong = c.readRope()
	}
	c.OutputBias = c.AttentionBias && c.Family != "glm4_moe"
	if !c.UseWindow {
		c.Window = 0
	}
	wrong = slices.Concat(wrong, c.check(), c.readIndexer())
	if len(wrong) > 0 {
		return nil, fmt.Errorf("config.json: %w", errors.Join(wrong...))
	}
	c.params = map[string][]int{}
	c.Modules()
	return c, nil
}

// latent reports whether the family has latent attention.
func (c *Config) latent() bool {
	return strings.HasPrefix(c.Family, "deepseek") && c.Family != "deepseek_v4" || c.Family == "glm_moe_dsa"
}

// readIndexer sets IndexerTypes, and checks the sizes of indexers. Other families than those of
// sparse attention have none.
func (c *Config) readIndexer() (wrong []error) {
	switch c.Family {
	case "deepseek_v32", "glm_moe_dsa":
	case "deepseek_v4":
		return nil
	default:
		c.IndexTopK, c.IndexerTypes = 0, nil
		return nil
	}
	if least := min(c.IndexHeads, c.IndexDim, c.IndexTopK, c.QRank, c.IndexEvery); least < 1 {
		return []error{fmt.Errorf("index_n_heads, index_head_dim, index_topk, q_lora_rank or index_topk_freq is %d: expected 1 or more", least)}
	}
	if c.IndexDim < c.RopeDim || c.IndexHeads*c.IndexDim > 1<<22 {
		wrong = append(wrong, fmt.Errorf("index_head_dim is %d with %d heads: expected at least qk_rope_head_dim, %d", c.IndexDim, c.IndexHeads, c.RopeDim))
	}
	if c.IndexPairs != nil {
		c.IndexInterleaved = *c.IndexPairs
	}
	given := len(c.IndexerTypes)
	letters := map[byte]string{'F': "full", 'S': "shared"}
	for i := 0; c.Family == "glm_moe_dsa" && given == 0 && i < min(c.Layers, 1<<20); i++ {
		kind := "shared"
		if i < len(c.IndexPattern) {
			kind = letters[c.IndexPattern[i]]
		} else if max(i-c.IndexFirst+1, 0)%c.IndexEvery == 0 {
			kind = "full"
		}
		c.IndexerTypes = append(c.IndexerTypes, kind)
	}
	for _, n := range []int{given, len(c.IndexPattern)} {
		if n > 0 && n < c.Layers {
			wrong = append(wrong, fmt.Errorf("indexer_types or index_topk_pattern has %d entries: expected %d", n, c.Layers))
		}
	}
	for i, kind := range c.IndexerTypes {
		if kind != "full" && kind != "shared" || i == 0 && kind == "shared" {
			wrong = append(wrong, fmt.Errorf("indexer_types: layer %d is %.60q: expected full or shared, and the first one full", i, kind))
		}
	}
	return wrong
}

// Shared reports whether a layer uses the choice of keys of the last one before it that has an
// indexer.
func (c *Config) Shared(layer int) bool {
	return layer >= 0 && layer < len(c.IndexerTypes) && c.IndexerTypes[layer] == "shared"
}

// readRope sets Rope. YaRN's defaults are those of transformers.
func (c *Config) readRope() (wrong []error) {
	r := c.Parameters
	if r == (ropeKeys{}) {
		r = c.Scaling
	}
	r.Theta, r.Partial = cmp.Or(r.Theta, c.Theta), cmp.Or(r.Partial, c.Partial)
	if c.Family == "glm4_moe" {
		c.RopeDim = int(float64(c.HeadDim) * r.Partial)
	}
	rope, err := c.ropeOf(r)
	if c.Rope = rope; err != nil {
		wrong = append(wrong, err)
	}
	return wrong
}

// ropeOf returns the rotary embedding of some parameters.
func (c *Config) ropeOf(r ropeKeys) (p Rope, err error) {
	r.Type = cmp.Or(r.Type, r.OldType)
	p = Rope{ropeKeys: r, Amplitude: 1, ScoreScale: 1}
	switch r.Type {
	case "", "default":
		p.Factor = 1
	case "yarn":
		if p.Original < 1 {
			return p, fmt.Errorf("rope_parameters: original_max_position_embeddings is %d: expected 1 or more", p.Original)
		}
		p.Factor = cmp.Or(p.Factor, float64(c.MaxPositions)/float64(p.Original))
		p.BetaFast, p.BetaSlow = cmp.Or(p.BetaFast, 32), cmp.Or(p.BetaSlow, 1)
		p.Amplitude = mscale(p.Factor, 1)
		if p.MScale != 0 && p.MScaleAllDim != 0 {
			p.Amplitude = mscale(p.Factor, p.MScale) / mscale(p.Factor, p.MScaleAllDim)
		}
		p.Amplitude = cmp.Or(p.AttentionFactor, p.Amplitude)
		if c.KVRank > 0 && p.MScaleAllDim != 0 {
			p.ScoreScale = mscale(p.Factor, p.MScaleAllDim) * mscale(p.Factor, p.MScaleAllDim)
		}
	default:
		err = fmt.Errorf("rope_parameters: rope_type is %.60q: expected default or yarn", r.Type)
	}
	return p, err
}

// mscale is YaRN's correction of the temperature for a context that is longer by a factor.
func mscale(factor, weight float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*weight*math.Log(factor) + 1
}

// check returns what is missing, absurd, or does not fit together.
func (c *Config) check() (wrong []error) {
	refuse := func(bad bool, format string, values ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, values...))
		}
	}
	for name, n := range map[string]int{
		"vocab_size": c.Vocab, "hidden_size": c.Hidden, "num_hidden_layers": c.Layers, "num_attention_heads": c.Heads,
		"intermediate_size": c.DenseInter, "moe_intermediate_size": c.ExpertInter, "number of experts": c.Experts,
		"num_experts_per_tok": c.TopK, "n_group": c.Groups, "topk_group": c.TopKGroups, "decoder_sparse_step": c.SparseStep,
		"head dimension": c.HeadDim, "v_head_dim": c.ValueDim, "num_key_value_heads": c.KVHeads,
	} {
		refuse(n < 1 || n > 1<<22, "%s is %d: expected 1 to %d", name, n, 1<<22)
	}
	refuse(c.latent() && c.KVRank < 1, "kv_lora_rank is %d: expected 1 or more", c.KVRank)
	refuse(c.Heads%max(c.KVHeads, 1) != 0, "num_attention_heads %d is no multiple of num_key_value_heads %d", c.Heads, c.KVHeads)
	refuse(c.RopeDim < 0 || c.RopeDim%2 != 0 || c.RopeDim > c.HeadDim, "%d of %d elements of a head are rotated: expected an even number", c.RopeDim, c.HeadDim)
	refuse(c.TopK > c.Experts, "num_experts_per_tok is %d: the model has %d experts", c.TopK, c.Experts)
	refuse(c.Experts%max(c.Groups, 1) != 0, "%d experts do not divide into n_group %d", c.Experts, c.Groups)
	refuse(c.TopKGroups > c.Groups, "topk_group is %d of %d groups", c.TopKGroups, c.Groups)
	refuse(c.Layers*c.Experts > 1<<20 || c.MTPLayers > 16, "%d layers of %d experts, %d mtp_layers: too many", c.Layers, c.Experts, c.MTPLayers)
	refuse(min(c.NopeDim, c.QRank, c.SharedExperts, c.Window, c.DenseLayers, c.MTPLayers) < 0, "a dimension or a count is negative")
	refuse(c.MLPTypes != nil && len(c.MLPTypes) < c.Layers, "mlp_layer_types has %d entries: expected %d", len(c.MLPTypes), c.Layers)
	for _, kind := range c.MLPTypes {
		refuse(kind != "dense" && kind != "sparse", "mlp_layer_types has %.60q: expected dense or sparse", kind)
	}
	refuse(c.Act != "silu", "hidden_act is %.60q: expected silu", c.Act)
	return wrong
}

// Sparse reports whether a layer has experts. Those for further tokens have.
func (c *Config) Sparse(layer int) bool {
	if layer < min(len(c.MLPTypes), c.Layers) {
		return c.MLPTypes[layer] == "sparse"
	}
	return layer >= c.Layers || layer >= c.DenseLayers && (layer+1)%c.SparseStep == 0 && !slices.Contains(c.MLPOnly, layer)
}

// ParamDims returns the dimensions of a parameter or a buffer, and whether the model has it.
func (c *Config) ParamDims(name string) ([]int, bool) {
	dims, ok := c.params[name]
	return dims, ok
}
