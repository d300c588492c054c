package moe

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"

	"spmoe/internal/strictjson"
)

// HFModelType returns the model_type of the family that MarshalHF writes.
func (c Config) HFModelType() string {
	switch {
	case c.Attention != "":
		return hfDeepSeek4
	case c.IndexHeads > 0 && c.IndexRope == interleavedPairs:
		return hfGLM5
	case c.IndexHeads > 0:
		return hfDeepSeek32
	case c.KVHeads == 0:
		return hfDeepSeek3
	case c.isQwen3():
		return hfQwen3
	}
	return hfGLM4
}

// isQwen3 reports whether the family has all that the model has.
func (c Config) isQwen3() bool {
	plain := c.ScoreFunc == Softmax && c.RouteScale == 1 && c.Groups == 1 && c.SharedExperts == 0 && c.BiasSpeed == 0
	return c.QKNorm && c.QKVBias == c.OutputBias && c.NopeDim == 0 && c.MTPLayers == 0 && (plain || c.MoELayers() == 0)
}

// MarshalHF writes the configuration as a Hugging Face config.json of a DeepSeek-V3 model. With an
// indexer, it is that of a DeepSeek-V3.2 or GLM-5 model, by its rotary pairs. With grouped-query
// attention, it is that of a Qwen3-MoE model if the family has all that the model has, and of a
// GLM-4.5 model otherwise.
func (c Config) MarshalHF() ([]byte, error) {
	kind := c.HFModelType()
	if err := c.checkV4(); err != nil {
		return nil, err
	}
	h := map[string]any{
		"model_type": kind, "hidden_act": "silu", "tie_word_embeddings": false, "attention_bias": c.QKVBias,
		"vocab_size": c.Vocab, "hidden_size": c.Dim, "num_hidden_layers": c.Layers, "intermediate_size": c.DenseInter,
		"num_attention_heads": c.Heads, "num_key_value_heads": cmp.Or(c.KVHeads, c.Heads),
		"num_experts_per_tok": c.TopK, "moe_intermediate_size": c.ExpertInter, "norm_topk_prob": c.NormTopK,
		"rms_norm_eps": decimal(c.NormEps), "max_position_embeddings": c.MaxPositions,
		"rope_theta": decimal(c.RopeTheta), "rope_scaling": nil,
	}
	rope := ropeParameters{Type: "default"}
	if y := c.YaRN; y.Enabled() {
		rope = ropeParameters{
			Type: "yarn", OldType: "yarn", Factor: decimal(y.Factor), OriginalPositions: &y.OriginalPositions,
			BetaFast: (*decimal)(&y.BetaFast), BetaSlow: (*decimal)(&y.BetaSlow), MScale: (*decimal)(&y.MScale), MScaleAllDim: (*decimal)(&y.MScaleAllDim),
		}
		h["rope_scaling"] = rope
	}
	if kind != hfDeepSeek3 { // newer versions of the library need rope_parameters
		h["head_dim"], rope.Theta = c.KeyDim(), (*decimal)(&c.RopeTheta)
	}
	if c.IndexHeads > 0 {
		h["head_dim"], h["rope_parameters"] = c.RopeDim, rope
	}
	if kind != hfQwen3 {
		maps.Copy(h, map[string]any{
			"first_k_dense_replace": c.DenseLayers, "n_routed_experts": c.Experts, "n_shared_experts": c.SharedExperts,
			"n_group": c.Groups, "topk_group": c.TopKGroups, "routed_scaling_factor": decimal(c.RouteScale),
			"num_nextn_predict_layers": c.MTPLayers,
		})
	}
	switch kind {
	case hfDeepSeek4:
		for _, key := range []string{"first_k_dense_replace", "n_group", "topk_group"} {
			delete(h, key)
		}
		c.addV4(h)
	case hfQwen3:
		c.addQwen3(h)
		h["rope_parameters"] = rope
	case hfGLM4:
		if c.OutputBias {
			return nil, fmt.Errorf("model.output_bias: of the library's families, only Qwen3-MoE has it, which lacks other parts of this model: train without it to convert")
		}
		share := c.addGLM4(h)
		rope.Partial = &share
		h["rope_parameters"] = rope
	default:
		c.addDeepSeek(h)
		if err := c.addIndexer(h, kind); err != nil {
			return nil, err
		}
	}
	return json.MarshalIndent(h, "", "  ")
}

