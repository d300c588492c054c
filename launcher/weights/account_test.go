package weights

import (
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

// A tensor that the model does not read is refused by its name, unless it is known to be harmless.
func TestAccount(t *testing.T) {
	x := func(name string, dims ...int) safetensors.Tensor {
		n := 1
		for _, d := range dims {
			n *= d
		}
		return safetensors.Tensor{Name: name, DType: safetensors.F32, Shape: dims, Data: make([]byte, 4*n)}
	}
	mtp := []safetensors.Tensor{x("model.layers.3.eh_proj.weight", 64, 128), x("model.layers.3.enorm.weight", 64)}
	own := func(values ...float32) []safetensors.Tensor {
		head := x("model.layers.3.shared_head.head.weight", 1, 2)
		head.Data = f32(values...)
		return append([]safetensors.Tensor{{Name: "lm_head.weight", DType: safetensors.F32, Shape: []int{1, 2}, Data: f32(1, 2)}, head}, mtp...)
	}
	for name, c := range map[string]struct {
		tensors []safetensors.Tensor
		change  map[string]any
		want    string // in the error; empty: there is none
		note    string
	}{
		"bias":              {[]safetensors.Tensor{x("model.layers.0.self_attn.q_a_proj.bias", 32)}, nil, `["model.layers.0.self_attn.q_a_proj.bias"] (1 in all)`, ""},
		"layer 10":          {[]safetensors.Tensor{x("model.layers.9.input_layernorm.weight", 64)}, nil, "model.layers.9.", ""},
		"next layer":        {[]safetensors.Tensor{x("model.layers.3.input_layernorm.weight", 64)}, nil, "model.layers.3.", ""},
		"expert 17":         {[]safetensors.Tensor{x("model.layers.1.mlp.experts.16.up_proj.weight", 32, 64)}, nil, "experts.16.", ""},
		"experts of dense":  {[]safetensors.Tensor{x("model.layers.0.mlp.experts.3.up_proj.weight", 32, 64)}, nil, "model.layers.0.mlp.experts.3.", ""},
		"no biases in v2":   {[]safetensors.Tensor{x("model.layers.1.mlp.gate.e_score_correction_bias", 16)}, map[string]any{"model_type": "deepseek_v2", "norm_topk_prob": false}, "e_score_correction_bias", ""},
		"scales of nothing": {[]safetensors.Tensor{x("model.norm.weight_scale_inv", 1)}, nil, "model.norm.weight_scale_inv", ""},
		"four":              {[]safetensors.Tensor{x("a"), x("b"), x("c"), x("d")}, nil, `["a" "b" "c"] (4 in all)`, ""},
		"frequencies":       {[]safetensors.Tensor{x("model.layers.0.self_attn.rotary_emb.inv_freq", 8)}, nil, "", ""},
		"unused MTP":        {mtp, map[string]any{"num_nextn_predict_layers": 0}, "", "2 tensors of a multi-token prediction module are not used"},
		"shared head":       {own(1, 2), nil, "", ""},
		"MTP's own head":    {own(1, 3), nil, "shared_head.head.weight", ""},
		"missing key":       {nil, map[string]any{"routed_scaling_factor": nil}, "", "lacks routed_scaling_factor 2.5"},
		"unknown key":       {nil, map[string]any{"swiglu_limit": 7}, "swiglu_limit 7", ""},
	} {
		s, err := Open(folder(t, c.change, append(c.tensors, x("model.layers.2.mlp.gate.weight", 16, 64))...))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		if err != nil {
			continue
		}
		if notes := strings.Join(s.Notes(), "\n"); !strings.Contains(notes, c.note) {
			t.Errorf("%s: notes %q, want %q", name, notes, c.note)
		}
		s.Close()
	}
}
