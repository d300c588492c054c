package reference

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"spmoe/moe/v4names"
)

// DeepSeek-V4: its keys in config.json, and the names of its tensors.

// v4Keys are the keys that other families do not have, or have in another form. Released files and
// those that transformers saves differ.
type v4Keys struct {
	Attentions []string       `json:"layer_types"`
	Ratios     []int          `json:"compress_ratios"` // released: 0, 4 or another one for each layer
	Rates      map[string]int `json:"compress_rates"`  // by the kind of attention
	SparseRate int            `json:"compress_rate_csa"`
	HeavyRate  int            `json:"compress_rate_hca"`
	MLPTypes   []string       `json:"mlp_layer_types"`
	HashLayers int            `json:"num_hash_layers"` // released

	Window        int     `json:"sliding_window"`
	Streams       int     `json:"hc_mult"`
	SinkhornSteps int     `json:"hc_sinkhorn_iters"`
	HyperEps      float64 `json:"hc_eps"`
	Limit         float64 `json:"swiglu_limit"`
	RouteScale    float64 `json:"routed_scaling_factor"`
	NormTopK      bool    `json:"norm_topk_prob"`
	ScoreFunc     string  `json:"scoring_func"`
	OutputGroups  int     `json:"o_groups"`
	OutputRank    int     `json:"o_lora_rank"`

	Theta   float64  `json:"compress_rope_theta"`
	RopeDim int      `json:"qk_rope_head_dim"`
	Partial float64  `json:"partial_rotary_factor"`
	Scaling ropeKeys `json:"rope_scaling"` // released: of compressed layers
	Rope    struct {
		ropeKeys
		Main     *ropeKeys `json:"main"`
		Compress *ropeKeys `json:"compress"`
	} `json:"rope_parameters"`
}

// v4Others are keys that say nothing about right and wrong of a step.
const v4Others = "architectures attention_dropout bos_token_id eos_token_id pad_token_id dtype torch_dtype initializer_range " +
	"output_router_logits router_jitter_noise transformers_version use_cache quantization_config expert_dtype auto_map " +
	"topk_method num_experts num_local_experts first_k_dense_replace rope_interleave chunk_size_feed_forward id2label label2id " +
	"is_encoder_decoder output_attentions output_hidden_states problem_type return_dict _name_or_path _attn_implementation_autoset"

// readV4 sets what DeepSeek-V4 has.
func (c *Config) readV4(configJSON []byte) (wrong []error) {
	k := v4Keys{
		HashLayers: 3, Window: 128, Streams: 4, SinkhornSteps: 20, HyperEps: 1e-6, Limit: 10, RouteScale: 1.5, NormTopK: true,
		ScoreFunc: "sqrtsoftplus", Theta: 160000,
	}
	if err := json.Unmarshal(configJSON, &k); err != nil {
		return []error{err}
	}
	c.unreadKeys(configJSON)
	refuse := func(bad bool, format string, values ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, values...))
		}
	}
	refuse(k.ScoreFunc != "sqrtsoftplus", "scoring_func is %.60q: expected sqrtsoftplus", k.ScoreFunc)
	refuse(!k.NormTopK, "norm_topk_prob is false: DeepSeek-V4 divides the weights by their sum")
	refuse(c.KVHeads != 1 || c.SharedExperts != 1 || c.Groups != 1, "num_key_value_heads, n_shared_experts, n_group are %d, %d, %d: expected 1", c.KVHeads, c.SharedExperts, c.Groups)
	refuse(c.AttentionBias || c.MLPBias, "attention_bias or mlp_bias is true: DeepSeek-V4 has no biases")
	for name, n := range map[string]int{
		"hc_mult": k.Streams, "hc_sinkhorn_iters": k.SinkhornSteps, "o_groups": k.OutputGroups, "o_lora_rank": k.OutputRank, "q_lora_rank": c.QRank,
		"sliding_window": k.Window, "index_n_heads": c.IndexHeads, "index_head_dim": c.IndexDim, "index_topk": c.IndexTopK,
	} {
		refuse(n < 1 || n > 1<<16, "%s is %d: expected 1 to %d", name, n, 1<<16)
	}
	refuse(k.Streams > 16, "hc_mult is %d: expected at most 16", k.Streams)
	refuse(c.Heads%max(k.OutputGroups, 1) != 0, "%d heads do not divide into o_groups %d", c.Heads, k.OutputGroups)
	refuse(!(k.Limit > 0), "swiglu_limit is %g: expected a positive number", k.Limit)
	c.Streams = k.Streams
	c.SinkhornSteps = k.SinkhornSteps
	c.HyperEps = k.HyperEps
	c.OutputGroups = k.OutputGroups
	c.OutputRank = k.OutputRank
	c.Limit = k.Limit
	c.RouteScale = k.RouteScale
	c.NormTopK = true
	c.SelectionBias = true
	c.RouterFP32 = false
	c.Window = k.Window
	c.UseWindow = true
	c.Interleaved = true
	c.DenseInter = c.ExpertInter
	c.MLPTypes, c.RopeFP32 = nil, true
	c.readLayers(&k, refuse)
	c.readV4Rope(&k, refuse)
	refuse(c.RopeDim < 2 || c.RopeDim > min(c.HeadDim, c.IndexDim), "%d elements of a head are rotated: expected 2 to head_dim %d and index_head_dim %d", c.RopeDim, c.HeadDim, c.IndexDim)
	return wrong
}

