package moe

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
)

// inHF returns cfg with the knobs that config.json lacks at their defaults.
func inHF(cfg Config) Config {
	d := base()
	cfg.BiasSpeed, cfg.BalanceAlpha, cfg.MTPWeight = d.BiasSpeed, d.BalanceAlpha, d.MTPWeight
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

func TestUnlikeBase(t *testing.T) {
	c, d := reflect.ValueOf(unlikeBase()), reflect.ValueOf(base())
	for i := range c.NumField() {
		switch name := c.Type().Field(i).Name; name {
		case "BiasSpeed", "BalanceAlpha", "MTPWeight", "ForceBalance":
		default:
			if c.Field(i).Equal(d.Field(i)) {
				t.Errorf("%s has its default value: the round trip would not notice its loss", name)
			}
		}
	}
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
	for name, cfg := range configs {
		data, err := cfg.MarshalHF()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseHF(data)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, data)
		} else if want := inHF(cfg); got != want {
			t.Errorf("%s: came back as\n%+v, want\n%+v", name, got, want)
		}
	}
}

// edited returns tiny's config.json after the changes of edit; a nil value removes a key.
func edited(t testing.TB, edit map[string]any) []byte {
	t.Helper()
	data, err := tiny().MarshalHF()
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	maps.Copy(fields, edit)
	for key, value := range edit {
		if value == nil {
			delete(fields, key)
		}
	}
	if data, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return data
}

type object = map[string]any

