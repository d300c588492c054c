package weights

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/moe/v4names"
)

// A run of a model like DeepSeek-V4 is written under the released names. Files with these, with
// those that the library saves, and with those of its modules are the same model.
func TestV4Names(t *testing.T) {
	folder := "../golden/testdata/deepseek_v4_tiny"
	saved := opened(t, folder)
	if has, want := parameters(saved), saved.Config().Count().Total; has != want {
		t.Errorf("the file has %d parameters, the configuration %d", has, want)
	}
	dir, _ := runOf(t, folder, 0, 1)
	to := filepath.Join(t.TempDir(), "to")
	if _, err := opened(t, dir).Convert(t.Context(), to, Options{FP32: true}); err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.Open(filepath.Join(to, singleName))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	dtypes := map[string]string{}
	for _, info := range file.Tensors() {
		dtypes[info.Name] = info.DType
	}
	for name, dtype := range map[string]string{
		"embed.weight": safetensors.F32, "head.weight": safetensors.F32, "norm.weight": safetensors.F32, "hc_head_base": safetensors.F32,
		"layers.0.ffn.gate.tid2eid": safetensors.I64, "layers.2.ffn.gate.bias": safetensors.F32, "layers.1.ffn.experts.7.w3.weight": safetensors.F32,
		"layers.1.attn.indexer.compressor.ape": safetensors.F32, "layers.1.attn.indexer.weights_proj.weight": safetensors.F32,
		"layers.2.attn.compressor.norm.weight": safetensors.F32, "layers.3.attn.kv_norm.weight": safetensors.F32, "layers.4.hc_ffn_scale": safetensors.F32,
	} {
		if dtypes[name] != dtype {
			t.Errorf("%s has the type %q, want %s", name, dtypes[name], dtype)
		}
	}
	released := opened(t, to)
	if released.Config() != saved.Config() || len(released.Tensors()) != len(saved.Tensors()) {
		t.Errorf("%d tensors of %+v, want %d of %+v", len(released.Tensors()), released.Config(), len(saved.Tensors()), saved.Config())
	}
	for _, x := range saved.Tensors() {
		if got := all(t, released, x.Name); !slices.Equal(got, all(t, saved, x.Name)) {
			t.Errorf("%s has other values", x.Name)
		}
		if again := v4names.Module(v4names.Released(x.Name)); again != x.Name {
			t.Errorf("%s becomes %s and then %s", x.Name, v4names.Released(x.Name), again)
		}
	}
}

// parameters returns the elements of all tensors that train.
func parameters(s *Source) (n int64) {
	for _, x := range s.Tensors() {
		if !isBias(x.Name) && !isTable(x.Name) {
			n += x.elements()
		}
	}
	return n
}

// The experts of a layer may be one tensor. Two names of one tensor are refused.
func TestV4Experts(t *testing.T) {
	flat := func(dst []float32, offset int64) error {
		for i := range dst {
			dst[i] = float32(offset) + float32(i)
		}
		return nil
	}
	s := &Source{entries: map[string]entry{}}
	add := func(name string, shape ...int) { s.entries[name] = entry{Tensor{name, safetensors.F32, shape}, flat} }
	add("model.layers.3.mlp.experts.gate_up_proj", 2, 6, 4)
	add("model.layers.3.mlp.experts.down_proj", 2, 4, 3)
	if err := s.renameV4(); err != nil {
		t.Fatal(err)
	}
	for name, first := range map[string]float32{"0.gate_proj": 0, "0.up_proj": 12, "1.gate_proj": 24, "1.up_proj": 36, "0.down_proj": 0, "1.down_proj": 12} {
		e, ok := s.entries["model.layers.3.mlp.experts."+name+".weight"]
		if !ok || e.elements() != 12 {
			t.Fatalf("%s: %v in %q", name, e.Shape, slices.Sorted(maps.Keys(s.entries)))
		}
		if got := make([]float32, 2); e.floats(got, 1) != nil || got[0] != first+1 {
			t.Errorf("%s begins with %v, want %v", name, got[0]-1, first)
		}
	}
	add("layers.3.ffn.experts.1.w3.weight", 3, 4)
	if err := s.renameV4(); err == nil || !strings.Contains(err.Error(), "several names") {
		t.Errorf("two names: %v", err)
	}
}
