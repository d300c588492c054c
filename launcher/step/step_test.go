package step

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
)

// tiny is a model with latent attention, one dense layer and one with four experts.
const tiny = `{"model_type": "deepseek_v3", "vocab_size": 32, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
	"intermediate_size": 6, "moe_intermediate_size": 4, "num_experts_per_tok": 2, "n_routed_experts": 4, "n_shared_experts": 1,
	"first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "kv_lora_rank": 4, "q_lora_rank": 4, "qk_nope_head_dim": 4,
	"qk_rope_head_dim": 2, "v_head_dim": 4, "norm_topk_prob": true, "tie_word_embeddings": false}`

// numbers is a tensor of F32 with elements start, start+1, …
func numbers(start int, dims ...int) safetensors.Tensor {
	t := safetensors.Tensor{DType: "F32", Shape: dims}
	for i := range product(dims) {
		t.Data = le.AppendUint32(t.Data, math.Float32bits(float32(start+i)))
	}
	return t
}

// integers is a tensor of I64 with elements start, start+1, …
func integers(start int, dims ...int) safetensors.Tensor {
	t := safetensors.Tensor{DType: "I64", Shape: dims}
	for i := range product(dims) {
		t.Data = le.AppendUint64(t.Data, uint64(start+i))
	}
	return t
}

type tensors = map[string]safetensors.Tensor

// folder is a folder to write: texts, and tensors by file and name.
type folder map[string]any

