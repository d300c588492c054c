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
	data := make([]byte, 4*product(dims))
	for i := range product(dims) {
		le.PutUint32(data[4*i:], math.Float32bits(float32(start+i)))
	}
	return safetensors.Tensor{DType: "F32", Shape: dims, Data: data}
}

// integers is a tensor of I64 with elements start, start+1, …
func integers(start int, dims ...int) safetensors.Tensor {
	t := safetensors.Tensor{DType: "I64", Shape: dims, Data: make([]byte, 8*product(dims))}
	for i := range product(dims) {
		le.PutUint64(t.Data[8*i:], uint64(start+i))
	}
	return t
}

// folder is a folder to write: JSON texts, and tensors by file and name.
type folder map[string]any

func (files folder) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		var err error
		switch content := content.(type) {
		case string:
			err = os.WriteFile(path, []byte(content), 0o666)
		case map[string]safetensors.Tensor:
			var list []safetensors.Tensor
			for name, tensor := range content {
				tensor.Name = name
				list = append(list, tensor)
			}
			err = safetensors.Write(path, list, nil)
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

type tensors = map[string]safetensors.Tensor

// expect compares a tensor with its dimensions and elements.
func expect(t *testing.T, v Value, err error, dims []int, data ...float64) {
	t.Helper()
	if err != nil || !slices.Equal(v.Dims, dims) || !slices.Equal(v.Data, data) {
		t.Fatalf("got %v %v %v, expected %v %v", v.Dims, v.Data, err, dims, data)
	}
}

func says(f *Folder, text string) bool {
	return slices.ContainsFunc(f.Findings(), func(x Finding) bool { return strings.Contains(x.Module+": "+x.Says, text) })
}

func TestStepFolder(t *testing.T) {
	f := folder{
		"config.json": tiny,
		"step.json":   `{"format": "step-1", "micro_batches": 2, "reduction": "mean", "silent": ["_orig_mod.model.layers.1.mlp"], "colour": 1, "loss_value": "x"}`,
		"batch.safetensors": tensors{
			"input_ids": integers(0, 4, 3), "labels": integers(1, 4, 3), "position_ids": integers(0, 2, 3), "attention_mask": integers(0, 1, 3, 3),
		},
		"activations.safetensors": tensors{
			"model.layers.0.self_attn@mb0.call0.input": numbers(0, 2, 3, 8), "model.layers.0.self_attn@mb1.call0.input": numbers(100, 2, 3, 8),
			"module.model.layers.1.mlp.gate@mb1.call0.output.2": integers(0, 6, 2), "model.layers.1.mlp.experts.act_fn@mb1.call7.input": numbers(0, 1),
			"model.layers.1.mlp.gate@mb1.call0.output": numbers(0, 6, 4), "model.layers.1.mlp.gate@mb1.call0.grad_output.1": numbers(0, 6, 2),
		},
		"gradients.safetensors": tensors{"model.layers.1.mlp.experts.gate_up_proj": numbers(0, 4, 8, 8), "model.norm.weight": numbers(0, 8)},
		"model.safetensors":     tensors{"_orig_mod.model.norm.weight": numbers(5, 8), "model.layers.1.mlp.experts.down_proj": numbers(0, 4, 8, 4)},
	}.open(t)
	if got := fmt.Sprint(f.Repeats()); got != "[{0 0} {1 0}]" {
		t.Errorf("repeats %s", got)
	}
	if b, err := f.Batch(Repeat{}); err != nil || b.IDs[0] != 0 {
		t.Error(b, err)
	}
	b, err := f.Batch(Repeat{MicroBatch: 1})
	if err != nil || b.Batch != 2 || b.Seq != 3 || b.IDs[0] != 6 || b.Labels[5] != 12 || fmt.Sprint(b.Positions) != "[3 4 5 3 4 5]" || b.Mask != nil {
		t.Errorf("batch %+v %v", b, err)
	}
	v, err := f.Activation("model.layers.0.self_attn.input" + Repeat{MicroBatch: 1}.Suffix())
	if err != nil || fmt.Sprint(v.Dims) != "[6 8]" || v.Data[0] != 100 {
		t.Errorf("%v %v", v, err)
	}
	for _, port := range []string{"indices", "logits", "weights.grad"} {
		if _, ok := f.DType(Activations, "model.layers.1.mlp.gate."+port+"@mb1"); !ok {
			t.Errorf("the router has no %s among %v", port, f.Names(Activations))
		}
	}
	v, err = f.Gradient("model.layers.1.mlp.experts.2.up_proj.weight")
	if err != nil || fmt.Sprint(v.Dims) != "[4 8]" || v.Data[0] != 2*64+32 {
		t.Errorf("%v %v", v, err)
	}
	v, err = f.Weight("model.layers.1.mlp.experts.3.down_proj.weight")
	if err != nil || fmt.Sprint(v.Dims) != "[8 4]" || v.Data[31] != 127 {
		t.Errorf("%v %v", v, err)
	}
	v, err = f.Weight("model.norm.weight")
	expect(t, v, err, []int{8}, 5, 6, 7, 8, 9, 10, 11, 12)
	if _, err := f.Gradient("model.layers.0.mlp.up_proj.weight"); !errors.Is(err, ErrAbsent) {
		t.Errorf("%v", err)
	}
	if got := fmt.Sprint(f.Unread(Gradients)); got != "[model.norm.weight]" {
		t.Error(got)
	}
	for _, text := range []string{"step.json: loss_value is a string", "batch: attention_mask is I64 of [1 3 3] and was not read", "step.json: its keys [colour] were not read"} {
		if !says(f, text) {
			t.Errorf("no finding says %q: %v", text, f.Findings())
		}
	}
}

// TorchTitan's names, transposed experts and golden folders.
func TestForms(t *testing.T) {
	f := folder{
		"config.json": tiny, "step.json": `{"layout": {"a": "gate_up_proj [E, D, 2I]", "b": "down_proj [E, I, D]"}}`,
		"model.safetensors": tensors{
			"layers.1.attention.wq_a.weight": numbers(1, 4, 8), "layers.1.attention.q_norm.weight": numbers(1, 4), "output.weight": numbers(1, 32, 8),
			"layers.1.moe.experts.w1_EFD": numbers(0, 4, 4, 8), "layers.1.moe.router.gate.weight": numbers(2, 4, 8),
			"layers.1.moe.expert_bias_E": numbers(3, 4), "layers.0.feed_forward.w2.weight": numbers(4, 8, 6),
		},
		"gradients.safetensors": tensors{"model.layers.1.mlp.experts.gate_up_proj": numbers(0, 4, 8, 8), "model.layers.1.mlp.experts.down_proj": numbers(0, 4, 4, 8)},
		"activations.safetensors": tensors{
			"layer1_gate_0": numbers(0, 4, 4), "layer1_mlp_in": numbers(0, 2, 2, 8), "input_ids": integers(0, 2, 2), "target_ids": integers(1, 2, 2),
		},
		"activations64.safetensors": tensors{"layer1_mlp_in": numbers(0, 2, 2, 8)},
	}.open(t)
	for name, first := range map[string]float64{
		"self_attn.q_a_proj.weight": 1, "self_attn.q_a_layernorm.weight": 1, "mlp.experts.1.gate_proj.weight": 32, "mlp.gate.weight": 2,
		"mlp.gate.e_score_correction_bias": 3,
	} {
		if v, err := f.Weight("model.layers.1." + name); err != nil || v.Data[0] != first {
			t.Error(name, v, err)
		}
	}
	v, err := f.Gradient("model.layers.1.mlp.experts.0.up_proj.weight")
	if err != nil || fmt.Sprint(v.Data[:3], v.Dims) != "[4 12 20] [4 8]" {
		t.Error(v, err)
	}
	v, err = f.Gradient("model.layers.1.mlp.experts.1.down_proj.weight")
	if err != nil || fmt.Sprint(v.Data[:3], v.Dims) != "[32 40 48] [8 4]" {
		t.Error(v, err)
	}
	if b, err := f.Batch(Repeat{}); err != nil || !b.LabelsShifted || b.Labels[3] != 4 || f.Form != "golden folder" {
		t.Error(b, err)
	}
	if got := fmt.Sprint(f.Names(Activations)); got != "[model.layers.1.mlp.gate.logits model.layers.1.mlp.input]" {
		t.Error(got)
	}
}
