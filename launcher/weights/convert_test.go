package weights

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/moe"
	"spmoe/tensor"
)

// names returns the names of the files in a folder.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A run's weights become those of a model that this package reads again, each rounded once.
func TestConvertRun(t *testing.T) {
	dir, config := run(t, 1.1)
	from := opened(t, dir)
	for fp32, want := range map[bool]string{false: safetensors.BF16, true: safetensors.F32} {
		to := filepath.Join(t.TempDir(), "to")
		if _, err := from.Convert(t.Context(), to, Options{FP32: fp32}); err != nil {
			t.Fatal(err)
		}
		s := opened(t, to)
		if c := s.Config(); c != config {
			t.Errorf("the model is %+v, want %+v", c, config)
		}
		if len(s.Tensors()) != len(from.Tensors()) {
			t.Errorf("%d tensors of %d", len(s.Tensors()), len(from.Tensors()))
		}
		for _, x := range from.Tensors() {
			values, got := all(t, from, x.Name), all(t, s, x.Name)
			rounded := want == safetensors.BF16 && !isBias(x.Name)
			if y := s.entries[x.Name]; rounded != (y.DType == safetensors.BF16) {
				t.Errorf("FP32 %t: %s is %s", fp32, x.Name, y.DType)
			}
			for i, v := range values {
				if rounded {
					v = tensor.ToBFloat16(v).Float32()
				}
				if math.Float32bits(v) != math.Float32bits(got[i]) {
					t.Fatalf("FP32 %t: %s[%d] is %v, want %v", fp32, x.Name, i, got[i], v)
				}
			}
		}
		if got := names(t, to); !slices.Equal(got, []string{configName, "generation_config.json", singleName, "special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"}) {
			t.Errorf("the folder holds %q", got)
		}
		var keys map[string]any
		if err := json.Unmarshal(readFile(t, filepath.Join(to, configName)), &keys); err != nil {
			t.Fatal(err)
		}
		for key, value := range map[string]any{
			"architectures": []any{"DeepseekV3ForCausalLM"}, "torch_dtype": map[string]string{safetensors.BF16: "bfloat16", safetensors.F32: "float32"}[want],
			"num_nextn_predict_layers": 1.0, "n_group": 4.0, "topk_group": 2.0, "topk_method": "noaux_tc", "scoring_func": "sigmoid", "rope_interleave": true,
			"norm_topk_prob": true, "num_key_value_heads": 4.0, "eos_token_id": 0.0, "bos_token_id": nil, "q_lora_rank": 32.0, "moe_layer_freq": 1.0,
		} {
			got, there := keys[key]
			if a, _ := json.Marshal(got); !there || string(a) != string(must(json.Marshal(value))) {
				t.Errorf("%s is %v, want %v", key, got, value)
			}
		}
	}
}

// A run of a family with grouped-query attention has the configuration and the tensors that the
// library writes, also under the keys of its older versions.
func TestConvertGroupedQueries(t *testing.T) {
	for name, older := range map[string]map[string]any{
		"qwen3_moe_tiny": {"num_experts": 16.0, "rope_theta": 1e6},
		"glm4_moe_tiny":  {"rope_theta": 1e4},
	} {
		folder := filepath.Join("../golden/testdata", name)
		dir, config := runOf(t, folder, 0, 1)
		to := filepath.Join(t.TempDir(), "to")
		if _, err := opened(t, dir).Convert(t.Context(), to, Options{FP32: true}); err != nil {
			t.Fatal(err)
		}
		s, want := opened(t, to), opened(t, folder)
		if s.Config() != config {
			t.Errorf("%s: the model is %+v, want %+v", name, s.Config(), config)
		}
		tensors := s.Tensors()
		if !reflect.DeepEqual(tensors, want.Tensors()) {
			t.Errorf("%s: %d tensors, want %d", name, len(tensors), len(want.Tensors()))
		}
		for _, x := range tensors {
			if !slices.Equal(all(t, s, x.Name), all(t, want, x.Name)) {
				t.Errorf("%s: %s differs", name, x.Name)
			}
		}
		var keys, library map[string]any
		for path, to := range map[string]*map[string]any{to: &keys, folder: &library} {
			if err := json.Unmarshal(readFile(t, filepath.Join(path, configName)), to); err != nil {
				t.Fatal(err)
			}
		}
		maps.Copy(library, older)
		for key, value := range library {
			switch key { // what says nothing about the model, is of the tokenizer, or has the default
			case "attention_dropout", "bos_token_id", "eos_token_id", "pad_token_id", "initializer_range", "transformers_version", "use_cache", "output_router_logits", "router_aux_loss_coef", "sliding_window":
			case "dtype":
				key = "torch_dtype"
				fallthrough
			default:
				if got := keys[key]; !reflect.DeepEqual(got, value) && key != "num_nextn_predict_layers" {
					t.Errorf("%s: %s is %v, the library writes %v", name, key, got, value)
				}
			}
		}
	}
}

