package reference

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Config describes a model, from its config.json.
type Config struct {
	Family                             string // model_type
	Vocab, Hidden, Layers, DenseLayers int
	Heads, KVHeads, HeadDim, RopeDim   int // HeadDim is that of queries and keys; RopeDim of it is rotated
	NopeDim, ValueDim, QRank, KVRank   int // of latent attention: KVRank > 0
	DenseInter, ExpertInter            int
	Experts, TopK, Groups, TopKGroups  int
	SharedExperts, MTPLayers           int // MTPLayers: set it to 0 if the weights lack them
	MLPOnly                            []int
	SparseStep, Window                 int // Window 0: none
	Eps, LatentEps, RouteScale         float64
	Softmax, NormTopK, SelectionBias   bool // Softmax: not sigmoid
	GroupMax                           bool // a group's score is its largest, not the sum of two
	QKNorm, QKVBias, OutputBias, Tied  bool
	LatentBias, MLPBias, RouterFP32    bool // RouterFP32: casts input and weight
	Interleaved, RopeFP32              bool // pairs are neighbours; the rotation is in FP32
	Rope                               Rope
	BalanceWeight                      float64 // of Qwen's loss

	params map[string][]int
}

// Rope says how positions rotate queries and keys. Factor is 1 without YaRN.
type Rope struct {
	Theta, Factor, BetaFast, BetaSlow float64
	Original                          int
	Truncate                          bool
	Amplitude                         float64 // of the tables
	ScoreScale                        float64 // of the scores, besides 1/sqrt(HeadDim)
}

// keys is a config.json. Its methods note what is missing or of another type.
type keys struct {
	values map[string]json.RawMessage
	wrong  []error
}

func get[T any](k *keys, name string, absent *T) T {
	var value T
	raw, ok := k.values[name]
	if ok = ok && string(raw) != "null"; ok {
		if err := json.Unmarshal(raw, &value); err != nil {
			k.wrong = append(k.wrong, fmt.Errorf("%s is %.60s: expected a %T", name, raw, value))
		}
		return value
	}
	if absent == nil {
		k.wrong = append(k.wrong, fmt.Errorf("%s is missing: expected a %T", name, value))
		return value
	}
	return *absent
}

// size returns a positive integer. Absurd sizes are refused, because products of them are allocated.
func (k *keys) size(name string, absent ...int) int {
	var other *int
	if len(absent) > 0 {
		other = &absent[0]
	}
	n := get(k, name, other)
	if _, given := k.values[name]; given && other == nil && (n < 1 || n > 1<<24) {
		k.wrong = append(k.wrong, fmt.Errorf("%s is %d: expected 1 to %d", name, n, 1<<24))
	}
	return min(max(n, 0), 1<<24)
}

func (k *keys) number(name string, absent float64) float64 { return get(k, name, &absent) }
func (k *keys) flag(name string, absent bool) bool         { return get(k, name, &absent) }

// ReadConfig reads the config.json of a model of one of the families.
func ReadConfig(configJSON []byte) (*Config, error) {
	k := &keys{}
	if err := json.Unmarshal(configJSON, &k.values); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	c := &Config{
		Family: get[string](k, "model_type", nil), Vocab: k.size("vocab_size"), Hidden: k.size("hidden_size"),
		Layers: k.size("num_hidden_layers"), Heads: k.size("num_attention_heads"), DenseInter: k.size("intermediate_size"),
		ExpertInter: k.size("moe_intermediate_size"), TopK: k.size("num_experts_per_tok"), Groups: 1, TopKGroups: 1,
		Eps: k.number("rms_norm_eps", 1e-6), LatentEps: 1e-6, RouteScale: k.number("routed_scaling_factor", 1),
		NormTopK: k.flag("norm_topk_prob", false), OutputBias: k.flag("attention_bias", false),
		Tied: k.flag("tie_word_embeddings", false), SparseStep: 1,
	}
	c.KVHeads = k.size("num_key_value_heads", c.Heads)
	switch c.Family {
	case "deepseek_v2", "deepseek_v3":
		c.latent(k)
		c.routed(k)
	case "glm4_moe":
		c.grouped(k)
		c.routed(k)
		c.OutputBias, c.QKNorm = false, k.flag("use_qk_norm", false)
	case "qwen3_moe":
		c.grouped(k)
		c.Softmax, c.QKNorm = true, true
		c.Experts = k.size("num_experts", k.size("num_local_experts", 128))
		c.SparseStep = k.size("decoder_sparse_step", 1)
		c.MLPOnly = get(k, "mlp_only_layers", &[]int{})
		c.BalanceWeight = k.number("router_aux_loss_coef", 0)
		if k.flag("use_sliding_window", false) {
			c.Window = k.size("sliding_window", 4096)
		}
	default:
		k.wrong = append(k.wrong, fmt.Errorf("model_type is %.60q: expected deepseek_v2, deepseek_v3, qwen3_moe or glm4_moe", c.Family))
	}
	c.rope(k)
	if act := get(k, "hidden_act", new("silu")); act != "silu" {
		k.wrong = append(k.wrong, fmt.Errorf("hidden_act is %.60q: expected silu", act))
	}
	if k.wrong = append(k.wrong, c.check()...); len(k.wrong) > 0 {
		return nil, fmt.Errorf("config.json: %w", errors.Join(k.wrong...))
	}
	c.params = map[string][]int{}
	c.Modules()
	return c, nil
}

