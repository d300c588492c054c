package moe

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spmoe/internal/strictjson"
)

// hfFamilies returns the families by model_type.
func hfFamilies() map[string]hfFamily {
	return map[string]hfFamily{"deepseek_v3": &hfDeepSeek{}, "deepseek_v2": &hfDeepSeek{}, "qwen3_moe": &hfQwen3{}, "glm4_moe": &hfGLM4{}}
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
	keys, kind := hfKeys{}, ""
	if err := strictjson.Unmarshal(data, &keys); err != nil {
		return c, nil, err
	}
	families := hfFamilies()
	_ = json.Unmarshal(keys["model_type"], &kind) // what is no text is no family
	h, ok := families[kind]
	if !ok {
		return c, nil, fmt.Errorf("model_type is %.100q: only %s are supported", kind, strings.Join(slices.Sorted(maps.Keys(families)), ", "))
	}
	if notes, err = decodeHF(h, kind, keys); err != nil {
		return c, nil, err
	}
	if err := h.common().supported(); err != nil {
		return c, nil, err
	}
	c, err = h.config()
	return c, notes, err
}

// HFModelType returns the model_type of the family that MarshalHF writes.
func (c Config) HFModelType() string {
	switch {
	case c.KVHeads == 0:
		return "deepseek_v3"
	case c.isQwen3():
		return "qwen3_moe"
	}
	return "glm4_moe"
}

// MarshalHF writes the configuration as a Hugging Face config.json of a DeepSeek-V3 model. With
// grouped-query attention, it is that of a Qwen3-MoE model if the family has all that the model
// has, and of a GLM-4.5 model otherwise.
func (c Config) MarshalHF() ([]byte, error) {
	var h hfFamily
	switch t := c.HFModelType(); t {
	case "deepseek_v3":
		h = c.hfDeepSeek()
	case "qwen3_moe":
		h = c.hfQwen3()
	default:
		if c.OutputBias {
			return nil, fmt.Errorf("model.output_bias: of the library's families, only Qwen3-MoE has it, which lacks other parts of this model: train without it to convert")
		}
		h = c.hfGLM4()
	}
	return json.MarshalIndent(h, "", "  ")
}
