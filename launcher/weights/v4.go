package weights

// DeepSeek-V4's tensors go by three sets of names: those of released files, those that transformers
// saves, and those of its modules, with the experts of a layer as one tensor. A source has the
// modules' names, with an expert each. Files are written with the released ones.

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"spmoe/launcher/checkpoint/safetensors"
)

const v4Family = "deepseek_v4"

// v4Top has the names of tensors outside of layers: released, saved, of modules.
var v4Top = [][3]string{
	{"embed.weight", "model.embed_tokens.weight", "model.embed_tokens.weight"},
	{"norm.weight", "model.norm.weight", "model.norm.weight"},
	{"head.weight", "head.weight", "lm_head.weight"},
	{"hc_head_fn", "model.hc_head.hc_fn", "model.hc_head.hc_fn"},
	{"hc_head_base", "model.hc_head.hc_base", "model.hc_head.hc_base"},
	{"hc_head_scale", "model.hc_head.hc_scale", "model.hc_head.hc_scale"},
}

// v4Layer has the beginnings of names in a layer, released and of modules. The first that fits
// counts.
var v4Layer = [][2]string{
	{"attn_norm.", "input_layernorm."},
	{"ffn_norm.", "post_attention_layernorm."},
	{"hc_attn_", "attn_hc."},
	{"hc_ffn_", "ffn_hc."},
	{"ffn.gate.bias", "mlp.gate.e_score_correction_bias"},
	{"ffn.gate.", "mlp.gate."},
	{"ffn.", "mlp."},
	{"attn.attn_sink", "self_attn.sinks"},
	{"attn.wq_a.", "self_attn.q_a_proj."},
	{"attn.wq_b.", "self_attn.q_b_proj."},
	{"attn.q_norm.", "self_attn.q_a_norm."},
	{"attn.wkv.", "self_attn.kv_proj."},
	{"attn.kv_norm.", "self_attn.kv_norm."},
	{"attn.wo_a.", "self_attn.o_a_proj."},
	{"attn.wo_b.", "self_attn.o_b_proj."},
	{"attn.indexer.wq_b.", "self_attn.compressor.indexer.q_b_proj."},
	{"attn.indexer.weights_proj.", "self_attn.compressor.indexer.scorer.weights_proj."},
	{"attn.indexer.compressor.", "self_attn.compressor.indexer."},
	{"attn.compressor.", "self_attn.compressor."},
}

// v4Compressor and v4Expert have the names of the parts of a compressor and of an expert.
var (
	v4Compressor = [][2]string{{"ape", "position_bias"}, {"wkv.weight", "kv_proj.weight"}, {"wgate.weight", "gate_proj.weight"}, {"norm.weight", "kv_norm.weight"}}
	v4Expert     = [][2]string{{"w1.weight", "gate_proj.weight"}, {"w3.weight", "up_proj.weight"}, {"w2.weight", "down_proj.weight"}}
)

// v4Layers begins the names of a layer's tensors. The released ones lack the first part.
const v4Layers = "model.layers."

// v4Module returns the modules' name of a tensor under any name.
func v4Module(name string) string {
	for _, names := range v4Top {
		if name == names[0] || name == names[1] {
			return names[2]
		}
	}
	number, rest, ok := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(name, "model."), "layers."), ".")
	if _, err := strconv.Atoi(number); !ok || err != nil {
		return name
	}
	if rest == "attn.norm.weight" { // as the library saves it
		rest = "attn.kv_norm.weight"
	}
	return v4Layers + number + "." + v4Translate(rest, 0)
}

// v4Released returns the released name of a tensor with a module's name.
func v4Released(name string) string {
	for _, names := range v4Top {
		if name == names[2] {
			return names[0]
		}
	}
	rest, ok := strings.CutPrefix(name, v4Layers)
	if number, rest, cut := strings.Cut(rest, "."); ok && cut {
		return "layers." + number + "." + v4Translate(rest, 1)
	}
	return name
}

// v4Translate translates the name of a tensor in a layer from one column of the tables to the other
// one. A name that is not in that column stays.
func v4Translate(name string, from int) string {
	for _, names := range v4Layer {
		rest, ok := strings.CutPrefix(name, names[from])
		if !ok {
			continue
		}
		parts := v4Expert
		if strings.Contains(names[0], ".compressor.") {
			parts = v4Compressor
		}
		for _, part := range parts {
			if before, ok := strings.CutSuffix(rest, part[from]); ok && (before == "" || strings.HasSuffix(before, ".")) {
				rest = before + part[1-from]
				break
			}
		}
		return names[1-from] + rest
	}
	return name
}

// renameV4 gives the tensors of a DeepSeek-V4 model their modules' names, and each expert its own.
func (s *Source) renameV4() error {
	all := s.entries
	s.entries = map[string]entry{}
	for name, e := range all {
		for _, e := range e.experts(v4Module(name)) {
			if _, twice := s.entries[e.Name]; twice {
				return fmt.Errorf("tensor %q is there under several names: remove all but one", e.Name)
			}
			s.entries[e.Name] = e
		}
	}
	return nil
}

// experts returns the tensors of experts of one that holds those of a whole layer, or the tensor
// itself, under its new name.
func (e entry) experts(name string) []entry {
	e.Name = name
	before, which, ok := strings.Cut(name, ".mlp.experts.")
	parts, known := map[string][]string{"gate_up_proj": {"gate_proj", "up_proj"}, "down_proj": {"down_proj"}}[which]
	if !ok || !known || len(e.Shape) != 3 || e.Shape[1]%len(parts) != 0 {
		return []entry{e}
	}
	shape := []int{e.Shape[1] / len(parts), e.Shape[2]}
	var all []entry
	for i := range e.Shape[0] * len(parts) {
		own := fmt.Sprintf("%s.mlp.experts.%d.%s.weight", before, i/len(parts), parts[i%len(parts)])
		first := int64(i) * int64(shape[0]) * int64(shape[1])
		all = append(all, entry{Tensor{own, e.DType, shape}, func(dst []float32, offset int64) error {
			return e.floats(dst, first+offset)
		}})
	}
	return all
}

// isTable reports whether a tensor is the table of a hash layer, whose elements are integers.
func isTable(name string) bool { return strings.HasSuffix(name, ".tid2eid") }

// readTable fills dst with elements of a table.
func readTable(file *safetensors.File, info safetensors.Info, dst []float32, offset int64) error {
	raw := make([]byte, 8*len(dst))
	if err := file.ReadAt(info, raw, 8*offset); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = float32(int64(binary.LittleEndian.Uint64(raw[8*i:])))
	}
	return nil
}

// released gives tensors to write their released names, if their family is DeepSeek-V4.
func (s *Source) released(all []Tensor) []Tensor {
	if s.config.HFModelType() != v4Family {
		return all
	}
	all = slices.Clone(all)
	for i := range all {
		all[i].Name = v4Released(all[i].Name)
	}
	return all
}