func (c Config) addQwen3(h map[string]any) {
	dense := make([]int, c.DenseLayers)
	for i := range dense {
		dense[i] = i
	}
	maps.Copy(h, map[string]any{
		"architectures":     []string{"Qwen3MoeForCausalLM"},
		"num_local_experts": c.Experts, "num_experts": c.Experts,
		"decoder_sparse_step": 1, "mlp_only_layers": dense, "use_sliding_window": false,
	})
}

// addGLM4 returns the share of a head that is rotated.
func (c Config) addGLM4(h map[string]any) decimal {
	share := float64(c.RopeDim) / float64(c.KeyDim())
	if int(float64(c.KeyDim())*share) < c.RopeDim { // the library truncates it
		share = math.Nextafter(share, 1)
	}
	maps.Copy(h, map[string]any{
		"architectures": []string{"Glm4MoeForCausalLM"},
		"use_qk_norm":   c.QKNorm, "partial_rotary_factor": decimal(share),
	})
	if c.ScoreFunc != Sigmoid { // the library has sigmoid only
		h["scoring_func"] = c.ScoreFunc
	}
	return decimal(share)
}

func (c Config) addDeepSeek(h map[string]any) {
	maps.Copy(h, map[string]any{
		"architectures": []string{"DeepseekV3ForCausalLM"}, "moe_layer_freq": 1,
		"q_lora_rank": nil, "kv_lora_rank": c.KVRank, "qk_nope_head_dim": c.NopeDim, "qk_rope_head_dim": c.RopeDim, "v_head_dim": c.ValueDim,
		"scoring_func": c.ScoreFunc, "topk_method": "noaux_tc", "rope_interleave": true,
	})
	if c.QRank > 0 {
		h["q_lora_rank"] = c.QRank
	}
	if c.BalanceAlpha > 0 {
		h["aux_loss_alpha"], h["seq_aux"] = decimal(c.BalanceAlpha), true
	}
}

// ParseHF reads a Hugging Face config.json of a model of one of the families, as newer or older
// versions of the library write it. Settings that the format lacks (bias speed, loss weights) get
// this package's defaults. The notes say what was assumed or ignored.
func ParseHF(data []byte) (c Config, notes []string, err error) {
	if c, notes, err = parseHF(data); err != nil {
		return Config{}, nil, fmt.Errorf("config.json: %w", err)
	}
	return c, notes, c.Validate()
}

func parseHF(data []byte) (c Config, notes []string, err error) {
	keys, h := hfKeys{}, hfConfig{}
	if err := strictjson.Unmarshal(data, &keys); err != nil {
		return c, nil, err
	}
	if notes, err = h.decode(keys); err != nil {
		return c, nil, err
	}
	if err := h.supported(); err != nil {
		return c, nil, err
	}
	c = base()
	h.apply(&c)
	switch h.ModelType {
	case hfDeepSeek4:
		var more []string
		more, err = h.applyV4(&c)
		notes = append(notes, more...)
	case hfQwen3:
		err = h.applyQwen3(&c)
	case hfGLM4:
		err = h.applyHeads(&c, float64(h.partial(0.5)))
		c.QKNorm, c.QKVBias = h.QKNorm, h.AttentionBias
	default:
		if err = h.applyDeepSeek(&c); err == nil && (h.ModelType == hfDeepSeek32 || h.ModelType == hfGLM5) {
			err = h.applyIndexer(&c)
		}
	}
	return c, notes, err
}