// latent reads the attention of DeepSeek's models.
func (c *Config) latent(k *keys) {
	c.QRank, c.KVRank = k.size("q_lora_rank", 0), k.size("kv_lora_rank")
	c.NopeDim, c.RopeDim, c.ValueDim = k.size("qk_nope_head_dim"), k.size("qk_rope_head_dim"), k.size("v_head_dim")
	c.HeadDim, c.KVHeads, c.LatentBias = c.NopeDim+c.RopeDim, c.Heads, c.OutputBias
	c.Interleaved = c.Family == "deepseek_v2" || k.flag("rope_interleave", true)
	c.RopeFP32, c.MLPBias = c.Family == "deepseek_v2", k.flag("mlp_bias", false)
}

// grouped reads the attention of the other families.
func (c *Config) grouped(k *keys) {
	c.HeadDim = k.size("head_dim", c.Hidden/max(c.Heads, 1))
	c.ValueDim, c.QKVBias = c.HeadDim, c.OutputBias
	c.RopeDim = c.HeadDim
}

// routed reads the router and the shared experts of DeepSeek's models and GLM's.
func (c *Config) routed(k *keys) {
	c.Experts, c.SharedExperts = k.size("n_routed_experts"), k.size("n_shared_experts", 0)
	c.DenseLayers, c.MTPLayers, c.RouterFP32 = k.size("first_k_dense_replace", 0), k.size("num_nextn_predict_layers", 0), true
	c.Groups, c.TopKGroups, c.SelectionBias = max(k.size("n_group", 1), 1), max(k.size("topk_group", 1), 1), true
	if c.Family == "deepseek_v2" {
		c.Softmax, c.GroupMax, c.SelectionBias, c.NormTopK = true, true, false, false
		if get(k, "topk_method", new("greedy")) == "greedy" {
			c.Groups, c.TopKGroups = 1, 1
		}
	}
}

// rope reads the rotary embedding, as newer versions of transformers write it (rope_parameters) or
// older ones (rope_theta and rope_scaling).
func (c *Config) rope(k *keys) {
	r := &keys{values: map[string]json.RawMessage{}}
	for _, name := range []string{"rope_scaling", "rope_parameters"} {
		for key, value := range get(k, name, &map[string]json.RawMessage{}) {
			r.values[key] = value
		}
	}
	c.Rope = Rope{Theta: r.number("rope_theta", k.number("rope_theta", 10000)), Factor: 1, Amplitude: 1, ScoreScale: 1}
	if partial := r.number("partial_rotary_factor", k.number("partial_rotary_factor", 1)); c.Family == "glm4_moe" {
		c.RopeDim = int(float64(c.HeadDim) * partial)
	}
	switch kind := get(r, "rope_type", new(get(r, "type", new("default")))); kind {
	case "default":
	case "yarn":
		c.Rope.yarn(r, k)
		if all := r.number("mscale_all_dim", 0); all != 0 && c.KVRank > 0 {
			c.Rope.ScoreScale = mscale(c.Rope.Factor, all) * mscale(c.Rope.Factor, all)
		}
	default:
		r.wrong = append(r.wrong, fmt.Errorf("rope_parameters: rope_type is %.60q: expected default or yarn", kind))
	}
	k.wrong = append(k.wrong, r.wrong...)
}

func (p *Rope) yarn(r, k *keys) {
	p.Original = r.size("original_max_position_embeddings")
	p.Factor = r.number("factor", float64(k.size("max_position_embeddings"))/float64(max(p.Original, 1)))
	p.BetaFast, p.BetaSlow = r.number("beta_fast", 32), r.number("beta_slow", 1)
	p.Truncate = r.flag("truncate", true)
	one, all := r.number("mscale", 0), r.number("mscale_all_dim", 0)
	p.Amplitude = mscale(p.Factor, 1)
	if one != 0 && all != 0 {
		p.Amplitude = mscale(p.Factor, one) / mscale(p.Factor, all)
	}
	p.Amplitude = r.number("attention_factor", p.Amplitude)
}

// mscale is YaRN's correction of the temperature for a context longer by a factor.
func mscale(factor, weight float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*weight*math.Log(factor) + 1
}

// check returns what does not fit together.
func (c *Config) check() (wrong []error) {
	refuse := func(bad bool, format string, values ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, values...))
		}
	}
	refuse(c.KVHeads < 1 || c.Heads%max(c.KVHeads, 1) != 0, "num_attention_heads %d is no multiple of num_key_value_heads %d", c.Heads, c.KVHeads)
	refuse(c.RopeDim%2 != 0 || c.RopeDim > c.HeadDim, "%d of %d elements of a head are rotated: expected an even number", c.RopeDim, c.HeadDim)
	refuse(c.TopK > c.Experts, "num_experts_per_tok is %d: the model has %d experts", c.TopK, c.Experts)
	refuse(c.Experts%c.Groups != 0, "%d experts do not divide into n_group %d", c.Experts, c.Groups)
	refuse(c.TopKGroups > c.Groups, "topk_group is %d of %d groups", c.TopKGroups, c.Groups)
	refuse(c.Layers > 4096 || c.MTPLayers > 16 || c.Experts > 1<<16, "%d layers of %d experts, %d MTP layers: too many", c.Layers, c.Experts, c.MTPLayers)
	return wrong
}

// Sparse reports whether a layer has experts. Those for further tokens have.
func (c *Config) Sparse(layer int) bool {
	return layer >= c.Layers || layer >= c.DenseLayers && (layer+1)%max(c.SparseStep, 1) == 0 && !slices.Contains(c.MLPOnly, layer)
}

// ParamDims returns the dimensions of a parameter or a buffer, and whether the model has it.
func (c *Config) ParamDims(name string) ([]int, bool) {
	dims, ok := c.params[name]
	return dims, ok
}
