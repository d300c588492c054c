package step

// Names: wrappers' prefixes are cut, and TorchTitan's names become Hugging Face's.

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
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

// compare orders keys: repeats, then names by their numbers ("layers.2" before "layers.10").
func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.MicroBatch, other.MicroBatch), cmp.Compare(k.Call, other.Call), compareNames(k.name, other.name))
}

func compareNames(a, b string) int {
	byNumber := func(a, b string) int {
		i, err1 := strconv.Atoi(a)
		j, err2 := strconv.Atoi(b)
		if err1 != nil || err2 != nil {
			return cmp.Compare(a, b)
		}
		return cmp.Compare(i, j)
	}
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), byNumber)
}

var (
	repeated = regexp.MustCompile(`@(?:mb(\d{1,9}))?\.?(?:call(\d{1,9}))?`)
	wrappers = regexp.MustCompile(`\b(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module|module)\.`)
	// TorchTitan appends the letters of a tensor's dimensions: w1_EFD.
	dimensionLetters = regexp.MustCompile(`\b(w[123]|expert_bias)_[A-Z]+\b`)
)

// titan holds names of TorchTitan's modules and Hugging Face's, each before those that it begins.
// Source: torchtitan/models/deepseek_v3/state_dict_adapter.py, and moe.py for the router's results.
var titan = strings.NewReplacer(
	".attention.wq_a.", ".self_attn.q_a_proj.", ".attention.wq_b.", ".self_attn.q_b_proj.", ".attention.wq.", ".self_attn.q_proj.",
	".attention.wkv_a.", ".self_attn.kv_a_proj_with_mqa.", ".attention.wkv_b.", ".self_attn.kv_b_proj.",
	".attention.kv_norm.", ".self_attn.kv_a_layernorm.", ".attention.wk.", ".self_attn.k_proj.", ".attention.wv.", ".self_attn.v_proj.",
	".attention.wo.", ".self_attn.o_proj.", ".attention.", ".self_attn.", ".attention_norm.", ".input_layernorm.",
	".ffn_norm.", ".post_attention_layernorm.", ".feed_forward.w1.", ".mlp.gate_proj.", ".feed_forward.w2.", ".mlp.down_proj.",
	".feed_forward.w3.", ".mlp.up_proj.", ".feed_forward.", ".mlp.", ".moe.experts.w1.", ".mlp.experts.gate_proj.",
	".moe.experts.w2.", ".mlp.experts.down_proj.", ".moe.experts.w3.", ".mlp.experts.up_proj.",
	".moe.shared_experts.w1.", ".mlp.shared_experts.gate_proj.", ".moe.shared_experts.w2.", ".mlp.shared_experts.down_proj.",
	".moe.shared_experts.w3.", ".mlp.shared_experts.up_proj.", ".moe.router.gate.output.", ".mlp.gate.logits.",
	".moe.router.gate.grad_output.", ".mlp.gate.logits.grad.", ".moe.router.gate.", ".mlp.gate.", ".moe.router.output.1.", ".mlp.gate.indices.",
	".moe.router.output.", ".mlp.gate.weights.", ".moe.router.grad_output.", ".mlp.gate.weights.grad.", ".moe.router.", ".mlp.gate.",
	".moe.expert_bias.", ".mlp.gate.e_score_correction_bias.", ".moe.", ".mlp.",
)

// topNames are the first parts of names in TorchTitan and in models without a head.
var topNames = map[string]string{
	"layers": "model.layers", "embed_tokens": "model.embed_tokens", "tok_embeddings": "model.embed_tokens", "norm": "model.norm", "output": "lm_head",
}

// canonical returns the name of a tensor in Hugging Face's form, and its repeat. latent says that
// the model has latent attention: TorchTitan calls the norm of the queries' latent q_norm.
func canonical(name string, latent bool) (string, Repeat) {
	var r Repeat
	if at := repeated.FindStringSubmatchIndex(name); at != nil {
		r.MicroBatch, _ = strconv.Atoi(name[max(at[2], 0):max(at[3], 0)])
		r.Call, _ = strconv.Atoi(name[max(at[4], 0):max(at[5], 0)])
		name = name[:at[0]] + name[at[1]:]
	}
	name = dimensionLetters.ReplaceAllString(wrappers.ReplaceAllString(name, ""), "$1")
	first, rest, _ := strings.Cut(name, ".")
	if top, ok := topNames[first]; ok {
		name = top + "." + rest
	}
	if latent {
		name = strings.Replace(name, ".attention.q_norm.", ".attention.q_a_layernorm.", 1)
	}
	return strings.Trim(titan.Replace("."+name+"."), "."), r
}

// Suffix returns what Activation takes after a name for this repeat: "@mb2.call1". It is empty for
// the first or only one.
func (r Repeat) Suffix() string {
	if r == (Repeat{}) {
		return ""
	}
	return fmt.Sprintf("@mb%d.call%d", r.MicroBatch, r.Call)
}
