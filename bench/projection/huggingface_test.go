package projection

import (
	"strings"
	"testing"
)

// A config.json of each kind gives the model that is known by name.
func TestParseModel(t *testing.T) {
	for name, text := range map[string]string{
		"671B": `{"model_type":"deepseek_v3","hidden_size":7168,"intermediate_size":18432,"vocab_size":129280,"num_hidden_layers":61,"first_k_dense_replace":3,
			"num_attention_heads":128,"num_key_value_heads":128,"q_lora_rank":1536,"kv_lora_rank":512,"qk_nope_head_dim":128,"qk_rope_head_dim":64,"v_head_dim":128,
			"n_routed_experts":256,"num_experts_per_tok":8,"moe_intermediate_size":2048,"n_shared_experts":1,"n_group":8,"topk_group":4}`,
		"Llama-3-8B": `{"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"vocab_size":128256,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8}`,
		"GPT-OSS-20B": `{"model_type":"gpt_oss","hidden_size":2880,"intermediate_size":2880,"vocab_size":201088,"num_hidden_layers":24,"num_attention_heads":64,
			"num_key_value_heads":8,"head_dim":64,"num_local_experts":32,"num_experts_per_tok":4,"sliding_window":128,"layer_types":["sliding_attention","full_attention"]}`,
	} {
		m, err := ParseModel("config.json", []byte(text), false)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		named := modelOf(t, name, false)
		_, routed := m.parameters() // others have norms without a name there
		if _, want := named.parameters(); routed != want || m.TrainFLOPs(4096) != named.TrainFLOPs(4096) || m.routedDim() != named.routedDim() {
			t.Errorf("%s: %+v by its file, %+v by its name", name, m, named)
		}
	}
	for text, want := range map[string]string{
		`{`: "unexpected end", `{}`: "hidden_size is 0",
		`{"hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,"vocab_size":9,"intermediate_size":8,"num_experts":4,"num_experts_per_tok":5}`: "5 of 4 experts",
		`{"hidden_size":8,"hybrid_override_pattern":"M*"}`: "Mamba-2",
	} {
		if _, err := ParseModel("config.json", []byte(text), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", text, err, want)
		}
	}
}
