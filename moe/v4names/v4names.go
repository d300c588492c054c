// Package v4names translates the names of DeepSeek-V4's tensors and modules. Released files have
// one set of names, and the modules of transformers another one. Files that transformers saves have
// names of both.
package v4names

import "strings"

// Table rows are beginnings of names: released, and of modules. The first row that fits counts.
// Names end with a dot here, so that a row fits whole parts.
var (
	top = [][2]string{
		{"embed.", "model.embed_tokens."},
		{"embed_tokens.", "model.embed_tokens."},
		{"norm.", "model.norm."},
		{"head.", "lm_head."},
		{"lm_head.", "lm_head."},
		{"hc_head_", "model.hc_head.hc_"},
		{"hc_head.", "model.hc_head."},
		{"rotary_emb.", "model.rotary_emb."},
	}
	inLayer = [][2]string{
		{"attn_norm.", "input_layernorm."},
		{"ffn_norm.", "post_attention_layernorm."},
		{"hc_attn_", "attn_hc."},
		{"hc_ffn_", "ffn_hc."},
		{"hc_head_", "hc_head.hc_"},
		{"ffn.gate.bias.", "mlp.gate.e_score_correction_bias."},
		{"ffn.", "mlp."},
		{"attn.attn_sink.", "self_attn.sinks."},
		{"attn.wq_a.", "self_attn.q_a_proj."},
		{"attn.wq_b.", "self_attn.q_b_proj."},
		{"attn.q_norm.", "self_attn.q_a_norm."},
		{"attn.wkv.", "self_attn.kv_proj."},
		{"attn.kv_norm.", "self_attn.kv_norm."},
		{"attn.norm.", "self_attn.kv_norm."}, // as transformers saves it
		{"attn.wo_a.", "self_attn.o_a_proj."},
		{"attn.wo_b.", "self_attn.o_b_proj."},
		{"attn.indexer.wq_b.", "self_attn.compressor.indexer.q_b_proj."},
		{"attn.indexer.weights_proj.", "self_attn.compressor.indexer.scorer.weights_proj."},
		{"attn.indexer.compressor.", "self_attn.compressor.indexer."},
		{"attn.indexer.", "self_attn.compressor.indexer."},
		{"attn.compressor.", "self_attn.compressor."},
		{"attn.", "self_attn."},
	}
)

// Parts of the names in a compressor and in an expert.
var (
	compressor = [][2]string{
		{".ape.", ".position_bias."},
		{".wkv.", ".kv_proj."},
		{".wgate.", ".gate_proj."},
		{".norm.", ".kv_norm."},
	}
	expert = [][2]string{
		{".w1.", ".gate_proj."},
		{".w3.", ".up_proj."},
		{".w2.", ".down_proj."},
	}
)

// Module returns the modules' name of a tensor or module under any name. A name that is in no set
// stays.
func Module(name string) string {
	plain := strings.TrimPrefix(name, "model.") + "."
	if rest, ok := strings.CutPrefix(plain, "layers."); ok {
		number, rest, _ := strings.Cut(rest, ".")
		rest, _ = translate(inLayer, rest, 0)
		return strings.TrimSuffix("model.layers."+number+"."+rest, ".")
	}
	if known, ok := translate(top, plain, 0); ok {
		return strings.TrimSuffix(known, ".")
	}
	return name
}

// Released returns the released name of a tensor with a module's name.
func Released(name string) string {
	rest, ok := strings.CutPrefix(name+".", "model.layers.")
	if !ok {
		rest, _ = translate(top, name+".", 1)
		return strings.TrimSuffix(rest, ".")
	}
	number, rest, _ := strings.Cut(rest, ".")
	rest, _ = translate(inLayer, rest, 1)
	return strings.TrimSuffix("layers."+number+"."+rest, ".")
}

// translate translates a name from one column of a table to the other one. A name that is not in
// that column stays.
func translate(table [][2]string, name string, from int) (other string, known bool) {
	for _, row := range table {
		rest, ok := strings.CutPrefix(name, row[from])
		if !ok {
			continue
		}
		parts := expert
		if strings.Contains(row[0], ".compressor.") {
			parts = compressor
		}
		rest = "." + rest
		for _, part := range parts {
			if strings.Contains(rest, part[from]) {
				rest = strings.Replace(rest, part[from], part[1-from], 1)
				break
			}
		}
		return row[1-from] + rest[1:], true
	}
	return name, false
}