func TestParseHFReads(t *testing.T) {
	yarn := YaRN{Factor: 4, OriginalPositions: 16, BetaFast: 32, BetaSlow: 1, MScale: 0.5, MScaleAllDim: 0.25}
	plain := inHF(tiny())
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
		"rope_parameters before rope_scaling": {
			object{"rope_parameters": object{"rope_type": "default", "rope_theta": 5000}, "rope_scaling": object{"type": "yarn", "factor": 4}},
			func(c *Config) { c.RopeTheta = 5000 },
		},
		"default rope_parameters": {
			object{"rope_theta": nil, "rope_parameters": object{"rope_type": "default"}},
			func(c *Config) { c.RopeTheta = 10000 },
		},
		"yarn's defaults": {
			object{"rope_scaling": object{"type": "yarn", "factor": 4}},
			func(c *Config) {
				c.YaRN = YaRN{Factor: 4, OriginalPositions: 64, BetaFast: 32, BetaSlow: 1}
			},
		},
		"null rope_scaling":  {object{"rope_scaling": nil}, func(c *Config) {}},
		"null q_lora_rank":   {object{"q_lora_rank": nil}, func(c *Config) { c.QRank = 0 }},
		"v2 means softmax":   {object{"model_type": "deepseek_v2", "scoring_func": nil}, func(c *Config) { c.ScoreFunc = Softmax }},
		"v3 means sigmoid":   {object{"scoring_func": nil}, func(c *Config) { c.ScoreFunc = Sigmoid }},
		"no groups":          {object{"n_group": nil, "topk_group": nil}, func(c *Config) {}},
		"no shared experts":  {object{"n_shared_experts": nil}, func(c *Config) { c.SharedExperts = 0 }},
		"defaults":           {object{"rms_norm_eps": nil, "routed_scaling_factor": nil, "max_position_embeddings": nil, "hidden_act": nil, "moe_layer_freq": nil}, func(c *Config) { c.RouteScale, c.MaxPositions = 1, 4096 }},
		"greedy in groups":   {object{"topk_method": "greedy", "n_group": 4, "topk_group": 2}, func(c *Config) {}},
		"limited, one group": {object{"topk_method": "group_limited_greedy"}, func(c *Config) {}},
		"unknown keys":       {object{"use_cache": true, "quantization_config": object{"fmt": "e4m3"}}, func(c *Config) {}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseHF(edited(t, c.edit))
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
		"model_type":         {object{"model_type": "llama"}, []string{`model_type is "llama"`, "deepseek_v3 and deepseek_v2"}},
		"no model_type":      {object{"model_type": nil}, []string{`model_type is ""`}},
		"hidden_act":         {object{"hidden_act": "gelu"}, []string{`hidden_act is "gelu"`, "only silu"}},
		"tied embeddings":    {object{"tie_word_embeddings": true}, []string{"tie_word_embeddings is true", "only untied"}},
		"attention_bias":     {object{"attention_bias": true}, []string{"attention_bias is true"}},
		"moe_layer_freq":     {object{"moe_layer_freq": 2}, []string{"moe_layer_freq is 2", "only 1"}},
		"group-limited":      {object{"topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2}, []string{"group_limited_greedy with 4 groups", "noaux_tc"}},
		"topk_method":        {object{"topk_method": "dense"}, []string{`topk_method is "dense"`, "noaux_tc and greedy"}},
		"rope_interleave":    {object{"rope_interleave": false}, []string{"rope_interleave is false"}},
		"no key heads":       {object{"num_key_value_heads": 0}, []string{"num_key_value_heads is 0 with 2 attention heads"}},
		"rope_theta 0":       {object{"rope_theta": 0}, []string{"model.rope_theta is 0: give a number above 1"}},
		"rope_theta -1":      {object{"rope_theta": -1.0}, []string{"model.rope_theta is -1"}},
		"huge rope_theta":    {object{"rope_theta": json.RawMessage("1e999")}, []string{"config.json", "1e999"}},
		"new rope_theta 0":   {object{"rope_parameters": object{"rope_type": "default", "rope_theta": 0}}, []string{"model.rope_theta is 0"}},
		"new rope_theta -5":  {object{"rope_theta": nil, "rope_parameters": object{"rope_theta": -5}}, []string{"model.rope_theta is -5"}},
		"rms_norm_eps":       {object{"rms_norm_eps": 0}, []string{"model.norm_eps is 0: give a positive number"}},
		"route scale":        {object{"routed_scaling_factor": -2.5}, []string{"model.route_scale is -2.5"}},
		"positions":          {object{"max_position_embeddings": 0}, []string{"model.max_positions is 0"}},
		"group 0":            {object{"n_group": 0}, []string{"model.groups is 0"}},
		"yarn positions":     {yarn("original_max_position_embeddings", 0), []string{"model.yarn.original_positions is 0"}},
		"yarn beta_slow":     {yarn("beta_slow", 0), []string{"model.yarn.beta_slow 0"}},
		"grouped-query":      {object{"num_key_value_heads": 1}, []string{"num_key_value_heads is 1 with 2 attention heads"}},
		"rope type":          {object{"rope_scaling": object{"type": "linear", "factor": 4}}, []string{`rope type is "linear"`, "default and yarn"}},
		"new rope type":      {object{"rope_parameters": object{"rope_type": "llama3"}}, []string{`rope type is "llama3"`}},
		"yarn factor":        {object{"rope_scaling": object{"type": "yarn"}}, []string{"yarn", "factor is missing"}},
		"small yarn factor":  {yarn("factor", 0.5), []string{"model.yarn.factor is 0.5"}},
		"attention_factor":   {yarn("attention_factor", 1.2), []string{"attention_factor is 1.2"}},
		"truncate":           {yarn("truncate", false), []string{"truncate is false"}},
		"scoring_func":       {object{"scoring_func": "tanh"}, []string{`model.score_func is "tanh"`}},
		"two mtp layers":     {object{"num_nextn_predict_layers": 2}, []string{"model.mtp_layers is 2"}},
		"missing size":       {object{"hidden_size": nil}, []string{"model.dim is 0"}},
		"absurd size":        {object{"vocab_size": 1 << 60}, []string{"model.vocab is 1152921504606846976"}},
		"number as a string": {object{"hidden_size": "16"}, []string{"config.json", "hidden_size"}},
		"fraction":           {object{"num_hidden_layers": 1.5}, []string{"config.json", "num_hidden_layers"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseHF(edited(t, c.edit))
			contains(t, err, c.words...)
		})
	}
	for _, text := range []string{"", "[]", "{", "null", `"x"`, `{"vocab_size": 1e400}`} {
		if _, err := ParseHF([]byte(text)); err == nil {
			t.Errorf("%q was read without an error", text)
		}
	}
}

// FuzzParseHF feeds anything: whatever is accepted is a valid model whose counts do not overflow
// and whose config.json says the same again.
func FuzzParseHF(f *testing.F) {
	for _, flavor := range Flavors() {
		data, err := flavor.Config.MarshalHF()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add(edited(f, object{"rope_parameters": object{"rope_type": "yarn", "factor": 4, "beta_fast": 2, "mscale": 1}}))
	f.Add(edited(f, object{"n_routed_experts": 1 << 14, "moe_intermediate_size": maxInter, "hidden_size": 1 << 17}))
	f.Add([]byte(`{"model_type": "deepseek_v2", "q_lora_rank": null, "rope_scaling": {}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := ParseHF(data)
		if err != nil {
			return
		}
		if err := cfg.Validate(); err != nil {
			t.Fatalf("accepted, but %v", err)
		}
		if n := cfg.Count(); n.Total <= 0 || n.Active <= 0 || n.Active > n.Total || n.Routed < 0 || n.Replicated <= 0 {
			t.Fatalf("counts overflow: %+v", n)
		}
		again, err := cfg.MarshalHF()
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseHF(again)
		if err != nil {
			t.Fatalf("accepted, but its own config.json is not: %v\n%s", err, again)
		}
		want := cfg
		if !want.YaRN.Enabled() {
			want.YaRN = YaRN{} // a factor of 1 is written as none
		}
		if back != want {
			t.Fatalf("came back as\n%+v, want\n%+v", back, want)
		}
	})
}

// Readers know the rope type by its newer name or by its older one.
func TestMarshalHFNamesRopeTwice(t *testing.T) {
	data, err := with(tiny(), stretched).MarshalHF()
	if err != nil {
		t.Fatal(err)
	}
	var h struct {
		Rope map[string]any `json:"rope_scaling"`
	}
	if err := json.Unmarshal(data, &h); err != nil {
		t.Fatal(err)
	}
	if h.Rope["rope_type"] != "yarn" || h.Rope["type"] != "yarn" {
		t.Errorf("rope_scaling is %v", h.Rope)
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