// A selection bias is not lost: a Qwen3-MoE model has none.
func TestConvertRefusesBias(t *testing.T) {
	dir, config := runOf(t, "../golden/testdata/glm4_moe_tiny", 0, 1)
	config.NopeDim, config.RopeDim, config.ScoreFunc, config.RouteScale, config.SharedExperts = 0, 32, moe.Softmax, 1, 0
	config.QKVBias, config.BiasSpeed = false, 0
	s := opened(t, dir)
	s.config = config
	_, err := s.Convert(t.Context(), filepath.Join(t.TempDir(), "to"), Options{})
	refused(t, err, "e_score_correction_bias is not zero", "Qwen3-MoE")
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// A tensor larger than what is held in memory at a time.
func TestConvertParts(t *testing.T) {
	values := make([]float32, 2*chunk+12345)
	for i := range values {
		values[i] = float32(i) / 3
	}
	x := Tensor{"x", safetensors.F32, []int{len(values)}}
	s := &Source{entries: map[string]entry{"x": {x, given(values).floats}}}
	path := filepath.Join(t.TempDir(), "file")
	if err := s.writeFile(t.Context(), path, []Tensor{x}, Options{}); err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got, err := file.Float32s("x")
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		if v != tensor.ToBFloat16(values[i]).Float32() {
			t.Fatalf("element %d is %v, want %v", i, v, values[i])
		}
	}
}

// Whatever keeps a conversion from its end, nothing of it is left.
func TestConvertRefuses(t *testing.T) {
	run, _ := run(t, 1)
	s := opened(t, run)
	parent := t.TempDir()
	file := filepath.Join(parent, "file")
	writeFile(t, file, nil)
	to := filepath.Join(parent, "to")
	convert := func(ctx context.Context, to string, o Options) error {
		_, err := s.Convert(ctx, to, o)
		return err
	}
	refused(t, convert(t.Context(), file, Options{}), file, "exists", "remove it")
	refused(t, convert(t.Context(), parent, Options{}), parent, "exists")
	refused(t, convert(t.Context(), filepath.Join(file, "x"), Options{}), "not a directory")
	ended, end := context.WithCancel(t.Context())
	end()
	refused(t, convert(ended, to, Options{}), "context canceled")
	if got := names(t, parent); !slices.Equal(got, []string{"file"}) {
		t.Errorf("the folder holds %q", got)
	}
}

func TestForeign(t *testing.T) {
	const queries = "kv_heads = 2\nkv_rank = 0\nqk_norm = true\nnope_dim = 0\nrope_dim = 64\nbias_speed = 0\nscore_func = 'softmax'\nnorm_eps = 1e-5\n"
	for text, want := range map[string]int{
		"": 0, "score_func = 'softmax'": 1, "score_func = 'softmax'\nnorm_eps = 1e-5": 2, "score_func = 'softmax'\ndense_layers = 4": 0,
		queries: 1, queries + "shared_experts = 0": 0,
	} {
		c, err := parseConfig([]byte("flavor = 'debug'\n[model]\n" + text))
		if err != nil {
			t.Fatal(err)
		}
		got := (&Source{config: c.Model}).Foreign()
		if len(got) != want || want > 0 && !strings.Contains(got[0], moe.Softmax) {
			t.Errorf("%q: %q, want %d warnings", text, got, want)
		}
	}
}