// readLayers sets the kind of attention of each layer, and which ones choose experts by a table.
func (c *Config) readLayers(k *v4Keys, refuse func(bad bool, format string, values ...any)) {
	layers := min(max(c.Layers, 0), 1<<16) // Config.check refuses others
	c.rates = map[string]int{
		sparseAttention: cmp.Or(k.SparseRate, k.Rates[sparseAttention], 4), heavyAttention: cmp.Or(k.HeavyRate, k.Rates[heavyAttention], 128),
	}
	heavy := slices.IndexFunc(k.Ratios, func(ratio int) bool { return ratio != 0 && ratio != c.rates[sparseAttention] })
	if k.Attentions == nil && heavy >= 0 {
		c.rates[heavyAttention] = k.Ratios[heavy]
	}
	kinds := map[int]string{0: slidingAttention, c.rates[sparseAttention]: sparseAttention, c.rates[heavyAttention]: heavyAttention}
	for i := 0; i < len(k.Ratios) && len(k.Attentions) <= i; i++ {
		refuse(kinds[k.Ratios[i]] == "", "compress_ratios has %d: expected 0, %d or %d", k.Ratios[i], c.rates[sparseAttention], c.rates[heavyAttention])
		k.Attentions = append(k.Attentions, kinds[k.Ratios[i]])
	}
	if k.MLPTypes == nil {
		for i := range layers {
			k.MLPTypes = append(k.MLPTypes, map[bool]string{true: "hash_moe", false: "moe"}[i < k.HashLayers])
		}
	}
	refuse(len(k.Attentions) < c.Layers || len(k.MLPTypes) < c.Layers,
		"layer_types or compress_ratios, and mlp_layer_types, name %d and %d layers: expected %d", len(k.Attentions), len(k.MLPTypes), c.Layers)
	c.attentions = k.Attentions[:min(len(k.Attentions), layers)]
	c.hash = make([]bool, layers)
	for i, kind := range c.attentions {
		refuse(kind != slidingAttention && c.rates[kind] == 0, "layer_types has %.60q for layer %d", kind, i)
	}
	for i := range c.hash[:min(len(c.hash), len(k.MLPTypes))] {
		c.hash[i] = k.MLPTypes[i] == "hash_moe"
		refuse(!c.hash[i] && k.MLPTypes[i] != "moe", "mlp_layer_types has %.60q for layer %d: expected hash_moe or moe", k.MLPTypes[i], i)
	}
	for kind, ratio := range c.rates {
		refuse(ratio < 2 || ratio > 1<<16, "the rate of %s is %d: expected 2 or more", kind, ratio)
	}
}

// readV4Rope sets both rotary embeddings: the plain one of sliding layers, and that of compressed
// ones. YaRN of the latter has an amplitude of 1 unless config.json gives another.
func (c *Config) readV4Rope(k *v4Keys, refuse func(bad bool, format string, values ...any)) {
	plain, scaled := ropeKeys{}, k.Rope.ropeKeys
	if k.Rope.Main != nil {
		plain = *k.Rope.Main
	}
	switch {
	case k.Rope.Compress != nil:
		scaled = *k.Rope.Compress
	case scaled == (ropeKeys{}):
		scaled = k.Scaling
	}
	if scaled.Theta = cmp.Or(scaled.Theta, k.Theta); k.Rope.Compress == nil {
		scaled.Theta = k.Theta
	}
	plain.Theta = cmp.Or(plain.Theta, c.Theta)
	scaled.AttentionFactor = cmp.Or(scaled.AttentionFactor, 1)
	c.RopeDim = cmp.Or(k.RopeDim, int(float64(c.HeadDim)*cmp.Or(plain.Partial, k.Partial, 0.125)))
	c.NopeDim = max(c.HeadDim-c.RopeDim, 0)
	for of, keys := range map[*Rope]ropeKeys{&c.Rope: plain, &c.CompressRope: scaled} {
		rope, err := c.ropeOf(keys)
		refuse(err != nil, "%w", err)
		*of = rope
	}
}

// unreadKeys notes the keys of config.json that mean nothing here.
func (c *Config) unreadKeys(configJSON []byte) {
	keys := map[string]json.RawMessage{}
	if json.Unmarshal(configJSON, &keys) != nil {
		return
	}
	for _, of := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[v4Keys]()} {
		for i := range of.NumField() {
			delete(keys, of.Field(i).Tag.Get("json"))
		}
	}
	for _, name := range strings.Fields(v4Others) {
		delete(keys, name)
	}
	c.UnreadKeys = slices.Sorted(maps.Keys(keys))
}

// Attention returns the kind of a layer's attention; "" in other families. Layers for further
// tokens see a window only.
func (c *Config) Attention(layer int) string {
	switch {
	case c.Streams == 0 || layer < 0:
		return ""
	case layer >= len(c.attentions):
		return slidingAttention
	}
	return c.attentions[layer]
}

// Ratio is how many tokens become one entry in a layer; 0: there are none.
func (c *Config) Ratio(layer int) int { return c.rates[c.Attention(layer)] }

// Hash reports whether a table chooses the experts of a layer, by token.
func (c *Config) Hash(layer int) bool { return layer >= 0 && layer < len(c.hash) && c.hash[layer] }

// V4Name returns the name that the module or parameter has in transformers' model. name may be of
// any of three sets: released, saved by transformers, or that one. Layers for further tokens, mtp.0
// and so on, follow the others.
func (c *Config) V4Name(name string) string {
	rest, ok := strings.CutPrefix(name, "mtp.")
	number, rest, whole := strings.Cut(rest, ".")
	if n, err := strconv.Atoi(number); ok && whole && err == nil {
		name = fmt.Sprintf("layers.%d.%s", c.Layers+n, rest)
	}
	return v4names.Module(name)
}
