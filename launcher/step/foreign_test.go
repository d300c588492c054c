package step

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pickler writes what torch.save writes: protocol 2, without a memo.
type pickler struct{ bytes.Buffer }

func (p *pickler) text(s string) {
	p.WriteByte('X')
	binary.Write(p, le, uint32(len(s)))
	p.WriteString(s)
}

func (p *pickler) object(value any) {
	switch value := value.(type) {
	case nil:
		p.WriteByte('N')
	case bool:
		p.WriteByte(map[bool]byte{true: 0x88, false: 0x89}[value])
	case int:
		p.WriteByte('J')
		binary.Write(p, le, int32(value))
	case float64:
		p.WriteByte('G')
		binary.Write(p, binary.BigEndian, value)
	case string:
		p.text(value)
	case global:
		at := strings.LastIndex(string(value), ".")
		fmt.Fprintf(p, "c%s\n%s\n", value[:at], value[at+1:])
	case []any: // a tuple
		p.WriteByte('(')
		for _, element := range value {
			p.object(element)
		}
		p.WriteByte('t')
	case []string: // a list
		p.WriteString("](")
		for _, element := range value {
			p.text(element)
		}
		p.WriteByte('e')
	case map[string]any:
		p.WriteString("}q\x01(")
		for k, element := range value {
			p.text(k)
			p.object(element)
		}
		p.WriteByte('u')
	case call:
		if value.name == "" {
			p.object(value.arguments)
			p.WriteByte('Q')
			return
		}
		p.object(value.name)
		p.object(value.arguments)
		p.WriteByte('R')
	}
}

// tensor describes a tensor of BF16 whose storage is data/0.
func tensor(elements, offset int, dims, strides []any) call {
	of := call{"", []any{"storage", global("torch.BFloat16Storage"), "0", "cuda:1", elements}}
	return call{"torch._utils._rebuild_tensor_v2", []any{of, offset, dims, strides, false, call{"collections.OrderedDict", []any{}}}}
}

// bfloats are the bytes of start, start+1, … in BF16.
func bfloats(start, n int) (data []byte) {
	for i := range n {
		data = le.AppendUint16(data, uint16(math.Float32bits(float32(start+i))>>16))
	}
	return data
}

