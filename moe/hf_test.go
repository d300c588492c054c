package moe

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
)

// inHF returns cfg with the knobs that config.json lacks at their defaults. A Qwen3-MoE model has
// no selection bias.
func inHF(cfg Config) Config {
	d := base()
	if cfg.MTPWeight = d.MTPWeight; cfg.KVHeads > 0 {
		cfg.BalanceAlpha = d.BalanceAlpha
	}
	if cfg.HFModelType() != "qwen3_moe" {
		cfg.BiasSpeed = d.BiasSpeed
	}
	return cfg
}

// unlikeBase is a config no field of which has its default value, but for those that config.json
// lacks.
func unlikeBase() Config {
	c := Config{
		Vocab: 40, Dim: 16, Layers: 3, DenseLayers: 2, DenseInter: 24,
		Heads: 2, QRank: 10, KVRank: 12, NopeDim: 6, RopeDim: 4, ValueDim: 8,
		Experts: 8, TopK: 3, ExpertInter: 14, SharedExperts: 2, Groups: 4, TopKGroups: 2,
		ScoreFunc: Softmax, RouteScale: 1.5, MTPLayers: 1, NormEps: 1e-5, MaxPositions: 77, RopeTheta: 50000,
		YaRN: YaRN{Factor: 4, OriginalPositions: 16, BetaFast: 30, BetaSlow: 2, MScale: 0.7, MScaleAllDim: 0.9},
	}
	return inHF(c)
}

func TestHFRoundTrip(t *testing.T) {
	configs := map[string]Config{
		"unlike base": unlikeBase(), "tiny": tiny(),
		"yarn without mscale": with(tiny(), func(c *Config) { stretched(c); c.YaRN.MScale, c.YaRN.MScaleAllDim = 0, 0 }),
		"no shared experts":   with(tiny(), func(c *Config) { c.SharedExperts = 0 }),
	}
	for _, f := range Flavors() {
		configs[f.Name] = f.Config
	}
	for name, edit := range sharingKeys {
		configs["GLM-4.5, "+name] = with(unlikeBase(), func(c *Config) { edit(c); c.OutputBias = false })
		configs["Qwen3, "+name] = with(tiny(), func(c *Config) {
			edit(c)
			c.NopeDim, c.RopeDim, c.QKNorm, c.OutputBias, c.MTPLayers = 0, c.KeyDim(), true, c.QKVBias, 0
			c.ScoreFunc, c.RouteScale, c.SharedExperts, c.BiasSpeed = Softmax, 1, 0, 0
		})
	}
	configs["V3.2, halves"] = with(unlikeBase(), func(c *Config) { choosing(c); c.IndexRope, c.IndexerTypes, c.IndexWeight = halfPairs, "", 1 })
	configs["GLM-5, shared"] = with(unlikeBase(), func(c *Config) { choosing(c); c.IndexerTypes, c.IndexWeight = "FFSFS"[:c.Layers], 1 })
	for name, cfg := range configs {
		if family, _, ok := strings.Cut(name, ", "); ok {
			if want := map[string]string{"GLM-4.5": "glm4_moe", "Qwen3": "qwen3_moe", "V3.2": "deepseek_v32", "GLM-5": "glm_moe_dsa"}[family]; cfg.HFModelType() != want {
				t.Errorf("%s is %s", name, cfg.HFModelType())
			}
		}
		data, err := cfg.MarshalHF()
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := ParseHF(data)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, data)
		} else if want := inHF(cfg); got != want {
			t.Errorf("%s: came back as\n%+v, want\n%+v", name, got, want)
		}
	}
}

// edited returns tiny's config.json after the changes of edit; a nil value removes a key.
func edited(t testing.TB, edit object) []byte {
	t.Helper()
	data, err := tiny().MarshalHF()
	if err != nil {
		t.Fatal(err)
	}
	return editedText(t, string(data), edit)
}

type object = map[string]any

// null is a value that edited does not take for the removal of a key.
var null = json.RawMessage("null")

