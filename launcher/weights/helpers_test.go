package weights

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"spmoe/launcher/checkpoint"
	"spmoe/launcher/checkpoint/safetensors"
	"spmoe/moe"
)

// reference is a model of another implementation, in FP32.
const reference = "../golden/testdata/deepseek_v3_tiny"

// opened opens a source until the test ends.
func opened(t testing.TB, path string) *Source {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// all returns the elements of a tensor.
func all(t testing.TB, s *Source, name string) []float32 {
	t.Helper()
	x, ok := s.entries[name]
	if !ok {
		t.Fatalf("%s has no tensor %s", s.Path(), name)
	}
	values := make([]float32, x.elements())
	if err := s.ReadInto(name, x.Shape, 0, values); err != nil {
		t.Fatal(err)
	}
	return values
}

// refused fails the test unless err has all of the words.
func refused(t testing.TB, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v, want %q in it", err, w)
		}
	}
}

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// edited returns a JSON object with other keys; a nil value removes one.
func edited(t testing.TB, text []byte, change map[string]any) []byte {
	t.Helper()
	keys := map[string]any{}
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	for k, v := range change {
		if keys[k] = v; v == nil {
			delete(keys, k)
		}
	}
	text, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// folder makes a Hugging Face folder of some tensors, with the configuration of the reference but
// for some keys.
func folder(t testing.TB, change map[string]any, tensors ...safetensors.Tensor) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, configName), edited(t, readFile(t, filepath.Join(reference, configName)), change))
	if err := safetensors.Write(filepath.Join(dir, singleName), tensors, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

func f32(values ...float32) (data []byte) {
	for _, x := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
	}
	return data
}

// run makes the folder of a run whose only checkpoint, by two ranks, holds the reference's weights
// times factor, and an MTP module of the weights of its last layer.
func run(t testing.TB, factor float32) (dir string, config moe.Config) {
	t.Helper()
	return runOf(t, reference, 1, factor)
}

// runOf is run with the weights of another folder and 0 or 1 MTP modules.
func runOf(t testing.TB, folder string, mtp int, factor float32) (dir string, config moe.Config) {
	t.Helper()
	s := opened(t, folder)
	config = s.Config()
	config.MTPLayers = mtp
	dir = filepath.Join(t.TempDir(), "run")
	w, err := checkpoint.NewWriter(checkpoint.Disk{}, dir, 7, 2)
	if err != nil {
		t.Fatal(err)
	}
	var shards [2][]checkpoint.Piece
	add := func(name string, shape []int, values []float32) {
		if isBias(name) {
			shards[0] = append(shards[0], checkpoint.Piece{Name: BiasPrefix + name, Shape: shape, Data: values})
			return
		}
		half := len(values) / 2
		shards[0] = append(shards[0], checkpoint.Piece{Name: MasterPrefix + name, Shape: shape, Data: values[:half]},
			checkpoint.Piece{Name: "exp_avg/" + name, Shape: shape, Data: values[:half]})
		shards[1] = append(shards[1], checkpoint.Piece{Name: MasterPrefix + name, Shape: shape, Offset: int64(half), Data: values[half:]})
	}
	for _, x := range s.Tensors() {
		values := all(t, s, x.Name)
		for i := range values {
			values[i] *= factor
		}
		add(x.Name, x.Shape, values)
		if rest, ok := strings.CutPrefix(x.Name, "model.layers.2."); ok && mtp > 0 {
			add("model.layers.3."+rest, x.Shape, values)
		}
	}
	if d := config.Dim; mtp > 0 {
		for _, name := range []string{"enorm", "hnorm", "shared_head.norm"} {
			add("model.layers.3."+name+".weight", []int{d}, make([]float32, d))
		}
		add("model.layers.3.eh_proj.weight", []int{d, 2 * d}, slices.Repeat([]float32{factor, -factor / 3}, d*d))
	}
	for rank, pieces := range shards {
		if err := w.WriteShard(rank, pieces, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(map[string]int{"step": 7}, tomlOf(t, config)); err != nil {
		t.Fatal(err)
	}
	return dir, config
}

// sharded returns the reference's model in several files.
func sharded(t testing.TB) string {
	t.Helper()
	dir, s := t.TempDir(), opened(t, reference)
	index, parts := map[string]string{}, make([][]safetensors.Tensor, 4)
	for i, x := range s.Tensors() {
		part := i * len(parts) / len(s.Tensors())
		parts[part] = append(parts[part], safetensors.Tensor{Name: x.Name, DType: safetensors.F32, Shape: x.Shape, Data: f32(all(t, s, x.Name)...)})
		index[x.Name] = fmt.Sprintf("model-%05d-of-00004.safetensors", part+1)
	}
	for i, tensors := range parts {
		if err := safetensors.Write(filepath.Join(dir, fmt.Sprintf("model-%05d-of-00004.safetensors", i+1)), tensors, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeJSON(dir, indexName, map[string]any{"weight_map": index}); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, configName), readFile(t, filepath.Join(reference, configName)))
	return dir
}
