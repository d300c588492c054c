package moe

import "testing"

// FuzzParseHF: any text is refused, or describes a valid model whose counts do not overflow and
// whose own config.json describes the same model.
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
	f.Add([]byte(qwen3Text))
	f.Add([]byte(glm4Text))
	f.Add([]byte(`{"model_type": "deepseek_v2", "q_lora_rank": null, "rope_scaling": {}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, _, err := ParseHF(data)
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
		back, _, err := ParseHF(again)
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