// torchFile is a file of torch.save.
func torchFile(t *testing.T, value any, storage []byte) string {
	t.Helper()
	p := &pickler{}
	p.WriteString("\x80\x02")
	p.object(value)
	p.WriteByte('.')
	var file bytes.Buffer
	archive := zip.NewWriter(&file)
	for _, member := range []struct {
		name string
		data []byte
	}{{"data.pkl", p.Bytes()}, {"byteorder", []byte("little")}, {"data/0", storage}} {
		w, err := archive.CreateHeader(&zip.FileHeader{Name: "dump/" + member.name, Method: zip.Store})
		if err != nil {
			t.Fatal(err)
		}
		w.Write(member.data)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	return file.String()
}

func TestDumper(t *testing.T) {
	files, index := folder{"config.json": tiny}, 0
	add := func(rank int, name string, meta map[string]any, value any, storage []byte) {
		index++
		all := map[string]any{"step": 3, "rank": rank, "dump_index": index, "name": name, "recompute_status": "disabled", "tags": []string{"a"}, "scale": 0.5, "none": nil,
			"megatron_parallel_info": map[string]any{"tp_rank": rank, "tp_size": 2, "pp_rank": 0, "pp_size": 1}}
		for k, v := range meta {
			all[k] = v
		}
		path := fmt.Sprintf("step=%v___rank=%d___dump_index=%d___name=%s.pt", all["step"], rank, index, name)
		files[path] = torchFile(t, map[string]any{"value": value, "meta": all}, storage)
	}
	for rank := range 2 {
		ids := call{"", []any{"storage", global("torch.LongStorage"), "0", "cpu", 4}}
		add(rank, "input_ids", nil, call{"torch._utils._rebuild_tensor_v2", []any{ids, 0, []any{2, 2}, []any{2, 1}, false, nil}}, integers(1, 2, 2).Data)
		// [sequence, batch, hidden], hidden split over tp
		add(rank, "non_intrusive__module.model.layers.0.mlp.inputs.hidden_states", map[string]any{"dims": "s b h # ep:replicated"},
			tensor(4, 0, []any{2, 2, 1}, []any{2, 1, 1}), bfloats(10*rank, 4))
		add(rank, "grad__non_intrusive__model.layers.0.mlp.output.0", nil, tensor(5, 1, []any{4, 1}, []any{1, 1}), bfloats(0, 5))
		add(rank, "grad__non_intrusive__model.layers.0.mlp.output.0", nil, tensor(4, 0, []any{4, 1}, []any{1, 1}), bfloats(7, 4))
		add(rank, "layer_start__hidden_states", map[string]any{"layer_id": 1}, tensor(1, 0, []any{4, 1}, []any{0, 0}), bfloats(2, 1))
		weight := call{"torch._utils._rebuild_parameter", []any{tensor(64, 0, []any{8, 8}, []any{1, 8}), true, nil}}
		add(rank, "param__module.extra.weight", nil, weight, bfloats(0, 64))
		add(rank, "non_intrusive__model.layers.0.mlp.inputs.hidden_states", map[string]any{"step": 4}, tensor(1, 0, []any{1}, []any{1}), bfloats(0, 1))
		add(rank, "qkv_format", nil, "thd", nil)
		add(rank, "empty", nil, tensor(4, 0, []any{4, 0}, []any{1, 1}), bfloats(0, 4))
	}
	f := files.open(t)
	expect(t, "[4 1] [0 2 1 3] <nil>", begins(f.Read(Activations, "model.layers.0.mlp.input", Repeat{})))
	expect(t, "[4 1] [1 2 3 4] <nil>", begins(f.Read(Activations, "model.layers.0.mlp.grad_output", Repeat{})))
	expect(t, "[4 1] [2 2 2 2] <nil>", begins(f.Read(Activations, "model.layers.1.layer_start__hidden_states", Repeat{})))
	expect(t, "[8 8] [0 8 16 24 32 40 48 56] <nil>", begins(f.Read(Weights, "extra.weight", Repeat{})))
	expect(t, "[4 0] [] <nil>", begins(f.Read(Activations, "empty", Repeat{})))
	expect(t, "folder of sglang's dumper [{0 0} {1 0}]", f.Form, f.Repeats())
	if !says(f, "other steps or ranks too: step 3 of rank 0 is checked") || !says(f, "this file was not read: it has no tensor with a name") {
		t.Error(f.Findings)
	}
}

func TestDebugger(t *testing.T) {
	f := folder{
		"config.json": tiny, "DeepseekV3ForCausalLM_debug_tree_FULL_TENSORS.json": "{}",
		"DeepseekV3ForCausalLM_inputs_kwargs_input_ids.safetensors":                                      tensors{"data": integers(3, 1, 4)},
		"DeepseekV3ForCausalLM.model.layers.0.self_attn_inputs_kwargs_hidden_states.safetensors":         tensors{"data": numbers(0, 1, 4, 8)},
		"DeepseekV3ForCausalLM.model.layers.0.self_attn_inputs_kwargs_position_embeddings_0.safetensors": tensors{"data": numbers(0, 1, 4, 2)},
		"DeepseekV3ForCausalLM.model.layers.0.mlp.gate_proj_inputs_args_0.safetensors":                   tensors{"data": numbers(1, 1, 4, 8)},
		"DeepseekV3ForCausalLM.model.layers.1.mlp.gate_outputs_1.safetensors":                            tensors{"data": numbers(1, 4, 2)},
		"DeepseekV3ForCausalLM.model.layers.1.mlp.experts_outputs.safetensors":                           tensors{"data": numbers(1, 4, 8)},
		"DeepseekV3ForCausalLM_outputs_logits.safetensors":                                               tensors{"data": numbers(1, 1, 4, 32)},
	}.open(t)
	expect(t, "[lm_head.output model.layers.0.mlp.gate_proj.input model.layers.0.self_attn.input model.layers.0.self_attn.input.position_embeddings_0 "+
		"model.layers.1.mlp.experts.output model.layers.1.mlp.gate.weights]", f.Names(Activations, false))
	b, err := f.Batch(Repeat{})
	expect(t, "folder of transformers' debugger [3 4 5 6] <nil>", f.Form, b.IDs, err)
}

// Nothing but tensors, numbers and strings gets through, and no tensor reaches outside its storage.
func TestHostileTorchFiles(t *testing.T) {
	meta := map[string]any{"name": "x", "step": 0, "rank": 0, "dump_index": 0}
	for text, value := range map[string]any{
		`"posix.system" is refused`:               call{"posix.system", []any{"true"}},
		`"torch.load" is refused`:                 global("torch.load"),
		"a call of BFloat16Storage is refused":    call{"torch.BFloat16Storage", []any{}},
		"exceeds its storage of 4":                tensor(1<<30, 0, []any{1 << 30}, []any{1}),
		"from 3 on exceeds its storage":           tensor(4, 3, []any{2}, []any{1}),
		"a tensor of [1073741824 1073741824 1073": tensor(4, 0, []any{1 << 30, 1 << 30, 1 << 30}, []any{1 << 30, 1 << 30, 1 << 30}),
		"or its description is not torch's":       tensor(4, 0, []any{-1}, []any{1}),
		"is missing or compressed":                call{"torch._utils._rebuild_tensor_v2", []any{call{"", []any{"storage", "x", "../0"}}, 0, []any{}, []any{}}},
	} {
		path := filepath.Join(t.TempDir(), "x.pt")
		if err := os.WriteFile(path, []byte(torchFile(t, map[string]any{"value": value, "meta": meta}, bfloats(0, 4))), 0o666); err != nil {
			t.Fatal(err)
		}
		if object, err := readTorch(path); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("expected %q: %v %v", text, object, err)
		}
	}
	for data, want := range map[string]string{"}(K\x01K\x02X\x01\x00\x00\x00aNu.": "map[1:2 a:<nil>]", "ctorch\nSize\n)R.": "{Size []}"} {
		if object, err := unpickle([]byte(data)); err != nil || fmt.Sprint(object) != want {
			t.Errorf("%q is %v, %v: expected %s", data, object, err, want)
		}
	}
	for _, data := range []string{"\x80\x02i__main__\nX\n.", "\x80\x02\x8f.", "(", "t.", "]]s.", "\x80\x02K\x01a.", "X\xff\xff\xff\xffa.", "}]K\x01s."} {
		if object, err := unpickle([]byte(data)); err == nil {
			t.Errorf("%q is read as %v", data, object)
		}
	}
}

