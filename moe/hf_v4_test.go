package moe

import "testing"

// releasedV4 is a config.json with the keys of released files, which know more layers than there
// are.
const releasedV4 = `{"model_type": "deepseek_v4", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 5, "num_attention_heads": 4,
	"num_key_value_heads": 1, "head_dim": 32, "qk_rope_head_dim": 8, "q_lora_rank": 24, "o_groups": 2, "o_lora_rank": 12, "sliding_window": 8,
	"compress_ratios": [0, 4, 8, 4, 8, 0, 0], "num_hash_layers": 2, "index_head_dim": 16, "index_n_heads": 8, "index_topk": 3,
	"hc_eps": 1e-6, "hc_mult": 4, "hc_sinkhorn_iters": 20, "swiglu_limit": 1.0, "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc",
	"norm_topk_prob": true, "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3, "moe_intermediate_size": 16,
	"routed_scaling_factor": 1.5, "rms_norm_eps": 1e-6, "max_position_embeddings": 256, "rope_theta": 10000, "compress_rope_theta": 160000,
	"num_nextn_predict_layers": 1, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1}}`

// A released config.json says what the saved one of the same model says.
func TestReleasedV4(t *testing.T) {
	c, notes, err := ParseHF([]byte(releasedV4))
	if err != nil {
		t.Fatal(err)
	}
	if c.Attention != "sliding, csa, hca" || c.CSARate != 4 || c.HCARate != 8 || c.HashLayers != 2 || c.NopeDim != 24 || c.CompressTheta != 160000 || c.YaRN.Factor != 4 {
		t.Errorf("read as %+v", c)
	}
	if c.MTPLayers != 0 || len(notes) != 2 {
		t.Errorf("%d layers predict further ahead, and the notes are %q", c.MTPLayers, notes)
	}
	saved, err := c.MarshalHF()
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]object{"saved": {"compress_ratios": nil, "num_hash_layers": nil}, "both": {}} {
		if again, _, err := ParseHF(editedText(t, string(saved), edit)); err != nil || again != c {
			t.Errorf("%s: %v, read as\n%+v, want\n%+v", name, err, again, c)
		}
	}
}

func TestParseV4Refuses(t *testing.T) {
	saved := func(kinds ...string) object {
		return object{"layer_types": kinds, "compress_rates": object{hfAttention[compressedSparse]: 4}}
	}
	for name, c := range map[string]struct {
		edit  object
		words []string
	}{
		"two rates":      {object{"compress_ratios": []int{0, 8, 16, 4, 8}}, []string{"compress_ratios has 16 for layer 2", "has 8"}},
		"few layers":     {object{"compress_ratios": []int{0, 4}}, []string{"num_hidden_layers, 5"}},
		"kinds disagree": {saved("sliding_attention", "sliding_attention"), []string{"compress_ratios has 4 for layer 1", "sliding_attention", "remove one"}},
		"kind":           {saved("full_attention"), []string{`layer_types has "full_attention"`, "sliding_attention"}},
		"hash layers":    {object{"mlp_layer_types": []string{hfHash, hfMoE, hfMoE, hfMoE, hfMoE}}, []string{"num_hash_layers is 2", "1 of hash_moe"}},
		"late hash":      {object{"mlp_layer_types": []string{hfMoE, hfHash}}, []string{`mlp_layer_types has "hash_moe" for layer 1`}},
		"heads of keys":  {object{"num_key_value_heads": 4}, []string{"num_key_value_heads is 4", "share one"}},
		"biases":         {object{"attention_bias": true}, []string{"attention_bias is true"}},
		"topk_method":    {object{"topk_method": "greedy"}, []string{"greedy", "noaux_tc"}},
		"two bases":      {object{"rope_parameters": object{"main": object{"rope_theta": 1e4}, "compress": object{"rope_theta": 4e4}}}, []string{"compress_rope_theta is 160000", "40000"}},
		"one rope":       {object{"rope_parameters": object{"main": object{"rope_theta": 1e4}}}, []string{"lacks main or compress"}},
		"amplitude":      {object{"rope_scaling": object{"type": "yarn", "factor": 4, "attention_factor": 1.2}}, []string{"attention_factor is 1.2"}},
		"main with YaRN": {object{"rope_parameters": object{"main": object{"rope_type": "yarn"}, "compress": object{}}}, []string{"rope_parameters.main", "yarn"}},
		"unknown key":    {object{"engram": 3}, []string{"engram 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := ParseHF(editedText(t, releasedV4, c.edit))
			contains(t, err, c.words...)
		})
	}
	for _, edit := range []func(*Config){func(c *Config) { c.SwiGLULimit = 3 }, func(c *Config) { likeV4(c); c.ResidualStreams = 0 }} {
		if _, err := with(tiny(), edit).MarshalHF(); err == nil {
			t.Error("a model with a part of DeepSeek-V4 was written")
		}
	}
}
