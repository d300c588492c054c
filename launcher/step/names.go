package step

// Names: wrappers' prefixes are cut, and other programs' names become Hugging Face's.

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// key names a tensor of a rank.
type key struct {
	class Class
	name  string
	Repeat
}

func (k key) String() string { return k.name + k.Suffix() }

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.MicroBatch, other.MicroBatch), cmp.Compare(k.Call, other.Call), cmp.Compare(k.name, other.name))
}

// Suffix returns what Activation takes after a name for this repeat: "@mb2.call1". It is empty for
// the first or only one.
func (r Repeat) Suffix() string {
	if r == (Repeat{}) {
		return ""
	}
	return fmt.Sprintf("@mb%d.call%d", r.MicroBatch, r.Call)
}

var (
	repeated = regexp.MustCompile(`@(?:mb(\d{1,9}))?\.?(?:call(\d{1,9}))?`)
	wrappers = regexp.MustCompile(`\b(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|module)\.`)
	// TorchTitan appends the letters of a tensor's dimensions: w1_EFD.
	dimensionLetters = regexp.MustCompile(`\b(w[123]|expert_bias)_[A-Z]+\b`)
	goldenLayer      = regexp.MustCompile(`^layer(\d+)_`)
)

// topNames are the first parts of names in TorchTitan, in models without a head, and in golden
// folders.
var topNames = map[string]string{
	"layers": "model.layers", "embed_tokens": "model.embed_tokens", "tok_embeddings": "model.embed_tokens", "norm": "model.norm",
	"output": "lm_head", "logits": "lm_head.output",
}

// otherNames holds names of TorchTitan and of golden folders and Hugging Face's, each before those
// that it begins. Source: torchtitan/models/deepseek_v3/state_dict_adapter.py, and moe.py for the
// router's results.
var otherNames = strings.NewReplacer(
	".attention.wq_a.", ".self_attn.q_a_proj.", ".attention.wq_b.", ".self_attn.q_b_proj.", ".attention.wq.", ".self_attn.q_proj.",
	".attention.wkv_a.", ".self_attn.kv_a_proj_with_mqa.", ".attention.wkv_b.", ".self_attn.kv_b_proj.",
	".attention.kv_norm.", ".self_attn.kv_a_layernorm.", ".attention.wk.", ".self_attn.k_proj.", ".attention.wv.", ".self_attn.v_proj.",
	".attention.wo.", ".self_attn.o_proj.", ".attention.", ".self_attn.", ".attention_norm.", ".input_layernorm.",
	".ffn_norm.", ".post_attention_layernorm.", ".feed_forward.w1.", ".mlp.gate_proj.", ".feed_forward.w2.", ".mlp.down_proj.",
	".feed_forward.w3.", ".mlp.up_proj.", ".feed_forward.", ".mlp.", ".moe.experts.w1.", ".mlp.experts.gate_proj.",
	".moe.experts.w2.", ".mlp.experts.down_proj.", ".moe.experts.w3.", ".mlp.experts.up_proj.",
	".moe.shared_experts.w1.", ".mlp.shared_experts.gate_proj.", ".moe.shared_experts.w2.", ".mlp.shared_experts.down_proj.",
	".moe.shared_experts.w3.", ".mlp.shared_experts.up_proj.", ".moe.router.gate.output.", ".mlp.gate.logits.",
	".moe.router.gate.grad_output.", ".mlp.gate.logits.grad.", ".moe.router.gate.", ".mlp.gate.", ".moe.router.", ".mlp.gate.",
	".moe.expert_bias.", ".mlp.gate.e_score_correction_bias.", ".moe.", ".mlp.",
	".golden.attention.", ".self_attn.output.", ".golden.mlp_in.", ".mlp.input.", ".golden.mlp.", ".mlp.output.", ".golden.out.", ".output.",
	".golden.router_logits.", ".mlp.gate.logits.", ".golden.topk_weight.", ".mlp.gate.weights.", ".golden.topk_index.", ".mlp.gate.indices.",
	".golden.gate_0.", ".mlp.gate.logits.", ".golden.gate_1.", ".mlp.gate.weights.", ".golden.gate_2.", ".mlp.gate.indices.",
)

// key returns the name of a tensor in Hugging Face's form, and its repeat.
func (f *Folder) key(class Class, name string) key {
	k := key{class: class}
	if at := repeated.FindStringSubmatchIndex(name); at != nil {
		k.MicroBatch, _ = strconv.Atoi(name[max(at[2], 0):max(at[3], 0)])
		k.Call, _ = strconv.Atoi(name[max(at[4], 0):max(at[5], 0)])
		name = name[:at[0]] + name[at[1]:]
	}
	name = dimensionLetters.ReplaceAllString(wrappers.ReplaceAllString(name, ""), "$1")
	name = goldenLayer.ReplaceAllString(name, "model.layers.$1.golden.")
	first, rest, _ := strings.Cut(name, ".")
	if top, ok := topNames[first]; ok {
		name = top + "." + rest
	}
	if f.Model.KVRank > 0 { // TorchTitan calls this norm so in all kinds of attention
		name = strings.Replace(name, ".attention.q_norm.", ".attention.q_a_layernorm.", 1)
	}
	k.name = strings.Trim(otherNames.Replace("."+name+"."), ".")
	return k
}

// routerPort names what a router returns by its form: integers are indices, a row of chosen experts
// has weights, and one of all experts logits. Versions of libraries order them differently.
func (f *Folder) routerPort(name string, e entry) string {
	path, port, ok := strings.Cut(name, ".mlp.gate.")
	if !ok || len(e.dims) == 0 || !strings.HasPrefix(strings.TrimPrefix(port, "grad_"), "output") {
		return name
	}
	field := map[int]string{f.Model.TopK: "weights", f.Model.Experts: "logits"}[e.dims[len(e.dims)-1]]
	switch {
	case strings.ContainsAny(e.dtype[:1], "IU"):
		field = "indices"
	case field == "":
		return name
	case strings.HasPrefix(port, "grad_"):
		field += ".grad"
	}
	return path + ".mlp.gate." + field
}