func FuzzUnpickle(f *testing.F) {
	p := &pickler{}
	p.object(map[string]any{"value": tensor(4, 0, []any{2, 2}, []any{2, 1}), "meta": map[string]any{"a": 1, "b": []string{"c"}, "d": 2.5}})
	f.Add(append(p.Bytes(), '.'))
	f.Fuzz(func(t *testing.T, data []byte) {
		object, err := unpickle(data)
		if err != nil {
			return
		}
		if d, ok := object.(map[string]any); ok {
			if tensor, ok := d["value"].(call); ok {
				locateTensor("x.pt", 100, tensor.arguments, nil)
			}
		}
	})
}

// Files that torch 2.11 wrote (bench/referee/dumper.py). What is no plain value is refused by name.
func TestDumperFiles(t *testing.T) {
	files := folder{"config.json": tiny}
	paths, _ := filepath.Glob("testdata/dumper/*.pt")
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(path)] = string(data)
	}
	f := files.open(t)
	b, err := f.Batch(Repeat{})
	expect(t, "2 3 [0 1 2 3 4 5] <nil>", b.Batch, b.Seq, b.IDs, err)
	expect(t, "[6 8] [0 1 2 3 4 5 6 7] <nil>", begins(f.Read(Activations, "model.layers.0.self_attn.input", Repeat{})))
	expect(t, "[6 8] [0 6 12 18 24 30 36 42] <nil>", begins(f.Read(Activations, "model.layers.0.mlp.grad_output", Repeat{})))
	v, err := f.Read(Weights, "model.layers.0.mlp.gate_proj.weight", Repeat{})
	expect(t, "F32 8 55 <nil>", v.DType, v.Data[0], v.Data[len(v.Data)-1], err)
	for _, text := range []string{"name=lengths.pt: this file was not read: it has no tensor", "mlp.inputs.hidden_states.pt: this file was not read: pickle, before byte"} {
		if !says(f, text) {
			t.Errorf("no finding says %q: %v", text, f.Findings)
		}
	}
	if !says(f, `"numpy`) {
		t.Error(f.Findings)
	}
}