// A config.json of nothing but its type has the sizes of its class in transformers 5.17, and a note
// names each key. The values are typed from the classes' source.
func TestHFDefaults(t *testing.T) {
	v3 := Config{
		Vocab: 129280, Dim: 7168, Layers: 61, DenseLayers: 3, DenseInter: 18432, Heads: 128, QRank: 1536, KVRank: 512, NopeDim: 128, RopeDim: 64, ValueDim: 128,
		Experts: 256, TopK: 8, ExpertInter: 2048, SharedExperts: 1, Groups: 8, TopKGroups: 4, ScoreFunc: Sigmoid, NormTopK: true, RouteScale: 2.5,
		BiasSpeed: 1e-3, MTPLayers: 1, MTPWeight: 0.3, NormEps: 1e-6, MaxPositions: 4096, RopeTheta: 10000,
	}
	for kind, c := range map[string]struct {
		more string
		keys int
		want Config
	}{
		"deepseek_v3": {``, 26, v3},
		"deepseek_v2": {`, "num_experts_per_tok": 6`, 25, with(v3, func(c *Config) {
			c.Vocab, c.Dim, c.Layers, c.DenseLayers, c.DenseInter, c.Heads, c.MaxPositions = 102400, 4096, 32, 0, 11008, 32, 2048
			c.Experts, c.TopK, c.ExpertInter, c.SharedExperts, c.Groups, c.TopKGroups, c.ScoreFunc, c.NormTopK, c.RouteScale, c.MTPLayers = 64, 6, 1407, 2, 1, 1, Softmax, false, 1, 0
		})},
		"qwen3_moe": {``, 19, with(base(), func(c *Config) {
			c.Vocab, c.Dim, c.Layers, c.DenseInter, c.Heads, c.KVHeads, c.RopeDim, c.ValueDim, c.QKNorm, c.MaxPositions = 151936, 2048, 24, 6144, 32, 4, 64, 64, true, 32768
			c.Experts, c.TopK, c.ExpertInter, c.ScoreFunc, c.NormTopK, c.BiasSpeed = 128, 8, 768, Softmax, false, 0
		})},
		"glm4_moe": {`, "hidden_size": 4608`, 23, with(base(), func(c *Config) { // the class's own 4,096 is no multiple of twice its 96 heads
			c.Vocab, c.Dim, c.Layers, c.DenseLayers, c.DenseInter, c.Heads, c.KVHeads, c.NopeDim, c.RopeDim, c.ValueDim = 151552, 4608, 46, 1, 10944, 96, 8, 24, 24, 48
			c.Experts, c.TopK, c.ExpertInter, c.SharedExperts, c.MTPLayers, c.NormEps, c.MaxPositions = 128, 8, 1408, 1, 1, 1e-5, 131072
		})},
	} {
		got, notes, err := ParseHF(fmt.Appendf(nil, `{"model_type": %q%s}`, kind, c.more))
		if err != nil || got != c.want {
			t.Errorf("%s: %v, read as\n%+v, want\n%+v", kind, err, got, c.want)
		}
		if len(notes) != 1 || strings.Count(notes[0], ",") != c.keys-1 || !strings.Contains(notes[0], "norm_topk_prob "+fmt.Sprint(c.want.NormTopK)) {
			t.Errorf("%s: notes %q, want one of %d keys", kind, notes, c.keys)
		}
	}
	_, notes, err := ParseHF(editedText(t, qwen3Text, object{"router_aux_loss_coef": 0.001, "output_router_logits": false, "some_switch": 0}))
	if err != nil || len(notes) != 1 || !strings.Contains(notes[0], "some_switch") {
		t.Errorf("%v, notes %q", err, notes)
	}
}