func (files folder) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o777)
		switch content := content.(type) {
		case string:
			err = errors.Join(err, os.WriteFile(path, []byte(content), 0o666))
		case tensors:
			var list []safetensors.Tensor
			for name, tensor := range content {
				tensor.Name = name
				list = append(list, tensor)
			}
			err = errors.Join(err, safetensors.Write(path, list, nil))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (files folder) open(t *testing.T) *Folder {
	t.Helper()
	f, err := Open(files.write(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// expect compares values, separated by spaces, with a text.
func expect(t *testing.T, want string, got ...any) {
	t.Helper()
	if text := strings.TrimSpace(fmt.Sprintln(got...)); text != want {
		t.Errorf("got %s, expected %s", text, want)
	}
}

// begins returns the dimensions of a tensor and its first elements.
func begins(v Value, err error) string {
	return fmt.Sprint(v.Dims, v.Data[:min(len(v.Data), 8)], err)
}

func says(f *Folder, text string) bool {
	return slices.ContainsFunc(f.Findings, func(x Finding) bool { return strings.Contains(x.Module+": "+x.Says, text) })
}

func TestStepFolder(t *testing.T) {
	f := folder{
		"config.json": tiny,
		"step.json":   `{"format": "step-1", "micro_batches": 2, "reduction": "mean", "recomputation_differs": ["model.norm"], "colour": 1, "autocast": 3}`,
		"batch.safetensors": tensors{
			"input_ids": integers(0, 4, 3), "labels": integers(1, 4, 3), "position_ids": integers(0, 2, 3), "attention_mask": integers(0, 1, 3, 3),
		},
		"activations.safetensors": tensors{
			"model.layers.0.self_attn@mb0.call0.input": numbers(0, 2, 3, 8), "model.layers.0.self_attn@mb1.call0.input": numbers(100, 2, 3, 8),
			"module.model.layers.1.mlp.gate@mb1.call0.output.2": integers(0, 6, 2), "model.layers.1.mlp.experts.act_fn@mb1.call7.input": numbers(0, 1),
			"model.layers.1.mlp.gate@mb1.call0.output": numbers(0, 6, 4), "model.layers.1.mlp.gate@mb1.call0.grad_output.1": numbers(0, 6, 2),
		},
		"gradients.safetensors": tensors{"model.layers.1.mlp.experts.gate_up_proj": numbers(0, 4, 8, 8), "model.norm.weight": numbers(0, 8)},
		"model.safetensors": tensors{
			"_orig_mod.model.norm.weight": numbers(5, 8), "model.layers.1.mlp.experts.down_proj": numbers(0, 4, 8, 4), "lm_head.weight": numbers(0, 3),
		},
	}.open(t)
	expect(t, "[{0 0} {1 0}]", f.Repeats())
	b, err := f.Batch(Repeat{MicroBatch: 1})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "2 3 [6 7 8 9 10 11] [7 8 9 10 11 12] [3 4 5 3 4 5] []", b.Batch, b.Seq, b.IDs, b.Labels, b.Positions, b.Mask)
	b, err = f.Batch(Repeat{})
	expect(t, "[0 1 2 3 4 5] <nil>", b.IDs, err)
	expect(t, "[6 8] [100 101 102 103 104 105 106 107] <nil>", begins(f.Read(Activations, "model.layers.0.self_attn.input", Repeat{MicroBatch: 1})))
	for _, port := range []string{"indices", "logits", "weights.grad"} {
		if _, ok := f.DType(Activations, "model.layers.1.mlp.gate."+port, Repeat{MicroBatch: 1}); !ok {
			t.Errorf("the router has no %s among %v", port, f.Names(Activations, false))
		}
	}
	expect(t, "[4 8] [160 161 162 163 164 165 166 167] <nil>", begins(f.Read(Gradients, "model.layers.1.mlp.experts.2.up_proj.weight", Repeat{})))
	expect(t, "[8 4] [96 97 98 99 100 101 102 103] <nil>", begins(f.Read(Weights, "model.layers.1.mlp.experts.3.down_proj.weight", Repeat{})))
	expect(t, "[8] [5 6 7 8 9 10 11 12] <nil>", begins(f.Read(Weights, "model.norm.weight", Repeat{})))
	if _, err := f.Read(Gradients, "model.layers.0.mlp.up_proj.weight", Repeat{}); !errors.Is(err, ErrAbsent) {
		t.Error(err)
	}
	if _, err := f.Read(Weights, "lm_head.weight", Repeat{}); err == nil {
		t.Error("a weight of other dimensions than the model's is read")
	}
	expect(t, "[model.norm.weight]", f.Names(Gradients, true))
	for _, text := range []string{
		"step.json: its keys [colour] were not read", "step.json: autocast is a number", "model.norm: its recomputed forward pass differs",
		"batch: attention_mask is I64 of [1 3 3] and was not read", "lm_head.weight is [3]: config.json asks for [32 8]",
	} {
		if !says(f, text) {
			t.Errorf("no finding says %q: %v", text, f.Findings)
		}
	}
}

// TorchTitan's names, transposed experts and golden folders.
func TestForms(t *testing.T) {
	masked := numbers(0, 4, 2)
	copy(masked.Data, "\x00\x00\x80\xff") // -Inf, as of keys that a token does not see
	f := folder{
		"config.json": tiny, "step.json": `{"layout": {"a": "gate_up_proj [E, D, 2I]", "b": "down_proj [E, I, D]"}}`,
		"model.safetensors": tensors{
			"layers.1.attention.wq_a.weight": numbers(1, 4, 8), "layers.1.attention.q_norm.weight": numbers(1, 4), "output.weight": numbers(1, 32, 8),
			"layers.1.moe.experts.w1_EFD": numbers(0, 4, 4, 8), "layers.1.moe.router.gate.weight": numbers(2, 4, 8), "layers.1.moe.expert_bias_E": numbers(3, 4),
		},
		"gradients.safetensors": tensors{"model.layers.1.mlp.experts.gate_up_proj": numbers(0, 4, 8, 8), "model.layers.1.mlp.experts.down_proj": numbers(0, 4, 4, 8)},
		"activations.safetensors": tensors{
			"layer1_gate_0": numbers(0, 4, 4), "layer1_mlp_in": numbers(0, 2, 2, 8), "input_ids": integers(0, 2, 2), "target_ids": integers(1, 2, 2),
			"layers.0.moe.router.gate.input": numbers(1, 4, 8), "layers.0.moe.router.input": numbers(1, 4, 8), "layers.0.moe.experts.output": numbers(0, 8, 8),
			"layers.0.moe.router.gate.output": numbers(0, 4, 4), "layers.0.moe.router.weights": numbers(0, 4, 2),
			"layers.0.moe.experts.2.w2.input": numbers(0, 3, 4),
			"layer0_indexer":                  integers(0, 4, 2), "layer0_index_scores": masked, "layer0_mlp": masked, "model.layers.1.self_attn.indexer.output": integers(0, 4, 2),
		},
		"activations64.safetensors": tensors{"layer1_mlp_in": numbers(0, 2, 2, 8)},
	}.open(t)
	for name, first := range map[string]float64{
		"self_attn.q_a_proj.weight": 1, "self_attn.q_a_layernorm.weight": 1, "mlp.experts.1.gate_proj.weight": 32, "mlp.gate.weight": 2,
		"mlp.gate.e_score_correction_bias": 3,
	} {
		if v, err := f.Read(Weights, "model.layers.1."+name, Repeat{}); err != nil || v.Data[0] != first {
			t.Error(name, v, err)
		}
	}
	expect(t, "[4 8] [4 12 20 28 36 44 52 60] <nil>", begins(f.Read(Gradients, "model.layers.1.mlp.experts.0.up_proj.weight", Repeat{})))
	expect(t, "[8 4] [32 40 48 56 33 41 49 57] <nil>", begins(f.Read(Gradients, "model.layers.1.mlp.experts.1.down_proj.weight", Repeat{})))
	b, err := f.Batch(Repeat{})
	expect(t, "true [1 2 3 4] folder of reference outputs <nil>", b.LabelsShifted, b.Labels, f.Form, err)
	for _, name := range []string{"self_attn.indexer.scores", "mlp.output"} {
		_, err = f.Read(Activations, "model.layers.0."+name, Repeat{})
		expect(t, "<nil>", err)
	}
	expect(t, "model.layers.0.mlp.output 1", f.Findings[len(f.Findings)-1].Module, len(f.Findings))
	expect(t, "[model.layers.0.mlp.experts.2.down_proj.input model.layers.0.mlp.gate.input model.layers.0.mlp.gate.logits model.layers.0.mlp.gate.weights model.layers.0.mlp.output model.layers.0.mlp.router.input "+
		"model.layers.0.mlp.rows.output model.layers.0.self_attn.indexer.indices model.layers.0.self_attn.indexer.scores model.layers.1.mlp.gate.logits model.layers.1.mlp.input "+
		"model.layers.1.self_attn.indexer.indices]", f.Names(Activations, false))
}

// Each folder that cannot be used is refused with what was given, and what is expected.
func TestStrangers(t *testing.T) {
	weights, batch, activations := tensors{"model.norm.weight": numbers(0, 8)}, tensors{"input_ids": integers(0, 1, 3)}, tensors{"model.norm.input": numbers(0, 3, 8)}
	for want, files := range map[string]folder{
		"no config.json: expected a folder with one training step": {},
		"have one: check ":                  {"step/config.json": tiny},
		"expected deepseek_v2":              {"config.json": `{"model_type": "gpt2"}`},
		"no weights: expected":              {"config.json": tiny, "batch.safetensors": batch, "activations.safetensors": activations},
		"neither activations nor gradients": {"config.json": tiny, "model.safetensors": weights},
		"such as w, have other names":       {"config.json": tiny, "model.safetensors": tensors{"w": numbers(0, 8)}},
		"input_ids of micro-batch 0":        {"config.json": tiny, "model.safetensors": weights, "gradients.safetensors": weights},
		"input_ids is F64 of [3]":           {"config.json": tiny, "model.safetensors": weights, "gradients.safetensors": weights, "batch.safetensors": tensors{"input_ids": {DType: "F64", Shape: []int{3}, Data: integers(1, 3).Data}}},
		"was this file written and copied":  {"config.json": tiny, "model.safetensors": "\x08"},
		"model.norm.weight is F8_E4M3":      {"config.json": tiny, "model.safetensors": tensors{"model.norm.weight": {DType: "F8_E4M3", Shape: []int{8}, Data: make([]byte, 8)}}},
		"input_ids has 3 tokens: expected":  {"config.json": tiny, "model.safetensors": weights, "gradients.safetensors": weights, "batch.safetensors": tensors{"input_ids": integers(30, 1, 3)}},
		"<nil>":                             {"config.json": tiny, "model.safetensors": weights, "batch.safetensors": batch, "activations.safetensors": activations},
	} {
		f, err := Open(files.write(t))
		if err == nil {
			err = f.Usable(true)
			f.Close()
		}
		if text := fmt.Sprint(err); !strings.Contains(text, want) {
			t.Errorf("expected %q: %s", want, text)
		}
	}
	file := filepath.Join(folder{"x": ""}.write(t), "x")
	for path, want := range map[string]string{file: "it is a file: expected", file + "y": "there is no such folder: expected"} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("expected %q: %v", want, err)
		}
	}
}

// Names of DeepSeek-V4 in three sets, its two rotary embeddings, and a key that means nothing.
func TestV4Names(t *testing.T) {
	config, err := os.ReadFile("../golden/testdata/deepseek_v4_tiny/config.json")
	if err != nil {
		t.Fatal(err)
	}
	f := folder{
		"config.json": strings.Replace(string(config), "{", `{"colour": 1,`, 1),
		"model.safetensors": tensors{
			"layers.0.attn.attn_sink": numbers(1, 4), "model.layers.1.attn.norm.weight": numbers(2, 32), "mtp.0.e_proj.weight": numbers(3, 32, 32),
			"model.layers.0.mlp.gate.tid2eid": integers(4, 96, 3),
		},
		"activations.safetensors": tensors{
			"input_ids": integers(0, 1, 2), "model.rotary_emb@mb0.call0.output": numbers(5, 1, 2, 4), "model.rotary_emb@mb0.call1.output": numbers(6, 1, 2, 4),
			"model.layers.1.self_attn.compressor.indexer.output": integers(7, 1, 2, 3), "layer1_compressor_indexer_scorer": numbers(8, 2, 4),
		},
	}.open(t)
	for name, first := range map[string]float64{
		"model.layers.0.self_attn.sinks": 1, "model.layers.1.self_attn.kv_norm.weight": 2, "model.layers.5.e_proj.weight": 3, "model.layers.0.mlp.gate.tid2eid": 4,
		"model.rotary_emb.main.output": 5, "model.rotary_emb.compress.output": 6, "model.layers.1.self_attn.compressor.indexer.indices": 7,
		"model.layers.1.self_attn.compressor.indexer.scorer.output": 8,
	} {
		class := Weights
		if first > 4 {
			class = Activations
		}
		if v, err := f.Read(class, name, Repeat{}); err != nil || v.Data[0] != first {
			t.Error(name, v, err)
		}
	}
	if expect(t, "1 [{0 0}]", f.Model.MTPLayers, f.Repeats()); !says(f, "config.json: its keys [colour] were not read") {
		t.Error(f.Findings)
	}
}
