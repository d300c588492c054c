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
		"Nemotron-3-Nano-30B-A3B": `{"model_type":"nemotron_h","hidden_size":2688,"intermediate_size":1856,"vocab_size":131072,"num_hidden_layers":52,
			"hybrid_override_pattern":"MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME","num_attention_heads":32,"num_key_value_heads":2,"head_dim":128,
			"n_routed_experts":128,"num_experts_per_tok":6,"moe_intermediate_size":1856,"moe_shared_expert_intermediate_size":3712,"mlp_hidden_act":"relu2",
			"mamba_num_heads":64,"mamba_head_dim":64,"ssm_state_size":128,"n_groups":8}`,
		"Llama-3-8B": `{"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"vocab_size":128256,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8}`,
		"GPT-OSS-20B": `{"model_type":"gpt_oss","hidden_size":2880,"intermediate_size":2880,"vocab_size":201088,"num_hidden_layers":24,"num_attention_heads":64,
			"num_key_value_heads":8,"head_dim":64,"num_local_experts":32,"num_experts_per_tok":4,"sliding_window":128,"layer_types":["sliding_attention","full_attention"]}`,
		"Qwen3-Next-80B-A3B": `{"model_type":"qwen3_next","hidden_size":2048,"intermediate_size":5120,"vocab_size":151936,"num_hidden_layers":48,"num_attention_heads":16,
			"num_key_value_heads":2,"head_dim":256,"num_experts":512,"num_experts_per_tok":10,"moe_intermediate_size":512,"shared_expert_intermediate_size":512,
			"linear_num_key_heads":16,"linear_num_value_heads":32,"linear_value_head_dim":128,"full_attention_interval":4}`,
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
		`{"hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,"vocab_size":9,"intermediate_size":8,"num_experts":4,"num_experts_per_tok":5}`:                                                                  "5 of 4 experts",
		`{"hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,"vocab_size":9,"intermediate_size":8,"mamba_num_heads":1,"mamba_head_dim":8,"ssm_state_size":8,"num_experts":2,"hybrid_override_pattern":"M-"}`: "hybrid_override_pattern",
	} {
		if _, err := ParseModel("config.json", []byte(text), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", text, err, want)
		}
	}
}

// Whatever a config.json holds, it is an error or a model that can be computed with.
func FuzzParseModel(f *testing.F) {
	f.Add([]byte(`{"hidden_size":64,"num_hidden_layers":3,"num_attention_heads":4,"vocab_size":99,"intermediate_size":64,"num_experts":8,"num_experts_per_tok":2}`))
	f.Add([]byte(`{"text_config":{"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":99,"intermediate_size":64,"mamba_num_heads":2,
		"mamba_head_dim":8,"ssm_state_size":8,"num_experts":4,"hybrid_override_pattern":"M*","moe_latent_size":16}}`))
	f.Add([]byte(`{"hidden_size":64,"num_hidden_layers":4,"num_attention_heads":4,"vocab_size":99,"intermediate_size":64,"num_experts":8,"full_attention_interval":9,
		"linear_num_value_heads":4,"linear_value_head_dim":8,"kv_lora_rank":8,"qk_rope_head_dim":4,"v_head_dim":4,"n_group":3,"topk_group":9}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := ParseModel("fuzz.json", text, true)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fuzz.json: ") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		r := Run{Model: m.Name, Shape: &m, GPU: "B200", GPUs: 1, Precision: "mxfp8", Seq: 128, Batch: 1, MicroBatch: 1, TP: 1, PP: 1, VP: 1, EP: 1,
			Recompute: "selective", Software: "pytorch", Exchange: "standard", Routing: RoundRobin}
		if b, err := Project(r); err == nil && !(b.Tokens > 0 && b.GB > 0) {
			t.Errorf("%+v with %s", b, text)
		}
	})
}