func TestParseHFReads(t *testing.T) {
	yarn := YaRN{Factor: 4, OriginalPositions: 16, BetaFast: 32, BetaSlow: 1, MScale: 0.5, MScaleAllDim: 0.25}
	plain := inHF(tiny())
	v2 := object{"model_type": "deepseek_v2", "scoring_func": nil, "topk_method": nil, "norm_topk_prob": nil}
	with2 := func(a, b object) object {
		a = maps.Clone(a)
		maps.Copy(a, b)
		return a
	}
	for name, c := range map[string]struct {
		edit object
		want func(c *Config)
	}{
		"old rope_scaling": {
			object{"rope_theta": 5000, "rope_scaling": object{"type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1, "mscale": 0.5, "mscale_all_dim": 0.25}},
			func(c *Config) { c.RopeTheta, c.YaRN = 5000, yarn },
		},
		"new rope_parameters": {
			object{"rope_theta": nil, "rope_scaling": nil, "rope_parameters": object{"rope_type": "yarn", "rope_theta": 5000, "factor": 4, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1, "mscale": 0.5, "mscale_all_dim": 0.25}},
			func(c *Config) { c.RopeTheta, c.YaRN = 5000, yarn },
		},
		"default rope_parameters": {
			object{"rope_theta": nil, "rope_parameters": object{"rope_type": "default"}},
			func(c *Config) { c.RopeTheta = 10000 },
		},
		"null q_lora_rank":   {object{"q_lora_rank": null}, func(c *Config) { c.QRank = 0 }},
		"v2 means softmax":   {v2, func(c *Config) { c.ScoreFunc, c.NormTopK = Softmax, false }},
		"defaults":           {object{"rms_norm_eps": nil, "max_position_embeddings": nil, "hidden_act": nil, "moe_layer_freq": nil, "rope_theta": nil}, func(c *Config) { c.MaxPositions = 4096 }},
		"v3's own defaults":  {object{"norm_topk_prob": nil, "routed_scaling_factor": nil, "n_shared_experts": nil, "n_group": nil, "topk_group": nil}, func(c *Config) { c.RouteScale, c.Groups, c.TopKGroups = 2.5, 8, 4 }},
		"greedy in groups":   {with2(v2, object{"topk_method": "greedy", "n_group": 4, "topk_group": 2}), func(c *Config) { c.ScoreFunc, c.NormTopK = Softmax, false }},
		"limited, one group": {object{"topk_method": "group_limited_greedy"}, func(c *Config) {}},
		"balance loss":       {object{"aux_loss_alpha": 0.01, "seq_aux": true}, func(c *Config) { c.BalanceAlpha = 0.01 }},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := ParseHF(edited(t, c.edit))
			if err != nil {
				t.Fatal(err)
			}
			if want := with(plain, c.want); got != want {
				t.Errorf("read as\n%+v, want\n%+v", got, want)
			}
		})
	}
}

func TestParseHFRefuses(t *testing.T) {
	yarn := func(key string, value any) object {
		return object{"rope_scaling": object{"type": "yarn", "factor": 4, key: value}}
	}
	for name, c := range map[string]struct {
		edit  object
		words []string
	}{
		"model_type":         {object{"model_type": "llama"}, []string{`model_type is "llama"`, "only deepseek_v2, deepseek_v3, deepseek_v32, deepseek_v4, glm4_moe, glm_moe_dsa, qwen3_moe are supported"}},
		"tied embeddings":    {object{"tie_word_embeddings": true}, []string{"tie_word_embeddings is true", "only untied"}},
		"group-limited":      {object{"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}, []string{"group_limited_greedy with 4 groups", "noaux_tc"}},
		"topk_method":        {object{"topk_method": "dense"}, []string{`topk_method is "dense"`, "noaux_tc and greedy"}},
		"rope_theta 0":       {object{"rope_theta": 0}, []string{"model.rope_theta is 0: give a number above 1"}},
		"new rope_theta -5":  {object{"rope_theta": nil, "rope_parameters": object{"rope_theta": -5}}, []string{"model.rope_theta is -5"}},
		"grouped-query":      {object{"num_key_value_heads": 1}, []string{"num_key_value_heads is 1 with 2 attention heads"}},
		"rope type":          {object{"rope_scaling": object{"type": "linear", "factor": 4}}, []string{`rope type is "linear"`, "default and yarn"}},
		"yarn factor":        {object{"rope_scaling": object{"type": "yarn"}}, []string{"yarn", "factor is missing"}},
		"attention_factor":   {yarn("attention_factor", 1.2), []string{"attention_factor is 1.2"}},
		"scoring_func":       {object{"scoring_func": "tanh"}, []string{`model.score_func is "tanh"`}},
		"unknown key":        {object{"swiglu_limit": 7.0, "use_mla_gate": true}, []string{"swiglu_limit 7, use_mla_gate true", "(2 in all)"}},
		"head_dim":           {object{"head_dim": 64}, []string{"head_dim is 64 with a qk_rope_head_dim of 4"}},
		"null":               {object{"norm_topk_prob": null}, []string{"norm_topk_prob is null", "transformers 5.17"}},
		"two names":          {object{"num_local_experts": 4}, []string{"n_routed_experts is there under two names", "remove one"}},
		"two ropes":          {object{"rope_parameters": object{"rope_type": "default"}, "rope_scaling": object{"type": "yarn", "factor": 4}}, []string{"rope_scaling and rope_parameters differ"}},
		"balance by batch":   {object{"aux_loss_alpha": 0.01, "seq_aux": false}, []string{"aux_loss_alpha is 0.01 with seq_aux false"}},
		"v2 normalizes":      {object{"model_type": "deepseek_v2", "topk_method": nil, "scoring_func": nil}, []string{"norm_topk_prob is true"}},
		"v2 sigmoid":         {object{"model_type": "deepseek_v2", "topk_method": nil, "norm_topk_prob": nil}, []string{`scoring_func is "sigmoid"`}},
		"number as a string": {object{"hidden_size": "16"}, []string{"config.json", "hidden_size"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := ParseHF(edited(t, c.edit))
			contains(t, err, c.words...)
		})
	}
	for _, text := range []string{"", "[]", "{", "null", `"x"`, `{"vocab_size": 1e400}`} {
		if _, _, err := ParseHF([]byte(text)); err == nil {
			t.Errorf("%q was read without an error", text)
		}
	}
}

// Grouped queries in files as transformers 5.17 writes them, with keys of older versions.
const (
	qwen3Text = `{"model_type": "qwen3_moe", "vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 3, "intermediate_size": 24,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
		"norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [], "hidden_act": "silu", "tie_word_embeddings": false, "attention_bias": false,
		"rms_norm_eps": 1e-6, "max_position_embeddings": 64, "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}, "use_sliding_window": false}`
	glm4Text = `{"model_type": "glm4_moe", "vocab_size": 32, "hidden_size": 16, "num_hidden_layers": 3, "intermediate_size": 24, "first_k_dense_replace": 1,
		"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
		"n_group": 4, "topk_group": 2, "norm_topk_prob": true, "routed_scaling_factor": 2.5, "num_nextn_predict_layers": 1, "hidden_act": "silu", "attention_bias": true, "use_qk_norm": true,
		"rms_norm_eps": 1e-5, "max_position_embeddings": 64, "rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5}}`
)

// editedText returns a config.json after some changes; a nil value removes a key.
func editedText(t testing.TB, text string, edit object) []byte {
	t.Helper()
	fields := object{}
	if err := json.Unmarshal([]byte(text), &fields); err != nil {
		t.Fatal(err)
	}
	for key, value := range edit {
		if fields[key] = value; value == nil {
			delete(fields, key)
		}
	}
	data, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestParseHFGroupedQueries(t *testing.T) {
	shape := func(c *Config) {
		*c = base()
		c.Vocab, c.Dim, c.Layers, c.DenseInter, c.Heads, c.KVHeads, c.MaxPositions = 32, 16, 3, 24, 4, 2, 64
		c.Experts, c.TopK, c.ExpertInter, c.QKNorm = 8, 2, 12, true
	}
	qwen := with(Config{}, func(c *Config) {
		shape(c)
		c.RopeDim, c.ValueDim, c.ScoreFunc, c.BiasSpeed, c.RopeTheta = 6, 6, Softmax, 0, 1e6
	})
	glm := with(Config{}, func(c *Config) {
		shape(c)
		c.NopeDim, c.RopeDim, c.ValueDim, c.QKVBias, c.RouteScale, c.NormEps = 4, 4, 8, true, 2.5, 1e-5
		c.DenseLayers, c.SharedExperts, c.Groups, c.TopKGroups, c.MTPLayers = 1, 1, 4, 2, 1
	})
	yarn := object{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
	for name, c := range map[string]struct {
		text  string
		model Config
		edit  object
		want  func(c *Config)
	}{
		"Qwen3":             {qwen3Text, qwen, nil, func(*Config) {}},
		"older Qwen3":       {qwen3Text, qwen, object{"num_local_experts": nil, "num_experts": 8, "rope_parameters": nil, "rope_theta": 1e6, "rope_scaling": nil}, func(*Config) {}},
		"width by division": {qwen3Text, qwen, object{"head_dim": nil}, func(c *Config) { c.RopeDim, c.ValueDim = 4, 4 }},
		"biases":            {qwen3Text, qwen, object{"attention_bias": true}, func(c *Config) { c.QKVBias, c.OutputBias = true, true }},
		"dense layers":      {qwen3Text, qwen, object{"mlp_only_layers": []int{1, 0}}, func(c *Config) { c.DenseLayers = 2 }},
		"YaRN":              {qwen3Text, qwen, object{"rope_parameters": nil, "rope_theta": 1e6, "rope_scaling": yarn}, func(c *Config) { c.YaRN = YaRN{Factor: 4, OriginalPositions: 16, BetaFast: 32, BetaSlow: 1} }},
		"GLM-4.5":           {glm4Text, glm, nil, func(*Config) {}},
		"default share":     {glm4Text, glm, object{"rope_parameters": object{"rope_theta": 1e4}}, func(*Config) {}},
	} {
		t.Run(name, func(t *testing.T) {
			got, _, err := ParseHF(editedText(t, c.text, c.edit))
			if err != nil {
				t.Fatal(err)
			}
			if want := with(c.model, c.want); got != want {
				t.Errorf("read as\n%+v, want\n%+v", got, want)
			}
		})
	}
	for name, c := range map[string]struct {
		text string
		edit object
		want string
	}{
		"sliding window":  {qwen3Text, object{"use_sliding_window": true}, "use_sliding_window is true"},
		"loss of routers": {qwen3Text, object{"router_aux_loss_coef": 0.001, "output_router_logits": true}, "output_router_logits true"},
		"share":           {glm4Text, object{"rope_parameters": nil, "partial_rotary_factor": 1.5}, "partial_rotary_factor is 1.5"},
		"no share":        {glm4Text, object{"rope_parameters": object{"partial_rotary_factor": 0}}, "partial_rotary_factor is 0"},
		"odd share":       {glm4Text, object{"rope_parameters": object{"partial_rotary_factor": 0.4}}, "model.rope_dim is 3"},
	} {
		if _, _, err := ParseHF(editedText(t, c.text, c.edit)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	if _, err := with(glm, func(c *Config) { c.OutputBias = true }).MarshalHF(); err == nil || !strings.Contains(err.Error(), "model.output_bias") {
		t.Errorf("a bias that no family has: error %v", err)
	}
}

// transformers refuses a whole number where it expects a float.
func TestHFDecimals(t *testing.T) {
	c := with(tiny(), func(c *Config) {
		stretched(c)
		c.RouteScale, c.RopeTheta, c.YaRN.Factor, c.YaRN.BetaFast = 1, 1e4, 40, 32
	})
	data, err := c.MarshalHF()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"routed_scaling_factor": 1.0`, `"rope_theta": 10000.0`, `"factor": 40.0`, `"beta_fast": 32.0`, `"rms_norm_eps": 0.000001`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is not in\n%s", want, data)
		}
	}
}

// GLM-5.2 says by a rule which layers share choices: those of the first 10 are FFFSSSFSSS.
func TestIndexerTypesByRule(t *testing.T) {
	c, _, err := ParseHF([]byte(`{"model_type": "glm_moe_dsa", "index_topk_freq": 4, "index_skip_topk_offset": 3, "index_topk_pattern": null}`))
	if err != nil || c.IndexerTypes[:10] != "FFFSSSFSSS" || strings.Count(c.IndexerTypes, "F") != 21 {
		t.Errorf("%q (%v)", c.IndexerTypes, err)
	}
}
